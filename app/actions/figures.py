"""Figures of actions: rates, durations and ratings of single actions and of days that were rolled up. Pure functions.

Intervals are Wilson's (1927), which are valid for small counts, too. A day that was rolled up keeps a *cell* for each
type of action and tool: counts by outcome, ratings, the sum of the durations, and the number of durations in each
bucket. Buckets grow by `GROWTH`, so a percentile of rolled-up durations is within 2 % of the exact one.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from math import ceil, log, sqrt
from typing import Any

from app.core.clock import parse_rfc3339
from app.storage.schema import Doc

Z_95 = 1.959963984540054
OUTCOMES = ("success", "failure", "partial")


def wilson(hits: int, total: int) -> tuple[float, float]:
    """Returns the 95 % interval of a proportion; `total` ≥ 1."""
    share, square = hits / total, Z_95**2
    middle = share + square / (2 * total)
    spread = Z_95 * sqrt(share * (1 - share) / total + square / (4 * total**2))
    whole = 1 + square / total
    return max(0.0, (middle - spread) / whole), min(1.0, (middle + spread) / whole)


GROWTH = 1.04
MAX_BUCKET = 18_000
"""The last bucket, close to the greatest number. Zero has a bucket of its own."""
NO_TOOL = "none"


@dataclass(slots=True)
class Tally:
    """Counts of outcomes, durations in milliseconds and ratings of a group of actions. A duration that was rolled up
    counts as the middle of its bucket; their sum is exact."""

    outcomes: Counter[str] = field(default_factory=Counter)
    durations: Counter[float] = field(default_factory=Counter)
    duration_sum: float = 0.0
    ratings: Counter[int] = field(default_factory=Counter)

    def add(self, action: Doc) -> None:
        """Adds an action."""
        self.outcomes[action["outcome"] or "unknown"] += 1
        duration, rating = action["action"].get("duration_ms"), action["feedback"].get("user_rating")
        if duration is not None:
            self.durations[duration] += 1
            self.duration_sum += duration
        if rating is not None:
            self.ratings[rating] += 1

    def add_cell(self, cell: Doc) -> None:
        """Adds a cell of a day."""
        self.outcomes.update(cell["outcomes"])
        self.duration_sum += cell["duration_sum"]
        self.durations.update({_middle(name): number for name, number in cell["durations"].items()})
        self.ratings.update({int(name): number for name, number in cell["ratings"].items()})

    def figures(self) -> Doc:
        """Returns the statistics as the API shows them."""
        timed, rated = self.durations.total(), self.ratings.total()
        return {
            "total_actions": self.outcomes.total(),
            "counts": dict(sorted(self.outcomes.items())),
            **{f"{outcome}_rate": self._rate(outcome) for outcome in OUTCOMES},
            "mean_duration_ms": self.duration_sum / timed if timed else None,
            "p95_duration_ms": percentile(self.durations, 0.95),
            "mean_rating": sum(rating * number for rating, number in self.ratings.items()) / rated if rated else None,
        }

    def _rate(self, outcome: str) -> Doc | None:
        known = self.outcomes.total() - self.outcomes["unknown"]
        if not known:
            return None
        low, high = wilson(self.outcomes[outcome], known)
        return {"value": self.outcomes[outcome] / known, "low": low, "high": high}


def percentile(values: Mapping[float, int], share: float) -> float | None:
    """Returns the nearest-rank percentile of values with their numbers: the smallest value that at least `share` of all
    do not exceed. None without values."""
    least, seen = ceil(share * sum(values.values())), 0
    for value, number in sorted(values.items()):
        seen += number
        if seen >= least:
            return value
    return None


# --- Days that were rolled up -----------------------------------------------------------------------------------------


def cells(actions: Iterable[Doc], earlier: Iterable[Doc] = ()) -> list[Doc]:
    """Returns the cells of a day: those of its actions, added to the earlier ones of the same day."""
    found = {(cell["action_type"], cell["tool"]): Tally() for cell in earlier}
    buckets: dict[tuple[str, str | None], Counter[str]] = {key: Counter() for key in found}
    for cell in earlier:
        key = cell["action_type"], cell["tool"]
        found[key].add_cell(cell)
        buckets[key].update(cell["durations"])
    for action in actions:
        key = action["action_type"], action["action"].get("tool")
        found.setdefault(key, Tally()).add(action)
        if (duration := action["action"].get("duration_ms")) is not None:
            buckets.setdefault(key, Counter())[_bucket(duration)] += 1
    return [_cell(*key, tally, buckets.get(key, Counter())) for key, tally in found.items()]


def _cell(action_type: str, tool: str | None, tally: Tally, durations: Counter[str]) -> Doc:
    return {
        "action_type": action_type,
        "tool": tool,
        "outcomes": dict(sorted(tally.outcomes.items())),
        "duration_sum": min(tally.duration_sum, sys.float_info.max),
        "durations": dict(durations),
        "ratings": {str(rating): number for rating, number in sorted(tally.ratings.items())},
    }


def _bucket(duration: float) -> str:
    return "zero" if not duration else str(min(ceil(log(duration) / log(GROWTH)), MAX_BUCKET))


def _middle(bucket: str) -> float:
    """Returns the value that is at most 2 % away from every value of a bucket."""
    return 0.0 if bucket == "zero" else 2 * GROWTH ** int(bucket) / (GROWTH + 1)


def counts_of(memory: Doc) -> Doc | None:
    """Returns the counts in a day's summary, or None if a caller made the memory or removed the counts."""
    counts = memory["metadata"]
    parts = [counts.get(name) for name in ("outcomes", "types")]
    ours = memory["source"]["origin"] == "consolidation" and all(isinstance(part, dict) for part in parts)
    numbers = [number for part in parts if isinstance(part, dict) for number in part.values()]
    return counts if ours and all(type(number) is int for number in numbers) else None


def cells_of_counts(counts: Doc, *, by_type: bool) -> list[Doc]:
    """Returns cells for a day that an earlier version rolled up, of which only counts by outcome and by type are known.
    By type, the outcomes are known if the day had one type or one outcome."""
    outcomes, types = counts["outcomes"], counts["types"]
    if not by_type or len(types) == 1:
        return [_cell(next(iter(types), ""), None, Tally(Counter(outcomes)), Counter())]
    only = next(iter(outcomes)) if len(outcomes) == 1 else "unknown"
    return [_cell(name, None, Tally(Counter({only: number})), Counter()) for name, number in types.items()]


# --- Groups -----------------------------------------------------------------------------------------------------------


def grouping(by: str, zone: tzinfo) -> Callable[[Doc], str]:
    """Returns a function that maps an action to its group."""
    if by == "day":
        return lambda action: _day(parse_rfc3339(action["timestamp"]), zone)
    if by == "tool":
        return lambda action: action["action"].get("tool") or NO_TOOL
    return lambda action: str(action["action_type"])


def _day(moment: datetime, zone: tzinfo) -> str:
    try:
        return moment.astimezone(zone).date().isoformat()
    except OverflowError:  # the next day may not exist in the year 9999
        return moment.date().isoformat()


def cell_group(by: str, cell: Mapping[str, Any], day: str) -> str:
    """Returns the group of a cell. A day that was rolled up is one of UTC, whatever zone is asked for."""
    if by == "day":
        return day
    return str(cell["tool"] or NO_TOOL if by == "tool" else cell["action_type"])
