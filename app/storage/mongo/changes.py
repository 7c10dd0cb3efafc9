"""A list of changes as one transaction, with the usage of tenants and the change log that it writes.

`ChangeAttempt` reads the documents that the list names, computes, and writes once for each collection.

Documents are computed here, not by the server, so that unique keys, packed records and expectations mean exactly the
same as in the embedded engine. The transaction's snapshot makes this safe: if another writer changes a document that we
write, one of the two transactions is retried. A document that is named twice in a list is written in between.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

import bson
import orjson
from bson import Timestamp
from bson.int64 import Int64
from bson.objectid import ObjectId
from pymongo import ReturnDocument, UpdateOne
from pymongo.read_concern import ReadConcern

from app.core.work import MOST_ENCODED, characters
from app.storage import change_log
from app.storage.changes import (
    Allocate,
    Change,
    CommitConflict,
    Committed,
    Delete,
    DeleteWhere,
    Insert,
    StoredTotals,
    Update,
    Usage,
    UsageByTenant,
    WithinQuota,
    by_tenant,
    differences,
    resolve,
    stale,
    total,
)
from app.storage.mongo import codec, connection
from app.storage.mongo.partitions import PartitionWriting, add_own, counter_key, owner, partition_key
from app.storage.records import unreadable
from app.storage.schema import EVERYTHING, Collection, Doc, Filter

# --- Usage of tenants -------------------------------------------------------------------------------------------------

# The transaction that changes records adds what it changes to one of many slots.
#
# Two transactions that add to one document conflict. A tenant's usage is therefore the sum of up to `SLOTS` documents,
# and a transaction picks one at random. Bytes are those of the documents as BSON, without the engine's own fields.

USAGE = "recalld_usage"
SLOTS = 64
USAGE_COUNTED = "usage counted"
"""The id of the mark in `META` that every record has been counted."""
_COUNTED_FIELDS = {"_id": 0, codec.OWN: 0}


def slot_at_random() -> int:
    return random.randrange(SLOTS)  # noqa: S311 (spreads writers)


def size_of(stored: codec.Stored) -> int:
    """Returns the bytes of a stored document without its id and the engine's own fields."""
    return len(bson.encode({name: value for name, value in stored.items() if name not in _COUNTED_FIELDS}))


class UsageWriting:
    """Adds up what one transaction changes, and writes it at the end to the slot."""

    def __init__(self, database: connection.Database, session: connection.MongoSession, slot: int) -> None:
        self._database, self._session, self._slot = database, session, slot
        self._changed: defaultdict[tuple[str, str], Usage] = defaultdict(Usage)

    def add(self, collection: Collection, old: codec.Stored | None, new: codec.Stored | None) -> None:
        """Counts that the document `old` became `new`; None stands for no document."""
        if not collection.counted:
            return
        tenant = str((new or old or {})[collection.payer])
        records = 0 if collection.only_bytes else (new is not None) - (old is not None)
        size = (0 if new is None else size_of(new)) - (0 if old is None else size_of(old))
        self._changed[tenant, collection.name] += Usage(records, size)

    async def remove_matching(self, collection: Collection, wanted: codec.Stored) -> None:
        """Counts the removal of the documents that match, which are still there."""
        if collection.counted:
            async for stored in self._database[collection.name].find(wanted, {codec.OWN: 0}, session=self._session):
                self.add(collection, stored, None)

    def of(self, tenant: str) -> Usage:
        """Returns what the transaction has changed of a tenant's usage."""
        return sum((usage for (owner, _), usage in self._changed.items() if owner == tenant), Usage())

    def close(self, writes: connection.TransactionWrites) -> None:
        """Adds the changes to the writes."""
        for tenant, own in by_tenant(self._changed.items()).items():
            by: codec.Stored = {}
            for name, usage in own.items():
                by[f"collections.{name}.records"] = Int64(usage.records)
                by[f"collections.{name}.bytes"] = Int64(usage.bytes)
            update = {"$inc": by, "$setOnInsert": {"tenant_id": tenant}}
            writes.update(USAGE, {"_id": _slot_id(tenant, self._slot)}, update, upsert=True)


def _slot_id(tenant: str, slot: int) -> str:
    return orjson.dumps([tenant, slot]).decode()


async def usage_of(database: connection.Database, tenant: str, session: connection.MongoSession | None = None) -> Usage:
    stored = await _usage_where(database, {"_id": {"$in": [_slot_id(tenant, slot) for slot in range(SLOTS)]}}, session)
    return total(stored.get(tenant, {}))


async def stored_usage(
    database: connection.Database, session: connection.MongoSession | None = None
) -> dict[str, dict[str, Usage]]:
    return await _usage_where(database, {}, session)


async def _usage_where(
    database: connection.Database, wanted: codec.Stored, session: connection.MongoSession | None
) -> dict[str, dict[str, Usage]]:
    usages: list[tuple[tuple[str, str], Usage]] = []
    async for slot in database[USAGE].find(wanted, session=session):
        for name, own in slot["collections"].items():
            usages.append(((slot["tenant_id"], name), Usage(int(own["records"]), int(own["bytes"]))))
    return by_tenant(usages)


async def counted_usage(
    database: connection.Database,
    collections: Sequence[Collection],
    tenant: str | None,
    session: connection.MongoSession | None = None,
) -> dict[str, dict[str, Usage]]:
    """Returns the usage by reading the documents, those of one tenant or all."""
    usages: defaultdict[tuple[str, str], Usage] = defaultdict(Usage)
    for collection in collections:
        if not collection.counted:
            continue
        wanted = {} if tenant is None else {collection.payer: tenant}
        async for document in database[collection.name].find(wanted, _COUNTED_FIELDS, session=session):
            records = int(not collection.only_bytes)
            usages[document[collection.payer], collection.name] += Usage(records, len(bson.encode(document)))
    return by_tenant(usages.items())


class MongoAccounting:
    """Implements `Accounting`."""

    def __init__(
        self, database: connection.Database, collections: Sequence[Collection], runner: connection.TransactionRunner
    ) -> None:
        self._database, self._runner = database, runner
        self._collections = [collection for collection in collections if collection.counted]
        self.names = [collection.name for collection in self._collections]

    async def stored(self) -> UsageByTenant:
        return await stored_usage(self._database)

    async def totals(self) -> StoredTotals:
        """One document of the usage collection may have fewer records than none, so tenants are added up first."""
        names = self.names
        fields = {f"{name}_{part}": f"$collections.{name}.{part}" for name in names for part in ("records", "bytes")}
        records = [f"${name}_records" for name in names]
        pipeline: list[dict[str, Any]] = [
            {"$group": {"_id": "$tenant_id"} | {field: {"$sum": value} for field, value in fields.items()}},
            {"$match": {"$expr": {"$gt": [{"$add": records}, 0]}}},
            {"$group": {"_id": None, "tenants": {"$sum": 1}} | {field: {"$sum": f"${field}"} for field in fields}},
        ]
        with connection.guarded():
            rows = await (await self._database[USAGE].aggregate(pipeline)).to_list()
        sums = rows[0] if rows else {"tenants": 0}
        usage = {name: Usage(int(sums.get(f"{name}_records", 0)), int(sums.get(f"{name}_bytes", 0))) for name in names}
        return StoredTotals.of(int(sums["tenants"]), usage)

    async def recount(self) -> list[str]:
        tenants = set(await stored_usage(self._database))
        for collection in self._collections:
            tenants.update(await self._database[collection.name].distinct(collection.payer))
        wrong: list[str] = []
        for tenant in sorted(tenants):
            wrong += await self._recount(tenant)
        return wrong

    async def _recount(self, tenant: str) -> list[str]:
        """Counts one tenant in one transaction. It sees one state, and conflicts with whoever changes a slot that it
        replaces."""

        async def attempt(session: connection.MongoSession) -> list[str]:
            wanted = {"tenant_id": tenant}
            stored = await _usage_where(self._database, wanted, session)
            there = await counted_usage(self._database, self._collections, tenant, session)
            wrong = differences(stored, there)
            if wrong:
                await self._database[USAGE].delete_many(wanted, session=session)
                fields = {
                    name: {"records": Int64(usage.records), "bytes": Int64(usage.bytes)}
                    for name, usage in there.get(tenant, {}).items()
                }
                new = {"_id": _slot_id(tenant, slot_at_random()), "tenant_id": tenant, "collections": fields}
                await self._database[USAGE].insert_one(new, session=session)
            return wrong

        return await self._runner.in_transaction(attempt)


async def count_once(database: connection.Database, accounting: MongoAccounting) -> None:
    """Counts the records of collections that were not counted when they were written."""
    mark = await database[connection.META].find_one({"_id": USAGE_COUNTED})
    if mark is None or not set(accounting.names) <= set(mark.get("collections", ())):
        await accounting.recount()
        new = {"$set": {"done": True}, "$addToSet": {"collections": {"$each": accounting.names}}}
        await database[connection.META].update_one({"_id": USAGE_COUNTED}, new, upsert=True)


# --- The change log ---------------------------------------------------------------------------------------------------

# A commit leaves its entries without a number, and whoever reads first numbers them.
#
# A number that each transaction took would make all writers of a tenant wait for each other. A number by the clock
# would need a pause before it can be read, as long as the longest transaction. So a commit adds entries with the
# server's logical time (`op`) at which it wrote. A later transaction takes the entries that are visible, in the order
# of that time, and gives them the next numbers; readers see numbered entries only. Two such transactions conflict, and
# one is tried again.
#
# The order is right. A commit that was acknowledged before another began has the lower time, and whoever sees the
# second sees the first. Of two that change one record, the second can write only if it began to read when the first was
# committed, and the time of its entries is that of an answer to such a read. See decision 22.

NEVER = Timestamp(0, 0)
PENDING = {"pending": True}


def _new_entry(entry: change_log.LogEntry, op: Timestamp) -> codec.Stored:
    return {
        "_id": ObjectId(),
        "tenant_id": entry.tenant,
        **PENDING,
        "op": op,
        "kind": entry.kind,
        "id": entry.id,
        "type": entry.type,
        "agent_id": entry.agent_id,
        "user_id": entry.user_id,
        "version": None if entry.version is None else Int64(entry.version),
        "at": entry.at,
    }


def append_to_log(writes: connection.TransactionWrites, entries: Iterable[change_log.LogEntry]) -> None:
    """Adds the entries of a commit to its writes, the last ones. The transaction has read something, so that its
    snapshot is not newer than the time that its entries get."""
    op = writes.session.operation_time or NEVER
    for entry in entries:
        writes.insert(connection.CHANGE_LOG, _new_entry(entry, op))


class MongoChangeLog(change_log.ChangeLog):
    """The log in MongoDB. Its reads see what a majority has, so that no number is ever taken back."""

    def __init__(
        self,
        database: connection.Database,
        timely: connection.RunCalls,
        runner: connection.TransactionRunner,
        options: change_log.LogOptions,
    ) -> None:
        """`timely` runs a call of the driver within the deadline of a request."""
        super().__init__(options)
        self._database, self._timely, self._runner = database, timely, runner
        durable = ReadConcern("majority")
        self._entries = database.get_collection(connection.CHANGE_LOG, read_concern=durable)
        self._heads = database.get_collection(connection.CHANGE_HEADS, read_concern=durable)

    async def begin(self) -> None:
        """Empties the log if no changes are logged: what is committed now will be missing in it."""
        if not self.options.enabled and await self._heads.find_one({}, {"_id": 1}):
            await self._heads.delete_many({})
            await self._entries.delete_many({})

    async def page(
        self, tenant: str, after: change_log.Position | None, where: Filter = EVERYTHING, *, limit: int = 100
    ) -> change_log.LogPage:
        async def read() -> change_log.LogPage:
            head = await self._head(tenant)
            start = head.start(after)
            upto = min(head.last, start + self.options.scanned)
            wanted = codec.all_of(
                {"tenant_id": tenant, "seq": {"$gt": Int64(start), "$lte": Int64(upto)}},
                codec.where(change_log.CHANGES, where),
            )
            entries = await self._entries.find(wanted).sort("seq", 1).limit(limit).to_list()
            (await self._head(tenant)).start(
                change_log.Position(head.log, start)
            )  # nothing of it was dropped meanwhile
            return change_log.LogPage.read(head, [_entry(entry) for entry in entries], upto, limit)

        await self._number(tenant)
        return await self._timely(read)

    async def _current(self, tenant: str) -> change_log.Head:
        await self._number(tenant)
        return await self._timely(lambda: self._head(tenant))

    async def _head(self, tenant: str) -> change_log.Head:
        stored = await self._heads.find_one({"_id": tenant})
        return (
            change_log.Head()
            if stored is None
            else change_log.Head(stored["log"], int(stored["last"]), int(stored["floor"]))
        )

    async def _mark(self, tenant: str) -> object:
        async def look() -> tuple[Any, int]:
            newest = await self._entries.find_one({"tenant_id": tenant, **PENDING}, {"_id": 1}, sort=[("op", -1)])
            return newest and newest["_id"], (await self._head(tenant)).last

        return await self._timely(look)

    async def _number(self, tenant: str) -> None:
        """Numbers all entries that are committed now."""
        pending = {"tenant_id": tenant, **PENDING}

        async def number_some(session: connection.MongoSession) -> None:
            entries, sorted_by = self._database[connection.CHANGE_LOG], [("op", 1), ("_id", 1)]
            unnumbered = entries.find(pending, {"_id": 1}, session=session).sort(sorted_by).limit(change_log.STEP)
            ids = [entry["_id"] for entry in await unnumbered.to_list()]
            if not ids:
                return
            head = await self._database[connection.CHANGE_HEADS].find_one_and_update(
                {"_id": tenant},
                {
                    "$inc": {"last": Int64(len(ids))},
                    "$setOnInsert": {"log": uuid4().hex[:12], "floor": Int64(0)},
                },
                upsert=True,
                return_document=ReturnDocument.AFTER,
                session=session,
            )
            assert head is not None
            first = int(head["last"]) - len(ids) + 1
            writes = [
                UpdateOne({"_id": entry}, {"$set": {"seq": Int64(seq)}, "$unset": {"pending": ""}})
                for seq, entry in enumerate(ids, first)
            ]
            await entries.bulk_write(writes, ordered=True, session=session)

        while await self._timely(lambda: self._entries.find_one(pending, {"_id": 1})):
            await self._runner.in_transaction(number_some, [f"changes {tenant}"])

    async def names(self, tenant: str, user: str) -> bool:
        wanted = {"tenant_id": tenant, "user_id": user}
        return await self._timely(lambda: self._entries.find_one(wanted, {"_id": 1})) is not None

    async def forget(self, tenant: str, user: str) -> None:
        async def replace(session: connection.MongoSession) -> None:
            entries = self._database[connection.CHANGE_LOG]
            gone = await entries.delete_many({"tenant_id": tenant, "user_id": user}, session=session)
            if gone.deleted_count:
                mark = change_log.erased(tenant, self.options.stamp_now())
                await entries.insert_one(_new_entry(mark, session.operation_time or NEVER), session=session)

        await self._runner.in_transaction(replace, [f"changes {tenant}"])

    async def has_expired(self) -> bool:
        wanted = {"at": {"$lt": self.options.oldest()}}
        return await self._timely(lambda: self._entries.find_one(wanted, {"_id": 1})) is not None

    async def _expired(self, oldest: str) -> list[str]:
        return await self._timely(lambda: self._entries.distinct("tenant_id", {"at": {"$lt": oldest}}))

    async def _drop(self, tenant: str, oldest: str) -> int:
        async def drop() -> int:
            wanted = {"tenant_id": tenant, "seq": {"$exists": True}}
            entries = (
                await self._entries.find(wanted, {"seq": 1, "at": 1}).sort("seq", 1).limit(change_log.STEP).to_list()
            )
            old = change_log.first_old([(int(entry["seq"]), entry["at"]) for entry in entries], oldest)
            if old:
                await self._heads.update_one({"_id": tenant}, {"$max": {"floor": Int64(old[-1])}})
                await self._entries.delete_many({"tenant_id": tenant, "seq": {"$lte": Int64(old[-1])}})
            return len(old)

        await self._number(tenant)
        return await self._timely(drop)


def _entry(stored: codec.Stored) -> change_log.LogEntry:
    version = None if stored["version"] is None else int(stored["version"])
    owners = stored["agent_id"], stored["user_id"]
    return change_log.LogEntry(
        stored["tenant_id"],
        stored["kind"],
        stored["id"],
        stored["type"],
        *owners,
        version,
        stored["at"],
        int(stored["seq"]),
    )


# --- The list of changes ----------------------------------------------------------------------------------------------

T = TypeVar("T")

WRITES = f"{codec.OWN}.writes"
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
                keys.add(f"{change.collection.name} {codec.key(change.tenant, change.id)}")
            case Insert() if change.collection.searched and (change.entry or change.like):
                partitions.add(partition_key(change.collection.name, change.doc["tenant_id"], *owner(change.doc)))
        if not isinstance(change, Allocate | WithinQuota) and change.collection.counted:
            keys.add(f"usage {slot}")
    return keys, partitions


def _refusal(
    collection: Collection, stored_id: str, reply: connection.WriteError
) -> CommitConflict | connection.Retry | None:
    """Returns the error for the server's answer to the write of a document: for a duplicate key a conflict of that
    unique key or id, or a retry."""
    if reply["code"] != connection.DUPLICATE_KEY:
        return None
    doc_id = stored_id.partition(codec.SEPARATOR)[2]
    fields = [str(name) for name in reply.get("keyPattern", {})]
    for unique in collection.unique:
        if fields == [codec.unique_path(unique)]:
            return CommitConflict(collection.name, doc_id, unique.name)
    return CommitConflict(collection.name, doc_id, "exists") if fields == ["_id"] else connection.Retry()


class ChangeAttempt:
    """One attempt to make a list of changes, and to log them. It adds the partitions that it writes to `partitions`."""

    def __init__(
        self,
        writes: connection.TransactionWrites,
        partitions: set[str],
        now_ms: int,
        usage: UsageWriting,
        notes: change_log.ChangeNotes,
    ) -> None:
        self._database, self._session = writes.database, writes.session
        self._begun = self._session.operation_time
        self._writes, self._named = writes, set[tuple[str, str]]()
        self._allocated: dict[str, int] = {}
        self._deleted = self._at_work = 0
        self._read: dict[tuple[str, str], codec.Stored | None] = {}
        self._likes: dict[tuple[str, str], codec.Stored | None] = {}
        self._partitions = PartitionWriting(writes.database, writes.session, partitions, now_ms)
        self._usage = usage
        self._notes = notes

    async def run(self, changes: Sequence[Change]) -> Committed:
        """Makes all the changes. Raises CommitConflict, QuotaExceeded, or Retry."""
        await self._prefetch(changes)
        for change in changes:
            match change:
                case Insert():
                    await self._insert(change)
                case Update():
                    await self._update(change)
                case Delete():
                    stored, _ = await self._take(
                        change.collection, change.tenant, change.id, change.expect, to_delete=True
                    )
                    self._writes.delete(change.collection.name, stored["_id"])
                    self._written(change.collection, stored["_id"])
                    self._deleted += 1
                    self._usage.add(change.collection, stored, None)
                    self._notes.deleted(change.collection, stored)
                    await self._partitions.remove(change.collection, [stored])
                case DeleteWhere():
                    await self._delete_where(change)
                case Allocate():
                    counter = await self._database[connection.COUNTERS].find_one_and_update(
                        {"_id": counter_key(change.tenant, change.name)},
                        {
                            "$inc": {"value": Int64(change.count)},
                            "$setOnInsert": {"tenant_id": change.tenant, "name": change.name},
                        },
                        upsert=True,
                        return_document=ReturnDocument.AFTER,
                        session=self._session,
                    )
                    assert counter is not None
                    self._allocated[change.name] = change.first(int(counter["value"]))
                case WithinQuota():
                    pass  # checked in the end, by `run`
        await self._partitions.close(self._writes)
        quotas = [change for change in changes if isinstance(change, WithinQuota)]
        if quotas:
            await self._send()  # a conflict comes before a quota: the caller may find that there is nothing to add
        for change in quotas:
            before = await usage_of(self._database, change.tenant, self._session)
            change.check(before, before + self._usage.of(change.tenant))
        self._usage.close(self._writes)
        entries = [entry for of_tenant in self._notes.by_tenant().values() for entry in of_tenant]
        if entries and self._session.operation_time == self._begun:  # perhaps nothing was read: see `append_to_log`
            await self._send()
        append_to_log(self._writes, entries)
        await self._send()
        return Committed(self._allocated, self._deleted)

    async def _prefetch(self, changes: Sequence[Change]) -> None:
        """Reads the documents that the list names: one query for each collection, one for the partitions."""
        wanted: dict[str, tuple[Collection, list[str]]] = {}
        likes: list[tuple[str, str]] = []
        for change in changes:
            if isinstance(change, Update | Delete):
                named = codec.key(change.tenant, change.id)
            elif isinstance(change, Insert) and change.like is not None:
                named = codec.key(change.doc["tenant_id"], change.like)
                likes.append((change.collection.name, named))
            else:
                continue
            _, ids = wanted.setdefault(change.collection.name, (change.collection, []))
            ids.append(named)
        for collection, ids in wanted.values():
            for part in codec.parts(ids):
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
        stored = self._read.get((change.collection.name, codec.key(change.tenant, change.id)))
        return None if stored is None else (change.collection, stored)

    async def _fetch(self, collection: Collection, ids: Sequence[str]) -> None:
        self._read.update({(collection.name, doc_id): None for doc_id in ids})
        fields = None if collection.searched else codec.PLAIN
        cursor = self._database[collection.name].find({"_id": {"$in": list(ids)}}, fields, session=self._session)
        async for stored in cursor:
            self._read[collection.name, stored["_id"]] = stored

    async def _insert(self, change: Insert) -> None:
        collection = change.collection
        doc: Doc = await self._beside(collection, change.doc, partial(resolve, change.doc, self._allocated))
        stored = await self._beside(collection, doc, partial(codec.new_document, collection, doc))
        await self._settle(collection, stored["_id"])
        self._usage.add(collection, None, stored)
        self._notes.created(collection, doc)
        if collection.searched and (change.entry or change.like):
            if change.entry is not None:
                own = await self._partitions.put(collection, doc, None, change.entry)
            else:
                assert change.like is not None
                like = self._likes[collection.name, codec.key(doc["tenant_id"], change.like)]
                if like is None:
                    raise CommitConflict(collection.name, change.like, "missing")
                own = await self._partitions.put_like(collection, doc, like.get(codec.OWN, {}))
            add_own(stored, own)
        self._writes.insert(collection.name, stored, partial(_refusal, collection, stored["_id"]))
        self._written(collection, stored["_id"])

    async def _update(self, change: Update) -> None:
        collection = change.collection
        stored, old = await self._take(collection, change.tenant, change.id, change.expect)
        fields = change.fields(old, self._allocated)
        doc = old | fields
        encoded = await self._beside(collection, fields, partial(codec.encode, collection, fields))
        self._usage.add(collection, stored, stored | encoded)
        self._notes.updated(collection, doc, change)
        before, after = codec.unique_keys(collection, old), codec.unique_keys(collection, doc)
        changed = {name: after.get(name) for name in {*before, *after} if before.get(name) != after.get(name)}
        own: codec.Stored = {f"u.{name}": value for name, value in changed.items()}  # None: the field goes
        if collection.searched:
            own |= await self._partitions.put(
                collection,
                doc,
                stored.get(codec.OWN, {}),
                change.entry,
                changed=fields.keys(),
                terms=change.terms,
                keep=change.keep,
            )
        update = {
            "$set": encoded | {f"{codec.OWN}.{name}": value for name, value in own.items() if value is not None},
            "$unset": {f"{codec.OWN}.{name}": "" for name, value in own.items() if value is None},
            "$inc": {WRITES: 1},
        }
        statement = {verb: values for verb, values in update.items() if values}
        refusal = partial(_refusal, collection, stored["_id"])
        self._writes.update(collection.name, {"_id": stored["_id"]}, statement, refusal)
        self._written(collection, stored["_id"])

    async def _take(
        self, collection: Collection, tenant: str, doc_id: str, expect: Mapping[str, object], *, to_delete: bool = False
    ) -> tuple[codec.Stored, Doc]:
        """Returns the current document, as stored and as given. Raises CommitConflict, and RecordDamaged for one that
        cannot be read, unless it is `to_delete`."""
        stored_id = codec.key(tenant, doc_id)
        await self._settle(collection, stored_id)
        if (collection.name, stored_id) not in self._read:
            await self._fetch(collection, [stored_id])
        stored = self._read[collection.name, stored_id]
        if stored is None:
            raise CommitConflict(collection.name, doc_id, "missing")
        doc = await self._beside(collection, stored, partial(codec.decoded, collection, dict(stored)))
        if doc is None:
            if not to_delete:
                raise unreadable(collection, doc_id, {})
            doc = codec.known_in(collection, stored)
        if stale(doc, expect):
            raise CommitConflict(collection.name, doc_id, "expect")
        return stored, doc

    async def _beside(self, collection: Collection, fields: Mapping[str, object], work: Callable[[], T]) -> T:
        """Returns what `work` makes of a document's opaque fields, beside the event loop if they are long. It takes no
        turn of the tenant (`in_turn`): others may wait for this transaction."""
        self._at_work += characters(*(fields.get(name) for name in collection.opaque), most=MOST_ENCODED)
        if self._at_work <= MOST_ENCODED:
            return work()
        self._at_work = 0
        return await asyncio.to_thread(work)

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
            fields = {f"{codec.OWN}.head": 1, codec.PARTITION: 1, codec.ROW: 1, **named}
            matching = await self._database[name].find(wanted, fields, session=self._session).to_list()
            await self._partitions.remove(collection, matching)
            for stored in matching:
                self._notes.deleted(collection, stored)
            for part in codec.parts([stored["_id"] for stored in matching]):
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
