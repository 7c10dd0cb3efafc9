"""Search indexes of a deployment that has them (Atlas, or MongoDB with mongot): found, made once, watched until ready.

Until they can be queried, and on a deployment without search, every scope is searched exactly.
"""

import asyncio
import logging
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import orjson
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.operations import SearchIndexModel

from app.storage.collection import Collection
from app.storage.mongo.documents import MODEL, OWN, PAIR, VECTOR, range_name
from app.storage.mongo.pairs import META, Database

WORDS, ABSENT = f"{OWN}.words", f"{OWN}.absent"
LOOK_SECONDS = 5.0

log = logging.getLogger(__name__)


def vector_index(collection: Collection) -> str:
    return f"{collection.name}_vector"


def text_index(collection: Collection) -> str:
    return f"{collection.name}_text"


def range_path(field: str) -> str:
    return f"{OWN}.ranges.{range_name(field)}"


def models(collection: Collection, dim: int) -> list[SearchIndexModel]:
    """Every filter that a search may carry is declared, so that it is applied inside the index and never after it."""
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
    """The ordinary index by which candidates' neighbours are found."""
    spec = collection.spec
    return [(PAIR, 1), (spec.session, 1), (spec.ordinal, 1)]


def _place(fields: dict[str, Any], path: str, kind: dict[str, Any]) -> None:
    """A path with dots is a document in a document."""
    *outer, last = path.split(".")
    for name in outer:
        fields = fields.setdefault(name, {"type": "document", "fields": {}})["fields"]
    fields[last] = kind


class SearchIndexes:
    def __init__(self, database: Database, collections: Sequence[Collection], dim: int) -> None:
        self._database, self._dim = database, dim
        self._collections = [collection for collection in collections if collection.searched]
        self._ready: set[str] = set()
        self._supported = False
        self._watching: asyncio.Task[None] | None = None

    def ready(self, collection: Collection) -> bool:
        return collection.name in self._ready

    @property
    def described(self) -> str:
        if not self._supported:
            return "exact: this deployment has no search indexes"
        if len(self._ready) < len(self._collections):
            return f"exact while search indexes are built ({len(self._ready)}/{len(self._collections)} ready)"
        return "vector and text search indexes"

    async def find_out(self) -> None:
        """Asks the deployment, and starts to make and watch the indexes where it has search."""
        if not self._collections:
            return
        try:
            await self._listed(self._collections[0])
        except OperationFailure as fault:
            said = (fault.details or {}).get("codeName", fault.code)
            log.info("no search indexes here: every scope is searched exactly", extra={"said": said})
            return
        self._supported = True
        self._watching = asyncio.create_task(self._make_and_watch(), name="search indexes")

    async def close(self) -> None:
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
            except PyMongoError as fault:
                log.warning("search indexes cannot be asked for", extra={"error": type(fault).__name__})
            if waiting:
                await asyncio.sleep(LOOK_SECONDS)
        log.info("search indexes are ready")

    async def _look_at(self, collection: Collection) -> bool:
        """Makes what is missing; True when all of the collection's can be queried."""
        there = await self._listed(collection)
        await self._database[collection.name].create_index(neighbours(collection), name="session", sparse=True)
        wanted = models(collection, self._dim)
        made = [await self._make(collection, model, there.get(model.document["name"])) for model in wanted]
        named = [there.get(model.document["name"], {}) for model in wanted]
        # one that is being changed answers by its old definition meanwhile: of another dimension, perhaps
        if not any(made) and all(index.get("queryable") and index.get("status") == "READY" for index in named):
            self._ready.add(collection.name)
            return True
        states = {index.get("name"): index.get("status") for index in named if index}
        log.info("search indexes are being built", extra={"collection": collection.name, "status": states})
        return False

    async def _make(self, collection: Collection, model: SearchIndexModel, there: dict[str, Any] | None) -> bool:
        """Once for each definition: what was asked for last is written down beside the layout. True: just now."""
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
