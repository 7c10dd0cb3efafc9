"""Queries over memories, their history and their pending embeddings."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from app.core.clock import new_id
from app.errors import invalid
from app.memories.embedding import Embeddings
from app.memories.models import FEEDBACK, HISTORY, MEMORIES
from app.memories.narrowing import SplitFilter, by_metadata, by_tags
from app.memories.pending import MEMORY, Embeddable, pending_note
from app.memories.records import identity_hash, passage, repeats
from app.storage.changes import Change, DeleteWhere, IndexEntry, Insert, Update
from app.storage.protocol import Store
from app.storage.repository import Listing, Repository, between, expired, having, pages
from app.storage.schema import Absent, Collection, Doc, Eq, Filter, Has, In, Range, both
from app.storage.scope import Scope

EQUAL_AT_ONCE = 10


def of_pair(agent: str | None, user: str | None) -> Filter:
    """Returns the filter for one partition. None matches only records without an agent, or without a user."""
    return both(
        Absent("agent_id") if agent is None else Eq("agent_id", agent),
        Absent("user_id") if user is None else Eq("user_id", user),
    )


def same_pair(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Returns whether both records belong to the same partition: the same agent and the same user."""
    return all(one[owner] == other[owner] for owner in ("agent_id", "user_id"))


class VersionedRepository(Repository):
    """A repository of searchable records that keeps each replaced version as history."""

    def __init__(self, store: Store, scope: Scope, kind: Embeddable, history: Collection) -> None:
        super().__init__(store, scope, kind.collection)
        self._kind, self._history = kind, Repository(store, scope, history)

    async def history_page(self, doc_id: str, listing: Listing) -> tuple[list[Doc], str | None]:
        """Returns one page of the earlier versions of a record, and the cursor of the next page."""
        return await self._history.page(Eq("record_id", doc_id), listing, mark=doc_id)

    def add(self, doc: Doc, entry: IndexEntry) -> list[Change]:
        """Returns the changes that store a new record with its index entry."""
        return [self.insert(doc, entry), *self.note_pending(doc)]

    def note_pending(self, doc: Doc) -> list[Change]:
        """Returns the change that lists a record without a vector for the embedding backfill, if it has none."""
        if doc["embedding"]["status"] == "ready":
            return []
        return [pending_note(self.collection, self.scope.tenant, doc[self.collection.id_field], doc["updated_at"])]

    async def added(self, doc: Doc, embeddings: Embeddings) -> tuple[Doc, list[Change]]:
        """Returns a new record with its field `embedding`, and the changes that store it with its index entry."""
        (entry,) = await embeddings.entries([self._kind.passage(doc)])
        doc = doc | {"embedding": embeddings.info(entry)}
        return doc, self.add(doc, entry)

    async def rewritten(self, doc: Doc, changed: Doc, now: str, embeddings: Embeddings) -> tuple[Doc, list[Change]]:
        """Returns a record with these fields at its next version, and the changes that store it. If its text changes,
        it gets a new index entry. Without fields nothing changes."""
        if not changed:
            return doc, []
        entry, pending = None, list[Change]()
        if self._kind.needs_new_entry(changed):
            (entry,) = await embeddings.entries([self._kind.passage(doc | changed)])
            changed = changed | {"embedding": embeddings.info(entry)}
            pending = self.note_pending(doc | changed | {"updated_at": now})
        new = doc | changed | {"version": doc["version"] + 1, "updated_at": now}
        return new, [*self.revise(doc, changed, now, entry), *pending]

    def revise(self, doc: Doc, changed: Doc, now: str, entry: IndexEntry | None = None) -> list[Change]:
        """Returns the changes that replace fields and store the outgoing version as history."""
        return [self.update(doc, changed, now=now, entry=entry), self._past(doc, now)]

    def _past(self, doc: Doc, now: str) -> Insert:
        """Returns the insert that stores the outgoing version as history."""
        named = {name: doc[name] for name in ("agent_id", "user_id", "version")}
        past = {"history_id": new_id("hist"), "record_id": doc[self.collection.id_field], "record": doc}
        changed = {"changed_at": now, "changed_by": self.scope.key_id}
        return Insert(self._history.collection, {"tenant_id": self.scope.tenant, **named, **past, **changed})

    def remove(self, docs: Sequence[Doc]) -> list[Change]:
        """Returns the changes that delete records, at the versions that were read, and their history."""
        deletes: list[Change] = [self.delete(doc) for doc in docs]
        ids = tuple(doc[self.collection.id_field] for doc in docs)
        return [*deletes, DeleteWhere(self._history.collection, self.scope.tenant, In("record_id", ids))]


class MemoryRepository(VersionedRepository):
    """Memories, with their history and feedback."""

    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__(store, scope, MEMORY, HISTORY)

    async def with_key(self, agent: str | None, user: str | None, key: str) -> list[Doc]:
        """Returns the active memory with this key in a partition: at most one, and it may have expired."""
        return await self.find(both(of_pair(agent, user), Eq("key", key), Eq("status", "active")), limit=1)

    async def equal(self, doc: Doc, now: str, status: str = "active") -> list[Doc]:
        """Returns the memories of this status, partition and type that are equal to `doc` in the fields
        `records.IDENTITY`.

        They come oldest first, up to the page that has the first unexpired one.
        """
        where = both(
            of_pair(doc["agent_id"], doc["user_id"]),
            Eq("content_hash", doc["content_hash"]),
            Eq("memory_type", doc["memory_type"]),
            Eq("status", status),
        )
        wanted, found = identity_hash(doc), list[Doc]()
        async for docs in pages(partial(self.find, where), MEMORIES, EQUAL_AT_ONCE):
            found += [one for one in docs if identity_hash(one) == wanted]
            if any(not expired(one, now) for one in found):
                break
        return found

    async def repeating(self, doc: Doc) -> list[Doc]:
        """Returns the active memories that were learned from `doc` word for word (`records.repeats`)."""
        where = of_pair(doc["agent_id"], doc["user_id"]), Eq("content_hash", doc["content_hash"])
        return [one for one in await self.find(both(*where, Eq("status", "active"))) if repeats(one, doc)]

    async def saying(self, memory_id: str) -> list[Doc]:
        """Returns a memory and the active ones that were learned from it word for word: a search finds any one of them.
        Empty if it does not exist or is outside the scope."""
        doc = await self.find_one(memory_id)
        return [] if doc is None else [doc, *await self.repeating(doc)]

    async def of_same_pair(self, doc: Doc, memory_ids: Sequence[str]) -> list[Doc]:
        """Returns those of `memory_ids` that exist and belong to the partition of `doc`, in the order given."""
        found = await self.get_many(memory_ids)
        return [found[each] for each in dict.fromkeys(memory_ids) if each in found and same_pair(found[each], doc)]

    # --- Changes ------------------------------------------------------------------------------------------------------

    def remove(self, docs: Sequence[Doc]) -> list[Change]:
        """Returns the changes that delete memories, at the versions that were read, with their history and feedback
        notes."""
        ids = tuple(doc["memory_id"] for doc in docs)
        return [*super().remove(docs), DeleteWhere(FEEDBACK, self.scope.tenant, In("memory_id", ids))]

    def revise(self, doc: Doc, changed: Doc, now: str, entry: IndexEntry | None = None) -> list[Change]:
        """Returns the changes that replace fields and store the outgoing version as history. New tags without a new
        entry replace the terms alone."""
        update, *past = super().revise(doc, changed, now, entry)
        if entry is None and "tags" in changed and isinstance(update, Update):
            update = replace(update, text=passage(doc | changed).indexed())
        return [update, *past]

    def retire(self, doc: Doc, by: str, now: str, *, merged: bool = False) -> list[Change]:
        """Returns the changes that mark a memory as superseded.

        `merged`: the memory `by` says the same, so this one does not come back when `by` is deleted.
        """
        return self.revise(doc, {"status": "superseded", "superseded_by": by, "merged": merged}, now)


def of_session(filters: Mapping[str, Any]) -> list[Filter]:
    """Returns the filters for records whose source is a session, or messages of it.

    `after_seq` and `before_seq` exclude their own message. Raises Invalid if they are given without a session.
    """
    session, after, before = (filters.get(name) for name in ("session_id", "after_seq", "before_seq"))
    if session is not None:
        of = Eq("source.session_id", session)
        return [of] if after is None and before is None else [of, Range("source.message_seq", gt=after, lt=before)]
    for name in ("after_seq", "before_seq"):
        if filters.get(name) is not None:
            raise invalid(f"/query/{name}", "session_id is required with it: messages are numbered in their session")
    return []


def listed(filters: Mapping[str, Any]) -> SplitFilter:
    """Returns the filter of a list or a deletion. Each filter matches exactly; shared memories are not added."""
    status, metadata = filters.get("status"), by_metadata(filters.get("metadata"))
    where = both(
        having(filters, "agent_id", "user_id", "key", "memory_type"),
        None if status in (None, "any") else Eq("status", status),
        *of_session(filters),
        None if filters.get("origin") is None else Eq("source.origin", filters["origin"]),
        None if filters.get("tag") is None else Has("tags", filters["tag"]),
        by_tags(filters.get("tags"), filters.get("tags_match") or "any", filters.get("exclude_tags")),
        metadata.where,
        having(filters, "pinned"),
        between("created_at", filters.get("since"), filters.get("until")),
    )
    return SplitFilter(where, metadata.keep)
