"""Transactions on MongoDB, and what happens to them when a caller is cancelled or a deadline passes.

Four layers, from the caller inwards:

1. `Shielded`: an operation of the store runs as a task of its own. Cancelling the caller does not cut it off between a
   commit and its answer: the caller waits for the task, and is then cancelled.
2. The deadline (`storage/deadline.py`): one request may wait for the store for `RECALLD_MONGODB_DEADLINE_SECONDS` in
   all. Each attempt gets what is left of it, as `pymongo.timeout`, which the driver applies to every command inside.
3. `TransactionRunner`: an attempt that met another transaction (`Retry`) begins anew, behind a lock for each key that
   it competes for (`KeyedLocks`), until the deadline passes. A commit whose answer was lost is asked for again.
4. `AbandonedTransactions`: a transaction whose end is not known holds locks on the server. It is ended in the
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
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

import pymongo
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.mongo_client import AsyncMongoClient
from pymongo.errors import OperationFailure, PyMongoError, ServerSelectionTimeoutError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from app.errors import RecalldError, StoreUnavailable
from app.storage import deadline
from app.storage.mongo.errors import WRITE_CONFLICT, codes, guarded
from app.storage.mongo.partitions import COUNTERS, Database

P = ParamSpec("P")
T = TypeVar("T")

Client: TypeAlias = AsyncMongoClient[dict[str, Any]]

SNAPSHOT, MAJORITY = ReadConcern("snapshot"), WriteConcern("majority")
FIRST_PAUSE, LONGEST_PAUSE = 0.004, 0.2
"""Seconds between two attempts: doubled each time, and varied by half."""
TRY_SECONDS = 0.25
"""Between two attempts to end an abandoned transaction."""
WAIT_SECONDS = 2.0
"""For one such attempt."""
KEPT_SECONDS = 90.0
"""The server has ended an abandoned transaction by itself by then (transactionLifetimeLimitSeconds is 60)."""


class Shielded:
    """Base class of objects whose operations run to their end when their caller is cancelled."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        with deadline.waiting():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError:
                await asyncio.wait((task,))
                raise
        return task.result()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may be gone: nobody else looks

    async def all_ended(self) -> None:
        while self._under_way:
            await asyncio.wait(set(self._under_way))


S = TypeVar("S", bound=Shielded)


def shielded(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Runs the method as a task of its own."""

    @wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(method(self, *args, **kwargs))

    return call


class AbandonedTransactions:
    """Ends transactions whose end is not known, so that their locks on the server do not outlast them."""

    def __init__(self, anything: AsyncCollection[dict[str, Any]]) -> None:
        """`anything`: a collection that can be read."""
        self._anything = anything
        self._sessions: deque[tuple[float, AsyncClientSession]] = deque()
        self._task: asyncio.Task[None] | None = None

    def take_over(self, session: AsyncClientSession) -> None:
        """Ends the session and its transaction in the background."""
        self._sessions.append((time.monotonic(), session))
        if self._task is None or self._task.done():
            # an empty context: the deadline of the request that failed does not bound this
            self._task = asyncio.create_task(self._end_all(), context=Context())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _end_all(self) -> None:
        """One after the other: while the server is away, only the first of them tries to reach it."""
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
                    await session.abort_transaction()  # hides whether it got through
                await session.start_transaction()
                await self._anything.find_one({}, {"_id": 1}, session=session)
        except PyMongoError:
            return False
        return True


def never_begun(error: BaseException, session: AsyncClientSession) -> bool:
    """Nothing of the transaction was ever sent: there was nobody to send it to."""
    return isinstance(error, ServerSelectionTimeoutError) and session.operation_time is None


async def aborted(client: AsyncMongoClient[dict[str, Any]], session: AsyncClientSession) -> bool:
    """Whether the server knows that the session's transaction is over: the driver's own abort hides that."""
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
    """What was read is no longer true: begin anew."""


class KeyedLocks:
    """Locks by key, for this process. Sorted keys keep two callers from waiting for each other."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._wanted: dict[str, int] = {}

    @asynccontextmanager
    async def of(self, keys: Iterable[str]) -> AsyncIterator[None]:
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
    """Runs attempts until one succeeds or the deadline passes; `deadline_seconds` is that of a whole request."""

    def __init__(self, database: Database, deadline_seconds: float) -> None:
        self._client, self._deadline = database.client, deadline_seconds
        self._keyed_locks, self._abandoned = KeyedLocks(), AbandonedTransactions(database[COUNTERS])

    async def close(self) -> None:
        await self._abandoned.close()

    async def until_done(self, attempt: Callable[[], Awaitable[T]], keys: set[str], *, ends: float | None = None) -> T:
        """What `attempt` returns, once it raises no `Retry`. It may add to `keys` the records that it competes for.

        `ends`: the time (`time.monotonic`) at which it gives up. Raises StoreUnavailable then."""
        ends, pause = ends or time.monotonic() + deadline.left(self._deadline), FIRST_PAUSE
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
        """What `work` returned, all of it durable on a majority, or nothing of it and what it raised."""
        ends = time.monotonic() + deadline.left(self._deadline)
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
    """Whether the error came from the server or from this service: then no command of the transaction is under way."""
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
    """As `guarded`, but what may succeed when tried again is `Retry`."""
    with guarded():
        try:
            yield
        except PyMongoError as error:
            if not error.timeout and transient(error):
                raise Retry from error
            raise


def transient(error: PyMongoError) -> bool:
    if error.has_error_label("UnknownTransactionCommitResult"):
        return False
    conflict = isinstance(error, OperationFailure) and WRITE_CONFLICT in codes(error)
    return conflict or error.has_error_label("TransientTransactionError")
