"""What goes wrong between us and MongoDB, as one error with a reason. Nothing here ever shows a password."""

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

from app.errors import RecalldError, StoreUnavailable, TooLarge

_CREDENTIALS = re.compile(r"//[^/@]*@")

AUTHENTICATION = frozenset({13, 18, 8000})
"""Unauthorized, AuthenticationFailed, AtlasError (bad credentials)."""
TOO_LARGE = frozenset({257, 10334, 17419, 17420})
"""TransactionTooLarge, BSONObjectTooLarge, and the two of an update that would make its document too large."""
WRITE_CONFLICT = 112
DUPLICATE_KEY = 11000


def without_password(uri: str) -> str:
    return _CREDENTIALS.sub("//***@", uri)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Every fault of the driver becomes StoreUnavailable, or TooLarge where the caller's data is the reason.

    What the server said of a statement is no cause of ours: it repeats the document, which no log may show.
    """
    try:
        yield
    except (OperationFailure, BSONError) as error:
        raise explained(error) from None
    except PyMongoError as error:
        raise explained(error) from error


def explained(error: Exception) -> RecalldError:
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
    """Of the statement, and of each write in it."""
    errors = error.details.get("writeErrors", []) if isinstance(error, BulkWriteError) else []
    return {int(each["code"]) for each in errors} | ({error.code} if error.code is not None else set())


def _refused(error: OperationFailure) -> RecalldError:
    if codes(error) & TOO_LARGE:
        return TooLarge("A change would be larger than MongoDB stores in one document or transaction (16 MB).")
    if codes(error) & AUTHENTICATION:
        return StoreUnavailable("MongoDB refuses these credentials, or what they may do.", retry_after=30)
    if WRITE_CONFLICT in codes(error) or error.has_error_label("TransientTransactionError"):
        return StoreUnavailable("MongoDB is busy: others keep changing the same records.")
    details = error.details or {}
    return StoreUnavailable(f"MongoDB refused: {details.get('codeName') or sorted(codes(error))}.")
