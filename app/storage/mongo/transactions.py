"""Transactions on MongoDB, and what happens to them when a caller is cancelled or a deadline passes."""

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


class Shielded:
    """Base class of what has operations that are `shielded`."""

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
    """The method as a task of its own."""

    @wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(method(self, *args, **kwargs))

    return call


TRY_SECONDS = 0.25
WAIT_SECONDS = 2.0
KEPT_SECONDS = 90.0
"""By then the server has given it up by itself."""


class Orphans:
    def __init__(self, anything: AsyncCollection[dict[str, Any]]) -> None:
        """`anything`: some collection that can be read."""
        self._anything = anything
        self._adopted: deque[tuple[float, AsyncClientSession]] = deque()
        self._task: asyncio.Task[None] | None = None

    def adopt(self, session: AsyncClientSession) -> None:
        """Takes over a session whose transaction nobody knows the end of, and ends both."""
        self._adopted.append((time.monotonic(), session))
        if self._task is None or self._task.done():
            # a context of its own: the deadline of the request that failed is not for this
            self._task = asyncio.create_task(self._end_all(), context=Context())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _end_all(self) -> None:
        """One after the other: while the server is away, only the first of them tries to reach it."""
        while self._adopted:
            since, session = self._adopted[0]
            if await self._superseded(session):
                with pymongo.timeout(WAIT_SECONDS):
                    await session.end_session()
            elif time.monotonic() - since < KEPT_SECONDS:
                await asyncio.sleep(TRY_SECONDS)
                continue
            self._adopted.popleft()

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


Client: TypeAlias = AsyncMongoClient[dict[str, Any]]

SNAPSHOT, MAJORITY = ReadConcern("snapshot"), WriteConcern("majority")
FIRST_PAUSE, LONGEST_PAUSE = 0.004, 0.2


class Retry(Exception):
    """What was read is no longer true: begin anew."""


class KeyedLocks:
    """One at a time for each key, in this process."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._wanted: dict[str, int] = {}

    @asynccontextmanager
    async def of(self, keys: Iterable[str]) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for key in sorted(set(keys)):  # always in one order: two lists never wait for each other
                await stack.enter_async_context(self._turn(key))
            yield

    @asynccontextmanager
    async def _turn(self, key: str) -> AsyncIterator[None]:
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
    def __init__(self, database: Database, deadline_seconds: float) -> None:
        self._client, self._deadline = database.client, deadline_seconds
        self._turns, self._orphans = KeyedLocks(), Orphans(database[COUNTERS])

    async def close(self) -> None:
        await self._orphans.close()

    async def until_done(self, attempt: Callable[[], Awaitable[T]], keys: set[str], *, ends: float | None = None) -> T:
        """`attempt` may add to `keys` what it found that it competes for. Raises StoreUnavailable."""
        ends, pause = ends or time.monotonic() + deadline.left(self._deadline), FIRST_PAUSE
        while True:
            async with AsyncExitStack() as turn:
                await self._wait_for(turn, keys, ends)
                try:
                    with guarded_but_transient(), pymongo.timeout(max(0.001, ends - time.monotonic())):
                        return await attempt()
                except Retry:
                    pass
            if time.monotonic() + pause > ends:
                raise StoreUnavailable("MongoDB is busy: others keep changing the same records.")
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 (no secret)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _wait_for(self, turn: AsyncExitStack, keys: set[str], ends: float) -> None:
        try:
            async with asyncio.timeout(ends - time.monotonic()):
                await turn.enter_async_context(self._turns.of(keys))
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
                self._orphans.adopt(session)
            raise
        await session.end_session()
        return result


def _answered(error: BaseException) -> bool:
    """The server said so, or we did: nothing of the transaction is under way."""
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
