"""Operations on the wire: several features answer with one."""

from typing import Any, Literal

from app.schemas import Count, Schema


class Progress(Schema):
    done: Count
    total: Count | None


class Operation(Schema):
    operation_id: str
    agent_id: str | None
    user_id: str | None
    kind: str
    status: Literal["queued", "running", "succeeded", "partial", "failed", "undone"]
    progress: Progress
    result: dict[str, Any] | None
    error: str | None
    can_undo: bool
    created_at: str
    updated_at: str
