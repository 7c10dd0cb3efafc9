"""Atlas search indexes: filters in their languages, definitions, how they are made and watched, when they are used, and
the candidates that they find.

An index may be missing, be building, or be dropped while the service runs; its process may be away, or refuse. What
MongoDB says of an index that does not exist is an empty answer, not an error. So indexes are looked at again: when a
search stage failed, when it answered with nothing, and every few minutes.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.operations import SearchIndexModel

from app.core import work
from app.storage.index import record_codec
from app.storage.index.segment import Segment
from app.storage.mongo import codec
from app.storage.mongo.connection import Database
from app.storage.mongo.partitions import MongoPartition, row_of
from app.storage.protocol import Finding
from app.storage.schema import Absent, And, Collection, Eq, Filter, Has, In, Not, Or, Range, value_at
from app.storage.search import Columns, Memo, SearchQuery, concatenate

# --- Filters ----------------------------------------------------------------------------------------------------------

# Filters in the languages of the search stages: `filter` of `$vectorSearch`, and the operators of `$search`.

ABSENT = f"{codec.OWN}.absent"


def range_path(field: str) -> str:
    return f"{codec.OWN}.ranges.{codec.range_name(field)}"


Leaf: TypeAlias = Eq | Has | In | Absent | Range

NO_FILTER: codec.Stored = {codec.PARTITION: {"$eq": -1}}

NOTHING_TEXT: codec.Stored = {"equals": {"path": codec.PARTITION, "value": -1}}


def inwards(part: Filter, negated: bool = False) -> Filter:
    """Returns an equivalent filter with `Not` only around single conditions that are not ranges."""
    match part:
        case Not(inner):
            return inwards(inner, not negated)
        case And(parts) | Or(parts):
            inner_parts = tuple(inwards(inner, negated) for inner in parts)
            return And(inner_parts) if isinstance(part, And) != negated else Or(inner_parts)
        case Range() if negated:
            beyond = {"lt": part.ge, "le": part.gt, "gt": part.le, "ge": part.lt}
            outside = [Range(part.field, **{name: bound}) for name, bound in beyond.items() if bound is not None]
            return Or((Absent(part.field), *outside))
        case _:
            return Not(part) if negated else part


def _numbers(part: Range) -> dict[str, float]:
    given = {"gte": part.ge, "gt": part.gt, "lte": part.le, "lt": part.lt}
    return {name: record_codec.range_value(bound) for name, bound in given.items() if bound is not None}


def vector_filter(where: Filter) -> list[codec.Stored]:
    """Returns the conditions that must all hold, for `$vectorSearch`."""
    result = _vector(inwards(where))
    return [result] if result else []


_NEGATED = {"$eq": "$ne", "$in": "$nin"}


def _vector(part: Filter) -> codec.Stored:
    match part:
        case And(parts):
            every = [result for inner in parts if (result := _vector(inner))]
            return {"$and": every} if every else {}
        case Or(parts):
            some = [_vector(inner) for inner in parts]
            return NO_FILTER if not some else {"$or": some} if all(some) else {}
        case Not(inner):  # of a single condition
            ((path, condition),) = _vector(inner).items()
            ((operator, value),) = condition.items()
            return {path: {_NEGATED[operator]: value}}
        case _:
            return _vector_leaf(part)


def _vector_leaf(part: Leaf) -> codec.Stored:
    match part:
        case Eq(field, value) | Has(field, value):
            return {field: {"$eq": value}}
        case In(field, values):
            return {field: {"$in": list(values)}} if values else NO_FILTER
        case Absent(field):
            return {ABSENT: {"$eq": field}}
        case Range():
            bounds = {f"${sign}": bound for sign, bound in _numbers(part).items()}
            return {range_path(part.field): bounds} if bounds else {ABSENT: {"$ne": part.field}}


def _text(part: Filter) -> codec.Stored | None:
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


def _text_leaf(part: Leaf) -> codec.Stored:
    match part:
        case Eq(field, value) | Has(field, value):
            return {"equals": {"path": field, "value": value}}
        case In(field, values):
            return {"in": {"path": field, "value": list(values)}} if values else NOTHING_TEXT
        case Absent(field):
            return {"equals": {"path": ABSENT, "value": field}}
        case Range():
            # `range` takes one bound on each side, and refuses bounds that leave nothing between them: `gte: 2, lt: 2`
            path = range_path(part.field)
            bounds = _numbers(part)
            lower = max(((bounds[sign], sign == "gt", sign) for sign in ("gte", "gt") if sign in bounds), default=None)
            upper = min(((bounds[sign], sign != "lt", sign) for sign in ("lte", "lt") if sign in bounds), default=None)
            if lower is not None and upper is not None:
                both_included = lower[2] == "gte" and upper[2] == "lte"
                if lower[0] > upper[0] or (lower[0] == upper[0] and not both_included):
                    return NOTHING_TEXT
            narrowest = {bound[2]: bound[0] for bound in (lower, upper) if bound is not None}
            return {"range": {"path": path, **narrowest}} if narrowest else {"exists": {"path": path}}


WORDS = f"{codec.OWN}.words"
PAUSE_SECONDS = 5.0
"""Between two looks at indexes that are not ready, and before an index that failed is asked again."""
LONG_PAUSE_SECONDS = 300.0
"""Between two looks at indexes that are ready."""
NO_SEARCH = frozenset({59, 115, 31082, 40324})
"""CommandNotFound, CommandNotSupported, SearchNotEnabled, and the code of an unknown stage: there is no search here."""
BUILDING_SECONDS = 30
"""When a caller may try again while an index is built."""
UNSUPPORTED = "this deployment has no search indexes"
USABLE = "vector and text search indexes"

log = logging.getLogger(__name__)

# --- Definitions ------------------------------------------------------------------------------------------------------


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
    numbers = [codec.PARTITION, codec.MODEL, spec.importance, *map(range_path, spec.ranges)]
    texts = ["tenant_id", ABSENT, *spec.facets]
    vector: list[codec.Stored] = [
        {"type": "vector", "path": codec.VECTOR, "numDimensions": dim, "similarity": "cosine"},
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


def _place(fields: codec.Stored, path: str, kind: codec.Stored) -> None:
    """Sets a field's mapping. A path with dots is a document inside a document."""
    *outer, last = path.split(".")
    for name in outer:
        fields = fields.setdefault(name, {"type": "document", "fields": {}})["fields"]
    fields[last] = kind


def missing(wanted: codec.Stored, there: codec.Stored) -> list[str]:
    """Returns the fields of a definition that another one lacks or declares otherwise.

    What is there may declare more, and have defaults filled in, as Atlas does.
    """
    has = dict(_declared(there))
    lacking = [path for path, kind in _declared(wanted) if not kind.items() <= has.get(path, {}).items()]
    return sorted({path for path, _ in lacking})


def _declared(definition: codec.Stored) -> Iterator[tuple[tuple[str, str], codec.Stored]]:
    """Yields ((path, type), what else is said of it) of each field."""
    for part in definition.get("fields", ()):
        yield (part["path"], part["type"]), part
    yield from _mapped(definition.get("mappings", {}).get("fields", {}), "")


def _mapped(fields: codec.Stored, before: str) -> Iterator[tuple[tuple[str, str], codec.Stored]]:
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
    `failure`: why the last search stage failed."""

    lacking: str | None = "not looked at yet"
    failure: str | None = None
    retry_at: float = 0.0


class SearchIndexes:
    """Creates and watches the Atlas search indexes, if the deployment has search."""

    def __init__(
        self, database: Database, collections: Sequence[Collection], dim: int, pause_seconds: float = PAUSE_SECONDS
    ) -> None:
        self._database, self._dim, self._pause = database, dim, pause_seconds
        self._collections = [collection for collection in collections if collection.searched]
        self._states = {collection.name: IndexState() for collection in self._collections}
        self._told: set[str] = set()
        self.supported = False
        """Whether the deployment has search."""
        self._look_now = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

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
        state.failure, state.retry_at = reason, self._now() + self._pause
        self._look_now.set()
        log.warning("search index cannot be used", extra={"collection": collection.name, "reason": reason})

    def answered(self, collection: Collection) -> None:
        """Notes that the search stages of a collection answered."""
        self._states[collection.name].failure = None

    @property
    def described(self) -> str:
        """The kind of search in use, for `Store.check`: each index that cannot be used, and why."""
        if not self.supported:
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
        self.supported = True
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
            there, faults = await self._listed(collection), []
            for model in models(collection, self._dim):
                index = there.get(model.document["name"])
                fault = fault_of(model, index)
                if fault is not None:
                    faults.append(await self._make(collection, model, index) or fault)
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
        if not self.supported:
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
        while True:
            faults = [await self.look(collection) for collection in self._collections]  # the first ones come first
            self._look_now.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause if any(faults) else LONG_PAUSE_SECONDS):
                    await self._look_now.wait()

    async def _listed(self, collection: Collection) -> dict[str, codec.Stored]:
        cursor = await self._database[collection.name].list_search_indexes()
        return {index["name"]: dict(index) async for index in cursor}

    async def _make(self, collection: Collection, model: SearchIndexModel, index: codec.Stored | None) -> str | None:
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


def fault_of(model: SearchIndexModel, index: codec.Stored | None) -> str | None:
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


# --- Candidates -------------------------------------------------------------------------------------------------------

# Of large scopes: by vector and by text, read as columns.

DEPTHS = (200, 2_000, 10_000)
"""Number of candidates from each of the two indexes, by the depth of the search. At 100, the ranking finds 0.94 of the
evidence (docs/contributing/ranking.md); more than the last one `$vectorSearch` does not give."""
MOST_CANDIDATES = 10_000
"""The most that `numCandidates` may be."""
MOST_TERMS, COUNTED_TERMS = 1_000, 64
"""Of a query's terms, so many are searched for: Lucene takes 1,024 clauses. So many are counted, each by a stage of its
own; the others count as often as candidates have them."""
EXACT_AT_MOST = 50_000
"""Records of a scope that are read where its search index cannot be used: 50 MB, of the 256 MB that a process keeps."""
VECTORS, TEXTS, FROM = "vector", "text", "from"
WHOLE_SCOPE = -1
"""In place of a term: how many documents the text index has of the scope."""
OVERLAY_MS = 60_000
"""Rows changed in this time are read in addition to the indexes, which may lag behind."""
AROUND = 2
"""Number of neighbours on each side, by their ordinals in the session."""
SEARCH_READ_CONCERN = {"level": "local"}
"""The only one that MongoDB takes for `$search`, `$searchMeta` and `$vectorSearch`. The client's `majority` is refused:
"Aggregation stage $search cannot run with a readConcern other than 'local'"."""
MOST_WITH_NEIGHBOURS = 2_000
"""Of so many candidates, neighbours are read: a deeper search only fills up what is missing."""
AT_ONCE = 500
ALL_AT_ONCE = 100_000
"""Size of the first batch: the driver's is 101 rows, and the rest another round trip."""


class SearchIndexFailed(Exception):
    """A search stage was refused, did not answer, or answered with nothing because its index is not there."""


class Candidates:
    """Searches Atlas' vector and text indexes and returns their candidates as columns."""

    def __init__(self, database: Database, dim: int, overlay_ms: int = OVERLAY_MS) -> None:
        self._database, self._dim, self._overlay_ms = database, dim, overlay_ms

    async def columns(
        self,
        collection: Collection,
        query: SearchQuery,
        states: Sequence[MongoPartition],
        now_ms: int,
        doubted: Callable[[], Awaitable[str | None]],
    ) -> Columns:
        """Returns the columns of the candidates and their neighbours in the partitions `states` (at least one).

        `doubted` is asked where an index found nothing: it returns why the index cannot be used, or None if it can.
        Raises SearchIndexFailed.
        """
        limit = DEPTHS[min(query.depth, len(DEPTHS) - 1)]
        parts = {
            **({VECTORS: by_vector(collection, query, states, limit)} if self._has_vector(query) else {}),
            **({TEXTS: by_text(collection, query, states, limit)} if len(query.terms) else {}),
        }
        reply: list[codec.Stored] = []
        if parts:
            # rows that were written so recently that the indexes may lack them
            since = {state.number: state.version_at(now_ms - self._overlay_ms) for state in states}
            newer = [
                {codec.PARTITION: s.number, codec.REV: {"$gt": since[s.number]}}
                for s in states
                if since[s.number] < s.version
            ]
            reply = await self._answers(
                collection,
                [
                    *parts.values(),
                    *([[{"$match": {"$or": newer}}, {"$project": fields(collection, "fresh")}]] if newer else []),
                    *frequencies(collection, query, states),
                ],
            )
        hits = [stored for stored in reply if codec.OWN in stored]
        counts = {int(stored["term"]): float(stored["total"]) for stored in reply if "term" in stored}
        many = Counter(stored[FROM] for stored in hits)
        if not all(many[part] for part in parts) and self._lost(query, states, many, counts):
            reason = await doubted()
            if reason is not None:
                raise SearchIndexFailed(reason)
        # of the vector index, only documents with a vector can be found
        model = record_codec.model_id(query.model, self._dim)
        findable = VECTORS not in parts or all(state.model == model for state in states)
        exhausted = all(many[part] < limit for part in parts)
        complete = bool(parts) and exhausted and findable
        if not complete and (not parts or query.depth >= len(DEPTHS) or (query.depth and exhausted)):
            # what the search indexes cannot find is read without them
            wanted = {"$and": conditions(collection, query, states)}
            matching = self._database[collection.name].find(wanted, fields(collection, "filter"))
            hits += await matching.limit(EXACT_AT_MOST).to_list()
            complete = True
        around = await self._neighbours(collection, hits) if len(hits) <= MOST_WITH_NEIGHBOURS else []
        rows = {int(stored[codec.OWN]["row"]): stored for stored in (*around, *hits)}
        count = sum(state.count for state in states)
        joined = concatenate(
            [self._of_partition(collection, query, state, rows.values(), len(rows) == count) for state in states]
        )
        seen = np.add.reduce(joined.term_counts != 0, axis=1, dtype=np.float32)
        counted = np.array([counts.get(int(term), 0.0) for term in query.terms], np.float32)
        return replace(
            joined,
            # the index that counted may still hold what was deleted: 40 of a scope of 30 would be no frequency
            df=np.minimum(np.maximum(counted, seen), count),
            count=count,
            mean_length=sum(state.length for state in states) / max(1, count),
            complete=complete,
            memo=Memo(),
        )

    def _has_vector(self, query: SearchQuery) -> bool:
        return query.vector is not None and len(query.vector) == self._dim

    async def _answers(self, collection: Collection, parts: Sequence[list[codec.Stored]]) -> list[codec.Stored]:
        """Returns what all parts find, in one command. The first one is a search stage."""
        first, *others = parts
        unions = [{"$unionWith": {"coll": collection.name, "pipeline": part}} for part in others]
        command = {
            "aggregate": collection.name,
            "pipeline": [*first, *unions],
            "cursor": {"batchSize": ALL_AT_ONCE},
            "readConcern": SEARCH_READ_CONCERN,
        }
        try:
            # as a command, because the driver asks an aggregation that fails again and again until the deadline
            return await (await self._database.cursor_command(command)).to_list()
        except OperationFailure as error:
            raise SearchIndexFailed(reason_of(error)) from None
        except PyMongoError as error:
            if error.timeout:
                raise SearchIndexFailed("no answer within the deadline") from None
            raise

    def _lost(
        self, query: SearchQuery, states: Sequence[MongoPartition], many: Mapping[str, int], counts: Mapping[int, float]
    ) -> bool:
        """Returns whether an index found nothing where there is something: one that is gone answers so, too."""
        model = record_codec.model_id(query.model, self._dim)
        vectors = self._has_vector(query) and not many[VECTORS] and any(state.model in (0, model) for state in states)
        return vectors or (len(query.terms) > 0 and not counts.get(WHOLE_SCOPE))

    async def _neighbours(self, collection: Collection, hits: Iterable[codec.Stored]) -> list[codec.Stored]:
        spec = collection.spec
        wanted: dict[tuple[int, str], set[int]] = {}
        for stored in hits:
            session, ordinal = value_at(stored, spec.session), value_at(stored, spec.ordinal)
            if session is not None and ordinal is not None:
                places = wanted.setdefault((int(stored[codec.OWN]["partition"]), str(session)), set())
                places.update(range(int(ordinal) - AROUND, int(ordinal) + AROUND + 1))
        clauses: list[codec.Stored] = [
            {codec.PARTITION: partition, spec.session: session, spec.ordinal: {"$in": sorted(places)}}
            for (partition, session), places in wanted.items()
        ]
        pages = [{"$or": clauses[at : at + AT_ONCE]} for at in range(0, len(clauses), AT_ONCE)]
        cursors = [
            self._database[collection.name].find(page, fields(collection, "around"), batch_size=ALL_AT_ONCE)
            for page in pages
        ]
        return [stored for page in await asyncio.gather(*(c.to_list() for c in cursors)) for stored in page]

    def _of_partition(
        self,
        collection: Collection,
        query: SearchQuery,
        state: MongoPartition,
        hits: Iterable[codec.Stored],
        whole: bool,
    ) -> Columns:
        spec = collection.spec
        segment = Segment(spec, self._dim, state.agent)
        rows = [row_of(stored[codec.OWN]) for stored in hits if int(stored[codec.OWN]["partition"]) == state.number]
        rows.sort(key=lambda row: row.id)
        segment.apply(rows)
        columns = segment.columns(query)
        return columns if whole else _without_gaps(columns, rows, record_codec.head_dtype(len(spec.ranges)))


def _without_gaps(columns: Columns, rows: Sequence[record_codec.Row], head: np.dtype[np.void]) -> Columns:
    """Removes links between turns that are far apart: candidates contain only some turns of a session."""
    heads = [row.packed.head for row in rows if row.packed is not None]
    ordinals = np.frombuffer(b"".join(heads), head)["ordinal"] if heads else np.empty(0, np.int64)
    own = np.arange(len(ordinals))

    def near(links: Any) -> Any:
        far = (links >= 0) & (np.abs(ordinals[links] - ordinals[own]) > AROUND)
        return np.where(far, -1, links)

    if not len(ordinals):
        return columns
    return replace(columns, previous=near(columns.previous), following=near(columns.following))


# --- Pipelines --------------------------------------------------------------------------------------------------------


def fields(collection: Collection, origin: str) -> codec.Stored:
    """Returns the projection of a row and of its position in the session. `origin`: the part that found it."""
    spec = collection.spec
    return dict.fromkeys((codec.ROW, codec.PARTITION, *codec.PACKED, spec.session, spec.ordinal), 1) | {
        "_id": 0,
        FROM: {"$literal": origin},
    }


def conditions(collection: Collection, query: SearchQuery, states: Sequence[MongoPartition]) -> list[codec.Stored]:
    """Returns the conditions on documents found, for `$vectorSearch` and for ordinary queries."""
    importance = [{collection.spec.importance: {"$gte": _least(query)}}] if query.least_importance > 0 else []
    partitions = {codec.PARTITION: {"$in": [state.number for state in states]}}
    return [{"tenant_id": {"$eq": query.tenant}}, partitions, *importance, *vector_filter(query.where)]


def _least(query: SearchQuery) -> float:
    """Returns the bound for importance as it is stored. In columns it is a shorter number: 0.3 is 0.30000001 there."""
    return query.least_importance - 1e-6


def by_vector(
    collection: Collection, query: SearchQuery, states: Sequence[MongoPartition], limit: int
) -> list[codec.Stored]:
    """Returns the pipeline that finds candidates by vector."""
    assert query.vector is not None
    of_model = {codec.MODEL: {"$eq": record_codec.model_id(query.model, len(query.vector))}}
    stage = {
        "index": vector_index(collection),
        "path": codec.VECTOR,
        "queryVector": codec.vector_of(record_codec.quantise(query.vector).tobytes()),
        "numCandidates": min(MOST_CANDIDATES, 20 * limit),
        "limit": limit,
        "filter": {"$and": [*conditions(collection, query, states), of_model]},
    }
    return [{"$vectorSearch": stage}, {"$project": fields(collection, VECTORS)}]


def by_text(
    collection: Collection, query: SearchQuery, states: Sequence[MongoPartition], limit: int
) -> list[codec.Stored]:
    """Returns the pipeline that finds candidates that contain one of the query's terms."""
    words = codec.term_text(_unique(query)[:MOST_TERMS])
    least = {"range": {"path": collection.spec.importance, "gte": _least(query)}}
    operator = _text(inwards(query.where))
    compound = {
        "filter": [
            *within_partitions(query, states),
            *([least] if query.least_importance > 0 else []),
            *([] if operator is None else [operator]),
        ],
        "should": [{"text": {"query": words, "path": WORDS}}],
        "minimumShouldMatch": 1,
    }
    return [
        {"$search": {"index": text_index(collection), "compound": compound}},
        {"$limit": limit},
        {"$project": fields(collection, TEXTS)},
    ]


def frequencies(
    collection: Collection, query: SearchQuery, states: Sequence[MongoPartition]
) -> list[list[codec.Stored]]:
    """Returns the pipelines that count the documents in the scope that contain each term, and those in the scope.

    The query's filter is not applied, because term statistics belong to the scope.
    """
    if not len(query.terms):
        return []
    counted = [(WHOLE_SCOPE, within_partitions(query, states))]
    for term in _unique(query)[:COUNTED_TERMS]:
        has_term = {"text": {"query": codec.term_text([term]), "path": WORDS}}
        counted.append((term, [*within_partitions(query, states), has_term]))
    return [
        [
            {
                "$searchMeta": {
                    "index": text_index(collection),
                    "compound": {"filter": clauses},
                    "count": {"type": "total"},
                }
            },
            {"$project": {"total": "$count.total", "term": {"$literal": term}}},
        ]
        for term, clauses in counted
    ]


def _unique(query: SearchQuery) -> list[int]:
    """Returns the query's terms, each once, in its order."""
    return list(dict.fromkeys(int(term) for term in query.terms))


def within_partitions(query: SearchQuery, states: Sequence[MongoPartition]) -> list[codec.Stored]:
    """Returns the `$search` conditions that limit a search to the partitions of one tenant."""
    return [
        {"equals": {"path": "tenant_id", "value": query.tenant}},
        {"in": {"path": codec.PARTITION, "value": [state.number for state in states]}},
    ]
