"""Action logs as they are stored, and as requests and responses show them."""

from typing import Annotated, Literal, cast

from pydantic import Field, JsonValue, StringConstraints, WithJsonSchema, with_config
from typing_extensions import TypeAliasType, TypedDict

from app.core import schemas as core
from app.memories.schemas import Source, SourceIn
from app.retrieval.retriever import HowSearched
from app.storage.record_filters import fields_of
from app.storage.schema import Collection, OwnedRecord, SearchSchema, Unique
from app.storage.text import normalise_content

Outcome = TypeAliasType("Outcome", Literal["success", "failure", "partial"])
ActionActor = TypeAliasType("ActionActor", Literal["user", "agent", "system"])


ActionWord = TypeAliasType("ActionWord", Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"\S")])
Words = Annotated[list[ActionWord], Field(max_length=64)]


@with_config(extra="allow", allow_inf_nan=False)
class Call(TypedDict, total=False):
    """What was called: the fields below, and any others, which are kept as they are."""

    tool: Annotated[ActionWord | None, Field(default=None)]
    input: Annotated[JsonValue, Field(default=None)]
    output: Annotated[JsonValue, Field(default=None)]
    duration_ms: Annotated[Annotated[float, Field(strict=True, ge=0)] | None, Field(default=None)]


@with_config(
    extra="forbid", allow_inf_nan=False, json_schema_extra={"examples": [{"user_rating": 5, "was_helpful": True}]}
)
class Feedback(TypedDict, total=False):
    user_rating: Annotated[Annotated[int, Field(strict=True, ge=1, le=5), core.WHOLE] | None, core.UNSET]
    was_helpful: Annotated[core.Flag | None, core.UNSET]
    correction: Annotated[str | None, core.UNSET]


@core.shown
class Action(TypedDict, total=False):
    action_id: str
    agent_id: Annotated[str | None, WithJsonSchema({"type": "string"})]  # every action has one; other records may not
    user_id: str | None
    session_id: str | None
    task_id: str | None
    event_type: str
    action_type: str
    actor: str
    action: Call
    content: str
    context: core.Object
    outcome: Outcome | None
    entities: list[str]
    tags: list[str]
    feedback: Feedback
    timestamp: str
    metadata: core.Object
    source: Source
    rolled_up_into: Annotated[
        str | None,
        Field(
            description="Of an action that was purged: the memory that stands for it. `content`, `metadata`, `source` "
            "and the times are then that memory's, and the action's own fields are empty."
        ),
    ]
    version: int
    created_at: str
    updated_at: str


class ActionRecord(Action, OwnedRecord, total=False):
    """A document of the collection `action_logs`. `INDEXED` and `INTERNAL` explain its internal fields."""

    content_hash: int
    entity_keys: list[str]
    tag_keys: list[str]
    mentions: list[str]
    tool: str | None
    duration_ms: float | None
    consolidated_at: str | None


class DayCell(TypedDict):
    """The figures of the actions of a day with the same type and tool (`actions/roll_ups.py`)."""

    action_type: str
    tool: str | None
    outcomes: dict[str, int]
    duration_sum: float
    durations: dict[str, int]
    """The number of durations in each bucket, by its name."""
    ratings: dict[str, int]


class ActionDayRecord(OwnedRecord, total=False):
    """A document of the collection `action_days`."""

    day_id: str
    day: str
    cells: list[DayCell]


_LISTS = ("entities", "tags", "entity_keys", "tag_keys", "mentions")
INDEXED = frozenset({"entity_keys", "tag_keys", "mentions", "tool", "duration_ms"})
"""What is made of the other fields, so that filters and figures read an index. For filters by entity and tag: entities
and tags without regard to case, width and spaces, and the words of the content with their neighbours. For figures: tool
and duration out of `action`."""
INTERNAL = frozenset({"tenant_id", "content_hash", "consolidated_at"}) | INDEXED
"""Fields that never leave the service. `consolidated_at` is the time when a job learned from the
action; unset before."""

ACTIONS: Collection[ActionRecord] = Collection(
    name="action_logs",
    kind="action",
    counted=True,
    id_field="action_id",
    fields={
        "agent_id": "text",
        "user_id": "text",
        "session_id": "text",
        "task_id": "text",
        "event_type": "text",
        "action_type": "text",
        "outcome": "text",
        "tool": "text",
        "duration_ms": "number",
        "feedback.user_rating": "number",
        "entities": "list",
        "tags": "list",
        "entity_keys": "list",
        "tag_keys": "list",
        "mentions": "list",
        "timestamp": "time",
        "created_at": "time",
        "consolidated_at": "time",
    },
    order="timestamp",
    indexes=(
        ("agent_id", "user_id"),
        ("agent_id", "user_id", "consolidated_at"),
        ("agent_id", "action_type"),
        ("agent_id",),
        ("user_id",),
        ("session_id",),
        ("task_id",),
    ),
    covered=("created_at",),
    global_indexes=("timestamp",),
    opaque=("action", "context", "metadata"),
    searched=SearchSchema(
        facets=("action_type", "event_type", "outcome", *_LISTS, "session_id", "task_id"),
        ranges=("timestamp",),
        time=("timestamp",),
        anchor=("timestamp",),
        placed="source.speaker",
    ),
    internal=INTERNAL,
)


ACTION_FIELDS = fields_of(
    ACTIONS,
    Action,
    *("session_id", "task_id", "event_type", "action_type", "outcome", "timestamp", "created_at"),
    run_id="session_id",
    tool="tool",
    duration_ms="duration_ms",
    keys={"entities": ("entity_keys", normalise_content), "tags": ("tag_keys", normalise_content)},
)
ACTION_DAYS: Collection[ActionDayRecord] = Collection(
    name="action_days",
    id_field="day_id",
    fields={"agent_id": "text", "user_id": "text", "day": "time", "created_at": "time"},
    order="day",
    unique=(Unique("day", ("agent_id", "user_id", "day")),),
    indexes=(("agent_id", "user_id"), ("agent_id",), ("user_id",)),
    opaque=("cells",),
)
"""The figures of each agent, user and UTC day whose actions were rolled up. `cells` are those of `actions/roll_ups.py`.
The summary of the day, a memory, may be changed or deleted; its figures stay."""

GroupBy = TypeAliasType("GroupBy", Literal["action_type", "tool", "day"])


class ActionCreate(core.Schema):
    model_config = core.example(
        {
            "agent_id": "support",
            "action_type": "refund",
            "outcome": "success",
            "content": "Refunded order 17 after the parcel was lost",
            "action": {"tool": "payments.refund", "input": {"order": 17}, "duration_ms": 150},
            "entities": ["order-17"],
        }
    )

    agent_id: core.Identifier
    user_id: core.Identifier | None = None
    session_id: core.Identifier | None = None
    task_id: core.Identifier | None = None
    event_type: ActionWord = "tool_call"
    action_type: ActionWord
    actor: ActionActor = "agent"
    action: Call = Field({}, validate_default=True)
    content: core.Text | None = Field(None, description="What happened, one line; made from the action when absent.")
    context: core.Object = {}
    outcome: Outcome | None = None
    entities: Words = []
    tags: Words = []
    feedback: Feedback = {}
    timestamp: core.Timestamp | None = Field(None, description="Default: now.")
    metadata: core.Object = {}
    source: SourceIn | None = Field(
        None, description="Where the log comes from; its session is `session_id`, if you name no other."
    )


class ActionBatch(core.Schema):
    model_config = core.example({"items": [{"agent_id": "support", "action_type": "refund", "outcome": "success"}]})

    items: Annotated[list[ActionCreate], Field(min_length=1, description="At most 500; all are stored or none.")]


@core.shown
class ActionBatchCreated(TypedDict):
    items: list[Action]


class ActionSearch(core.FilteredSearch):
    record_fields = ACTION_FIELDS
    model_config = core.example({"query": "parcel lost", "agent_id": "support", "only_successful": True})

    query: core.Text
    include_shared: core.Flag = True
    action_type: ActionWord | None = None
    event_type: ActionWord | None = None
    outcome: Outcome | None = None
    only_successful: core.Flag = False
    entity: ActionWord | None = Field(
        None, description="Among the entities or the tags, or in the content as whole words; in any case."
    )
    tag: ActionWord | None = None
    session_id: core.Identifier | None = None
    task_id: core.Identifier | None = None
    since: core.Timestamp | None = None
    until: core.Timestamp | None = None
    now: core.Timestamp | None = Field(None, description="The time of the search: what happened later is hidden.")
    top_k: core.TopK = 10


@core.shown
class FoundAction(TypedDict):
    action: Action
    score: Annotated[
        float,
        Field(
            description="The probability, 0 to 1, that it helps to answer the query; BM25 where `mode_used` is `text`."
        ),
    ]


@core.shown
class ActionSearchResult(HowSearched):
    items: list[FoundAction]


@core.shown
class Rate(TypedDict):
    value: float
    low: Annotated[float, Field(description="Lower end of the 95 % Wilson interval.")]
    high: float


@core.shown
class Figures(TypedDict):
    total_actions: core.Count
    counts: Annotated[dict[str, int], Field(description="By outcome; `unknown` where none was given.")]
    success_rate: Annotated[Rate | None, Field(description="Of the actions with an outcome; null where there is none.")]
    failure_rate: Rate | None
    partial_rate: Rate | None
    mean_duration_ms: float | None
    p95_duration_ms: float | None
    mean_rating: float | None


@core.shown
class Group(Figures):
    key: str


@core.shown
class Stats(Figures):
    window_days: int
    groups: Annotated[
        list[Group] | None, Field(default=None, description="With `group_by`, the largest first; days in order.")
    ]


class ActionFilters(core.RecordFilters, total=False):
    """What a list of actions is narrowed by: fields that equal the values, and bounds of the time. None: by nothing."""

    session_id: str | None
    task_id: str | None
    event_type: str | None
    action_type: str | None
    outcome: Outcome | None
    entity: str | None
    tag: str | None
    since: str | None
    until: str | None


def render(action: ActionRecord) -> Action:
    return cast(Action, {"rolled_up_into": None, **ACTIONS.public(action)})
