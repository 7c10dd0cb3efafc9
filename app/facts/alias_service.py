"""Declares, lists and dismisses aliases. Each change is an operation that can be undone."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from app.core.clock import Clock, rfc3339
from app.errors import Conflict, LimitReached, NotFound, invalid, shortened
from app.facts.alias_schemas import AliasesCreate, EntityAlias
from app.facts.aliases import (
    ENTITY_ALIASES,
    MAX_ALIASES,
    AliasMap,
    AliasRepository,
    alias_id,
    contained,
    new_alias,
    states_of,
    untitled,
)
from app.facts.conflict_resolution import Statement, contend
from app.facts.graph import EntityNode, GraphService, Sight
from app.facts.keys import key_of
from app.facts.ledger import statement
from app.facts.repository import FactRepository
from app.jobs import queue
from app.jobs.models import ALIAS, OPERATIONS
from app.jobs.runner import Done, JobHandler, Run, undo_each
from app.jobs.skipping import skipping
from app.memories.repository import of_pair
from app.storage.changes import Change, Delete, Insert, Update
from app.storage.schema import Absent, Doc, Eq, In, both
from app.storage.scope import Partition
from app.writes.executor import WriteResult

MAX_NAMES = 50
"""The limit of names of one entity."""
MAX_CONTENDING = 500
"""The limit of facts that are looked at for what is said twice."""
_SHOWN = tuple(EntityAlias.model_fields)


@dataclass(slots=True)
class _Edit:
    """Changes of aliases, and what an undo needs: of each alias its state before and its version afterwards."""

    changes: list[Change] = field(default_factory=list)
    undo: list[Doc] = field(default_factory=list)
    after: dict[str, Doc] = field(default_factory=dict)


class AliasService:
    """The operations on aliases within a caller's scope. `undo_days`: for how long they can be undone."""

    def __init__(self, facts: FactRepository, graph: GraphService, clock: Clock, undo_days: float) -> None:
        self._facts, self._graph, self._clock, self._undo_days = facts, graph, clock, undo_days
        self._aliases = AliasRepository(facts.store, facts.scope)

    # --- Writing ------------------------------------------------------------------------------------------------------

    async def declare(self, name: str, body: AliasesCreate) -> WriteResult:
        """Makes names one entity. Returns 201, or 200 if they were."""
        owner = Partition(body.agent_id, body.user_id)
        self._facts.scope.require_write(*_ids(owner))
        key = key_of(name)
        for at, alias in enumerate(body.aliases):
            if key_of(alias) == key:
                raise invalid(f"/aliases/{at}", "is the name itself: case, width and spaces make no difference")
        aliases, edit, now = await self._aliases.of_owner(*_ids(owner)), _Edit(), rfc3339(self._clock.now())
        for alias in body.aliases:
            self._put(edit, aliases, new_alias(owner, name, alias, "stated", now))
        after = AliasMap((aliases.docs | edit.after).values())
        if len(after.keys(key)) > MAX_NAMES:
            raise LimitReached(
                f"An entity has at most {MAX_NAMES} names, itself included, and this would make it "
                f"{len(after.keys(key))}: remove an alias first."
            )
        new = sum(isinstance(change, Insert) for change in edit.changes)
        if new and await self._aliases.count(of_pair(*_ids(owner))) + new > MAX_ALIASES:
            raise LimitReached(
                f"An agent and user have at most {MAX_ALIASES} aliases, dismissed ones included: remove one first."
            )
        contends = await self._contending(owner, key, after)
        return self._changed(owner, name, after, edit, contends, status=201)

    async def dismiss(self, name: str, alias: str, owner: Partition) -> WriteResult:
        """Says that two names are not one entity: no rule joins or proposes them again. Raises NotFound if nothing
        joins or proposes them."""
        if owner == Partition(None, None):
            raise invalid("/query/user_id", "agent_id, user_id or both are required")
        self._facts.scope.require_write(*_ids(owner))
        aliases, edit, now = await self._aliases.of_owner(*_ids(owner)), _Edit(), rfc3339(self._clock.now())
        key, other = key_of(name), key_of(alias)
        joined = key != other and aliases.root(key) == aliases.root(other)
        if not joined and not await self._proposed(name, alias, owner):
            raise NotFound(
                f"{shortened(name)} and {shortened(alias)} are no aliases of each other here, and no rule proposes it."
            )
        direct = alias_id(*_ids(owner), key, other)
        mine = [doc for doc in aliases.active if _owner(doc) == owner]
        self._put(edit, aliases, _dismissed(new_alias(owner, name, alias, "stated", now)))
        if _joined(aliases, edit, key, other):  # by further names
            ends = [doc for doc in mine if other in (doc["name_key"], doc["alias_key"]) and doc["alias_id"] != direct]
            for doc in ends:
                self._put(edit, aliases, doc | {"status": "dismissed", "updated_at": now})
        if _joined(aliases, edit, key, other):
            raise Conflict("Aliases of another owner, such as the agent's for all its users, join these names.")
        after = AliasMap((aliases.docs | edit.after).values())
        return self._changed(owner, name, after, edit, [], status=200)

    def _put(self, edit: _Edit, aliases: AliasMap, doc: Doc) -> None:
        """Adds the change that stores an alias, or gives the stored one the status and the names of `doc`."""
        old = aliases.docs.get(doc["alias_id"]) or edit.after.get(doc["alias_id"])
        if old is None:
            edit.changes.append(self._aliases.insert(doc))
            edit.undo.append({"alias_id": doc["alias_id"], "version": 1, "before": None})
        elif old["status"] == doc["status"]:
            return
        else:
            kept = {} if doc["status"] == "dismissed" else {name: doc[name] for name in ("name", "alias", "rule")}
            kept |= {f"{side}_key": key_of(kept[side]) for side in ("name", "alias") if side in kept}
            states = [*states_of(old), {"status": doc["status"], "from": doc["updated_at"]}]
            before = {name: old[name] for name in ("status", *kept)} | {"states": states_of(old)}
            fields = {"status": doc["status"], **kept, "states": states}
            edit.changes.append(self._aliases.update(old, fields, now=doc["updated_at"]))
            edit.undo.append({"alias_id": doc["alias_id"], "version": old["version"] + 1, "before": before})
            doc = old | fields
        edit.after[doc["alias_id"]] = doc

    def _changed(
        self, owner: Partition, name: str, after: AliasMap, edit: _Edit, contends: list[Doc], *, status: int
    ) -> WriteResult:
        body: Doc = {**_listed(name, after), "items": [shown(doc) for doc in after.of(key_of(name))]}
        if not edit.changes:
            return WriteResult({**body, "operation_id": None, "contends": contends}, status=200)
        now, (agent, user) = self._clock.now(), _ids(owner)
        begun, _ = queue.begin(self._facts.scope, ALIAS, now, agent_id=agent, user_id=user)
        until = rfc3339(now + timedelta(days=self._undo_days))
        number = len(edit.changes)
        operation = begun | {
            "status": "succeeded",
            "progress": {"done": number, "total": number},
            "result": {"changed": number},
            "undo": {"until": until, "aliases": edit.undo},
        }
        changes = [*edit.changes, Insert(OPERATIONS, operation)]
        users = frozenset() if user is None else frozenset((user,))
        answer = {**body, "operation_id": operation["operation_id"], "contends": contends}
        return WriteResult(answer, changes, status, users=users)

    async def _contending(self, owner: Partition, key: str, aliases: AliasMap) -> list[Doc]:
        """Returns what the facts of an owner say twice of an entity, of which one thing is true at a time."""
        where = both(
            of_pair(*_ids(owner)),
            In("subject_key", aliases.keys(key)),
            Eq("standing", "held"),
            Eq("cardinality", "one"),
            Absent("known_until"),
        )
        groups: dict[str, list[Doc]] = {}
        for fact in await self._facts.find(where, order="asc", limit=MAX_CONTENDING):
            groups.setdefault(fact["predicate_key"], []).append(fact)
        found = []
        for facts in groups.values():
            said = [(fact, statement(fact, aliases.object_of(fact))) for fact in facts]
            ids = [fact["fact_id"] for fact, one in said if any(_excludes(one, other) for _, other in said)]
            if ids:
                found.append({"predicate": facts[0]["predicate"], "fact_ids": ids})
        return found

    # --- Reading ------------------------------------------------------------------------------------------------------

    async def listed(self, name: str, sight: Sight, status: str) -> Doc:
        """Returns the aliases of an entity, and the ones that rules propose."""
        graph = await self._graph.graph(sight)
        aliases, key = graph.aliases, key_of(name)
        names = set(aliases.keys(key))
        items = aliases.of(key) if status in ("active", "any") else []
        if status in ("dismissed", "any"):
            gone = [doc for doc in aliases.docs.values() if doc["status"] == "dismissed"]
            items = [*items, *(doc for doc in gone if names & {doc["name_key"], doc["alias_key"]})]
        answer: Doc = {**_listed(name, aliases), "items": [shown(doc) for doc in items], "truncated": None}
        if status in ("proposed", "any"):
            entities, answer["truncated"] = await graph.entities("")
            owner = {"agent_id": sight.agent_id, "user_id": sight.user_id}
            answer["items"] += [owner | one for one in proposals(name, entities, aliases)]
        return answer

    async def _proposed(self, name: str, alias: str, owner: Partition) -> bool:
        agent, user = _ids(owner)
        found = await self.listed(name, Sight(agent, user, True, None, None), "proposed")
        return any(key_of(alias) in (key_of(one["name"]), key_of(one["alias"])) for one in found["items"])


def proposals(name: str, entities: dict[str, EntityNode], aliases: AliasMap) -> list[Doc]:
    """Returns the aliases that rules propose for an entity: full names that begin or end with its name if there is just
    one, names that its name begins or ends with, and the same names with other titles."""
    mine = set(aliases.keys(key_of(name)))
    spelled = {key: one.name for key, one in entities.items()} | {key: aliases.spelled(key) for key in mine}
    spelled[key_of(name)] = name
    dismissed = {
        frozenset((doc["name_key"], doc["alias_key"])) for doc in aliases.docs.values() if doc["status"] == "dismissed"
    }
    found: dict[tuple[str, str], str] = {}
    for key in sorted(spelled):
        for own in sorted(mine) if key not in mine else []:
            if frozenset((key, own)) in dismissed:
                continue
            if (untitled(key) or key) == (untitled(own) or own) and " " in (untitled(key) or key):
                found[min((key, own), key=len), max((key, own), key=len)] = "title"
            elif contained(own, key) and _alone(own, spelled, aliases):
                found[key, own] = "contains"
            elif contained(key, own) and _alone(key, spelled, aliases):
                found[own, key] = "contains"
    blank = {"status": "proposed", "created_at": None}
    return [{"name": spelled[f], "alias": spelled[part], "rule": rule, **blank} for (f, part), rule in found.items()]


def _alone(part: str, keys: Iterable[str], aliases: AliasMap) -> bool:
    """Returns True if the names that begin or end with this part are those of one entity."""
    full = {aliases.root(untitled(key) or key) for key in keys if contained(part, key)}
    return len(full) == 1


def _excludes(one: Statement, other: Statement) -> bool:
    return one.object != other.object and contend(one, other) and one.span.overlaps(other.span)


def _joined(aliases: AliasMap, edit: _Edit, key: str, other: str) -> bool:
    after = AliasMap((aliases.docs | edit.after).values())
    return after.root(key) == after.root(other)


def _listed(name: str, aliases: AliasMap) -> Doc:
    key = key_of(name)
    names = [aliases.spelled(one) if aliases.name(key) else name for one in aliases.keys(key)]
    return {"entity": names[0], "names": names, "next_cursor": None}


def shown(doc: Doc) -> Doc:
    """Returns the fields of `EntityAlias`, in its order."""
    return {name: doc[name] for name in _SHOWN}


def _dismissed(new: Doc) -> Doc:
    status = "dismissed"
    return new | {"status": status, "states": [{"status": status, "from": new["created_at"]}]}


def _owner(doc: Doc) -> Partition:
    return Partition(doc["agent_id"], doc["user_id"])


def _ids(owner: Partition) -> tuple[str | None, str | None]:
    return owner.agent if isinstance(owner.agent, str) else None, owner.user


async def undo_aliases(run: Run) -> Done:
    """Undoes an operation on aliases. An alias that was changed again since is left as it is, and counted."""

    async def pieces() -> AsyncIterator[Doc]:
        for piece in run.payload["undo"]["aliases"]:
            doc = await run.store.get(ENTITY_ALIASES, run.tenant, piece["alias_id"])
            restored = True
            with skipping(ENTITY_ALIASES, piece["alias_id"]):
                restored = _restored(doc, piece)
            if not restored:
                yield piece

    async def back(piece: Doc) -> list[Change] | None:
        doc = await run.store.get(ENTITY_ALIASES, run.tenant, piece["alias_id"])
        if doc is None or doc["version"] != piece["version"]:
            return None
        expect = {"version": doc["version"]}
        if piece["before"] is None:
            return [Delete(ENTITY_ALIASES, run.tenant, doc["alias_id"], expect)]
        fields = {**piece["before"], "updated_at": rfc3339(run.clock.now())}
        return [Update(ENTITY_ALIASES, run.tenant, doc["alias_id"], fields, {"version": 1}, expect)]

    return await undo_each(run, ENTITY_ALIASES, pieces(), back)


def _restored(doc: Doc | None, piece: Doc) -> bool:
    """Returns True if an earlier attempt of the run undid this piece."""
    if doc is None:
        return piece["before"] is None
    before = piece["before"]
    return before is not None and doc["version"] == piece["version"] + 1 and doc["status"] == before["status"]


ALIAS_UNDO: dict[str, JobHandler] = {ALIAS: undo_aliases}
