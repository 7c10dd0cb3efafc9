"""Memories related to a memory, each with the reasons. They explain and lead on; no ranking uses them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.core.clock import Clock, rfc3339, to_ms
from app.entities.service import MentionIndex, entities_in, name_of
from app.errors import EmbeddingUnavailable
from app.facts.aliases import AliasRepository
from app.facts.repository import FactRepository, of_pairs
from app.memories.decays import Decays
from app.memories.models import NO_SMALL_TALK, SMALL_TALK
from app.memories.repository import MemoryRepository
from app.retrieval.model_weights import weights_for
from app.retrieval.retriever import BY_WORDS_ALONE, RetrievalQuery, Retriever
from app.storage.repository import expired, unexpired
from app.storage.schema import Doc, Eq, Filter, Range, both
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


@dataclass(slots=True)
class _Related:
    """The related memories by id, with the reasons of each."""

    docs: dict[str, Doc] = field(default_factory=dict)
    reasons: dict[str, dict[str, Doc]] = field(default_factory=dict)

    def add(self, doc: Doc, reason: str, score: float | None = None, name: str | None = None) -> None:
        """Adds a reason, or a further entity to it."""
        memory_id: str = doc["memory_id"]
        self.docs[memory_id] = doc
        because = self.reasons.setdefault(memory_id, {}).setdefault(
            reason, {"reason": reason, "score": score, "names": []}
        )
        because["names"] += [] if name is None else [name]

    def best(self, limit: int) -> list[str]:
        """Returns the ids in the order in which they are shown."""

        def place(memory_id: str) -> tuple[bool, int, float, str]:
            because = self.reasons[memory_id]
            cosine = because["similar"]["score"] if "similar" in because else 0.0
            return not any(link in because for link in LINKS), -len(because), -cosine, memory_id

        return sorted(self.docs, key=place)[:limit]


class RelatedService:
    """Finds related memories within a caller's scope."""

    def __init__(
        self, memories: MemoryRepository, facts: FactRepository, lookup: Retriever, clock: Clock, model: str
    ) -> None:
        self._memories, self._facts, self._lookup = memories, facts, lookup
        self._clock, self._model = clock, model
        self._decays = Decays(memories.store, memories.scope.tenant)

    async def related(self, memory_id: str, limit: int) -> Doc:
        """Returns related memories of the same agent and user, and those shared with them. Raises NotFound."""
        now = rfc3339(self._clock.now())
        doc = await self._memories.get_unexpired(memory_id, now)
        pairs = self._memories.scope.pairs(doc["agent_id"], doc["user_id"], include_shared=True)
        found, warnings = _Related(), list[Doc]()
        await self._linked(doc, found, now)
        try:
            async with asyncio.timeout(SIMILAR_SECONDS):
                await self._similar(doc, pairs, found, now)
        except (EmbeddingUnavailable, TimeoutError):
            warnings.append(BY_WORDS_ALONE)
        await self._of_entities(doc, pairs, found, now)
        await self._of_session(doc, pairs, found, now)
        found.docs.pop(memory_id, None)
        now_ms = to_ms(self._clock.now())
        items = [
            {
                "memory": await self._decays.render_now(found.docs[one], now_ms),
                "reasons": [*found.reasons[one].values()],
            }
            for one in found.best(limit)
        ]
        return {"items": items, "next_cursor": None, "warnings": warnings}

    async def _linked(self, doc: Doc, found: _Related, now: str) -> None:
        """Adds memories that its fields name, and those that a disputed one contradicts."""
        by = {
            "supersedes": doc["supersedes"],
            "superseded_by": [doc["superseded_by"]] if doc["superseded_by"] else [],
            "contradicts": doc.get("contradicts") or [],
            "made_from": doc["source"].get("memory_ids") or [],
        }
        there = await self._memories.get_many([one for ids in by.values() for one in ids][:MAX_LINKS])
        for reason, ids in by.items():
            for one in ids:
                if one in there and not expired(there[one], now) and there[one]["user_id"] in (doc["user_id"], None):
                    found.add(there[one], reason)

    async def _similar(self, doc: Doc, pairs: tuple[Partition, ...], found: _Related, now: str) -> None:
        text = doc["content"][:QUERY_CHARACTERS]
        wanted = RetrievalQuery(text, pairs, _active(now), to_ms(self._clock.now()), MAX_SIMILAR + 1, mode="vector")
        for hit in (await self._lookup.find(wanted)).hits:
            if hit.score >= weights_for(self._model).related and hit.doc["memory_id"] != doc["memory_id"]:
                found.add(hit.doc, "similar", hit.score)

    async def _of_entities(self, doc: Doc, pairs: tuple[Partition, ...], found: _Related, now: str) -> None:
        aliases = await AliasRepository(self._facts.store, self._facts.scope).of_pairs(pairs)
        entities = await entities_in(doc["content"], self._facts, pairs, aliases)
        index = MentionIndex(self._facts.store, self._facts.scope, self._model, pairs, now)
        mentioned = [(key, await index.of(aliases.keys(key), MAX_MENTIONS)) for key in entities[: 2 * MAX_ENTITIES]]
        rarest = sorted(mentioned, key=lambda one: (one[1].more, len(one[1].found)))[:MAX_ENTITIES]
        for key, mentioning in rarest:
            name = await name_of(key, self._facts, pairs, aliases)
            for other, _ in mentioning.found:
                if other["memory_id"] != doc["memory_id"]:
                    found.add(other, "shared_entity", name=name)

    async def _of_session(self, doc: Doc, pairs: Sequence[Partition], found: _Related, now: str) -> None:
        session, seq = doc["source"].get("session_id"), doc["source"].get("message_seq")
        if session is None:
            return
        near = None if seq is None else Range("source.message_seq", ge=seq - SESSION_SPAN, le=seq + SESSION_SPAN)
        for of_pair in of_pairs(pairs):
            where = both(of_pair, Eq("source.session_id", session), near, Eq("status", "active"), unexpired(now))
            for other in await self._memories.find(where, limit=2 * SESSION_SPAN + 1):
                if other["memory_id"] != doc["memory_id"] and other.get("standing") != SMALL_TALK:
                    found.add(other, "same_session")


def _active(now: str) -> Filter:
    return both(Eq("status", "active"), unexpired(now), NO_SMALL_TALK)
