"""The list of records that wait for their vector, and what can be embedded.

A record is listed in the commit that stores it without a vector. `memories/embedding_backfill.py` works the list off.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

from app.core.clock import new_id
from app.memories.embedding import Passage
from app.memories.records import needs_new_entry, passage
from app.memories.schemas import MEMORIES, EmbeddingInfo, MemoryRecord
from app.storage.changes import Insert
from app.storage.schema import BaseRecord, Collection, R
from app.storage.scope import SYSTEM


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


MEMORY: Embeddable[MemoryRecord] = Embeddable(
    MEMORIES, passage, lambda embedding: {"embedding": embedding}, needs_new_entry
)
