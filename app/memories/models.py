"""The stored shape of long-term memory: its collections, and the index entries of records that are about to be written.

If the embedding model fails, the write still succeeds, and the record waits for its vector.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import Any

import numpy as np

from app.core.work import in_parts
from app.embedding.embedder import Embedder
from app.embedding.model import Vectors
from app.errors import EmbeddingUnavailable
from app.storage.changes import IndexEntry
from app.storage.schema import Absent, And, Collection, Doc, Eq, Not, SearchSchema, Unique
from app.storage.text import DERIVED, HAS_EVENT_TIME, SAID_BY_ASSISTANT, SAID_BY_USER, SUMMARY, IndexedText, index_text

log = logging.getLogger(__name__)

HARMLESS = "word"
"""A text that every working model accepts."""


@dataclass(frozen=True, slots=True)
class IndexText:
    """A text to be indexed: its words, context, time and tags become terms, its content becomes a vector.

    A text that is longer than the model's input has one vector for each of its windows.
    """

    content: str
    context: str | None = None
    time: datetime | None = None
    tags: tuple[str, ...] = ()

    def indexed(self) -> IndexedText:
        """Returns the terms of the text."""
        return index_text(self.content, self.context, self.time, self.tags)


class Embeddings:
    """Embeds the texts of one request. Each text is embedded once, however often the write is planned."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._made: dict[str, Vectors] = {}

    async def entries(self, passages: Sequence[IndexText]) -> list[IndexEntry]:
        """Returns the index entry of each passage, without a vector if the embedder failed."""
        vectors = await self._vectors(passages)
        return await in_parts([*zip(passages, vectors, strict=True)], self._entry, lambda pair: len(pair[0].content))

    async def entries_each(self, passages: Sequence[IndexText]) -> list[IndexEntry]:
        """Returns the same as `entries`, for texts of many callers. A text that the model refuses does not affect the
        others.

        Raises EmbeddingUnavailable if the model accepts no text at all.
        """
        if not passages:
            return []
        entries = await self.entries(passages)
        if any(entry.vector is not None for entry in entries):
            return entries
        await self._embedder.embed_texts([HARMLESS])
        if len(passages) == 1:
            return entries
        middle = len(passages) // 2  # one refused text fails its whole batch: search for it by halves
        halves = passages[:middle], passages[middle:]
        return [entry for half in halves for entry in await self.entries_each(half)]

    def _entry(self, pair: tuple[IndexText, Vectors | None]) -> IndexEntry:
        passage, windows = pair
        return IndexEntry(
            passage.indexed(),
            None if windows is None else windows[0],
            self._embedder.name,
            None if windows is None or len(windows) == 1 else windows[1:],
        )

    async def _vectors(self, passages: Sequence[IndexText]) -> list[Vectors | None]:
        """Returns the vectors of each passage, shape (windows, dim), or None if the embedder failed."""
        missing = list(dict.fromkeys(one.content for one in passages if one.content not in self._made))
        try:
            windows = await self._embedder.windows(missing)
            vectors = await self._embedder.embed_texts([window for parts in windows for window in parts])
        except EmbeddingUnavailable as error:
            log.warning("embedding failed", extra={"error": error.detail, "texts": len(missing)})
        else:
            ends = list(accumulate(map(len, windows)))
            self._made.update(zip(missing, np.split(vectors, ends[:-1]), strict=True) if missing else ())
        return [self._made.get(passage.content) for passage in passages]

    def info(self, entry: IndexEntry) -> Doc:
        """Returns the value of a record's field `embedding`."""
        status = "pending" if entry.vector is None else "ready"
        return {"model": self._embedder.name, "dim": self._embedder.dim, "status": status}


FIELDS = ("source", "memory_type", "event_at")
"""Fields that `flags_of` reads."""

_OF_ROLE = {"user": SAID_BY_USER, "assistant": SAID_BY_ASSISTANT}
_NOT_DERIVED = (None, "api", "import", "message")


def flags_of(doc: Mapping[str, Any]) -> int:
    """Returns the flags of a memory: the bits of `storage/text.py`.

    Memories of messages keep the message's role. Those stored before that field existed have only the speaker's name,
    which is the role if the message had no name.
    """
    source = doc.get("source") or {}
    role = source.get("role") or (source.get("speaker") or "").casefold()
    return (
        _OF_ROLE.get(role, 0)
        | DERIVED * (source.get("origin") not in _NOT_DERIVED)
        | SUMMARY * (doc.get("memory_type") == "summary")
        | HAS_EVENT_TIME * (doc.get("event_at") is not None)
    )


EXTRACT = "(extract) "
"""Prefix of a summary that quotes the conversation: earlier releases wrote such ones without a language model."""


def quotes_only(doc: Mapping[str, Any]) -> bool:
    """Returns whether a memory is a summary of quotes. No search finds it beside the messages that it quotes."""
    derived = doc["source"]["origin"] not in _NOT_DERIVED
    return doc["memory_type"] == "summary" and derived and str(doc["content"]).startswith(EXTRACT)


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
        flag_fields=FIELDS,
        left_out=quotes_only,
        may_be_left_out=SUMMARY | DERIVED,
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


def history(name: str, internal: frozenset[str]) -> Collection:
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


HISTORY = history("memory_history", INTERNAL)

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

AGENTS = Collection(
    name="agents",
    kind="agent",
    counted=True,
    id_field="agent_id",
    fields={"agent_id": "text", "user_id": "text", "name": "text", "created_at": "time"},
    unique=(Unique("name", ("name",)),),
    global_indexes=("created_at",),
    opaque=("settings", "experience"),
    cached=True,
)
"""The agents that are registered. It is declared here since the decay of memories is among an agent's settings."""
