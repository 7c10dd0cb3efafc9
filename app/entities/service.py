"""The page of an entity: its names, facts, neighbours, mentions in memories, and actions.

Mentions are memories whose text has a name of the entity. They are found by the text index and confirmed by their
words.
"""

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from typing_extensions import TypeAliasType, TypedDict

from app.actions.schemas import ACTIONS, Action, ActionRecord
from app.actions.schemas import render as render_action
from app.core.clock import Clock, rfc3339, to_ms
from app.core.language import whole
from app.core.schemas import Count, shown
from app.core.work import SEARCH_UNITS, SEARCHED_PER_UNIT, charge
from app.errors import EmbeddingUnavailable
from app.facts.aliases import AliasMap, AliasRepository, EntityAlias, render_alias
from app.facts.graph import Bound, GraphService, Sight
from app.facts.repository import FactRepository, View, any_of, of_partitions
from app.facts.schemas import Fact, FactRecord, key_of, render
from app.memories.agents import Decays
from app.memories.repository import MemoryRepository, told_at
from app.memories.schemas import FILE, FINDABLE, MEMORIES, SMALL_TALK, Memory, MemoryRecord
from app.retrieval.model_weights import weights_for
from app.retrieval.retriever import BY_WORDS_ALONE, RetrievalRequest, Retriever, SearchWarning
from app.storage.protocol import Order, Store
from app.storage.repository import Repository, expired, unexpired
from app.storage.schema import Eq, Filter, Has, In, Or, Range, both
from app.storage.scope import Partition, Scope
from app.storage.search import Ints, SearchQuery
from app.storage.text import normalise_content, term_ids, terms


@shown
class KnownFacts(TypedDict):
    items: Annotated[list[Fact], Field(description="Those known last first.")]
    truncated: Annotated[bool, Field(description="True if there are more than `limit`.")]


@shown
class NeighborCount(TypedDict):
    count: Annotated[Count, Field(description="Entities that a fact links with this one.")]
    truncated: Annotated[Bound | None, Field(description="The bound that was met: then there are more.")]


@shown
class Mention(TypedDict):
    memory: Memory
    names: Annotated[list[str], Field(description="The names of the entity that stand in its text.")]


@shown
class Mentions(TypedDict):
    items: Annotated[list[Mention], Field(description="The latest first.")]
    truncated: Annotated[bool, Field(description="True if there are more than `limit`, or than 500 to look at.")]


@shown
class EntityActions(TypedDict):
    items: Annotated[list[Action], Field(description="Actions that name it among their entities; the latest first.")]
    truncated: bool


@shown
class EntityPage(TypedDict):
    name: Annotated[str, Field(description="The name that stands for the entity.")]
    key: Annotated[str, Field(description="What it is compared by.")]
    names: Annotated[list[str], Field(description="All its names, that one first.")]
    aliases: list[EntityAlias]
    facts: Annotated[KnownFacts, Field(description="What is true of it, as subject or object.")]
    earlier: Annotated[KnownFacts, Field(description="What was true of it and is no longer.")]
    neighbors: NeighborCount
    memories: Mentions
    actions: EntityActions
    first_seen: Annotated[str | None, Field(description="When a fact, memory or action of these first named it.")]
    last_seen: str | None


MAX_READ = 500
"""The limit of memories that are read to confirm mentions."""
READ_AT_ONCE = 25
"""Other requests run between two reads."""
MAX_CHARACTERS = 2_000
"""The part of a text in which names are looked for."""
NAME_WORDS = 4
KEYS_AT_ONCE = 400
_EDGES = re.compile(r"^[^\w]+|(?:['\u2019]s)?[^\w]*$")


def mentions(text: str, key: str) -> bool:
    """Returns True if a name, as it is compared, stands in the text as whole words. In scripts without spaces it may
    stand anywhere."""
    return _stands_in(normalise_content(text), key)


def _stands_in(normalised: str, key: str) -> bool:
    if not key or key not in normalised:
        return False
    return re.search(whole(key), normalised) is not None


def word_runs(text: str) -> list[str]:
    """Returns what may be names in a text, normalised: each run of up to four words."""
    words = [_EDGES.sub("", word) for word in normalise_content(text[:MAX_CHARACTERS]).split()]
    runs = (words[at : at + size] for size in range(1, NAME_WORDS + 1) for at in range(len(words) - size + 1))
    return list(dict.fromkeys(" ".join(run) for run in runs if all(run)))


@dataclass(frozen=True, slots=True)
class Mentioning:
    """Memories that mention an entity, in order of time, each with the keys that it mentions. `more`: there may be
    others."""

    memories: Sequence[tuple[MemoryRecord, list[str]]]
    more: bool


class MentionIndex:
    """Finds mentions among the active memories of some partitions, within a caller's scope."""

    def __init__(self, store: Store, scope: Scope, model: str, partitions: tuple[Partition, ...], now: str) -> None:
        self._store, self._scope, self._model, self._partitions = store, scope, model, partitions
        self._where: Filter = both(Eq("status", "active"), unexpired(now), FINDABLE)

    async def of(self, keys: Sequence[str], limit: int, *, latest: bool = True) -> Mentioning:
        """Returns up to `limit` memories that mention one of these names, the latest or the earliest ones."""
        rows = await self._candidates(keys)
        if not latest:
            rows = rows[::-1]
        memories: list[tuple[MemoryRecord, list[str]]] = []
        for at in range(0, min(len(rows), MAX_READ), READ_AT_ONCE):
            for fetched in await self._store.fetch(MEMORIES, self._scope.tenant, rows[at : at + READ_AT_ONCE]):
                if fetched is None or not self._scope.sees(fetched.doc):
                    continue
                text = normalise_content(fetched.doc["content"])
                named = _longest([key for key in keys if _stands_in(text, key)])
                if named and len(memories) == limit:
                    return Mentioning(memories, True)
                if named:
                    memories.append((fetched.doc, named))
        return Mentioning(memories, len(rows) > MAX_READ)

    async def _candidates(self, keys: Sequence[str]) -> Ints:
        """Returns the handles of memories that have every index term of a name, the latest first."""
        words = {key: list(dict.fromkeys(terms(key))) for key in keys}
        every = list(dict.fromkeys(word for of_name in words.values() for word in of_name))
        if not every or not self._partitions:
            return np.empty(0, np.int64)
        query = SearchQuery(self._scope.tenant, self._partitions, self._where, None, self._model, term_ids(every))
        columns = await self._store.search(MEMORIES, query)
        charge(SEARCH_UNITS + columns.count / SEARCHED_PER_UNIT)
        place = {word: at for at, word in enumerate(every)}
        named = np.zeros(len(columns.rows), np.bool_)
        for of_name in words.values():
            if of_name:
                named |= (columns.term_counts[[place[word] for word in of_name]] > 0).all(axis=0)
        chosen = np.flatnonzero(named & columns.matched)
        return columns.rows[chosen[np.argsort(-columns.time[chosen], kind="stable")]]


def _longest(keys: Sequence[str]) -> list[str]:
    """Returns the names that are no part of another one: a text with `ada lovelace` has `ada`, too."""
    return [key for key in keys if not any(key != other and _stands_in(other, key) for other in keys)]


async def name_of(key: str, facts: FactRepository, partitions: Sequence[Partition], aliases: AliasMap) -> str:
    """Returns the name of an entity: as its aliases have it, or the latest fact of these partitions, or else its
    key."""
    if name := aliases.name(key):
        return name
    for side in ("subject_key", "object_key"):
        for of_partition in of_partitions(partitions):
            if latest := await facts.find(both(of_partition, Eq(side, key)), limit=1):
                return latest[0]["subject"] if side == "subject_key" else latest[0]["object"]
    return key


MAX_NEIGHBORS = 1_000


@dataclass(frozen=True, slots=True)
class _Facts:
    """The facts of an entity in some partitions."""

    facts: FactRepository
    partitions: Sequence[Partition]
    keys: tuple[str, ...]

    async def find(self, where: Filter, limit: int, order: Order = "desc") -> list[FactRecord]:
        """Returns up to `limit` facts that begin or end at the entity, in the order in which they were stored."""
        ends = (any_of("subject_key", self.keys), both(any_of("object_key", self.keys), Eq("object_type", "entity")))
        filters = [both(of_partition, end, where) for of_partition in of_partitions(self.partitions) for end in ends]
        parts = await asyncio.gather(*(self.facts.find(of_side, order=order, limit=limit) for of_side in filters))
        facts = {fact["fact_id"]: fact for part in parts for fact in part}.values()
        return sorted(facts, key=lambda fact: (fact["created_at"], fact["fact_id"]), reverse=order == "desc")[:limit]


class EntityService:
    """Reads what is known of entities, within a caller's scope. `model`: name of the embedding model."""

    def __init__(self, facts: FactRepository, clock: Clock, model: str) -> None:
        self._facts, self._clock, self._model = facts, clock, model
        self._decays = Decays(facts.store, facts.scope.tenant)
        self._graph = GraphService(facts, clock)

    async def page(self, name: str, sight: Sight, limit: int) -> EntityPage:
        """Returns all that is known of an entity, up to `limit` items of each kind. Memories and actions are those of
        now, whatever the times of `sight`."""
        graph, now = await self._graph.graph(sight), rfc3339(self._clock.now())
        aliases, key = graph.aliases, graph.aliases.root(key_of(name))
        names = aliases.keys(key)
        scope = self._facts.scope
        partitions = scope.partitions(sight.agent_id, sight.user_id, sight.include_shared)
        view, moment = View(sight.as_of or now, sight.known_at), sight.as_of or now
        facts = _Facts(self._facts, partitions, names)
        index = MentionIndex(self._facts.store, scope, self._model, partitions, now)
        over = both(Eq("standing", "held"), view.known(), Range("valid_until", le=moment))
        current, earlier, first, actions = await asyncio.gather(
            facts.find(view.believed(), limit + 1),
            facts.find(over, limit + 1),
            facts.find(both(Eq("standing", "held"), view.known()), 1, "asc"),
            self._actions(partitions, names, limit + 1),
        )
        walk, latest, earliest = await asyncio.gather(
            graph.walk([key], 1, max_nodes=MAX_NEIGHBORS),
            index.of(names, limit),
            index.of(names, 1, latest=False),
        )
        seen = [fact["known_from"] for fact in (*first, *current, *earlier)]
        mentioned = (*latest.memories, *earliest.memories)
        seen += [told_at(memory) for memory, _ in mentioned]
        seen += [action["timestamp"] for action in actions]
        now_ms = to_ms(self._clock.now())
        items: list[Mention] = [
            {"memory": await self._decays.render_at(memory, now_ms), "names": [aliases.spelled(key) for key in keys]}
            for memory, keys in latest.memories
        ]
        return {
            "name": aliases.name(key) or _name_in(key, (*current, *earlier)) or name,
            "key": key,
            "names": [aliases.spelled(member) for member in names] if aliases.name(key) else [name],
            "aliases": [render_alias(alias) for alias in aliases.of(key)],
            "facts": _render_facts(current, limit),
            "earlier": _render_facts(earlier, limit),
            "neighbors": {"count": len(walk.nodes), "truncated": walk.truncated},
            "memories": {"items": items, "truncated": latest.more},
            "actions": {"items": list(map(render_action, actions[:limit])), "truncated": len(actions) > limit},
            "first_seen": min(seen, default=None),
            "last_seen": max(seen, default=None),
        }

    async def _actions(self, partitions: Sequence[Partition], names: Sequence[str], limit: int) -> list[ActionRecord]:
        actions = Repository(self._facts.store, self._facts.scope, ACTIONS)
        named = Or(tuple(Has("entity_keys", key) for key in names))
        parts = await asyncio.gather(
            *(actions.find(both(of_partition, named), limit=limit) for of_partition in of_partitions(partitions))
        )
        latest = [action for part in parts for action in part]
        return sorted(latest, key=lambda action: (action["timestamp"], action["action_id"]), reverse=True)[:limit]


def _render_facts(facts: Sequence[FactRecord], limit: int) -> KnownFacts:
    return {"items": [render(fact) for fact in facts[:limit]], "truncated": len(facts) > limit}


def _name_in(key: str, facts: Iterable[FactRecord]) -> str | None:
    """Returns the name of an entity as the first of these facts has it."""
    for fact in facts:
        if fact["subject_key"] == key:
            return fact["subject"]
        if fact["object_key"] == key:
            return fact["object"]
    return None


# --- Memories related to a memory, each with the reasons --------------------------------------------------------------
# They explain and lead on; no ranking uses them.

RelatedReason = TypeAliasType(
    "RelatedReason",
    Literal[
        "supersedes",
        "superseded_by",
        "contradicts",
        "made_from",
        "shared_entity",
        "similar",
        "same_session",
    ],
)


@shown
class RelatedBecause(TypedDict):
    reason: RelatedReason
    score: Annotated[float | None, Field(description="Of `similar`: the cosine of both texts.")]
    names: Annotated[list[str], Field(description="Of `shared_entity`: the entities that both mention.")]


@shown
class RelatedMemory(TypedDict):
    memory: Memory
    reasons: Annotated[list[RelatedBecause], Field(description="At least one.")]


@shown
class RelatedMemories(TypedDict):
    items: Annotated[
        list[RelatedMemory],
        Field(
            description="First those that replace, contradict or were made of each other, then by number of reasons "
            "and similarity."
        ),
    ]
    next_cursor: Annotated[str | None, Field(default=None, description="Always null: this is all.")]
    warnings: list[SearchWarning]


QUERY_CHARACTERS = 2_000
"""The part of a memory whose meaning is compared."""
MAX_SIMILAR = 20
SIMILAR_SECONDS = 5.0
"""The wait for the embedding model. Without it there are the other reasons."""
MAX_ENTITIES = 5
"""The limit of entities, the rarest first, by which memories are related."""
MAX_MENTIONS = 10
"""The limit of memories that one entity relates."""
SESSION_SPAN = 3
"""Messages before and after one that are related to it."""
MAX_LINKS = 100
"""The limit of linked memories that are read."""
LINKS = ("supersedes", "superseded_by", "contradicts", "made_from")


@dataclass(slots=True)
class _Related:
    """The related memories by id, with the reasons of each."""

    memories: dict[str, MemoryRecord] = field(default_factory=dict)
    reasons: dict[str, dict[RelatedReason, RelatedBecause]] = field(default_factory=dict)

    def add(
        self, memory: MemoryRecord, reason: RelatedReason, score: float | None = None, name: str | None = None
    ) -> None:
        """Adds a reason, or a further entity to it."""
        memory_id = memory["memory_id"]
        self.memories[memory_id] = memory
        reasons = self.reasons.setdefault(memory_id, {})
        because = reasons.setdefault(reason, {"reason": reason, "score": score, "names": []})
        if name is not None:
            because["names"].append(name)

    def best(self, limit: int) -> list[str]:
        """Returns the ids in the order in which they are shown."""

        def place(memory_id: str) -> tuple[bool, int, float, str]:
            because = self.reasons[memory_id]
            cosine = because["similar"]["score"] if "similar" in because else None
            return because.keys().isdisjoint(LINKS), -len(because), -(cosine or 0.0), memory_id

        return sorted(self.memories, key=place)[:limit]


class RelatedService:
    """Finds related memories within a caller's scope."""

    def __init__(
        self,
        memories: MemoryRepository,
        facts: FactRepository,
        retriever: Retriever[MemoryRecord],
        clock: Clock,
        model: str,
    ) -> None:
        self._memories, self._facts, self._retriever = memories, facts, retriever
        self._clock, self._model = clock, model
        self._decays = Decays(memories.store, memories.scope.tenant)

    async def related(self, memory_id: str, limit: int) -> RelatedMemories:
        """Returns related memories of the same agent and user, and those shared with them. Raises NotFound."""
        now = rfc3339(self._clock.now())
        memory = await self._memories.get_unexpired(memory_id, now)
        partitions = self._memories.scope.partitions(memory["agent_id"], memory["user_id"], include_shared=True)
        related, warnings = _Related(), list[SearchWarning]()
        # memories that its fields name, and those that a disputed one contradicts
        by: dict[RelatedReason, list[str]] = {
            "supersedes": memory["supersedes"],
            "superseded_by": [memory["superseded_by"]] if memory["superseded_by"] else [],
            "contradicts": memory["contradicts"],
            "made_from": memory["source"]["memory_ids"],
        }
        linked = await self._memories.get_many([linked_id for ids in by.values() for linked_id in ids][:MAX_LINKS])
        for reason, ids in by.items():
            for other in (linked[linked_id] for linked_id in ids if linked_id in linked):
                if not expired(other, now) and other["user_id"] in (memory["user_id"], None):
                    related.add(other, reason)
        try:
            async with asyncio.timeout(SIMILAR_SECONDS):
                text = memory["content"][:QUERY_CHARACTERS]
                active = both(Eq("status", "active"), unexpired(now), FINDABLE)
                wanted = RetrievalRequest(
                    text, partitions, active, to_ms(self._clock.now()), MAX_SIMILAR + 1, mode="vector"
                )
                for hit in (await self._retriever.find(wanted)).hits:
                    if hit.score >= weights_for(self._model).related and hit.doc["memory_id"] != memory["memory_id"]:
                        related.add(hit.doc, "similar", hit.score)
        except (EmbeddingUnavailable, TimeoutError):
            warnings.append(BY_WORDS_ALONE)
        aliases = await AliasRepository(self._facts.store, self._facts.scope).of_partitions(partitions)
        # the entities of these partitions' facts and aliases that the text names, in the order of its words
        runs = word_runs(memory["content"])
        known: set[str] = {key for key in runs if aliases.name(key) is not None}
        for at in range(0, len(runs), KEYS_AT_ONCE):
            part = tuple(runs[at : at + KEYS_AT_ONCE])
            for of_partition in of_partitions(partitions):
                for side, more in (("subject_key", None), ("object_key", Eq("object_type", "entity"))):
                    where = both(of_partition, In(side, part), more)
                    known |= {*await self._facts.values(side, where, order="asc", limit=KEYS_AT_ONCE)}
        entities = list(dict.fromkeys(aliases.root(key) for key in runs if key in known))
        index = MentionIndex(self._facts.store, self._facts.scope, self._model, partitions, now)
        mentioned = [(key, await index.of(aliases.keys(key), MAX_MENTIONS)) for key in entities[: 2 * MAX_ENTITIES]]
        mentioned.sort(key=lambda entity: (entity[1].more, len(entity[1].memories)))
        for key, mentioning in mentioned[:MAX_ENTITIES]:
            name = await name_of(key, self._facts, partitions, aliases)
            for other, _ in mentioning.memories:
                if other["memory_id"] != memory["memory_id"]:
                    related.add(other, "shared_entity", name=name)
        await self._of_session(memory, partitions, related, now)
        related.memories.pop(memory_id, None)
        now_ms = to_ms(self._clock.now())
        items: list[RelatedMemory] = [
            {
                "memory": await self._decays.render_at(related.memories[best_id], now_ms),
                "reasons": [*related.reasons[best_id].values()],
            }
            for best_id in related.best(limit)
        ]
        return {"items": items, "next_cursor": None, "warnings": warnings}

    async def _of_session(
        self, memory: MemoryRecord, partitions: Sequence[Partition], related: _Related, now: str
    ) -> None:
        session, seq = memory["source"]["session_id"], memory["source"]["message_seq"]
        if session is None:
            return
        near = None if seq is None else Range("source.message_seq", ge=seq - SESSION_SPAN, le=seq + SESSION_SPAN)
        for of_partition in of_partitions(partitions):
            where = both(of_partition, Eq("source.session_id", session), near, Eq("status", "active"), unexpired(now))
            for other in await self._memories.find(where, limit=2 * SESSION_SPAN + 1):
                if other["memory_id"] != memory["memory_id"] and other["standing"] not in (SMALL_TALK, FILE):
                    related.add(other, "same_session")
