"""Commits a list with one change of one document as one conditional statement, without a transaction."""

from collections.abc import Sequence

from pymongo.errors import DuplicateKeyError, WriteError

from app.storage.changes import Change, Committed, Delete, Insert, Update
from app.storage.mongo.changes import new_document, refused
from app.storage.mongo.codec import Stored, key
from app.storage.mongo.partition_writer import (
    TYPE_MISMATCH,
    NotPlain,
    comparable,
    expected,
    explain,
    is_plain,
    statement,
)
from app.storage.mongo.partitions import Database

DONE = Committed({}, 0)


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
