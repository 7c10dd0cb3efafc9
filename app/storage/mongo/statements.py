"""Statements over many documents of MongoDB: decay, erasure, moving to another model or another store."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from bson.int64 import Int64
from pymongo import UpdateOne

from app.storage.mongo import codec
from app.storage.mongo.bulk import BulkSupport, TransactionWrites
from app.storage.mongo.codec import (
    KEPT,
    MODEL,
    OWN,
    PARTITION,
    ROW,
    SEPARATOR,
    VECTOR,
    WITH_ROW,
    Stored,
    decode,
    key,
    new_document,
    packed_of,
    parts,
)
from app.storage.mongo.connection import COUNTERS, META, PARTITIONS, TOMBSTONES, Database, MongoSession
from app.storage.mongo.partitions import PartitionWriting, add_own, counter_key
from app.storage.mongo.usage import UsageWriting, slot_at_random
from app.storage.protocol import DecayRule, MissingVector, PartitionSelector, VectorCounts, unpinned
from app.storage.schema import Collection, Filter
from app.storage.transfer import Counter, Record

ROWS = 1_000
LOOKED_AT = 10_000
"""Documents that one part of a look reads: a tenth of a second."""
AFTER_SEPARATOR = chr(ord(SEPARATOR) + 1)
DAY_MS = 86_400_000.0


@dataclass(slots=True)
class DecayStep:
    """Applies a decay rule to documents in the order of their ids.

    `run` handles one page after `last` and moves `last`, to None at the end.
    """

    database: Database
    collection: Collection
    tenant: str | None
    rule: DecayRule
    where: Filter
    last: str | None = ""

    async def run(self) -> int:
        """Writes one page. Returns how many documents changed."""
        documents = self.database[self.collection.name]
        wanted = _fading(self.collection, self.tenant, self.where)
        after = codec.all_of({"_id": {"$gt": self.last}}, wanted)
        page = await documents.find(after, {"_id": 1}).sort("_id", 1).limit(ROWS).to_list()
        if not page:
            self.last = None
            return 0
        end = page[-1]["_id"]
        within = codec.all_of({"_id": {"$gt": self.last, "$lte": end}}, wanted)
        done = await documents.update_many(within, [{"$set": {"importance": written(self.rule)}}])
        self.last = end if len(page) == ROWS else None  # only now, so that an interrupted step runs again
        return done.modified_count


@dataclass(slots=True)
class FadingScan:
    """Looks for up to `limit` documents among all of a tenant, or of all tenants with None, in the order of their ids.

    No index knows the answer, so all may have to be read. `run` reads those after `last`, `LOOKED_AT` of them, and
    moves `last`, to None at the end: a service that stops does not wait for the whole collection.
    """

    database: Database
    collection: Collection
    tenant: str | None
    wanted: Stored
    limit: int
    last: str | None = ""

    async def run(self) -> list[str]:
        """Returns the ids found in one part."""
        documents = self.database[self.collection.name]
        bounds = {"$gt": self.last}
        if self.tenant is not None:
            bounds = {"$gt": self.last or key(self.tenant, ""), "$lt": f"{self.tenant}{AFTER_SEPARATOR}"}
        after: Stored = {"_id": bounds}
        # only ids are walked over here, which the index has: no document is read for it
        end = await documents.find(after, {"_id": 1}).sort("_id", 1).skip(LOOKED_AT - 1).limit(1).to_list()
        within = {"_id": {**bounds, "$lte": end[0]["_id"]}} if end else after
        wanted = {"$and": [within, self.wanted]}
        matching = (
            await documents.find(wanted, {self.collection.id_field: 1}).sort("_id", 1).limit(self.limit).to_list()
        )
        self.limit -= len(matching)
        self.last = end[0]["_id"] if end and self.limit else None  # only now: an interrupted part is read again
        return [str(stored[self.collection.id_field]) for stored in matching]


def would_change(
    database: Database, collection: Collection, tenant: str | None, rule: DecayRule, where: Filter
) -> FadingScan:
    """Returns the look for a document that matches and that the rule would change."""
    moved = codec.all_of(_fading(collection, tenant, where), {"$expr": {"$ne": ["$importance", written(rule)]}})
    return FadingScan(database, collection, tenant, moved, 1)


def undecayable(
    database: Database, collection: Collection, tenant: str | None, where: Filter, limit: int
) -> FadingScan:
    """Returns the look for documents that no decay rule can be applied to."""
    wanted = codec.of_tenant(collection, tenant, unpinned(where))
    return FadingScan(database, collection, tenant, {"$and": [wanted, {"$nor": [_DECAYS]}]}, limit)


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
    return {"$and": [codec.of_tenant(collection, tenant, unpinned(where)), _DECAYS]}


def written(rule: DecayRule) -> Expression:
    """Returns the expression of the new `importance`. The server does not write a document whose value stays."""
    moved = {"$abs": {"$subtract": ["$importance", "$$faded"]}}
    value = {"$cond": [{"$gte": [moved, rule.least]}, "$$faded", "$importance"]}
    return {"$let": {"vars": {"faded": faded(rule)}, "in": value}}


def faded(rule: DecayRule) -> Expression:
    """Returns the formula of `retrieval/decay.py` as an expression."""
    since = {"$subtract": [{"$toDate": rule.now}, _TIME]}
    idle = {"$max": [0.0, {"$subtract": [{"$divide": [since, DAY_MS]}, rule.grace_days]}]}
    decayed = {"$multiply": ["$base_importance", {"$pow": [rule.factor, {"$divide": [idle, 30.0]}]}]}
    return {"$max": [{"$min": ["$base_importance", rule.floor]}, decayed]}


async def forget(database: Database, tenant: str, user: str, counters: Sequence[str]) -> list[int]:
    """Deletes the user's empty partitions and these counters. Returns the partitions' numbers.

    A partition that is written to again stays: a transaction that read it before its deletion conflicts and is retried.
    """
    wanted = {"tenant_id": tenant, "user_id": user, "count": 0}
    numbers = [int(stored["pair"]) async for stored in database[PARTITIONS].find(wanted, {"pair": 1})]
    for part in parts(numbers):
        await database[TOMBSTONES].delete_many({"pair": {"$in": part}})
        await database[PARTITIONS].delete_many({**wanted, "pair": {"$in": part}})
    for names in parts([counter_key(tenant, name) for name in counters]):
        await database[COUNTERS].delete_many({"_id": {"$in": names}})
    return numbers


T = TypeVar("T")

DROPPED_AT_ONCE = 200


class Slow(Protocol):
    """Runs work that may take long."""

    def __call__(self, work: Callable[[], Awaitable[T]], /) -> Awaitable[T]: ...


class MongoReembedding:
    """Implements `Reembedding`."""

    def __init__(self, database: Database, slow: Slow) -> None:
        self._database, self._slow = database, slow

    async def partitions(
        self, collection: Collection, model: int, after: int, limit: int, which: PartitionSelector
    ) -> list[int]:
        of: dict[PartitionSelector, Stored] = {
            "every": {},
            "unlike": {"model": {"$ne": model}},
            "other": {"model": {"$exists": True, "$nin": [0, model]}},
        }
        wanted = {"collection": collection.name, "pair": {"$gt": after}, "count": {"$gt": 0}, **of[which]}

        async def read() -> list[int]:
            cursor = self._database[PARTITIONS].find(wanted, {"pair": 1}).sort("pair", 1).limit(limit)
            return [int(stored["pair"]) async for stored in cursor]

        return await self._slow(read)

    async def missing_vectors(
        self, collection: Collection, partitions: Sequence[int], model: int, after: int, limit: int
    ) -> list[MissingVector]:
        wanted = {PARTITION: {"$in": list(partitions)}, ROW: {"$gt": after}, **_lacks(model)}

        async def read() -> list[MissingVector]:
            cursor = self._database[collection.name].find(wanted, WITH_ROW).sort(ROW, 1).limit(limit)
            return [MissingVector(int(stored[OWN]["row"]), decode(collection, stored)) async for stored in cursor]

        return await self._slow(read)

    async def mark_migrated(self, collection: Collection, partitions: Sequence[int], model: int) -> None:
        async def write() -> None:
            versions = self._database[PARTITIONS].find({"pair": {"$in": list(partitions)}}, {"pair": 1, "version": 1})
            before = await versions.to_list()
            missing_vectors = await self._database[collection.name].aggregate(
                [
                    {"$match": {PARTITION: {"$in": list(partitions)}, **_lacks(model)}},
                    {"$group": {"_id": f"${PARTITION}"}},
                ]
            )
            left = {int(group["_id"]) async for group in missing_vectors}
            # a write to the partition meanwhile has changed its version
            writes = [
                UpdateOne({"_id": partition["_id"], "version": partition["version"]}, {"$set": {"model": Int64(model)}})
                for partition in before
                if int(partition["pair"]) not in left
            ]
            if writes:
                await self._database[PARTITIONS].bulk_write(writes, ordered=False)

        await self._slow(write)

    async def counts(self, collection: Collection, model: int, dim: int) -> VectorCounts:  # noqa: ARG002
        """Counts vectors by model. Does not check their length, because the code of a model includes its dimension."""
        documents = self._database[collection.name]

        async def read() -> VectorCounts:
            records = await documents.count_documents({})
            vectors = await documents.count_documents({VECTOR: {"$exists": True}})
            of_model = await documents.count_documents({VECTOR: {"$exists": True}, MODEL: model})
            alternates = await documents.count_documents({KEPT: {"$exists": True}})
            return VectorCounts.of(records, vectors, of_model, alternates)

        return await self._slow(read)

    async def drop_previous_vectors(self, collection: Collection) -> int:
        documents = self._database[collection.name]

        async def drop_some() -> int:
            carriers = await documents.find({KEPT: {"$exists": True}}, {"_id": 1}).limit(DROPPED_AT_ONCE).to_list()
            ids = [stored["_id"] for stored in carriers]
            if not ids:
                return 0
            return (await documents.update_many({"_id": {"$in": ids}}, {"$unset": {KEPT: ""}})).modified_count

        async def forget() -> None:
            await self._database[PARTITIONS].update_many(
                {"collection": collection.name, "kept": True}, {"$set": {"kept": False}}
            )

        dropped = 0
        while step := await self._slow(drop_some):
            dropped += step
        await self._slow(forget)
        return dropped


def _lacks(model: int) -> Stored:
    return {"$or": [{MODEL: {"$ne": model}}, {VECTOR: {"$exists": False}}]}


async def export(database: Database, collection: Collection, after: str | None, limit: int) -> list[Record]:
    """Returns up to `limit` records after the position `after`, by `_id`."""
    page = database[collection.name].find({"_id": {"$gt": after or ""}}).sort("_id", 1).limit(limit)
    records = []
    async for stored in page:
        place, packed = stored["_id"], packed_of(stored.get(OWN, {}))
        records.append(Record(decode(collection, stored), packed, place))
    return records


async def load(
    database: Database,
    session: MongoSession,
    collection: Collection,
    records: Sequence[Record],
    now_ms: int,
    support: BulkSupport,
) -> int:
    """Inserts records, skipping existing ids. Returns the number inserted. Runs inside a transaction."""
    keys = [key(record.doc["tenant_id"], str(record.doc[collection.id_field])) for record in records]
    there: set[str] = set()
    for part in parts(keys):
        cursor = database[collection.name].find({"_id": {"$in": part}}, {"_id": 1}, session=session)
        there.update([stored["_id"] async for stored in cursor])
    partitions = PartitionWriting(database, session, set(), now_ms)
    usage = UsageWriting(database, session, slot_at_random())
    writes, loaded = TransactionWrites(database, session, support), 0
    for stored_id, record in zip(keys, records, strict=True):
        if stored_id in there:
            continue
        stored = new_document(collection, record.doc)
        usage.add(collection, None, stored)
        if record.packed is not None:
            own = await partitions.take_in(collection, record.doc, record.packed)
            add_own(stored, own)
        writes.insert(collection.name, stored)
        loaded += 1
    await partitions.close(writes)
    usage.close(writes)
    await writes.send()
    return loaded


async def counters(database: Database) -> list[Counter]:
    """Returns all counters."""
    cursor = database[COUNTERS].find({})
    return [Counter(stored["tenant_id"], stored["name"], int(stored["value"])) async for stored in cursor]


NOTES = "notes"


async def notes(database: Database, new: Mapping[str, str]) -> dict[str, str]:
    """Keeps notes about the store; an empty one goes. Returns all of them."""
    own = database[META]
    written = {name: text for name, text in new.items() if text}
    for operator, fields in (("$set", written), ("$unset", {name: "" for name in new if name not in written})):
        if fields:
            await own.update_one({"_id": NOTES}, {operator: fields}, upsert=True)
    stored = await own.find_one({"_id": NOTES}, {"_id": 0})
    return {} if stored is None else dict(stored)


async def load_counters(database: Database, given: Sequence[Counter], *, only: bool = False) -> None:
    """Raises the counters to these values; `only` makes them exactly these."""
    if only:
        await database[COUNTERS].delete_many({})
    writes = [
        UpdateOne(
            {"_id": counter_key(counter.tenant, counter.name)},
            {
                "$max": {"value": Int64(counter.value)},
                "$setOnInsert": {"tenant_id": counter.tenant, "name": counter.name},
            },
            upsert=True,
        )
        for counter in given
    ]
    for part in parts(writes):
        await database[COUNTERS].bulk_write(part)
