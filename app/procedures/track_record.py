"""How well a procedure works: its track record, by all outcomes and by the latest ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import sqrt

from app.core.clock import parse_rfc3339
from app.procedures.schemas import ProcedureRecord, ProcedureWarning

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
FAILURES_IN_A_ROW = 2
"""A procedure that fails so often in a row is failing."""
FAILURES_OF_LAST = (3, 5)
"""It is said to fail lately, too, if at least 3 of its last 5 outcomes failed."""
KEPT_OUTCOMES = 20
"""The number of recent outcomes that are stored; the oldest of them counts 1/80 of the newest."""
DAY_SECONDS = 86_400.0
Z = 1.96
"""Standard deviations of a 95 % interval."""


@dataclass(frozen=True, slots=True)
class TrackRecord:
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
    def failing_lately(self) -> bool:
        """True if the recent outcomes mostly failed."""
        least, _ = FAILURES_OF_LAST
        return self.failed_in_a_row >= FAILURES_IN_A_ROW or self.failed_of_last[0] >= least

    @property
    def stale(self) -> bool:
        """True if the procedure was not used or changed for `STALE_DAYS`."""
        return self.idle_days >= STALE_DAYS


def smoothed(successes: float, failures: float) -> float:
    """Returns the mean of the Beta posterior: 0.5 without outcomes, and never 0 or 1."""
    return (successes + PRIOR) / (successes + failures + 2 * PRIOR)


def track_record(successes: int, failures: int, recent: Sequence[bool], idle_days: float) -> TrackRecord:
    """Computes the track record. `recent` are the last outcomes, the oldest first; negative `idle_days` count as 0."""
    last = recent[-KEPT_OUTCOMES:]
    weights = [0.5 ** (age / RECENT_HALF_LIFE) for age in range(len(last))]
    succeeded = sum(weight for weight, success in zip(weights, reversed(last), strict=True) if success)
    latest = last[-FAILURES_OF_LAST[1] :]
    rate, lately = smoothed(successes, failures), smoothed(succeeded, sum(weights) - succeeded)
    idle = max(0.0, idle_days)
    return TrackRecord(
        success_rate=rate,
        recent=lately,
        works=(1 - RECENT_SHARE) * rate + RECENT_SHARE * lately,
        freshness=LEAST_FRESH + (1 - LEAST_FRESH) * 0.5 ** (idle / FRESH_HALF_LIFE_DAYS),
        failed_in_a_row=next((age for age, success in enumerate(reversed(last)) if success), len(last)),
        failed_of_last=(latest.count(False), len(latest)),
        idle_days=idle,
    )


def record_sentence(successes: int, failures: int, record: TrackRecord) -> str:
    """Returns a sentence such as `worked 7 of 9 times, failed the last 2`."""
    tried = successes + failures
    if not tried:
        return "not tried yet"
    summary = f"worked {successes} of {tried} time{'s' if tried > 1 else ''}"
    return f"{summary}, {_lately(record)}" if record.failing_lately and record.failed_in_a_row < tried else summary


def warnings(record: TrackRecord) -> list[ProcedureWarning]:
    """Returns the warnings for a caller who wants to use the procedure."""
    listed: list[ProcedureWarning] = []
    if record.failing_lately:
        listed.append({"code": "failing_lately", "detail": f"It {_lately(record)}."})
    if record.stale:
        listed.append({"code": "stale", "detail": f"Neither used nor changed for {int(record.idle_days)} days."})
    return listed


def _lately(record: TrackRecord) -> str:
    if record.failed_in_a_row >= FAILURES_IN_A_ROW:
        return f"failed the last {record.failed_in_a_row}"
    failed, latest = record.failed_of_last
    return f"failed {failed} of the last {latest}"


def track_record_of(procedure: ProcedureRecord, now: datetime) -> TrackRecord:
    """Returns the track record of a procedure. A change makes it as fresh as a use."""
    idle = now - parse_rfc3339(max(procedure["last_used"] or "", procedure["updated_at"]))
    recent = [outcome["success"] for outcome in procedure["recent_outcomes"]]
    return track_record(
        procedure["success_count"], procedure["failure_count"], recent, idle.total_seconds() / DAY_SECONDS
    )


def interval(successes: int, failures: int) -> tuple[float, float]:
    """Returns the 95 % Wilson interval of the success rate: 0 to 1 without outcomes."""
    tried = successes + failures
    if not tried:
        return 0.0, 1.0
    rate, square = successes / tried, Z * Z
    middle = (rate + square / (2 * tried)) / (1 + square / tried)
    half = Z / (1 + square / tried) * sqrt(rate * (1 - rate) / tried + square / (4 * tried * tried))
    return max(0.0, middle - half), min(1.0, middle + half)
