"""The stored shape of long-term memory: the collections of memories, of earlier versions and of feedback."""

from typing import Annotated, Generic, Literal, TypeAlias

from pydantic import Field
from typing_extensions import TypeAliasType, TypedDict

from app.core.schemas import JsonObject, shown
from app.memories.search_flags import FLAG_FIELDS, flags_of
from app.storage.schema import Absent, And, Collection, Eq, Not, OwnedRecord, R, SearchSchema, Unique

MAX_TAGS = 64
STANDING = "instruction"
SMALL_TALK = "small_talk"
"""Values of the field `standing`."""
LINKS = "replaced_by"
"""The field that links a memory with later statements that replace it."""
INTERNAL = frozenset(
    {
        "tenant_id",
        "content_hash",
        "identity_hash",
        "dedupe_key",
        "metadata_terms",
        "anchored_at",
        "archived_by",
        "archived_at",
        "kept_apart",
        "merged",
        "claimed_key",
        "standing",
        LINKS,
    }
)
"""Fields that no response contains."""

NO_SMALL_TALK = Not(Eq("standing", SMALL_TALK))


MemoryType = TypeAliasType(
    "MemoryType",
    Literal["fact", "preference", "instruction", "experience", "learned", "issue", "solution", "message", "summary"],
)
MemoryStatus = TypeAliasType("MemoryStatus", Literal["active", "superseded", "archived", "disputed"])
EmbeddingStatus = TypeAliasType("EmbeddingStatus", Literal["ready", "pending"])
Origin = TypeAliasType("Origin", Literal["api", "message", "extraction", "consolidation", "import"])


FeedbackReason = TypeAliasType("FeedbackReason", Literal["already_today", "not_found", "forbidden"])


@shown
class Source(TypedDict, total=False):
    """Where a record comes from: what the caller said, and what the service adds."""

    origin: Origin
    session_id: Annotated[str | None, Field(default=None)]
    message_seq: Annotated[int | None, Field(default=None)]
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


class StoredEmbedding(TypedDict):
    """Which model has made the vector of a record, or has still to make it."""

    model: str
    dim: int
    status: EmbeddingStatus


class EvidenceName(TypedDict, total=False):
    """A statement as findings and links name it, without its text: `{"kind": "memory", "id": "mem_1", "mark": "9f…"}`.
    `mark` is a digest of its text; `span` says where the sentences stand in it, if it is not all of it."""

    kind: str
    id: str
    mark: str
    span: list[int]


class ReplacementLink(EvidenceName, total=False):
    """A later statement that replaces what a memory says. `said` names the memory, as it was judged."""

    finding_id: str
    at: str
    said: EvidenceName


class ShownMemory(TypedDict, total=False):
    """A memory as responses show it."""

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
    metadata: JsonObject
    pinned: bool
    status: MemoryStatus
    supersedes: list[str]
    superseded_by: str | None
    contradicts: list[str]
    source: Source
    event_at: str | None
    valid_from: str | None
    valid_until: str | None
    expires_at: str | None
    last_accessed: str | None
    access_count: int
    helpful_count: int
    misleading_count: int
    embedding: StoredEmbedding | None
    version: int
    created_at: str
    updated_at: str


class SimilarMemory(TypedDict):
    """A near-duplicate as responses list it. `score`: the cosine."""

    memory_id: str
    content: str
    score: float
    superseded: bool


class CreatedMemory(ShownMemory, total=False):
    """The answer to a POST of a memory: it, and its near-duplicates."""

    similar: list[SimilarMemory]


class MemoryRecord(ShownMemory, total=False):
    """A document of the collection `agent_memories`: what is shown of a memory, and internal fields that `MEMORIES`
    explains."""

    tenant_id: str
    content_hash: int
    metadata_terms: list[str]
    replaced_by: list[ReplacementLink] | None
    merged: bool
    kept_apart: bool
    claimed_key: str | None
    anchored_at: str
    archived_by: str | None
    archived_at: str | None
    identity_hash: int
    dedupe_key: str | None
    standing: str | None


MemoryChange: TypeAlias = MemoryRecord
"""Some fields of a memory with new values: `{"content": "Lives in Rome", "content_hash": …, "identity_hash": …}`."""

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
        "expires_at": "time",
        "created_at": "time",
        "source.session_id": "text",
        "source.message_seq": "number",
        "source.origin": "text",
    },
    unique=(
        Unique("key", ("agent_id", "user_id", "key"), And((Eq("status", "active"), Not(Absent("key"))))),
        Unique(
            "content", ("agent_id", "user_id", "dedupe_key"), And((Eq("status", "active"), Not(Absent("dedupe_key"))))
        ),
    ),
    indexes=(("agent_id", "user_id"), ("user_id",), ("source.session_id",), ("user_id", "content_hash")),
    covered=("memory_type", "status", "agent_id", "user_id"),
    global_indexes=("created_at", "expires_at", "archived_at"),
    opaque=("metadata",),
    searched=SearchSchema(
        facets=("memory_type", "status", "tags", "metadata_terms", "source.session_id", "standing"),
        ranges=("event_at", "created_at", "expires_at", "valid_from", "valid_until", "trust"),
        time=("event_at", "created_at"),
        anchor=("anchored_at",),
        content=("identity_hash", "content_hash"),
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

`anchored_at` is the time from which the memory decays: creation, last access, or a new importance. `metadata_terms`
contains a digest of each metadata entry, so that callers' keys never name a field. Two memories with the same
`identity_hash` say the same (`records.IDENTITY`), and a search shows one of them. `dedupe_key` merges two equal
memories that are posted at the same time. `merged` marks a duplicate that consolidation retired. `claimed_key` is the
key that a disputed memory was sent with. `standing` is `STANDING` for a memory that belongs into every prompt: it is
pinned, or an instruction. It is `SMALL_TALK` for a message without content, which searches leave out.
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


class ShownVersion(TypedDict):
    """An earlier version of a memory as responses show it."""

    version: int
    changed_at: str
    changed_by: str | None
    record: ShownMemory


class FeedbackNote(OwnedRecord, total=False):
    """A document of the collection `memory_feedback`."""

    feedback_id: str
    memory_id: str
    key: str
    helpful: bool
    query: str | None
    effect: float
    expires_at: str


class FeedbackAnswer(TypedDict):
    """What became of one item of a request with feedback, as responses show it."""

    memory_id: str
    applied: bool
    reason: FeedbackReason | None
    replaced: bool
    importance: float | None
    base_importance: float | None
    helpful_count: int | None
    misleading_count: int | None


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
