"""Jobs and operations, as stored and as the API returns them."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field
from typing_extensions import TypeAliasType, TypedDict

from app.core.schemas import Count, shown
from app.storage.schema import Absent, BaseRecord, Collection, Not, OwnedRecord, Unique

POST_CONVERSATION = "post_conversation"
SUMMARIZE = "summarize"
EXTRACT = "extract"
REDERIVE = "rederive"
CONSOLIDATION = "consolidation"
REFLECTION = "reflection"
REVIEW_PROCEDURE = "review_procedure"
RETENTION = "retention"
EMBED_PENDING = "embed_pending"
MERGE_FACT = "merge_fact"
DECAY = "decay"
EXPIRY = "expiry"
FORGET = "forget"
UNDO = "undo"
ERASE_USER = "erase_user"
ALIAS = "alias"
RESOLVE = "resolve"
"""Operations without a job: the request itself changes the aliases, and settles the dispute."""

Lane = str | None
"""The lane as a job stores it."""

LANGUAGE_MODEL: Lane = "language_model"
EMBEDDING_MODEL: Lane = "embedding_model"
ORDINARY: Lane = None
"""Jobs that wait for no model."""
ORDINARY_LANE = "ordinary"
"""The name of that lane in metrics and traces."""
LANES: tuple[Lane, ...] = (LANGUAGE_MODEL, EMBEDDING_MODEL, ORDINARY)

_LANE_OF: Mapping[str, Lane] = {
    POST_CONVERSATION: LANGUAGE_MODEL,
    SUMMARIZE: LANGUAGE_MODEL,
    EXTRACT: LANGUAGE_MODEL,
    MERGE_FACT: LANGUAGE_MODEL,
    CONSOLIDATION: LANGUAGE_MODEL,
    REFLECTION: LANGUAGE_MODEL,
    REVIEW_PROCEDURE: LANGUAGE_MODEL,
    RETENTION: LANGUAGE_MODEL,  # summarizes days
    REDERIVE: ORDINARY,
    EMBED_PENDING: EMBEDDING_MODEL,
    DECAY: ORDINARY,
    EXPIRY: ORDINARY,
    FORGET: ORDINARY,
    UNDO: ORDINARY,
    ERASE_USER: ORDINARY,
}


FREES_SPACE = frozenset({ERASE_USER, EXPIRY})
"""Kinds of jobs that delete. They run on a full disk, too."""


def lane_of(kind: str) -> Lane:
    """Returns the lane of a kind of job."""
    return _LANE_OF.get(kind, ORDINARY)


Payload: TypeAlias = dict[str, Any]
"""The arguments of a job, as JSON. Each kind has its own."""


class JobRecord(BaseRecord, total=False):
    """A document of the collection `jobs`. `tenant` owns the data that the job works on."""

    job_id: str
    kind: str
    lane: Lane
    tenant: str
    payload: Payload
    operation_id: str | None
    slot: str | None
    status: Literal["queued", "running", "failed"]
    run_at: str
    leased_until: str | None
    token: int
    attempts: int
    error: str | None


JOBS: Collection[JobRecord] = Collection(
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
"""The queue, under the tenant `SYSTEM`. A finished job is deleted; a job that failed for good keeps its error for a
while. Only one job of a `slot` waits or runs at a time, so scheduled jobs never pile up."""


@shown
class JobInfo(TypedDict):
    name: str
    schedule: str
    last_run: str | None
    next_run: str | None
    outcome: str | None


class ScheduleRecord(BaseRecord, total=False):
    """A document of the collection `schedules`. `looked_at` is the time from which the next run looks for news."""

    name: str
    next_run: str
    last_run: str | None
    outcome: str | None
    looked_at: str


SCHEDULES: Collection[ScheduleRecord] = Collection(name="schedules", id_field="name", fields={})
"""The schedules, under the tenant `SYSTEM`."""
OperationStatus = TypeAliasType(
    "OperationStatus", Literal["queued", "running", "succeeded", "partial", "failed", "undone"]
)
OperationResult = TypeAliasType("OperationResult", dict[str, Any])


@shown
class SkippedRecord(TypedDict):
    kind: str
    id: str
    error: Annotated[str, Field(description="The class of the error.")]


@shown
class SkippedRecords(TypedDict):
    """Records that a job left as they are, because their content cannot be handled. Its operation is then partial."""

    count: Count
    items: Annotated[list[SkippedRecord], Field(description="The first 100.")]


@shown
class Progress(TypedDict):
    done: Count
    total: Count | None


@shown
class Operation(TypedDict, total=False):
    operation_id: str
    agent_id: str | None
    user_id: str | None
    session_id: Annotated[str | None, Field(default=None, description="The session that it learns from or summarizes.")]
    kind: str
    status: OperationStatus
    progress: Progress
    result: OperationResult | None
    error: str | None
    can_undo: bool
    created_at: str
    updated_at: str


class OperationUndo(TypedDict, total=False):
    """What an undo of an operation needs. `by` is what the records that it changed are marked with; an operation on
    aliases has their earlier states instead."""

    until: str
    by: str
    aliases: Sequence[Mapping[str, Any]]


class OperationRecord(Operation, OwnedRecord, total=False):
    """A document of the collection `operations`. `undoing` is the operation that undoes it."""

    undo: OperationUndo | None
    undoing: str | None


OPERATIONS: Collection[OperationRecord] = Collection(
    name="operations",
    id_field="operation_id",
    fields={
        "agent_id": "text",
        "user_id": "text",
        "session_id": "text",
        "kind": "text",
        "status": "text",
        "created_at": "time",
        "updated_at": "time",
    },
    indexes=(("user_id",), ("session_id",)),
    global_indexes=("updated_at",),
    opaque=("result", "undo"),
    internal=frozenset({"undo", "undoing"}),
)
"""Operations that callers asked for, in their tenant: progress, result, and the data that an undo needs."""
