"""Atlas search indexes: their definitions, how they are made and watched, and filters in their languages."""

import asyncio
import logging
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, TypeAlias

import orjson
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.operations import SearchIndexModel

from app.storage.index.record_codec import range_value
from app.storage.mongo.codec import MODEL, OWN, PAIR, VECTOR, Stored, range_name
from app.storage.mongo.connection import META, Database
from app.storage.schema import Absent, And, Collection, Eq, Filter, Has, In, Not, Or, Range

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

    def __init__(
        self,
        database: Database,
        collections: Sequence[Collection],
        dim: int,
        look_seconds: float = INDEX_LOOK_SECONDS,
    ) -> None:
        self._database, self._dim, self._look_seconds = database, dim, look_seconds
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
                await asyncio.sleep(self._look_seconds)
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


Leaf: TypeAlias = Eq | Has | In | Absent | Range

NO_FILTER: Stored = {PAIR: {"$eq": -1}}

NOTHING_TEXT: Stored = {"equals": {"path": PAIR, "value": -1}}


# --- Filters ----------------------------------------------------------------------------------------------------------


def inwards(part: Filter, negated: bool = False) -> Filter:
    """Returns an equivalent filter with `Not` only around single conditions that are not ranges."""
    match part:
        case Not(inner):
            return inwards(inner, not negated)
        case And(parts) | Or(parts):
            inner_parts = tuple(inwards(inner, negated) for inner in parts)
            return And(inner_parts) if isinstance(part, And) != negated else Or(inner_parts)
        case Range() if negated:
            return Or((Absent(part.field), *_outside(part)))
        case _:
            return Not(part) if negated else part


def _outside(part: Range) -> list[Filter]:
    beyond = {"lt": part.ge, "le": part.gt, "gt": part.le, "ge": part.lt}
    return [Range(part.field, **{name: bound}) for name, bound in beyond.items() if bound is not None]


def _numbers(part: Range, sign: str) -> dict[str, float]:
    given = {"gte": part.ge, "gt": part.gt, "lte": part.le, "lt": part.lt}
    return {f"{sign}{name}": range_value(bound) for name, bound in given.items() if bound is not None}


def vector_filter(where: Filter) -> list[Stored]:
    """Returns the conditions that must all hold, for `$vectorSearch`."""
    result = _vector(inwards(where))
    return [result] if result else []


def _vector(part: Filter) -> Stored:
    match part:
        case And(parts):
            every = [result for inner in parts if (result := _vector(inner))]
            return {"$and": every} if every else {}
        case Or(parts):
            some = [_vector(inner) for inner in parts]
            return NO_FILTER if not some else {"$or": some} if all(some) else {}
        case Not(inner):
            return _vector_not(inner)
        case _:
            return _vector_leaf(part)


def _vector_leaf(part: Leaf) -> Stored:
    match part:
        case Eq(field, value) | Has(field, value):
            return {field: {"$eq": value}}
        case In(field, values):
            return {field: {"$in": list(values)}} if values else NO_FILTER
        case Absent(field):
            return {ABSENT: {"$eq": field}}
        case Range():
            bounds = _numbers(part, "$")
            return {range_path(part.field): bounds} if bounds else {ABSENT: {"$ne": part.field}}


def _vector_not(part: Filter) -> Stored:
    match part:
        case Eq(field, value) | Has(field, value):
            return {field: {"$ne": value}}
        case In(field, values):
            return {field: {"$nin": list(values)}} if values else {}
        case Absent(field):
            return {ABSENT: {"$ne": field}}
        case _:
            raise TypeError(f"{part} was not moved inwards")


def text_filter(where: Filter) -> list[Stored]:
    """Returns the operators that must all match, for `$search`."""
    result = _text(inwards(where))
    return [] if result is None else [result]


def _text(part: Filter) -> Stored | None:
    """Returns the operator, or None if everything matches."""
    match part:
        case And(parts):
            every = [result for inner in parts if (result := _text(inner)) is not None]
            return {"compound": {"filter": every}} if every else None
        case Or(parts):
            some = [_text(inner) for inner in parts]
            if not some:
                return NOTHING_TEXT
            return None if None in some else {"compound": {"should": some, "minimumShouldMatch": 1}}
        case Not(inner):
            return {"compound": {"mustNot": [_text(inner)]}}
        case _:
            return _text_leaf(part)


def _text_leaf(part: Leaf) -> Stored:
    match part:
        case Eq(field, value) | Has(field, value):
            return {"equals": {"path": field, "value": value}}
        case In(field, values):
            return {"in": {"path": field, "value": list(values)}} if values else NOTHING_TEXT
        case Absent(field):
            return {"equals": {"path": ABSENT, "value": field}}
        case Range():
            bounds = _numbers(part, "")
            path = range_path(part.field)
            return {"range": {"path": path, **bounds}} if bounds else {"exists": {"path": path}}
