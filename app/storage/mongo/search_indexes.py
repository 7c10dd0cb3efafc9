"""Atlas search indexes: their definitions, how they are made and watched, and when they are used.

An index may be missing, be building, or be dropped while the service runs; its process may be away, or refuse. What
MongoDB says of an index that does not exist is an empty answer, not an error. So indexes are looked at again: when a
search stage failed, when it answered with nothing, and every few minutes.
"""

import asyncio
import logging
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict, cast

from pymongo.errors import OperationFailure, PyMongoError
from pymongo.operations import SearchIndexModel

from app.core import work
from app.storage.mongo.codec import MODEL, OWN, PARTITION, VECTOR
from app.storage.mongo.connection import Database
from app.storage.mongo.search_filters import ABSENT, range_path
from app.storage.protocol import Finding
from app.storage.schema import Collection

WORDS = f"{OWN}.words"
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 300.0
"""Between two looks at indexes that are not ready, and before an index that failed is asked again: doubled each time,
and varied by a fifth, so that processes do not ask together."""
NO_SEARCH = frozenset({59, 115, 31082, 40324})
"""CommandNotFound, CommandNotSupported, SearchNotEnabled, and the code of an unknown stage: there is no search here."""
BUILDING_SECONDS = 30
"""When a caller may try again while an index is built."""
UNSUPPORTED = "this deployment has no search indexes"
USABLE = "vector and text search indexes"

log = logging.getLogger(__name__)

# --- Definitions ------------------------------------------------------------------------------------------------------

FieldMapping: TypeAlias = dict[str, Any]
"""What a definition says of a field: its `type`, and what depends on the type."""
Fields: TypeAlias = dict[str, FieldMapping | list[FieldMapping]]
"""The mappings of fields by name. A field may have several."""


class TextMappings(TypedDict, total=False):
    """The mappings of a text search index."""

    dynamic: bool
    fields: Fields


class Definition(TypedDict, total=False):
    """The definition of an index: a vector search index has `fields`, a text search index `mappings`. MongoDB may list
    it with an `analyzer`, too."""

    fields: list[FieldMapping]
    mappings: TextMappings
    analyzer: str


class ListedIndex(TypedDict, total=False):
    """An index as MongoDB lists it."""

    name: str
    latestDefinition: Definition
    queryable: bool
    status: str


def vector_index(collection: Collection) -> str:
    """Returns the name of the collection's vector search index."""
    return f"{collection.name}_vector"


def text_index(collection: Collection) -> str:
    """Returns the name of the collection's text search index."""
    return f"{collection.name}_text"


def models(collection: Collection, dim: int) -> list[SearchIndexModel]:
    """Returns the search indexes of the collection.

    They declare every field that a search may filter by, so that filters are applied inside the index, not to its
    results.
    """
    spec = collection.spec
    numbers = [PARTITION, MODEL, spec.importance, *map(range_path, spec.ranges)]
    texts = ["tenant_id", ABSENT, *spec.facets]
    vector: list[FieldMapping] = [
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
    return [(PARTITION, 1), (spec.session, 1), (spec.ordinal, 1)]


def _place(fields: FieldMapping, path: str, kind: FieldMapping) -> None:
    """Sets a field's mapping. A path with dots is a document inside a document."""
    *outer, last = path.split(".")
    for name in outer:
        fields = fields.setdefault(name, {"type": "document", "fields": {}})["fields"]
    fields[last] = kind


def missing(wanted: Definition, there: Definition) -> list[str]:
    """Returns the fields of a definition that another one lacks or declares otherwise.

    What is there may declare more, and have defaults filled in, as Atlas does.
    """
    has = dict(_declared(there))
    lacking = [path for path, kind in _declared(wanted) if not kind.items() <= has.get(path, {}).items()]
    return sorted({path for path, _ in lacking})


def _declared(definition: Definition) -> Iterator[tuple[tuple[str, str], FieldMapping]]:
    """Yields ((path, type), what else is said of it) of each field."""
    for part in definition.get("fields", ()):
        yield (part["path"], part["type"]), part
    yield from _mapped(definition.get("mappings", {}).get("fields", {}), "")


def _mapped(fields: Fields, before: str) -> Iterator[tuple[tuple[str, str], FieldMapping]]:
    for name, mapping in fields.items():
        for kind in mapping if isinstance(mapping, list) else [mapping]:
            if kind["type"] == "document":
                yield from _mapped(kind.get("fields", {}), f"{before}{name}.")
            else:
                yield (f"{before}{name}", kind["type"]), kind


# --- Use --------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class IndexState:
    """Whether the indexes of one collection can be used. `lacking`: what the list of indexes says against it.
    `failure`: why the last search stage failed; `failures` in a row."""

    lacking: str | None = "not looked at yet"
    failure: str | None = None
    failures: int = 0
    retry_at: float = 0.0


def pause(failures: int, first_seconds: float) -> float:
    """Returns the seconds before the next try after so many failures."""
    doubled: float = min(LONGEST_PAUSE_SECONDS, first_seconds * 2 ** min(failures, 16))
    return doubled * random.uniform(0.8, 1.2)  # noqa: S311 (no secret)


class SearchIndexes:
    """Creates and watches the Atlas search indexes, if the deployment has search. `first_pause`: seconds."""

    def __init__(
        self,
        database: Database,
        collections: Sequence[Collection],
        dim: int,
        first_pause: float = FIRST_PAUSE_SECONDS,
    ) -> None:
        self._database, self._dim, self._first_pause = database, dim, first_pause
        self._collections = [collection for collection in collections if collection.searched]
        self._states = {collection.name: IndexState() for collection in self._collections}
        self._with_neighbours: set[str] = set()
        self._told: set[str] = set()
        self._supported = False
        self._look_now = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    @property
    def supported(self) -> bool:
        """Whether the deployment has search."""
        return self._supported

    def unusable(self, collection: Collection) -> str | None:
        """Returns why the collection's indexes cannot be asked now; None if they can."""
        state = self._states[collection.name]
        return state.lacking or (state.failure if self._now() < state.retry_at else None)

    def retry_after(self, collection: Collection) -> int:
        """Returns the seconds after which a caller may try again."""
        state = self._states[collection.name]
        return BUILDING_SECONDS if state.lacking else max(1, round(state.retry_at - self._now()))

    def failed(self, collection: Collection, reason: str) -> None:
        """Notes that a search stage failed: the indexes are looked at, and not asked again before a pause."""
        state = self._states[collection.name]
        state.failure, state.retry_at = reason, self._now() + pause(state.failures, self._first_pause)
        state.failures += 1
        self._look_now.set()
        log.warning("search index cannot be used", extra={"collection": collection.name, "reason": reason})

    def answered(self, collection: Collection) -> None:
        """Notes that the search stages of a collection answered."""
        state = self._states[collection.name]
        state.failure, state.failures = None, 0

    @property
    def described(self) -> str:
        """The kind of search in use, for `Store.check`: each index that cannot be used, and why."""
        if not self._supported:
            return f"exact: {UNSUPPORTED}"
        reasons = {name: state.lacking or state.failure for name, state in self._states.items()}
        faults = [f"{name}: {reason}" for name, reason in reasons.items() if reason is not None]
        return f"exact where indexes cannot be used ({'; '.join(faults)})" if faults else USABLE

    async def find_out(self) -> None:
        """Asks whether the deployment has search; if so, starts to create and watch the indexes."""
        if not self._collections:
            return
        try:
            await self._listed(self._collections[0])
        except OperationFailure as error:
            if error.code in NO_SEARCH:
                answer = (error.details or {}).get("codeName", error.code)
                log.info("no search indexes here: every scope is searched exactly", extra={"said": answer})
                return
        self._supported = True
        self._watching = work.begin(self._watch(), "search indexes")

    async def close(self) -> None:
        """Stops watching the indexes."""
        await work.end(self._watching)

    async def look(self, collection: Collection) -> str | None:
        """Creates what is missing. Returns why the collection's indexes cannot be used; None if they can.

        A list that cannot be read, as while the server is busy, says nothing against indexes that were ready: whether
        they answer, the next search tells.
        """
        state = self._states[collection.name]
        try:
            faults = await self._faults(collection)
        except PyMongoError as error:
            if state.lacking is None:
                return None
            faults = [f"indexes cannot be listed: {reason_of(error)}"]
        if state.lacking is not None and not faults:
            log.info("search indexes are ready", extra={"collection": collection.name})
        state.lacking = "; ".join(faults) or None
        return state.lacking

    async def findings(self) -> list[Finding]:
        """Compares the indexes that are there with those that are wanted, for `recalld doctor`."""
        if not self._supported:
            return []
        result = []
        for collection in self._collections:
            try:
                there = await self._listed(collection)
            except PyMongoError as error:
                return [Finding("search indexes", False, f"cannot be listed: {reason_of(error)}")]
            for model in models(collection, self._dim):
                fault = fault_of(model, there.get(model.document["name"]))
                result.append(Finding(f"search index {model.document['name']}", fault is None, fault or "ready"))
        return result

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _watch(self) -> None:
        looks = 0
        while True:
            faults = [await self.look(collection) for collection in self._collections]  # the first ones come first
            looks = looks + 1 if any(faults) else 16
            self._look_now.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause(looks, self._first_pause)):
                    await self._look_now.wait()
                    looks = 0

    async def _listed(self, collection: Collection) -> dict[str, ListedIndex]:
        cursor = await self._database[collection.name].list_search_indexes()
        return {index["name"]: cast(ListedIndex, index) async for index in cursor}

    async def _faults(self, collection: Collection) -> list[str]:
        if collection.name not in self._with_neighbours:
            await self._database[collection.name].create_index(neighbours(collection), name="session", sparse=True)
            self._with_neighbours.add(collection.name)
        there, faults = await self._listed(collection), []
        for model in models(collection, self._dim):
            index = there.get(model.document["name"])
            fault = fault_of(model, index)
            if fault is not None:
                faults.append(await self._make(collection, model, index) or fault)
        return faults

    async def _make(self, collection: Collection, model: SearchIndexModel, index: ListedIndex | None) -> str | None:
        """Creates an index that is missing, or updates one of another definition. Returns why it could not."""
        name, definition = model.document["name"], model.document["definition"]
        documents = self._database[collection.name]
        try:
            if index is None:
                await documents.create_search_index(model)
            elif missing(definition, index.get("latestDefinition", {})):
                await documents.update_search_index(name, definition)
            else:
                return None
        except OperationFailure as error:
            fault = f"{name} cannot be made: {reason_of(error)}"
            if fault not in self._told:  # at each look, it would fill the log
                self._told.add(fault)
                log.warning("search index is missing", extra={"index": name, "reason": reason_of(error)})
            return fault
        log.info("search index asked for", extra={"collection": collection.name, "index": name})
        return None


def fault_of(model: SearchIndexModel, index: ListedIndex | None) -> str | None:
    """Returns why an index as it is listed cannot be used; None if it can."""
    name = model.document["name"]
    if index is None:
        return f"{name} is missing"
    lacking = missing(model.document["definition"], index.get("latestDefinition", {}))
    if lacking:
        return f"{name} is of another definition: {', '.join(lacking)}"
    # one that is being changed still answers by its old definition, perhaps of another dimension
    if not index.get("queryable") or index.get("status") != "READY":
        return f"{name} is {index.get('status')}"
    return None


def reason_of(error: PyMongoError) -> str:
    """Returns a few words for an error: MongoDB's own sentence would repeat the query."""
    if isinstance(error, OperationFailure):
        return str((error.details or {}).get("codeName") or error.code)
    return type(error).__name__
