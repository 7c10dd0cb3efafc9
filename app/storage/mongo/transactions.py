"""Transactions on MongoDB, and how they end if a caller is cancelled or a deadline passes.

There are four layers, from the caller inwards:

1. `Shielded`: an operation of the store runs as a task of its own. Cancelling the caller does not interrupt it between
   a commit and its answer: the caller waits for the task and is then cancelled.
2. The deadline (`storage/protocol.py`): one request may wait for the store for `RECALLD_MONGODB_DEADLINE_SECONDS` in
   all. Each attempt gets the remaining time, as `pymongo.timeout`, which the driver applies to every command inside.
3. `TransactionRunner`: an attempt that conflicted with another transaction (`Retry`) runs again, behind a lock for each
   key that it competes for (`KeyedLocks`), until the deadline passes. A commit whose answer was lost is sent again.
4. `AbandonedTransactions`: a transaction whose end is unknown holds locks on the server. It is ended in the
   background, outside of the request's deadline.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import Context
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import pymongo
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.mongo_client import AsyncMongoClient
from pymongo.errors import OperationFailure, PyMongoError, ServerSelectionTimeoutError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from app.errors import RecalldError, StoreUnavailable
from app.storage import protocol
from app.storage.mongo.connection import COUNTERS, WRITE_CONFLICT, Database, codes, guarded

P = ParamSpec("P")
T = TypeVar("T")


SNAPSHOT, MAJORITY = ReadConcern("snapshot"), WriteConcern("majority")
FIRST_PAUSE, LONGEST_PAUSE = 0.004, 0.2
"""Seconds between two attempts: doubled each time, and varied by half."""
TRY_SECONDS = 0.25
"""Pause between two attempts to end an abandoned transaction."""
WAIT_SECONDS = 2.0
"""Timeout of one such attempt."""
KEPT_SECONDS = 90.0
"""By then the server has ended an abandoned transaction by itself (transactionLifetimeLimitSeconds is 60)."""


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

    def __init__(self, anything: AsyncCollection[dict[str, Any]]) -> None:
        """Takes as `anything` any collection that can be read."""
        self._anything = anything
        self._sessions: deque[tuple[float, AsyncClientSession]] = deque()
        self._task: asyncio.Task[None] | None = None

    def take_over(self, session: AsyncClientSession) -> None:
        """Ends the session and its transaction in the background."""
        self._sessions.append((time.monotonic(), session))
        if self._task is None or self._task.done():
            # an empty context, so that the deadline of the failed request does not apply
            self._task = asyncio.create_task(self._end_all(), context=Context())

    async def close(self) -> None:
        """Stops the background task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

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


def never_begun(error: BaseException, session: AsyncClientSession) -> bool:
    """Returns whether nothing of the transaction was sent, because no server could be selected."""
    return isinstance(error, ServerSelectionTimeoutError) and session.operation_time is None


async def aborted(client: AsyncMongoClient[dict[str, Any]], session: AsyncClientSession) -> bool:
    """Aborts the transaction. Returns whether the server knows that it is over, which the driver's own abort does not
    report."""
    if not session.in_transaction:
        return True
    try:
        await client.admin.command("abortTransaction", session=session)
    except OperationFailure:
        return True  # it had ended there already
    except PyMongoError:
        return False
    return True


class Retry(Exception):
    """The data that was read have changed: run the attempt again."""


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
    """Runs attempts until one succeeds or the deadline passes. `deadline_seconds` is that of a whole request."""

    def __init__(self, database: Database, deadline_seconds: float) -> None:
        self._client, self._deadline = database.client, deadline_seconds
        self._keyed_locks, self._abandoned = KeyedLocks(), AbandonedTransactions(database[COUNTERS])

    async def close(self) -> None:
        """Stops ending abandoned transactions."""
        await self._abandoned.close()

    async def until_done(self, attempt: Callable[[], Awaitable[T]], keys: set[str], *, ends: float | None = None) -> T:
        """Returns the result of `attempt`, which is run again while it raises `Retry`.

        The attempt may add to `keys` the records that it competes for. Raises StoreUnavailable at the time `ends`
        (`time.monotonic`).
        """
        ends, pause = ends or time.monotonic() + protocol.left(self._deadline), FIRST_PAUSE
        while True:
            async with AsyncExitStack() as locks:
                await self._wait_for(locks, keys, ends)
                try:
                    with guarded_but_transient(), pymongo.timeout(max(0.001, ends - time.monotonic())):
                        return await attempt()
                except Retry:
                    pass
            if time.monotonic() + pause > ends:
                raise StoreUnavailable("MongoDB is busy: others keep changing the same records.")
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 (no secret)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _wait_for(self, locks: AsyncExitStack, keys: set[str], ends: float) -> None:
        try:
            async with asyncio.timeout(ends - time.monotonic()):
                await locks.enter_async_context(self._keyed_locks.of(keys))
        except TimeoutError as error:
            raise StoreUnavailable("MongoDB is busy: others are changing the same records.") from error

    async def in_transaction(self, work: Callable[[AsyncClientSession], Awaitable[T]], keys: set[str]) -> T:
        """Runs `work` in a transaction and returns its result, once it is durable on a majority.

        If `work` raises, the transaction has no effect. Raises StoreUnavailable after the deadline.
        """
        ends = time.monotonic() + protocol.left(self._deadline)
        return await self.until_done(lambda: self._once(work, ends), keys, ends=ends)

    async def _once(self, work: Callable[[AsyncClientSession], Awaitable[T]], ends: float) -> T:
        session = self._client.start_session()
        try:
            await session.start_transaction(read_concern=SNAPSHOT, write_concern=MAJORITY)
            result = await work(session)
            await _committed(session, ends)
        except BaseException as error:
            if never_begun(error, session) or (_answered(error) and await aborted(self._client, session)):
                await session.end_session()
            else:
                self._abandoned.take_over(session)
            raise
        await session.end_session()
        return result


def _answered(error: BaseException) -> bool:
    """Returns whether the error came from the server or from this service, so that no command is in progress."""
    if isinstance(error, PyMongoError):
        return isinstance(error, OperationFailure) and not error.timeout
    return isinstance(error, RecalldError | Retry)


async def _committed(session: AsyncClientSession, ends: float) -> None:
    while True:
        try:
            await session.commit_transaction()
        except PyMongoError as error:
            unknown = error.has_error_label("UnknownTransactionCommitResult")
            if error.timeout or not unknown or time.monotonic() > ends:
                raise
            await asyncio.sleep(FIRST_PAUSE)
        else:
            return


@contextmanager
def guarded_but_transient() -> Iterator[None]:
    """Like `guarded`, but raises `Retry` for errors that may not occur again."""
    with guarded():
        try:
            yield
        except PyMongoError as error:
            if not error.timeout and transient(error):
                raise Retry from error
            raise


def transient(error: PyMongoError) -> bool:
    """Returns whether the transaction conflicted with another one and may succeed if repeated."""
    if error.has_error_label("UnknownTransactionCommitResult"):
        return False
    conflict = isinstance(error, OperationFailure) and WRITE_CONFLICT in codes(error)
    return conflict or error.has_error_label("TransientTransactionError")
