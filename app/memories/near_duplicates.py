"""Near-duplicates of a text, among stored memories and among those that earlier items of the same request add.

Of long texts only the first windows are compared, because a text that contains another one says more than that.
"""

from collections.abc import Collection
from typing import Any

import numpy as np

from app.memories.models import MEMORIES
from app.memories.repository import MemoryRepository
from app.storage.changes import IndexEntry
from app.storage.filters import EVERYTHING, Eq, Filter, Not, both, matches
from app.storage.repository import unexpired
from app.storage.schema import Doc
from app.storage.scope import ANY_AGENT, Partition
from app.storage.search import Floats, SearchQuery
from app.storage.text import TermIds

SIMILAR = 0.95
"""Minimum cosine of near-duplicates."""
MAX_SHOWN = 10
_NO_TERMS: TermIds = np.empty(0, np.uint32)


class NearDuplicates:
    """Finds near-duplicates. Methods return documents with a field `cosine` added, nearest first."""

    def __init__(self, memories: MemoryRepository, now: str) -> None:
        self._memories, self._now = memories, now
        self._written: dict[str, tuple[Doc, Floats | None]] = {}

    def note(self, doc: Doc, entry: IndexEntry) -> None:
        """Registers a memory that an item of this request writes.

        Later items compare with this text, not with the stored one.
        """
        self._written[doc["memory_id"]] = doc, entry.vector

    async def seen(self, doc: Doc, entry: IndexEntry, without: Collection[str]) -> list[Doc]:
        """Returns the nearest ones that the caller may see, at most `MAX_SHOWN`."""
        pairs = self._memories.scope.pairs(doc["agent_id"], doc["user_id"], include_shared=True)
        return (await self._near(doc, entry, pairs, EVERYTHING, MAX_SHOWN, without))[:MAX_SHOWN]

    async def replaceable(self, doc: Doc, entry: IndexEntry, without: Collection[str]) -> list[Doc]:
        """Returns all near-duplicates in the same partition that are not messages."""
        pairs = (Partition(doc["agent_id"], doc["user_id"]),)
        return await self._near(doc, entry, pairs, Not(Eq("memory_type", "message")), None, without)

    async def _near(
        self,
        doc: Doc,
        entry: IndexEntry,
        pairs: tuple[Partition, ...],
        where: Filter,
        limit: int | None,
        without: Collection[str],
    ) -> list[Doc]:
        if entry.vector is None:
            return []
        without = {*without, doc["memory_id"]}
        stored = await self._stored(
            pairs, where, entry, None if limit is None else limit + len(without) + len(self._written)
        )
        near = [other for other in stored if other["memory_id"] not in self._written]
        near += [other for other in self._of_this_request(entry.vector) if _in(pairs, other) and matches(other, where)]
        return sorted((one for one in near if one["memory_id"] not in without), key=lambda one: -one["cosine"])

    async def _stored(
        self, pairs: tuple[Partition, ...], where: Filter, entry: IndexEntry, limit: int | None
    ) -> list[Doc]:
        scope, store = self._memories.scope, self._memories.store
        where = both(Eq("status", "active"), unexpired(self._now), where)
        columns = await store.search(
            MEMORIES, SearchQuery(scope.tenant, pairs, where, entry.vector, entry.model, _NO_TERMS, first_windows=True)
        )
        near = np.flatnonzero(columns.matched & columns.has_vector & (columns.cosine >= SIMILAR))
        near = near[np.argsort(-columns.cosine[near], kind="stable")][:limit]
        found = await store.fetch(MEMORIES, scope.tenant, columns.rows[near]) if len(near) else []
        scored = zip(found, columns.cosine[near].tolist(), strict=True)
        return [one.doc | {"cosine": cosine} for one, cosine in scored if one is not None and scope.sees(one.doc)]

    def _of_this_request(self, vector: Floats) -> list[Doc]:
        docs = [(doc, other) for doc, other in self._written.values() if other is not None]
        if not docs:
            return []
        cosines: list[float] = (np.stack([other for _, other in docs]) @ vector).tolist()
        return [doc | {"cosine": cosine} for (doc, _), cosine in zip(docs, cosines, strict=True) if cosine >= SIMILAR]


def _in(pairs: tuple[Partition, ...], doc: Doc) -> bool:
    agent, user = doc["agent_id"], doc["user_id"]
    return any(pair.user == user and pair.agent in (ANY_AGENT, agent) for pair in pairs)


def shown(other: Doc, superseded: bool) -> dict[str, Any]:
    """Returns a near-duplicate as responses list it."""
    return {
        "memory_id": other["memory_id"],
        "content": other["content"],
        "score": round(min(other["cosine"], 1.0), 6),
        "superseded": superseded,
    }
