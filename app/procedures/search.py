"""Searches procedures for a situation: by meaning and words, then ordered by how well they work."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.core.clock import parse_rfc3339
from app.retrieval.retriever import Hit
from app.storage.filters import Eq, Filter, Has, Or, Range, both
from app.storage.schema import Doc

PRIOR = 1.0
"""The number of successes and of failures assumed in advance: Beta(1, 1), Laplace's rule of succession (1774)."""
RECENT_HALF_LIFE = 3.0
"""The number of later outcomes after which an outcome counts half (forgetting factor of Jøsang & Ismail, The Beta
Reputation System, 2002)."""
RECENT_SHARE = 0.5
"""The share of `works` that the recent outcomes decide; all outcomes alike decide the rest."""
FRESH_HALF_LIFE_DAYS = 90.0
LEAST_FRESH = 0.8
"""The smallest factor of freshness, for a procedure that was never used."""
STALE_DAYS = 180.0
"""A procedure unused for this many days gets a warning."""
FAILING_IN_A_ROW = 2
FAILING_OF_LAST = (3, 5)
"""A procedure is failing if at least 3 of its last 5 outcomes failed."""
KEPT_OUTCOMES = 20
"""The number of recent outcomes that are stored; the oldest of them counts 1/80 of the newest."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How well a procedure works. `success_rate`, `recent`, `works` and `freshness` are 0 to 1; `idle_days` counts days
    since the last use or change."""

    success_rate: float
    recent: float
    works: float
    freshness: float
    failed_in_a_row: int
    failed_of_last: tuple[int, int]
    """Failures and total of the recent outcomes, five at most."""
    idle_days: float

    @property
    def failing(self) -> bool:
        """True if the recent outcomes mostly failed."""
        least, _ = FAILING_OF_LAST
        return self.failed_in_a_row >= FAILING_IN_A_ROW or self.failed_of_last[0] >= least

    @property
    def stale(self) -> bool:
        """True if the procedure was not used or changed for `STALE_DAYS`."""
        return self.idle_days >= STALE_DAYS


def smoothed(successes: float, failures: float) -> float:
    """Returns the mean of the Beta posterior: 0.5 without outcomes, and never 0 or 1."""
    return (successes + PRIOR) / (successes + failures + 2 * PRIOR)


def standing(successes: int, failures: int, recent: Sequence[bool], idle_days: float) -> Standing:
    """Computes the standing. `recent` are the last outcomes, the oldest first; negative `idle_days` count as 0."""
    last = recent[-KEPT_OUTCOMES:]
    weights = [0.5 ** (age / RECENT_HALF_LIFE) for age in range(len(last))]
    succeeded = sum(weight for weight, success in zip(weights, reversed(last), strict=True) if success)
    latest = last[-FAILING_OF_LAST[1] :]
    rate, lately = smoothed(successes, failures), smoothed(succeeded, sum(weights) - succeeded)
    idle = max(0.0, idle_days)
    return Standing(
        success_rate=rate,
        recent=lately,
        works=(1 - RECENT_SHARE) * rate + RECENT_SHARE * lately,
        freshness=LEAST_FRESH + (1 - LEAST_FRESH) * 0.5 ** (idle / FRESH_HALF_LIFE_DAYS),
        failed_in_a_row=_failed_in_a_row(last),
        failed_of_last=(latest.count(False), len(latest)),
        idle_days=idle,
    )


def score(relevance: float, of: Standing) -> float:
    """Returns the score of a procedure: 0 to 1, like `relevance`, and never more than it."""
    return relevance * of.works * of.freshness


def order(found: Sequence[tuple[Doc, float]]) -> list[int]:
    """Returns the indices of (procedure, score) pairs, best first. Of equal scores the one created
    later comes first."""

    def place(at: int) -> tuple[float, str, str]:
        doc, value = found[at]
        return value, doc["created_at"], doc["procedure_id"]

    return sorted(range(len(found)), key=place, reverse=True)


def track_record(successes: int, failures: int, of: Standing) -> str:
    """Returns a sentence such as `worked 7 of 9 times, failed the last 2`."""
    tried = successes + failures
    if not tried:
        return "not tried yet"
    summary = f"worked {successes} of {tried} time{'s' if tried > 1 else ''}"
    return f"{summary}, {_lately(of)}" if of.failing and of.failed_in_a_row < tried else summary


def warnings(of: Standing) -> list[Doc]:
    """Returns the warnings for a caller who wants to use the procedure."""
    said = []
    if of.failing:
        said.append({"code": "failing_lately", "detail": f"It {_lately(of)}."})
    if of.stale:
        said.append({"code": "stale", "detail": f"Neither used nor changed for {int(of.idle_days)} days."})
    return said


def _lately(of: Standing) -> str:
    if of.failed_in_a_row >= FAILING_IN_A_ROW:
        return f"failed the last {of.failed_in_a_row}"
    failed, latest = of.failed_of_last
    return f"failed {failed} of the last {latest}"


def _failed_in_a_row(outcomes: Sequence[bool]) -> int:
    return next((age for age, success in enumerate(reversed(outcomes)) if success), len(outcomes))


LEAST_CANDIDATES = 64
DAY_SECONDS = 86_400.0

Find = Callable[[int], Awaitable[list[Hit]]]
"""Returns the best k hits by relevance, best first."""


@dataclass(frozen=True, slots=True)
class ProcedureHit:
    """A hit with its score and standing."""

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
        found = ranked(hits, now)[:k]
        if len(hits) < candidates or found[-1].score >= hits[-1].score:
            return found
        candidates *= 4


def ranked(hits: list[Hit], now: datetime) -> list[ProcedureHit]:
    """Returns the hits with their scores, best first."""
    found = [ProcedureHit(hit, score(hit.score, of), of) for hit in hits for of in (standing_of(hit.doc, now),)]
    return [found[at] for at in order([(one.hit.doc, one.score) for one in found])]


def standing_of(doc: Doc, now: datetime) -> Standing:
    """Returns the standing of a procedure. A change makes it as fresh as a use."""
    idle = now - parse_rfc3339(max(doc["last_used"] or "", doc["updated_at"]))
    recent = [one["success"] for one in doc["recent_outcomes"]]
    return standing(doc["success_count"], doc["failure_count"], recent, idle.total_seconds() / DAY_SECONDS)
