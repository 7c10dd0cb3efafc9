"""Schemas of long-term memory."""

from math import floor
from typing import Annotated, Any, Literal, Self, cast

from pydantic import Field, StringConstraints, model_validator
from typing_extensions import TypeAliasType

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
    Owned,
    Schema,
    Share,
    Timestamp,
    example,
)
from app.memories.models import (
    MAX_TAGS,
    MEMORIES,
    EmbeddingStatus,
    FeedbackReason,
    MemoryRecord,
    MemoryStatus,
    MemoryType,
    ShownMemory,
    Source,
)

SettableStatus = TypeAliasType("SettableStatus", Literal["active", "archived"])
OnSimilar = TypeAliasType("OnSimilar", Literal["keep", "supersede"])
ImportOrigin = TypeAliasType("ImportOrigin", Literal["import"])
Predecessors = TypeAliasType("Predecessors", Literal["restore", "delete"])
MemoryText = Annotated[
    str, StringConstraints(min_length=1, pattern=r"\S"), Field(description="Not blank; at most 32,000 characters.")
]
Tag = TypeAliasType("Tag", Annotated[str, StringConstraints(min_length=1, max_length=128)])
Tags = Annotated[list[Tag], Field(max_length=MAX_TAGS)]
MemoryKey = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Importance = Annotated[Share, Field(description="How much it matters, 0 to 1; fades while nobody asks for it.")]
Trust = Annotated[Share, Field(description="How far it is to be believed, 0 to 1.")]


MessageSeq = Annotated[int, Field(strict=True, ge=1, le=MAX_SEQ), WHOLE]


class SourceIn(Schema):
    """Where a record comes from, as the caller says. It never changes afterwards, and nothing in it is looked up."""

    session_id: Identifier | None = Field(None, description="The session that it comes from.")
    message_seq: MessageSeq | None = Field(None, description="The message of that session.")
    action_ids: Annotated[list[Identifier], Field(max_length=100)] = Field(
        [], description="The actions that it comes from."
    )
    url: Annotated[str, StringConstraints(min_length=1, max_length=2048)] | None = None
    note: Annotated[str, StringConstraints(min_length=1, max_length=4096)] | None = None

    def stated(self) -> Source:
        """Returns the fields that the caller gave."""
        return cast(Source, self.model_dump(exclude_unset=True, exclude_none=True))


class _Times(Schema):
    event_at: Timestamp | None = Field(None, description="When it happened.")
    valid_from: Timestamp | None = Field(None, description="From when it is true.")
    valid_until: Timestamp | None = Field(None, description="Until when it is true, that moment excluded.")
    expires_at: Timestamp | None = Field(None, description="From when on it is forgotten.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.valid_from and self.valid_until and self.valid_from >= self.valid_until:
            raise ValueError("valid_from must lie before valid_until")
        return self


class MemoryCreate(_Times, Owned):
    model_config = example(
        {
            "agent_id": "support",
            "user_id": "user-456",
            "content": "Prefers short answers",
            "memory_type": "preference",
        }
    )
    content: MemoryText
    agent_id: Identifier | None = Field(None, description="Whose memory it is; null: every agent of the user may know.")
    user_id: Identifier | None = Field(
        None, description="Whom it is about; null: the agent knows it for all its users."
    )
    key: MemoryKey | None = Field(
        None, description="A name in its scope: remembering under it again updates the memory."
    )
    memory_type: MemoryType = "fact"
    context: str | None = Field(None, description="When it applies.")
    importance: Importance = 0.5
    trust: Trust = 1.0
    tags: Tags = []
    metadata: Object = {}
    pinned: Flag = Field(False, description="Never fades, is never forgotten by policy.")
    supersedes: list[Identifier] = Field(
        [], description="Memories of the same agent_id and user_id that this one replaces."
    )
    origin: ImportOrigin | None = Field(
        None, description="`import`: it comes from another system, and its source says so. Nothing else can be said."
    )
    source: SourceIn | None = Field(None, description="Where it comes from. It stays as first given.")
    deduplicate: Flag = Field(
        True,
        description="Answer an equal memory in place of a second one: same agent_id, user_id, type and text, and the "
        "same context, times, metadata and key. It takes the higher trust and importance, and the new tags.",
    )
    on_similar: OnSimilar = Field(
        "keep", description="Keep or supersede near-duplicates of the same agent_id and user_id; never messages."
    )


class MemoryBatch(Schema):
    model_config = example({"items": [{"user_id": "user-456", "content": "Lives in Boston", "key": "home"}]})

    items: Annotated[list[MemoryCreate], Field(min_length=1, description="At most 500; all are stored or none.")]


class MemoryPatch(_Times):
    """What is absent stays; null clears what can be empty."""

    model_config = example({"importance": 0.9, "tags": ["style"], "key": None})

    content: Annotated[MemoryText | None, NotNull] = None
    context: str | None = None
    key: MemoryKey | None = None
    memory_type: Annotated[MemoryType | None, NotNull] = None
    importance: Annotated[Importance | None, NotNull] = Field(None, description="Starts to fade anew from here.")
    trust: Annotated[Trust | None, NotNull] = None
    tags: Annotated[Tags | None, CLEARS_LIST] = None
    metadata: Annotated[Object | None, CLEARS_OBJECT] = None
    pinned: Annotated[Flag | None, NotNull] = None
    status: Annotated[SettableStatus | None, NotNull] = None


class EmbeddingInfo(Schema):
    model: str
    dim: int
    status: EmbeddingStatus


class Memory(Schema):
    memory_id: str
    agent_id: str | None
    user_id: str | None
    key: str | None
    memory_type: MemoryType
    content: str
    context: str | None
    importance: float
    base_importance: float
    trust: float
    tags: list[str]
    metadata: Object
    pinned: bool
    status: MemoryStatus
    supersedes: list[str]
    superseded_by: str | None
    contradicts: list[str] = Field(
        description="Of a disputed memory: those that it would have replaced. At least one of them has more trust."
    )
    source: Source
    event_at: str | None
    valid_from: str | None
    valid_until: str | None
    expires_at: str | None
    last_accessed: str | None
    access_count: Count
    helpful_count: Count = Field(description="How often feedback said that it helped.")
    misleading_count: Count = Field(description="How often feedback said that it misled.")
    embedding: EmbeddingInfo
    version: int
    created_at: str
    updated_at: str


class Similar(Schema):
    memory_id: str
    content: str
    score: float = Field(description="Cosine.")
    superseded: bool


class MemoryCreated(Memory):
    similar: list[Similar] = Field(description="Near-duplicates, cosine 0.95 and above.")


class MemoryBatchCreated(Schema):
    items: list[MemoryCreated]


class HistoryEntry(Schema):
    version: int
    changed_at: str = Field(description="When this version was replaced.")
    changed_by: str | None = Field(description="Id of the API key that replaced it.")
    record: dict[str, Any] = Field(description="The memory as it was.")


class Deleted(Schema):
    deleted: int


class DisputeResolution(Schema):
    model_config = example({"keep": "mem_01a2003d395076f9a13acea58faaf745"})

    keep: Identifier = Field(
        description="The disputed memory, to let it replace the ones that it contradicts; one of these, to retire the "
        "disputed one; or `both`."
    )


class FeedbackItem(Schema):
    memory_id: Identifier
    helpful: Flag = Field(description="True: it helped to answer. False: it misled.")
    query: MemoryText | None = Field(
        None, description="The query that it was found by. Kept for two days with a memory of a user, else not at all."
    )


class FeedbackRequest(Schema):
    model_config = example(
        {"items": [{"memory_id": "mem_01a2003d395076f9a13acea58faaf745", "helpful": True, "query": "Where do I live?"}]}
    )

    items: Annotated[list[FeedbackItem], Field(min_length=1, max_length=100)] = Field(
        description="Each memory at most once."
    )


class FeedbackApplied(Schema):
    memory_id: str
    applied: bool = Field(description="False: nothing was changed, and `reason` says why.")
    reason: FeedbackReason | None = Field(
        description="`already_today`: this API key said the same of this memory on this UTC day. `not_found`: there is "
        "no such memory that the key may see. `forbidden`: the key may read it, but not change it."
    )
    replaced: bool = Field(
        description="It takes the place of the opposite feedback of the same key and day, which is undone."
    )
    importance: float | None = Field(description="Of the memory after this; null where `reason` hides it.")
    base_importance: float | None
    helpful_count: Count | None
    misleading_count: Count | None


class FeedbackResult(Schema):
    items: list[FeedbackApplied] = Field(description="In the order of the request.")


def render(memory: MemoryRecord, importance: float) -> ShownMemory:
    """Returns a stored memory as responses show it. `importance`: its current value (`memories/decays.py`)."""
    shown: ShownMemory = MEMORIES.as_record(MEMORIES.public(memory))
    shown["importance"] = rounded(importance)
    return shown


def rounded(importance: float) -> float:
    """Rounds to nine digits. It is faster than `round`, which formats and parses a text."""
    return floor(importance * 1e9 + 0.5) / 1e9
