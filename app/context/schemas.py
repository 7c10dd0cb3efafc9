"""Schemas of the context endpoint."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, NotRequired, Self

from pydantic import Field, field_validator, model_validator, with_config
from typing_extensions import TypeAliasType, TypedDict

from app.core.metadata_filter import ANY_ID, RecordFields
from app.core.schemas import (
    FILTERS,
    WHOLE,
    Count,
    Identifier,
    JsonObject,
    Schema,
    Share,
    Text,
    Timestamp,
    TimeZone,
    checked_filter,
    example,
    fault_in,
    owner_of,
    shown,
)
from app.memories.search import MEMORY_FIELDS, TagAndMetadataFilters
from app.retrieval.retriever import SearchWarning
from app.sessions.schemas import ToolCall

Intent = TypeAliasType("Intent", Literal["general", "recall", "execute"])
SectionName = TypeAliasType(
    "SectionName",
    Literal[
        "instructions",
        "always",
        "profile",
        "uncertain",
        "working",
        "summary",
        "messages",
        "memories",
        "facts",
        "procedures",
        "experience",
        "episodes",
    ],
)
IntentChoice = TypeAliasType("IntentChoice", Literal["auto", "general", "recall", "execute"])
ContextFormat = TypeAliasType("ContextFormat", Literal["markdown", "messages"])
CitationStyle = TypeAliasType("CitationStyle", Literal["numbers", "ids", "none"])
DropReason = TypeAliasType(
    "DropReason", Literal["budget", "section_budget", "limit", "duplicate", "score", "importance", "enough"]
)
MemoryRole = TypeAliasType("MemoryRole", Literal["user", "developer", "system"])


class SectionAsked(Schema):
    """At most so much of the budget, by share or in tokens, and at most so many items."""

    share: Share | None = None
    tokens: Count | None = None
    limit: Annotated[int, Field(strict=True, ge=0, le=100), WHOLE] | None = None

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if self.share is not None and self.tokens is not None:
            raise ValueError("give share or tokens, not both")
        return self


class ContextRequest(TagAndMetadataFilters):
    model_config = example(
        {"query": "Where does she live now?", "agent_id": "support", "user_id": "ada", "session_id": "chat-1"}
    )

    record_fields: ClassVar[RecordFields] = MEMORY_FIELDS

    query: Text
    agent_id: Identifier
    user_id: Identifier | None = None
    filters: JsonObject | None = Field(None, description=f"Of memories. {FILTERS} A context is of one owner.")
    session_id: Identifier | None = Field(None, description="Its last messages and its task in progress are added.")
    task_id: Identifier | None = Field(None, description="Default: the session's task in progress.")
    intent: IntentChoice = "auto"
    token_budget: Annotated[int, Field(strict=True, ge=1, le=10_000_000), WHOLE] | None = Field(
        None,
        description="Default: a quarter of the agent's max_context_tokens where it is registered, else 4000.",
    )
    fill: bool = Field(
        False,
        strict=True,
        description="Fill the budget with what competes by its worth; default: until enough is there.",
    )
    sections: dict[SectionName, SectionAsked] = Field({}, description="Bounds by section.")
    format: ContextFormat = "markdown"
    citations: CitationStyle = Field(
        "numbers", description="What entries are cited by; a number takes 1 token instead of 25, `sections` maps it."
    )
    system_prompt: str | None = None
    explain: bool = Field(
        False,
        strict=True,
        description="Say of what was dropped what it is: its type, section, text, score and tokens. For who looks into "
        "a prompt; an agent does not need it.",
    )
    memory_role: MemoryRole = Field(
        "user",
        description="With format `messages`: `user` puts what is remembered into the message of the query, any other "
        "role into a message before it.",
    )
    include: list[SectionName] = Field([], description="Every section comes anyway: this changes nothing.")
    exclude: list[SectionName] = Field([], description="Sections to leave out.")
    min_trust: Share | None = None
    min_importance: Share | None = Field(
        None, description="Least importance of a memory at the moment; default: the agent's setting. Rules are exempt."
    )
    min_score: Share | None = Field(
        None,
        description="Least score of what competes by its worth; default: 0.005, or 0.001 with `fill`, or 0 where so "
        "little is stored that all of it is given.",
    )
    as_of: Timestamp | None = Field(None, description="What was true then; default: now.")
    known_at: Timestamp | None = Field(None, description="Facts, memories and lessons of then; default: now.")
    now: Timestamp | None = Field(None, description="The time of the context: what happened later is hidden.")
    timezone: TimeZone | None = None

    _is_filter = field_validator("filters")(checked_filter)

    @model_validator(mode="after")
    def _of_one_owner(self) -> Self:
        # `checked_filter` has refused another owner than the one beside the filter
        for name, value in owner_of(self.filters or {}, MEMORY_FIELDS, {}).items():
            if value == ANY_ID:
                raise fault_in("filters", f'has any {name}, "*": a context is of one')
            setattr(self, name, value)
        return self


@with_config(extra="allow", allow_inf_nan=False)
class ChatMessage(TypedDict):
    role: str
    content: Annotated[str | None, Field(description="Null beside tool_calls that came without text.")]


class PromptMessage(ChatMessage):
    """A message as OpenAI's clients send it: `{"role": "assistant", "content": None, "tool_calls": [...]}`."""

    tool_calls: NotRequired[list[ToolCall]]
    tool_call_id: NotRequired[str]


@shown
class PackedItem(TypedDict):
    id: str
    type: str
    citation: Annotated[
        str | None, Field(description="What stands for it in the text, in brackets; null where nothing does.")
    ]
    score: Annotated[
        float | None, Field(description="Of the search that found it; null for what was not searched for.")
    ]
    links: Annotated[
        list[str], Field(description="Ids of the facts that a line of `facts` states, in its order; else empty.")
    ]
    tokens: Count


@shown
class PackedSection(TypedDict):
    name: str
    tokens: Annotated[Count, Field(description="Its title included.")]
    items: list[PackedItem]


@shown
class DroppedEntry(TypedDict):
    """What an entry is that was left out."""

    type: str
    section: Annotated[str, Field(description="For which it was found.")]
    text: Annotated[str, Field(description="As its line would have read.")]
    score: Annotated[
        float | None,
        Field(
            description="Of the search that found it; null for what was not searched for, and for parts of documents "
            "where all memories are given instead."
        ),
    ]
    tokens: Annotated[Count, Field(description="Of its line.")]
    needed: Annotated[
        Count | None,
        Field(
            description="Of what did not fit: tokens that it would have added, with title and headings. Null for what "
            "was not tried, because packing had ended."
        ),
    ]
    left: Annotated[Annotated[int, WHOLE] | None, Field(description="Tokens that were left for it then.")]


@shown
class Dropped(TypedDict):
    id: str
    reason: DropReason
    links: Annotated[
        NotRequired[list[str]],
        Field(default=[], description="Ids of the facts that a chain of facts states, in its order; else empty."),
    ]
    repeats: Annotated[
        NotRequired[list[str]],
        Field(
            default=[],
            description="Of a `duplicate`, and of what had no room in its section and stands in another one: ids of "
            "the entries of the prompt that say the same, if they are items of it.",
        ),
    ]
    entry: Annotated[NotRequired[DroppedEntry | None], Field(default=None, description="With `explain`.")]


@shown
class SectionError(TypedDict):
    section: str
    code: str
    detail: str


@shown
class Context(TypedDict):
    intent: Intent
    messages: Annotated[Sequence[ChatMessage], Field(description="With format `messages`: ready for the model.")]
    text: Annotated[
        str, Field(description="What is remembered, as delimited data; with `messages`, without the turns.")
    ]
    tokens: Annotated[
        Count, Field(description="o200k tokens of all that was added; with `messages`, 4 more for each message.")
    ]
    budget: Count
    query_tokens: Annotated[Count, Field(description="Not part of the budget.")]
    system_prompt_tokens: Annotated[Count, Field(description="Not part of the budget.")]
    sections: list[PackedSection]
    dropped: list[Dropped]
    errors: Annotated[list[SectionError], Field(description="Sections that could not be read, or only in part.")]
    warnings: Annotated[
        list[SearchWarning], Field(description="What the searches of all sections went without, said once.")
    ]
    took_ms: Annotated[dict[str, Any], Field(description="By section, and `total`.")]
