"""Jobs and operations on the wire."""

from app.schemas import Flag, Schema, example


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
