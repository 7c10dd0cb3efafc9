"""Search on MongoDB: segments loaded whole, or Atlas' approximate nearest-neighbour index for large scopes."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from app.storage.index.partitions import SegmentCache, overlaid
from app.storage.index.record_codec import Row, head_dtype, model_id, quantise
from app.storage.index.segment import Segment
from app.storage.mongo.codec import (
    KEPT,
    MODEL,
    OWN,
    PACKED,
    PAIR,
    REV,
    ROW,
    VECTOR,
    Stored,
    packed_of,
    raw_vector,
    term_text,
    vector_of,
)
from app.storage.mongo.connection import PAIRS, TOMBSTONES, Database
from app.storage.mongo.partitions import MongoPartition, state_of
from app.storage.mongo.search_indexes import WORDS, text_filter, text_index, vector_filter, vector_index
from app.storage.mongo.transactions import KeyedLocks
from app.storage.schema import Collection, value_at
from app.storage.search import Columns, Memo, SearchQuery, concatenate

CANDIDATES = 200
"""Number of candidates from each of the two indexes. At 100, the ranking finds 0.94 of the evidence
(docs/concepts/retrieval.md)."""
NUM_CANDIDATES = min(10_000, 20 * CANDIDATES)
OVERLAY_MS = 60_000
"""Rows changed in this time are read in addition to the indexes, which may lag behind."""
AROUND = 2
"""Number of neighbours on each side, by their ordinals in the session."""
AT_ONCE = 50
INLINE_ROWS = 2_000
_ROW_FIELDS = dict.fromkeys((ROW, *PACKED), 1) | {"_id": 0}


class SegmentLoader:
    """Loads the segments of partitions and keeps them up to date."""

    def __init__(self, database: Database, cache: SegmentCache, dim: int) -> None:
        self._database, self._cache, self._dim = database, cache, dim
        self._locks = KeyedLocks()

    def empty(self, collection: Collection, agent: str | None = None) -> Segment:
        """Returns a segment without documents."""
        return Segment(collection.spec, self._dim, agent)

    def drop_pairs(self, pairs: Sequence[int]) -> None:
        """Removes the segments of the partitions from the cache."""
        self._cache.drop_pairs(pairs)

    async def of(self, collection: Collection, state: MongoPartition, model: int) -> Segment:
        """Returns the partition's segment, at least as new as `state`, with its vectors of `model`."""
        cached = self._cache.get((state.pair, model), state.floor)
        if cached is not None and cached[1] >= state.version:
            return cached[0]
        # two concurrent updates of a segment could apply an older row over a newer one
        async with self._locks.of([state.key]):
            return await self._refreshed(collection, state, model)

    async def _refreshed(self, collection: Collection, state: MongoPartition, model: int) -> Segment:
        wanted, key = state.version, (state.pair, model)
        while True:
            cached = self._cache.get(key, state.floor)
            if cached is not None and cached[1] >= wanted:
                return cached[0]
            segment, since = cached or (self.empty(collection, state.agent), 0)
            rows = await changed_rows(self._database, collection, state, since, model, self._dim)
            if len(rows) > INLINE_ROWS and not since:
                await asyncio.to_thread(segment.apply, rows)
            else:
                segment.apply(rows)
            if since and len(segment) != state.count:
                now = await self._now(state)
                if since < now.floor or now.version == state.version:
                    self._cache.drop(key)  # tombstones that were needed were dropped during the read
                    state = now
                    continue
            self._cache.put(key, segment, state.version)
            return segment

    async def _now(self, state: MongoPartition) -> MongoPartition:
        found = await self._database[PAIRS].find_one({"_id": state.key})
        return state if found is None else state_of(found)


async def changed_rows(
    database: Database, collection: Collection, state: MongoPartition, since: int, model: int, dim: int
) -> list[Row]:
    """Returns the rows written after version `since`, tombstones included, with their vectors of `model` (dimension
    `dim`) if they have one.

    `since` 0 reads all live rows.
    """
    query: Stored = {PAIR: state.pair} | ({REV: {"$gt": since}} if since else {})
    found = await database[collection.name].find(query, _ROW_FIELDS | {f"{KEPT}.{model}": 1}).to_list()
    kept = {
        int(own["row"]): raw_vector(vector)
        for stored in found
        if (vector := (own := stored[OWN]).get("kept", {}).get(str(model))) is not None
    }
    rows = [row_of(stored[OWN]) for stored in found]
    if since and state.buried > since:
        gone = database[TOMBSTONES].find({"pair": state.pair, "rev": {"$gt": since}})
        rows += [Row(int(stored["_id"]), None) async for stored in gone]
    rows.sort(key=lambda row: row.id)
    return overlaid(collection.spec, rows, model, dim, lambda _: kept)


def row_of(own: Stored) -> Row:
    """Returns the row of a document's `_r`."""
    return Row(int(own["row"]), packed_of(own))


class Candidates:
    """Searches Atlas' vector and text indexes and returns their candidates as columns."""

    def __init__(self, database: Database, dim: int) -> None:
        self._database, self._dim = database, dim

    async def columns(
        self, collection: Collection, query: SearchQuery, states: Sequence[MongoPartition], now_ms: int
    ) -> Columns:
        """Returns the columns of the candidates and their neighbours in the partitions `states` (at least one)."""
        found, counts = await asyncio.gather(
            self._found(collection, query, states, now_ms), self._frequencies(collection, query, states)
        )
        around = await self._neighbours(collection, found)
        rows = {int(stored[OWN]["row"]): stored for stored in (*found, *around)}
        joined = concatenate([self._of_pair(collection, query, state, rows.values()) for state in states])
        count = sum(state.count for state in states)
        seen = np.add.reduce(joined.hits != 0, axis=1, dtype=np.float32)
        return replace(
            joined,
            df=np.maximum(np.array(counts, np.float32), seen),
            count=count,
            mean_length=sum(state.length for state in states) / max(1, count),
            derived=Memo(),
        )

    async def _found(
        self, collection: Collection, query: SearchQuery, states: Sequence[MongoPartition], now_ms: int
    ) -> list[Stored]:
        parts = [self._fresh(collection, state, now_ms) for state in states]
        if query.vector is not None and len(query.vector) == self._dim:
            parts.append(self._aggregate(collection, by_vector(collection, query, states)))
        if len(query.terms):
            parts.append(self._aggregate(collection, by_text(collection, query, states)))
        return [stored for part in await asyncio.gather(*parts) for stored in part if OWN in stored]

    async def _aggregate(self, collection: Collection, pipeline: Sequence[Stored]) -> list[Stored]:
        cursor = await self._database[collection.name].aggregate(list(pipeline))
        return await cursor.to_list()

    async def _fresh(self, collection: Collection, state: MongoPartition, now_ms: int) -> list[Stored]:
        """Returns the rows written so recently that the indexes may lack them."""
        since = state.version_at(now_ms - OVERLAY_MS)
        if since >= state.version:
            return []
        query: Stored = {PAIR: state.pair, REV: {"$gt": since}}
        return await self._database[collection.name].find(query, fields(collection)).to_list()

    async def _frequencies(
        self, collection: Collection, query: SearchQuery, states: Sequence[MongoPartition]
    ) -> list[float]:
        counted = [self._aggregate(collection, frequency(collection, query, states, int(term))) for term in query.terms]
        replies = await asyncio.gather(*counted)
        return [float(reply[0]["count"]["total"]) if reply else 0.0 for reply in replies]

    async def _neighbours(self, collection: Collection, found: Iterable[Stored]) -> list[Stored]:
        spec = collection.spec
        wanted: dict[tuple[int, str], set[int]] = {}
        for stored in found:
            session, ordinal = value_at(stored, spec.session), value_at(stored, spec.ordinal)
            if session is not None and ordinal is not None:
                places = wanted.setdefault((int(stored[OWN]["pair"]), str(session)), set())
                places.update(range(int(ordinal) - AROUND, int(ordinal) + AROUND + 1))
        clauses: list[Stored] = [
            {PAIR: pair, spec.session: session, spec.ordinal: {"$in": sorted(places)}}
            for (pair, session), places in wanted.items()
        ]
        pages = [{"$or": clauses[at : at + AT_ONCE]} for at in range(0, len(clauses), AT_ONCE)]
        cursors = [self._database[collection.name].find(page, fields(collection)) for page in pages]
        return [stored for page in await asyncio.gather(*(c.to_list() for c in cursors)) for stored in page]

    def _of_pair(
        self, collection: Collection, query: SearchQuery, state: MongoPartition, found: Iterable[Stored]
    ) -> Columns:
        spec = collection.spec
        segment = Segment(spec, self._dim, state.agent)
        rows = [row_of(stored[OWN]) for stored in found if int(stored[OWN]["pair"]) == state.pair]
        rows.sort(key=lambda row: row.id)
        segment.apply(rows)
        return _without_gaps(segment.columns(query), rows, head_dtype(len(spec.ranges)))


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


def fields(collection: Collection) -> Stored:
    """Returns the projection of a row and of its position in the session."""
    spec = collection.spec
    return dict.fromkeys((ROW, PAIR, *PACKED, spec.session, spec.ordinal), 1) | {"_id": 0}


def by_vector(collection: Collection, query: SearchQuery, states: Sequence[MongoPartition]) -> list[Stored]:
    """Returns the pipeline that finds candidates by vector."""
    assert query.vector is not None
    within = [
        {"tenant_id": {"$eq": query.tenant}},
        {PAIR: {"$in": [state.pair for state in states]}},
        {MODEL: {"$eq": model_id(query.model, len(query.vector))}},
        *vector_filter(query.where),
    ]
    stage = {
        "index": vector_index(collection),
        "path": VECTOR,
        "queryVector": vector_of(quantise(query.vector).tobytes()),
        "numCandidates": NUM_CANDIDATES,
        "limit": CANDIDATES,
        "filter": {"$and": within},
    }
    return [{"$vectorSearch": stage}, {"$project": fields(collection)}]


def by_text(collection: Collection, query: SearchQuery, states: Sequence[MongoPartition]) -> list[Stored]:
    """Returns the pipeline that finds candidates that contain one of the query's terms."""
    words = term_text(sorted({int(term) for term in query.terms}))
    compound = {
        "filter": [*within_pairs(query, states), *text_filter(query.where)],
        "should": [{"text": {"query": words, "path": WORDS}}],
        "minimumShouldMatch": 1,
    }
    return [
        {"$search": {"index": text_index(collection), "compound": compound}},
        {"$limit": CANDIDATES},
        {"$project": fields(collection)},
    ]


def frequency(collection: Collection, query: SearchQuery, states: Sequence[MongoPartition], term: int) -> list[Stored]:
    """Returns the pipeline that counts the documents in the scope that contain the term.

    The query's filter is not applied, because term statistics belong to the scope.
    """
    has_term = {"text": {"query": term_text([term]), "path": WORDS}}
    compound = {"filter": [*within_pairs(query, states), has_term]}
    count = {"type": "total"}
    return [{"$searchMeta": {"index": text_index(collection), "compound": compound, "count": count}}]


def within_pairs(query: SearchQuery, states: Sequence[MongoPartition]) -> list[Stored]:
    """Returns the `$search` conditions that limit a search to the partitions of one tenant."""
    return [
        {"equals": {"path": "tenant_id", "value": query.tenant}},
        {"in": {"path": PAIR, "value": [state.pair for state in states]}},
    ]
