"""Aliases: declared relations between two names of one entity. Facts keep the names that they were asserted with.

Names are one entity if a chain of active aliases joins them. Aliases belong to an owner (agent, user), as facts do, and
are used only where the facts of that owner are read or asserted. A dismissed alias joins nothing. It is kept, so that
no rule makes or proposes it again. Two names are of one entity at all times or never, so an alias has no valid time; it
has a known time, as facts do.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated, Literal

import orjson
from pydantic import Field
from typing_extensions import TypeAliasType, TypedDict

from app.core.schemas import shown, shown_as
from app.facts.repository import of_partitions
from app.facts.schemas import FACT_GROUPS, FACTS, FactRecord, group_of, key_of
from app.storage.protocol import Store
from app.storage.repository import Repository
from app.storage.schema import Collection, Or, OwnedRecord, both
from app.storage.scope import Partition, Scope

AliasStatus = TypeAliasType("AliasStatus", Literal["active", "proposed", "dismissed"])
AliasRule = TypeAliasType("AliasRule", Literal["stated", "title", "contains"])


@shown
class EntityAlias(TypedDict):
    agent_id: str | None
    user_id: str | None
    name: Annotated[str, Field(description="The name that it was declared for.")]
    alias: str
    status: Annotated[AliasStatus, Field(description="`active` joins the names; `proposed` and `dismissed` do not.")]
    rule: Annotated[
        AliasRule,
        Field(
            description="`stated`: a caller declared it. `title`: one is the other with titles. `contains`: one is the "
            "first or last word of the other, and of no other name."
        ),
    ]
    created_at: Annotated[str | None, Field(description="Null for a proposal: it is not stored.")]


AliasState = TypedDict("AliasState", {"status": Literal["active", "dismissed"], "from": str})
"""A status of an alias, and the time from which it was known (RFC 3339)."""


class AliasRecord(OwnedRecord, total=False):
    """A document of the collection `entity_aliases`. `ENTITY_ALIASES` explains its fields."""

    alias_id: str
    name: str
    name_key: str
    alias: str
    alias_key: str
    status: Literal["active", "dismissed"]
    rule: AliasRule
    states: list[AliasState]


ENTITY_ALIASES: Collection[AliasRecord] = Collection(
    name="entity_aliases",
    kind="alias",
    counted=True,
    cached=True,
    id_field="alias_id",
    fields={
        "agent_id": "text",
        "user_id": "text",
        "name": "text",
        "name_key": "text",
        "alias": "text",
        "alias_key": "text",
        "status": "text",
        "rule": "text",
        "created_at": "time",
    },
    indexes=(("user_id", "agent_id"), ("user_id",)),
    opaque=("states",),
    internal=frozenset({"name_key", "alias_key"}),
)
"""The id is a hash of the owner and of both keys, so that a pair of names has one record for each owner. `rule` says
who made it: `stated` (a caller) or `title` (the rule for titles). `states` has each status with the time from which it
was known."""
FACT_COLLECTIONS = (FACTS, FACT_GROUPS, ENTITY_ALIASES)


def render_alias(alias: AliasRecord) -> EntityAlias:
    return shown_as(EntityAlias, alias)


MAX_ALIASES = 500
"""The limit of aliases of one owner, dismissed ones included."""
MAX_READ = 2 * MAX_ALIASES
"""The limit of aliases that a read uses of each user, the latest ones, and of those of no user."""


TITLES = frozenset(
    "dr prof professor mr mrs ms mx herr frau monsieur madame mme mlle señor señora señorita signor signora".split()
)
FULL_NAME = range(2, 5)
"""The number of words of a full name."""


def untitled(name: str) -> str | None:
    """Returns a name without the titles at its beginning: `Ada Lovelace` for `Dr. Ada Lovelace`. Returns None if it has
    none, or nothing else."""
    words = name.split()
    begin = 0
    while begin < len(words) and key_of(words[begin]).rstrip(".") in TITLES:
        begin += 1
    return " ".join(words[begin:]) or None if begin else None


def titled(name: str) -> str | None:
    """Returns the full name that a name with titles stands for. Returns None if a single word follows them: more people
    than one may be `Mr. Smith`, and `Mrs. Smith` is another one."""
    rest = untitled(name)
    return rest if rest is not None and len(rest.split()) in FULL_NAME else None


def contained(part: str, full: str) -> bool:
    """Returns True if a key of one word, without its titles, begins or ends a full name: `ada` or `dr. lovelace` in
    `ada lovelace`."""
    word, words = untitled(part) or part, (untitled(full) or full).split()
    return len(words) in FULL_NAME and word in (words[0], words[-1])


def alias_id(agent: str | None, user: str | None, key: str, other: str) -> str:
    """Returns the id of the alias that joins two keys, in either order, for an owner."""
    return f"als_{blake2b(orjson.dumps([agent, user, *sorted((key, other))]), digest_size=16).hexdigest()}"


def new_alias(owner: Partition, name: str, alias: str, rule: AliasRule, now: str) -> AliasRecord:
    """Returns the record of an active alias."""
    name_key, alias_key = key_of(name), key_of(alias)
    agent = owner.agent if isinstance(owner.agent, str) else None
    return {
        "alias_id": alias_id(agent, owner.user, name_key, alias_key),
        "agent_id": agent,
        "user_id": owner.user,
        "name": name,
        "name_key": name_key,
        "alias": alias,
        "alias_key": alias_key,
        "status": "active",
        "rule": rule,
        "states": [{"status": "active", "from": now}],
        "version": 1,
        "created_at": now,
        "updated_at": now,
    }


def known_then(aliases: Iterable[AliasRecord], known_at: str) -> Iterator[AliasRecord]:
    """Yields the aliases that were known at a time, each with the status that it had."""
    for alias in aliases:
        then = [state["status"] for state in alias["states"] if state["from"] <= known_at]
        if then:
            yield {**alias, "status": then[-1]}


class AliasMap:
    """The entities that aliases form. A key without an alias is an entity of its own.

    `records`: the aliases by id, dismissed ones included.
    """

    def __init__(self, aliases: Iterable[AliasRecord] = ()) -> None:
        self.records = {alias["alias_id"]: alias for alias in aliases}
        self._names: dict[str, str] = {}
        self._root: dict[str, str] = {}
        self._members: dict[str, tuple[str, ...]] = {}
        named: Counter[str] = Counter()
        entities: dict[str, set[str]] = {}
        for alias in sorted(self.active, key=_declared):
            name_key, alias_key = alias["name_key"], alias["alias_key"]
            named[name_key] += 1
            self._names.setdefault(name_key, alias["name"])
            self._names.setdefault(alias_key, alias["alias"])
            joined = entities.get(name_key, {name_key}) | entities.get(alias_key, {alias_key})
            entities |= dict.fromkeys(joined, joined)
        for key, members in entities.items():
            if key not in self._root:
                root = min(members, key=lambda member: (-named[member], member))
                self._root |= dict.fromkeys(members, root)
                self._members[root] = (root, *sorted(members - {root}))

    def __bool__(self) -> bool:
        return bool(self._root)

    @property
    def active(self) -> list[AliasRecord]:
        """The aliases that join names."""
        return [alias for alias in self.records.values() if alias["status"] == "active"]

    @property
    def dismissed(self) -> list[AliasRecord]:
        """The aliases that join no names any more, and that no rule makes again."""
        return [alias for alias in self.records.values() if alias["status"] == "dismissed"]

    def root(self, key: str) -> str:
        """Returns the key that stands for the entity: the name that most of its aliases were declared for."""
        return self._root.get(key, key)

    def keys(self, key: str) -> tuple[str, ...]:
        """Returns all keys of the entity, that of `root` first."""
        return self._members.get(self.root(key), (key,))

    def widened(self, keys: Iterable[str]) -> list[str]:
        """Returns the keys of all entities that the keys name, each once."""
        return list(dict.fromkeys(member for key in keys for member in self.keys(key))) if self else list(keys)

    def name(self, key: str) -> str | None:
        """Returns the name that stands for an entity with aliases; None for others."""
        return self._names.get(self.root(key))

    def spelled(self, key: str) -> str:
        """Returns the name of this key as an alias has it, or the key."""
        return self._names.get(key, key)

    def names(self) -> list[list[str]]:
        """Returns all names of each entity, as its aliases have them."""
        return [[self._names[key] for key in members] for members in self._members.values()]

    def groups(self, fact: FactRecord) -> list[str]:
        """Returns the ids of the groups of a fact's entity and predicate, that of `root` first, and of its own one."""
        if fact["subject_key"] not in self._root:
            return [fact["group_id"]]
        agent, user, predicate = fact["agent_id"], fact["user_id"], fact["predicate_key"]
        ids = [group_of(agent, user, key, predicate) for key in self.keys(fact["subject_key"])]
        return list(dict.fromkeys([*ids, fact["group_id"]]))

    def of(self, key: str) -> list[AliasRecord]:
        """Returns the active aliases of an entity, the first declared one first."""
        root = self.root(key)
        return sorted((alias for alias in self.active if self.root(alias["name_key"]) == root), key=_declared)

    def resolved(self, fact: FactRecord) -> FactRecord:
        """Returns a fact with the keys of the entities that its subject and object stand for."""
        if not self or (fact["subject_key"] not in self._root and fact["object_key"] not in self._root):
            return fact
        return {**fact, "subject_key": self.root(fact["subject_key"]), "object_key": self.object_of(fact)}

    def object_of(self, fact: FactRecord) -> str:
        """Returns the key that a fact's object is compared by: a literal has no aliases."""
        return self.root(fact["object_key"]) if fact["object_type"] == "entity" else fact["object_key"]


def _declared(alias: AliasRecord) -> tuple[str, str]:
    """Returns the place of an alias in the order in which they were declared."""
    return alias["created_at"], alias["alias_id"]


@dataclass(frozen=True, slots=True)
class Titled:
    """Aliases that the rule for titles makes, and the map with them."""

    new: list[AliasRecord]
    aliases: AliasMap


class AliasRepository(Repository[AliasRecord]):
    """The aliases that a caller may see."""

    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__(store, scope, ENTITY_ALIASES)

    async def of_partitions(self, partitions: Sequence[Partition], known_at: str | None = None) -> AliasMap:
        """Returns the aliases of partitions, as they were known then: of each user the latest `MAX_READ`."""
        of_users = [await self.find(both(of_user), limit=MAX_READ) for of_user in of_partitions(partitions)]
        aliases = (alias for of_user in of_users for alias in of_user)
        return AliasMap(aliases if known_at is None else known_then(aliases, known_at))

    async def of_owner(self, agent: str | None, user: str | None) -> AliasMap:
        """Returns the aliases that hold for facts of exactly this owner: its own, the agent's and the user's."""
        return await self.of_partitions(around(agent, user))

    def with_titles(self, aliases: AliasMap, owner: Partition, names: Iterable[str], now: str) -> Titled:
        """Returns the aliases that the rule for titles makes for these names. A pair that has an alias, dismissed or
        not, gets no other one."""
        known = {frozenset((alias["name_key"], alias["alias_key"])) for alias in aliases.records.values()}
        room = MAX_ALIASES - sum((alias["agent_id"], alias["user_id"]) == owner for alias in aliases.records.values())
        new: dict[str, AliasRecord] = {}
        for name in names:
            full = titled(name)
            if full is not None and frozenset((key_of(full), key_of(name))) not in known:
                alias = new_alias(owner, full, name, "title", now)
                new.setdefault(alias["alias_id"], alias)
        made = list(new.values())[: max(0, room)]
        return Titled(made, AliasMap([*aliases.records.values(), *made]) if made else aliases)


class DeclaredNames:
    """The names that active aliases join, for searches (`NameSource`)."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def groups(self, scope: Scope, partitions: Sequence[Partition], known_at: str | None) -> list[list[str]]:
        """Returns the names of each entity of these partitions that has several, as it was known then."""
        where = of_partitions(partitions)
        repository = AliasRepository(self._store, scope)
        aliases = await repository.find(where[0] if len(where) == 1 else Or(tuple(where)), limit=MAX_READ)
        return AliasMap(aliases if known_at is None else known_then(aliases, known_at)).names() if aliases else []


def around(agent: str | None, user: str | None) -> list[Partition]:
    """Returns the partition of an owner, and those of its agent for all users and of its user for all agents."""
    wanted = (Partition(agent, user), Partition(agent, None), Partition(None, user))
    return [partition for partition in dict.fromkeys(wanted) if partition != Partition(None, None)]
