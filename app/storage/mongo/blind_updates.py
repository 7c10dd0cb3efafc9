"""Blind updates, which do not read the document first. MongoDB checks their expectations exactly as we would."""

from collections.abc import Mapping
from typing import Any

from app.storage.changes import CommitConflict, Delete, Update, stale
from app.storage.filters import And, Filter, Not, Or
from app.storage.mongo.codec import PLAIN, Stored, decode, encode, key
from app.storage.mongo.partitions import Database
from app.storage.schema import Collection, Unique

TYPE_MISMATCH = 14
"""Error code of `$inc` on null, which counts as 0 here."""


class NotPlain(Exception):
    """The update cannot be made blindly; the document must be read first."""


def is_plain(update: Update) -> bool:
    """Returns whether nothing of the update must be computed from the document."""
    touched = {*update.set, *update.inc}
    keyed = {name.partition(".")[0] for unique in update.collection.unique for name in _named(unique)}
    once = not update.set.keys() & update.inc.keys()
    return (
        update.collection.searched is None
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
