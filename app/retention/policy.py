"""Retention policies, and the API models of forgetting, erasure and export."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from app.core.clock import to_ms
from app.core.schemas import Count, Flag, Identifier, Owned, Schema, Share, example
from app.memories.schemas import MemoryType, Tags
from app.retrieval.decay import DAY_MS
from app.storage.filters import Eq, Filter, Has, In, Not, Or, Range, both
from app.storage.repository import unexpired
from app.storage.schema import Doc

RECENCY_POINTS = 100
KEPT_TYPES = frozenset({"issue", "solution"})
TYPE_POINTS = 50
OFTEN = 10
ACCESS_POINTS = 30


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Selects memories that are older than `older_than_days` and, if the limits are given, have at most this importance
    and score."""

    older_than_days: float = 365
    max_importance: float | None = None
    max_score: float | None = None
    types: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None

    def candidates(self, now: str, before: str) -> Filter:
        """Filters what the store can decide: active, not pinned, not expired, created before `before`, of the types and
        tags."""
        return both(
            Eq("status", "active"),
            Not(Eq("pinned", True)),
            unexpired(now),
            Range("created_at", lt=before),
            None if self.types is None else In("memory_type", self.types),
            None if self.tags is None else Or(tuple(Has("tags", tag) for tag in self.tags)),
        )

    def forgets(self, importance: float, score: float) -> bool:
        """Returns True if a candidate with this importance and score is to be forgotten."""
        return (self.max_importance is None or importance <= self.max_importance) and (
            self.max_score is None or score <= self.max_score
        )


def score(memory: Doc, now_ms: int) -> tuple[float, list[dict[str, Any]]]:
    """Returns a memory's retention score and the reasons that it is the sum of."""
    age = (now_ms - to_ms(memory["created_at"])) / DAY_MS
    reasons: list[dict[str, Any]] = [
        {"reason": "recency", "points": max(0.0, RECENCY_POINTS - age), "detail": f"{age:.1f} days old"}
    ]
    kind, accesses = memory["memory_type"], memory["access_count"]
    reasons.append({"reason": "type", "points": TYPE_POINTS * (kind in KEPT_TYPES), "detail": kind})
    reasons.append({"reason": "access", "points": ACCESS_POINTS * (accesses > OFTEN), "detail": f"{accesses} times"})
    return sum(reason["points"] for reason in reasons), reasons


class PolicyIn(Schema):
    older_than_days: Annotated[float, Field(strict=True, ge=0, le=36500)] = 365
    max_importance: Share | None = Field(None, description="Only what has faded to this or less.")
    max_score: Annotated[float, Field(strict=True, ge=0, le=1000)] | None = Field(
        None,
        description="Only what scores this or less: up to 100 for recency, 50 for issues and solutions, 30 for use.",
    )
    types: Annotated[list[MemoryType], Field(min_length=1)] | None = None
    tags: Annotated[Tags, Field(min_length=1)] | None = Field(None, description="Has at least one of these.")


class ForgetRequest(Owned):
    model_config = example({"agent_id": "support", "user_id": "ada", "policy": {"older_than_days": 365}})

    policy: PolicyIn = PolicyIn()
    dry_run: Flag = Field(True, description="Only say what would go.")


ForgetReason = TypeAliasType("ForgetReason", Literal["recency", "type", "access"])


class Reason(Schema):
    reason: ForgetReason
    points: float
    detail: str


class Forgettable(Schema):
    memory_id: str
    content: str
    memory_type: MemoryType
    importance: float
    score: float
    reasons: list[Reason]


class ForgetPlan(Schema):
    """What would be forgotten."""

    dry_run: Literal[True]
    total: Count
    items: list[Forgettable] = Field(description="The first 100, lowest score first.")


class Verification(Schema):
    """What was looked for after all was gone."""

    records_found: Count = Field(description="Records of the user in any collection: 0.")
    search_found: Count = Field(description="What searches of the user's scope have to look at: 0.")


class Receipt(Schema):
    """What an erasure took away."""

    model_config = example(
        {
            "user_id": "ada",
            "tombstone": "2b1f1d3b0d8e5f6a7c4e9d0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e",
            "erased_at": "2026-06-01T12:00:00.000Z",
            "erased": {"agent_memories": 12, "messages": 30, "conversation_sessions": 2},
            "verification": {"records_found": 0, "search_found": 0},
        }
    )

    user_id: Identifier
    tombstone: str = Field(description="Keyed hash of the user's id: all that remains of it.")
    erased_at: str = Field(description="When it was verified.")
    erased: dict[str, Count] = Field(description="How many went, by collection.")
    verification: Verification
