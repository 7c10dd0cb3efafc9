"""Search of large scopes by Atlas' indexes: candidates by vector and by text, read as columns."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pymongo.errors import OperationFailure, PyMongoError

from app.storage.index.record_codec import Row, head_dtype, model_id, quantise
from app.storage.index.segment import Segment
from app.storage.mongo.codec import (
    MODEL,
    OWN,
    PACKED,
    PARTITION,
    REV,
    ROW,
    VECTOR,
    Stored,
    term_text,
    vector_of,
)
from app.storage.mongo.connection import Database
from app.storage.mongo.partitions import MongoPartition
from app.storage.mongo.search_filters import text_filter, vector_filter
from app.storage.mongo.search_indexes import WORDS, reason_of, text_index, vector_index
from app.storage.mongo.segments import row_of
from app.storage.schema import Collection, value_at
from app.storage.search import Columns, Memo, SearchQuery, concatenate

DEPTHS = (200, 2_000, 10_000)
"""Number of candidates from each of the two indexes, by the depth of the search. At 100, the ranking finds 0.94 of the
evidence (docs/concepts/retrieval.md); more than the last one `$vectorSearch` does not give."""
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
        reply: list[Stored] = []
        if parts:
            reply = await self._answers(
                collection,
                [
                    *parts.values(),
                    *self._fresh(collection, states, now_ms),
                    *frequencies(collection, query, states),
                ],
            )
        hits = [stored for stored in reply if OWN in stored]
        counts = {int(stored["term"]): float(stored["total"]) for stored in reply if "term" in stored}
        many = Counter(stored[FROM] for stored in hits)
        if not all(many[part] for part in parts) and self._lost(query, states, many, counts):
            reason = await doubted()
            if reason is not None:
                raise SearchIndexFailed(reason)
        # of the vector index, only documents with a vector can be found
        model = model_id(query.model, self._dim)
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
        rows = {int(stored[OWN]["row"]): stored for stored in (*around, *hits)}
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
            derived=Memo(),
        )

    def _has_vector(self, query: SearchQuery) -> bool:
        return query.vector is not None and len(query.vector) == self._dim

    async def _answers(self, collection: Collection, parts: Sequence[list[Stored]]) -> list[Stored]:
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
        model = model_id(query.model, self._dim)
        vectors = self._has_vector(query) and not many[VECTORS] and any(state.model in (0, model) for state in states)
        return vectors or (len(query.terms) > 0 and not counts.get(WHOLE_SCOPE))

    def _fresh(self, collection: Collection, states: Sequence[MongoPartition], now_ms: int) -> list[list[Stored]]:
        """Returns the part that reads rows written so recently that the indexes may lack them."""
        since = {state.number: state.version_at(now_ms - self._overlay_ms) for state in states}
        newer = [{PARTITION: s.number, REV: {"$gt": since[s.number]}} for s in states if since[s.number] < s.version]
        return [[{"$match": {"$or": newer}}, {"$project": fields(collection, "fresh")}]] if newer else []

    async def _neighbours(self, collection: Collection, hits: Iterable[Stored]) -> list[Stored]:
        spec = collection.spec
        wanted: dict[tuple[int, str], set[int]] = {}
        for stored in hits:
            session, ordinal = value_at(stored, spec.session), value_at(stored, spec.ordinal)
            if session is not None and ordinal is not None:
                places = wanted.setdefault((int(stored[OWN]["pair"]), str(session)), set())
                places.update(range(int(ordinal) - AROUND, int(ordinal) + AROUND + 1))
        clauses: list[Stored] = [
            {PARTITION: partition, spec.session: session, spec.ordinal: {"$in": sorted(places)}}
            for (partition, session), places in wanted.items()
        ]
        pages = [{"$or": clauses[at : at + AT_ONCE]} for at in range(0, len(clauses), AT_ONCE)]
        cursors = [
            self._database[collection.name].find(page, fields(collection, "around"), batch_size=ALL_AT_ONCE)
            for page in pages
        ]
        return [stored for page in await asyncio.gather(*(c.to_list() for c in cursors)) for stored in page]

    def _of_partition(
        self, collection: Collection, query: SearchQuery, state: MongoPartition, hits: Iterable[Stored], whole: bool
    ) -> Columns:
        spec = collection.spec
        segment = Segment(spec, self._dim, state.agent)
        rows = [row_of(stored[OWN]) for stored in hits if int(stored[OWN]["pair"]) == state.number]
        rows.sort(key=lambda row: row.id)
        segment.apply(rows)
        columns = segment.columns(query)
        return columns if whole else _without_gaps(columns, rows, head_dtype(len(spec.ranges)))


def _without_gaps(columns: Columns, rows: Sequence[Row], head: np.dtype[np.void]) -> Columns:
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


def fields(collection: Collection, origin: str) -> Stored:
    """Returns the projection of a row and of its position in the session. `origin`: the part that found it."""
    spec = collection.spec
    return dict.fromkeys((ROW, PARTITION, *PACKED, spec.session, spec.ordinal), 1) | {
        "_id": 0,
        FROM: {"$literal": origin},
    }


def conditions(collection: Collection, query: SearchQuery, states: Sequence[MongoPartition]) -> list[Stored]:
    """Returns the conditions on documents found, for `$vectorSearch` and for ordinary queries."""
    importance = [{collection.spec.importance: {"$gte": _least(query)}}] if query.least_importance > 0 else []
    partitions = {PARTITION: {"$in": [state.number for state in states]}}
    return [{"tenant_id": {"$eq": query.tenant}}, partitions, *importance, *vector_filter(query.where)]


def _least(query: SearchQuery) -> float:
    """Returns the bound for importance as it is stored. In columns it is a shorter number: 0.3 is 0.30000001 there."""
    return query.least_importance - 1e-6


def by_vector(collection: Collection, query: SearchQuery, states: Sequence[MongoPartition], limit: int) -> list[Stored]:
    """Returns the pipeline that finds candidates by vector."""
    assert query.vector is not None
    of_model = {MODEL: {"$eq": model_id(query.model, len(query.vector))}}
    stage = {
        "index": vector_index(collection),
        "path": VECTOR,
        "queryVector": vector_of(quantise(query.vector).tobytes()),
        "numCandidates": min(MOST_CANDIDATES, 20 * limit),
        "limit": limit,
        "filter": {"$and": [*conditions(collection, query, states), of_model]},
    }
    return [{"$vectorSearch": stage}, {"$project": fields(collection, VECTORS)}]


def by_text(collection: Collection, query: SearchQuery, states: Sequence[MongoPartition], limit: int) -> list[Stored]:
    """Returns the pipeline that finds candidates that contain one of the query's terms."""
    words = term_text(_unique(query)[:MOST_TERMS])
    least = {"range": {"path": collection.spec.importance, "gte": _least(query)}}
    compound = {
        "filter": [
            *within_partitions(query, states),
            *([least] if query.least_importance > 0 else []),
            *text_filter(query.where),
        ],
        "should": [{"text": {"query": words, "path": WORDS}}],
        "minimumShouldMatch": 1,
    }
    return [
        {"$search": {"index": text_index(collection), "compound": compound}},
        {"$limit": limit},
        {"$project": fields(collection, TEXTS)},
    ]


def frequencies(collection: Collection, query: SearchQuery, states: Sequence[MongoPartition]) -> list[list[Stored]]:
    """Returns the pipelines that count the documents in the scope that contain each term, and those in the scope.

    The query's filter is not applied, because term statistics belong to the scope.
    """
    if not len(query.terms):
        return []
    counted = [(WHOLE_SCOPE, within_partitions(query, states))]
    for term in _unique(query)[:COUNTED_TERMS]:
        has_term = {"text": {"query": term_text([term]), "path": WORDS}}
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


def within_partitions(query: SearchQuery, states: Sequence[MongoPartition]) -> list[Stored]:
    """Returns the `$search` conditions that limit a search to the partitions of one tenant."""
    return [
        {"equals": {"path": "tenant_id", "value": query.tenant}},
        {"in": {"path": PARTITION, "value": [state.number for state in states]}},
    ]
