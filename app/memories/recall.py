"""Search: filters, one call to the engine, the ranking, the documents."""

import time
from datetime import datetime

import numpy as np

from app.clock import Clock, parse_rfc3339, rfc3339, to_ms
from app.embedding.embedder import Embedder
from app.embedding.model import Vectors
from app.memories.documents import metadata_terms
from app.memories.models import MEMORIES
from app.memories.query import QueryText, analyse
from app.memories.ranking import Ranked, importance_at, rank, top
from app.memories.repository import unexpired
from app.memories.schemas import SearchRequest, render
from app.metrics.parts import SEARCH_SECONDS
from app.state import AccessLog
from app.storage.collection import Doc, Store
from app.storage.filters import Absent, And, Eq, Filter, Has, In, Or, Range, both
from app.storage.scope import Scope
from app.storage.search import Columns, SearchQuery


class Recall:
    def __init__(self, store: Store, scope: Scope, embedder: Embedder, accesses: AccessLog, clock: Clock) -> None:
        self._store, self._scope, self._embedder = store, scope, embedder
        self._accesses, self._clock = accesses, clock

    async def search(self, body: SearchRequest) -> Doc:
        """Items best first, and where the time went."""
        started = time.perf_counter()
        now = self._clock.now() if body.now is None else parse_rfc3339(body.now)
        pairs = self._scope.pairs(body.agent_id, body.user_id, body.include_shared)
        facts = await self._store.scope_facts(MEMORIES, self._scope.tenant, pairs)
        items: list[Doc] = []
        embedded = time.perf_counter()
        if facts.count:
            query = analyse(body.query, facts.speakers)
            vector = await self._vector(body, query)
            embedded = time.perf_counter()
            where = _filter(body, rfc3339(now))
            asked = SearchQuery(self._scope.tenant, pairs, where, vector, self._embedder.name, query.terms)
            columns = await self._store.search(MEMORIES, asked)
            items = await self._items(body, query, columns, now)
        ended = time.perf_counter()
        SEARCH_SECONDS.observe(ended - embedded)
        if body.record_access and items:
            self._accesses.note(self._scope.tenant, [item["memory"]["memory_id"] for item in items])
        took = {"embed": embedded - started, "search": ended - embedded, "total": ended - started}
        return {"items": items, "took_ms": {name: round(seconds * 1000, 3) for name, seconds in took.items()}}

    async def _vector(self, body: SearchRequest, query: QueryText) -> Vectors | None:
        """Text mode needs none, unless a least cosine is asked for."""
        if body.mode == "text" and body.min_similarity is None:
            return None
        return await self._embedder.embed_query(query.stripped)

    async def _items(self, body: SearchRequest, query: QueryText, columns: Columns, now: datetime) -> list[Doc]:
        now_ms = to_ms(now)
        matched = columns.matched
        if body.min_importance > 0:
            matched &= importance_at(columns, now_ms) >= body.min_importance
        if body.min_similarity is not None:
            matched &= columns.has_vector & (columns.cosine >= body.min_similarity)
        first = 8 * body.top_k
        ranked = rank(columns, query, body.mode, now_ms, first=first)
        best = top(ranked, columns, body.top_k)
        if len(best) < body.top_k and len(ranked.order) >= first:  # too many of equal content
            ranked = rank(columns, query, body.mode, now_ms)
            best = top(ranked, columns, body.top_k)
        docs = await self._store.fetch(MEMORIES, self._scope.tenant, columns.rows[best]) if best else []
        return [
            _item(render(doc, now_ms), ranked, index, explain=body.explain)
            for index, doc in zip(best, docs, strict=True)
            if doc is not None and self._scope.sees(doc)
        ]


def _item(memory: Doc, ranked: Ranked, index: int, *, explain: bool) -> Doc:
    item = {"memory": memory, "score": _short(ranked.score[index])}
    if explain:
        item["scores"] = {name: _short(values[index]) for name, values in ranked.parts.items()}
    return item


def _short(value: np.float32) -> float:
    """As many digits as a float32 has: scores of poor matches are small, and still differ."""
    return float(f"{value:.7g}")


def _filter(body: SearchRequest, now: str) -> Filter:
    return both(
        Eq("status", body.status),
        unexpired(now),
        _valid_at(now if body.as_of is None else body.as_of),
        None if body.memory_types is None else In("memory_type", tuple(body.memory_types)),
        None if body.session_id is None else Eq("source.session_id", body.session_id),
        None if body.tags is None else Or(tuple(Has("tags", tag) for tag in body.tags)),
        And(tuple(Has("metadata_terms", term) for term in metadata_terms(body.metadata or {}))),
        None if body.min_trust is None else Range("trust", ge=body.min_trust),
        _happened(body.since, body.until),
    )


def _valid_at(moment: str) -> Filter:
    """Intervals are closed-open."""
    return And(
        (
            Or((Absent("valid_from"), Range("valid_from", le=moment))),
            Or((Absent("valid_until"), Range("valid_until", gt=moment))),
        )
    )


def _happened(since: str | None, until: str | None) -> Filter | None:
    """By `event_at`, else `created_at`."""
    if since is None and until is None:
        return None
    by_event = Range("event_at", ge=since, lt=until)
    return Or((by_event, And((Absent("event_at"), Range("created_at", ge=since, lt=until)))))
