"""Statistics of actions, as pure functions. Intervals are Wilson's (1927), which are valid for small counts, too."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from math import ceil, sqrt

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


@dataclass(slots=True)
class Tally:
    """Counts of outcomes, durations in milliseconds and ratings of a group of actions."""

    outcomes: Counter[str] = field(default_factory=Counter)
    durations: list[float] = field(default_factory=list)
    ratings: list[int] = field(default_factory=list)

    def add(self, action: Doc) -> None:
        """Adds an action."""
        self.outcomes[action["outcome"] or "unknown"] += 1
        duration, rating = action["action"].get("duration_ms"), action["feedback"].get("user_rating")
        if duration is not None:
            self.durations.append(duration)
        if rating is not None:
            self.ratings.append(rating)

    def figures(self) -> Doc:
        """Returns the statistics as the API shows them."""
        return {
            "total_actions": self.outcomes.total(),
            "counts": dict(sorted(self.outcomes.items())),
            **{f"{outcome}_rate": self._rate(outcome) for outcome in OUTCOMES},
            "mean_duration_ms": _mean(self.durations),
            "p95_duration_ms": percentile(self.durations, 0.95),
            "mean_rating": _mean(self.ratings),
        }

    def _rate(self, outcome: str) -> Doc | None:
        known = self.outcomes.total() - self.outcomes["unknown"]
        if not known:
            return None
        low, high = wilson(self.outcomes[outcome], known)
        return {"value": self.outcomes[outcome] / known, "low": low, "high": high}


def percentile(values: list[float], share: float) -> float | None:
    """Returns the nearest-rank percentile: the smallest value that at least `share` of all values do not exceed. None
    without values."""
    return sorted(values)[ceil(share * len(values)) - 1] if values else None


def grouping(by: str, zone: tzinfo) -> Callable[[Doc], str]:
    """Returns a function that maps an action to its group."""
    if by == "day":
        return lambda action: _day(parse_rfc3339(action["timestamp"]), zone)
    if by == "tool":
        return lambda action: action["action"].get("tool") or "none"
    return lambda action: str(action["action_type"])


def _day(moment: datetime, zone: tzinfo) -> str:
    try:
        return moment.astimezone(zone).date().isoformat()
    except OverflowError:  # the next day may not exist in the year 9999
        return moment.date().isoformat()


def _mean(values: list[float] | list[int]) -> float | None:
    return sum(values) / len(values) if values else None
