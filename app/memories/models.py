"""Collections of long-term memory: the stored shape."""

from app.memories.indexing import FIELDS, flags_of
from app.storage.filters import Absent, And, Eq, Not
from app.storage.schema import Collection, SearchSchema, Unique

MAX_TAGS = 64
STANDING = "instruction"
SMALL_TALK = "small_talk"
"""Values of the field `standing`."""
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
    }
)
"""Fields that no response contains."""

NO_SMALL_TALK = Not(Eq("standing", SMALL_TALK))

MEMORIES = Collection(
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
    global_indexes=("created_at", "expires_at", "archived_at"),
    opaque=("metadata",),
    searched=SearchSchema(
        facets=("memory_type", "status", "tags", "metadata_terms", "source.session_id", "standing"),
        ranges=("event_at", "created_at", "expires_at", "valid_from", "valid_until", "trust"),
        time=("event_at", "created_at"),
        anchor=("anchored_at",),
        content=("identity_hash", "content_hash"),
        placed="source.speaker",  # a caller's memory may name a message, and was not said in the session
        flags=flags_of,
        flag_fields=FIELDS,
    ),
    internal=INTERNAL,
)
"""The collection of memories. Some of its fields:

`anchored_at` is the time from which the memory decays: creation, last access, or a new importance. `metadata_terms`
contains a digest of each metadata entry, so that callers' keys never name a field. Two memories with the same
`identity_hash` say the same (`records.IDENTITY`), and a search shows one of them. `dedupe_key` merges two equal
memories that are posted at the same time. `merged` marks a duplicate that consolidation retired. `claimed_key` is the
key that a disputed memory was sent with. `standing` is `STANDING` for a memory that belongs into every prompt: it is
pinned, or an instruction. It is `SMALL_TALK` for a message without content, which searches leave out.
"""

HISTORY = Collection(
    name="memory_history",
    counted=True,
    id_field="history_id",
    fields={"agent_id": "text", "user_id": "text", "record_id": "text"},
    order="version",
    indexes=(("record_id",), ("user_id",)),
    opaque=("record",),
    audited=False,
    internal=INTERNAL,
)
"""Earlier versions of memories. The change that replaces a version stores it."""

FEEDBACK = Collection(
    name="memory_feedback",
    counted=True,
    id_field="feedback_id",
    fields={"agent_id": "text", "user_id": "text", "memory_id": "text", "expires_at": "time"},
    indexes=(("memory_id",), ("user_id",)),
    global_indexes=("expires_at",),
    audited=False,
)
"""Notes that an API key gave feedback on a memory on one UTC day; the id is derived from these three.

`effect` is the change that the feedback made to the importance. Notes are purged two days later; the counts stay with
the memory.
"""

PENDING = Collection(name="pending_embeddings", id_field="note_id", fields={"not_before": "time"}, audited=False)
"""Records that were stored while the embedder failed, under the tenant `SYSTEM`.

A text that the model refused is not tried again before `not_before`.
"""

MOVES = Collection(name="embedding_moves", id_field="move_id", fields={}, cached=True)
"""The embedding model that the last `recalld reembed` moves everything to, under the tenant `SYSTEM`."""

INDEXING = Collection(name="index_revisions", id_field="index_id", fields={}, cached=True, audited=False)
"""Under the tenant `SYSTEM`: the revision of the search index and the position of the walk that rewrites its entries
(`memories/reindex.py`)."""
