"""The layout of the database: indexes of collections, versions, and the checks of `recalld doctor`."""

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, TypeAlias

from pymongo import IndexModel

from app import VERSION
from app.storage.changes import differences
from app.storage.index.record_codec import TERM, head_dtype, is_long
from app.storage.mongo import codec, connection
from app.storage.mongo.changes import USAGE, counted_usage, stored_usage
from app.storage.protocol import TOLD_EVERY, Finding, Told
from app.storage.schema import Collection, Written, due, newest, refuse_newer_layout

LAYOUT = 1
"""The first layout. Newly declared fields and indexes need no new one."""

MongoStep: TypeAlias = Callable[[connection.Database], Awaitable[None]]
STEPS: Mapping[int, MongoStep] = {}
"""What makes a layout of the one before, by the number of the layout; the first is 2. A step has no transaction of its
own: it must be repeatable, and may run in two processes at once. No older release may run meanwhile."""

log = logging.getLogger(__name__)


def indexes(collection: Collection) -> Iterator[IndexModel]:
    order = [(collection.order, 1), (collection.id_field, 1)]
    for prefix in ((), *collection.indexes):
        fields = [(name, 1) for name in prefix if name != collection.order]
        label, behind = collection.list_index(prefix)
        yield IndexModel([("tenant_id", 1), *fields, *order, *((name, 1) for name in behind)], name=label)
    for field in collection.global_indexes:
        yield IndexModel([(field, 1), (collection.id_field, 1)], name=f"everywhere_{field}")
    for unique in collection.unique:
        path = codec.unique_path(unique)
        there = {path: {"$exists": True}}
        yield IndexModel([(path, 1)], name=f"unique_{unique.name}", unique=True, partialFilterExpression=there)
    if collection.searched:
        yield IndexModel([(codec.ROW, 1)], name="row", unique=True, sparse=True)
        yield IndexModel([(codec.PARTITION, 1), (codec.REV, 1)], name="rev", sparse=True)
        place = [(collection.searched.session, 1), (collection.searched.ordinal, 1)]
        # finds the neighbours of candidates
        yield IndexModel([(codec.PARTITION, 1), *place], name="session", sparse=True)


OWN_INDEXES: dict[str, list[IndexModel]] = {
    connection.COUNTERS: [IndexModel([("tenant_id", 1)], name="of_tenant")],
    connection.PARTITIONS: [
        IndexModel([("collection", 1), ("tenant_id", 1), ("user_id", 1)], name="of_user"),
        IndexModel([("partition", 1)], name="partition", unique=True),
        IndexModel([("collection", 1), ("model", 1), ("partition", 1)], name="of_model"),
    ],
    connection.TOMBSTONES: [IndexModel([("partition", 1), ("rev", 1)], name="rev")],
    USAGE: [IndexModel([("tenant_id", 1)], name="of_tenant")],
    connection.CHANGE_HEADS: [IndexModel([("log", 1)], name="log")],
    connection.CHANGE_LOG: [
        IndexModel(
            [("tenant_id", 1), ("seq", 1)],
            name="seq",
            unique=True,
            partialFilterExpression={"seq": {"$exists": True}},
        ),
        IndexModel(
            [("tenant_id", 1), ("op", 1), ("_id", 1)],
            name="pending",
            partialFilterExpression={"pending": {"$exists": True}},
        ),
        IndexModel([("tenant_id", 1), ("user_id", 1)], name="of_user"),
        IndexModel([("at", 1)], name="everywhere_at"),
    ],
}
"""Indexes of the engine's own collections.

Every collection has an index and so exists before the first transaction: creating one inside a transaction would lock
out others.
"""


def declared(collections: Sequence[Collection]) -> dict[str, list[IndexModel]]:
    return OWN_INDEXES | {collection.name: list(indexes(collection)) for collection in collections}


def fingerprint(wanted: dict[str, list[IndexModel]]) -> str:
    described = repr([(name, [index.document for index in wanted[name]]) for name in sorted(wanted)])
    return blake2b(described.encode(), digest_size=12).hexdigest()


async def reconcile(
    database: connection.Database, collections: Sequence[Collection], steps: Mapping[int, MongoStep] = STEPS
) -> None:
    """Brings an older layout up to date and creates the missing indexes, however long it takes. Raises StoreUnavailable
    if a newer version wrote the database; nothing was written then."""
    wanted, known = declared(collections), newest(LAYOUT, steps)
    marker, before = f"indexes {fingerprint(wanted)}", await written(database)
    if before is not None:
        refuse_newer_layout("The database", before, known)
        if before == Written(known, VERSION) and await database[connection.META].find_one({"_id": marker}) is not None:
            return
        # after a crash the next start repeats the step that was cut short
        for layout, step in due(before.layout, steps):
            log.info("the database is brought to a newer layout", extra={"layout": layout})
            await step(database)
            await _note_version(database, layout)
    started = time.monotonic()
    for number, (name, models) in enumerate(wanted.items(), 1):
        there = set(await database[name].index_information())
        missing = [model for model in models if model.document["name"] not in there]
        if missing:  # another process may make them, too: the second build waits for the first
            await database[name].create_indexes(missing)
            names = ", ".join(str(model.document["name"]) for model in missing)
            log.info("indexes made", extra={"collection": name, "made": names, "at": f"{number}/{len(wanted)}"})
    log.info("indexes are complete", extra={"seconds": round(time.monotonic() - started, 2)})
    await _note_version(database, known)
    await database[connection.META].update_one({"_id": marker}, {"$set": {"done": True}}, upsert=True)


async def written(database: connection.Database) -> Written | None:
    """Returns the layout and the release of the database, or None for a new one."""
    stored = await database[connection.META].find_one({"_id": "layout"})
    return None if stored is None else Written(int(stored["version"]), stored.get("release"))


async def _note_version(database: connection.Database, layout: int) -> None:
    noted = {"version": layout, "release": VERSION}
    await database[connection.META].update_one({"_id": "layout"}, {"$set": noted}, upsert=True)


async def deep_check(database: connection.Database, collections: Sequence[Collection], told: Told) -> list[Finding]:
    """Returns the findings of all checks. Reads every document."""

    async def finding(name: str, faults: AsyncIterator[str]) -> Finding:
        told(name, 0, None)
        return Finding.of(name, [error async for error in faults])

    version = Finding("version", True, str(await written(database)))
    findings = [await finding("indexes", _missing_indexes(database, collections)), version]
    for collection in collections:
        documents = f"{collection.name}: documents"
        findings.append(await finding(documents, _bad_documents(database, collection, partial(told, documents))))
        if collection.searched:
            findings.append(await finding(f"{collection.name}: partitions", _bad_partitions(database, collection)))
    findings.append(await finding("usage", _bad_usage(database, collections)))
    return findings


async def _bad_usage(database: connection.Database, collections: Sequence[Collection]) -> AsyncIterator[str]:
    """Yields tenants whose stored usage is not what they have. Reads one state of the database."""
    async with database.client.start_session(snapshot=True) as session:
        there = await counted_usage(database, collections, None, session)
        for error in differences(await stored_usage(database, session), there):
            yield error


async def _missing_indexes(database: connection.Database, collections: Sequence[Collection]) -> AsyncIterator[str]:
    for name, models in declared(collections).items():
        there = await database[name].index_information()
        for model in models:
            if model.document["name"] not in there:
                yield f"{name} has no index {model.document['name']}"


async def _bad_documents(
    database: connection.Database, collection: Collection, told: Callable[[int, int], None]
) -> AsyncIterator[str]:
    done, total = 0, await database[collection.name].estimated_document_count()
    async for stored in database[collection.name].find({}):
        if not done % TOLD_EVERY:
            told(done, total)
        done += 1
        own, stored_id = stored.get(codec.OWN, {}), stored["_id"]
        doc = codec.decode(collection, stored)
        doc_id = str(doc.get(collection.id_field))
        if stored_id != f"{doc.get('tenant_id')}{codec.SEPARATOR}{doc_id}":
            yield f"{doc_id} lies under another id or tenant"
        if own.get("u", {}) != codec.unique_keys(collection, doc):
            yield f"{doc_id} has other unique keys than its fields say"
        if collection.searched:
            for error in _bad_row(collection, own):
                yield f"{doc_id} {error}"


def _bad_row(collection: Collection, own: codec.OwnFields) -> list[str]:
    if "row" not in own:
        return ["has no search row"]
    size = head_dtype(len(collection.spec.ranges)).itemsize
    parts: dict[str, Any] = {name: own.get(name) for name in ("head", "terms", "facets")}
    if any(part is None for part in parts.values()):
        return ["has a search row without " + ", ".join(n for n, part in parts.items() if part is None)]
    whole = len(parts["head"]) == size and not len(parts["terms"]) % TERM.itemsize and not len(parts["facets"]) % 8
    faults = [] if whole else ["has a search row of a wrong size"]
    if bool(own.get("model")) != ("vector" in own) or (whole and not _windows_fit(collection, own)):
        faults.append("has a vector that does not fit its record")
    return faults


def _windows_fit(collection: Collection, own: codec.OwnFields) -> bool:
    """Returns whether further windows exist if the record says so, each as long as the first."""
    further, long = own.get("further", b""), is_long(collection.spec, own["head"])
    fits = "vector" in own and not len(further) % len(codec.raw_vector(own["vector"]))
    return fits if long and further else long == bool(further)


async def _bad_partitions(database: connection.Database, collection: Collection) -> AsyncIterator[str]:
    grouped = await database[collection.name].aggregate(
        [
            {"$match": {f"{codec.OWN}.partition": {"$exists": True}}},
            {
                "$group": {
                    "_id": f"${codec.OWN}.partition",
                    "there": {"$sum": 1},
                    "newest": {"$max": f"${codec.OWN}.rev"},
                    "models": {"$addToSet": f"${codec.OWN}.model"},
                }
            },
        ]
    )
    there = {int(group["_id"]): group async for group in grouped}
    async for partition in database[connection.PARTITIONS].find({"collection": collection.name}):
        number = int(partition["partition"])
        counted = there.pop(number, {"there": 0, "newest": 0, "models": []})
        if partition["count"] != counted["there"]:
            yield f"partition {number} counts {partition['count']} rows and has {counted['there']}"
        if counted["newest"] > partition["version"]:
            yield f"partition {number} is at version {partition['version']} and holds a row of {counted['newest']}"
        if partition.get("model") and {*counted["models"]} - {partition["model"]}:
            yield f"partition {number} holds a row of another embedding model than it says"
    for number in there:
        yield f"partition {number} is not known"
