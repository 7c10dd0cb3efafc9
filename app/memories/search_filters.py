"""What a search of memories leaves out: what the store decides from fields, what a memory itself says, and what is
computed for the search."""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from app.core.characters import says_nothing
from app.memories.filters import SplitFilter, true_at
from app.memories.schemas import NO_SMALL_TALK, SMALL_TALK
from app.memories.search_schemas import SearchRequest
from app.storage.repository import unexpired
from app.storage.schema import Absent, And, Eq, Filter, In, Or, Range, both
from app.storage.search import Bools, Columns, Floats
from app.storage.text import content_hash


def search_filter(body: SearchRequest, now: str) -> SplitFilter:
    """Returns the filter of a request, at the time `now`."""
    moment = now if body.as_of is None else body.as_of
    where, keep = body.split_filter()
    return SplitFilter(both(_of_status(body.status), unexpired(now), *true_at(moment), where, *_of_fields(body)), keep)


def small_talk_filter(body: SearchRequest) -> SplitFilter:
    """Returns the filter that leaves out small talk ("👍"), unless the request names the session. A query that is small
    talk itself finds small talk of its own words: "🎉" finds "🎉", and not "🎉🎈"."""
    if body.session_id is not None:
        return SplitFilter(And(), None)
    if not says_nothing(body.query):
        return SplitFilter(NO_SMALL_TALK, None)
    asked = content_hash(body.query)
    return SplitFilter(And(), lambda memory: memory.get("standing") != SMALL_TALK or memory["content_hash"] == asked)


@lru_cache(maxsize=8)
def _of_status(status: str) -> Filter:
    return Eq("status", status)


def _of_fields(body: SearchRequest) -> Iterator[Filter]:
    """Yields the filters of the fields that the request sets; most set none."""
    if body.memory_types is not None:
        yield In("memory_type", tuple(body.memory_types))
    if body.session_id is not None:
        yield Eq("source.session_id", body.session_id)
    if body.min_trust is not None:
        yield Range("trust", ge=body.min_trust)
    if body.since is not None or body.until is not None:
        yield _happened(ge=body.since, lt=body.until)
    if body.now is not None:
        yield _happened(le=body.now)


def _happened(**bounds: str | None) -> Filter:
    """Returns a filter on `event_at`, or on `created_at` for memories without one."""
    return Or((Range("event_at", **bounds), And((Absent("event_at"), Range("created_at", **bounds)))))


def computed_mask(body: SearchRequest, least: float, columns: Columns, importance: Floats) -> Bools:
    """Returns the mask for filters on computed values. `least`: minimum current importance."""
    mask = np.ones(len(columns.rows), np.bool_)
    if least > 0:
        mask &= importance >= least
    if body.min_similarity is not None:
        mask &= columns.has_vector & (columns.cosine >= body.min_similarity)
    return mask
