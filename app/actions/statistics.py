"""Figures over actions, pure. Rates come from counts; intervals are Wilson's (1927), which hold for few actions too."""

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
    """95 % interval of a proportion, `total` ≥ 1."""
    share, square = hits / total, Z_95**2
    middle = share + square / (2 * total)
    spread = Z_95 * sqrt(share * (1 - share) / total + square / (4 * total**2))
    whole = 1 + square / total
    return max(0.0, (middle - spread) / whole), min(1.0, (middle + spread) / whole)


@dataclass(slots=True)
class Tally:
    outcomes: Counter[str] = field(default_factory=Counter)
    durations: list[float] = field(default_factory=list)
    ratings: list[int] = field(default_factory=list)

    def add(self, action: Doc) -> None:
        self.outcomes[action["outcome"] or "unknown"] += 1
        duration, rating = action["action"].get("duration_ms"), action["feedback"].get("user_rating")
        if duration is not None:
            self.durations.append(duration)
        if rating is not None:
            self.ratings.append(rating)

    def figures(self) -> Doc:
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
    """Nearest rank: the smallest value that at least `share` of all do not exceed."""
    return sorted(values)[ceil(share * len(values)) - 1] if values else None


def grouping(by: str, zone: tzinfo) -> Callable[[Doc], str]:
    """The group that an action belongs to."""
    if by == "day":
        return lambda action: _day(parse_rfc3339(action["timestamp"]), zone)
    if by == "tool":
        return lambda action: action["action"].get("tool") or "none"
    return lambda action: str(action["action_type"])


def _day(moment: datetime, zone: tzinfo) -> str:
    try:
        return moment.astimezone(zone).date().isoformat()
    except OverflowError:  # in the year 9999 there may be no tomorrow
        return moment.date().isoformat()


def _mean(values: list[float] | list[int]) -> float | None:
    return sum(values) / len(values) if values else None
