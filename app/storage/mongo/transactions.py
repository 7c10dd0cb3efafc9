"""Transactions on MongoDB, and how they end if a caller is cancelled or a deadline passes.

There are three layers, from the caller inwards:

1. `Shielded`: an operation of the store runs as a task of its own. Cancelling the caller does not interrupt it between
   a commit and its answer: the caller waits for the task and is then cancelled.
2. `TransactionRunner`: the driver's `with_transaction`, which tries again after a conflict, and sends a commit again
   whose answer was lost. It runs behind a lock for each key that it competes for
   (`KeyedLocks`), and within the deadline of the request (`storage/protocol.py`), as `pymongo.timeout`.
3. `AbandonedTransactions`: what an open transaction has written stays locked on the server for a minute. One whose end
   is unknown, as after a deadline, is ended in the background.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import pymongo
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError, ServerSelectionTimeoutError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from app.core.work import begin, end
from app.errors import StoreUnavailable
from app.storage import protocol
from app.storage.mongo.codec import Stored
from app.storage.mongo.connection import COUNTERS, WRITE_CONFLICT, Database, guarded

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
        async with AsyncExitStack() as locks, AsyncExitStack() as more_locks:
            await self._take(locks, keys, ends)
            with guarded(), pymongo.timeout(max(0.001, ends - time.monotonic())):
                return await self._run(work, ends, more_locks, set() if partitions is None else partitions)

    async def _take(self, locks: AsyncExitStack, keys: Iterable[str], ends: float) -> None:
        try:
            async with asyncio.timeout(ends - time.monotonic()):
                await locks.enter_async_context(self._keyed_locks.of(keys))
        except TimeoutError as error:
            raise StoreUnavailable("MongoDB is busy: others are changing the same records.") from error

    async def _run(
        self,
        work: Callable[[AsyncClientSession], Awaitable[T]],
        ends: float,
        locks: AsyncExitStack,
        partitions: set[str],
    ) -> T:
        session, attempts, locked = self._client.start_session(), 0, set[str]()

        async def attempt(session: AsyncClientSession) -> T:
            nonlocal attempts, locked
            attempts += 1
            if partitions != locked:
                # all at once and after the other keys, so that nobody who has one waits for another
                await locks.aclose()
                locked = set(partitions)
                await self._take(locks, locked, ends)
            return await work(session)

        try:
            result = await session.with_transaction(attempt, SNAPSHOT, MAJORITY)
        except PyMongoError as error:
            never_begun = (
                isinstance(error, ServerSelectionTimeoutError) and attempts == 1 and not session.operation_time
            )
            if never_begun or not (error.timeout or isinstance(error, ConnectionFailure)):
                await session.end_session()
            else:  # the driver's own abort did not reach the server, or may not have
                self._abandoned.take_over(session)
            raise
        except BaseException:
            await session.end_session()
            raise
        await session.end_session()
        return result
