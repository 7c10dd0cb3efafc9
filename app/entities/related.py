"""Memories related to a memory, each with the reasons. They explain and lead on; no ranking uses them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypedDict

from typing_extensions import TypeAliasType

from app.core.clock import Clock, rfc3339, to_ms
from app.core.schemas import Json
from app.entities.service import MentionIndex, entities_in, name_of
from app.errors import EmbeddingUnavailable
from app.facts.aliases import AliasRepository
from app.facts.repository import FactRepository, of_pairs
from app.memories.decays import Decays
from app.memories.repository import MemoryRepository
from app.memories.schemas import NO_SMALL_TALK, SMALL_TALK, MemoryRecord
from app.retrieval.model_weights import weights_for
from app.retrieval.retriever import BY_WORDS_ALONE, RetrievalQuery, Retriever, SearchWarning
from app.storage.repository import expired, unexpired
from app.storage.schema import Eq, Range, both
from app.storage.scope import Partition

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


class RelatedReasonAnswer(TypedDict):
    """Why a memory is related, as `RelatedBecause`."""

    reason: RelatedReason
    score: float | None
    names: list[str]


@dataclass(slots=True)
class _Related:
    """The related memories by id, with the reasons of each."""

    memories: dict[str, MemoryRecord] = field(default_factory=dict)
    reasons: dict[str, dict[RelatedReason, RelatedReasonAnswer]] = field(default_factory=dict)

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
        lookup: Retriever[MemoryRecord],
        clock: Clock,
        model: str,
    ) -> None:
        self._memories, self._facts, self._lookup = memories, facts, lookup
        self._clock, self._model = clock, model
        self._decays = Decays(memories.store, memories.scope.tenant)

    async def related(self, memory_id: str, limit: int) -> Json:
        """Returns related memories of the same agent and user, and those shared with them. Raises NotFound."""
        now = rfc3339(self._clock.now())
        memory = await self._memories.get_unexpired(memory_id, now)
        partitions = self._memories.scope.partitions(memory["agent_id"], memory["user_id"], include_shared=True)
        related, warnings = _Related(), list[SearchWarning]()
        await self._linked(memory, related, now)
        try:
            async with asyncio.timeout(SIMILAR_SECONDS):
                await self._similar(memory, partitions, related, now)
        except (EmbeddingUnavailable, TimeoutError):
            warnings.append(BY_WORDS_ALONE)
        await self._of_entities(memory, partitions, related, now)
        await self._of_session(memory, partitions, related, now)
        related.memories.pop(memory_id, None)
        now_ms = to_ms(self._clock.now())
        items = [
            {
                "memory": await self._decays.render_at(related.memories[best_id], now_ms),
                "reasons": [*related.reasons[best_id].values()],
            }
            for best_id in related.best(limit)
        ]
        return {"items": items, "next_cursor": None, "warnings": warnings}

    async def _linked(self, memory: MemoryRecord, related: _Related, now: str) -> None:
        """Adds memories that its fields name, and those that a disputed one contradicts."""
        by: dict[RelatedReason, list[str]] = {
            "supersedes": memory["supersedes"],
            "superseded_by": [memory["superseded_by"]] if memory["superseded_by"] else [],
            "contradicts": memory.get("contradicts") or [],
            "made_from": memory["source"].get("memory_ids") or [],
        }
        linked = await self._memories.get_many([linked_id for ids in by.values() for linked_id in ids][:MAX_LINKS])
        for reason, ids in by.items():
            for other in (linked[linked_id] for linked_id in ids if linked_id in linked):
                if not expired(other, now) and other["user_id"] in (memory["user_id"], None):
                    related.add(other, reason)

    async def _similar(
        self, memory: MemoryRecord, partitions: tuple[Partition, ...], related: _Related, now: str
    ) -> None:
        text = memory["content"][:QUERY_CHARACTERS]
        active = both(Eq("status", "active"), unexpired(now), NO_SMALL_TALK)
        wanted = RetrievalQuery(text, partitions, active, to_ms(self._clock.now()), MAX_SIMILAR + 1, mode="vector")
        for hit in (await self._lookup.find(wanted)).hits:
            if hit.score >= weights_for(self._model).related and hit.doc["memory_id"] != memory["memory_id"]:
                related.add(hit.doc, "similar", hit.score)

    async def _of_entities(
        self, memory: MemoryRecord, partitions: tuple[Partition, ...], related: _Related, now: str
    ) -> None:
        aliases = await AliasRepository(self._facts.store, self._facts.scope).of_pairs(partitions)
        entities = await entities_in(memory["content"], self._facts, partitions, aliases)
        index = MentionIndex(self._facts.store, self._facts.scope, self._model, partitions, now)
        mentioned = [(key, await index.of(aliases.keys(key), MAX_MENTIONS)) for key in entities[: 2 * MAX_ENTITIES]]
        mentioned.sort(key=lambda entity: (entity[1].more, len(entity[1].memories)))
        for key, mentioning in mentioned[:MAX_ENTITIES]:
            name = await name_of(key, self._facts, partitions, aliases)
            for other, _ in mentioning.memories:
                if other["memory_id"] != memory["memory_id"]:
                    related.add(other, "shared_entity", name=name)

    async def _of_session(
        self, memory: MemoryRecord, partitions: Sequence[Partition], related: _Related, now: str
    ) -> None:
        session, seq = memory["source"].get("session_id"), memory["source"].get("message_seq")
        if session is None:
            return
        near = None if seq is None else Range("source.message_seq", ge=seq - SESSION_SPAN, le=seq + SESSION_SPAN)
        for of_pair in of_pairs(partitions):
            where = both(of_pair, Eq("source.session_id", session), near, Eq("status", "active"), unexpired(now))
            for other in await self._memories.find(where, limit=2 * SESSION_SPAN + 1):
                if other["memory_id"] != memory["memory_id"] and other.get("standing") != SMALL_TALK:
                    related.add(other, "same_session")
