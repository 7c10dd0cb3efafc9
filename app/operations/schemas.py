"""Jobs and operations on the wire."""

from typing import Any, Literal

from app.schemas import Count, Flag, Schema


class JobInfo(Schema):
    name: str
    schedule: str
    last_run: str | None
    next_run: str | None
    outcome: str | None


class Jobs(Schema):
    items: list[JobInfo]
    next_cursor: None = None


class JobRun(Schema):
    dry_run: Flag = False


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
    version: int
    created_at: str
    updated_at: str
