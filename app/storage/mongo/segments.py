"""Exact search on MongoDB: the segments of partitions, loaded whole and kept up to date with the rows that changed."""

import asyncio
from collections.abc import Sequence

from app.storage.index.partitions import SegmentCache, overlaid
from app.storage.index.record_codec import Row
from app.storage.index.segment import Segment
from app.storage.mongo.codec import KEPT, OWN, PACKED, PARTITION, REV, ROW, OwnFields, Stored, packed_of, raw_vector
from app.storage.mongo.connection import PARTITIONS, TOMBSTONES, Database
from app.storage.mongo.partitions import MongoPartition, state_of
from app.storage.mongo.transactions import KeyedLocks
from app.storage.schema import Collection

INLINE_ROWS = 2_000
"""A segment of more rows is made in a thread."""
_ROW_FIELDS = dict.fromkeys((ROW, *PACKED), 1) | {"_id": 0}


class SegmentLoader:
    """Loads the segments of partitions and keeps them up to date."""

    def __init__(self, database: Database, cache: SegmentCache, dim: int) -> None:
        self._database, self._cache, self._dim = database, cache, dim
        self._locks = KeyedLocks()

    def empty(self, collection: Collection, agent: str | None = None) -> Segment:
        """Returns a segment without documents."""
        return Segment(collection.spec, self._dim, agent)

    def drop_partitions(self, partitions: Sequence[int]) -> None:
        """Removes the segments of the partitions from the cache."""
        self._cache.drop_partitions(partitions)

    async def of(self, collection: Collection, state: MongoPartition, model: int) -> Segment:
        """Returns the partition's segment, at least as new as `state`, with its vectors of `model`."""
        wanted, key = state.version, (state.number, model)
        cached = self._cache.get(key, state.floor)
        if cached is not None and cached[1] >= wanted:
            return cached[0]
        # two concurrent updates of a segment could apply an older row over a newer one
        async with self._locks.of([state.key]):
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
                    stored = await self._database[PARTITIONS].find_one({"_id": state.key})
                    now = state if stored is None else state_of(stored)
                    if since < now.floor or now.version == state.version:
                        self._cache.drop(key)  # tombstones that were needed were dropped during the read
                        state = now
                        continue
                self._cache.put(key, segment, state.version)
                return segment


async def changed_rows(
    database: Database, collection: Collection, state: MongoPartition, since: int, model: int, dim: int
) -> list[Row]:
    """Returns the rows written after version `since`, tombstones included, with their vectors of `model` (dimension
    `dim`) if they have one.

    `since` 0 reads all live rows.
    """
    query: Stored = {PARTITION: state.number} | ({REV: {"$gt": since}} if since else {})
    changed = await database[collection.name].find(query, _ROW_FIELDS | {f"{KEPT}.{model}": 1}).to_list()
    alternates = {
        int(own["row"]): raw_vector(vector)
        for stored in changed
        if (vector := (own := stored[OWN]).get("kept", {}).get(str(model))) is not None
    }
    rows = [row_of(stored[OWN]) for stored in changed]
    if since and state.buried > since:
        gone = database[TOMBSTONES].find({"pair": state.number, "rev": {"$gt": since}})
        rows += [Row(int(stored["_id"]), None) async for stored in gone]
    rows.sort(key=lambda row: row.id)
    return overlaid(collection.spec, rows, model, dim, lambda _: alternates)


def row_of(own: OwnFields) -> Row:
    """Returns the row of a document's `_r`."""
    return Row(int(own["row"]), packed_of(own))
