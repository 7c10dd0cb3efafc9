"""Work on whole sets of documents: decay in one statement, erasure of what belongs to a user."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from app.storage.filters import Eq, Filter, Not, both
from app.storage.mongo import filters
from app.storage.mongo.codec import parts
from app.storage.mongo.partitions import COUNTERS, PAIRS, TOMBSTONES, Database
from app.storage.protocol import DecayRule
from app.storage.schema import Collection

ROWS = 1_000
DAY_MS = 86_400_000.0


@dataclass(slots=True)
class DecayStep:
    """The documents after `last`, in the order of their ids; `run` moves it on, to None at the end."""

    database: Database
    collection: Collection
    tenant: str | None
    rule: DecayRule
    where: Filter
    last: str | None = ""

    async def run(self) -> int:
        """How many were changed."""
        documents = self.database[self.collection.name]
        wanted = _fading(self.collection, self.tenant, self.where)
        after = filters.joined({"_id": {"$gt": self.last}}, wanted)
        page = await documents.find(after, {"_id": 1}).sort("_id", 1).limit(ROWS).to_list()
        if not page:
            self.last = None
            return 0
        end = page[-1]["_id"]
        within = filters.joined({"_id": {"$gt": self.last, "$lte": end}}, wanted)
        done = await documents.update_many(within, [{"$set": {"importance": written(self.rule)}}])
        self.last = end if len(page) == ROWS else None  # only now: what was interrupted is run again
        return done.modified_count


async def would_change(
    database: Database, collection: Collection, tenant: str | None, rule: DecayRule, where: Filter
) -> bool:
    moved = filters.joined(_fading(collection, tenant, where), {"$expr": {"$ne": ["$importance", written(rule)]}})
    return await database[collection.name].find_one(moved, {"_id": 1}) is not None


def _fading(collection: Collection, tenant: str | None, where: Filter) -> dict[str, Any]:
    return filters.of_tenant(collection, tenant, both(where, Not(Eq("pinned", True))))


def written(rule: DecayRule) -> dict[str, Any]:
    """What `importance` shall be: a document that keeps it is not written by the server."""
    moved = {"$abs": {"$subtract": ["$importance", "$$faded"]}}
    value = {"$cond": [{"$gte": [moved, rule.least]}, "$$faded", "$importance"]}
    return {"$let": {"vars": {"faded": faded(rule)}, "in": value}}


def faded(rule: DecayRule) -> dict[str, Any]:
    """The formula of `retrieval/decay.py`, as an expression."""
    since = {"$subtract": [{"$toDate": rule.now}, {"$toDate": "$anchored_at"}]}
    idle = {"$max": [0.0, {"$subtract": [{"$divide": [since, DAY_MS]}, rule.grace_days]}]}
    kept = {"$multiply": ["$base_importance", {"$pow": [rule.factor, {"$divide": [idle, 30.0]}]}]}
    return {"$max": [{"$min": ["$base_importance", rule.floor]}, kept]}


async def forget(database: Database, tenant: str, user: str, counters: Sequence[str]) -> list[int]:
    """Numbers of the pairs that went. One into which somebody writes again stays: a transaction that read it before it
    went conflicts, and begins anew."""
    wanted = {"tenant_id": tenant, "user_id": user, "count": 0}
    numbers = [int(stored["pair"]) async for stored in database[PAIRS].find(wanted, {"pair": 1})]
    for part in parts(numbers):
        await database[TOMBSTONES].delete_many({"pair": {"$in": part}})
        await database[PAIRS].delete_many({**wanted, "pair": {"$in": part}})
    for names in parts([orjson.dumps([tenant, name]).decode() for name in counters]):
        await database[COUNTERS].delete_many({"_id": {"$in": names}})
    return numbers
