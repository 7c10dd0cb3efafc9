"""Tasks and checkpoints as they are stored, and as requests and responses show them."""

from collections.abc import Mapping
from typing import Annotated, Literal, cast

from pydantic import Field, GetPydanticSchema, JsonValue, StringConstraints, WithJsonSchema
from typing_extensions import TypeAliasType, TypedDict

from app.core import schemas as core
from app.storage.record_filters import fields_of
from app.storage.schema import Collection, OwnedRecord, Unique

CheckpointReason = TypeAliasType("CheckpointReason", Literal["asked", "steps", "before_restore", "restore"])
NewTaskStatus = TypeAliasType("NewTaskStatus", Literal["pending", "in_progress"])
TaskStatus = TypeAliasType("TaskStatus", Literal["pending", "in_progress", "completed", "failed", "cancelled"])
StepStatus = TypeAliasType("StepStatus", Literal["pending", "in_progress", "completed", "failed", "skipped"])


@core.shown
class Step(TypedDict):
    step: int  # as the caller counts
    action: str
    params: core.Object
    status: StepStatus
    result: JsonValue


@core.shown
class Note(TypedDict):
    id: str
    content: str
    priority: float
    tokens: core.Count


@core.shown
class Evidence(TypedDict):
    source: str
    content: str
    tokens: Annotated[core.Count, Field(description="Of source and content.")]


class TaskState(TypedDict, total=False):
    """The parts of a task that a checkpoint stores and a restore sets back (`STATE`)."""

    plan: list[Step]
    context: core.Object
    scratchpad: list[Note]
    evidence: list[Evidence]
    open_questions: list[str]
    status: TaskStatus


@core.shown
class Task(TypedDict, total=False):
    task_id: str
    agent_id: Annotated[str | None, WithJsonSchema({"type": "string"})]  # every task has one; other records may not
    user_id: str | None
    session_id: str | None
    goal: str
    status: TaskStatus
    plan: list[Step]
    context: core.Object
    scratchpad: list[Note]
    evidence: list[Evidence]
    open_questions: list[str]
    max_tokens: int
    checkpoint_every: int
    metadata: core.Object
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


@core.shown
class Checkpoint(TypedDict, total=False):
    task_id: str
    seq: int
    label: str | None
    reason: CheckpointReason
    restored_seq: int | None
    state: Annotated[TaskState, GetPydanticSchema(lambda _, handler: handler(core.Object))]  # to callers any object
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
    core.WHOLE,
]
Every = Annotated[
    int, Field(strict=True, ge=0, le=1000, description="A checkpoint after each so many completed steps."), core.WHOLE
]
Priority = Annotated[float, Field(strict=True, ge=-1e9, le=1e9, description="The lowest goes first.")]


Questions = Annotated[list[core.Text], Field(description="What has to be found out for the task.")]


class StepIn(core.Schema):
    action: core.Text
    step: Annotated[int, Field(strict=True), core.WHOLE] | None = Field(
        None, description="Its number, as you count; default: its place from 1."
    )
    params: core.Object = {}
    status: StepStatus = "pending"
    result: JsonValue = None


class StepPatch(core.Schema):
    model_config = core.example({"status": "completed", "result": "two stores"})

    status: Annotated[StepStatus | None, core.NotNull] = None
    result: JsonValue = None


class Plan(core.Schema):
    model_config = core.example({"plan": [{"action": "search", "params": {"topic": "recall"}}]})

    plan: list[StepIn]


class TaskCreate(core.Schema):
    model_config = core.example(
        {
            "agent_id": "research",
            "user_id": "ada",
            "goal": "Compare vector stores",
            "plan": [{"action": "search"}],
        }
    )

    task_id: core.Identifier | None = None
    agent_id: core.Identifier
    user_id: core.Identifier | None = None
    session_id: core.Identifier | None = None
    goal: core.Text
    status: NewTaskStatus = "pending"
    plan: list[StepIn] = []
    context: core.Object = {}
    open_questions: Questions = []
    max_tokens: MaxTokens = 8000
    checkpoint_every: Every = 0
    metadata: core.Object = {}
    due_at: core.Timestamp | None = Field(None, description="When it is to be done.")
    surface_at: core.Timestamp | None = Field(None, description="Before then no prompt shows that it is due.")
    expires_at: core.Timestamp | None = Field(None, description="Default: 30 days after the task has ended.")


class TaskPatch(core.Schema):
    model_config = core.example({"status": "in_progress", "goal": "Compare vector stores"})

    goal: Annotated[core.Text | None, core.NotNull] = None
    status: Annotated[TaskStatus | None, core.NotNull] = None
    session_id: core.Identifier | None = None
    open_questions: Annotated[Questions | None, core.CLEARS_LIST] = Field(None, description="Replaces the list.")
    max_tokens: Annotated[MaxTokens | None, core.NotNull] = None
    checkpoint_every: Annotated[Every | None, core.NotNull] = None
    metadata: Annotated[core.Object | None, core.CLEARS_OBJECT] = None
    due_at: core.Timestamp | None = None
    surface_at: core.Timestamp | None = Field(None, description="To snooze it, set it later.")
    expires_at: core.Timestamp | None = None


class NoteIn(core.Schema):
    model_config = core.example({"content": "Recall matters most", "priority": 2.0})

    content: core.Text
    priority: Priority = 0.0


class EvidenceIn(core.Schema):
    model_config = core.example({"source": "paper", "content": "0.83 at ten"})

    source: core.Text
    content: core.Text


@core.shown
class TaskPatched(Task):
    operation_id: Annotated[
        str | None,
        Field(
            description="The operation that learns from the task's session; null if this change starts none. It starts "
            "where a task with a session completes or fails and a language model is configured."
        ),
    ]


@core.shown
class EvidenceAdded(Task):
    evicted: Annotated[
        list[Evidence],
        Field(
            description="Pieces that left for good: past `max_tokens` the oldest, and one that is larger than that "
            "itself."
        ),
    ]


@core.shown
class Jotted(TypedDict):
    note: Annotated[Note | None, Field(description="Null where it was evicted itself.")]
    evicted: list[Note]
    scratchpad: list[Note]


@core.shown
class WorkingMemory(TypedDict):
    text: str
    tokens: Annotated[core.Count, Field(description="o200k tokens of `text`.")]


class CheckpointIn(core.Schema):
    model_config = core.example({"label": "halfway"})

    label: Annotated[str, StringConstraints(max_length=256)] | None = None


class Restore(core.Schema):
    model_config = core.example({"seq": -1})

    seq: Annotated[int, Field(strict=True, ge=-1, le=core.MAX_SEQ, description="-1: the latest."), core.WHOLE] = -1
    reopen: core.Flag = Field(False, description="Needed where the task is completed or cancelled.")


def render(task: TaskRecord) -> Task:
    return cast(Task, TASKS.public(task))


def render_checkpoint(checkpoint: CheckpointRecord) -> Checkpoint:
    fields: Mapping[str, object] = checkpoint
    return cast(Checkpoint, {name: fields[name] for name in Checkpoint.__annotations__})
