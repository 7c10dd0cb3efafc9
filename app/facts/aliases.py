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
from typing import Literal, TypedDict

import orjson

from app.facts.alias_schemas import AliasRule
from app.facts.keys import group_of, key_of
from app.facts.repository import of_pairs
from app.facts.schemas import FACT_GROUPS, FACTS
from app.storage.changes import Insert
from app.storage.protocol import Store
from app.storage.repository import Repository
from app.storage.schema import Collection, Doc, Or, OwnedRecord, both
from app.storage.scope import Partition, Scope

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
was known; an earlier version stored none."""

FACT_COLLECTIONS = (FACTS, FACT_GROUPS, ENTITY_ALIASES)

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


def alias_id(agent: str | None, user: str | None, one: str, other: str) -> str:
    """Returns the id of the alias that joins two keys, in either order, for an owner."""
    return f"als_{blake2b(orjson.dumps([agent, user, *sorted((one, other))]), digest_size=16).hexdigest()}"


def new_alias(owner: Partition, name: str, alias: str, rule: str, now: str) -> Doc:
    """Returns the document of an active alias."""
    keys = key_of(name), key_of(alias)
    agent = owner.agent if isinstance(owner.agent, str) else None
    return {
        "alias_id": alias_id(agent, owner.user, *keys),
        "agent_id": agent,
        "user_id": owner.user,
        "name": name,
        "name_key": keys[0],
        "alias": alias,
        "alias_key": keys[1],
        "status": "active",
        "rule": rule,
        "states": [{"status": "active", "from": now}],
        "version": 1,
        "created_at": now,
        "updated_at": now,
    }


def states_of(doc: Doc) -> list[Doc]:
    """Returns each status of an alias with the time from which it was known, in order. One that an earlier version
    stored has had its status since it was made."""
    return doc.get("states") or [{"status": doc["status"], "from": doc["created_at"]}]


def known_then(docs: Iterable[Doc], known_at: str) -> Iterator[Doc]:
    """Yields the aliases that were known at a time, each with the status that it had."""
    for doc in docs:
        then = [one["status"] for one in states_of(doc) if one["from"] <= known_at]
        if then:
            yield doc | {"status": then[-1]}


class AliasMap:
    """The entities that aliases form. A key without an alias is an entity of its own."""

    def __init__(self, docs: Iterable[Doc] = ()) -> None:
        self.docs = {doc["alias_id"]: doc for doc in docs}
        self._names: dict[str, str] = {}
        self._root: dict[str, str] = {}
        self._members: dict[str, tuple[str, ...]] = {}
        named: Counter[str] = Counter()
        entities: dict[str, set[str]] = {}
        for doc in sorted(self.active, key=lambda doc: (doc["created_at"], doc["alias_id"])):
            named[doc["name_key"]] += 1
            for side in ("name", "alias"):
                self._names.setdefault(doc[f"{side}_key"], doc[side])
            one, other = (entities.get(doc[key], {doc[key]}) for key in ("name_key", "alias_key"))
            joined = one | other
            entities |= dict.fromkeys(joined, joined)
        for key, members in entities.items():
            if key not in self._root:
                root = min(members, key=lambda each: (-named[each], each))
                self._root |= dict.fromkeys(members, root)
                self._members[root] = (root, *sorted(members - {root}))

    def __bool__(self) -> bool:
        return bool(self._root)

    @property
    def active(self) -> list[Doc]:
        """The aliases that join names."""
        return [doc for doc in self.docs.values() if doc["status"] == "active"]

    def root(self, key: str) -> str:
        """Returns the key that stands for the entity: the name that most of its aliases were declared for."""
        return self._root.get(key, key)

    def keys(self, key: str) -> tuple[str, ...]:
        """Returns all keys of the entity, that of `root` first."""
        return self._members.get(self.root(key), (key,))

    def widened(self, keys: Iterable[str]) -> list[str]:
        """Returns the keys of all entities that the keys name, each once."""
        return list(dict.fromkeys(each for key in keys for each in self.keys(key))) if self else list(keys)

    def name(self, key: str) -> str | None:
        """Returns the name that stands for an entity with aliases; None for others."""
        return self._names.get(self.root(key))

    def spelled(self, key: str) -> str:
        """Returns the name of this key as an alias has it, or the key."""
        return self._names.get(key, key)

    def names(self) -> list[list[str]]:
        """Returns all names of each entity, as its aliases have them."""
        return [[self._names[key] for key in members] for members in self._members.values()]

    def groups(self, fact: Doc) -> list[str]:
        """Returns the ids of the groups of a fact's entity and predicate, that of `root` first, and of its own one."""
        if fact["subject_key"] not in self._root:
            return [fact["group_id"]]
        owner, predicate = (fact["agent_id"], fact["user_id"]), fact["predicate_key"]
        ids = [group_of(*owner, key, predicate) for key in self.keys(fact["subject_key"])]
        return list(dict.fromkeys([*ids, fact["group_id"]]))

    def of(self, key: str) -> list[Doc]:
        """Returns the active aliases of an entity, the first declared one first."""
        mine = [doc for doc in self.active if self.root(doc["name_key"]) == self.root(key)]
        return sorted(mine, key=lambda doc: (doc["created_at"], doc["alias_id"]))

    def resolved(self, fact: Doc) -> Doc:
        """Returns a fact with the keys of the entities that its subject and object stand for."""
        if not self or (fact["subject_key"] not in self._root and fact["object_key"] not in self._root):
            return fact
        ends = {"subject_key": self.root(fact["subject_key"]), "object_key": self.object_of(fact)}
        return fact | ends

    def object_of(self, fact: Doc) -> str:
        """Returns the key that a fact's object is compared by: a literal has no aliases."""
        key: str = fact["object_key"]
        return self.root(key) if fact["object_type"] == "entity" else key


@dataclass(frozen=True, slots=True)
class Titled:
    """Aliases that the rule for titles makes, and the map with them."""

    new: list[Doc]
    aliases: AliasMap


class AliasRepository(Repository):
    """The aliases that a caller may see."""

    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__(store, scope, ENTITY_ALIASES)

    async def of_pairs(self, pairs: Sequence[Partition], known_at: str | None = None) -> AliasMap:
        """Returns the aliases of partitions, as they were known then: of each user the latest `MAX_READ`."""
        found = [await self.find(both(one), limit=MAX_READ) for one in of_pairs(pairs)]
        every = (doc for docs in found for doc in docs)
        return AliasMap(every if known_at is None else known_then(every, known_at))

    async def of_owner(self, agent: str | None, user: str | None) -> AliasMap:
        """Returns the aliases that hold for facts of exactly this owner: its own, the agent's and the user's."""
        return await self.of_pairs(around(agent, user))

    def with_titles(self, aliases: AliasMap, owner: Partition, names: Iterable[str], now: str) -> Titled:
        """Returns the aliases that the rule for titles makes for these names. A pair that has an alias, dismissed or
        not, gets no other one."""
        known = {frozenset((doc["name_key"], doc["alias_key"])) for doc in aliases.docs.values()}
        room = MAX_ALIASES - sum((doc["agent_id"], doc["user_id"]) == owner for doc in aliases.docs.values())
        new: dict[str, Doc] = {}
        for name in names:
            full = titled(name)
            if full is not None and frozenset((key_of(full), key_of(name))) not in known:
                doc = new_alias(owner, full, name, "title", now)
                new.setdefault(doc["alias_id"], doc)
        made = list(new.values())[: max(0, room)]
        return Titled(made, AliasMap([*aliases.docs.values(), *made]) if made else aliases)

    def insertions(self, docs: Iterable[Doc]) -> list[Insert]:
        """Returns the changes that store new aliases."""
        return [self.insert(doc) for doc in docs]


class DeclaredNames:
    """The names that active aliases join, for searches (`NameSource`)."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def groups(self, scope: Scope, pairs: Sequence[Partition], known_at: str | None) -> list[list[str]]:
        """Returns the names of each entity of these partitions that has several, as it was known then."""
        where = of_pairs(pairs)
        repository = AliasRepository(self._store, scope)
        docs = await repository.find(where[0] if len(where) == 1 else Or(tuple(where)), limit=MAX_READ)
        return AliasMap(docs if known_at is None else known_then(docs, known_at)).names() if docs else []


def around(agent: str | None, user: str | None) -> list[Partition]:
    """Returns the partition of an owner, and those of its agent for all users and of its user for all agents."""
    wanted = (Partition(agent, user), Partition(agent, None), Partition(None, user))
    return [one for one in dict.fromkeys(wanted) if one != Partition(None, None)]
