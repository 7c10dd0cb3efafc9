"""Writes that read nothing first: blind updates inside a transaction, and lists of one change without one.

MongoDB checks the expectations of such a write exactly as we would.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pymongo.errors import DuplicateKeyError, WriteError

from app.storage.changes import Change, CommitConflict, Committed, Delete, Insert, Update, stale
from app.storage.mongo.codec import OWN, PLAIN, SEPARATOR, Stored, decode, encode, key, new_document
from app.storage.mongo.connection import Database
from app.storage.mongo.transactions import Retry
from app.storage.schema import And, Collection, Filter, Not, Or, Unique

TYPE_MISMATCH = 14
"""Error code of `$inc` on null, which counts as 0 here."""
DONE = Committed({}, 0)


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
    return Assignment(encode(collection, fields), inc=dict(inc)).statement()


async def explain(database: Database, change: Update | Delete) -> None:
    """Raises CommitConflict with the reason why the statement did not match. Returns if it would match now."""
    collection = change.collection
    found = await database[collection.name].find_one({"_id": key(change.tenant, change.id)}, PLAIN)
    if found is None:
        raise CommitConflict(collection.name, change.id, "missing")
    if stale(decode(collection, found), change.expect):
        raise CommitConflict(collection.name, change.id, "expect")


def refused(collection: Collection, stored_id: str, error: Mapping[str, Any]) -> CommitConflict | Retry:
    """Returns the error for a duplicate key: a conflict of the violated unique key or id, or a retry."""
    doc_id = stored_id.partition(SEPARATOR)[2]
    fields = [str(name) for name in error.get("keyPattern", {})]
    for unique in collection.unique:
        if fields == [f"{OWN}.u.{unique.name}"]:
            return CommitConflict(collection.name, doc_id, unique.name)
    return CommitConflict(collection.name, doc_id, "exists") if fields == ["_id"] else Retry()


def is_single(changes: Sequence[Change]) -> bool:
    """Returns whether the list can be committed without a transaction."""
    if len(changes) != 1:
        return False
    match changes[0]:
        case Insert(collection, _, entry, like):
            return not collection.counted and (collection.searched is None or (entry is None and like is None))
        case Update() as update:
            return is_plain(update)
        case Delete(collection, _, _, expect):
            return not (collection.searched or collection.counted) and comparable(collection, expect)
        case _:
            return False


async def commit_single(database: Database, change: Change) -> Committed:
    """Commits the change. Raises CommitConflict, or NotPlain if the document must be read first."""
    match change:
        case Insert():
            await _insert(database, change)
            return DONE
        case Update():
            wanted = expected(key(change.tenant, change.id), change.expect)
            while not await _update(database, change, wanted):
                await explain(database, change)
            return DONE
        case Delete():
            wanted = expected(key(change.tenant, change.id), change.expect)
            while not (await database[change.collection.name].delete_one(wanted)).deleted_count:
                await explain(database, change)
            return Committed({}, 1)
        case _:
            raise NotPlain()


async def _insert(database: Database, change: Insert) -> None:
    stored = new_document(change.collection, change.doc)
    try:
        await database[change.collection.name].insert_one(stored)
    except DuplicateKeyError as error:
        raise refused(change.collection, stored["_id"], error.details or {}) from None


async def _update(database: Database, change: Update, wanted: Stored) -> bool:
    collection = change.collection
    try:
        found = await database[collection.name].update_one(wanted, statement(collection, change.set, change.inc))
    except WriteError as error:
        if error.code == TYPE_MISMATCH:
            raise NotPlain() from None
        raise
    return bool(found.matched_count)
