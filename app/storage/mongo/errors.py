"""Converts errors of MongoDB and its driver to service errors with a reason. No message contains a password."""

import contextlib
import re
from collections.abc import Iterator

from bson.errors import BSONError, InvalidDocument
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    DocumentTooLarge,
    OperationFailure,
    PyMongoError,
)

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
DUPLICATE_KEY = 11000


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
    errors = error.details.get("writeErrors", []) if isinstance(error, BulkWriteError) else []
    return {int(each["code"]) for each in errors} | ({error.code} if error.code is not None else set())


def _refused(error: OperationFailure) -> RecalldError:
    if codes(error) & TOO_LARGE:
        return TooLarge("A change would be larger than MongoDB stores in one document or transaction (16 MB).")
    if OUT_OF_SPACE in codes(error) or _OVER_QUOTA.search(str(error)):
        return StorageFull("The disk of MongoDB is full. Free space, or delete.", retry_after=30)
    if codes(error) & AUTHENTICATION:
        return StoreUnavailable("MongoDB refuses these credentials, or what they may do.", retry_after=30)
    if WRITE_CONFLICT in codes(error) or error.has_error_label("TransientTransactionError"):
        return StoreUnavailable("MongoDB is busy: others keep changing the same records.")
    details = error.details or {}
    return StoreUnavailable(f"MongoDB refused: {details.get('codeName') or sorted(codes(error))}.")
