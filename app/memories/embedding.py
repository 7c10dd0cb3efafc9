"""The vectors and terms of records that are about to be written, and the list of those that wait for their vector.

If the embedding model fails, the write still succeeds: the commit that stores the record without a vector lists it, and
the job `embed_pending` (`memories/reembed.py`) works the list off.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import Generic

import numpy as np

from app.core.clock import new_id
from app.core.work import in_parts
from app.embedding.embedder import Embedder
from app.embedding.model import Vectors
from app.errors import EmbeddingUnavailable
from app.memories.schemas import EmbeddingInfo, EmbeddingStatus
from app.storage.changes import IndexEntry, Insert
from app.storage.schema import BaseRecord, Collection, R
from app.storage.scope import SYSTEM
from app.storage.text import IndexedText, index_text

log = logging.getLogger(__name__)
HARMLESS = "word"
"""A text that every working model accepts."""


@dataclass(frozen=True, slots=True)
class Passage:
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

    async def entries(self, passages: Sequence[Passage]) -> list[IndexEntry]:
        """Returns the index entry of each passage, without a vector if the embedder failed."""
        missing = list(dict.fromkeys(passage.content for passage in passages if passage.content not in self._made))
        try:
            windows = await self._embedder.windows(missing)
            vectors = await self._embedder.embed_texts([window for parts in windows for window in parts])
        except EmbeddingUnavailable as error:
            log.warning("embedding failed", extra={"error": error.detail, "texts": len(missing)})
        else:
            ends = list(accumulate(map(len, windows)))
            self._made.update(zip(missing, np.split(vectors, ends[:-1]), strict=True) if missing else ())

        def entry(passage: Passage) -> IndexEntry:
            made = self._made.get(passage.content)  # shape (windows, dim)
            vector, others = (None, None) if made is None else (made[0], made[1:] if len(made) > 1 else None)
            return IndexEntry(passage.indexed(), vector, self._embedder.name, others)

        return await in_parts(passages, entry, lambda passage: len(passage.content))

    async def entries_each(self, passages: Sequence[Passage]) -> list[IndexEntry]:
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

    def info(self, entry: IndexEntry) -> EmbeddingInfo:
        """Returns the value of a record's field `embedding`."""
        status: EmbeddingStatus = "pending" if entry.vector is None else "ready"
        return {"model": self._embedder.name, "dim": self._embedder.dim, "status": status}


# --- Records without a vector -----------------------------------------------------------------------------------------


class PendingNote(BaseRecord, total=False):
    """A document of the collection `pending_embeddings`: where the record is, and how often the model has refused
    it."""

    note_id: str
    collection: str
    tenant: str
    document_id: str
    refused: int
    not_before: str


PENDING: Collection[PendingNote] = Collection(
    name="pending_embeddings", id_field="note_id", fields={"not_before": "time"}, audited=False
)
"""Records that were stored while the embedder failed, under the tenant `SYSTEM`.

A text that the model refused is not tried again before `not_before`.
"""


def pending_note(collection: Collection, tenant: str, record_id: str, now: str) -> Insert[PendingNote]:
    """Returns the change that lists a record without a vector. It is committed together with the record."""
    note: PendingNote = {
        "tenant_id": SYSTEM,
        "note_id": new_id("pending"),
        "collection": collection.name,
        "tenant": tenant,
        "document_id": record_id,
        "created_at": now,
    }
    return Insert(PENDING, note)


@dataclass(frozen=True, slots=True)
class Embeddable(Generic[R]):
    """A searchable collection: how to get a record's text, and which fields to set with its vector."""

    collection: Collection[R]
    passage: Callable[[R], Passage]
    fields: Callable[[EmbeddingInfo], R]
    needs_new_entry: Callable[[R], bool] = lambda changed: True
    """Returns whether a change of these fields needs a new index entry."""
