"""A double of Atlas: search stages and search indexes in front of a deployment that has none, over the real wire.

It is our reading of MongoDB's documentation and of the sources of its server and of mongot, its search process
(docs/operations/atlas.md lists the pages): what they refuse is refused here, with their codes and sentences. What is
answered is computed exactly from the stored documents, as they were a second ago. Everything else is passed on.

A search stage is replaced by ordinary stages that give the documents it found, in its order; the rest of the pipeline
runs where the documents are. Options that nobody here uses are refused, not ignored.
"""

import json
import socket
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

import bson
import numpy as np
from bson.binary import Binary
from bson.codec_options import CodecOptions
from bson.objectid import ObjectId
from numpy.typing import NDArray
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from tests.support.mongodb import Deployment

Json: TypeAlias = dict[str, Any]
Mask: TypeAlias = NDArray[np.bool_]

LAG_SECONDS = 1.0
LOOK_SECONDS = 0.1
MAX_CANDIDATES = 10_000
MAX_CLAUSES = 1_024
MAX_STAGES = 1_000
FREE_DEFINITION_BYTES = 3 * 1_024
STAGES = ("$search", "$searchMeta", "$vectorSearch", "$listSearchIndexes")
COMMANDS = ("createSearchIndexes", "updateSearchIndex", "dropSearchIndex")
WRITES = {"insert", "update", "delete", "findAndModify", "findandmodify", "bulkWrite", "commitTransaction", "drop"}
_HEADER = struct.Struct("<iiii")
_OP_MSG, _MORE_TO_COME = 2013, 2
_OPTIONS: CodecOptions[Json] = CodecOptions(document_class=dict, tz_aware=True)


class Refused(Exception):
    """What the server answers instead. Mongot's own refusals come as UnknownError, with its sentence at the end."""

    def __init__(self, sentence: str, code: int | None = None, name: str = "") -> None:
        found = f"PlanExecutor error during aggregation :: caused by :: {sentence}"
        super().__init__(found if code is None else sentence)
        self.code, self.name = (8, "UnknownError") if code is None else (code, name)


# --- What an index has read -------------------------------------------------------------------------------------------


def values_at(doc: Any, path: str) -> list[Any]:
    """The values of a path; those of arrays one by one."""
    found = [doc]
    for name in path.split("."):
        inner = [value[name] for value in found if isinstance(value, dict) and name in value]
        found = [value for values in inner for value in (values if isinstance(values, list) else [values])]
    return found


def kind_of(value: Any) -> str:
    """The type that an index must have declared to find the value."""
    if isinstance(value, bool):
        return "boolean"
    for kind, types in (("number", (int, float)), ("token", str), ("date", datetime), ("objectId", ObjectId)):
        if isinstance(value, types):
            return kind
    raise Refused(f"value {value!r} cannot be searched for")


class Image:
    """The documents of a collection at one moment, in the forms that questions need. Forms are made once."""

    def __init__(self, docs: Sequence[Json]) -> None:
        self.ids = [doc["_id"] for doc in docs]
        self._docs = docs
        self._forms: dict[tuple[str, str], Any] = {}
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self.ids)

    def nothing(self) -> Mask:
        return np.zeros(len(self), np.bool_)

    def _form(self, kind: str, path: str, make: Callable[[str], Any]) -> Any:
        with self._lock:
            if (kind, path) not in self._forms:
                self._forms[kind, path] = make(path)
            return self._forms[kind, path]

    def equal(self, path: str, value: Any) -> Mask:
        mask = self.nothing()
        mask[np.array(self._form("postings", path, self._postings).get((kind_of(value), value), []), np.int64)] = True
        return mask

    def _postings(self, path: str) -> dict[tuple[str, Any], list[int]]:
        found: dict[tuple[str, Any], list[int]] = defaultdict(list)
        for at, doc in enumerate(self._docs):
            for value in values_at(doc, path):
                if value is not None and not isinstance(value, dict | bytes):
                    found[kind_of(value), value].append(at)
        return found

    def between(self, path: str, compare: Callable[[Any, Any], Any], bound: Any) -> Mask:
        """Documents one of whose values is on the bound's other side, and of its type."""
        mask, kind = self.nothing(), kind_of(bound)
        if kind == "number":
            at, numbers = self._form("numbers", path, self._numbers)
            mask[at[compare(numbers, float(bound))]] = True
            return mask
        for (found, value), places in self._form("postings", path, self._postings).items():
            if found == kind and compare(value, bound):
                mask[places] = True
        return mask

    def _numbers(self, path: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        rows = [
            (at, float(value))
            for at, doc in enumerate(self._docs)
            for value in values_at(doc, path)
            if isinstance(value, int | float) and not isinstance(value, bool)
        ]
        return np.array([at for at, _ in rows], np.int64), np.array([value for _, value in rows], np.float64)

    def present(self, path: str) -> Mask:
        return np.array([bool(values_at(doc, path)) for doc in self._docs], np.bool_)

    def words(self, path: str) -> tuple[dict[str, dict[int, int]], NDArray[np.float64]]:
        """How often each word occurs, by document; and how many words each document has."""
        found: tuple[dict[str, dict[int, int]], NDArray[np.float64]] = self._form("words", path, self._words)
        return found

    def _words(self, path: str) -> tuple[dict[str, dict[int, int]], NDArray[np.float64]]:
        counts: dict[str, dict[int, int]] = defaultdict(dict)
        lengths = np.zeros(len(self), np.float64)
        for at, doc in enumerate(self._docs):
            words = [word for text in values_at(doc, path) if isinstance(text, str) for word in text.split()]
            lengths[at] = len(words)
            for word, count in Counter(words).items():
                counts[word][at] = count
        return counts, lengths

    def vectors(self, path: str, dim: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The vectors of that dimension, of unit length, and whose they are."""
        made = self._form("vectors", f"{path} {dim}", lambda _: self._vectors(path, dim))
        found: tuple[NDArray[np.int64], NDArray[np.float32]] = made
        return found

    def _vectors(self, path: str, dim: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        places, rows = [], []
        for at, doc in enumerate(self._docs):
            for value in values_at(doc, path):
                vector = vector_of(value)
                if vector is not None and len(vector) == dim and vector.any():
                    places.append(at)
                    rows.append(vector)
        matrix = np.array(rows, np.float32).reshape(len(rows), dim)
        return np.array(places, np.int64), matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def vector_of(value: Any) -> NDArray[np.float32] | None:
    if isinstance(value, Binary) and value.subtype == 9:
        return np.array(value.as_vector().data, np.float32)
    if isinstance(value, list) and value and all(isinstance(part, int | float) for part in value):
        return np.array(value, np.float32)
    return None


# --- Definitions ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SearchIndex:
    """`latest` is the definition asked for; `answering` the one that answers until the new one is built."""

    id: str
    name: str
    kind: str
    latest: Json
    built_at: float
    answering: Json | None = None
    version: int = 0

    def described(self) -> Json:
        built = self.answering is self.latest
        return {
            "id": self.id,
            "name": self.name,
            "type": self.kind,
            "status": "READY" if built else "BUILDING" if self.answering is not None else "PENDING",
            "queryable": self.answering is not None,
            "latestDefinitionVersion": {"version": self.version},
            "latestDefinition": self.latest,
        }


def checked_definition(kind: str, definition: Json) -> None:
    (_vector_fields if kind == "vectorSearch" else _text_fields)(definition)


def _vector_fields(definition: Json) -> tuple[dict[str, int], set[str]]:
    """Dimensions of vector fields, by path; and paths of filter fields."""
    _only(definition, {"fields", "numPartitions", "storedSource"}, "definition")
    vectors, filters = {}, set()
    for part in definition["fields"]:
        if part["type"] == "vector":
            _only(part, {"type", "path", "numDimensions", "similarity", "quantization", "hnswOptions"}, "vector field")
            if part["similarity"] not in ("cosine", "euclidean", "dotProduct"):
                raise Refused(f'"similarity" {part["similarity"]!r} is not known', 9, "FailedToParse")
            if not 1 <= part["numDimensions"] <= 8_192:
                raise Refused('"numDimensions" must be within bounds [1, 8192]', 9, "FailedToParse")
            vectors[part["path"]] = part["numDimensions"]
        elif part["type"] == "filter":
            _only(part, {"type", "path"}, "filter field")
            filters.add(part["path"])
        else:
            raise Refused(f'"type" {part["type"]!r} is not known', 9, "FailedToParse")
    if not vectors:
        raise Refused('"fields" at least one vector field must be defined', 9, "FailedToParse")
    return vectors, filters


def _text_fields(definition: Json) -> dict[str, set[str]]:
    """Types of the mapped fields, by path."""
    _only(definition, {"mappings", "analyzer", "searchAnalyzer", "analyzers", "synonyms", "storedSource"}, "definition")
    mappings = definition["mappings"]
    _only(mappings, {"dynamic", "fields"}, "mappings")
    found: dict[str, set[str]] = defaultdict(set)

    def walk(fields: Json, before: str) -> None:
        for name, mapped in fields.items():
            for one in mapped if isinstance(mapped, list) else [mapped]:
                path = f"{before}{name}"
                if one["type"] == "document":
                    walk(one.get("fields", {}), f"{path}.")
                elif one["type"] in ("number", "token", "string", "boolean", "date", "objectId"):
                    found[path].add(one["type"])
                else:
                    raise Refused(f'"type" {one["type"]!r} is not known', 9, "FailedToParse")

    walk(mappings.get("fields", {}), "")
    return found


def _only(given: Mapping[str, Any], known: set[str], what: str) -> None:
    for name in given:
        if name not in known:
            raise Refused(f'"{what}" unrecognized field "{name}"')


def _need(given: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in names:
        if name not in given:
            raise Refused(f'"{name}" is required')


# --- $vectorSearch ----------------------------------------------------------------------------------------------------

_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "gt": lambda value, bound: value > bound,
    "gte": lambda value, bound: value >= bound,
    "lt": lambda value, bound: value < bound,
    "lte": lambda value, bound: value <= bound,
}


def vector_search(image: Image, definition: Json, stage: Json) -> list[Any]:
    """Ids of the documents found, nearest first."""
    _only(stage, {"index", "path", "queryVector", "numCandidates", "limit", "filter", "exact"}, "$vectorSearch")
    _need(stage, ("path", "queryVector", "limit"))
    vectors, filters = _vector_fields(definition)
    limit, candidates = _whole(stage, "limit"), _whole(stage, "numCandidates")
    if limit is None or limit < 1:
        raise Refused('"limit" must be positive')
    if not stage.get("exact"):
        if candidates is None:
            raise Refused("numCandidates is required for approximate vector search")
        if not 1 <= candidates <= MAX_CANDIDATES:
            raise Refused('"numCandidates" must be within bounds [1, 10000]')
        if limit > candidates:
            raise Refused("limit should be less than or equal to numCandidates")
    elif candidates is not None:
        raise Refused("numCandidates must be omitted for exact vector search")
    query, path = vector_of(stage["queryVector"]), stage["path"]
    if query is None:
        raise Refused('"queryVector" must be a vector')
    if path not in vectors:
        raise Refused(f"{path} is not indexed as vector")
    if vectors[path] != len(query):
        raise Refused(f"vector field is indexed with {vectors[path]} dimensions but queried with {len(query)}")
    if not query.any():
        raise Refused("Cosine similarity cannot be calculated against a zero vector.")
    mask = mql(image, filters, stage["filter"]) if "filter" in stage else ~image.nothing()
    places, matrix = image.vectors(path, len(query))
    among = np.flatnonzero(mask[places])
    cosines = matrix[among] @ (query / np.linalg.norm(query))
    order = np.argsort(-cosines, kind="stable")[:limit]
    return [image.ids[at] for at in places[among[order]]]


def _whole(stage: Json, name: str) -> int | None:
    value = stage.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise Refused(f'"{name}" must be an integer')
    return value


def mql(image: Image, declared: set[str], clause: Any) -> Mask:
    """The documents that a `filter` of `$vectorSearch` lets through."""
    if not isinstance(clause, dict):
        raise Refused("filter must be a document")
    mask = ~image.nothing()
    for name, asked in clause.items():
        if name in ("$and", "$or", "$nor"):
            if not isinstance(asked, list) or not asked:
                raise Refused(f'"{name}" must be a list that is not empty')
            parts = np.array([mql(image, declared, part) for part in asked])
            mask &= parts.all(axis=0) if name == "$and" else parts.any(axis=0) ^ (name == "$nor")
        elif name.startswith("$"):
            raise Refused(f'"{name}" is not supported in a filter')
        else:
            conditions = asked if isinstance(asked, dict) else {"$eq": asked}
            if not conditions:
                raise Refused(f'"{name}" has no operator')
            for sign, wanted in conditions.items():
                mask &= _condition(image, declared, name, sign, wanted)
    return mask


def _condition(image: Image, declared: set[str], path: str, sign: str, wanted: Any) -> Mask:
    def named(value: Any) -> Any:
        if path not in declared:
            raise Refused(f"Path '{path}' needs to be indexed as {kind_of(value)}")
        return value

    match sign:
        case "$eq" | "$ne":
            return image.equal(path, named(wanted)) ^ (sign == "$ne")
        case "$in" | "$nin":
            several = [image.equal(path, named(value)) for value in _list_of_one_type(wanted)]
            found: Mask = np.any(several, axis=0) ^ (sign == "$nin")
            return found
        case "$gt" | "$gte" | "$lt" | "$lte":
            return image.between(path, _SIGNS[sign[1:]], named(wanted))
        case "$exists":
            return image.present(path) ^ (not wanted)
    raise Refused(f'"{sign}" is not supported in a filter')


def _list_of_one_type(values: Any) -> list[Any]:
    if not isinstance(values, list) or not values:
        raise Refused('"value" must not be empty')
    if len({kind_of(value) for value in values}) > 1:
        raise Refused("must have elements of the same type")
    return values


# --- $search and $searchMeta ------------------------------------------------------------------------------------------

_OPERATORS = {"compound", "equals", "in", "range", "exists", "text"}
_K1, _B = 1.2, 0.75


@dataclass(slots=True)
class Found:
    mask: Mask
    score: NDArray[np.float64]


def text_search(image: Image, definition: Json, verb: str, stage: Json) -> Found:
    _only(stage, {"index", "count", "concurrent", *_OPERATORS}, verb)
    asked = {name: stage[name] for name in stage if name in _OPERATORS}
    if "count" in stage:
        _only(stage["count"], {"type", "threshold"}, "count")
        if stage["count"].get("type", "lowerBound") not in ("lowerBound", "total"):
            raise Refused('"count.type" must be one of [lowerBound, total]')
    return operator(image, _text_fields(definition), asked)


def operator(image: Image, mapped: dict[str, set[str]], asked: Json) -> Found:
    if len(asked) != 1:
        raise Refused(f"exactly one operator must be present, not {sorted(asked)}")
    ((name, given),) = asked.items()
    if name not in _OPERATORS:
        raise Refused(f'unrecognized field "{name}"')
    if name == "compound":
        return _compound(image, mapped, given)
    _need(given, ("path",))
    path = given["path"]
    flat = np.ones(len(image), np.float64)

    def typed(value: Any) -> Any:
        if kind_of(value) not in mapped.get(path, ()):
            raise Refused(f"Path '{path}' needs to be indexed as {kind_of(value)}")
        return value

    match name:
        case "equals":
            _only(given, {"path", "value", "score"}, name)
            _need(given, ("value",))
            return Found(image.equal(path, typed(given["value"])), flat)
        case "in":
            _only(given, {"path", "value", "score"}, name)
            _need(given, ("value",))
            wanted = given["value"] if isinstance(given["value"], list) else [given["value"]]
            return Found(np.any([image.equal(path, typed(v)) for v in _list_of_one_type(wanted)], axis=0), flat)
        case "range":
            return Found(_range(image, given, typed), flat)
        case "exists":
            _only(given, {"path", "score"}, name)
            return Found(image.present(path), flat)
        case _:
            return _text(image, mapped, given)


def _range(image: Image, given: Json, typed: Callable[[Any], Any]) -> Mask:
    _only(given, {"path", "score", *_SIGNS}, "range")
    bounds = {sign: typed(given[sign]) for sign in _SIGNS if sign in given}
    if not bounds:
        raise Refused("must specify at least one of [lt, lte, gt, gte]")
    for one, other in (("gt", "gte"), ("lt", "lte")):
        if one in bounds and other in bounds:
            raise Refused(f"at most one of [{one}, {other}] may be present")
    lower = bounds.get("gt", bounds.get("gte"))
    upper = bounds.get("lt", bounds.get("lte"))
    if lower is not None and upper is not None:
        if kind_of(lower) != kind_of(upper):
            raise Refused("bounds must be of the same type")
        if lower > upper:
            raise Refused("gt/gte must not be greater than lt/lte")
        if lower == upper and not {"gte", "lte"} <= bounds.keys():
            raise Refused("bounds must both be inclusive if they are equal")
    masks = [image.between(given["path"], _SIGNS[sign], bound) for sign, bound in bounds.items()]
    found: Mask = np.all(masks, axis=0)
    return found


def _text(image: Image, mapped: dict[str, set[str]], given: Json) -> Found:
    """BM25 with the statistics of the whole index, as Lucene has it. A field that is not mapped holds no words."""
    _only(given, {"path", "query", "score"}, "text")
    _need(given, ("query",))
    queries = given["query"] if isinstance(given["query"], list) else [given["query"]]
    words = sorted({word for query in queries for word in query.split()})
    _few(len(words))
    found = Found(image.nothing(), np.zeros(len(image), np.float64))
    if "string" not in mapped.get(given["path"], ()):
        return found
    counts, lengths = image.words(given["path"])
    mean = lengths.sum() / max(1, np.count_nonzero(lengths))
    for word in words:
        there = counts.get(word, {})
        at = np.array(list(there), np.int64)
        often = np.array(list(there.values()), np.float64)
        rare = np.log(1 + (len(image) - len(there) + 0.5) / (len(there) + 0.5))
        found.mask[at] = True
        found.score[at] += rare * often / (often + _K1 * (1 - _B + _B * lengths[at] / max(mean, 1e-9)))
    return found


def _few(clauses: int) -> None:
    if clauses > MAX_CLAUSES:
        raise Refused(f"maxClauseCount is set to {MAX_CLAUSES}")


def _compound(image: Image, mapped: dict[str, set[str]], given: Json) -> Found:
    kinds = ("must", "mustNot", "should", "filter")
    _only(given, {*kinds, "minimumShouldMatch", "score"}, "compound")
    clauses: dict[str, list[Any]] = {
        kind: given[kind] if isinstance(given[kind], list) else [given[kind]] for kind in kinds if kind in given
    }
    if not any(clauses.values()):
        raise Refused("must have at least one clause")
    _few(sum(map(len, clauses.values())))
    found = {kind: [operator(image, mapped, part) for part in parts] for kind, parts in clauses.items()}
    should = found.get("should", [])
    least = given.get("minimumShouldMatch", 0)
    if "minimumShouldMatch" in given:
        if "should" not in given:
            raise Refused("should clause must not be empty when using minimumShouldMatch")
        if least > len(should):
            raise Refused("minimumShouldMatch cannot be greater than number of should clauses")
    if should and not found.get("must") and not found.get("filter"):
        least = max(1, least)
    whole = Found(~image.nothing(), np.zeros(len(image), np.float64))
    for part in (*found.get("must", []), *found.get("filter", [])):
        whole.mask &= part.mask
    for part in found.get("mustNot", []):
        whole.mask &= ~part.mask
    if least:
        whole.mask &= np.sum([part.mask for part in should], axis=0) >= least
    for part in (*found.get("must", []), *should):
        whole.score += np.where(part.mask, part.score, 0)
    return whole


# --- The deployment ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Mirror:
    """What mongot holds of a collection: its indexes, and images of it, the newest last, with their times."""

    indexes: dict[str, SearchIndex] = field(default_factory=dict)
    images: list[tuple[float, Image]] = field(default_factory=list)
    changed: bool = True


@dataclass(slots=True)
class Traffic:
    """What passed since `Atlas.watch`: commands by name, bytes in both directions."""

    commands: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    received: int = 0


class Atlas(Deployment):
    """`port` of the deployment behind. `down`: mongot does not answer. `most`: of search indexes, in all. `read_only`:
    the user may not make any. `free`: a free cluster, whose definitions are short. `build_seconds`: of an index.
    `older`: it keeps the format of MongoDB 7.0, and has no `bulkWrite`."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self.down = self.read_only = self.free = self.older = False
        self.build_seconds, self.most = 0.0, 2_500
        self.traffic = Traffic()
        self.pipelines: list[list[Json]] = []
        """Pipelines with search stages that were asked, as they came."""
        self._mirrors: dict[tuple[str, str], Mirror] = {}
        self._lock, self._made, self._ended = threading.RLock(), 0, threading.Event()
        self._reading = threading.Lock()
        """Held while a collection is read for its indexes. Taken before `_lock`."""
        self._client: MongoClient[Json] = MongoClient("127.0.0.1", port, directConnection=True, tz_aware=True)
        self._open: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=200)
        self._port = self._listening.getsockname()[1]
        super().__init__(f"mongodb://127.0.0.1:{self._port}/?directConnection=true")
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._accept, self._replicate)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._ended.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for link in list(self._open):
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._client.close()

    def watch(self) -> Traffic:
        """Begins to count anew."""
        self.traffic, self.pipelines = Traffic(), []
        return self.traffic

    def settle(self) -> None:
        """Returns when the indexes are built and hold all that is stored."""
        with self._reading:  # what is being read now may be older than what is stored, and came after this
            with self._lock:
                mirrors = dict(self._mirrors)
            for (database, name), mirror in mirrors.items():
                image = self._image(database, name, mirror)  # minutes for 200,000 documents: others may ask meanwhile
                with self._lock:
                    for index in mirror.indexes.values():
                        index.built_at, index.answering = 0, index.latest
                    mirror.images, mirror.changed = [(0.0, image)], False

    def drop_search_index(self, database: str, collection: str, name: str) -> None:
        """As somebody may do in Atlas' own interface."""
        with self._lock:
            del self._mirrors[database, collection].indexes[name]

    def search_indexes(self, database: str) -> dict[str, Json]:
        """What `$listSearchIndexes` says of all collections, by index name."""
        with self._lock:
            self._build()
            mirrors = [mirror for (of, _), mirror in self._mirrors.items() if of == database]
            return {name: index.described() for mirror in mirrors for name, index in mirror.indexes.items()}

    # --- Replication --------------------------------------------------------------------------------------------------

    def _replicate(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            with self._lock:
                stale = [key for key, mirror in self._mirrors.items() if mirror.changed and mirror.indexes]
            for database, name in stale:
                started = time.monotonic()
                try:
                    self._read_anew(database, name)
                except PyMongoError:  # the deployment is away, or was stopped before the double
                    break
                self._ended.wait(4 * (time.monotonic() - started))

    def _read_anew(self, database: str, name: str) -> None:
        with self._reading:
            with self._lock:
                mirror = self._mirrors.get((database, name))
                if mirror is None or not mirror.changed:
                    return
                mirror.changed = False
            started = time.monotonic()
            try:
                image = self._image(database, name, mirror)
            except PyMongoError:
                mirror.changed = True
                raise
            with self._lock:
                mirror.images = [*mirror.images[-20:], (started, image)]

    def _image(self, database: str, name: str, mirror: Mirror) -> Image:
        paths = {path for index in mirror.indexes.values() for path in _paths(index.latest)}
        shown = dict.fromkeys(_outermost(paths), 1) or {"_id": 1}
        return Image(list(self._client[database][name].find({}, shown)))

    def _held(self, mirror: Mirror) -> Image:
        """The newest image that is old enough."""
        until = time.monotonic() - LAG_SECONDS
        held = [image for at, image in mirror.images if at <= until]
        return held[-1] if held else Image([])

    def _note_write(self, command: Json) -> None:
        verb, database = next(iter(command)), command["$db"]
        with self._lock:
            if verb == "dropDatabase":
                self._mirrors = {key: mirror for key, mirror in self._mirrors.items() if key[0] != database}
                return
            if verb not in WRITES or (command.get("autocommit") is False and verb != "commitTransaction"):
                return
            named = None if verb in ("bulkWrite", "commitTransaction") else command[verb]
            for (of, name), mirror in self._mirrors.items():
                if named is None or (of, name) == (database, named):
                    mirror.changed = True

    # --- Indexes ------------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        for mirror in self._mirrors.values():
            for index in mirror.indexes.values():
                if index.answering is not index.latest and time.monotonic() >= index.built_at:
                    index.answering = index.latest

    def _manage(self, command: Json) -> Json:
        verb = next(iter(command))
        if "autocommit" in command:
            raise Refused(f"Cannot run '{verb}' in a multi-document transaction.", 263, _IN_TRANSACTION)
        if self.down:
            raise Refused("Error connecting to Search Index Management service.", 125, "CommandFailed")
        if self.read_only:
            raise Refused(f"not authorized on {command['$db']} to execute command {verb}", 13, "Unauthorized")
        key = (command["$db"], command[verb])
        if key[1] not in self._client[key[0]].list_collection_names():
            raise Refused(f"Collection '{'.'.join(key)}' does not exist.", 26, "NamespaceNotFound")
        with self._lock:
            mirror = self._mirrors.setdefault(key, Mirror())
            if verb == "createSearchIndexes":
                _only(command, {verb, "indexes", *_GENERIC}, verb)
                return {"indexesCreated": [self._create(mirror, one) for one in command["indexes"]], "ok": 1.0}
            index = mirror.indexes.get(command.get("name", ""))
            if index is None:
                raise Refused(f"Index {command.get('name')} does not exist", 27, "IndexNotFound")
            if verb == "dropSearchIndex":
                del mirror.indexes[index.name]
                return {"ok": 1.0}
            _only(command, {verb, "name", "id", "definition", *_GENERIC}, verb)
            self._check(index.kind, command["definition"])
            index.latest, index.version = command["definition"], index.version + 1
            index.built_at, mirror.changed = time.monotonic() + self.build_seconds, True
            return {"ok": 1.0}

    def _create(self, mirror: Mirror, asked: Json) -> Json:
        _only(asked, {"name", "type", "definition"}, "indexes")
        _need(asked, ("definition",))
        name, kind = asked.get("name", "default"), asked.get("type", "search")
        if kind not in ("search", "vectorSearch"):
            raise Refused(f"Invalid index type: {kind}", 2, "BadValue")
        self._check(kind, asked["definition"])
        if name in mirror.indexes:
            raise Refused("Duplicate Index", 68, "IndexAlreadyExists")
        if sum(len(other.indexes) for other in self._mirrors.values()) >= self.most:
            sentence = "The maximum number of FTS indexes has been reached for this instance size."
            raise Refused(sentence, 20, "IllegalOperation")
        self._made += 1
        built = time.monotonic() + self.build_seconds
        mirror.indexes[name] = SearchIndex(f"index-{self._made}", name, kind, asked["definition"], built)
        mirror.changed = True
        return {"id": f"index-{self._made}", "name": name}

    def _check(self, kind: str, definition: Json) -> None:
        checked_definition(kind, definition)
        if self.free and len(json.dumps(definition, separators=(",", ":"))) > FREE_DEFINITION_BYTES:
            raise Refused("Index definition is too large for this instance size.", 20, "IllegalOperation")

    # --- Aggregations -------------------------------------------------------------------------------------------------

    def _listed(self, command: Json) -> Json:
        self._refuse_read_concern(command)
        if self.down:
            raise Refused("Error connecting to Search Index Management service.", 125, "CommandFailed")
        (stage,) = command["pipeline"]
        _only(stage["$listSearchIndexes"], {"name", "id"}, "$listSearchIndexes")
        key, name = (command["$db"], command["aggregate"]), stage["$listSearchIndexes"].get("name")
        with self._lock:
            self._build()
            indexes = self._mirrors[key].indexes.values() if key in self._mirrors else ()
            listed = [index.described() for index in indexes if name in (None, index.name)]
        return {"cursor": {"id": 0, "ns": ".".join(key), "firstBatch": listed}, "ok": 1.0}

    def _without_search(self, command: Json) -> Json:
        """The command with each search stage replaced by ordinary ones that give what it found."""
        self._refuse_read_concern(command)
        if "autocommit" in command:
            raise Refused("Operation not permitted in transaction", 263, _IN_TRANSACTION)
        self.pipelines.append(command["pipeline"])
        return command | {"pipeline": self._replaced(command["$db"], command["aggregate"], command["pipeline"])}

    def _found(self, command: Json) -> Json:
        """The answer of an aggregation, each part of a union asked for by itself: SecantusDB reads a whole collection
        for a part, and uses an index for an aggregation."""
        database = self._client[command["$db"]]
        found = [doc for name, pipeline in _parts(command) for doc in database[name].aggregate(pipeline)]
        cursor = {"id": 0, "ns": f"{command['$db']}.{command['aggregate']}", "firstBatch": found}
        return {"cursor": cursor, "ok": 1.0}

    def _refuse_read_concern(self, command: Json) -> None:
        level = command.get("readConcern", {}).get("level", "local")
        if level != "local":
            shown = f'{{ readConcern: {{ level: "{level}", provenance: "clientSupplied" }} }}'
            stage = next(verb for verb in STAGES if verb in verbs_of(command["pipeline"]))
            raise Refused(
                f"Command aggregate does not support {shown} :: caused by :: Aggregation stage {stage} cannot run with "
                f"a readConcern other than 'local'. Current readConcern: {level}",
                72,
                "InvalidOptions",
            )

    def _replaced(self, database: str, name: str, pipeline: Sequence[Json]) -> list[Json]:
        if len(pipeline) > MAX_STAGES:
            raise Refused(f"Pipeline length must be no longer than {MAX_STAGES} stages.", 7749501, "Location7749501")
        result: list[Json] = []
        for at, stage in enumerate(pipeline):
            ((verb, given),) = stage.items()
            if verb in STAGES and at:
                raise Refused(f"{verb} is only valid as the first stage in a pipeline", 40602, "Location40602")
            if verb == "$facet" and any(verbs_of(inner) & {*STAGES} for inner in given.values()):
                raise Refused("a search stage is not allowed to be used within a $facet stage", 40600, "Location40600")
            if verb in STAGES:
                result += self._answered(database, name, verb, given, pipeline[1:2])
            elif isinstance(given, dict) and "pipeline" in given and verb in ("$unionWith", "$lookup"):
                other = str(given.get("coll") or given.get("from") or name)
                result.append({verb: {**given, "pipeline": self._replaced(database, other, given["pipeline"])}})
            else:
                result.append(stage)
        return result

    def _answered(self, database: str, name: str, verb: str, given: Json, after: Sequence[Json]) -> list[Json]:
        with self._lock:
            self._build()
            mirror = self._mirrors.setdefault((database, name), Mirror())
            if self.down:
                raise Refused("Error connecting to localhost:27027 :: caused by :: Connection refused", 6, _UNREACHABLE)
            index, image = mirror.indexes.get(given.get("index", "default")), self._held(mirror)
            if index is not None and index.answering is None:
                raise Refused(f"cannot query search index {index.name} while in state INITIAL_SYNC")
            if index is not None and (index.kind == "vectorSearch") != (verb == "$vectorSearch"):
                raise Refused(f"Cannot execute {verb} over {index.kind} index '{index.name}'")
            definition = None if index is None else index.answering
        if definition is None:  # "the index does not exist, respond with empty information"
            return [{"$match": {"_id": {"$in": []}}}]
        if verb == "$vectorSearch":
            return _documents(vector_search(image, definition, given))
        found = text_search(image, definition, verb, given)
        if verb == "$searchMeta":
            kind = given.get("count", {}).get("type", "lowerBound")
            count = {"count": {kind: int(found.mask.sum())}}
            # named documents, since SecantusDB reads a whole collection for `$limit` alone: minutes of 200,000
            return [{"$match": {"_id": {"$in": image.ids[:20]}}}, {"$limit": 1}, {"$replaceWith": {"$literal": count}}]
        places = np.flatnonzero(found.mask)
        order = places[np.argsort(-found.score[places], kind="stable")]
        limit = after[0].get("$limit") if after else None
        return _documents([image.ids[at] for at in order[:limit]])

    # --- The wire -----------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._open.add(client)
        try:
            with closing(client), closing(socket.create_connection(("127.0.0.1", self._upstream))) as upstream:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while frame := _read(client):
                    for reply in self._replies(frame, upstream):
                        client.sendall(reply)
        except (OSError, PyMongoError):
            pass  # an end as good as any
        finally:
            self._open.discard(client)

    def _own_answer(self, verb: str, command: Json) -> Json | None:
        """The answer to what the deployment does not know; None for all that is passed on."""
        if verb == "bulkWrite" and self.older:
            sentence = "BulkWrite may not be run without featureFlagBulkWriteCommand enabled"
            raise Refused(sentence, 115, "CommandNotSupported")
        if verb in COMMANDS:
            return self._manage(command)
        verbs = verbs_of(command["pipeline"]) if verb == "aggregate" else set()
        if "$listSearchIndexes" in verbs:
            return self._listed(command)
        return self._found(self._without_search(command)) if verbs & {*STAGES} else None

    def _replies(self, frame: bytes, upstream: socket.socket) -> Iterator[bytes]:
        _, request, _, operation = _HEADER.unpack_from(frame)
        flags = int.from_bytes(frame[16:20], "little") if operation == _OP_MSG else 0
        command = _command(frame) if operation == _OP_MSG else {}
        verb = next(iter(command), "")
        traffic = self.traffic
        if verb and verb not in ("hello", "ismaster", "isMaster", "ping", "endSessions"):
            traffic.commands[verb] += 1
            traffic.sent += len(frame)
        try:
            own = self._own_answer(verb, command)
        except Refused as refused:
            own = {"ok": 0.0, "errmsg": str(refused), "code": refused.code, "codeName": refused.name}
        except OperationFailure as error:
            own = dict(error.details or {})
        if own is not None:
            reply = _reply(request, own)
            traffic.received += len(reply)
            yield reply
            return
        upstream.sendall(frame)
        more = not flags & _MORE_TO_COME
        while more:
            reply = _read(upstream)
            if not reply:
                raise OSError("the deployment closed the connection")
            if verb:
                self._note_write(command)
            traffic.received += len(reply)
            yield reply
            more = _HEADER.unpack_from(reply)[3] == _OP_MSG and bool(reply[16] & _MORE_TO_COME)


_GENERIC = {"$db", "lsid", "$clusterTime", "$readPreference", "maxTimeMS", "comment", "writeConcern", "txnNumber"}
_IN_TRANSACTION, _UNREACHABLE = "OperationNotSupportedInTransaction", "HostUnreachable"


def verbs_of(pipeline: Sequence[Json]) -> set[str]:
    """The stages of a pipeline and of those inside."""
    found = set()
    for stage in pipeline:
        for verb, given in stage.items():
            found.add(verb)
            if isinstance(given, dict):
                parts = list(given.values()) if verb == "$facet" else [given.get("pipeline")]
                for part in parts:
                    found |= verbs_of(part) if isinstance(part, list) else set()
    return found


def _parts(command: Json) -> list[tuple[str, list[Json]]]:
    """Collections and pipelines of an aggregation that ends in a union, or the whole as one part."""
    pipeline = command["pipeline"]
    first = next((at for at, stage in enumerate(pipeline) if "$unionWith" in stage), len(pipeline))
    if not all("$unionWith" in stage and "coll" in stage["$unionWith"] for stage in pipeline[first:]):
        first = len(pipeline)
    others = [(stage["$unionWith"]["coll"], stage["$unionWith"]["pipeline"]) for stage in pipeline[first:]]
    return [(command["aggregate"], pipeline[:first]), *others]


def _documents(ids: list[Any]) -> list[Json]:
    place = {"$getField": {"field": "$_id", "input": {"$literal": {name: at for at, name in enumerate(ids)}}}}
    ordered: list[Json] = [{"$set": {"_place": place}}, {"$sort": {"_place": 1}}, {"$unset": "_place"}]
    return [{"$match": {"_id": {"$in": ids}}}, *(ordered if len(ids) > 1 else [])]


def _paths(definition: Json) -> set[str]:
    return {part["path"] for part in definition["fields"]} if "fields" in definition else {*_text_fields(definition)}


def _outermost(paths: set[str]) -> set[str]:
    """Without those inside another: a projection may not name both."""
    return {path for path in paths if not any(path.startswith(f"{other}.") for other in paths)}


def _read(link: socket.socket) -> bytes:
    """One message; nothing where the other side has closed."""
    head = _exactly(link, 4)
    return head + _exactly(link, int.from_bytes(head, "little") - 4) if head else b""


def _exactly(link: socket.socket, size: int) -> bytes:
    parts, missing = [], size
    while missing:
        part = link.recv(min(missing, 1 << 20))
        if not part:
            return b""
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _command(frame: bytes) -> Json:
    """The command of an OP_MSG, without the documents that come in sections of their own."""
    at = 20
    while at < len(frame):
        kind, size = frame[at], int.from_bytes(frame[at + 1 : at + 5], "little")
        if kind == 0:
            return bson.decode(frame[at + 1 : at + 1 + size], _OPTIONS)
        at += 1 + size
    return {}


def _frame(request: int, response_to: int, body: Json) -> bytes:
    encoded = b"\0\0\0\0\0" + bson.encode(body)
    return _HEADER.pack(_HEADER.size + len(encoded), request, response_to, _OP_MSG) + encoded


def _reply(request: int, body: Json) -> bytes:
    return _frame(1, request, body)


@contextmanager
def start_atlas(port: int) -> Iterator[Atlas]:
    """A double in front of the deployment at that port of this machine."""
    atlas = Atlas(port)
    try:
        yield atlas
    finally:
        atlas.close()
