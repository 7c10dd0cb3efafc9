"""The MongoDB engine: the same documents, one transaction for each list of changes, exact search of partitions in use.

Any number of processes may use one database. Between calls only copies of partitions are kept; each search asks for
their versions.
"""

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import pymongo
from bson.int64 import Int64
from pymongo import UpdateOne

from app.core.clock import Clock, SystemClock, to_ms
from app.core.tuning import USUAL
from app.core.work import json_work, off_loop
from app.errors import SearchIndexUnavailable
from app.storage import protocol
from app.storage.change_log import ChangeNotes, LogOptions
from app.storage.changes import Change, Committed, InsertListeners
from app.storage.index.record_codec import model_id
from app.storage.index.segment import SegmentCache, overview_of
from app.storage.mongo import codec, connection, partitions
from app.storage.mongo.changes import (
    ChangeAttempt,
    MongoAccounting,
    MongoChangeLog,
    UsageWriting,
    competing,
    count_once,
    slot_at_random,
)
from app.storage.mongo.schema import deep_check, reconcile
from app.storage.mongo.search_indexes import (
    EXACT_AT_MOST,
    OVERLAY_MS,
    PAUSE_SECONDS,
    Candidates,
    SearchIndexes,
    SearchIndexFailed,
)
from app.storage.records import Read, first_whole, is_readable, unreadable, whole
from app.storage.schema import EVERYTHING, Absent, After, Collection, Filter, Not, R, both
from app.storage.scope import Partition
from app.storage.search import Columns, Ints, Overview, SearchQuery, concatenate
from app.storage.transfer import BackupRefused, Counter, Record

T = TypeVar("T")

# --- Decay ------------------------------------------------------------------------------------------------------

ROWS = 1_000
LOOKED_AT = 10_000
"""Documents that one part of a look reads: a tenth of a second."""
AFTER_SEPARATOR = chr(ord(codec.SEPARATOR) + 1)
DAY_MS = 86_400_000.0


Expression: TypeAlias = dict[str, Any]
"""An expression of MongoDB's aggregation: `{"$add": ["$importance", 1]}`."""
_TIME = {"$convert": {"input": "$anchored_at", "to": "date", "onError": None, "onNull": None}}
_DECAYS: dict[str, Any] = {
    "importance": {"$type": "number"},
    "base_importance": {"$type": "number"},
    "anchored_at": {"$type": "string"},
    "$expr": {"$ne": [_TIME, None]},
}
"""Whether a rule can be applied to a document."""


def _fading(collection: Collection, tenant: str | None, where: Filter) -> codec.Query:
    return {"$and": [codec.of_tenant(collection, tenant, protocol.unpinned(where)), _DECAYS]}


def written(rule: protocol.DecayRule) -> Expression:
    """Returns the expression of the new `importance`. The server does not write a document whose value stays."""
    moved = {"$abs": {"$subtract": ["$importance", "$$faded"]}}
    value = {"$cond": [{"$gte": [moved, rule.least]}, "$$faded", "$importance"]}
    return {"$let": {"vars": {"faded": faded(rule)}, "in": value}}


def faded(rule: protocol.DecayRule) -> Expression:
    """Returns the formula of `retrieval/decay.py` as an expression."""
    since = {"$subtract": [{"$toDate": rule.now}, _TIME]}
    idle = {"$max": [0.0, {"$subtract": [{"$divide": [since, DAY_MS]}, rule.grace_days]}]}
    decayed = {"$multiply": ["$base_importance", {"$pow": [rule.factor, {"$divide": [idle, 30.0]}]}]}
    return {"$max": [{"$min": ["$base_importance", rule.floor]}, decayed]}


# --- Re-embedding -----------------------------------------------------------------------------------------------------

DROPPED_AT_ONCE = 200


class MongoReembedding:
    """Implements `Reembedding`."""

    def __init__(self, database: connection.Database, slow: connection.RunCalls) -> None:
        self._database, self._slow = database, slow

    async def partitions(
        self, collection: Collection, model: int, after: int, limit: int, which: protocol.PartitionSelector
    ) -> list[int]:
        of: dict[protocol.PartitionSelector, codec.Stored] = {
            "every": {},
            "unlike": {"model": {"$ne": model}},
            "other": {"model": {"$exists": True, "$nin": [0, model]}},
        }
        wanted = {"collection": collection.name, "partition": {"$gt": after}, "count": {"$gt": 0}, **of[which]}

        async def read() -> list[int]:
            cursor = (
                self._database[connection.PARTITIONS].find(wanted, {"partition": 1}).sort("partition", 1).limit(limit)
            )
            return [int(stored["partition"]) async for stored in cursor]

        return await self._slow(read)

    async def missing_vectors(
        self, collection: Collection, partitions: Sequence[int], model: int, after: int, limit: int
    ) -> list[protocol.MissingVector]:
        wanted = {codec.PARTITION: {"$in": list(partitions)}, codec.ROW: {"$gt": after}, **_lacks(model)}

        async def read() -> list[protocol.MissingVector]:
            page = (
                await self._database[collection.name]
                .find(wanted, codec.WITH_ROW)
                .sort(codec.ROW, 1)
                .limit(limit)
                .to_list()
            )
            return await off_loop(
                json_work(codec.json_length(collection, *page)),
                lambda: [
                    protocol.MissingVector(int(stored[codec.OWN]["row"]), codec.decode(collection, stored))
                    for stored in page
                ],
            )

        return await self._slow(read)

    async def mark_migrated(self, collection: Collection, partitions: Sequence[int], model: int) -> None:
        async def write() -> None:
            versions = self._database[connection.PARTITIONS].find(
                {"partition": {"$in": list(partitions)}}, {"partition": 1, "version": 1}
            )
            before = await versions.to_list()
            missing_vectors = await self._database[collection.name].aggregate(
                [
                    {"$match": {codec.PARTITION: {"$in": list(partitions)}, **_lacks(model)}},
                    {"$group": {"_id": f"${codec.PARTITION}"}},
                ]
            )
            left = {int(group["_id"]) async for group in missing_vectors}
            # a write to the partition meanwhile has changed its version
            writes = [
                UpdateOne({"_id": partition["_id"], "version": partition["version"]}, {"$set": {"model": Int64(model)}})
                for partition in before
                if int(partition["partition"]) not in left
            ]
            if writes:
                await self._database[connection.PARTITIONS].bulk_write(writes, ordered=False)

        await self._slow(write)

    async def counts(self, collection: Collection, model: int, dim: int) -> protocol.VectorCounts:  # noqa: ARG002
        """Counts vectors by model. Does not check their length, because the code of a model includes its dimension."""
        documents = self._database[collection.name]

        async def read() -> protocol.VectorCounts:
            records = await documents.count_documents({})
            vectors = await documents.count_documents({codec.VECTOR: {"$exists": True}})
            of_model = await documents.count_documents({codec.VECTOR: {"$exists": True}, codec.MODEL: model})
            alternates = await documents.count_documents({codec.KEPT: {"$exists": True}})
            return protocol.VectorCounts.of(records, vectors, of_model, alternates)

        return await self._slow(read)

    async def drop_previous_vectors(self, collection: Collection) -> int:
        documents = self._database[collection.name]

        async def drop_some() -> int:
            carriers = (
                await documents.find({codec.KEPT: {"$exists": True}}, {"_id": 1}).limit(DROPPED_AT_ONCE).to_list()
            )
            ids = [stored["_id"] for stored in carriers]
            if not ids:
                return 0
            return (await documents.update_many({"_id": {"$in": ids}}, {"$unset": {codec.KEPT: ""}})).modified_count

        async def forget() -> None:
            await self._database[connection.PARTITIONS].update_many(
                {"collection": collection.name, "kept": True}, {"$set": {"kept": False}}
            )

        dropped = 0
        while step := await self._slow(drop_some):
            dropped += step
        await self._slow(forget)
        return dropped


def _lacks(model: int) -> codec.Stored:
    return {"$or": [{codec.MODEL: {"$ne": model}}, {codec.VECTOR: {"$exists": False}}]}


# --- The store --------------------------------------------------------------------------------------------------------

LONG_FACTOR = 12
"""Number of deadlines that loads of partitions, steps of `apply` and checks may take."""


@dataclass(frozen=True, slots=True)
class MongoOptions:
    """Options of the engine. Scopes of up to `exact_up_to` documents are searched exactly.

    `pause_seconds`: before a search index that failed is asked again. `overlay_ms`: how late indexes may be, in
    milliseconds. `observe_fallback` takes a collection and `exact` or `refused`.
    """

    database: str = "recalld"
    deadline_seconds: float = 5.0
    cache_bytes: int = 256 << 20
    exact_up_to: int = USUAL.exact_up_to
    observe_commit: Callable[[int, float], None] = lambda writes, seconds: None
    observe_fallback: Callable[[str, str], None] = lambda collection, outcome: None
    log: LogOptions = field(default_factory=LogOptions)
    pause_seconds: float = PAUSE_SECONDS
    overlay_ms: int = OVERLAY_MS


class MongoStore(connection.Shielded):
    """Implements `Store`. Open with `MongoStore.open`, from within the event loop that will use it."""

    name = "mongodb"

    def __init__(
        self,
        client: connection.Client,
        collections: Sequence[Collection],
        options: MongoOptions,
        *,
        dim: int,
        clock: Clock,
        bulk: connection.BulkSupport,
    ) -> None:
        super().__init__()
        self._bulk = bulk
        self._client, self._collections, self._options, self._clock = client, tuple(collections), options, clock
        self._database = client[options.database]
        self._runner = connection.TransactionRunner(self._database, options.deadline_seconds)
        self._slowly = connection.TransactionRunner(self._database, LONG_FACTOR * options.deadline_seconds)
        self._listeners = InsertListeners()
        self._dim = dim
        self._indexes = SearchIndexes(self._database, collections, dim, options.pause_seconds)
        self._candidates = Candidates(self._database, dim, options.overlay_ms)
        self.change_log = MongoChangeLog(self._database, self._timely, self._runner, options.log)
        self._copies = partitions.SegmentLoader(self._database, SegmentCache(options.cache_bytes), dim)

    @classmethod
    async def open(
        cls,
        uri: str,
        collections: Sequence[Collection],
        options: MongoOptions | None = None,
        *,
        dim: int,
        clock: Clock | None = None,
    ) -> "MongoStore":
        """Opens the store. Raises StoreUnavailable if the deployment cannot be reached or lacks a required feature."""
        options = options or MongoOptions()
        client = connection.connect(uri, options.deadline_seconds)
        try:
            hello = await connection.greet(client, uri, options.deadline_seconds)
            with connection.guarded():
                await reconcile(client[options.database], collections)
        except BaseException:
            await client.close()
            raise
        store = cls(
            client, collections, options, dim=dim, clock=clock or SystemClock(), bulk=connection.BulkSupport.of(hello)
        )
        if dim > 1:  # otherwise it was opened without a model, and the dimension to index is unknown
            with connection.guarded(), pymongo.timeout(options.deadline_seconds):
                await store._indexes.find_out()
        with connection.guarded():
            await count_once(store._database, store.accounting)
            await store.change_log.begin()
        return store

    async def close(self) -> None:
        await self.change_log.watch.close()
        await self._indexes.close()
        await self.all_ended()
        await self._runner.close()
        await self._slowly.close()
        await self._client.close()

    @contextmanager
    def _within(self, deadlines: int = 1) -> Iterator[None]:
        with connection.guarded(), pymongo.timeout(protocol.left(deadlines * self._options.deadline_seconds)):
            yield

    # --- Documents ----------------------------------------------------------------------------------------------------

    @connection.shielded
    async def get(self, collection: Collection[R], tenant: str, doc_id: str) -> R | None:
        with self._within():
            stored = await self._database[collection.name].find_one({"_id": codec.key(tenant, doc_id)}, codec.PLAIN)
        if stored is None:
            return None
        (doc,) = await codec.all_decoded(collection, [dict(stored)])
        if doc is None:
            raise unreadable(collection, doc_id, codec.known_in(collection, stored))
        return doc

    @connection.shielded
    async def find(
        self,
        collection: Collection[R],
        tenant: str | None,
        where: Filter = EVERYTHING,
        *,
        order: protocol.Order = "desc",
        after: After | None = None,
        limit: int = 100,
    ) -> list[R]:
        wanted = codec.all_of(codec.of_tenant(collection, tenant, where), codec.beyond(collection, after, order))

        async def first(most: int) -> Read[R]:
            # one more than there are: the driver's first batch is of 101, and the rest another round trip
            cursor = self._database[collection.name].find(wanted, codec.PLAIN, batch_size=most + 1)
            cursor = cursor.sort(codec.sorting(collection, order))
            page = await cursor.limit(most).to_list()
            ids = [codec.id_in(stored) for stored in page]
            docs = zip(ids, await codec.all_decoded(collection, page), strict=True)
            return [None if doc is None else whole(collection, doc_id, doc) for doc_id, doc in docs]

        with self._within():
            return await first_whole(limit, first)

    async def find_fetched(
        self, collection: Collection[R], tenant: str, where: Filter = EVERYTHING, **named: Any
    ) -> list[protocol.Fetched[R]]:
        return [protocol.Fetched(doc) for doc in await self.find(collection, tenant, where, **named)]

    @connection.shielded
    async def count(self, collection: Collection, tenant: str | None, where: Filter = EVERYTHING) -> int:
        wanted = codec.of_tenant(collection, tenant, where)
        with self._within():
            return await self._database[collection.name].count_documents(wanted)

    @connection.shielded
    async def values(
        self, collection: Collection, tenant: str, field: str, where: Filter, *, order: protocol.Order, limit: int
    ) -> list[str]:
        wanted = codec.of_tenant(collection, tenant, both(Not(Absent(field)), where))
        sign = -1 if order == "desc" else 1
        with self._within():
            cursor = await self._database[collection.name].aggregate(
                [
                    {"$match": wanted},
                    {"$sort": {"tenant_id": sign, field: sign}},  # so that the index gives each value once
                    {"$group": {"_id": f"${field}", "value": {"$first": f"${field}"}}},
                    {"$sort": {"_id": sign}},
                    {"$limit": limit},
                ]
            )
            return [stored["_id"] async for stored in cursor]

    @connection.shielded
    async def tally(
        self,
        collection: Collection,
        tenant: str,
        fields: Sequence[str],
        where: Filter = EVERYTHING,
        *,
        first: int | None = None,
    ) -> protocol.Tallied:
        wanted = codec.of_tenant(collection, tenant, where)
        values: list[Any] = [{"$ifNull": [f"${field}", None]} for field in fields]
        if first is not None:
            start = {"$substrCP": [f"${fields[-1]}", 0, first]}  # of an absent time the empty text
            values[-1] = {"$cond": [{"$eq": [start, ""]}, None, start]}
        by = {str(place): value for place, value in enumerate(values)}
        steps = [{"$match": wanted}, {"$group": {"_id": by, "count": {"$sum": 1}}}, {"$sort": {"_id": 1}}]
        with self._within():
            cursor = await self._database[collection.name].aggregate(steps)
            return {tuple(stored["_id"].get(name) for name in by): stored["count"] async for stored in cursor}

    @connection.shielded
    async def commit(self, changes: Sequence[Change]) -> Committed:
        if not changes:
            return Committed({}, 0)
        started = time.perf_counter()
        now_ms, slot, at = to_ms(self._clock.now()), slot_at_random(), self._options.log.stamp(changes)
        keys, partition_keys = competing(changes, slot)

        async def attempt(session: connection.MongoSession) -> Committed:
            usage = UsageWriting(self._database, session, slot)
            writes = connection.TransactionWrites(self._database, session, self._bulk)
            return await ChangeAttempt(writes, partition_keys, now_ms, usage, ChangeNotes(at)).run(changes)

        committed = await self._runner.in_transaction(attempt, keys, partition_keys)
        self._options.observe_commit(1, time.perf_counter() - started)
        self._listeners.notify(changes)
        self.change_log.watch.committed(changes)
        return committed

    def on_insert(self, collection: Collection, callback: Callable[[], None]) -> None:
        self._listeners.add(collection, callback)

    async def apply(
        self, collection: Collection, tenant: str | None, rule: protocol.DecayRule, where: Filter = EVERYTHING
    ) -> int:
        documents, wanted = self._database[collection.name], _fading(collection, tenant, where)
        last: str | None = ""
        changed = 0

        async def page() -> tuple[str | None, int]:
            """Writes the documents after `last`. Returns the last id, None at the end, and how many changed."""
            after = codec.all_of({"_id": {"$gt": last}}, wanted)
            found = await documents.find(after, {"_id": 1}).sort("_id", 1).limit(ROWS).to_list()
            if not found:
                return None, 0
            end = found[-1]["_id"]
            within = codec.all_of({"_id": {"$gt": last, "$lte": end}}, wanted)
            done = await documents.update_many(within, [{"$set": {"importance": written(rule)}}])
            return end if len(found) == ROWS else None, done.modified_count

        while last is not None:  # in whole pages: it can be stopped between two
            last, many = await self._slow(page)
            changed += many
        return changed

    async def undecayable(
        self, collection: Collection, tenant: str | None, where: Filter = EVERYTHING, *, limit: int = 100
    ) -> list[str]:
        wanted = {"$and": [codec.of_tenant(collection, tenant, protocol.unpinned(where)), {"$nor": [_DECAYS]}]}
        return await self._scan(collection, tenant, wanted, limit)

    async def would_change(
        self, collection: Collection, tenant: str | None, rule: protocol.DecayRule, where: Filter = EVERYTHING
    ) -> bool:
        differs = {"$expr": {"$ne": ["$importance", written(rule)]}}
        moved = codec.all_of(_fading(collection, tenant, where), differs)
        return bool(await self._scan(collection, tenant, moved, 1))

    async def _scan(self, collection: Collection, tenant: str | None, wanted: codec.Stored, limit: int) -> list[str]:
        """Returns the ids of the first `limit` documents that match. No index knows them, so all may have to be read:
        `LOOKED_AT` at a time, so that a service that stops does not wait for the whole collection."""
        documents, name = self._database[collection.name], collection.id_field
        bounds: codec.Stored = {"$gt": ""}
        if tenant is not None:
            bounds = {"$gt": codec.key(tenant, ""), "$lt": f"{tenant}{AFTER_SEPARATOR}"}
        ids: list[str] = []

        async def part() -> str | None:
            # only ids are walked over here, which the index has: no document is read for it
            walked = documents.find({"_id": bounds}, {"_id": 1}).sort("_id", 1)
            end = await walked.skip(LOOKED_AT - 1).limit(1).to_list()
            within = {"_id": bounds | ({"$lte": end[0]["_id"]} if end else {})}
            matching = documents.find({"$and": [within, wanted]}, {name: 1}).sort("_id", 1)
            ids.extend([str(stored[name]) async for stored in matching.limit(limit - len(ids))])
            return end[0]["_id"] if end and len(ids) < limit else None

        while last := await self._slow(part):
            bounds["$gt"] = last
        return ids

    # --- Search -------------------------------------------------------------------------------------------------------

    @connection.shielded
    async def overview(self, collection: Collection, tenant: str, wanted: Sequence[Partition]) -> Overview:
        with self._within():
            states = await partitions.read(self._database, collection, tenant, wanted)
        return replace(overview_of(states), states=states)

    @connection.shielded
    async def search(self, collection: Collection, query: SearchQuery) -> Columns:
        if query.overview is not None:
            known: Sequence[partitions.MongoPartition] = query.overview.states
        else:
            with self._within():
                known = await partitions.read(self._database, collection, query.tenant, query.partitions)
        states = [state for state in known if state.count]
        model = model_id(query.model, self._dim)
        # the index has vectors of one model only: if alternate vectors exist, rows are read
        whole_index = all(state.model == model or not state.has_alternates for state in states)
        count, degraded = sum(state.count for state in states), None
        if count > self._options.exact_up_to and whole_index and self._indexes.supported:
            try:
                return await self._by_indexes(collection, query, states)
            except SearchIndexFailed as error:
                if count > EXACT_AT_MOST:
                    self._options.observe_fallback(collection.name, "refused")
                    raise SearchIndexUnavailable(
                        f"The search index of these {count} records cannot be used ({error}); up to {EXACT_AT_MOST} "
                        "are searched without.",
                        retry_after=self._indexes.retry_after(collection),
                    ) from None
                self._options.observe_fallback(collection.name, "exact")
                degraded = f"The search index cannot be used ({error}). All records were compared instead."
        with self._within(LONG_FACTOR):
            segments = [await self._copies.of(collection, state, model) for state in states]
        columns = concatenate(
            [segment.columns(query) for segment in segments] or [self._copies.empty(collection).columns(query)]
        )
        columns.degraded = degraded
        return columns

    async def _by_indexes(
        self, collection: Collection, query: SearchQuery, states: Sequence[partitions.MongoPartition]
    ) -> Columns:
        """Raises SearchIndexFailed."""
        reason = self._indexes.unusable(collection)
        if reason is not None:
            raise SearchIndexFailed(reason)
        try:
            with self._within(LONG_FACTOR if query.depth else 1):
                columns = await self._candidates.columns(
                    collection, query, states, to_ms(self._clock.now()), partial(self._indexes.look, collection)
                )
        except SearchIndexFailed as error:
            self._indexes.failed(collection, str(error))
            raise
        self._indexes.answered(collection)
        return columns

    @connection.shielded
    async def fetch(self, collection: Collection[R], tenant: str, rows: Ints) -> list[protocol.Fetched[R] | None]:
        wanted: list[int] = rows.tolist()
        by_row: dict[int, protocol.Fetched[R]] = {}
        with self._within():
            for part in codec.parts(wanted):
                cursor = self._database[collection.name].find(
                    {codec.ROW: {"$in": part}, "tenant_id": tenant}, codec.WITH_ROW, batch_size=len(part) + 1
                )
                page = await cursor.to_list()
                numbers = [int(stored[codec.OWN]["row"]) for stored in page]
                for row, doc in zip(numbers, await codec.all_decoded(collection, page), strict=True):
                    if doc is not None and is_readable(collection, doc):
                        by_row[row] = protocol.Fetched(doc)
        return [by_row.get(row) for row in wanted]

    @property
    def reembedding(self) -> MongoReembedding:
        return MongoReembedding(self._database, self._slow)

    @property
    def accounting(self) -> MongoAccounting:
        return MongoAccounting(self._database, self._collections, self._slowly)

    async def _timely(self, work: Callable[[], Awaitable[T]], deadlines: int = 1) -> T:
        """Runs calls of the driver to their end, within the deadline of a request or some of them."""

        async def within() -> T:
            with self._within(deadlines):
                return await work()

        return await self.run(within())

    async def _slow(self, work: Callable[[], Awaitable[T]]) -> T:
        return await self._timely(work, LONG_FACTOR)

    # --- Moving -------------------------------------------------------------------------------------------------------

    @connection.shielded
    async def export(self, collection: Collection, after: str | None, limit: int) -> list[Record]:
        with self._within(LONG_FACTOR):
            page = self._database[collection.name].find({"_id": {"$gt": after or ""}}).sort("_id", 1).limit(limit)
            records = []
            async for stored in page:
                place, packed = stored["_id"], codec.packed_of(stored.get(codec.OWN, {}))
                records.append(Record(codec.decode(collection, stored), packed, place))
            return records

    @connection.shielded
    async def load(self, collection: Collection, records: Sequence[Record]) -> int:
        now_ms = to_ms(self._clock.now())

        async def attempt(session: connection.MongoSession) -> int:
            keys = [codec.key(record.doc["tenant_id"], str(record.doc[collection.id_field])) for record in records]
            there: set[str] = set()
            for part in codec.parts(keys):
                cursor = self._database[collection.name].find({"_id": {"$in": part}}, {"_id": 1}, session=session)
                there.update([stored["_id"] async for stored in cursor])
            writing = partitions.PartitionWriting(self._database, session, set(), now_ms)
            usage = UsageWriting(self._database, session, slot_at_random())
            writes, loaded = connection.TransactionWrites(self._database, session, self._bulk), 0
            for stored_id, record in zip(keys, records, strict=True):
                if stored_id in there:
                    continue
                stored = codec.new_document(collection, record.doc)
                usage.add(collection, None, stored)
                if record.packed is not None:
                    partitions.add_own(stored, await writing.take_in(collection, record.doc, record.packed))
                writes.insert(collection.name, stored)
                loaded += 1
            await writing.close(writes)
            usage.close(writes)
            await writes.send()
            return loaded

        return await self._slowly.in_transaction(attempt)

    async def backup(self, target: Path) -> int:  # noqa: ARG002 (the protocol's shape)
        raise BackupRefused(
            "MongoDB has tools of its own for this (mongodump, Atlas backups); `recalld export` writes a tenant's data."
        )

    @connection.shielded
    async def counters(self) -> list[Counter]:
        with self._within(LONG_FACTOR):
            cursor = self._database[connection.COUNTERS].find({})
            return [Counter(stored["tenant_id"], stored["name"], int(stored["value"])) async for stored in cursor]

    @connection.shielded
    async def load_counters(self, counters: Sequence[Counter], *, only: bool = False) -> None:
        with self._within(LONG_FACTOR):
            if only:
                await self._database[connection.COUNTERS].delete_many({})
            writes = [
                UpdateOne(
                    {"_id": partitions.counter_key(counter.tenant, counter.name)},
                    {
                        "$max": {"value": Int64(counter.value)},
                        "$setOnInsert": {"tenant_id": counter.tenant, "name": counter.name},
                    },
                    upsert=True,
                )
                for counter in counters
            ]
            for part in codec.parts(writes):
                await self._database[connection.COUNTERS].bulk_write(part)

    @connection.shielded
    async def notes(self, new: Mapping[str, str] | None = None) -> dict[str, str]:
        with self._within():
            own, set_to = self._database[connection.META], {name: text for name, text in (new or {}).items() if text}
            emptied = {name: "" for name in new or {} if name not in set_to}
            for operator, fields in (("$set", set_to), ("$unset", emptied)):
                if fields:
                    await own.update_one({"_id": "notes"}, {operator: fields}, upsert=True)
            stored = await own.find_one({"_id": "notes"}, {"_id": 0})
            return {} if stored is None else dict(stored)

    # --- Erasing ------------------------------------------------------------------------------------------------------

    @connection.shielded
    async def purge(self, tenant: str, user: str, counters: Sequence[str]) -> None:
        # a partition that is written to again stays: a transaction that read it before conflicts and is retried
        wanted = {"tenant_id": tenant, "user_id": user, "count": 0}

        async def forget() -> list[int]:
            numbers = [
                int(stored["partition"])
                async for stored in self._database[connection.PARTITIONS].find(wanted, {"partition": 1})
            ]
            for part in codec.parts(numbers):
                await self._database[connection.TOMBSTONES].delete_many({"partition": {"$in": part}})
                await self._database[connection.PARTITIONS].delete_many({**wanted, "partition": {"$in": part}})
            for names in codec.parts([partitions.counter_key(tenant, name) for name in counters]):
                await self._database[connection.COUNTERS].delete_many({"_id": {"$in": names}})
            return numbers

        gone = await self._slow(forget)
        await self.change_log.forget(tenant, user)
        self._copies.drop_partitions(gone)

    async def scrub(self) -> None:
        """Does nothing: the files belong to the deployment."""

    # --- Operating ----------------------------------------------------------------------------------------------------

    @connection.shielded
    async def check(self, *, deep: bool = False, told: protocol.Told = protocol.untold) -> list[protocol.Finding]:
        with self._within():
            await self._client.admin.command("ping")
            # a ping needs no readable primary, a read does
            await self._database[connection.COUNTERS].find_one({}, {"_id": 1})
        if deep:
            with connection.guarded():
                return [*await deep_check(self._database, self._collections, told), *await self._indexes.findings()]
        return [protocol.Finding("store", True, "readable"), protocol.Finding("search", True, self._indexes.described)]
