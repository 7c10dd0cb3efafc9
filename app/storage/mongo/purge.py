"""Nothing left of a user: the pairs, tombstones and counters that the engine keeps by itself.

The files are the deployment's own: when it overwrites what was deleted there is for its operator to settle.
"""

from collections.abc import Sequence

import orjson

from app.storage.mongo.documents import parts
from app.storage.mongo.pairs import COUNTERS, PAIRS, TOMBSTONES, Database


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
