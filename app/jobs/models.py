"""Jobs and operations: as they are stored, and as they are on the wire."""

from collections.abc import Mapping
from typing import Any, Literal

from app.core.schemas import Count, Schema
from app.storage.filters import Absent, Not
from app.storage.schema import Collection, Unique

POST_CONVERSATION = "post_conversation"
SUMMARIZE = "summarize"
CONSOLIDATION = "consolidation"
RETENTION = "retention"
EMBED_PENDING = "embed_pending"
DECAY = "decay"
EXPIRY = "expiry"
FORGET = "forget"
UNDO = "undo"
ERASE_USER = "erase_user"

Lane = str | None
"""As a job stores it."""

LANGUAGE_MODEL: Lane = "language_model"
EMBEDDING_MODEL: Lane = "embedding_model"
ORDINARY: Lane = None
"""Jobs that wait for no model, and those that an earlier version queued: they store no lane."""
LANES: tuple[Lane, ...] = (LANGUAGE_MODEL, EMBEDDING_MODEL, ORDINARY)

_LANE_OF: Mapping[str, Lane] = {
    POST_CONVERSATION: LANGUAGE_MODEL,
    SUMMARIZE: LANGUAGE_MODEL,
    CONSOLIDATION: LANGUAGE_MODEL,
    RETENTION: LANGUAGE_MODEL,  # it asks for summaries of days
    EMBED_PENDING: EMBEDDING_MODEL,
    DECAY: ORDINARY,
    EXPIRY: ORDINARY,
    FORGET: ORDINARY,
    UNDO: ORDINARY,
    ERASE_USER: ORDINARY,
}


def lane_of(kind: str) -> Lane:
    return _LANE_OF.get(kind, ORDINARY)


JOBS = Collection(
    name="jobs",
    id_field="job_id",
    fields={
        "status": "text",
        "kind": "text",
        "lane": "text",
        "run_at": "time",
        "leased_until": "time",
        "slot": "text",
    },
    order="run_at",
    unique=(Unique("slot", ("slot",), Not(Absent("slot"))),),
    indexes=(("status",), ("lane", "status")),
    opaque=("payload",),
    audited=False,
)
"""The queue, under the tenant `SYSTEM`. A job that is done is deleted; one that failed for good says why, for a while.

Of the jobs with a `slot`, one at a time waits or runs: what the clock starts never piles up behind itself."""
SCHEDULES = Collection(name="schedules", id_field="name", fields={})
"""What runs by the clock, under the tenant `SYSTEM`."""
OPERATIONS = Collection(
    name="operations",
    id_field="operation_id",
    fields={
        "agent_id": "text",
        "user_id": "text",
        "kind": "text",
        "status": "text",
        "created_at": "time",
        "updated_at": "time",
    },
    indexes=(("user_id",),),
    global_indexes=("updated_at",),
    opaque=("result", "undo"),
    internal=frozenset({"undo", "undoing"}),
)
"""Work that somebody asked for, in their tenant: its progress, its outcome, and what an undo needs."""


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
