"""Search of memories: what a request filters by, and what it is answered."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from app.clock import Clock, parse_rfc3339, rfc3339, to_ms
from app.memories.decays import Decays
from app.memories.documents import metadata_terms
from app.memories.lookup import Hit, Lookup, Wanted
from app.memories.schemas import SearchRequest
from app.memories.shown import Shown
from app.state import AccessLog
from app.storage.collection import Doc
from app.storage.filters import Absent, And, Eq, Filter, Has, In, Or, Range, both
from app.storage.repository import unexpired
from app.storage.scope import Scope
from app.storage.search import Bools, Columns, Floats


class Recall:
    def __init__(self, lookup: Lookup, scope: Scope, decays: Decays, accesses: AccessLog, clock: Clock) -> None:
        self._lookup, self._scope, self._decays = lookup, scope, decays
        self._accesses, self._clock = accesses, clock

    async def search(self, body: SearchRequest) -> Doc:
        """Items best first, and where the time went; memories as JSON that orjson takes over as it is."""
        now = self._clock.now() if body.now is None else parse_rfc3339(body.now)
        now_ms = to_ms(now)
        looked = await self._lookup.find(
            Wanted(
                query=body.query,
                pairs=self._scope.pairs(body.agent_id, body.user_id, body.include_shared),
                where=search_filter(body, rfc3339(now)),
                now_ms=now_ms,
                k=body.top_k,
                mode=body.mode,
                mask=partial(_mask, body) if body.min_importance > 0 or body.min_similarity is not None else None,
                decays=self._decays,
                explain=body.explain,
                needs_vector=body.mode != "text" or body.min_similarity is not None,
            )
        )
        if body.record_access and looked.hits:
            self._accesses.note(self._scope.tenant, [hit.doc["memory_id"] for hit in looked.hits])
        return {"items": await self._items(looked.hits, now_ms), "took_ms": looked.took_ms}

    async def _items(self, hits: Sequence[Hit], now_ms: int) -> list[Doc]:
        shown = [hit.derived.get("shown", (), partial(Shown, hit.doc)) for hit in hits]
        decays = {agent: await self._decays.of(agent) for agent in {one.agent_id for one in shown}}
        items: list[Doc] = []
        for hit, one in zip(hits, shown, strict=True):
            memory = one.json(one.importance_at(now_ms, decays[one.agent_id]))
            item: Doc = {"memory": memory, "score": hit.score}
            if hit.parts:
                item["scores"] = hit.parts
            items.append(item)
        return items


def _mask(body: SearchRequest, columns: Columns, importance: Floats) -> Bools:
    """Filters on what is computed rather than stored."""
    mask = np.ones(len(columns.rows), np.bool_)
    if body.min_importance > 0:
        mask &= importance >= body.min_importance
    if body.min_similarity is not None:
        mask &= columns.has_vector & (columns.cosine >= body.min_similarity)
    return mask


def search_filter(body: SearchRequest, now: str) -> Filter:
    """What a request filters by, at `now`."""
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


_NO_START, _NO_END = Absent("valid_from"), Absent("valid_until")


def _valid_at(moment: str) -> Filter:
    """Intervals are closed-open."""
    return And(
        (
            Or((_NO_START, Range("valid_from", le=moment))),
            Or((_NO_END, Range("valid_until", gt=moment))),
        )
    )


def _happened(since: str | None, until: str | None) -> Filter | None:
    """By `event_at`, else `created_at`."""
    if since is None and until is None:
        return None
    by_event = Range("event_at", ge=since, lt=until)
    return Or((by_event, And((Absent("event_at"), Range("created_at", ge=since, lt=until)))))
