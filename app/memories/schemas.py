"""Memories as they are stored, and as requests and answers show them; with the collections of replaced versions and of
feedback."""

from collections.abc import Mapping
from math import floor
from typing import Annotated, Any, ClassVar, Generic, Literal, NotRequired, Self, TypeAlias, cast

from pydantic import (
    AfterValidator,
    Field,
    ModelWrapValidatorHandler,
    StringConstraints,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from typing_extensions import TypeAliasType, TypedDict

from app.core import schemas as core
from app.core.clock import recurrence
from app.storage.schema import Absent, And, Collection, Eq, Not, OwnedRecord, R, SearchSchema, Unique, both
from app.storage.text import HAS_EVENT_TIME, PASSAGE, SAID_BY_ASSISTANT, SAID_BY_USER, SUMMARY

MAX_TAGS = 64
RULE_MARK = "instruction"
SMALL_TALK = "small_talk"
FILE = "file"
"""Values of the field `standing`. `RULE_MARK` marks a rule: an instruction, or a pinned memory of any type but `file`.
"instruction" and "file" are types of memories as well."""
KEPT_AS_IS = ("document", FILE)
"""Types of texts that stay as they were given: nothing fades, forgets, merges, judges or learns from them."""
MOST_FILE_BYTES = 100_000
JOINED = "joined"
"""The context in which a memory is validated whose text was joined of several, each within its own limit."""
LINKS = "replaced_by"
"""The field that links a memory with later statements that replace it."""
INTERNAL = frozenset(
    {
        "tenant_id",
        "content_hash",
        "identity_hash",
        "dedupe_key",
        "metadata_terms",
        "event_until",
        "due_from",
        "anchored_at",
        "archived_by",
        "archived_at",
        "kept_apart",
        "merged",
        "claimed_key",
        "disputes",
        "standing",
        "document_id",
        LINKS,
    }
)
"""Fields that no response contains."""

NO_FILE = Not(Eq("standing", FILE))
FINDABLE = both(Not(Eq("standing", SMALL_TALK)), NO_FILE)


MemoryType = TypeAliasType(
    "MemoryType",
    Literal[
        "fact",
        "preference",
        "instruction",
        "experience",
        "learned",
        "issue",
        "solution",
        "message",
        "summary",
        "document",
        "file",
    ],
)
EventPrecision = TypeAliasType("EventPrecision", Literal["instant", "day", "month", "year"])
AlwaysKind = TypeAliasType("AlwaysKind", Literal["health", "identity", "wish"])
"""What belongs into every prompt, whatever is asked: "allergic to peanuts", "is called Ada", "wants short answers"."""
MemoryStatus = TypeAliasType("MemoryStatus", Literal["active", "superseded", "archived", "disputed"])
EmbeddingStatus = TypeAliasType("EmbeddingStatus", Literal["ready", "pending"])
Origin = TypeAliasType("Origin", Literal["api", "message", "extraction", "consolidation", "import", "document"])


FeedbackReason = TypeAliasType("FeedbackReason", Literal["already_today", "not_found", "forbidden"])


@core.shown
class PassagePlace(TypedDict):
    """Where a passage stands in a document. `start` and `end` count characters of its text."""

    document_id: str
    name: str
    headings: Annotated[list[str], Field(description="From the chapter down to the section.")]
    page: Annotated[int | None, Field(description="Of a PDF, from 1.")]
    start: core.Count
    end: core.Count


@core.shown
class Source(TypedDict, total=False):
    """Where a record comes from: what the caller said, and what the service adds."""

    origin: Origin
    session_id: Annotated[str | None, Field(default=None)]
    message_seq: Annotated[int | None, Field(default=None)]
    said_at: Annotated[
        str | None,
        Field(default=None, description="When it was told: the time of its message. Null: when it was stored."),
    ]
    speaker: Annotated[
        str | None, Field(default=None, description="Name of the speaker; their role where the message had no name.")
    ]
    role: Annotated[
        str | None, Field(default=None, description="Of the message that it was made from: `user` or `assistant`.")
    ]
    action_ids: Annotated[
        list[str],
        Field(default=[], description="`GET /v1/actions/{action_id}` answers for each, also once purged."),
    ]
    memory_ids: Annotated[list[str], Field(default=[])]
    url: Annotated[str | None, Field(default=None)]
    note: Annotated[str | None, Field(default=None)]
    model: Annotated[str | None, Field(default=None)]
    prompt_version: Annotated[str | None, Field(default=None)]
    quote: Annotated[
        str | None, Field(default=None, description="The words of the message that show what was extracted.")
    ]
    api_key_id: Annotated[str | None, Field(default=None)]
    document: Annotated[
        NotRequired[PassagePlace | None], Field(default=None, description="Of a passage of a document; else absent.")
    ]


@core.shown
class EmbeddingInfo(TypedDict):
    model: str
    dim: int
    status: EmbeddingStatus


NOT_EMBEDDED: EmbeddingInfo = {"model": "", "dim": 0, "status": "pending"}
"""Of a record whose vector no model has made."""


class EvidenceName(TypedDict, total=False):
    """A statement as findings and links name it, without its text: `{"kind": "memory", "id": "mem_1", "mark": "9f…"}`.
    `mark` is a digest of its text. Of a text that says other things, too, `span` says where the words stand that are
    meant, and `cut` what goes with them where they are taken out: "and" of "I have a dog and I live in Rome". Once they
    were taken out, `judged` is the statement as it was judged."""

    kind: str
    id: str
    mark: str
    span: list[int]
    cut: list[int]
    judged: "EvidenceName"


class ReplacementLink(EvidenceName, total=False):
    """A later statement that replaces what a memory says. `said` names the memory, as it was judged."""

    finding_id: str
    at: str
    said: EvidenceName


@core.shown
class Memory(TypedDict, total=False):
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
    metadata: core.Object
    pinned: bool
    always: AlwaysKind | None
    status: MemoryStatus
    supersedes: list[str]
    superseded_by: str | None
    contradicts: Annotated[
        list[str],
        Field(
            description="Of a disputed memory: those that it would have replaced. At least one of them has more trust."
        ),
    ]
    source: Source
    event_at: Annotated[str | None, Field(description="Its own time: when it happened, or is to happen.")]
    event_at_precision: Annotated[
        EventPrecision | None,
        Field(
            description="How exact `event_at` is. Of a day, month or year it is the beginning, with the date in UTC."
        ),
    ]
    due_at: Annotated[str | None, Field(description="When it is to be done.")]
    surface_at: Annotated[str | None, Field(description="Before then no prompt shows that it is due.")]
    done_at: Annotated[str | None, Field(description="When it was done; of what recurs null, as `due_at` moved on.")]
    rrule: Annotated[str | None, Field(description="How it recurs, from `due_at`: RFC 5545.")]
    valid_from: str | None
    valid_until: str | None
    expires_at: str | None
    last_accessed: str | None
    access_count: core.Count
    helpful_count: Annotated[core.Count, Field(description="How often feedback said that it helped.")]
    misleading_count: Annotated[core.Count, Field(description="How often feedback said that it misled.")]
    embedding: EmbeddingInfo
    version: int
    created_at: str
    updated_at: str


@core.shown
class Similar(TypedDict):
    memory_id: str
    content: str
    score: Annotated[float, Field(description="Cosine.")]
    superseded: bool


@core.shown
class MemoryCreated(Memory, total=False):
    similar: Annotated[list[Similar], Field(description="Near-duplicates, cosine 0.95 and above.")]


class MemoryRecord(Memory, OwnedRecord, total=False):
    """A document of the collection `agent_memories`: what is shown of a memory, and internal fields that `MEMORIES`
    explains."""

    content_hash: int
    event_until: str | None
    due_from: str | None
    metadata_terms: list[str]
    replaced_by: list[ReplacementLink] | None
    merged: bool
    disputes: int | None
    kept_apart: bool
    claimed_key: str | None
    anchored_at: str
    archived_by: str | None
    archived_at: str | None
    identity_hash: int
    dedupe_key: str | None
    standing: str | None
    document_id: str


MemoryChange: TypeAlias = MemoryRecord
"""Some fields of a memory with new values: `{"content": "Lives in Rome", "content_hash": …, "identity_hash": …}`."""

FLAG_FIELDS = ("source", "memory_type", "event_at", "due_at")
"""Fields that `flags_of` reads."""

_OF_ROLE: dict[str | None, int] = {"user": SAID_BY_USER, "assistant": SAID_BY_ASSISTANT}


def flags_of(doc: Mapping[str, Any]) -> int:
    """Returns the flags of a memory: the bits of `storage/text.py`. Memories of messages keep the message's role."""
    return (
        _OF_ROLE.get((doc.get("source") or {}).get("role"), 0)
        | SUMMARY * (doc.get("memory_type") == "summary")
        | PASSAGE * (doc.get("memory_type") == "document")
        | HAS_EVENT_TIME * (doc.get("event_at") is not None or doc.get("due_at") is not None)
    )


MEMORIES: Collection[MemoryRecord] = Collection(
    name="agent_memories",
    kind="memory",
    counted=True,
    id_field="memory_id",
    fields={
        "agent_id": "text",
        "user_id": "text",
        "key": "text",
        "memory_type": "text",
        "status": "text",
        "tags": "list",
        "metadata_terms": "list",
        "pinned": "flag",
        "importance": "number",
        "base_importance": "number",
        "anchored_at": "time",
        "trust": "number",
        "content_hash": "number",
        "dedupe_key": "text",
        "archived_by": "text",
        "archived_at": "time",
        "event_at": "time",
        "due_at": "time",
        "done_at": "time",
        "expires_at": "time",
        "created_at": "time",
        "source.session_id": "text",
        "source.message_seq": "number",
        "source.origin": "text",
        "document_id": "text",
    },
    unique=(
        Unique("key", ("agent_id", "user_id", "key"), And((Eq("status", "active"), Not(Absent("key"))))),
        # equal memories: `dedupe_key` hashes more than the content (`IDENTITY`). It is null without `unique` of
        # `new_memory`, as where a body says `deduplicate: false` or has a key
        Unique(
            "content", ("agent_id", "user_id", "dedupe_key"), And((Eq("status", "active"), Not(Absent("dedupe_key"))))
        ),
    ),
    indexes=(
        ("agent_id", "user_id"),
        ("user_id",),
        ("source.session_id",),
        ("user_id", "content_hash"),
        ("document_id",),
    ),
    covered=("memory_type", "status", "agent_id", "user_id"),
    global_indexes=("created_at", "expires_at", "archived_at"),
    opaque=("metadata",),
    searched=SearchSchema(
        facets=("memory_type", "status", "tags", "metadata_terms", "source.session_id", "standing", "always"),
        ranges=(
            *("event_at", "event_until", "source.said_at", "created_at", "expires_at", "valid_from", "valid_until"),
            *("due_from", "trust"),
        ),
        time=("event_at", "due_at", "source.said_at", "created_at"),  # what is due on Friday is of that day
        until=("event_until",),
        told=("source.said_at", "created_at"),
        anchor=("anchored_at",),
        content=("identity_hash", "content_hash"),  # the head holds the first that is there
        later_replaces=True,
        said_with=("context", "valid_from", "valid_until", "expires_at", "metadata", "key"),
        placed="source.speaker",  # a caller's memory may name a message, and was not said in the session
        flags=flags_of,
        flag_fields=FLAG_FIELDS,
    ),
    needs={
        "memory_type": "text",
        "content": "text",
        "status": "text",
        "source": "object",
        "tags": "list",
        "metadata": "object",
        "pinned": "flag",
        "base_importance": "number",
        "trust": "number",
        "content_hash": "number",
        "version": "number",
        "anchored_at": "time",
        "created_at": "time",
    },
    internal=INTERNAL,
)
"""The collection of memories. Some of its fields:

`event_until` is the last millisecond of `event_at`: of the day, month or year that it stands for, else its moment.
`due_from` is the time from which on prompts show that it is due, null where nothing is to be done.
`anchored_at` is the time from which the memory decays: creation, last access, or a new importance. `metadata_terms`
contains a digest of each metadata entry, so that callers' keys never name a field. Two memories with the same
`identity_hash` say the same (`IDENTITY`), and a search shows one of them. Of two equal memories that are posted at the
same time, the second conflicts by `dedupe_key`, and its handler runs anew and finds the first. `merged` marks a
duplicate that consolidation retired. `claimed_key` is the key that a disputed memory was sent with. `disputes` counts
the disputed memories that were ever against this one; most lack it. `standing` is `RULE_MARK` for a rule: a pinned
memory, or an instruction. It is `SMALL_TALK` for a message without content, which searches leave out, and `FILE` for a
file.
`replaced_by` (`LINKS`) has links to later statements that replace what the memory says (`app/findings/replacing.py`);
memories without any may lack it.
"""


class HistoryRecord(OwnedRecord, Generic[R], total=False):
    """An earlier version of a record: the record as it was, when it was replaced, and by which API key."""

    history_id: str
    record_id: str
    record: R
    changed_at: str
    changed_by: str | None


def history(name: str, internal: frozenset[str]) -> Collection[HistoryRecord[R]]:
    """Returns a collection of earlier versions of records: one document for each, stored by the change that replaces
    it. `internal`: the fields of the records that no response contains."""
    return Collection(
        name=name,
        counted=True,
        id_field="history_id",
        fields={"agent_id": "text", "user_id": "text", "record_id": "text", "version": "number"},
        order="version",
        indexes=(("record_id",), ("user_id",)),
        opaque=("record",),
        audited=False,
        internal=internal,
    )


HISTORY: Collection[HistoryRecord[MemoryRecord]] = history("memory_history", INTERNAL)


@core.shown
class HistoryEntry(TypedDict):
    version: int
    changed_at: Annotated[str, Field(description="When this version was replaced.")]
    changed_by: Annotated[str | None, Field(description="Id of the API key that replaced it.")]
    record: Annotated[Mapping[str, Any], Field(description="The memory as it was.")]


class FeedbackNote(OwnedRecord, total=False):
    """A document of the collection `memory_feedback`."""

    feedback_id: str
    memory_id: str
    key: str
    helpful: bool
    query: str | None
    effect: float
    expires_at: str


@core.shown
class FeedbackApplied(TypedDict):
    memory_id: str
    applied: Annotated[bool, Field(description="False: nothing was changed, and `reason` says why.")]
    reason: Annotated[
        FeedbackReason | None,
        Field(
            description="`already_today`: this API key said the same of this memory on this UTC day. `not_found`: "
            "there is no such memory that the key may see. `forbidden`: the key may read it, but not change it."
        ),
    ]
    replaced: Annotated[
        bool,
        Field(description="It takes the place of the opposite feedback of the same key and day, which is undone."),
    ]
    importance: Annotated[float | None, Field(description="Of the memory after this; null where `reason` hides it.")]
    base_importance: float | None
    helpful_count: core.Count | None
    misleading_count: core.Count | None


FEEDBACK: Collection[FeedbackNote] = Collection(
    name="memory_feedback",
    counted=True,
    id_field="feedback_id",
    fields={"agent_id": "text", "user_id": "text", "memory_id": "text", "expires_at": "time"},
    indexes=(("memory_id",), ("user_id",)),
    global_indexes=("expires_at",),
    audited=False,
)
"""Notes that an API key gave feedback on a memory on one UTC day; the id is derived from these three.

`key` is the lineage of the API key, and `effect` is the change that the feedback made to the importance. Notes are
purged two days later; the counts stay with the memory.
"""


class StatementRecord(OwnedRecord, total=False):
    """A document of the collection `statements`."""

    statement_id: str
    memory_id: str
    learned_from: str | None
    session_id: str | None
    message_seq: int
    said_at: str
    subject: str
    text: str
    quote: str
    kind: str
    holds: str
    at: str | None
    until: str | None
    predicate: str | None
    object: str | None
    profile_field: str | None


STATEMENTS: Collection[StatementRecord] = Collection(
    name="statements",
    id_field="statement_id",
    fields={
        "agent_id": "text",
        "user_id": "text",
        "memory_id": "text",
        "learned_from": "text",
        "session_id": "text",
        "message_seq": "number",
        "created_at": "time",
    },
    indexes=(("memory_id",), ("learned_from",), ("user_id",)),
    audited=False,
)
"""What a language model wrote down of a message, one claim each, with the memory that was made of it, and the memory of
the message that it was `learned_from`. It goes with the first. `message_seq`: of the session, or of the messages of a
request without one."""


# --- Requests ---------------------------------------------------------------------------------------------------------

SettableStatus = TypeAliasType("SettableStatus", Literal["active", "archived"])
OnSimilar = TypeAliasType("OnSimilar", Literal["keep", "supersede"])
ImportOrigin = TypeAliasType("ImportOrigin", Literal["import"])
Predecessors = TypeAliasType("Predecessors", Literal["restore", "delete"])
MemoryText = Annotated[
    str, StringConstraints(min_length=1, pattern=r"\S"), Field(description="Not blank; at most 32,000 characters.")
]


def _file_text(text: str) -> str:
    if len(text) > MOST_FILE_BYTES or len(text.encode()) > MOST_FILE_BYTES:
        raise ValueError(f"must have at most {MOST_FILE_BYTES} bytes")
    return text


Tag = TypeAliasType("Tag", Annotated[str, StringConstraints(min_length=1, max_length=128)])
Tags = Annotated[list[Tag], Field(max_length=MAX_TAGS)]
MemoryTypeIn = TypeAliasType(
    "MemoryTypeIn",
    Literal[
        "fact", "preference", "instruction", "experience", "learned", "issue", "solution", "message", "summary", "file"
    ],
)
"""What a caller may store: passages come from a file (`POST /v1/documents`)."""
MemoryKey = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Importance = Annotated[core.Share, Field(description="How much it matters, 0 to 1; fades while nobody asks for it.")]
Trust = Annotated[core.Share, Field(description="How far it is to be believed, 0 to 1.")]


MessageSeq = Annotated[int, Field(strict=True, ge=1, le=core.MAX_SEQ), core.WHOLE]


class SourceIn(core.Schema):
    """Where a record comes from, as the caller says. It never changes afterwards, and nothing in it is looked up."""

    session_id: core.Identifier | None = Field(None, description="The session that it comes from.")
    message_seq: MessageSeq | None = Field(None, description="The message of that session.")
    said_at: core.Timestamp | None = Field(
        None, description="When it was told there. With `now`, a search hides what was told later."
    )
    action_ids: Annotated[list[core.Identifier], Field(max_length=100)] = Field(
        [], description="The actions that it comes from."
    )
    url: Annotated[str, StringConstraints(min_length=1, max_length=2048)] | None = None
    note: Annotated[str, StringConstraints(min_length=1, max_length=4096)] | None = None

    def stated(self) -> Source:
        """Returns the fields that the caller gave."""
        return cast(Source, self.model_dump(exclude_unset=True, exclude_none=True))


def _recurrence(rule: str) -> str:
    recurrence(rule)
    return rule


RRule = Annotated[
    str,
    StringConstraints(min_length=1, max_length=200),
    AfterValidator(_recurrence),
    Field(examples=["FREQ=WEEKLY;BYDAY=MO"]),
]


class _Times(core.Schema):
    event_at: core.Timestamp | None = Field(None, description="Its own time: when it happened, or is to happen.")
    event_at_precision: EventPrecision | None = Field(
        None,
        description="How exact `event_at` is; default: instant. Of a day, a month or a year the date counts as it is "
        "written: 2026-12-04T00:00:00+01:00 is 4 December.",
    )
    due_at: core.Timestamp | None = Field(None, description="When it is to be done.")
    surface_at: core.Timestamp | None = Field(
        None, description="Before then no prompt shows that it is due. To snooze it, set it later."
    )
    done_at: core.Timestamp | None = Field(
        None, description="When it was done. What recurs is then due at its next time, and `done_at` stays null."
    )
    rrule: RRule | None = Field(
        None,
        description="How it recurs, in UTC (RFC 5545): FREQ of DAILY, WEEKLY, MONTHLY or YEARLY, with INTERVAL, UNTIL, "
        "BYDAY, BYMONTHDAY, BYMONTH. It needs `due_at`.",
    )
    valid_from: core.Timestamp | None = Field(None, description="From when it is true.")
    valid_until: core.Timestamp | None = Field(None, description="Until when it is true, that moment excluded.")
    expires_at: core.Timestamp | None = Field(None, description="From when on it is forgotten.")

    @model_validator(mode="wrap")
    @classmethod
    def _of_written_date(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Keeps the day as it was written: "2026-12-04T00:00:00+01:00" is December 4 (in UTC, the 3rd). Of a large
        body `StrictRequest.validated` has made the model, which comes here a second time and is no dict then."""
        body = handler(given)
        if body.event_at and body.event_at_precision in ("day", "month", "year") and isinstance(given, dict):
            body.event_at = f"{given['event_at'][:10]}T00:00:00.000Z"
        return body

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.valid_from and self.valid_until and self.valid_from >= self.valid_until:
            raise core.fault_in("valid_until", "must lie after valid_from")
        return self


class MemoryCreate(_Times, core.Owned):
    model_config = core.example(
        {
            "agent_id": "support",
            "user_id": "user-456",
            "content": "Prefers short answers",
            "memory_type": "preference",
        }
    )
    LENIENT: ClassVar = frozenset({"content"})  # a file may be longer than other texts: `_of_its_type` checks it

    memory_type: MemoryTypeIn = Field(
        "fact",
        description="`file`: a text under a key that no search finds, at most 100,000 bytes and possibly empty.",
    )
    content: MemoryText
    agent_id: core.Identifier | None = Field(
        None, description="Whose memory it is; null: every agent of the user may know."
    )
    user_id: core.Identifier | None = Field(
        None, description="Whom it is about; null: the agent knows it for all its users."
    )
    key: MemoryKey | None = Field(
        None, description="A name in its scope: remembering under it again updates the memory."
    )
    context: str | None = Field(None, description="When it applies.")
    importance: Importance = 0.5
    trust: Trust = 1.0
    tags: Tags = []
    metadata: core.Object = {}
    pinned: core.Flag = Field(False, description="Never fades, is never forgotten by policy.")
    always: AlwaysKind | None = Field(
        None, description="Stands in every prompt about the user: health, who they are, how they wish to be treated."
    )
    supersedes: list[core.Identifier] = Field(
        [], description="Memories of the same agent_id and user_id that this one replaces."
    )
    origin: ImportOrigin | None = Field(
        None, description="`import`: it comes from another system, and its source says so. Nothing else can be said."
    )
    source: SourceIn | None = Field(None, description="Where it comes from. It stays as first given.")
    deduplicate: core.Flag = Field(
        True,
        description="Answer an equal memory in place of a second one: same agent_id, user_id, type and text, and the "
        "same context, times, metadata and key. It takes the higher trust and importance, and the new tags.",
    )
    on_similar: OnSimilar = Field(
        "keep", description="Keep or supersede near-duplicates of the same agent_id and user_id; never messages."
    )

    @field_validator("content", mode="wrap")
    @classmethod
    def _of_its_type(cls, content: Any, validate: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        # `info.data` has the fields that are declared before `content`
        if info.data.get("memory_type") == FILE and isinstance(content, str):
            return _file_text(content)
        if isinstance(content, str) and len(content) > core.BODY_LIMITS.text_chars and info.context != JOINED:
            raise ValueError(f"must have at most {core.BODY_LIMITS.text_chars} characters")
        return validate(content)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.memory_type == FILE and self.key is None:
            raise core.fault_in("key", "a file needs a key")
        if self.event_at_precision and not self.event_at:
            raise core.fault_in("event_at_precision", "needs event_at")
        if self.rrule and not self.due_at:
            raise core.fault_in("rrule", "needs due_at")
        return self


class MemoryBatch(core.Schema):
    model_config = core.example({"items": [{"user_id": "user-456", "content": "Lives in Boston", "key": "home"}]})
    LENIENT: ClassVar = MemoryCreate.LENIENT

    items: Annotated[list[MemoryCreate], Field(min_length=1, description="At most 500; all are stored or none.")]


class MemoryPatch(_Times):
    """What is absent stays; null clears what can be empty."""

    model_config = core.example({"importance": 0.9, "tags": ["style"], "key": None})
    LENIENT: ClassVar = frozenset({"content"})

    content: Annotated[Annotated[str, AfterValidator(_file_text)] | None, core.NotNull] = Field(
        None, description="Not blank, at most 32,000 characters; of a `file` possibly empty, at most 100,000 bytes."
    )
    context: str | None = None
    key: MemoryKey | None = None
    memory_type: Annotated[MemoryTypeIn | None, core.NotNull] = None
    importance: Annotated[Importance | None, core.NotNull] = Field(None, description="Starts to fade anew from here.")
    trust: Annotated[Trust | None, core.NotNull] = None
    tags: Annotated[Tags | None, core.CLEARS_LIST] = None
    metadata: Annotated[core.Object | None, core.CLEARS_OBJECT] = None
    pinned: Annotated[core.Flag | None, core.NotNull] = None
    always: AlwaysKind | None = None
    status: Annotated[SettableStatus | None, core.NotNull] = None


@core.shown
class MemoryBatchCreated(TypedDict):
    items: list[MemoryCreated]


@core.shown
class Deleted(TypedDict):
    deleted: int


class DisputeResolution(core.Schema):
    model_config = core.example({"keep": "mem_01a2003d395076f9a13acea58faaf745"})

    keep: core.Identifier = Field(
        description="The disputed memory, to let it replace the ones that it contradicts; one of these, to retire the "
        "disputed one; or `both`."
    )


class FeedbackItem(core.Schema):
    memory_id: core.Identifier
    helpful: core.Flag = Field(description="True: it helped to answer. False: it misled.")
    query: MemoryText | None = Field(
        None, description="The query that it was found by. Kept for two days with a memory of a user, else not at all."
    )


class FeedbackRequest(core.Schema):
    model_config = core.example(
        {"items": [{"memory_id": "mem_01a2003d395076f9a13acea58faaf745", "helpful": True, "query": "Where do I live?"}]}
    )

    items: Annotated[list[FeedbackItem], Field(min_length=1, max_length=100)] = Field(
        description="Each memory at most once."
    )


@core.shown
class FeedbackResult(TypedDict):
    items: Annotated[list[FeedbackApplied], Field(description="In the order of the request.")]


def render(memory: MemoryRecord, importance: float) -> Memory:
    """Returns a stored memory as responses show it. `importance`: its current value (`memories/agents.py`)."""
    return cast(Memory, {**MEMORIES.public(memory), "importance": rounded(importance)})


def rounded(importance: float) -> float:
    """Rounds to nine digits. It is faster than `round`, which formats and parses a text."""
    return floor(importance * 1e9 + 0.5) / 1e9
