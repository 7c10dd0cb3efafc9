"""Export and import of all records, for `recalld migrate`."""

from collections.abc import Sequence

import orjson
from bson.int64 import Int64
from pymongo import InsertOne, UpdateOne

from app.storage.mongo.changes import new_document
from app.storage.mongo.codec import OWN, Stored, decode, key, packed_of, parts
from app.storage.mongo.partition_writer import PairWriting
from app.storage.mongo.partitions import COUNTERS, Database, MongoSession
from app.storage.schema import Collection
from app.storage.transfer import Counter, Record


async def export(database: Database, collection: Collection, after: str | None, limit: int) -> list[Record]:
    """Returns up to `limit` records after the position `after`, by `_id`."""
    page = database[collection.name].find({"_id": {"$gt": after or ""}}).sort("_id", 1).limit(limit)
    records = []
    async for stored in page:
        place, packed = stored["_id"], packed_of(stored.get(OWN, {}))
        records.append(Record(decode(collection, stored), packed, place))
    return records


async def load(
    database: Database, session: MongoSession, collection: Collection, records: Sequence[Record], now_ms: int
) -> int:
    """Inserts records, skipping existing ids. Returns the number inserted. Runs inside a transaction."""
    keys = [key(record.doc["tenant_id"], str(record.doc[collection.id_field])) for record in records]
    there: set[str] = set()
    for part in parts(keys):
        found = database[collection.name].find({"_id": {"$in": part}}, {"_id": 1}, session=session)
        there.update([stored["_id"] async for stored in found])
    pairs = PairWriting(database, session, set(), now_ms)
    writes: list[InsertOne[Stored]] = []
    for stored_id, record in zip(keys, records, strict=True):
        if stored_id in there:
            continue
        stored = new_document(collection, record.doc)
        if record.packed is not None:
            own = await pairs.take_in(collection, record.doc, record.packed)
            stored.setdefault(OWN, {}).update({name: value for name, value in own.items() if value is not None})
        writes.append(InsertOne(stored))
    if writes:
        await database[collection.name].bulk_write(writes, session=session)
        await pairs.close()
    return len(writes)


async def counters(database: Database) -> list[Counter]:
    """Returns all counters."""
    found = database[COUNTERS].find({})
    return [Counter(stored["tenant_id"], stored["name"], int(stored["value"])) async for stored in found]


async def load_counters(database: Database, given: Sequence[Counter]) -> None:
    """Raises the counters to these values."""
    writes = [
        UpdateOne(
            {"_id": orjson.dumps([one.tenant, one.name]).decode()},
            {"$max": {"value": Int64(one.value)}, "$setOnInsert": {"tenant_id": one.tenant, "name": one.name}},
            upsert=True,
        )
        for one in given
    ]
    for part in parts(writes):
        await database[COUNTERS].bulk_write(part)
