"""How well a procedure stands, and which of those that fit a situation come first: pure functions of counts and time.

    score = relevance * works * freshness

What is looked for is the chance that a procedure is the one meant (`relevance`, the search's hybrid score) and that it
will work (`works`), so the two are multiplied. Numbers, their reasons and sources: docs/procedures.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app.storage.collection import Doc

PRIOR = 1.0
"""Successes and failures that are taken for granted: Beta(1, 1), Laplace's rule of succession (1774)."""
RECENT_HALF_LIFE = 3.0
"""Outcomes after which one counts half as much (forgetting factor of Jøsang & Ismail, The Beta Reputation System,
2002)."""
RECENT_SHARE = 0.5
"""Of `works` that the last outcomes decide; the rest is decided by all of them alike."""
FRESH_HALF_LIFE_DAYS = 90.0
LEAST_FRESH = 0.8
"""What is left of the score of a procedure that nobody has used for ever."""
STALE_DAYS = 180.0
"""Unused for so long, it is said."""
FAILING_IN_A_ROW = 2
FAILING_OF_LAST = (3, 5)
"""At least 3 of the last 5 failed."""
KEPT_OUTCOMES = 20
"""Of the last outcomes; the oldest of them counts 1/80 of the newest."""


@dataclass(frozen=True, slots=True)
class Standing:
    """`success_rate`, `recent`, `works` and `freshness` are 0 to 1; `idle_days` since the last use or change."""

    success_rate: float
    recent: float
    works: float
    freshness: float
    failed_in_a_row: int
    failed_of_last: tuple[int, int]
    """Failures, and of how many: the last five at most."""
    idle_days: float

    @property
    def failing(self) -> bool:
        least, _ = FAILING_OF_LAST
        return self.failed_in_a_row >= FAILING_IN_A_ROW or self.failed_of_last[0] >= least

    @property
    def stale(self) -> bool:
        return self.idle_days >= STALE_DAYS


def smoothed(successes: float, failures: float) -> float:
    """Mean of the Beta posterior: 0.5 where nothing is known, and never 0 or 1."""
    return (successes + PRIOR) / (successes + failures + 2 * PRIOR)


def standing(successes: int, failures: int, recent: Sequence[bool], idle_days: float) -> Standing:
    """`recent`: the last outcomes, the oldest first. `idle_days` under 0 are 0."""
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
    """0 to 1 where `relevance` is; never more than it."""
    return relevance * of.works * of.freshness


def order(found: Sequence[tuple[Doc, float]]) -> list[int]:
    """Indices of (procedure, score), best first. Of equal scores the one made later, whatever order they came in."""

    def place(at: int) -> tuple[float, str, str]:
        doc, value = found[at]
        return value, doc["created_at"], doc["procedure_id"]

    return sorted(range(len(found)), key=place, reverse=True)


def track_record(successes: int, failures: int, of: Standing) -> str:
    """`worked 7 of 9 times, failed the last 2`."""
    tried = successes + failures
    if not tried:
        return "not tried yet"
    told = f"worked {successes} of {tried} time{'s' if tried > 1 else ''}"
    return f"{told}, {_lately(of)}" if of.failing and of.failed_in_a_row < tried else told


def warnings(of: Standing) -> list[Doc]:
    """What a caller should know before trusting it."""
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
