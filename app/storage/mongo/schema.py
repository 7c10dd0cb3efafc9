"""Indexes of collections, and Atlas search indexes."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeAlias

import orjson
from pymongo import IndexModel
from pymongo.errors import DuplicateKeyError, OperationFailure, PyMongoError
from pymongo.operations import SearchIndexModel

from app import VERSION
from app.storage.mongo.codec import MODEL, OWN, PAIR, REV, ROW, VECTOR, range_name, unique_path
from app.storage.mongo.partitions import CHANGE_HEADS, CHANGE_LOG, COUNTERS, META, PAIRS, TOMBSTONES, Database
from app.storage.mongo.usage import USAGE
from app.storage.schema import Collection, Written, due, newest, refuse_newer_layout

LAYOUT = 1
"""The first layout. Newly declared fields and indexes need no new one."""

MongoStep: TypeAlias = Callable[[Database], Awaitable[None]]
STEPS: Mapping[int, MongoStep] = {}
"""What makes a layout of the one before, by the number of the layout; the first is 2. A step has no transaction of its
own: it must be repeatable, and may run in two processes at once. No older release may run meanwhile."""

LEASE_SECONDS = 30
"""Time after which another process helps. This is harmless: a second build of an index waits for the first."""
LOOK_SECONDS = 0.25

log = logging.getLogger(__name__)


def indexes(collection: Collection) -> Iterator[IndexModel]:
    """Yields the indexes of a declared collection."""
    order = [(collection.order, 1), (collection.id_field, 1)]
    for prefix in ((), *collection.indexes):
        fields = [(name, 1) for name in prefix if name != collection.order]
        yield IndexModel([("tenant_id", 1), *fields, *order], name="_".join(("by", *prefix, collection.order)))
    for field in collection.global_indexes:
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
    USAGE: [IndexModel([("tenant_id", 1)], name="of_tenant")],
    CHANGE_HEADS: [IndexModel([("log", 1)], name="log")],
    CHANGE_LOG: [
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
    """Returns all indexes, by collection name."""
    return OWN_INDEXES | {collection.name: list(indexes(collection)) for collection in collections}


def fingerprint(wanted: dict[str, list[IndexModel]]) -> str:
    """Returns a digest of the index declarations."""
    described = repr([(name, [index.document for index in wanted[name]]) for name in sorted(wanted)])
    return blake2b(described.encode(), digest_size=12).hexdigest()


async def reconcile(
    database: Database, collections: Sequence[Collection], steps: Mapping[int, MongoStep] = STEPS
) -> None:
    """Brings an older layout up to date and creates the missing indexes, however long it takes. Raises StoreUnavailable
    if a newer version wrote the database; nothing was written then."""
    wanted = declared(collections)
    marker = f"indexes {fingerprint(wanted)}"
    while not await _made(database, marker, steps):
        if await take(database, "indexes"):
            try:
                await _upgrade(database, steps)
                await _make(database, wanted)
                await _note_version(database, newest(LAYOUT, steps))
                await database[META].update_one({"_id": marker}, {"$set": {"done": True}}, upsert=True)
            finally:
                await give_back(database, "indexes")
        else:
            log.info("another process makes the indexes; waiting")
            await asyncio.sleep(LOOK_SECONDS)


async def written(database: Database) -> Written | None:
    """Returns the layout and the release of the database, or None for a new one."""
    found = await database[META].find_one({"_id": "layout"})
    return None if found is None else Written(int(found["version"]), found.get("release"))


async def _made(database: Database, marker: str, steps: Mapping[int, MongoStep]) -> bool:
    known, found = newest(LAYOUT, steps), await written(database)
    if found is None:
        return False
    refuse_newer_layout("The database", found, known)
    return found == Written(known, VERSION) and await database[META].find_one({"_id": marker}) is not None


async def _upgrade(database: Database, steps: Mapping[int, MongoStep]) -> None:
    """Takes the steps that a database of an older version needs. After a crash the next start goes on with the step
    that was cut short."""
    found = await written(database)
    for layout, step in due(found.layout, steps) if found is not None else ():
        log.info("the database is brought to a newer layout", extra={"layout": layout})
        await step(database)
        await _note_version(database, layout)


async def _note_version(database: Database, layout: int) -> None:
    noted = {"version": layout, "release": VERSION}
    await database[META].update_one({"_id": "layout"}, {"$set": noted}, upsert=True)


async def take(database: Database, work: str) -> bool:
    """Takes the lease of some work. Returns False if another process holds it; the lease of a dead process expires."""
    now = int(time.time())  # noqa: TID251 (compared between processes, never with a record's time)
    lease = {"_id": f"lease {work}", "until": {"$lt": now}}
    try:
        await database[META].update_one(lease, {"$set": {"until": now + LEASE_SECONDS}}, upsert=True)
    except DuplicateKeyError:
        return False
    return True


async def give_back(database: Database, work: str) -> None:
    """Releases the lease."""
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


WORDS, ABSENT = f"{OWN}.words", f"{OWN}.absent"
INDEX_LOOK_SECONDS = 5.0

log = logging.getLogger(__name__)


def vector_index(collection: Collection) -> str:
    """Returns the name of the collection's vector search index."""
    return f"{collection.name}_vector"


def text_index(collection: Collection) -> str:
    """Returns the name of the collection's text search index."""
    return f"{collection.name}_text"


def range_path(field: str) -> str:
    """Returns the path of a range field in stored documents."""
    return f"{OWN}.ranges.{range_name(field)}"


def models(collection: Collection, dim: int) -> list[SearchIndexModel]:
    """Returns the search indexes of the collection.

    They declare every field that a search may filter by, so that filters are applied inside the index, not to its
    results.
    """
    spec = collection.spec
    numbers = [PAIR, MODEL, *map(range_path, spec.ranges)]
    texts = ["tenant_id", ABSENT, *spec.facets]
    vector: list[dict[str, Any]] = [
        {"type": "vector", "path": VECTOR, "numDimensions": dim, "similarity": "cosine"},
        *({"type": "filter", "path": path} for path in [*numbers, *texts]),
    ]
    fields: dict[str, Any] = {}
    for path in numbers:
        _place(fields, path, {"type": "number"})
    for path in texts:
        _place(fields, path, {"type": "token"})
    _place(fields, WORDS, {"type": "string", "analyzer": "lucene.whitespace", "indexOptions": "freqs"})
    mappings = {"mappings": {"dynamic": False, "fields": fields}}
    return [
        SearchIndexModel({"fields": vector}, name=vector_index(collection), type="vectorSearch"),
        SearchIndexModel(mappings, name=text_index(collection), type="search"),
    ]


def neighbours(collection: Collection) -> list[tuple[str, int]]:
    """Returns the keys of the ordinary index that finds the neighbours of candidates."""
    spec = collection.spec
    return [(PAIR, 1), (spec.session, 1), (spec.ordinal, 1)]


def _place(fields: dict[str, Any], path: str, kind: dict[str, Any]) -> None:
    """Sets a field's mapping. A path with dots is a document inside a document."""
    *outer, last = path.split(".")
    for name in outer:
        fields = fields.setdefault(name, {"type": "document", "fields": {}})["fields"]
    fields[last] = kind


class SearchIndexes:
    """Creates and watches the Atlas search indexes, if the deployment has search."""

    def __init__(self, database: Database, collections: Sequence[Collection], dim: int) -> None:
        self._database, self._dim = database, dim
        self._collections = [collection for collection in collections if collection.searched]
        self._ready: set[str] = set()
        self._supported = False
        self._watching: asyncio.Task[None] | None = None

    def ready(self, collection: Collection) -> bool:
        """Returns whether the collection's search indexes can be queried."""
        return collection.name in self._ready

    @property
    def described(self) -> str:
        """The kind of search in use, for `Store.check`."""
        if not self._supported:
            return "exact: this deployment has no search indexes"
        if len(self._ready) < len(self._collections):
            return f"exact while search indexes are built ({len(self._ready)}/{len(self._collections)} ready)"
        return "vector and text search indexes"

    async def find_out(self) -> None:
        """Asks whether the deployment has search; if so, starts to create and watch the indexes."""
        if not self._collections:
            return
        try:
            await self._listed(self._collections[0])
        except OperationFailure as error:
            said = (error.details or {}).get("codeName", error.code)
            log.info("no search indexes here: every scope is searched exactly", extra={"said": said})
            return
        self._supported = True
        self._watching = asyncio.create_task(self._make_and_watch(), name="search indexes")

    async def close(self) -> None:
        """Stops watching the indexes."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait((self._watching,))

    async def _create(self, collection: Collection, model: SearchIndexModel) -> None:
        await self._database[collection.name].create_search_index(model)

    async def _update(self, collection: Collection, name: str, definition: dict[str, Any]) -> None:
        await self._database[collection.name].update_search_index(name, definition)

    async def _listed(self, collection: Collection) -> dict[str, dict[str, Any]]:
        cursor = await self._database[collection.name].list_search_indexes()
        return {index["name"]: dict(index) async for index in cursor}

    async def _make_and_watch(self) -> None:
        waiting = list(self._collections)
        while waiting:
            try:
                waiting = [collection for collection in waiting if not await self._look_at(collection)]
            except PyMongoError as error:
                log.warning("search indexes cannot be asked for", extra={"error": type(error).__name__})
            if waiting:
                await asyncio.sleep(INDEX_LOOK_SECONDS)
        log.info("search indexes are ready")

    async def _look_at(self, collection: Collection) -> bool:
        """Creates what is missing. Returns True if all indexes of the collection can be queried."""
        there = await self._listed(collection)
        await self._database[collection.name].create_index(neighbours(collection), name="session", sparse=True)
        wanted = models(collection, self._dim)
        result = [await self._make(collection, model, there.get(model.document["name"])) for model in wanted]
        named = [there.get(model.document["name"], {}) for model in wanted]
        # an index being changed still answers by its old definition, perhaps of another dimension
        if not any(result) and all(index.get("queryable") and index.get("status") == "READY" for index in named):
            self._ready.add(collection.name)
            return True
        states = {index.get("name"): index.get("status") for index in named if index}
        log.info("search indexes are being built", extra={"collection": collection.name, "status": states})
        return False

    async def _make(self, collection: Collection, model: SearchIndexModel, there: dict[str, Any] | None) -> bool:
        """Creates or updates an index once for each definition, which is recorded. Returns True if it did so now."""
        wanted, name = model.document["definition"], model.document["name"]
        note = {"_id": f"search index {collection.name} {name}"}
        print_ = blake2b(orjson.dumps(wanted, option=orjson.OPT_SORT_KEYS), digest_size=12).hexdigest()
        noted = await self._database[META].find_one(note)
        if there is None:
            await self._create(collection, model)
        elif noted is None or noted.get("definition") != print_:
            await self._update(collection, name, wanted)
        else:
            return False
        await self._database[META].update_one(note, {"$set": {"definition": print_}}, upsert=True)
        log.info("search index asked for", extra={"collection": collection.name, "index": name})
        return True
