"""Brings a database to the declarations: indexes, made once by whichever process comes first.

What was made is written down in `recalld_meta` under a fingerprint of the declarations, so that a start that finds its
own fingerprint reads one document and asks nothing else.
"""

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from pymongo import IndexModel
from pymongo.errors import DuplicateKeyError

from app.errors import StoreUnavailable
from app.storage.collection import Collection
from app.storage.mongo.documents import PAIR, REV, ROW, unique_path
from app.storage.mongo.pairs import COUNTERS, META, PAIRS, TOMBSTONES, Database

LAYOUT = 1
"""Version of the physical layout. Newly declared fields and indexes need no new one."""
LEASE_SECONDS = 30
"""How long others wait before they help: a second build of an index waits for the first, so that it does no harm."""
LOOK_SECONDS = 0.25

log = logging.getLogger(__name__)


def indexes(collection: Collection) -> Iterator[IndexModel]:
    order = [(collection.order, 1), (collection.id_field, 1)]
    for prefix in ((), *collection.indexes):
        fields = [(name, 1) for name in prefix if name != collection.order]
        yield IndexModel([("tenant_id", 1), *fields, *order], name="_".join(("by", *prefix, collection.order)))
    for field in collection.everywhere:
        yield IndexModel([(field, 1), (collection.id_field, 1)], name=f"everywhere_{field}")
    for unique in collection.unique:
        path = unique_path(unique)
        there = {path: {"$exists": True}}
        yield IndexModel([(path, 1)], name=f"unique_{unique.name}", unique=True, partialFilterExpression=there)
    if collection.searched:
        yield IndexModel([(ROW, 1)], name="row", unique=True, sparse=True)
        yield IndexModel([(PAIR, 1), (REV, 1)], name="rev", sparse=True)


OWN_INDEXES: dict[str, list[IndexModel]] = {
    COUNTERS: [IndexModel([("tenant_id", 1)], name="of_tenant")],
    PAIRS: [
        IndexModel([("collection", 1), ("tenant_id", 1), ("user_id", 1)], name="of_user"),
        IndexModel([("pair", 1)], name="pair", unique=True),
        IndexModel([("collection", 1), ("model", 1), ("pair", 1)], name="of_model"),
    ],
    TOMBSTONES: [IndexModel([("pair", 1), ("rev", 1)], name="rev")],
}
"""Every collection has one, and so is there before the first transaction: making one inside would lock out others."""


def declared(collections: Sequence[Collection]) -> dict[str, list[IndexModel]]:
    return OWN_INDEXES | {collection.name: list(indexes(collection)) for collection in collections}


def fingerprint(wanted: dict[str, list[IndexModel]]) -> str:
    described = repr([(name, [index.document for index in wanted[name]]) for name in sorted(wanted)])
    return blake2b(described.encode(), digest_size=12).hexdigest()


async def reconcile(database: Database, collections: Sequence[Collection]) -> None:
    """Makes the missing indexes, however long it takes. Raises StoreUnavailable where a newer version wrote."""
    wanted = declared(collections)
    made = f"indexes {fingerprint(wanted)}"
    while not await _made(database, made):
        if await take(database, "indexes"):
            try:
                await _make(database, wanted)
                await database[META].update_one({"_id": "layout"}, {"$set": {"version": LAYOUT}}, upsert=True)
                await database[META].update_one({"_id": made}, {"$set": {"done": True}}, upsert=True)
            finally:
                await give_back(database, "indexes")
        else:
            log.info("another process makes the indexes; waiting")
            await asyncio.sleep(LOOK_SECONDS)


async def _made(database: Database, made: str) -> bool:
    found = {stored["_id"]: stored async for stored in database[META].find({"_id": {"$in": ["layout", made]}})}
    version = int(found.get("layout", {}).get("version", LAYOUT))
    if version > LAYOUT:
        raise StoreUnavailable(
            f"The database was written by a newer version (layout {version}, known: {LAYOUT}).", retry_after=None
        )
    return made in found


async def take(database: Database, work: str) -> bool:
    """True for the one process that may do this work now; a process that died in it is replaced after a while."""
    now = int(time.time())  # noqa: TID251 (compared between processes, never with a record's time)
    lease = {"_id": f"lease {work}", "until": {"$lt": now}}
    try:
        await database[META].update_one(lease, {"$set": {"until": now + LEASE_SECONDS}}, upsert=True)
    except DuplicateKeyError:
        return False
    return True


async def give_back(database: Database, work: str) -> None:
    await database[META].delete_one({"_id": f"lease {work}"})


async def _make(database: Database, wanted: dict[str, list[IndexModel]]) -> None:
    started = time.monotonic()
    for number, (name, models) in enumerate(wanted.items(), 1):
        there = set(await database[name].index_information())
        missing = [model for model in models if model.document["name"] not in there]
        if missing:
            await database[name].create_indexes(missing)
            names = ", ".join(str(model.document["name"]) for model in missing)
            log.info("indexes made", extra={"collection": name, "made": names, "at": f"{number}/{len(wanted)}"})
    log.info("indexes are complete", extra={"seconds": round(time.monotonic() - started, 2)})
