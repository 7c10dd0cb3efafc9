"""Request and response models of jobs and operations."""

from pydantic import Field

from app.core.schemas import Flag, Identifier, Schema, example


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
    model_config = example({"dry_run": True})

    dry_run: Flag = False
    agent_id: Identifier | None = Field(None, description="For `consolidation`: only what is of this agent.")
    user_id: Identifier | None = Field(None, description="For `consolidation`: only what is of this user.")
