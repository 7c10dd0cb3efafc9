"""`Fade` as one pipeline update, in steps of so many documents. The server computes it on each document as it is at
that moment, so that nothing that others change meanwhile is overwritten."""

from dataclasses import dataclass
from typing import Any

from app.storage.collection import Collection
from app.storage.filters import Eq, Filter, Not, both
from app.storage.mongo import query
from app.storage.mongo.pairs import Database
from app.storage.rules import Fade

ROWS = 1_000
DAY_MS = 86_400_000.0


@dataclass(slots=True)
class Step:
    """The documents after `last`, in the order of their ids; `run` moves it on, to None at the end."""

    database: Database
    collection: Collection
    tenant: str | None
    rule: Fade
    where: Filter
    last: str | None = ""

    async def run(self) -> int:
        """How many were changed."""
        documents = self.database[self.collection.name]
        wanted = _fading(self.collection, self.tenant, self.where)
        after = query.joined({"_id": {"$gt": self.last}}, wanted)
        page = await documents.find(after, {"_id": 1}).sort("_id", 1).limit(ROWS).to_list()
        if not page:
            self.last = None
            return 0
        end = page[-1]["_id"]
        within = query.joined({"_id": {"$gt": self.last, "$lte": end}}, wanted)
        done = await documents.update_many(within, [{"$set": {"importance": written(self.rule)}}])
        self.last = end if len(page) == ROWS else None  # only now: what was interrupted is run again
        return done.modified_count


async def would_change(
    database: Database, collection: Collection, tenant: str | None, rule: Fade, where: Filter
) -> bool:
    moved = query.joined(_fading(collection, tenant, where), {"$expr": {"$ne": ["$importance", written(rule)]}})
    return await database[collection.name].find_one(moved, {"_id": 1}) is not None


def _fading(collection: Collection, tenant: str | None, where: Filter) -> dict[str, Any]:
    return query.of_tenant(collection, tenant, both(where, Not(Eq("pinned", True))))


def written(rule: Fade) -> dict[str, Any]:
    """What `importance` shall be: a document that keeps it is not written by the server."""
    moved = {"$abs": {"$subtract": ["$importance", "$$faded"]}}
    value = {"$cond": [{"$gte": [moved, rule.least]}, "$$faded", "$importance"]}
    return {"$let": {"vars": {"faded": faded(rule)}, "in": value}}


def faded(rule: Fade) -> dict[str, Any]:
    """The formula of `memories/strength.py`, as an expression."""
    since = {"$subtract": [{"$toDate": rule.now}, {"$toDate": "$anchored_at"}]}
    idle = {"$max": [0.0, {"$subtract": [{"$divide": [since, DAY_MS]}, rule.grace_days]}]}
    kept = {"$multiply": ["$base_importance", {"$pow": [rule.factor, {"$divide": [idle, 30.0]}]}]}
    return {"$max": [{"$min": ["$base_importance", rule.floor]}, kept]}
