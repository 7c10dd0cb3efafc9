"""Executes one list of changes in a transaction: read the documents it names, compute, write once for each collection.

Documents are computed here, not by the server, so that unique keys, packed records and expectations mean exactly the
same as in the embedded engine. The transaction's snapshot makes this safe: if another writer changes a document that we
write, one of the two transactions is retried. A document that is named twice in a list is written in between.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from bson.int64 import Int64
from pymongo import ReturnDocument

from app.storage.change_log import ChangeNotes
from app.storage.changes import (
    Allocate,
    Change,
    CommitConflict,
    Committed,
    Delete,
    DeleteWhere,
    Insert,
    Update,
    WithinQuota,
    resolve,
    stale,
)
from app.storage.mongo import codec
from app.storage.mongo.bulk import TransactionWrites, WriteError
from app.storage.mongo.change_log import append
from app.storage.mongo.codec import (
    OWN,
    PARTITION,
    PLAIN,
    ROW,
    SEPARATOR,
    Stored,
    decoded,
    encode,
    key,
    known_in,
    new_document,
    parts,
    unique_keys,
    unique_path,
)
from app.storage.mongo.connection import COUNTERS, DUPLICATE_KEY
from app.storage.mongo.partitions import PartitionWriting, add_own, counter_key, owner, partition_key
from app.storage.mongo.transactions import Retry
from app.storage.mongo.usage import UsageWriting, usage_of
from app.storage.records import unreadable
from app.storage.schema import Collection, Doc

WRITES = f"{OWN}.writes"
"""Makes every update a write, so that two that only check expectations exclude each other."""


def competing(changes: Sequence[Change], slot: int) -> tuple[set[str], set[str]]:
    """Returns the keys of what the list cannot share with another writer, and those of the partitions of its inserts.
    `slot` is that of the usage it changes."""
    keys, partitions = set[str](), set[str]()
    for change in changes:
        match change:
            case Allocate():
                keys.add(counter_key(change.tenant, change.name))
            case Update() | Delete():
                keys.add(f"{change.collection.name} {key(change.tenant, change.id)}")
            case Insert() if change.collection.searched and (change.entry or change.like):
                partitions.add(partition_key(change.collection.name, change.doc["tenant_id"], *owner(change.doc)))
        if not isinstance(change, Allocate | WithinQuota) and change.collection.counted:
            keys.add(f"usage {slot}")
    return keys, partitions


def _refusal(collection: Collection, stored_id: str, reply: WriteError) -> CommitConflict | Retry | None:
    """Returns the error for the server's answer to the write of a document: for a duplicate key a conflict of that
    unique key or id, or a retry."""
    if reply["code"] != DUPLICATE_KEY:
        return None
    doc_id = stored_id.partition(SEPARATOR)[2]
    fields = [str(name) for name in reply.get("keyPattern", {})]
    for unique in collection.unique:
        if fields == [unique_path(unique)]:
            return CommitConflict(collection.name, doc_id, unique.name)
    return CommitConflict(collection.name, doc_id, "exists") if fields == ["_id"] else Retry()


@dataclass(slots=True)
class Assignment:
    """An update that sets and increments fields, and removes those of `_r` that are None."""

    set: Stored
    inc: Stored
    unset: Stored = field(default_factory=dict)

    def own(self, prefix: str, values: Mapping[str, object]) -> None:
        """Sets or removes fields of `_r`, whose names get the prefix."""
        for name, value in values.items():
            path = f"{OWN}.{prefix}{name}"
            if value is None:
                self.unset[path] = ""
            else:
                self.set[path] = value

    def statement(self) -> Stored:
        """Returns the update statement."""
        parts = {"$set": self.set, "$unset": self.unset, "$inc": self.inc}
        return {verb: fields for verb, fields in parts.items() if fields}


class ChangeAttempt:
    """One attempt to make a list of changes, and to log them. It adds the partitions that it writes to `partitions`."""

    def __init__(
        self, writes: TransactionWrites, partitions: set[str], now_ms: int, usage: UsageWriting, notes: ChangeNotes
    ) -> None:
        self._database, self._session = writes.database, writes.session
        self._begun = self._session.operation_time
        self._writes, self._named = writes, set[tuple[str, str]]()
        self._allocated: dict[str, int] = {}
        self._deleted = 0
        self._read: dict[tuple[str, str], Stored | None] = {}
        self._likes: dict[tuple[str, str], Stored | None] = {}
        self._partitions = PartitionWriting(writes.database, writes.session, partitions, now_ms)
        self._usage = usage
        self._notes = notes

    async def run(self, changes: Sequence[Change]) -> Committed:
        """Makes all the changes. Raises CommitConflict, QuotaExceeded, or Retry."""
        await self._prefetch(changes)
        for change in changes:
            await self._do(change)
        await self._partitions.close(self._writes)
        quotas = [change for change in changes if isinstance(change, WithinQuota)]
        if quotas:
            await self._send()  # a conflict comes before a quota: the caller may find that there is nothing to add
        for change in quotas:
            before = await usage_of(self._database, change.tenant, self._session)
            change.check(before, before + self._usage.of(change.tenant))
        self._usage.close(self._writes)
        entries = [entry for of_tenant in self._notes.by_tenant().values() for entry in of_tenant]
        if entries and self._session.operation_time == self._begun:  # perhaps nothing was read: see `append`
            await self._send()
        append(self._writes, entries)
        await self._send()
        return Committed(self._allocated, self._deleted)

    async def _prefetch(self, changes: Sequence[Change]) -> None:
        """Reads the documents that the list names: one query for each collection, one for the partitions."""
        wanted: dict[str, tuple[Collection, list[str]]] = {}
        likes: list[tuple[str, str]] = []
        for change in changes:
            if isinstance(change, Update | Delete):
                named = key(change.tenant, change.id)
            elif isinstance(change, Insert) and change.like is not None:
                named = key(change.doc["tenant_id"], change.like)
                likes.append((change.collection.name, named))
            else:
                continue
            _, ids = wanted.setdefault(change.collection.name, (change.collection, []))
            ids.append(named)
        for collection, ids in wanted.values():
            for part in parts(ids):
                await self._fetch(collection, part)
        self._likes = {place: self._read[place] for place in likes}
        await self._partitions.prefetch([owned for change in changes if (owned := self._owned(change)) is not None])

    def _owned(self, change: Change) -> tuple[Collection, Doc] | None:
        """Returns the document whose row the change writes, or the part of it that names its partition."""
        if not isinstance(change, Insert | Update) or not change.collection.searched:
            return None
        if isinstance(change, Insert):
            return (change.collection, change.doc) if change.entry or change.like else None
        if change.entry is None:
            return None
        stored = self._read.get((change.collection.name, key(change.tenant, change.id)))
        return None if stored is None else (change.collection, stored)

    async def _fetch(self, collection: Collection, ids: Sequence[str]) -> None:
        self._read.update({(collection.name, doc_id): None for doc_id in ids})
        fields = None if collection.searched else PLAIN
        cursor = self._database[collection.name].find({"_id": {"$in": list(ids)}}, fields, session=self._session)
        async for stored in cursor:
            self._read[collection.name, stored["_id"]] = stored

    async def _do(self, change: Change) -> None:
        match change:
            case Insert():
                await self._insert(change)
            case Update():
                await self._update(change)
            case Delete():
                stored, _ = await self._take(change.collection, change.tenant, change.id, change.expect, to_delete=True)
                self._writes.delete(change.collection.name, stored["_id"])
                self._written(change.collection, stored["_id"])
                self._deleted += 1
                self._usage.add(change.collection, stored, None)
                self._notes.deleted(change.collection, stored)
                await self._partitions.remove(change.collection, [stored])
            case DeleteWhere():
                await self._delete_where(change)
            case Allocate():
                await self._allocate(change)
            case WithinQuota():
                pass  # checked in the end, by `run`

    async def _allocate(self, change: Allocate) -> None:
        counter = await self._database[COUNTERS].find_one_and_update(
            {"_id": counter_key(change.tenant, change.name)},
            {"$inc": {"value": Int64(change.count)}, "$setOnInsert": {"tenant_id": change.tenant, "name": change.name}},
            upsert=True,
            return_document=ReturnDocument.AFTER,
            session=self._session,
        )
        assert counter is not None
        self._allocated[change.name] = change.first(int(counter["value"]))

    async def _insert(self, change: Insert) -> None:
        collection, doc = change.collection, resolve(change.doc, self._allocated)
        stored = new_document(collection, doc)
        await self._settle(collection, stored["_id"])
        self._usage.add(collection, None, stored)
        self._notes.created(collection, doc)
        if collection.searched and (change.entry or change.like):
            if change.entry is not None:
                own = await self._partitions.put(collection, doc, None, change.entry)
            else:
                assert change.like is not None
                like = self._likes[collection.name, key(doc["tenant_id"], change.like)]
                if like is None:
                    raise CommitConflict(collection.name, change.like, "missing")
                own = await self._partitions.put_like(collection, doc, like.get(OWN, {}))
            add_own(stored, own)
        self._writes.insert(collection.name, stored, partial(_refusal, collection, stored["_id"]))
        self._written(collection, stored["_id"])

    async def _update(self, change: Update) -> None:
        collection = change.collection
        stored, old = await self._take(collection, change.tenant, change.id, change.expect)
        fields = change.fields(old, self._allocated)
        doc = old | fields
        update = Assignment(encode(collection, fields), inc={WRITES: 1})
        self._usage.add(collection, stored, stored | update.set)
        self._notes.updated(collection, doc, change)
        before, after = unique_keys(collection, old), unique_keys(collection, doc)
        update.own("u.", {name: after.get(name) for name in {*before, *after} if before.get(name) != after.get(name)})
        if collection.searched:
            update.own(
                "",
                await self._partitions.put(
                    collection, doc, stored.get(OWN, {}), change.entry, text=change.text, keep=change.keep
                ),
            )
        wanted, refusal = {"_id": stored["_id"]}, partial(_refusal, collection, stored["_id"])
        self._writes.update(collection.name, wanted, update.statement(), refusal)
        self._written(collection, stored["_id"])

    async def _take(
        self, collection: Collection, tenant: str, doc_id: str, expect: Mapping[str, object], *, to_delete: bool = False
    ) -> tuple[Stored, Doc]:
        """Returns the current document, as stored and as given. Raises CommitConflict, and RecordDamaged for one that
        cannot be read, unless it is `to_delete`."""
        stored_id = key(tenant, doc_id)
        await self._settle(collection, stored_id)
        if (collection.name, stored_id) not in self._read:
            await self._fetch(collection, [stored_id])
        stored = self._read[collection.name, stored_id]
        if stored is None:
            raise CommitConflict(collection.name, doc_id, "missing")
        doc = decoded(collection, dict(stored))
        if doc is None:
            if not to_delete:
                raise unreadable(collection, doc_id, {})
            doc = known_in(collection, stored)
        if stale(doc, expect):
            raise CommitConflict(collection.name, doc_id, "expect")
        return stored, doc

    async def _settle(self, collection: Collection, stored_id: str) -> None:
        """Sends what waits if the list has named the document before."""
        if (collection.name, stored_id) in self._named:
            await self._send()

    async def _delete_where(self, change: DeleteWhere) -> None:
        collection, name = change.collection, change.collection.name
        if any(named == name for named, _ in self._named):
            await self._send()
        wanted = codec.of_tenant(collection, change.tenant, change.where)
        await self._usage.remove_matching(collection, wanted)
        if collection.searched or self._notes.takes(collection):
            named = dict.fromkeys(("tenant_id", "user_id", "agent_id", "version", collection.id_field), 1)
            fields = {f"{OWN}.head": 1, PARTITION: 1, ROW: 1, **named}
            matching = await self._database[name].find(wanted, fields, session=self._session).to_list()
            await self._partitions.remove(collection, matching)
            for stored in matching:
                self._notes.deleted(collection, stored)
            for part in parts([stored["_id"] for stored in matching]):
                await self._database[name].delete_many({"_id": {"$in": part}}, session=self._session)
            self._deleted += len(matching)
        else:
            self._deleted += (await self._database[name].delete_many(wanted, session=self._session)).deleted_count
        self._read = {place: stored for place, stored in self._read.items() if place[0] != name}

    def _written(self, collection: Collection, stored_id: str) -> None:
        """Notes that a write of the document waits. What was read of it does not hold any longer."""
        self._named.add((collection.name, stored_id))
        self._read.pop((collection.name, stored_id), None)

    async def _send(self) -> None:
        self._named.clear()
        await self._writes.send()
