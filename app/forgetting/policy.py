"""What may be forgotten, pure: seed 002's retention and importance score, each with its reasons.

score = max(0, 100 − age in days) + 50 for an issue or a solution + 30 where it was recalled more than ten times
"""

from dataclasses import dataclass
from typing import Any

from app.clock import to_ms
from app.memories.strength import DAY_MS
from app.storage.collection import Doc
from app.storage.filters import Eq, Filter, Has, In, Not, Or, Range, both
from app.storage.repository import unexpired

RECENCY_POINTS = 100
KEPT_TYPES = frozenset({"issue", "solution"})
TYPE_POINTS = 50
OFTEN = 10
ACCESS_POINTS = 30


@dataclass(frozen=True, slots=True)
class Policy:
    """Forgets what is older than so many days and, where they are given, no more important and no higher in score."""

    older_than_days: float = 365
    max_importance: float | None = None
    max_score: float | None = None
    types: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None

    def candidates(self, now: str, before: str) -> Filter:
        """What a store can tell: active, not pinned, not expired, created before `before`, of the types and tags."""
        return both(
            Eq("status", "active"),
            Not(Eq("pinned", True)),
            unexpired(now),
            Range("created_at", lt=before),
            None if self.types is None else In("memory_type", self.types),
            None if self.tags is None else Or(tuple(Has("tags", tag) for tag in self.tags)),
        )

    def forgets(self, importance: float, score: float) -> bool:
        """Of a candidate."""
        return (self.max_importance is None or importance <= self.max_importance) and (
            self.max_score is None or score <= self.max_score
        )


def score(memory: Doc, now_ms: int) -> tuple[float, list[dict[str, Any]]]:
    """The importance score and what it is made of."""
    age = (now_ms - to_ms(memory["created_at"])) / DAY_MS
    reasons: list[dict[str, Any]] = [
        {"reason": "recency", "points": max(0.0, RECENCY_POINTS - age), "detail": f"{age:.1f} days old"}
    ]
    kind, accesses = memory["memory_type"], memory["access_count"]
    reasons.append({"reason": "type", "points": TYPE_POINTS * (kind in KEPT_TYPES), "detail": kind})
    reasons.append({"reason": "access", "points": ACCESS_POINTS * (accesses > OFTEN), "detail": f"{accesses} times"})
    return sum(reason["points"] for reason in reasons), reasons
