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
    except (OperationFailure, BSONError) as fault:
        raise explained(fault) from None
    except PyMongoError as fault:
        raise explained(fault) from fault


def explained(fault: Exception) -> RecalldError:
    if isinstance(fault, DocumentTooLarge):
        return TooLarge("A record would be larger than the 16 MB that MongoDB stores in one document.")
    if isinstance(fault, InvalidDocument):
        return StoreUnavailable(f"MongoDB cannot store this record: {fault}.", retry_after=None)
    if isinstance(fault, PyMongoError) and fault.timeout:
        return StoreUnavailable("MongoDB did not answer within the deadline.")
    if isinstance(fault, ConnectionFailure):
        return StoreUnavailable("MongoDB cannot be reached.")
    if isinstance(fault, ConfigurationError):
        return StoreUnavailable(f"MongoDB cannot be used like this: {without_password(str(fault))}.", retry_after=30)
    if isinstance(fault, OperationFailure):
        return _refused(fault)
    return StoreUnavailable(f"MongoDB failed: {type(fault).__name__}.")


def codes(fault: OperationFailure) -> set[int]:
    """Of the statement, and of each write in it."""
    errors = fault.details.get("writeErrors", []) if isinstance(fault, BulkWriteError) else []
    return {int(error["code"]) for error in errors} | ({fault.code} if fault.code is not None else set())


def _refused(fault: OperationFailure) -> RecalldError:
    if codes(fault) & TOO_LARGE:
        return TooLarge("A change would be larger than MongoDB stores in one document or transaction (16 MB).")
    if codes(fault) & AUTHENTICATION:
        return StoreUnavailable("MongoDB refuses these credentials, or what they may do.", retry_after=30)
    if WRITE_CONFLICT in codes(fault) or fault.has_error_label("TransientTransactionError"):
        return StoreUnavailable("MongoDB is busy: others keep changing the same records.")
    details = fault.details or {}
    return StoreUnavailable(f"MongoDB refused: {details.get('codeName') or sorted(codes(fault))}.")
