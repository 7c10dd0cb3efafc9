"""Searches procedures for a situation: by meaning and words, then ordered by how well they work."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from app.procedures.schemas import ProcedureRecord
from app.procedures.track_record import TrackRecord, track_record_of
from app.retrieval.retriever import Hit
from app.storage.schema import Eq, Filter, Has, Or, Range, both

LEAST_CANDIDATES = 64

Find: TypeAlias = Callable[[int], Awaitable[list[Hit[ProcedureRecord]]]]
"""Returns the best k hits by relevance, best first."""


@dataclass(frozen=True, slots=True)
class ProcedureHit:
    """A hit with its score and track record."""

    hit: Hit[ProcedureRecord]
    score: float
    track_record: TrackRecord


def procedure_filter(
    status: str = "active",
    *,
    tags: list[str] | None = None,
    min_success_rate: float | None = None,
    min_trust: float | None = None,
    until: str | None = None,
) -> Filter:
    """Returns the filter of a search."""
    return both(
        Eq("status", status),
        None if tags is None else Or(tuple(Has("tags", tag) for tag in tags)),
        None if min_success_rate is None else Range("success_rate", ge=min_success_rate),
        None if min_trust is None else Range("trust", ge=min_trust),
        None if until is None else Range("created_at", le=until),
    )


async def best(find: Find, k: int, now: datetime) -> list[ProcedureHit]:
    """Returns the best k procedures of all that `find` can return. No score exceeds its relevance, so the search ends
    once the k-th score is at least the lowest relevance read."""
    candidates = max(LEAST_CANDIDATES, 4 * k)
    while True:
        hits = await find(candidates)
        best_hits = ranked(hits, now)[:k]
        if len(hits) < candidates or best_hits[-1].score >= hits[-1].score:
            return best_hits
        candidates *= 4


def ranked(hits: list[Hit[ProcedureRecord]], now: datetime) -> list[ProcedureHit]:
    """Returns the hits with their scores, best first."""
    scored = []
    for hit in hits:
        record = track_record_of(hit.doc, now)
        scored.append(ProcedureHit(hit, score(hit.score, record), record))
    return [scored[at] for at in order([(candidate.hit.doc, candidate.score) for candidate in scored])]


def score(relevance: float, record: TrackRecord) -> float:
    """Returns the score of a procedure: 0 to 1, like `relevance`, and never more than it."""
    return relevance * record.works * record.freshness


def order(scored: Sequence[tuple[ProcedureRecord, float]]) -> list[int]:
    """Returns the indices of (procedure, score) pairs, best first. Of equal scores the one created later comes
    first."""

    def place(at: int) -> tuple[float, str, str]:
        procedure, value = scored[at]
        return value, procedure["created_at"], procedure["procedure_id"]

    return sorted(range(len(scored)), key=place, reverse=True)
