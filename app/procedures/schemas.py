"""Procedures as they are stored, and as requests and responses show them."""

from typing import Annotated, Literal, NotRequired, cast

from pydantic import BaseModel, Field, StringConstraints
from typing_extensions import TypeAliasType, TypedDict

from app.core import schemas as core
from app.memories.schemas import EmbeddingInfo, HistoryRecord, Source, Tags, Trust, history
from app.memories.search import Scores
from app.retrieval.retriever import HowSearched
from app.storage.schema import Collection, Eq, OwnedRecord, SearchSchema, Unique

INTERNAL = frozenset({"tenant_id", "name_key", "content_hash", "dropped_trials"})
"""Fields that never leave the service. `dropped_trials` are the revised steps that were tried in vain."""


ProcedureVariant = TypeAliasType("ProcedureVariant", Literal["current", "revised"])
ProcedureStatus = TypeAliasType("ProcedureStatus", Literal["active", "archived"])


@core.shown
class ProcedureOutcome(TypedDict):
    success: bool
    note: str | None
    action_id: str | None
    task_id: str | None
    at: str
    version: Annotated[int, Field(description="Of the procedure that was used.")]
    variant: Annotated[ProcedureVariant, Field(default="current", description="The steps that were used.")]


@core.shown
class TrialCounts(TypedDict):
    success_count: core.Count
    failure_count: core.Count


@core.shown
class ProcedureTrial(TypedDict):
    """Revised steps that are tried beside the current ones. Both are served in turn."""

    trial_id: str
    steps: list[str]
    current: Annotated[TrialCounts, Field(description="Outcomes of the current steps since the trial began.")]
    revised: TrialCounts
    action_ids: Annotated[list[str], Field(description="The episodes that the model was shown.")]
    model: str
    prompt_version: str
    started_at: str


@core.shown
class Procedure(TypedDict, total=False):
    procedure_id: str
    agent_id: str | None
    user_id: str | None
    name: str
    trigger: str
    preconditions: list[str]
    steps: list[str]
    notes: list[str]
    success_count: core.Count
    failure_count: core.Count
    success_rate: Annotated[float, Field(description="(successes + 1) / (outcomes + 2): 0.5 where nothing is known.")]
    recent_outcomes: Annotated[list[ProcedureOutcome], Field(description="The last 20, oldest first.")]
    last_used: Annotated[str | None, Field(description="Time of the last outcome.")]
    status: ProcedureStatus
    trust: float
    tags: list[str]
    metadata: core.Object
    source: Source
    trial: Annotated[ProcedureTrial | None, Field(default=None)]
    embedding: EmbeddingInfo
    version: Annotated[int, Field(description="Outcomes leave it alone.")]
    created_at: str
    updated_at: str


class ProcedureRecord(Procedure, OwnedRecord, total=False):
    """A document of the collection `procedures`. `PROCEDURES` explains its internal fields."""

    name_key: str
    dropped_trials: list[list[str]]
    content_hash: int


def situation(procedure: ProcedureRecord) -> str:
    """Returns the text by which a procedure is found: when to use it, not how it is done."""
    return "\n".join([procedure["name"], procedure["trigger"], *procedure["preconditions"]])


PROCEDURES: Collection[ProcedureRecord] = Collection(
    name="procedures",
    kind="procedure",
    counted=True,
    id_field="procedure_id",
    fields={
        "agent_id": "text",
        "user_id": "text",
        "name_key": "text",
        "status": "text",
        "tags": "list",
        "created_at": "time",
    },
    unique=(Unique("name", ("agent_id", "user_id", "name_key"), Eq("status", "active")),),
    indexes=(("agent_id", "user_id"), ("agent_id",), ("user_id",), ("name_key",)),
    opaque=("metadata",),
    searched=SearchSchema(
        facets=("status", "tags"),
        ranges=("success_rate", "trust", "created_at"),
        time=("created_at",),
        anchor=("created_at",),
        text=situation,
    ),
    internal=INTERNAL,
)
"""`name_key` is the name without differences of case, width and white space. `success_rate` is computed from the counts
at each outcome, so that a search can filter by it. `content_hash` is that of the id, so that no procedure hides another
in a search."""

PROCEDURE_HISTORY: Collection[HistoryRecord[ProcedureRecord]] = history("procedure_history", INTERNAL)


ProcedureListStatus = TypeAliasType("ProcedureListStatus", Literal["active", "archived", "any"])
ProcedureWarningCode = TypeAliasType("ProcedureWarningCode", Literal["failing_lately", "stale"])
MAX_NOTES = 50
ProcedureName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=200, pattern=r"\S"),
    Field(description="One of its name in a scope, whatever its case and spaces."),
]
ProcedureLine = TypeAliasType(
    "ProcedureLine", Annotated[str, StringConstraints(min_length=1, max_length=4000, pattern=r"\S")]
)
ProcedureNote = TypeAliasType(
    "ProcedureNote", Annotated[str, StringConstraints(min_length=1, max_length=2000, pattern=r"\S")]
)
Steps = Annotated[list[ProcedureLine], Field(min_length=1, max_length=100)]
Preconditions = Annotated[list[ProcedureLine], Field(max_length=50)]
Notes = Annotated[
    list[ProcedureNote], Field(max_length=MAX_NOTES, description="What was learned on the way, oldest first.")
]


class ProcedureCreate(core.Owned):
    model_config = core.example(
        {
            "agent_id": "support",
            "name": "Refund a lost parcel",
            "trigger": "A customer says that a parcel never arrived",
            "preconditions": ["The order was paid"],
            "steps": ["Look up the tracking number", "Ask the carrier", "Refund the order"],
        }
    )

    name: ProcedureName
    trigger: ProcedureLine = Field(description="When to use it.")
    steps: Steps = Field(description="What to do, in order.")
    preconditions: Preconditions = Field([], description="What must be so before.")
    notes: Notes = []
    agent_id: core.Identifier | None = Field(None, description="Whose it is; null: every agent of the user may use it.")
    user_id: core.Identifier | None = Field(None, description="For whom; null: the agent uses it for all its users.")
    trust: Trust = 1.0
    tags: Tags = []
    metadata: core.Object = {}


class ProcedurePatch(core.Schema):
    """What is absent stays; a list replaces the one that is there."""

    model_config = core.example({"steps": ["Ask the carrier", "Refund the order"], "tags": ["money"]})

    name: Annotated[ProcedureName | None, core.NotNull] = None
    trigger: Annotated[ProcedureLine | None, core.NotNull] = None
    steps: Annotated[Steps | None, core.NotNull] = None
    preconditions: Annotated[Preconditions | None, core.CLEARS_LIST] = None
    notes: Annotated[Notes | None, core.CLEARS_LIST] = None
    trust: Annotated[Trust | None, core.NotNull] = None
    tags: Annotated[Tags | None, core.CLEARS_LIST] = None
    metadata: Annotated[core.Object | None, core.CLEARS_OBJECT] = None
    status: Annotated[ProcedureStatus | None, core.NotNull] = Field(
        None, description="Archived ones are found only if asked for."
    )


class OutcomeIn(core.Schema):
    model_config = core.example({"success": False, "note": "The carrier's site was down", "task_id": "task-7"})

    success: core.Flag
    note: ProcedureNote | None = Field(None, description="What is worth knowing next time: it joins the notes.")
    action_id: core.Identifier | None = Field(None, description="The action that came of it.")
    task_id: core.Identifier | None = None
    variant: ProcedureVariant | None = Field(
        None, description="During a trial: the steps that were used, as the search said; null: those it serves now."
    )


@core.shown
class OutcomeRecorded(TypedDict):
    procedure: Procedure
    dropped_notes: Annotated[list[str], Field(description="Past 50 notes the oldest leave.")]


@core.shown
class ProcedureVersion(TypedDict):
    version: int
    changed_at: Annotated[str, Field(description="When this version was replaced.")]
    changed_by: Annotated[str | None, Field(description="Id of the API key that replaced it.")]
    record: Annotated[core.Json, Field(description="The procedure as it was.")]


class ProcedureSearch(core.Owned):
    model_config = core.example({"situation": "parcel never arrived", "agent_id": "support", "min_success_rate": 0.5})

    situation: core.Text = Field(description="What is to be done, or what has come up.")
    include_shared: core.Flag = True
    tags: Annotated[Tags, Field(min_length=1)] | None = Field(None, description="Has at least one of these.")
    min_success_rate: core.Share | None = Field(None, description="Least `success_rate`; untried ones have 0.5.")
    min_trust: core.Share | None = None
    status: ProcedureStatus = "active"
    now: core.Timestamp | None = Field(None, description="The time that staleness is reckoned at.")
    top_k: core.TopK = 10
    explain: core.Flag = False


@core.shown
class RecentRecord(TypedDict):
    """Of the last outcomes, the latest counting most."""

    rate: Annotated[
        float,
        Field(description="As `success_rate`, with each outcome counting half as much three outcomes later."),
    ]
    failed_in_a_row: core.Count


@core.shown
class ProcedureWarning(TypedDict):
    code: ProcedureWarningCode
    detail: str


@core.shown
class FoundProcedure(TypedDict):
    procedure: Procedure
    variant: Annotated[
        ProcedureVariant,
        Field(default="current", description="`revised`: the steps are those of the trial. Name it with the outcome."),
    ]
    score: Annotated[
        float,
        Field(
            description="The probability that it is the one meant (`mode_used` `hybrid`: 0 to 1; `text`: BM25), times "
            "how well it works, times how fresh it is."
        ),
    ]
    recent: RecentRecord
    track_record: Annotated[str, Field(description="In words, as a prompt would say it.")]
    warnings: Annotated[
        list[ProcedureWarning], Field(description="Failing lately, or unused for long: both rank it down.")
    ]
    scores: Annotated[
        NotRequired[Scores | None], Field(default=None, description="With `explain`: what the score is made of.")
    ]


@core.shown
class ProcedureSearchResult(HowSearched):
    items: list[FoundProcedure]


class ProcedureQuery(BaseModel):
    """The filters of a list of procedures in the query string."""

    agent_id: core.Identifier | None = None
    user_id: core.Identifier | None = None
    name: str | None = Field(None, min_length=1, max_length=200)
    tag: str | None = Field(None, min_length=1, max_length=128)
    status: ProcedureListStatus = "active"
    since: core.Timestamp | None = Field(None, description="Created at or after.")
    until: core.Timestamp | None = Field(None, description="Created before.")


def render(procedure: ProcedureRecord) -> Procedure:
    """Renders a procedure without internal fields."""
    return cast(Procedure, PROCEDURES.public(procedure))
