"""Forgetting on the wire."""

from typing import Annotated, Literal

from pydantic import Field

from app.memories.schemas import MemoryType, Tags
from app.schemas import Count, Flag, Identifier, Owned, Schema, Share, example


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


class Reason(Schema):
    reason: Literal["recency", "type", "access"]
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
