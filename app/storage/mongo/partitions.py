"""Partitions of searched collections: version, count, speakers, and the segments that exact search reads. The
transactions that touch partitions update them, by `PartitionWriting`.

As in the embedded engine, each list of changes increments the version of the partitions that it touches. A row stores
the version that wrote it, and a deleted one leaves a tombstone, so that any process can update its copy of a partition
with the rows that changed.
"""

import asyncio
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from bson.int64 import Int64
from pymongo import ReturnDocument

from app.storage.changes import IndexEntry
from app.storage.index import record_codec
from app.storage.index.segment import PartitionState, Segment, SegmentCache
from app.storage.mongo import codec, connection
from app.storage.schema import Collection, Doc
from app.storage.scope import ANY_AGENT, Partition
from app.storage.text import IndexedTerms

ROW_BITS = 32
"""A row's handle combines its partition's number and its own number in the partition. Handles are never reused."""
MARK_MS = 10_000
MAX_MARKS = 16


@dataclass(slots=True, kw_only=True)
class MongoPartition(PartitionState):
    """The record of a partition as this engine stores it, under `key`.

    `rows`: how many rows were ever made; `length`: terms of all documents that live; `buried`: version of the last
    tombstone; `marks`: (milliseconds since 1970, version) now and then, the newest last; `has_alternates`: some
    documents may have another vector beside theirs."""

    key: str
    collection: str
    tenant: str
    user: str | None
    rows: int = 0
    length: int = 0
    buried: int = 0
    marks: list[list[int]] = field(default_factory=list)
    has_alternates: bool = False

    def version_at(self, ms: int) -> int:
        """Returns a version that was reached by that time; 0 if none so old is known."""
        return max((version for at, version in self.marks if at <= ms), default=0)

    def mark(self, ms: int) -> None:
        """Records when this version was written. The newest mark is always stored, the others are some seconds
        apart."""
        if len(self.marks) > 1 and self.marks[-1][0] - self.marks[-2][0] < MARK_MS:
            self.marks.pop()
        self.marks = [*self.marks, [ms, self.version]][-MAX_MARKS:]

    def fields(self) -> codec.Stored:
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
            "kept": self.has_alternates,
        }


def partition_key(collection: str, tenant: str, user: str | None, agent: str | None) -> str:
    return orjson.dumps([collection, tenant, user, agent]).decode()


def new_document(state: MongoPartition) -> codec.Stored:
    return {
        "_id": state.key,
        "collection": state.collection,
        "tenant_id": state.tenant,
        "user_id": state.user,
        "agent_id": state.agent,
        "partition": Int64(state.number),
        **state.fields(),
    }


def state_of(stored: codec.Stored) -> MongoPartition:
    plain = {name: int(stored[name]) for name in ("version", "floor", "count", "rows", "length")}
    return MongoPartition(
        key=stored["_id"],
        number=int(stored["partition"]),
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
        has_alternates=bool(stored.get("kept")),
    )


def owner(doc: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Returns (user, agent). An empty string counts as none, as in the embedded engine."""
    return doc.get("user_id") or None, doc.get("agent_id") or None


async def read(
    database: connection.Database, collection: Collection, tenant: str, wanted: Sequence[Partition]
) -> list[MongoPartition]:
    """Returns the existing partitions among those wanted, by number."""
    keys = [
        partition_key(collection.name, tenant, p.user or None, p.agent or None)
        for p in wanted
        if p.agent is not ANY_AGENT
    ]
    users = [partition.user or None for partition in wanted if partition.agent is ANY_AGENT]
    parts: list[codec.Stored] = [{"_id": {"$in": keys}}] if keys else []
    parts += [{"collection": collection.name, "tenant_id": tenant, "user_id": user} for user in users]
    if not parts:
        return []
    query = parts[0] if len(parts) == 1 else {"$or": parts}
    states = [state_of(stored) async for stored in database[connection.PARTITIONS].find(query)]
    return sorted(states, key=lambda state: state.number)


async def by_key(
    database: connection.Database, keys: Sequence[str], session: connection.MongoSession | None
) -> dict[str, MongoPartition]:
    cursor = database[connection.PARTITIONS].find({"_id": {"$in": list(keys)}}, session=session)
    return {stored["_id"]: state_of(stored) async for stored in cursor}


def counter_key(tenant: str, name: str) -> str:
    return orjson.dumps([tenant, name]).decode()


class PartitionWriting:
    """Updates partitions for the documents that one transaction writes."""

    def __init__(
        self, database: connection.Database, session: connection.MongoSession, keys: set[str], now_ms: int
    ) -> None:
        """Adds the keys of the partitions to `keys`."""
        self._database, self._session, self._keys, self._now_ms = database, session, keys, now_ms
        self._open: dict[str, MongoPartition] = {}
        self._known: dict[str, MongoPartition] = {}
        self._new: set[str] = set()
        self._gone: dict[str, list[int]] = {}

    async def prefetch(self, docs: Sequence[tuple[Collection, Doc]]) -> None:
        """Reads the states of the documents' partitions in one query."""
        keys = {partition_key(collection.name, doc["tenant_id"], *owner(doc)) for collection, doc in docs}
        if keys:
            self._known = await by_key(self._database, sorted(keys), self._session)

    async def put(
        self,
        collection: Collection,
        doc: Doc,
        own: codec.OwnFields | None,
        entry: IndexEntry | None,
        *,
        changed: Set[str] = frozenset(),
        terms: IndexedTerms | None = None,
        keep: bool = False,
    ) -> codec.Stored:
        """Returns the fields of `_r` for a document's row, a new one if `own` has none.

        Without `entry` the text and vectors stay, except that `terms` are its new terms, and only the fields `changed`
        have changed. `keep` keeps the replaced vector as an alternate vector.
        """
        spec = collection.spec
        old = codec.packed_of(own) if own else None
        if entry is None and (old is None or (terms is None and changed.isdisjoint(record_codec.sources_of(spec)))):
            return {}
        state = await self._state(collection, doc)
        if entry is not None:
            packed = record_codec.pack(spec, doc, entry, state.version)
        elif terms is not None:
            assert old is not None
            packed = record_codec.reword(spec, doc, old, terms, state.version)
        else:
            assert old is not None
            packed = record_codec.repack(spec, doc, old, state.version, changed)
        fields = self._written(collection, state, doc, packed, old)
        if own and entry is not None:
            fields |= self._alternates(collection, state, own, packed) if keep else {"kept": None}
        return fields

    def _alternates(
        self, collection: Collection, state: MongoPartition, own: codec.OwnFields, packed: record_codec.PackedRecord
    ) -> codec.Stored:
        """Returns the fields of alternate vectors. They are of the same text; a new text drops them."""
        state.has_alternates = True
        new = record_codec.model_of(collection.spec, packed.head)
        vector = codec.whole_vector(own)
        before = {} if vector is None else {int(own["model"]): codec.vector_of(vector)}
        return {f"kept.{model}": vector for model, vector in before.items() if model != new} | {f"kept.{new}": None}

    async def put_like(self, collection: Collection, doc: Doc, own: codec.OwnFields) -> codec.Stored:
        """Returns the fields of `_r` for a new document with the text and vectors of another, whose `_r` is `own`."""
        like = codec.packed_of(own)
        if like is None:
            return {}
        fields = await self.take_in(collection, doc, record_codec.repack(collection.spec, doc, like, 0))
        if "kept" not in own:
            return fields
        (await self._state(collection, doc)).has_alternates = True
        return fields | {"kept": own["kept"]}

    async def take_in(self, collection: Collection, doc: Doc, packed: record_codec.PackedRecord) -> codec.Stored:
        """Returns the fields of `_r` for a new document from the packed record of another store."""
        state = await self._state(collection, doc)
        return self._written(
            collection, state, doc, record_codec.at_version(collection.spec, packed, state.version), None
        )

    def _written(
        self,
        collection: Collection,
        state: MongoPartition,
        doc: Doc,
        packed: record_codec.PackedRecord,
        old: record_codec.PackedRecord | None,
    ) -> codec.Stored:
        fields = codec.packed_fields(collection.spec, doc, packed) | {"rev": Int64(state.version)}
        if old is None:
            state.rows += 1
            fields |= {"partition": Int64(state.number), "row": Int64(state.number << ROW_BITS | state.rows)}
        state.written(collection, doc, record_codec.model_of(collection.spec, packed.head), new=old is None)
        state.length += length_of(collection, packed.head) - (length_of(collection, old.head) if old else 0)
        return fields

    async def remove(self, collection: Collection, stored_docs: Sequence[codec.Stored]) -> None:
        """Removes stored documents from their partitions."""
        if collection.searched is None:
            return
        for stored in stored_docs:
            own = stored.get(codec.OWN, {})
            if "head" not in own:
                continue
            state = await self._state(collection, stored)
            state.removed()
            state.buried = state.version
            state.length -= length_of(collection, own["head"])
            self._gone.setdefault(state.key, []).append(int(own["row"]))

    async def close(self, writes: connection.TransactionWrites) -> None:
        """Adds the states of the partitions that were touched to the writes. Those raise Retry if another writer
        created one."""
        for state in self._open.values():
            state.mark(self._now_ms)
            gone = self._gone.get(state.key, [])
            if state.worn:
                await self._database[connection.TOMBSTONES].delete_many(
                    {"partition": state.number}, session=self._session
                )
                state.tombstones_dropped()  # copies older than this version must be reloaded
            else:
                for row in gone:
                    writes.insert(
                        connection.TOMBSTONES, {"_id": Int64(row), "partition": state.number, "rev": state.version}
                    )
            if state.key in self._new:
                writes.insert(connection.PARTITIONS, new_document(state), _created_meanwhile)
            else:
                writes.update(connection.PARTITIONS, {"_id": state.key}, {"$set": state.fields()}, _created_meanwhile)

    async def _state(self, collection: Collection, doc: Mapping[str, Any]) -> MongoPartition:
        user, agent = owner(doc)
        key = partition_key(collection.name, doc["tenant_id"], user, agent)
        state = self._open.get(key)
        if state is None:
            self._keys.add(key)
            known = self._known.get(key) or (await by_key(self._database, [key], self._session)).get(key)
            if known is None:
                known = MongoPartition(
                    key=key,
                    collection=collection.name,
                    tenant=doc["tenant_id"],
                    user=user,
                    agent=agent,
                    number=await self._number(),
                )
                self._new.add(key)
            state = self._open[key] = known
            state.version += 1
        return state

    async def _number(self) -> int:
        """Returns the number of a new partition.

        Runs outside the transaction, so that new partitions do not wait for each other. An unused number is lost.
        """
        counter = await self._database[connection.META].find_one_and_update(
            {"_id": connection.PARTITION_NUMBERS},
            {"$inc": {"value": 1}},
            upsert=True,
            return_document=ReturnDocument.AFTER,
        )
        assert counter is not None
        return int(counter["value"])


def _created_meanwhile(reply: connection.WriteError) -> connection.Retry | None:
    return connection.Retry() if reply["code"] == connection.DUPLICATE_KEY else None


def length_of(collection: Collection, head: bytes) -> int:
    """Returns the number of terms in a record's text."""
    return int(np.frombuffer(head, record_codec.head_dtype(len(collection.spec.ranges)))["length"][0])


def add_own(stored: codec.Stored, fields: Mapping[str, object]) -> None:
    """Adds fields of `_r` to a new document. None means that the field is not stored."""
    stored.setdefault(codec.OWN, {}).update({name: value for name, value in fields.items() if value is not None})


# --- Segments ---------------------------------------------------------------------------------------------------------

# Exact search: the segments of partitions, loaded whole and kept up to date with the rows that changed.

INLINE_ROWS = 2_000
"""A segment of more rows is made in a thread."""
_ROW_FIELDS = dict.fromkeys((codec.ROW, *codec.PACKED), 1) | {"_id": 0}


class SegmentLoader:
    """Loads the segments of partitions and keeps them up to date."""

    def __init__(self, database: connection.Database, cache: SegmentCache, dim: int) -> None:
        self._database, self._cache, self._dim = database, cache, dim
        self._locks = connection.KeyedLocks()

    def empty(self, collection: Collection, agent: str | None = None) -> Segment:
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
                    stored = await self._database[connection.PARTITIONS].find_one({"_id": state.key})
                    now = state if stored is None else state_of(stored)
                    if since < now.floor or now.version == state.version:
                        self._cache.drop(key)  # tombstones that were needed were dropped during the read
                        state = now
                        continue
                self._cache.put(key, segment, state.version)
                return segment


async def changed_rows(
    database: connection.Database, collection: Collection, state: MongoPartition, since: int, model: int, dim: int
) -> list[record_codec.Row]:
    """Returns the rows written after version `since`, tombstones included, with their vectors of `model` (dimension
    `dim`) if they have one.

    `since` 0 reads all live rows.
    """
    query: codec.Stored = {codec.PARTITION: state.number} | ({codec.REV: {"$gt": since}} if since else {})
    changed = await database[collection.name].find(query, _ROW_FIELDS | {f"{codec.KEPT}.{model}": 1}).to_list()
    alternates = {
        int(own["row"]): codec.raw_vector(vector)
        for stored in changed
        if (vector := (own := stored[codec.OWN]).get("kept", {}).get(str(model))) is not None
    }
    rows = [row_of(stored[codec.OWN]) for stored in changed]
    if since and state.buried > since:
        gone = database[connection.TOMBSTONES].find({"partition": state.number, "rev": {"$gt": since}})
        rows += [record_codec.Row(int(stored["_id"]), None) async for stored in gone]
    rows.sort(key=lambda row: row.id)
    return record_codec.overlaid(collection.spec, rows, model, dim, lambda _: alternates)


def row_of(own: codec.OwnFields) -> record_codec.Row:
    """Returns the row of a document's `_r`."""
    return record_codec.Row(int(own["row"]), codec.packed_of(own))
