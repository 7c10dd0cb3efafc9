"""Memories as they are stored: their vectors and terms, how one is made and revised, queries over them and their
history, and the changes that store, revise, supersede and remove them."""

import asyncio
import logging
from calendar import monthrange
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import blake2b
from itertools import accumulate
from typing import Generic

import numpy as np
import orjson

from app.core import prompt_text
from app.core.characters import says_nothing
from app.core.clock import new_id, next_occurrence, parse_rfc3339, rfc3339
from app.core.schemas import differing
from app.core.work import characters, in_parts, off_loop
from app.embedding.embedder import Embedder
from app.embedding.model import Vectors
from app.errors import Conflict, EmbeddingUnavailable, Forbidden, invalid
from app.memories import schemas
from app.storage.changes import Change, Delete, DeleteWhere, IndexEntry, Insert, Update
from app.storage.protocol import Store
from app.storage.record_filters import metadata_terms
from app.storage.repository import Repository, expired, pages
from app.storage.schema import Absent, BaseRecord, Collection, Eq, Filter, In, OwnedRecord, R, both, value_at
from app.storage.scope import SYSTEM, Scope
from app.storage.text import IndexedTerms, content_hash, index_text, normalise_content

# --- The vectors and terms of records that are about to be written ----------------------------------------------------
# If the embedding model fails, the write still succeeds: the commit that stores the record without a vector lists it,
# and the job `embed_pending` (`memories/reembed.py`) works the list off.

log = logging.getLogger(__name__)
HARMLESS = "word"
"""A text that every working model accepts. All files are embedded as it, so their vectors are the same."""


@dataclass(frozen=True, slots=True)
class TextToIndex:
    """A text to be indexed: its words, context, time and tags become terms, its content becomes a vector.

    A text that is longer than the model's input has one vector for each of its windows.
    """

    content: str
    context: str | None = None
    time: datetime | None = None
    tags: tuple[str, ...] = ()

    def length(self) -> int:
        """Returns the characters that are read for its terms."""
        return len(self.content) + len(self.context or "") + sum(map(len, self.tags))

    def indexed(self) -> IndexedTerms:
        """Returns the terms of the text."""
        return index_text(self.content, self.context, self.time, self.tags)


class Embeddings:
    """Embeds the texts of one request. Each text is embedded once, however often the write is planned."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._made: dict[str, Vectors] = {}

    async def entries(self, texts: Sequence[TextToIndex]) -> list[IndexEntry]:
        """Returns the index entry of each text, without a vector if the embedder failed."""
        missing = list(dict.fromkeys(text.content for text in texts if text.content not in self._made))
        embedding = asyncio.create_task(self._embed(missing))
        try:
            await asyncio.sleep(0)  # the model begins with the first text, and the terms are read meanwhile
            indexed = await in_parts(texts, TextToIndex.indexed, TextToIndex.length)
            await embedding
        finally:
            embedding.cancel()
        entries = list[IndexEntry]()
        for text, terms in zip(texts, indexed, strict=True):
            made = self._made.get(text.content)  # shape (windows, dim)
            vector, further = (None, None) if made is None else (made[0], made[1:] if len(made) > 1 else None)
            entries.append(IndexEntry(terms, vector, self._embedder.name, further))
        return entries

    async def _embed(self, contents: Sequence[str]) -> None:
        """Adds the vectors of these texts; if the embedder fails, none."""
        try:
            windows = await self._embedder.windows(contents)
            vectors = await self._embedder.embed_texts([window for parts in windows for window in parts])
        except EmbeddingUnavailable as error:
            log.warning("embedding failed", extra={"error": error.detail, "texts": len(contents)})
        else:
            ends = list(accumulate(map(len, windows)))  # [1, 4] of two texts with 1 and 3 windows: split at 1
            self._made.update(zip(contents, np.split(vectors, ends[:-1]), strict=True) if contents else ())

    async def entries_each(self, texts: Sequence[TextToIndex]) -> list[IndexEntry]:
        """Returns the same as `entries`, for texts of many callers. A text that the model refuses does not affect the
        others.

        Raises EmbeddingUnavailable if the model accepts no text at all.
        """
        if not texts:
            return []
        entries = await self.entries(texts)
        if any(entry.vector is not None for entry in entries):
            return entries
        await self._embedder.embed_texts([HARMLESS])
        if len(texts) == 1:
            return entries
        middle = len(texts) // 2  # one refused text fails its whole batch: search for it by halves
        halves = texts[:middle], texts[middle:]
        return [entry for half in halves for entry in await self.entries_each(half)]

    def info(self, entry: IndexEntry) -> schemas.EmbeddingInfo:
        """Returns the value of a record's field `embedding`."""
        status: schemas.EmbeddingStatus = "pending" if entry.vector is None else "ready"
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
    text_to_index: Callable[[R], TextToIndex]
    fields: Callable[[schemas.EmbeddingInfo], R]
    needs_new_entry: Callable[[R], bool] = lambda changed: True
    """Returns whether a change of these fields needs a new index entry."""


# --- New and revised memories -----------------------------------------------------------------------------------------

SOURCE: schemas.Source = {
    "origin": "api",
    "session_id": None,
    "message_seq": None,
    "said_at": None,
    "speaker": None,
    "role": None,
    "action_ids": [],
    "memory_ids": [],
    "url": None,
    "note": None,
    "model": None,
    "prompt_version": None,
    "quote": None,
    "api_key_id": None,
}
"""The fields of a memory's `source`, with their defaults."""


SMALL_TALK_IMPORTANCE = 0.05
"""Importance of the memory of a message without content. A caller that raises it makes searches find the memory."""
IDENTITY = (
    "content",
    "context",
    "event_at",
    "event_at_precision",
    "due_at",
    "rrule",
    "valid_from",
    "valid_until",
    "expires_at",
    "key",
    "metadata",
)
"""Fields that distinguish two memories of the same partition and type, in the order in which they are hashed."""


DUE = ("due_at", "surface_at", "done_at", "rrule")
"""Fields from which `when_due` makes `due_from`, and the next time of what recurs."""


TIMELESS = "9999-12-31T00:00:00.000Z"
"""Where the decay of a memory begins that does not fade."""


def new_memory(fields: schemas.MemoryRecord, source: schemas.Source, now: str, *, unique: bool) -> schemas.MemoryRecord:
    """Returns a new memory of `fields` (those of `MemoryCreate`; `deduplicate` and `on_similar` are not stored).

    `unique`: no equal active memory may exist in its partition.
    """
    importance = fields["importance"]
    memory: schemas.MemoryRecord = {
        "memory_id": new_id("mem"),
        "agent_id": fields.get("agent_id"),
        "user_id": fields.get("user_id"),
        "key": fields.get("key"),
        "memory_type": fields["memory_type"],
        "content": fields["content"],
        "context": fields.get("context"),
        "importance": importance,
        "base_importance": importance,
        "trust": fields.get("trust", 1.0),
        "tags": list(dict.fromkeys(fields.get("tags", []))),
        "metadata": fields.get("metadata", {}),
        "metadata_terms": metadata_terms(fields.get("metadata", {})),
        "pinned": fields.get("pinned", False),
        "always": fields.get("always"),
        "status": "active",
        "supersedes": [],
        "superseded_by": None,
        "merged": False,
        "contradicts": [],
        "claimed_key": None,
        "source": {**SOURCE, **source},
        **own_time(fields.get("event_at"), fields.get("event_at_precision")),
        **when_due(fields),
        "valid_from": fields.get("valid_from"),
        "valid_until": fields.get("valid_until"),
        "expires_at": fields.get("expires_at"),
        "last_accessed": None,
        "access_count": 0,
        "helpful_count": 0,
        "misleading_count": 0,
        "anchored_at": TIMELESS if fields["memory_type"] in schemas.KEPT_AS_IS else now,
        "content_hash": content_hash(fields["content"]),
        "embedding": {**schemas.NOT_EMBEDDED},
        "version": 1,
        "created_at": now,
        "updated_at": now,
    }
    memory["identity_hash"] = identity_hash(memory)
    # "fact:-81985529216486896": of two requests that store equal memories at once, the second one finds the first
    memory["dedupe_key"] = f"{memory['memory_type']}:{memory['identity_hash']}" if unique else None
    memory["standing"] = standing(memory)
    return memory


def own_time(event_at: str | None, precision: schemas.EventPrecision | None) -> schemas.MemoryChange:
    """Returns the fields that say when a memory happens: `event_until` of 2026-12 is 2026-12-31T23:59:59.999Z."""
    if event_at is None or precision in (None, "instant"):
        return {
            "event_at": event_at,
            "event_at_precision": None if event_at is None else "instant",
            "event_until": event_at,
        }
    date = event_at[:10]
    first, last = date, date
    if precision == "month":
        first, last = f"{date[:8]}01", f"{date[:8]}{monthrange(int(date[:4]), int(date[5:7]))[1]}"
    elif precision == "year":
        first, last = f"{date[:5]}01-01", f"{date[:5]}12-31"
    return {
        "event_at": f"{first}T00:00:00.000Z",
        "event_at_precision": precision,
        "event_until": f"{last}T23:59:59.999Z",
    }


DAY_BEFORE = timedelta(days=1)
"""What is due shows so long before in prompts."""


def when_due(fields: schemas.MemoryRecord) -> schemas.MemoryChange:
    """Returns the fields that say what is to be done. What recurs and was done is due at its next time, which surfaces
    as long before it; at its last time it is done."""
    due_at, surface_at, rrule = fields.get("due_at"), fields.get("surface_at"), fields.get("rrule")
    done_at = fields.get("done_at")
    if due_at and rrule and done_at and (coming := next_occurrence(rrule, due_at, max(due_at, done_at))):
        if surface_at is not None:
            lead = parse_rfc3339(due_at) - parse_rfc3339(surface_at)
            surface_at = rfc3339(parse_rfc3339(coming) - lead) if lead >= timedelta() else None
        due_at, done_at = coming, None
    due_from = None
    if due_at and not done_at:
        begins = max(parse_rfc3339(due_at), _FIRST + DAY_BEFORE) - DAY_BEFORE
        due_from = max(rfc3339(begins), surface_at or "")
    return {
        "due_at": due_at,
        "surface_at": surface_at,
        "done_at": done_at,
        "rrule": rrule,
        "due_from": due_from,
    }


_FIRST = datetime.min.replace(tzinfo=UTC)
"""Where the calendar begins. What is due at 0001-01-01T08:00Z surfaces here, as there is no day before."""


def told_at(memory: schemas.MemoryRecord) -> str:
    """Returns when a memory was told: in its message, else when it was stored. Who stores what happened before tells of
    that time: an import of May's notes is known in May. As a filter it is `told_by` (memories/search.py)."""
    stored = memory["created_at"]
    return memory["source"].get("said_at") or min(memory["event_at"] or stored, stored)


def is_rule(memory: schemas.MemoryRecord) -> bool:
    """Returns whether a memory is a rule: pinned, or an instruction."""
    return bool(memory.get("pinned")) or memory.get("memory_type") == "instruction"


def standing(memory: schemas.MemoryRecord) -> str | None:
    """Returns the mark of a file, of a rule, or of a message that searches leave out ("ok, thanks"), or None."""
    if memory["memory_type"] == schemas.FILE:
        return schemas.FILE
    if is_rule(memory):
        return schemas.RULE_MARK
    unimportant = memory["memory_type"] == "message" and memory["base_importance"] <= SMALL_TALK_IMPORTANCE
    return schemas.SMALL_TALK if unimportant and says_nothing(memory["content"]) else None


def happened_at(memory: schemas.MemoryRecord) -> str | None:
    """Returns the time that distinguishes a memory from equal ones: `event_at`, or, of a learned experience without
    one, when it was told."""
    learned = memory["source"]["origin"] == "extraction" and memory["memory_type"] == "experience"
    return memory["event_at"] or (memory["source"].get("said_at") if learned else None)


def identity_hash(memory: schemas.MemoryRecord) -> int:
    """Returns a signed 64-bit hash of the `IDENTITY` fields, with `happened_at` in place of `event_at`. Texts that
    differ only in case, width or white space are equal.

    The time when it was told distinguishes two learned experiences without a time of their own, but not two
    preferences or facts: these are the same each time they are said.
    """
    compared = {
        "content": normalise_content(memory["content"]),
        "context": normalise_content(memory["context"]) if memory["context"] else None,
        "event_at": happened_at(memory),
        "event_at_precision": None if memory["event_at"] is None else memory.get("event_at_precision"),
        "metadata": sorted(metadata_terms(memory["metadata"])),
    }
    parts = [compared[name] if name in compared else value_at(memory, name) for name in IDENTITY]
    return int.from_bytes(blake2b(orjson.dumps(parts), digest_size=8).digest(), "big", signed=True)


def revision(memory: schemas.MemoryRecord, fields: schemas.MemoryChange, now: str) -> schemas.MemoryChange:
    """Returns the stored fields that a caller's change sets, including computed ones; empty if nothing changes."""
    if "event_at" in fields or "event_at_precision" in fields:  # a new time without a precision is an instant
        fields = fields | own_time(fields.get("event_at", memory["event_at"]), fields.get("event_at_precision"))
    if not fields.keys().isdisjoint(DUE):
        fields = fields | when_due(memory | fields)
    if "tags" in fields:
        fields = fields | {"tags": list(dict.fromkeys(fields["tags"]))}
    changed = differing(memory, fields)
    if "memory_type" in changed and schemas.FILE in (memory["memory_type"], changed["memory_type"]):
        raise invalid("/memory_type", "a file stays a file, and nothing else becomes one")
    changed.pop("importance", None)
    if "importance" in fields:  # also where it is the stored one: .8 that has faded to .3 begins anew at .8
        anchor = TIMELESS if memory["memory_type"] in schemas.KEPT_AS_IS else now
        changed |= {"importance": fields["importance"], "base_importance": fields["importance"], "anchored_at": anchor}
    if "metadata" in changed:
        changed["metadata_terms"] = metadata_terms(changed["metadata"])
    if "status" in changed:
        changed |= {"archived_by": None, "archived_at": None}  # set by a caller, so retention does not purge it
        if memory["status"] == "superseded":
            changed |= {"superseded_by": None, "merged": False}
    if "content" in changed:
        changed["content_hash"] = content_hash(changed["content"])
    if not changed.keys().isdisjoint(("memory_type", "pinned", "content", "base_importance")):
        changed["standing"] = standing(memory | changed)
    if not changed.keys().isdisjoint(("memory_type", *IDENTITY)):
        changed["identity_hash"] = identity_hash(memory | changed)
    if not changed.keys().isdisjoint(("memory_type", "status", *IDENTITY)):
        changed["dedupe_key"] = None  # a memory that a change made equal to another may stay beside it
    return changed


def is_word_for_word(memory: schemas.MemoryRecord, original: schemas.MemoryRecord) -> bool:
    """Returns whether a learned memory has exactly the text of the memory `original` that it was learned from."""
    learned = original["memory_id"] in memory["source"]["memory_ids"] and memory["context"] is None
    return learned and memory["content_hash"] == original["content_hash"]


def word_for_word_original(
    memory: schemas.MemoryRecord, originals: Mapping[str, schemas.MemoryRecord]
) -> schemas.MemoryRecord | None:
    """Returns the one of `originals`, memories by id, from which a memory was learned word for word, or None."""
    named = (originals.get(memory_id) for memory_id in memory["source"]["memory_ids"])
    return next((each for each in named if each is not None and is_word_for_word(memory, each)), None)


def text_to_index(memory: schemas.MemoryRecord) -> TextToIndex:
    """Returns the text by which a memory is found; of a file, which is not found, a word that says nothing of it."""
    if memory["memory_type"] == schemas.FILE:
        return TextToIndex(HARMLESS)
    event_at, tags = memory["event_at"] or memory.get("due_at"), tuple(memory["tags"])
    time = parse_rfc3339(event_at) if event_at else None
    if time and (precision := memory.get("event_at_precision")) in ("month", "year"):  # found by its words, by no day
        tags, time = (*tags, f"{time:%B %Y}" if precision == "month" else f"{time:%Y}"), None
    return TextToIndex(memory["content"], memory["context"], time, tags)


def needs_new_entry(changed: schemas.MemoryChange) -> bool:
    """Returns whether a change of these fields needs a new vector: that of a memory is of its content alone."""
    return "content" in changed


def needs_new_terms(changed: schemas.MemoryChange) -> bool:
    """Returns whether a change of these fields changes the words by which a memory is found (`text_to_index`)."""
    return not changed.keys().isdisjoint(("content", "context", "event_at", "event_at_precision", "due_at", "tags"))


def speaker_of(source: schemas.Source) -> str | None:
    """Returns who said what a memory holds, as it can stand before the text. None: nobody is named."""
    role, name = source.get("role"), source.get("speaker")
    return prompt_text.speaker(role, name) if role and name else None


EQUAL_AT_ONCE = 10
DISPUTED_AT_ONCE = 100


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
    """A repository of searchable records that keeps each replaced version as history.

    `update` changes fields, `revise` stores the outgoing version besides, and `rewritten` embeds a new text first, as
    `add` does. `as_updated` returns the record as these leave it, without any change.
    """

    def __init__(
        self, store: Store, scope: Scope, kind: Embeddable[R], history: Collection[schemas.HistoryRecord[R]]
    ) -> None:
        super().__init__(store, scope, kind.collection)
        self._kind, self.history = kind, Repository(store, scope, history)

    async def add(self, record: R, embeddings: Embeddings, entry: IndexEntry | None = None) -> tuple[R, list[Change]]:
        """Returns a new record with its field `embedding`, and the changes that store it with its index entry: `entry`,
        or one that is made here."""
        if entry is None:
            (entry,) = await embeddings.entries([self._kind.text_to_index(record)])
        record = self.collection.as_record({**record, "embedding": embeddings.info(entry)})
        return record, [self.insert(record, entry), *self._note_if_pending(record)]

    def _note_if_pending(self, record: R) -> list[Change]:
        """Returns the change that lists a record without a vector for the embedding backfill, if it has none."""
        if record["embedding"]["status"] == "ready":
            return []
        record_id = record[self.collection.id_field]
        return [pending_note(self.collection, self.scope.tenant, record_id, record["updated_at"])]

    async def rewritten(
        self, record: R, changed: R, now: str, embeddings: Embeddings, entry: IndexEntry | None = None
    ) -> tuple[R, list[Change]]:
        """Returns a record with these fields at its next version, and the changes that store it. If its text changes,
        it gets a new index entry: `entry`, or one that is made here. Without fields nothing changes. Of `mem_1` at
        version 3 the changes are the `Update` of these fields, which expects version 3, and the `Insert` of version 3
        as history."""
        if not changed:
            return record, []
        if entry is None and self._kind.needs_new_entry(changed):
            (entry,) = await embeddings.entries([self._kind.text_to_index(self.as_updated(record, changed, now=now))])
        if entry is not None:
            changed = self.collection.as_record({**changed, "embedding": embeddings.info(entry)})
        new = self.as_updated(record, changed, now=now)
        pending = [] if entry is None else self._note_if_pending(new)
        return new, [*self.revise(record, changed, now, entry), *pending]

    def revise(self, record: R, changed: R, now: str, entry: IndexEntry | None = None) -> list[Change]:
        """Returns the changes that replace fields and store the outgoing version as history."""
        past: schemas.HistoryRecord[R] = {
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
        return [self.update(record, changed, now=now, entry=entry), Insert(self.history.collection, past)]

    def remove(self, records: Sequence[R]) -> list[Change]:
        """Returns the changes that delete records, at the versions that were read, and their history."""
        deletes: list[Change] = [self.delete(record) for record in records]
        ids = tuple(record[self.collection.id_field] for record in records)
        return [*deletes, DeleteWhere(self.history.collection, self.scope.tenant, In("record_id", ids))]


MEMORY: Embeddable[schemas.MemoryRecord] = Embeddable(
    schemas.MEMORIES, text_to_index, lambda embedding: {"embedding": embedding}, needs_new_entry
)


class MemoryRepository(VersionedRepository[schemas.MemoryRecord]):
    """Memories, with their history and feedback."""

    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__(store, scope, MEMORY, schemas.HISTORY)

    async def with_key(self, agent: str | None, user: str | None, key: str) -> list[schemas.MemoryRecord]:
        """Returns the active memory with this key in a partition: at most one, and it may have expired."""
        return await self.find(both(of_partition(agent, user), Eq("key", key), Eq("status", "active")), limit=1)

    async def free_key(self, memory: schemas.MemoryRecord, key: str, besides: Sequence[str], now: str) -> list[Change]:
        """Returns the changes that free `key` for `memory`: an expired memory with it is removed, and a dispute with
        that one goes on with `memory`.

        Raises Conflict if an active memory of the partition, besides those of these ids, has it.
        """
        holders = await self.with_key(memory["agent_id"], memory["user_id"], key)
        others = [holder for holder in holders if holder["memory_id"] not in besides]
        if not all(expired(other, now) for other in others):
            raise Conflict(
                f"Another active memory of the same agent_id and user_id has the key {key}: change that one first."
            )
        if not others:
            return []
        return [*self.remove(others), *await self.disputes_over(others, now, [memory | {"key": key}])]

    async def equal(
        self, memory: schemas.MemoryRecord, now: str, status: schemas.MemoryStatus = "active"
    ) -> list[schemas.MemoryRecord]:
        """Returns the memories of this status, partition and type that are equal to `memory`, a new one, in the
        `IDENTITY` fields.

        They come oldest first, up to the page that has the first unexpired one. Their hashes are computed anew: what
        was learned from a message word for word is stored with the hash of that message (`word_for_word_original`).
        """
        where = both(
            of_partition(memory["agent_id"], memory["user_id"]),
            Eq("content_hash", memory["content_hash"]),
            Eq("memory_type", memory["memory_type"]),
            Eq("status", status),
        )
        wanted = memory["identity_hash"]
        equal = list[schemas.MemoryRecord]()
        async for page in pages(partial(self.find, where), schemas.MEMORIES, EQUAL_AT_ONCE):
            equal += [other for other, found in zip(page, await _identities(page), strict=True) if found == wanted]
            # `expires_at` is in `IDENTITY`, so they expire when `memory` does: before, the first page ends it
            if any(not expired(other, now) for other in equal):
                break
        return equal

    async def of_same_partition(
        self, memory: schemas.MemoryRecord, memory_ids: Sequence[str]
    ) -> list[schemas.MemoryRecord]:
        """Returns those of `memory_ids` that exist and belong to the partition of `memory`, in the order given."""
        memories = await self.get_many(memory_ids)
        named = (memories.get(memory_id) for memory_id in dict.fromkeys(memory_ids))
        return [other for other in named if other is not None and same_partition(other, memory)]

    # --- Changes ------------------------------------------------------------------------------------------------------

    def require_write(self, doc: schemas.MemoryRecord) -> None:
        """Raises Conflict for a passage of a document, and Forbidden if the caller may not store, change or delete this
        memory: it is of others, or it is a rule and the caller is a model, which may have read what it writes in a page
        or a mail."""
        super().require_write(doc)
        if doc.get("memory_type") == "document":
            raise Conflict("It is a passage of a document: send the file again, or delete the document.")
        if not self.scope.rules and is_rule(doc):
            raise Forbidden(
                "An instruction or a pinned memory is a rule, and a model neither stores nor changes nor deletes one: "
                "use preference. The service's setting RECALLD_MCP_INSTRUCTIONS=on allows it."
            )

    def delete(self, doc: schemas.MemoryRecord) -> Delete:
        """As of any record, and its links must not have changed: of "one", "two", "three", each of which supersedes the
        one before, a deletion of "two" hands "one" over to "three", whose version stays. Nor `disputes`: a dispute with
        it that begins at this moment would be with nobody."""
        made = super().delete(doc)
        links = {name: doc.get(name) for name in ("supersedes", "superseded_by", "disputes")}
        return replace(made, expect={**made.expect, **links})

    def remove(self, records: Sequence[schemas.MemoryRecord]) -> list[Change]:
        """Returns the changes that delete memories, at the versions that were read, with their history, feedback notes
        and statements."""
        of_memories = In("memory_id", tuple(memory["memory_id"] for memory in records))
        others: tuple[Collection, ...] = (schemas.FEEDBACK, schemas.STATEMENTS)
        return [*super().remove(records), *(DeleteWhere(each, self.scope.tenant, of_memories) for each in others)]

    def revise(
        self, record: schemas.MemoryRecord, changed: schemas.MemoryRecord, now: str, entry: IndexEntry | None = None
    ) -> list[Change]:
        """Returns the changes that replace fields and store the outgoing version as history. Without a new entry a new
        context or time, or new tags, replace the terms alone, and the vectors stay."""
        update, *past = super().revise(record, changed, now, entry)
        if entry is None and needs_new_terms(changed) and isinstance(update, Update):
            update = replace(update, terms=text_to_index(record | changed).indexed())
        return [update, *past]

    def supersede(self, memory: schemas.MemoryRecord, by: str, now: str, *, merged: bool = False) -> list[Change]:
        """Returns the changes that mark a memory as superseded.

        `merged`: the memory `by` says the same, so this one does not come back when `by` is deleted.
        """
        return self.revise(memory, {"status": "superseded", "superseded_by": by, "merged": merged}, now)

    async def disputes_over(
        self, gone: Sequence[schemas.MemoryRecord], now: str, heirs: Sequence[schemas.MemoryRecord] = ()
    ) -> list[Change]:
        """Returns the changes for the memories that are disputed for `gone` alone, which are being deleted: they become
        active, with the key that they were sent with. If another memory has that key, that one is what they contradict
        from then on. `heirs`: memories that may have it after this commit, such as those that come back."""
        changes, keys = list[Change](), dict[str, str]()
        ids, heir_ids = {memory["memory_id"] for memory in gone}, {memory["memory_id"] for memory in heirs}
        for agent, user in {(memory.get("agent_id"), memory.get("user_id")) for memory in gone}:  # one may be damaged
            of_partition_disputed = both(of_partition(agent, user), Eq("status", "disputed"))
            async for page in pages(partial(self.find, of_partition_disputed), schemas.MEMORIES, DISPUTED_AT_ONCE):
                for disputed in page:
                    contradicts = disputed.get("contradicts", [])
                    others = [other for other in contradicts if other not in ids]
                    if disputed["memory_id"] in ids | heir_ids or len(others) == len(contradicts):
                        continue
                    remaining = await self.of_same_partition(disputed, others)
                    if any(other["status"] == "active" and not expired(other, now) for other in remaining):
                        continue
                    key = disputed["claimed_key"]
                    if key is not None and key not in keys:
                        holders = [*await self.with_key(agent, user, key), *heirs]
                        held = (other["memory_id"] for other in holders if other["key"] == key)
                        keys[key] = next((other for other in held if other not in ids), disputed["memory_id"])
                    if key is not None and keys[key] != disputed["memory_id"]:
                        changes += self.revise(disputed, {"contradicts": [keys[key]]}, now)
                    else:
                        changes += self.settled(disputed, {"status": "active", "key": key}, now)[1]
        return changes

    def settled(
        self, disputed: schemas.MemoryRecord, fields: schemas.MemoryRecord, now: str
    ) -> tuple[schemas.MemoryRecord, list[Change]]:
        """Returns a disputed memory with these fields, no longer against any other, and the changes."""
        fields = fields | {"contradicts": [], "claimed_key": None}
        fields["identity_hash"] = identity_hash(disputed | fields)  # the hash includes the key
        new = self.as_updated(disputed, fields, now=now)
        return new, self.revise(disputed, fields, now)


async def _identities(memories: Sequence[schemas.MemoryRecord]) -> list[int]:
    size = characters([[memory["content"], memory["context"], memory["metadata"]] for memory in memories])
    return await off_loop(size, lambda: list(map(identity_hash, memories)))
