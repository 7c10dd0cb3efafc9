"""Writes documents and index rows on MongoDB inside a transaction, and blind updates, which read nothing first.

MongoDB checks the expectations of a blind update exactly as we would.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from bson.int64 import Int64
from pymongo import InsertOne, ReturnDocument, UpdateOne
from pymongo.errors import BulkWriteError, DuplicateKeyError

from app.storage.changes import CommitConflict, Delete, IndexEntry, Update, stale
from app.storage.index.partitions import model_of
from app.storage.index.record_codec import PackedRecord, head_dtype, pack, repack, reword
from app.storage.mongo.codec import (
    OWN,
    PLAIN,
    Stored,
    decode,
    encode,
    key,
    packed_fields,
    packed_of,
    vector_of,
    whole_vector,
)
from app.storage.mongo.connection import DUPLICATE_KEY, META, PAIR_NUMBERS, PAIRS, TOMBSTONES, Database, MongoSession
from app.storage.mongo.partitions import ROW_BITS, MongoPartition, by_key, new_document, owner, pair_key
from app.storage.mongo.transactions import Retry
from app.storage.schema import And, Collection, Doc, Filter, Not, Or, Unique
from app.storage.text import IndexedText
from app.storage.transfer import at_version


class PairWriting:
    """Updates partitions for the documents that one transaction writes."""

    def __init__(self, database: Database, session: MongoSession, keys: set[str], now_ms: int) -> None:
        self._database, self._session, self._keys, self._now_ms = database, session, keys, now_ms
        self._open: dict[str, MongoPartition] = {}
        self._known: dict[str, MongoPartition] = {}
        self._new: set[str] = set()
        self._gone: dict[str, list[int]] = {}

    async def prefetch(self, docs: Sequence[tuple[Collection, Doc]]) -> None:
        """Reads the states of the documents' partitions in one query."""
        keys = {pair_key(collection.name, doc["tenant_id"], *owner(doc)) for collection, doc in docs}
        if keys:
            self._known = await by_key(self._database, sorted(keys), self._session)

    async def put(
        self,
        collection: Collection,
        doc: Doc,
        own: Mapping[str, Any] | None,
        entry: IndexEntry | None,
        *,
        text: IndexedText | None = None,
        keep: bool = False,
    ) -> Stored:
        """Returns the fields of `_r` for a document's row, a new one if `own` has none.

        Without `entry` the text and vectors stay, except that `text` replaces the terms. `keep` keeps the replaced
        vector as an alternate vector.
        """
        spec = collection.spec
        old = packed_of(own) if own else None
        if entry is None and old is None:
            return {}
        state = await self._state(collection, doc)
        if entry is not None:
            packed = pack(spec, doc, entry, state.version)
        elif text is not None:
            assert old is not None
            packed = reword(spec, doc, old, text, state.version)
        else:
            assert old is not None
            packed = repack(spec, doc, old, state.version)
        fields = self._written(collection, state, doc, packed, old)
        if own and entry is not None:
            fields |= self._kept(collection, state, own, packed) if keep else {"kept": None}
        return fields

    def _kept(
        self, collection: Collection, state: MongoPartition, own: Mapping[str, Any], packed: PackedRecord
    ) -> Stored:
        """Returns the fields of alternate vectors. A kept vector is of the same text; a new text drops it."""
        state.kept = True
        new = model_of(collection.spec, packed.head)
        vector = whole_vector(own)
        before = {} if vector is None else {int(own["model"]): vector_of(vector)}
        return {f"kept.{model}": vector for model, vector in before.items() if model != new} | {f"kept.{new}": None}

    async def put_like(self, collection: Collection, doc: Doc, own: Mapping[str, Any]) -> Stored:
        """Returns the fields of `_r` for a new document with the text and vectors of another, whose `_r` is `own`."""
        like = packed_of(own)
        if like is None:
            return {}
        fields = await self.take_in(collection, doc, repack(collection.spec, doc, like, 0))
        if "kept" not in own:
            return fields
        (await self._state(collection, doc)).kept = True
        return fields | {"kept": own["kept"]}

    async def take_in(self, collection: Collection, doc: Doc, packed: PackedRecord) -> Stored:
        """Returns the fields of `_r` for a new document from the packed record of another store."""
        state = await self._state(collection, doc)
        return self._written(collection, state, doc, at_version(collection.spec, packed, state.version), None)

    def _written(
        self, collection: Collection, state: MongoPartition, doc: Doc, packed: PackedRecord, old: PackedRecord | None
    ) -> Stored:
        fields = packed_fields(collection.spec, doc, packed) | {"rev": Int64(state.version)}
        if old is None:
            state.rows += 1
            fields |= {"pair": Int64(state.pair), "row": Int64(state.pair << ROW_BITS | state.rows)}
        state.written(collection, doc, model_of(collection.spec, packed.head), new=old is None)
        state.length += length_of(collection, packed.head) - (length_of(collection, old.head) if old else 0)
        return fields

    async def remove(self, collection: Collection, found: Sequence[Stored]) -> None:
        """Removes stored documents from their partitions."""
        if collection.searched is None:
            return
        for stored in found:
            own = stored.get(OWN, {})
            if "head" not in own:
                continue
            state = await self._state(collection, stored)
            state.removed()
            state.buried = state.version
            state.length -= length_of(collection, own["head"])
            self._gone.setdefault(state.key, []).append(int(own["row"]))

    async def close(self) -> None:
        """Writes the states of the partitions that were touched. Raises Retry if another writer created one."""
        for state in self._open.values():
            state.mark(self._now_ms)
            gone = self._gone.get(state.key, [])
            if state.worn:
                await self._bury(state)
            elif gone:
                left: list[Stored] = [{"_id": Int64(row), "pair": state.pair, "rev": state.version} for row in gone]
                await self._database[TOMBSTONES].insert_many(left, session=self._session)
        writes = [
            InsertOne(new_document(state))
            if state.key in self._new
            else UpdateOne({"_id": state.key}, {"$set": state.fields()})
            for state in self._open.values()
        ]
        if not writes:
            return
        try:
            await self._database[PAIRS].bulk_write(writes, session=self._session)
        except BulkWriteError as error:
            if error.details["writeErrors"][0]["code"] == DUPLICATE_KEY:
                raise Retry from error  # another writer created the partition meanwhile
            raise

    async def _bury(self, state: MongoPartition) -> None:
        """Drops the tombstones. Copies older than this version must be reloaded."""
        await self._database[TOMBSTONES].delete_many({"pair": state.pair}, session=self._session)
        state.tombstones_dropped()

    async def _state(self, collection: Collection, doc: Mapping[str, Any]) -> MongoPartition:
        user, agent = doc.get("user_id") or None, doc.get("agent_id") or None
        key = pair_key(collection.name, doc["tenant_id"], user, agent)
        state = self._open.get(key)
        if state is None:
            self._keys.add(key)
            found = self._known.get(key) or (await by_key(self._database, [key], self._session)).get(key)
            if found is None:
                found = MongoPartition(
                    key=key,
                    collection=collection.name,
                    tenant=doc["tenant_id"],
                    user=user,
                    agent=agent,
                    pair=await self._number(),
                )
                self._new.add(key)
            state = self._open[key] = found
            state.version += 1
        return state

    async def _number(self) -> int:
        """Returns the number of a new partition.

        Runs outside the transaction, so that new partitions do not wait for each other. An unused number is lost.
        """
        try:
            found = await self._database[META].find_one_and_update(
                {"_id": PAIR_NUMBERS}, {"$inc": {"value": 1}}, upsert=True, return_document=ReturnDocument.AFTER
            )
        except DuplicateKeyError as error:
            raise Retry from error
        assert found is not None
        return int(found["value"])


def length_of(collection: Collection, head: bytes) -> int:
    """Returns the number of terms in a record's text."""
    return int(np.frombuffer(head, head_dtype(len(collection.spec.ranges)))["length"][0])


TYPE_MISMATCH = 14
"""Error code of `$inc` on null, which counts as 0 here."""


class NotPlain(Exception):
    """The update cannot be made blindly; the document must be read first."""


@dataclass(slots=True)
class Assignment:
    """An update that sets fields and removes those of `_r` that are None."""

    set: Stored
    unset: Stored = field(default_factory=dict)
    inc: Stored = field(default_factory=dict)

    def own(self, prefix: str, values: Mapping[str, Any]) -> None:
        """Sets or removes fields of `_r`, whose names get the prefix."""
        for name, value in values.items():
            path = f"{OWN}.{prefix}{name}"
            if value is None:
                self.unset[path] = ""
            else:
                self.set[path] = value

    def statement(self) -> Stored:
        """Returns the update statement."""
        parts = {"$set": self.set, "$unset": self.unset, "$inc": self.inc}
        return {verb: fields for verb, fields in parts.items() if fields}


def is_plain(update: Update) -> bool:
    """Returns whether nothing of the update must be computed from the document, its size included."""
    touched = {*update.set, *update.inc}
    keyed = {name.partition(".")[0] for unique in update.collection.unique for name in _named(unique)}
    once = not update.set.keys() & update.inc.keys()
    return (
        update.collection.searched is None
        and not update.collection.counted
        and bool(touched)
        and once
        and not touched & keyed
        and comparable(update.collection, update.expect)
    )


def _named(unique: Unique) -> set[str]:
    return {*unique.fields, *_fields(unique.when)}


def _fields(part: Filter) -> set[str]:
    match part:
        case And(parts) | Or(parts):
            return {name for inner in parts for name in _fields(inner)}
        case Not(inner):
            return _fields(inner)
        case _:
            return {part.field}


def comparable(collection: Collection, expect: Mapping[str, Any]) -> bool:
    """Returns whether MongoDB compares these values as Python does."""
    return all(
        name not in collection.opaque and (value is None or isinstance(value, str | int | float))
        for name, value in expect.items()
    )


def expected(stored_id: str, expect: Mapping[str, Any]) -> Stored:
    """Returns the query for the document with the expected fields."""
    return {"_id": stored_id, **{name: {"$eq": value} for name, value in expect.items()}}


def statement(collection: Collection, fields: Mapping[str, Any], inc: Mapping[str, int]) -> Stored:
    """Returns the update statement that sets and increments the fields."""
    parts = {"$set": encode(collection, fields), "$inc": dict(inc)}
    return {verb: values for verb, values in parts.items() if values}


async def explain(database: Database, change: Update | Delete) -> None:
    """Raises CommitConflict with the reason why the statement did not match. Returns if it would match now."""
    collection = change.collection
    found = await database[collection.name].find_one({"_id": key(change.tenant, change.id)}, PLAIN)
    if found is None:
        raise CommitConflict(collection.name, change.id, "missing")
    if stale(decode(collection, found), change.expect):
        raise CommitConflict(collection.name, change.id, "expect")


def add_own(stored: Stored, fields: Mapping[str, Any]) -> None:
    """Adds fields of `_r` to a new document. None means that the field is not stored."""
    stored.setdefault(OWN, {}).update({name: value for name, value in fields.items() if value is not None})
