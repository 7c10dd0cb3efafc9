"""Queries over memories and their history, and the changes that store, revise, retire and remove them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from app.core.clock import new_id
from app.core.work import characters, off_loop
from app.errors import Conflict, Forbidden
from app.memories.embedding import Embeddable, Embeddings, pending_note
from app.memories.records import identity_hash, is_rule, needs_new_entry, needs_new_terms, passage, repeats
from app.memories.schemas import (
    FEEDBACK,
    HISTORY,
    MEMORIES,
    HistoryRecord,
    MemoryRecord,
    MemoryStatus,
)
from app.storage.changes import Change, DeleteWhere, IndexEntry, Insert, Update
from app.storage.protocol import Store
from app.storage.repository import Listing, Repository, expired, pages
from app.storage.schema import Absent, Collection, Eq, Filter, In, OwnedRecord, R, both
from app.storage.scope import Scope

EQUAL_AT_ONCE = 10


def of_partition(agent: str | None, user: str | None) -> Filter:
    """Returns the filter for one partition. None matches only records without an agent, or without a user."""
    return both(
        Absent("agent_id") if agent is None else Eq("agent_id", agent),
        Absent("user_id") if user is None else Eq("user_id", user),
    )


def same_partition(record: OwnedRecord, other: OwnedRecord) -> bool:
    """Returns whether both records belong to the same partition: the same agent and the same user."""
    return record["agent_id"] == other["agent_id"] and record["user_id"] == other["user_id"]


class VersionedRepository(Repository[R]):
    """A repository of searchable records that keeps each replaced version as history."""

    def __init__(self, store: Store, scope: Scope, kind: Embeddable[R], history: Collection[HistoryRecord[R]]) -> None:
        super().__init__(store, scope, kind.collection)
        self._kind, self._history = kind, Repository(store, scope, history)

    async def history_page(self, record_id: str, listing: Listing) -> tuple[list[HistoryRecord[R]], str | None]:
        """Returns one page of the earlier versions of a record, and the cursor of the next page."""
        return await self._history.page(Eq("record_id", record_id), listing, request=record_id)

    def add(self, record: R, entry: IndexEntry) -> list[Change]:
        """Returns the changes that store a new record with its index entry."""
        return [self.insert(record, entry), *self.note_pending(record)]

    def note_pending(self, record: R) -> list[Change]:
        """Returns the change that lists a record without a vector for the embedding backfill, if it has none."""
        if record["embedding"]["status"] == "ready":
            return []
        record_id = record[self.collection.id_field]
        return [pending_note(self.collection, self.scope.tenant, record_id, record["updated_at"])]

    async def added(self, record: R, embeddings: Embeddings) -> tuple[R, list[Change]]:
        """Returns a new record with its field `embedding`, and the changes that store it with its index entry."""
        (entry,) = await embeddings.entries([self._kind.passage(record)])
        record = self.collection.as_record({**record, "embedding": embeddings.info(entry)})
        return record, self.add(record, entry)

    async def rewritten(self, record: R, changed: R, now: str, embeddings: Embeddings) -> tuple[R, list[Change]]:
        """Returns a record with these fields at its next version, and the changes that store it. If its text changes,
        it gets a new index entry. Without fields nothing changes."""
        entry = None
        if changed and self._kind.needs_new_entry(changed):
            (entry,) = await embeddings.entries([self._kind.passage(self.as_updated(record, changed, now=now))])
        return self.with_entry(record, changed, now, entry, embeddings)

    def with_entry(
        self, record: R, changed: R, now: str, entry: IndexEntry | None, embeddings: Embeddings
    ) -> tuple[R, list[Change]]:
        """Returns the same as `rewritten`, where the new index entry is there already. None: the text stays."""
        if not changed:
            return record, []
        if entry is not None:
            changed = self.collection.as_record({**changed, "embedding": embeddings.info(entry)})
        new = self.as_updated(record, changed, now=now)
        pending = [] if entry is None else self.note_pending(new)
        return new, [*self.revise(record, changed, now, entry), *pending]

    def revise(self, record: R, changed: R, now: str, entry: IndexEntry | None = None) -> list[Change]:
        """Returns the changes that replace fields and store the outgoing version as history."""
        past: HistoryRecord[R] = {
            "tenant_id": self.scope.tenant,
            "agent_id": record["agent_id"],
            "user_id": record["user_id"],
            "version": record["version"],
            "history_id": new_id("hist"),
            "record_id": record[self.collection.id_field],
            "record": record,
            "changed_at": now,
            "changed_by": self.scope.key_id,
        }
        return [self.update(record, changed, now=now, entry=entry), Insert(self._history.collection, past)]

    def remove(self, records: Sequence[R]) -> list[Change]:
        """Returns the changes that delete records, at the versions that were read, and their history."""
        deletes: list[Change] = [self.delete(record) for record in records]
        ids = tuple(record[self.collection.id_field] for record in records)
        return [*deletes, DeleteWhere(self._history.collection, self.scope.tenant, In("record_id", ids))]


MEMORY: Embeddable[MemoryRecord] = Embeddable(
    MEMORIES, passage, lambda embedding: {"embedding": embedding}, needs_new_entry
)


class MemoryRepository(VersionedRepository[MemoryRecord]):
    """Memories, with their history and feedback."""

    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__(store, scope, MEMORY, HISTORY)

    async def with_key(self, agent: str | None, user: str | None, key: str) -> list[MemoryRecord]:
        """Returns the active memory with this key in a partition: at most one, and it may have expired."""
        return await self.find(both(of_partition(agent, user), Eq("key", key), Eq("status", "active")), limit=1)

    async def equal(self, memory: MemoryRecord, now: str, status: MemoryStatus = "active") -> list[MemoryRecord]:
        """Returns the memories of this status, partition and type that are equal to `memory` in the fields
        `records.IDENTITY`.

        They come oldest first, up to the page that has the first unexpired one. Their hashes are computed anew: of what
        was learned from a message, the stored one is the hash of that message.
        """
        where = both(
            of_partition(memory["agent_id"], memory["user_id"]),
            Eq("content_hash", memory["content_hash"]),
            Eq("memory_type", memory["memory_type"]),
            Eq("status", status),
        )
        wanted, *_ = await _identities([memory])
        equal = list[MemoryRecord]()
        async for page in pages(partial(self.find, where), MEMORIES, EQUAL_AT_ONCE):
            equal += [other for other, found in zip(page, await _identities(page), strict=True) if found == wanted]
            if any(not expired(other, now) for other in equal):
                break
        return equal

    async def repeating(self, memory: MemoryRecord) -> list[MemoryRecord]:
        """Returns the active memories that were learned from `memory` word for word (`records.repeats`)."""
        where = both(
            of_partition(memory["agent_id"], memory["user_id"]),
            Eq("content_hash", memory["content_hash"]),
            Eq("status", "active"),
        )
        return [other for other in await self.find(where) if repeats(other, memory)]

    async def saying(self, memory_id: str) -> list[MemoryRecord]:
        """Returns a memory and the active ones that were learned from it word for word: a search finds any one of them.
        Empty if it does not exist or is outside the scope."""
        memory = await self.find_one(memory_id)
        return [] if memory is None else [memory, *await self.repeating(memory)]

    async def of_same_partition(self, memory: MemoryRecord, memory_ids: Sequence[str]) -> list[MemoryRecord]:
        """Returns those of `memory_ids` that exist and belong to the partition of `memory`, in the order given."""
        memories = await self.get_many(memory_ids)
        named = (memories.get(memory_id) for memory_id in dict.fromkeys(memory_ids))
        return [other for other in named if other is not None and same_partition(other, memory)]

    # --- Changes ------------------------------------------------------------------------------------------------------

    def require_write(self, doc: MemoryRecord) -> None:
        """Raises Conflict for a passage of a document, and Forbidden if the caller may not store, change or delete this
        memory: it is of others, or a rule (which
        stands in every prompt) and the caller is a model, which may have read what it writes in a page or a mail."""
        super().require_write(doc)
        if doc.get("memory_type") == "document":
            raise Conflict("It is a passage of a document: send the file again, or delete the document.")
        if not self.scope.rules and is_rule(doc):
            raise Forbidden(
                "An instruction or a pinned memory is a rule, and a model neither stores nor changes nor deletes one: "
                "use preference. The service's setting RECALLD_MCP_INSTRUCTIONS=on allows it."
            )

    def remove(self, records: Sequence[MemoryRecord]) -> list[Change]:
        """Returns the changes that delete memories, at the versions that were read, with their history and feedback
        notes."""
        ids = tuple(memory["memory_id"] for memory in records)
        return [*super().remove(records), DeleteWhere(FEEDBACK, self.scope.tenant, In("memory_id", ids))]

    def revise(
        self, record: MemoryRecord, changed: MemoryRecord, now: str, entry: IndexEntry | None = None
    ) -> list[Change]:
        """Returns the changes that replace fields and store the outgoing version as history. Without a new entry a new
        context or time, or new tags, replace the terms alone, and the vectors stay."""
        update, *past = super().revise(record, changed, now, entry)
        if entry is None and needs_new_terms(changed) and isinstance(update, Update):
            update = replace(update, text=passage(record | changed).indexed())
        return [update, *past]

    def retire(self, memory: MemoryRecord, by: str, now: str, *, merged: bool = False) -> list[Change]:
        """Returns the changes that mark a memory as superseded.

        `merged`: the memory `by` says the same, so this one does not come back when `by` is deleted.
        """
        return self.revise(memory, {"status": "superseded", "superseded_by": by, "merged": merged}, now)


async def _identities(memories: Sequence[MemoryRecord]) -> list[int]:
    size = characters([[memory["content"], memory["context"], memory["metadata"]] for memory in memories])
    return await off_loop(size, lambda: list(map(identity_hash, memories)))
