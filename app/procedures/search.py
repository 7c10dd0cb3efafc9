"""Procedures for a situation: found by meaning and words, then ordered by how well they work."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from app.clock import parse_rfc3339
from app.memories.lookup import Hit
from app.procedures.ranking import Standing, order, score, standing
from app.storage.collection import Doc
from app.storage.filters import Eq, Filter, Has, Or, Range, both

LEAST_CANDIDATES = 64
DAY_SECONDS = 86_400.0

Find = Callable[[int], Awaitable[list[Hit]]]
"""The best k by relevance, best first."""


@dataclass(frozen=True, slots=True)
class Found:
    hit: Hit
    score: float
    standing: Standing


def searched(
    status: str = "active",
    *,
    tags: list[str] | None = None,
    min_success_rate: float | None = None,
    min_trust: float | None = None,
    until: str | None = None,
) -> Filter:
    return both(
        Eq("status", status),
        None if tags is None else Or(tuple(Has("tags", tag) for tag in tags)),
        None if min_success_rate is None else Range("success_rate", ge=min_success_rate),
        None if min_trust is None else Range("trust", ge=min_trust),
        None if until is None else Range("created_at", le=until),
    )


async def best(find: Find, k: int, now: datetime) -> list[Found]:
    """The best k of all that `find` would bring: none scores more than its relevance, so that once the k-th does not
    score less than the relevance reached, nothing beyond can be better."""
    candidates = max(LEAST_CANDIDATES, 4 * k)
    while True:
        hits = await find(candidates)
        found = ranked(hits, now)[:k]
        if len(hits) < candidates or found[-1].score >= hits[-1].score:
            return found
        candidates *= 4


def ranked(hits: list[Hit], now: datetime) -> list[Found]:
    found = [Found(hit, score(hit.score, of), of) for hit in hits for of in (standing_of(hit.doc, now),)]
    return [found[at] for at in order([(one.hit.doc, one.score) for one in found])]


def standing_of(doc: Doc, now: datetime) -> Standing:
    """A procedure that was just changed is as fresh as one that was just used."""
    idle = now - parse_rfc3339(max(doc["last_used"] or "", doc["updated_at"]))
    recent = [one["success"] for one in doc["recent_outcomes"]]
    return standing(doc["success_count"], doc["failure_count"], recent, idle.total_seconds() / DAY_SECONDS)
