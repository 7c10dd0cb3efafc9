"""Running work until it is committed, has failed for good, or the deadline is over.

Others may change the same records meanwhile: then everything runs again, after a short random pause. Writers of one
process that want the same counter, pair or document take turns instead of colliding. A commit whose outcome stays
unknown is StoreUnavailable: never a success.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, TypeAlias, TypeVar

import pymongo
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.mongo_client import AsyncMongoClient
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from app.errors import RecalldError, StoreUnavailable
from app.storage import patience
from app.storage.mongo.faults import WRITE_CONFLICT, codes, guarded
from app.storage.mongo.orphans import Orphans, aborted, never_begun
from app.storage.mongo.pairs import COUNTERS, Database

T = TypeVar("T")
Client: TypeAlias = AsyncMongoClient[dict[str, Any]]

SNAPSHOT, MAJORITY = ReadConcern("snapshot"), WriteConcern("majority")
FIRST_PAUSE, LONGEST_PAUSE = 0.004, 0.2


class Again(Exception):
    """What was read is no longer true: begin anew."""


class Turns:
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


class Runner:
    def __init__(self, database: Database, deadline_seconds: float) -> None:
        self._client, self._deadline = database.client, deadline_seconds
        self._turns, self._orphans = Turns(), Orphans(database[COUNTERS])

    async def close(self) -> None:
        await self._orphans.close()

    async def until_done(self, attempt: Callable[[], Awaitable[T]], keys: set[str], *, ends: float | None = None) -> T:
        """`attempt` may add to `keys` what it found that it competes for. Raises StoreUnavailable."""
        ends, pause = ends or time.monotonic() + patience.left(self._deadline), FIRST_PAUSE
        while True:
            async with AsyncExitStack() as turn:
                await self._wait_for(turn, keys, ends)
                try:
                    with guarded_but_transient(), pymongo.timeout(max(0.001, ends - time.monotonic())):
                        return await attempt()
                except Again:
                    pass
            if time.monotonic() + pause > ends:
                raise StoreUnavailable("MongoDB is busy: others keep changing the same records.")
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 (no secret)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _wait_for(self, turn: AsyncExitStack, keys: set[str], ends: float) -> None:
        try:
            async with asyncio.timeout(ends - time.monotonic()):
                await turn.enter_async_context(self._turns.of(keys))
        except TimeoutError as fault:
            raise StoreUnavailable("MongoDB is busy: others are changing the same records.") from fault

    async def in_transaction(self, work: Callable[[AsyncClientSession], Awaitable[T]], keys: set[str]) -> T:
        """What `work` returned, all of it durable on a majority, or nothing of it and what it raised."""
        ends = time.monotonic() + patience.left(self._deadline)
        return await self.until_done(lambda: self._once(work, ends), keys, ends=ends)

    async def _once(self, work: Callable[[AsyncClientSession], Awaitable[T]], ends: float) -> T:
        session = self._client.start_session()
        try:
            await session.start_transaction(read_concern=SNAPSHOT, write_concern=MAJORITY)
            result = await work(session)
            await _committed(session, ends)
        except BaseException as fault:
            if never_begun(fault, session) or (_answered(fault) and await aborted(self._client, session)):
                await session.end_session()
            else:
                self._orphans.adopt(session)
            raise
        await session.end_session()
        return result


def _answered(fault: BaseException) -> bool:
    """The server said so, or we did: nothing of the transaction is under way."""
    if isinstance(fault, PyMongoError):
        return isinstance(fault, OperationFailure) and not fault.timeout
    return isinstance(fault, RecalldError | Again)


async def _committed(session: AsyncClientSession, ends: float) -> None:
    while True:
        try:
            await session.commit_transaction()
        except PyMongoError as fault:
            unknown = fault.has_error_label("UnknownTransactionCommitResult")
            if fault.timeout or not unknown or time.monotonic() > ends:
                raise
            await asyncio.sleep(FIRST_PAUSE)
        else:
            return


@contextmanager
def guarded_but_transient() -> Iterator[None]:
    """As `guarded`, but what may succeed when tried again is `Again`."""
    with guarded():
        try:
            yield
        except PyMongoError as fault:
            if not fault.timeout and transient(fault):
                raise Again from fault
            raise


def transient(fault: PyMongoError) -> bool:
    if fault.has_error_label("UnknownTransactionCommitResult"):
        return False
    conflict = isinstance(fault, OperationFailure) and WRITE_CONFLICT in codes(fault)
    return conflict or fault.has_error_label("TransientTransactionError")
