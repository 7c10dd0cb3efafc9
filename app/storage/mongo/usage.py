"""Usage of tenants in MongoDB. The transaction that changes records adds what it changes to one of many slots.

Two transactions that add to one document conflict. A tenant's usage is therefore the sum of up to `SLOTS` documents,
and a transaction picks one at random. Bytes are those of the documents as BSON, without the engine's own fields.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import bson
import orjson
from bson.int64 import Int64

from app.storage.mongo.bulk import TransactionWrites
from app.storage.mongo.codec import OWN, Stored
from app.storage.mongo.connection import META, Database, MongoSession, guarded
from app.storage.mongo.transactions import TransactionRunner
from app.storage.schema import Collection
from app.storage.usage import StoredTotals, Usage, UsageByTenant, by_tenant, differences, total

USAGE = "recalld_usage"
SLOTS = 64
COUNTED = "usage counted"
"""The id of the mark in `META` that every record has been counted."""
PLAIN = {"_id": 0, OWN: 0}


def slot_at_random() -> int:
    """Returns the number of a slot."""
    return random.randrange(SLOTS)  # noqa: S311 (spreads writers)


def size_of(stored: Stored) -> int:
    """Returns the bytes of a stored document without its id and the engine's own fields."""
    return len(bson.encode({name: value for name, value in stored.items() if name not in PLAIN}))


class UsageWriting:
    """Adds up what one transaction changes, and writes it at the end to the slot."""

    def __init__(self, database: Database, session: MongoSession, slot: int) -> None:
        self._database, self._session, self._slot = database, session, slot
        self._changed: defaultdict[tuple[str, str], Usage] = defaultdict(Usage)

    def add(self, collection: Collection, old: Stored | None, new: Stored | None) -> None:
        """Counts that the document `old` became `new`; None stands for no document."""
        if not collection.counted:
            return
        tenant = str((new or old or {})[collection.payer])
        records = 0 if collection.only_bytes else (new is not None) - (old is not None)
        size = (0 if new is None else size_of(new)) - (0 if old is None else size_of(old))
        self._changed[tenant, collection.name] += Usage(records, size)

    async def remove_matching(self, collection: Collection, wanted: Stored) -> None:
        """Counts the removal of the documents that match, which are still there."""
        if collection.counted:
            async for stored in self._database[collection.name].find(wanted, {OWN: 0}, session=self._session):
                self.add(collection, stored, None)

    def of(self, tenant: str) -> Usage:
        """Returns what the transaction has changed of a tenant's usage."""
        return sum((usage for (owner, _), usage in self._changed.items() if owner == tenant), Usage())

    def close(self, writes: TransactionWrites) -> None:
        """Adds the changes to the writes."""
        for tenant, own in by_tenant(self._changed.items()).items():
            by: Stored = {}
            for name, usage in own.items():
                by[f"collections.{name}.records"] = Int64(usage.records)
                by[f"collections.{name}.bytes"] = Int64(usage.bytes)
            update = {"$inc": by, "$setOnInsert": {"tenant_id": tenant}}
            writes.update(USAGE, {"_id": _slot_id(tenant, self._slot)}, update, upsert=True)


def _slot_id(tenant: str, slot: int) -> str:
    return orjson.dumps([tenant, slot]).decode()


async def usage_of(database: Database, tenant: str, session: MongoSession | None = None) -> Usage:
    """Returns the tenant's whole usage."""
    stored = await _stored(database, {"_id": {"$in": [_slot_id(tenant, slot) for slot in range(SLOTS)]}}, session)
    return total(stored.get(tenant, {}))


async def stored(database: Database, session: MongoSession | None = None) -> dict[str, dict[str, Usage]]:
    """Returns the usage that is stored."""
    return await _stored(database, {}, session)


async def _stored(database: Database, wanted: Stored, session: MongoSession | None) -> dict[str, dict[str, Usage]]:
    usages: list[tuple[tuple[str, str], Usage]] = []
    async for slot in database[USAGE].find(wanted, session=session):
        for name, own in slot["collections"].items():
            usages.append(((slot["tenant_id"], name), Usage(int(own["records"]), int(own["bytes"]))))
    return by_tenant(usages)


async def counted(
    database: Database, collections: Sequence[Collection], tenant: str | None, session: MongoSession | None = None
) -> dict[str, dict[str, Usage]]:
    """Returns the usage by reading the documents, those of one tenant or all."""
    usages: defaultdict[tuple[str, str], Usage] = defaultdict(Usage)
    for collection in collections:
        if not collection.counted:
            continue
        wanted = {} if tenant is None else {collection.payer: tenant}
        async for document in database[collection.name].find(wanted, PLAIN, session=session):
            records = int(not collection.only_bytes)
            usages[document[collection.payer], collection.name] += Usage(records, len(bson.encode(document)))
    return by_tenant(usages.items())


class MongoAccounting:
    """Implements `Accounting`."""

    def __init__(self, database: Database, collections: Sequence[Collection], runner: TransactionRunner) -> None:
        self._database, self._runner = database, runner
        self._collections = [collection for collection in collections if collection.counted]
        self.names = [collection.name for collection in self._collections]

    async def stored(self) -> UsageByTenant:
        return await stored(self._database)

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
        with guarded():
            rows = await (await self._database[USAGE].aggregate(pipeline)).to_list()
        sums = rows[0] if rows else {"tenants": 0}
        usage = {name: Usage(int(sums.get(f"{name}_records", 0)), int(sums.get(f"{name}_bytes", 0))) for name in names}
        return StoredTotals.of(int(sums["tenants"]), usage)

    async def recount(self) -> list[str]:
        tenants = set(await stored(self._database))
        for collection in self._collections:
            tenants.update(await self._database[collection.name].distinct(collection.payer))
        wrong: list[str] = []
        for tenant in sorted(tenants):
            wrong += await self._recount(tenant)
        return wrong

    async def _recount(self, tenant: str) -> list[str]:
        """Counts one tenant in one transaction. It sees one state, and conflicts with whoever changes a slot that it
        replaces."""

        async def attempt(session: MongoSession) -> list[str]:
            wanted = {"tenant_id": tenant}
            stored = await _stored(self._database, wanted, session)
            there = await counted(self._database, self._collections, tenant, session)
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


async def count_once(database: Database, accounting: MongoAccounting) -> None:
    """Counts the records of collections that were not counted when they were written."""
    mark = await database[META].find_one({"_id": COUNTED})
    if mark is None or not set(accounting.names) <= set(mark.get("collections", ())):
        await accounting.recount()
        new = {"$set": {"done": True}, "$addToSet": {"collections": {"$each": accounting.names}}}
        await database[META].update_one({"_id": COUNTED}, new, upsert=True)
