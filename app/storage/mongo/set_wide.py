"""Operations on sets of documents: decay in one statement, and erasure of a user's partitions."""

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
        after = filters.joined({"_id": {"$gt": self.last}}, wanted)
        page = await documents.find(after, {"_id": 1}).sort("_id", 1).limit(ROWS).to_list()
        if not page:
            self.last = None
            return 0
        end = page[-1]["_id"]
        within = filters.joined({"_id": {"$gt": self.last, "$lte": end}}, wanted)
        done = await documents.update_many(within, [{"$set": {"importance": written(self.rule)}}])
        self.last = end if len(page) == ROWS else None  # only now, so that an interrupted step runs again
        return done.modified_count


async def would_change(
    database: Database, collection: Collection, tenant: str | None, rule: DecayRule, where: Filter
) -> bool:
    """Returns whether the rule would change any document that matches."""
    moved = filters.joined(_fading(collection, tenant, where), {"$expr": {"$ne": ["$importance", written(rule)]}})
    return await database[collection.name].find_one(moved, {"_id": 1}) is not None


def _fading(collection: Collection, tenant: str | None, where: Filter) -> dict[str, Any]:
    return filters.of_tenant(collection, tenant, both(where, Not(Eq("pinned", True))))


def written(rule: DecayRule) -> dict[str, Any]:
    """Returns the expression of the new `importance`. The server does not write a document whose value stays."""
    moved = {"$abs": {"$subtract": ["$importance", "$$faded"]}}
    value = {"$cond": [{"$gte": [moved, rule.least]}, "$$faded", "$importance"]}
    return {"$let": {"vars": {"faded": faded(rule)}, "in": value}}


def faded(rule: DecayRule) -> dict[str, Any]:
    """Returns the formula of `retrieval/decay.py` as an expression."""
    since = {"$subtract": [{"$toDate": rule.now}, {"$toDate": "$anchored_at"}]}
    idle = {"$max": [0.0, {"$subtract": [{"$divide": [since, DAY_MS]}, rule.grace_days]}]}
    kept = {"$multiply": ["$base_importance", {"$pow": [rule.factor, {"$divide": [idle, 30.0]}]}]}
    return {"$max": [{"$min": ["$base_importance", rule.floor]}, kept]}


async def forget(database: Database, tenant: str, user: str, counters: Sequence[str]) -> list[int]:
    """Deletes the user's empty partitions and these counters. Returns the partitions' numbers.

    A partition that is written to again stays: a transaction that read it before its deletion conflicts and is retried.
    """
    wanted = {"tenant_id": tenant, "user_id": user, "count": 0}
    numbers = [int(stored["pair"]) async for stored in database[PAIRS].find(wanted, {"pair": 1})]
    for part in parts(numbers):
        await database[TOMBSTONES].delete_many({"pair": {"$in": part}})
        await database[PAIRS].delete_many({**wanted, "pair": {"$in": part}})
    for names in parts([orjson.dumps([tenant, name]).decode() for name in counters]):
        await database[COUNTERS].delete_many({"_id": {"$in": names}})
    return numbers
