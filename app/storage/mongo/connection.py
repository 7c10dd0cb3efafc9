"""The connection to a deployment, the names of the engine's own collections, and errors of MongoDB as errors of the
service. No message contains a password."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any, TypeAlias

import pymongo
from bson.errors import BSONError, InvalidDocument
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.asynchronous.mongo_client import AsyncMongoClient
from pymongo.errors import (
    BulkWriteError,
    ClientBulkWriteException,
    ConfigurationError,
    ConnectionFailure,
    DocumentTooLarge,
    OperationFailure,
    PyMongoError,
)
from pymongo.read_preferences import ReadPreference

from app.errors import RecalldError, StorageFull, StoreUnavailable, TooLarge

_CREDENTIALS = re.compile(r"//[^/@]*@")
AUTHENTICATION = frozenset({13, 18, 8000})
"""Unauthorized, AuthenticationFailed, AtlasError (bad credentials)."""
TOO_LARGE = frozenset({257, 10334, 17419, 17420})
"""TransactionTooLarge, BSONObjectTooLarge, and the two codes of an update that would make its document too large."""
OUT_OF_SPACE = 14031
"""OutOfDiskSpace: the server refuses what might fill its disk. It does not say how many bytes are missing."""
_OVER_QUOTA = re.compile(r"over your space quota")
"""What Atlas says, under the code of AtlasError, when a free or shared cluster is full."""
WRITE_CONFLICT = 112
BUSY = "MongoDB is busy: others keep changing the same records."
DUPLICATE_KEY = 11000
OURS: dict[str, Any] = {
    "appname": "recalld",
    "w": "majority",
    "journal": True,
    "readConcernLevel": "majority",
    "retryWrites": True,
    "retryReads": True,
    "tz_aware": True,
}
"""Options that override those of the URI: durability is not configurable there."""
NO_TRANSACTIONS = (
    "MongoDB at {where} is a standalone server, which has no transactions: start it with --replSet rs0 and run "
    'mongosh --eval "rs.initiate()" once; a replica set of one member is enough.'
)
Client: TypeAlias = AsyncMongoClient[dict[str, Any]]
Database: TypeAlias = AsyncDatabase[dict[str, Any]]
MongoSession: TypeAlias = AsyncClientSession
META, PARTITIONS, TOMBSTONES, COUNTERS = "recalld_meta", "recalld_pairs", "recalld_tombstones", "recalld_counters"
CHANGE_LOG, CHANGE_HEADS = "recalld_changes", "recalld_change_heads"
PARTITION_NUMBERS = "pair numbers"
"""The counter in `META` that numbers new partitions. No transaction writes to it."""


def without_password(uri: str) -> str:
    """Returns the URI, or a text that contains it, without user and password."""
    return _CREDENTIALS.sub("//***@", uri)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Converts every error of the driver to StoreUnavailable, or to TooLarge if the caller's data is the reason.

    The server's error is not chained as the cause: it repeats the document, which must not appear in logs.
    """
    try:
        yield
    except (OperationFailure, BSONError) as error:
        raise explained(error) from None
    except PyMongoError as error:
        raise explained(error) from error


def explained(error: Exception) -> RecalldError:
    """Returns the service error for an error of the driver."""
    if isinstance(error, DocumentTooLarge):
        return TooLarge("A record would be larger than the 16 MB that MongoDB stores in one document.")
    if isinstance(error, InvalidDocument):
        return StoreUnavailable(f"MongoDB cannot store this record: {error}.", retry_after=None)
    if isinstance(error, PyMongoError) and error.timeout:
        conflict = error.__cause__  # of the last try of a transaction
        if isinstance(conflict, OperationFailure) and WRITE_CONFLICT in codes(conflict):
            return StoreUnavailable(BUSY)
        return StoreUnavailable("MongoDB did not answer within the deadline.")
    if isinstance(error, ConnectionFailure):
        return StoreUnavailable("MongoDB cannot be reached.")
    if isinstance(error, ConfigurationError):
        return StoreUnavailable(f"MongoDB cannot be used like this: {without_password(str(error))}.", retry_after=30)
    if isinstance(error, OperationFailure):
        return _refused(error)
    return StoreUnavailable(f"MongoDB failed: {type(error).__name__}.")


def codes(error: OperationFailure) -> set[int]:
    """Returns the error codes of the statement and of each write in it."""
    bulk = isinstance(error, BulkWriteError | ClientBulkWriteException)
    errors = error.details.get("writeErrors", []) if bulk and error.details else []
    return {int(entry["code"]) for entry in errors} | ({error.code} if error.code is not None else set())


def _refused(error: OperationFailure) -> RecalldError:
    if codes(error) & TOO_LARGE:
        return TooLarge("A change would be larger than MongoDB stores in one document or transaction (16 MB).")
    if OUT_OF_SPACE in codes(error) or _OVER_QUOTA.search(str(error)):
        return StorageFull("The disk of MongoDB is full. Free space, or delete.", retry_after=30)
    if codes(error) & AUTHENTICATION:
        return StoreUnavailable("MongoDB refuses these credentials, or what they may do.", retry_after=30)
    if WRITE_CONFLICT in codes(error) or error.has_error_label("TransientTransactionError"):
        return StoreUnavailable(BUSY)
    details = error.details or {}
    return StoreUnavailable(f"MongoDB refused: {details.get('codeName') or sorted(codes(error))}.")


def connect(uri: str, deadline_seconds: float) -> Client:
    """Returns the client without connecting yet. Raises StoreUnavailable if the URI is invalid."""
    try:
        with guarded():
            return AsyncMongoClient(
                uri,
                serverSelectionTimeoutMS=int(deadline_seconds * 1000),
                connectTimeoutMS=int(deadline_seconds * 1000),
                **OURS,
            )
    except ValueError as error:  # the driver's own word for a port of 99999
        raise StoreUnavailable(f"RECALLD_STORE cannot be used: {without_password(str(error))}.") from None


async def greet(client: Client, uri: str, deadline_seconds: float) -> dict[str, Any]:
    """Connects and returns the deployment's `hello`. Raises StoreUnavailable with advice on what to do."""
    where = without_password(uri)
    try:
        with pymongo.timeout(deadline_seconds):
            answer: dict[str, Any] = await client.admin.command("hello", read_preference=ReadPreference.PRIMARY)
            await client.admin.command("ping")
    except OperationFailure as error:
        if error.code in AUTHENTICATION:
            raise StoreUnavailable(f"MongoDB at {where} refuses the user or password of RECALLD_STORE.") from error
        raise StoreUnavailable(f"MongoDB at {where} refuses: {error.details and error.details.get('codeName')}.") from (
            error
        )
    except ConfigurationError as error:
        raise StoreUnavailable(f"RECALLD_STORE cannot be used: {without_password(str(error))}.") from error
    except PyMongoError as error:
        raise StoreUnavailable(
            f"MongoDB at {where} cannot be reached within {deadline_seconds:g} s ({type(error).__name__}): "
            "is it running, is the address right, may this machine connect to it?"
        ) from error
    if "setName" not in answer and answer.get("msg") != "isdbgrid":
        raise StoreUnavailable(NO_TRANSACTIONS.format(where=where))
    return answer
