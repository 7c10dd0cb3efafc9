"""Tasks and checkpoints as they are stored, and as requests and responses show them."""

from collections.abc import Mapping
from typing import Annotated, Literal, cast

from pydantic import Field, GetPydanticSchema, JsonValue, StringConstraints, WithJsonSchema
from typing_extensions import TypeAliasType, TypedDict

from app.core.schemas import (
    CLEARS_LIST,
    CLEARS_OBJECT,
    MAX_SEQ,
    WHOLE,
    Count,
    Flag,
    Identifier,
    NotNull,
    Object,
    Schema,
    Text,
    Timestamp,
    example,
    shown,
)
from app.storage.record_filters import fields_of
from app.storage.schema import Collection, OwnedRecord, Unique

CheckpointReason = TypeAliasType("CheckpointReason", Literal["asked", "steps", "before_restore", "restore"])
NewTaskStatus = TypeAliasType("NewTaskStatus", Literal["pending", "in_progress"])
TaskStatus = TypeAliasType("TaskStatus", Literal["pending", "in_progress", "completed", "failed", "cancelled"])
StepStatus = TypeAliasType("StepStatus", Literal["pending", "in_progress", "completed", "failed", "skipped"])


@shown
class Step(TypedDict):
    step: int  # as the caller counts
    action: str
    params: Object
    status: StepStatus
    result: JsonValue


@shown
class Note(TypedDict):
    id: str
    content: str
    priority: float
    tokens: Count


@shown
class Evidence(TypedDict):
    source: str
    content: str
    tokens: Annotated[Count, Field(description="Of source and content.")]


class TaskState(TypedDict, total=False):
    """The parts of a task that a checkpoint stores and a restore sets back (`STATE`)."""

    plan: list[Step]
    context: Object
    scratchpad: list[Note]
    evidence: list[Evidence]
    open_questions: list[str]
    status: TaskStatus


@shown
class Task(TypedDict, total=False):
    task_id: str
    agent_id: Annotated[str | None, WithJsonSchema({"type": "string"})]  # every task has one; other records may not
    user_id: str | None
    session_id: str | None
    goal: str
    status: TaskStatus
    plan: list[Step]
    context: Object
    scratchpad: list[Note]
    evidence: list[Evidence]
    open_questions: list[str]
    max_tokens: int
    checkpoint_every: int
    metadata: Object
    due_at: Annotated[str | None, Field(description="When it is to be done.")]
    surface_at: Annotated[str | None, Field(description="Before then no prompt shows that it is due.")]
    expires_at: str | None
    version: int
    created_at: str
    updated_at: str


class TaskRecord(Task, OwnedRecord, total=False):
    """A document of the collection `task_states`."""

    kept_after_end: bool
    """True if the service, not the caller, set `expires_at` because the task ended."""


@shown
class Checkpoint(TypedDict, total=False):
    task_id: str
    seq: int
    label: str | None
    reason: CheckpointReason
    restored_seq: int | None
    state: Annotated[TaskState, GetPydanticSchema(lambda _, handler: handler(Object))]  # to callers any object
    created_at: str


class CheckpointRecord(Checkpoint, OwnedRecord, total=False):
    """A document of the collection `checkpoints`."""

    checkpoint_id: str


INTERNAL = frozenset({"kept_after_end"})
TASKS: Collection[TaskRecord] = Collection(
    name="task_states",
    kind="task",
    counted=True,
    id_field="task_id",
    fields={
        "agent_id": "text",
        "user_id": "text",
        "session_id": "text",
        "status": "text",
        "due_at": "time",
        "surface_at": "time",
        "expires_at": "time",
        "created_at": "time",
    },
    indexes=(("agent_id", "user_id"), ("user_id",), ("session_id",)),
    global_indexes=("expires_at",),
    opaque=("metadata", "context", "plan"),
    internal=INTERNAL,
)
TASK_FIELDS = fields_of(TASKS, Task, "session_id", "status", "due_at", "expires_at", "created_at", run_id="session_id")
CHECKPOINTS: Collection[CheckpointRecord] = Collection(
    name="checkpoints",
    kind="checkpoint",
    counted=True,
    id_field="checkpoint_id",
    fields={"task_id": "text", "agent_id": "text", "user_id": "text", "seq": "number"},
    order="seq",
    unique=(Unique("seq", ("task_id", "seq")),),
    indexes=(("task_id",), ("user_id",)),
    opaque=("state",),
    audited=False,
)

STATE = ("plan", "context", "scratchpad", "evidence", "open_questions", "status")
"""The parts of a task that a checkpoint stores and a restore sets back."""


def counter(task_id: str) -> str:
    """Returns the name of the counter that numbers a task's checkpoints."""
    return f"checkpoints:{task_id}"


MaxTokens = Annotated[
    int,
    Field(
        strict=True,
        ge=1,
        le=1_000_000,
        description="Of the scratchpad, and of the evidence as much again, in o200k tokens.",
    ),
    WHOLE,
]
Every = Annotated[
    int, Field(strict=True, ge=0, le=1000, description="A checkpoint after each so many completed steps."), WHOLE
]
Priority = Annotated[float, Field(strict=True, ge=-1e9, le=1e9, description="The lowest goes first.")]


Questions = Annotated[list[Text], Field(description="What has to be found out for the task.")]


class StepIn(Schema):
    action: Text
    step: Annotated[int, Field(strict=True), WHOLE] | None = Field(
        None, description="Its number, as you count; default: its place from 1."
    )
    params: Object = {}
    status: StepStatus = "pending"
    result: JsonValue = None


class StepPatch(Schema):
    model_config = example({"status": "completed", "result": "two stores"})

    status: Annotated[StepStatus | None, NotNull] = None
    result: JsonValue = None


class Plan(Schema):
    model_config = example({"plan": [{"action": "search", "params": {"topic": "recall"}}]})

    plan: list[StepIn]


class TaskCreate(Schema):
    model_config = example(
        {
            "agent_id": "research",
            "user_id": "ada",
            "goal": "Compare vector stores",
            "plan": [{"action": "search"}],
        }
    )

    task_id: Identifier | None = None
    agent_id: Identifier
    user_id: Identifier | None = None
    session_id: Identifier | None = None
    goal: Text
    status: NewTaskStatus = "pending"
    plan: list[StepIn] = []
    context: Object = {}
    open_questions: Questions = []
    max_tokens: MaxTokens = 8000
    checkpoint_every: Every = 0
    metadata: Object = {}
    due_at: Timestamp | None = Field(None, description="When it is to be done.")
    surface_at: Timestamp | None = Field(None, description="Before then no prompt shows that it is due.")
    expires_at: Timestamp | None = Field(None, description="Default: 30 days after the task has ended.")


class TaskPatch(Schema):
    model_config = example({"status": "in_progress", "goal": "Compare vector stores"})

    goal: Annotated[Text | None, NotNull] = None
    status: Annotated[TaskStatus | None, NotNull] = None
    session_id: Identifier | None = None
    open_questions: Annotated[Questions | None, CLEARS_LIST] = Field(None, description="Replaces the list.")
    max_tokens: Annotated[MaxTokens | None, NotNull] = None
    checkpoint_every: Annotated[Every | None, NotNull] = None
    metadata: Annotated[Object | None, CLEARS_OBJECT] = None
    due_at: Timestamp | None = None
    surface_at: Timestamp | None = Field(None, description="To snooze it, set it later.")
    expires_at: Timestamp | None = None


class NoteIn(Schema):
    model_config = example({"content": "Recall matters most", "priority": 2.0})

    content: Text
    priority: Priority = 0.0


class EvidenceIn(Schema):
    model_config = example({"source": "paper", "content": "0.83 at ten"})

    source: Text
    content: Text


@shown
class TaskPatched(Task):
    operation_id: Annotated[
        str | None,
        Field(
            description="The operation that learns from the task's session; null if this change starts none. It starts "
            "where a task with a session completes or fails and a language model is configured."
        ),
    ]


@shown
class EvidenceAdded(Task):
    evicted: Annotated[
        list[Evidence],
        Field(
            description="Pieces that left for good: past `max_tokens` the oldest, and one that is larger than that "
            "itself."
        ),
    ]


@shown
class Jotted(TypedDict):
    note: Annotated[Note | None, Field(description="Null where it was evicted itself.")]
    evicted: list[Note]
    scratchpad: list[Note]


@shown
class WorkingMemory(TypedDict):
    text: str
    tokens: Annotated[Count, Field(description="o200k tokens of `text`.")]


class CheckpointIn(Schema):
    model_config = example({"label": "halfway"})

    label: Annotated[str, StringConstraints(max_length=256)] | None = None


class Restore(Schema):
    model_config = example({"seq": -1})

    seq: Annotated[int, Field(strict=True, ge=-1, le=MAX_SEQ, description="-1: the latest."), WHOLE] = -1
    reopen: Flag = Field(False, description="Needed where the task is completed or cancelled.")


def render(task: TaskRecord) -> Task:
    return cast(Task, TASKS.public(task))


def render_checkpoint(checkpoint: CheckpointRecord) -> Checkpoint:
    fields: Mapping[str, object] = checkpoint
    return cast(Checkpoint, {name: fields[name] for name in Checkpoint.__annotations__})
