"""The writes of a transaction, sent together.

MongoDB 8.0 has a command for writes to several collections, `bulkWrite`. The writes of a new memory (the memory, its
entry in the audit trail, its partition, the tenant's usage, the change log) are one command there, and five before.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypeAlias, TypedDict

from pymongo import DeleteOne, InsertOne, UpdateOne
from pymongo.errors import BulkWriteError, ClientBulkWriteException, InvalidOperation, OperationFailure, PyMongoError

from app.errors import RecalldError
from app.storage.mongo.codec import Stored
from app.storage.mongo.connection import Database, MongoSession
from app.storage.mongo.transactions import Retry

BulkWrite: TypeAlias = InsertOne[Stored] | UpdateOne | DeleteOne


class WriteError(TypedDict):
    """The server's answer to a refused write. `keyPattern`: of a duplicate key, the fields of its index."""

    code: int
    keyPattern: NotRequired[dict[str, int]]


Refusal: TypeAlias = Callable[[WriteError], RecalldError | Retry | None]
"""Returns the error for the server's answer to a refused write, or None if it is no error of the write's own."""
WIRE_VERSION = 25
"""That of MongoDB 8.0."""
UNKNOWN = frozenset({59, 115, 8000})
"""CommandNotFound, CommandNotSupported (a server of 8.0 that still keeps the format of 7.0, as in the middle of an
upgrade), AtlasError (what a cluster's tier does not allow)."""


@dataclass(slots=True)
class BulkSupport:
    """Whether the deployment takes `bulkWrite`. One that refuses it is not asked again."""

    supported: bool

    @staticmethod
    def of(hello: Mapping[str, Any]) -> "BulkSupport":
        """Returns what the answer to `hello` says."""
        return BulkSupport(int(hello.get("maxWireVersion", 0)) >= WIRE_VERSION)


@dataclass(frozen=True, slots=True)
class _Write:
    collection: str
    model: BulkWrite
    refusal: Refusal


def _not_ours(_: WriteError) -> None:
    return None


class TransactionWrites:
    """Writes of one transaction that wait to be sent, in their order."""

    def __init__(self, database: Database, session: MongoSession, support: BulkSupport) -> None:
        self.database, self.session, self._support = database, session, support
        self._waiting: list[_Write] = []

    def insert(self, collection: str, document: Stored, refusal: Refusal = _not_ours) -> None:
        """Adds the insert of a document."""
        self._add(collection, InsertOne(document, namespace=self._namespace(collection)), refusal)

    def update(
        self,
        collection: str,
        wanted: Stored,
        change: Stored,
        refusal: Refusal = _not_ours,
        *,
        upsert: bool = False,
    ) -> None:
        """Adds the update of one document."""
        model = UpdateOne(wanted, change, upsert=upsert, namespace=self._namespace(collection))
        self._add(collection, model, refusal)

    def delete(self, collection: str, stored_id: str) -> None:
        """Adds the deletion of one document."""
        self._add(collection, DeleteOne({"_id": stored_id}, namespace=self._namespace(collection)), _not_ours)

    def _namespace(self, collection: str) -> str:
        return f"{self.database.name}.{collection}"

    def _add(self, collection: str, model: BulkWrite, refusal: Refusal) -> None:
        self._waiting.append(_Write(collection, model, refusal))

    async def send(self) -> None:
        """Sends what waits, in one command where the server takes that. Raises the error of a refused write."""
        writes, self._waiting = self._waiting, []
        by_collection: dict[str, list[_Write]] = {}
        for write in writes:
            by_collection.setdefault(write.collection, []).append(write)
        if len(by_collection) > 1 and self._support.supported:
            try:
                await self.database.client.bulk_write([write.model for write in writes], session=self.session)
            except InvalidOperation as error:  # a server of before 8.0, after a change of primary
                self._support.supported = False
                raise Retry from error
            except ClientBulkWriteException as error:
                raise self._failed(writes, error) from None
            return
        for collection, own in by_collection.items():
            try:
                await self.database[collection].bulk_write([write.model for write in own], session=self.session)
            except BulkWriteError as error:
                refused = error.details["writeErrors"][0]
                raise own[refused["index"]].refusal(refused) or error from None

    def _failed(self, writes: Sequence[_Write], error: ClientBulkWriteException) -> Exception:
        whole = error.error
        if isinstance(whole, OperationFailure) and whole.code in UNKNOWN:
            self._support.supported = False
            return Retry()
        if isinstance(whole, PyMongoError):
            return whole
        for refused in error.details["writeErrors"]:
            return writes[refused["idx"]].refusal(refused) or error
        return error
