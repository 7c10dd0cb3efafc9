"""Partitions of searched collections: version, count, speakers, and their segments. The transactions that touch them
update them.

As in the embedded engine, each list of changes increments the version of the partitions that it touches. A row stores
the version that wrote it, and a deleted one leaves a tombstone, so that any process can update its copy of a partition
with the rows that changed.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import orjson
from bson.int64 import Int64

from app.storage.index.partitions import PartitionState, SegmentCache, overlaid
from app.storage.index.record_codec import Row
from app.storage.index.segment import Segment
from app.storage.mongo.codec import KEPT, OWN, PACKED, PAIR, REV, ROW, Stored, packed_of, raw_vector
from app.storage.mongo.connection import PAIRS, TOMBSTONES, Database, MongoSession
from app.storage.mongo.transactions import KeyedLocks
from app.storage.schema import Collection, Doc
from app.storage.search import ANY_AGENT, Partition

ROW_BITS = 32
"""A row's handle combines its partition's number and its own number in the partition. Handles are never reused."""
MARK_MS = 10_000
MAX_MARKS = 16
INLINE_ROWS = 2_000


@dataclass(slots=True, kw_only=True)
class MongoPartition(PartitionState):
    """The record of a partition as this engine stores it, under `key`.

    `rows`: how many rows were ever made; `length`: terms of all documents that live; `buried`: version of the last
    tombstone; `marks`: (milliseconds since 1970, version) now and then, the newest last; `kept`: some documents may
    have another vector beside theirs."""

    key: str
    collection: str
    tenant: str
    user: str | None
    rows: int = 0
    length: int = 0
    buried: int = 0
    marks: list[list[int]] = field(default_factory=list)
    kept: bool = False

    def version_at(self, ms: int) -> int:
        """Returns a version that was reached by that time; 0 if none so old is known."""
        return max((version for at, version in self.marks if at <= ms), default=0)

    def mark(self, ms: int) -> None:
        """Records when this version was written. The newest mark is always stored, the others are some seconds
        apart."""
        if len(self.marks) > 1 and self.marks[-1][0] - self.marks[-2][0] < MARK_MS:
            self.marks.pop()
        self.marks = [*self.marks, [ms, self.version]][-MAX_MARKS:]

    def fields(self) -> Stored:
        """Returns the fields that change, as they are stored."""
        return {
            "version": Int64(self.version),
            "floor": Int64(self.floor),
            "count": self.count,
            "rows": Int64(self.rows),
            "length": Int64(self.length),
            "tombstones": self.tombstones,
            "buried": Int64(self.buried),
            "speakers": self.speakers,
            "marks": [[Int64(at), Int64(version)] for at, version in self.marks],
            "model": Int64(self.model),
            "kept": self.kept,
        }


def pair_key(collection: str, tenant: str, user: str | None, agent: str | None) -> str:
    """Returns the `_id` of a partition."""
    return orjson.dumps([collection, tenant, user, agent]).decode()


def new_document(state: MongoPartition) -> Stored:
    """Returns the document of a new partition."""
    return {
        "_id": state.key,
        "collection": state.collection,
        "tenant_id": state.tenant,
        "user_id": state.user,
        "agent_id": state.agent,
        "pair": Int64(state.pair),
        **state.fields(),
    }


def state_of(stored: Stored) -> MongoPartition:
    """Returns the state in a stored partition."""
    plain = {name: int(stored[name]) for name in ("pair", "version", "floor", "count", "rows", "length")}
    return MongoPartition(
        key=stored["_id"],
        collection=stored["collection"],
        tenant=stored["tenant_id"],
        user=stored["user_id"],
        agent=stored["agent_id"],
        **plain,
        tombstones=int(stored["tombstones"]),
        buried=int(stored["buried"]),
        speakers=list(stored["speakers"]),
        marks=[[int(at), int(version)] for at, version in stored["marks"]],
        model=int(stored.get("model", 0)),
        kept=bool(stored.get("kept")),
    )


def owner(doc: Doc) -> tuple[str | None, str | None]:
    """Returns (user, agent). An empty string counts as none, as in the embedded engine."""
    return doc.get("user_id") or None, doc.get("agent_id") or None


async def read(
    database: Database, collection: Collection, tenant: str, wanted: Sequence[Partition]
) -> list[MongoPartition]:
    """Returns the existing partitions among those wanted, by number."""
    keys = [
        pair_key(collection.name, tenant, p.user or None, p.agent or None) for p in wanted if p.agent is not ANY_AGENT
    ]
    users = [pair.user or None for pair in wanted if pair.agent is ANY_AGENT]
    parts: list[Stored] = [{"_id": {"$in": keys}}] if keys else []
    parts += [{"collection": collection.name, "tenant_id": tenant, "user_id": user} for user in users]
    if not parts:
        return []
    query = parts[0] if len(parts) == 1 else {"$or": parts}
    states = [state_of(found) async for found in database[PAIRS].find(query)]
    return sorted(states, key=lambda state: state.pair)


async def by_key(database: Database, keys: Sequence[str], session: MongoSession | None) -> dict[str, MongoPartition]:
    """Returns the existing partitions, by key."""
    found = database[PAIRS].find({"_id": {"$in": list(keys)}}, session=session)
    return {stored["_id"]: state_of(stored) async for stored in found}


_ROW_FIELDS = dict.fromkeys((ROW, *PACKED), 1) | {"_id": 0}


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


def counter_key(tenant: str, name: str) -> str:
    """Returns the `_id` of a counter."""
    return orjson.dumps([tenant, name]).decode()


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
