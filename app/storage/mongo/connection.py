"""The connection to a deployment: the own collections of the engine, errors of MongoDB as errors of the service,
transactions, and the writes that they send together. No message contains a password."""

import asyncio
import contextlib
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, NotRequired, ParamSpec, Protocol, TypeAlias, TypedDict, TypeVar

import pymongo
from bson.errors import BSONError, InvalidDocument
from pymongo import DeleteOne, InsertOne, UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.asynchronous.mongo_client import AsyncMongoClient
from pymongo.errors import (
    BulkWriteError,
    ClientBulkWriteException,
    ConfigurationError,
    ConnectionFailure,
    DocumentTooLarge,
    InvalidOperation,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
)
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference
from pymongo.write_concern import WriteConcern

from app.core.work import begin, end
from app.errors import RecalldError, StorageFull, StoreUnavailable, TooLarge
from app.storage import protocol
from app.storage.mongo.codec import Stored

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
META, PARTITIONS, TOMBSTONES, COUNTERS = "recalld_meta", "recalld_partitions", "recalld_tombstones", "recalld_counters"
CHANGE_LOG, CHANGE_HEADS = "recalld_changes", "recalld_change_heads"
PARTITION_NUMBERS = "partition numbers"
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


# --- Transactions -----------------------------------------------------------------------------------------------------

# How transactions end if a caller is cancelled or a deadline passes.
#
# There are three layers, from the caller inwards:
#
# 1. `Shielded`: an operation of the store runs as a task of its own. Cancelling the caller does not interrupt it
#    between a commit and its answer: the caller waits for the task and is then cancelled.
# 2. `TransactionRunner`: the driver's `with_transaction`, which tries again after a conflict, and sends a commit again
#    whose answer was lost. It runs behind a lock for each key that it competes for (`KeyedLocks`), and within the
#    deadline of the request (`storage/protocol.py`), as `pymongo.timeout`.
# 3. `AbandonedTransactions`: what an open transaction has written stays locked on the server for a minute. One whose
#    end is unknown, as after a deadline, is ended in the background.

P = ParamSpec("P")
T = TypeVar("T")


SNAPSHOT, MAJORITY = ReadConcern("snapshot"), WriteConcern("majority")
TRY_SECONDS = 0.25
"""Pause between two attempts to end an abandoned transaction."""
WAIT_SECONDS = 2.0
"""Timeout of one such attempt."""
KEPT_SECONDS = 90.0
"""By then the server has ended an abandoned transaction by itself (transactionLifetimeLimitSeconds is 60)."""


class Retry(OperationFailure):
    """The data that were read have changed: the transaction is tried again, as after a conflict of the server's."""

    def __init__(self) -> None:
        super().__init__("what was read has changed", WRITE_CONFLICT, {"errorLabels": ["TransientTransactionError"]})


class Shielded:
    """Base class of objects whose operations run to their end when their caller is cancelled."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the coroutine to its end, also if the caller is cancelled, and returns its result."""
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        with protocol.waiting():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError:
                await asyncio.wait((task,))
                raise
        return task.result()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # marks the exception as retrieved: the caller may be gone

    async def all_ended(self) -> None:
        """Waits until no operation is in progress."""
        while self._under_way:
            await asyncio.wait(set(self._under_way))


S = TypeVar("S", bound=Shielded)


def shielded(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Decorates a method of a `Shielded` to run as a task of its own."""

    @wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(method(self, *args, **kwargs))

    return call


class RunCalls(Protocol):
    """Runs calls of the driver to their end, within a deadline."""

    def __call__(self, work: Callable[[], Awaitable[T]], /) -> Awaitable[T]: ...


class AbandonedTransactions:
    """Ends transactions whose end is unknown, so that their locks on the server are released."""

    def __init__(self, anything: AsyncCollection[Stored]) -> None:
        """Takes as `anything` any collection that can be read."""
        self._anything = anything
        self._sessions: deque[tuple[float, AsyncClientSession]] = deque()
        self._task: asyncio.Task[None] | None = None

    def take_over(self, session: AsyncClientSession) -> None:
        """Ends the session and its transaction in the background."""
        self._sessions.append((time.monotonic(), session))
        if self._task is None or self._task.done():
            self._task = begin(self._end_all(), "abandoned transactions")

    async def close(self) -> None:
        """Stops the background task."""
        await end(self._task)

    async def _end_all(self) -> None:
        """Ends the sessions one after the other, so that only one of them tries to reach an absent server."""
        while self._sessions:
            since, session = self._sessions[0]
            if await self._superseded(session):
                with pymongo.timeout(WAIT_SECONDS):
                    await session.end_session()
            elif time.monotonic() - since < KEPT_SECONDS:
                await asyncio.sleep(TRY_SECONDS)
                continue
            self._sessions.popleft()

    async def _superseded(self, session: AsyncClientSession) -> bool:
        try:
            with pymongo.timeout(WAIT_SECONDS):
                if session.in_transaction:
                    await session.abort_transaction()  # does not report whether it succeeded
                await session.start_transaction()
                await self._anything.find_one({}, {"_id": 1}, session=session)
        except PyMongoError:
            return False
        return True


class KeyedLocks:
    """Locks by key, for this process. They are taken in sorted order, so that callers cannot deadlock."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._wanted: dict[str, int] = {}

    @asynccontextmanager
    async def of(self, keys: Iterable[str]) -> AsyncIterator[None]:
        """Holds the locks of all the keys inside the block."""
        async with AsyncExitStack() as stack:
            for key in sorted(set(keys)):
                await stack.enter_async_context(self._lock(key))
            yield

    @asynccontextmanager
    async def _lock(self, key: str) -> AsyncIterator[None]:
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._wanted[key] = self._wanted.get(key, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._wanted[key] -= 1
            if not self._wanted[key]:
                del self._wanted[key], self._locks[key]


class TransactionRunner:
    """Runs transactions. `deadline_seconds` is that of a whole request."""

    def __init__(self, database: Database, deadline_seconds: float) -> None:
        self._client, self._deadline = database.client, deadline_seconds
        self._keyed_locks, self._abandoned = KeyedLocks(), AbandonedTransactions(database[COUNTERS])

    async def close(self) -> None:
        """Stops ending abandoned transactions."""
        await self._abandoned.close()

    async def in_transaction(
        self,
        work: Callable[[AsyncClientSession], Awaitable[T]],
        keys: Iterable[str] = (),
        partitions: set[str] | None = None,
    ) -> T:
        """Runs `work` in a transaction and returns its result, once it is durable on a majority.

        `work` runs again after a conflict, or if it raises `Retry`. If it raises anything else, the transaction has no
        effect. `keys` name what it competes for with others of this process; to `partitions` it may add what it finds
        out on its way, for its next attempt. Raises StoreUnavailable after the deadline.
        """
        ends = time.monotonic() + protocol.left(self._deadline)
        partitions, locked, attempts = set() if partitions is None else partitions, set[str](), 0
        abandoned = False

        async def attempt(session: AsyncClientSession) -> T:
            nonlocal attempts, locked
            attempts += 1
            if partitions != locked:
                # all at once and after the other keys, so that nobody who has one waits for another
                await more_locks.aclose()
                locked = set(partitions)
                await self._take(more_locks, locked, ends)
            return await work(session)

        async with AsyncExitStack() as locks, AsyncExitStack() as more_locks:
            await self._take(locks, keys, ends)
            with guarded(), pymongo.timeout(max(0.001, ends - time.monotonic())):
                session = self._client.start_session()
                try:
                    return await session.with_transaction(attempt, SNAPSHOT, MAJORITY)
                except PyMongoError as error:
                    begun = not isinstance(error, ServerSelectionTimeoutError) or attempts > 1 or session.operation_time
                    # the driver's own abort did not reach the server, or may not have
                    abandoned = bool(begun) and (error.timeout or isinstance(error, ConnectionFailure))
                    raise
                finally:
                    if abandoned:
                        self._abandoned.take_over(session)
                    else:
                        await session.end_session()

    async def _take(self, locks: AsyncExitStack, keys: Iterable[str], ends: float) -> None:
        try:
            async with asyncio.timeout(ends - time.monotonic()):
                await locks.enter_async_context(self._keyed_locks.of(keys))
        except TimeoutError as error:
            raise StoreUnavailable("MongoDB is busy: others are changing the same records.") from error


# --- The writes of a transaction --------------------------------------------------------------------------------------

# MongoDB 8.0 has a command for writes to several collections, `bulkWrite`. The writes of a new memory (the memory, its
# entry in the audit trail, its partition, the tenant's usage, the change log) are one command there, and five before.


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
        model = UpdateOne(wanted, change, upsert=upsert, namespace=self._namespace(collection))
        self._add(collection, model, refusal)

    def delete(self, collection: str, stored_id: str) -> None:
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
