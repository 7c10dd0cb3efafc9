"""A list of one change on one document that needs nothing else: one conditional statement, without a transaction."""

from collections.abc import Mapping, Sequence
from typing import Any

from pymongo.errors import DuplicateKeyError, WriteError

from app.storage.collection import (
    Change,
    Collection,
    CommitConflict,
    Committed,
    Delete,
    Insert,
    Unique,
    Update,
    stale,
)
from app.storage.filters import And, Filter, Not, Or
from app.storage.mongo.changes import new_document, refused
from app.storage.mongo.documents import PLAIN, Stored, decode, encode, key
from app.storage.mongo.pairs import Database

DONE = Committed({}, 0)
TYPE_MISMATCH = 14


class NotSingle(Exception):
    """It needs a transaction after all."""


def is_single(changes: Sequence[Change]) -> bool:
    if len(changes) != 1:
        return False
    match changes[0]:
        case Insert(collection, _, entry):
            return collection.searched is None or entry is None
        case Update() as update:
            return not update.collection.searched and _plain(update)
        case Delete(collection, _, _, expect):
            return not collection.searched and _comparable(collection, expect)
        case _:
            return False


def _plain(update: Update) -> bool:
    """Nothing about it must be computed from the document."""
    touched = {*update.set, *update.inc}
    keyed = {name.partition(".")[0] for unique in update.collection.unique for name in _named(unique)}
    once = not update.set.keys() & update.inc.keys()
    return bool(touched) and once and not touched & keyed and _comparable(update.collection, update.expect)


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


def _comparable(collection: Collection, expect: Mapping[str, Any]) -> bool:
    """MongoDB compares these as Python does."""
    return all(
        name not in collection.opaque and (value is None or isinstance(value, str | int | float))
        for name, value in expect.items()
    )


async def commit_single(database: Database, change: Change) -> Committed:
    """Raises CommitConflict, or NotSingle."""
    match change:
        case Insert():
            await _insert(database, change)
            return DONE
        case Update():
            wanted = {"_id": key(change.tenant, change.id), **_expected(change.expect)}
            while not await _update(database, change, wanted):
                await _explain(database, change)
            return DONE
        case Delete():
            wanted = {"_id": key(change.tenant, change.id), **_expected(change.expect)}
            while not (await database[change.collection.name].delete_one(wanted)).deleted_count:
                await _explain(database, change)
            return Committed({}, 1)
        case _:
            raise NotSingle()


def _expected(expect: Mapping[str, Any]) -> Stored:
    return {name: {"$eq": value} for name, value in expect.items()}


async def _insert(database: Database, change: Insert) -> None:
    stored = new_document(change.collection, change.doc)
    try:
        await database[change.collection.name].insert_one(stored)
    except DuplicateKeyError as fault:
        raise refused(change.collection, stored["_id"], fault.details or {}) from None


async def _update(database: Database, change: Update, wanted: Stored) -> bool:
    statement = {"$set": encode(change.collection, change.set), "$inc": dict(change.inc)}
    try:
        found = await database[change.collection.name].update_one(wanted, {k: v for k, v in statement.items() if v})
    except WriteError as fault:
        if fault.code == TYPE_MISMATCH:  # null counts as 0, which $inc does not know
            raise NotSingle() from fault
        raise
    return bool(found.matched_count)


async def _explain(database: Database, change: Update | Delete) -> None:
    """Raises what kept the statement from finding its document; returns where that has changed meanwhile."""
    collection = change.collection
    found = await database[collection.name].find_one({"_id": key(change.tenant, change.id)}, PLAIN)
    if found is None:
        raise CommitConflict(collection.name, change.id, "missing")
    if stale(decode(collection, found), change.expect):
        raise CommitConflict(collection.name, change.id, "expect")
