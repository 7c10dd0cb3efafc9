"""Queries for facts: by content, by valid time and by known time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from app.core.schemas import RecordFilters
from app.facts import schemas
from app.facts.ledger import OPEN_END, OPEN_START, ValidSpan
from app.facts.profile import PROFILE_KEYS, states
from app.memories.repository import of_partition, pending_note
from app.memories.search import SourceSessionFilters, of_session, true_at
from app.storage.changes import Change, Delete, DeleteWhere, IndexEntry, Insert, Update
from app.storage.protocol import Store
from app.storage.repository import Repository, having, pages
from app.storage.schema import EVERYTHING, Absent, Eq, Filter, In, Not, Or, Range, both
from app.storage.scope import Partition, Scope


@dataclass(frozen=True, slots=True)
class View:
    """A point in both times. `as_of=None` means any valid time, `known_at=None` what is known now."""

    as_of: str | None
    known_at: str | None = None

    def believed(self) -> Filter:
        """Filters facts that were believed and true then."""
        return both(Eq("standing", "held"), self.known(), self.valid())

    def disputed(self) -> Filter:
        """Filters facts that were disputed then."""
        return both(Eq("standing", "disputed"), self.known(), self.valid())

    def known(self) -> Filter:
        """Filters facts that were known then. Without `known_at` these are the facts that are not closed, even if their
        `known_from` lies slightly ahead."""
        if self.known_at is None:
            return Absent("known_until")
        return both(self.written(), Or((Absent("known_until"), Range("known_until", gt=self.known_at))))

    def written(self) -> Filter:
        """Filters facts that had been written by then."""
        return EVERYTHING if self.known_at is None else Range("known_from", le=self.known_at)

    def valid(self) -> Filter:
        return EVERYTHING if self.as_of is None else both(*true_at(self.as_of))

    def of_status(self, status: str) -> Filter:
        """Filters by status: `superseded` and `retracted` are facts closed by then, `any` are all facts written by
        then."""
        if status == "active":
            return self.believed()
        if status == "disputed":
            return self.disputed()
        if status == "any":
            return both(self.written(), self.valid())
        gone = None if self.known_at is None else Range("known_until", le=self.known_at)
        return both(Eq("status", status), gone, self.valid())


class FactFilters(RecordFilters, SourceSessionFilters, total=False):
    """What a list of facts is asked for. None, as what is absent, filters nothing."""

    subject: str | None
    predicate: str | None
    object: str | None
    object_type: schemas.ObjectType | None
    as_of: str | None
    known_at: str | None
    timeline: bool
    status: schemas.FactListStatus


def about(filters: FactFilters, names: Callable[[str], tuple[str, ...]] = lambda key: (key,)) -> Filter:
    """Filters by owner and by content. Owners must match exactly; texts are compared by key. `names` returns all keys
    of the entity that a key names."""
    subject, predicate, object_ = filters.get("subject"), filters.get("predicate"), filters.get("object")
    return both(
        having(filters, "agent_id", "user_id"),
        None if subject is None else any_of("subject_key", names(schemas.key_of(subject))),
        None if object_ is None else any_of("object_key", names(schemas.key_of(object_))),
        None if predicate is None else along(predicate),
        having(filters, "object_type"),
        *of_session(filters),
    )


def along(predicate: str) -> Filter:
    """Filters by predicate, however it is spelled."""
    return Eq("predicate_key", schemas.predicate_key(predicate))


def any_of(field: str, keys: tuple[str, ...]) -> Filter:
    """Filters by one of the keys, of which there is at least one."""
    return Eq(field, keys[0]) if len(keys) == 1 else In(field, keys)


def of_partitions(partitions: Sequence[Partition]) -> list[Filter]:
    """Returns one filter for each user of the partitions, and one for records without a user. Together they select the
    partitions, and each uses a range of an index."""
    filters, by_user = list[Filter](), dict[str | None, list[Partition]]()
    for partition in partitions:
        by_user.setdefault(partition.user, []).append(partition)
    for user, owned in by_user.items():
        named = [agent for agent, _ in owned if agent is None or isinstance(agent, str)]
        of_user = Absent("user_id") if user is None else Eq("user_id", user)
        filters.append(both(of_user, _one_of(named) if len(named) == len(owned) else None))
    return filters


def _one_of(agents: Sequence[str | None]) -> Filter:
    named = tuple(agent for agent in agents if agent is not None)
    parts: list[Filter] = [In("agent_id", named)] if named else []
    if None in agents:
        parts.append(Absent("agent_id"))
    return parts[0] if len(parts) == 1 else Or(tuple(parts))


AT_ONCE = 500
"""The number of facts that one query reads."""


class FactRepository(Repository[schemas.FactRecord]):
    """The facts and fact groups that a caller may see."""

    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__(store, scope, schemas.FACTS)

    async def group(self, group_id: str) -> schemas.FactGroupRecord | None:
        return await self.store.get(schemas.FACT_GROUPS, self.scope.tenant, group_id)

    async def groups(self, group_ids: Sequence[str]) -> dict[str, schemas.FactGroupRecord]:
        if len(group_ids) == 1:
            only = await self.group(group_ids[0])
            return {} if only is None else {only["group_id"]: only}
        wanted = In("group_id", tuple(group_ids))
        groups = await self.store.find(schemas.FACT_GROUPS, self.scope.tenant, wanted, limit=len(group_ids))
        return {group["group_id"]: group for group in groups}

    async def spelling(self, agent: str | None, user: str | None, key: str) -> str | None:
        """Returns the spelling of a predicate that the scope (agent, user) had first, or None if it is new there."""
        where = both(Eq("predicate_key", key), of_partition(agent, user))
        first = await self.store.find(schemas.FACT_GROUPS, self.scope.tenant, where, order="asc", limit=1)
        return first[0]["predicate"] if first else None

    async def takes_many(self, agent: str | None, user: str | None, key: str) -> bool:
        """Returns whether a predicate was ever stated as `many` in the scope (agent, user), of whatever subject."""
        where = both(Eq("predicate_key", key), of_partition(agent, user), Eq("usual", "many"))
        return bool(await self.store.find(schemas.FACT_GROUPS, self.scope.tenant, where, limit=1))

    async def near(self, group_ids: Sequence[str], span: ValidSpan, objects: Sequence[str]) -> list[schemas.FactRecord]:
        """Returns the live facts of the groups that touch the span, as far as the rules need them for these objects."""
        return await self._find_all(
            both(
                In("group_id", tuple(group_ids)),
                Absent("known_until"),
                None if span.start == OPEN_START else Or((Absent("valid_until"), Range("valid_until", ge=span.start))),
                None if span.end == OPEN_END else Or((Absent("valid_from"), Range("valid_from", le=span.end))),
                Or((Eq("cardinality", "one"), In("object_key", tuple(dict.fromkeys(objects))))),
            )
        )

    async def lineage(self, fact: schemas.FactRecord) -> list[schemas.FactRecord]:
        """Returns all facts of a fact's lineage, in the order of creation."""
        return await self._find_all(Eq("lineage_id", fact["lineage_id"]))

    async def of_profiles(self, user_ids: Sequence[str], view: View) -> dict[str, dict[str, schemas.FactRecord]]:
        """Returns the facts that state the fields of users' profiles, by user and field."""
        whose = In("user_id", tuple(dict.fromkeys(user_ids)))
        stating = both(Eq("subject_key", schemas.USER), Absent("agent_id"), In("predicate_key", PROFILE_KEYS))
        of_users: dict[str, list[schemas.FactRecord]] = {user_id: [] for user_id in user_ids}
        for fact in await self._find_all(both(stating, whose, view.believed())) if user_ids else []:
            if fact["user_id"] is not None:
                of_users[fact["user_id"]].append(fact)
        return {user_id: states(facts) for user_id, facts in of_users.items()}

    async def _find_all(self, where: Filter) -> list[schemas.FactRecord]:
        return [fact async for facts in pages(partial(self.find, where), schemas.FACTS, AT_ONCE) for fact in facts]

    # --- Changes ------------------------------------------------------------------------------------------------------

    def add(self, fact: schemas.FactRecord, entry: IndexEntry) -> list[Change]:
        pending = entry.vector is None
        return [self.insert({**fact, "pending": pending}, entry), *self._noted(fact, pending)]

    def add_like(self, fact: schemas.FactRecord, stored: str) -> list[Change]:
        """Returns the changes that insert the remainder of the fact `stored`, with that fact's vector if it has one."""
        inserted = self.insert(fact)
        return [replace(inserted, like=stored), *self._noted(fact, fact.get("pending", False))]

    def _noted(self, fact: schemas.FactRecord, pending: bool) -> list[Change]:
        return [pending_note(schemas.FACTS, self.scope.tenant, fact["fact_id"], fact["created_at"])] if pending else []

    def close(self, fact: schemas.FactRecord) -> Update[schemas.FactRecord]:
        """Returns the change that closes a fact as `fact` says. No other field of a stored fact ever changes."""
        closed: schemas.FactRecord = {
            "status": fact["status"],
            "known_until": fact["known_until"],
            "superseded_by": fact["superseded_by"],
        }
        return self.update(fact, closed, now=fact["updated_at"], expect={"version": fact["version"] - 1})

    def turn(
        self, group: schemas.FactGroupRecord | None, fact: schemas.FactRecord, now: str, usual: schemas.Cardinality
    ) -> Change:
        """Returns the change to the next version of the fact's group. A concurrent writer that read the same version
        must plan again."""
        self.scope.require_write(fact["agent_id"], fact["user_id"])
        turned: schemas.FactGroupRecord = {"known": now, "usual": usual, "updated_at": now}
        if group is not None:
            expect = {"version": group["version"]}
            return Update(schemas.FACT_GROUPS, self.scope.tenant, group["group_id"], turned, {"version": 1}, expect)
        new: schemas.FactGroupRecord = {
            "tenant_id": self.scope.tenant,
            "group_id": fact["group_id"],
            "agent_id": fact["agent_id"],
            "user_id": fact["user_id"],
            "predicate": fact["predicate"],
            "predicate_key": fact["predicate_key"],
            **turned,
            "version": 1,
            "created_at": now,
        }
        return Insert(schemas.FACT_GROUPS, new)

    def remove(self, fact: schemas.FactRecord) -> list[Change]:
        """Returns the changes that delete a whole lineage."""
        self.scope.require_write(fact["agent_id"], fact["user_id"])
        named = Delete(schemas.FACTS, self.scope.tenant, fact["fact_id"], user=fact["user_id"])
        return [named, DeleteWhere(schemas.FACTS, self.scope.tenant, Eq("lineage_id", fact["lineage_id"]))]

    async def left_by(self, fact: schemas.FactRecord, group: schemas.FactGroupRecord) -> Change:
        """Returns the change of a group whose lineage is deleted: it goes with its last one."""
        tenant, expect = self.scope.tenant, {"version": group["version"]}
        others = both(Eq("group_id", fact["group_id"]), Not(Eq("lineage_id", fact["lineage_id"])))
        if not await self.store.find(schemas.FACTS, tenant, others, limit=1):
            return Delete(schemas.FACT_GROUPS, tenant, group["group_id"], expect)
        return Update(schemas.FACT_GROUPS, tenant, group["group_id"], inc={"version": 1}, expect=expect)
