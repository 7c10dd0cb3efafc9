"""The writer: one thread that commits groups of writes, and the truncation of the log file."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

import apsw

from app.errors import StoreUnavailable
from app.storage.changes import Change, Committed
from app.storage.sqlite.schema import translate_errors

IDLE_SECONDS = 10.0

log = logging.getLogger(__name__)

RunOnConnection = Callable[[Callable[[apsw.Connection], bool]], Awaitable[bool]]
"""Runs a function in a thread, on a connection of that thread."""


class LogTruncation:
    """Truncates the WAL file after some idle seconds without a write. Used from one event loop."""

    def __init__(self, apart: RunOnConnection, idle_seconds: float = IDLE_SECONDS) -> None:
        self._apart, self._idle = apart, idle_seconds
        self._loop = asyncio.get_running_loop()
        self._last_write = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def written(self) -> None:
        """Records that this process has committed something."""
        self._last_write = self._loop.time()
        if self._timer is None and self._task is None:
            self._wait(self._idle)

    async def close(self) -> None:
        """Stops, after waiting for an attempt in progress."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    def _wait(self, seconds: float) -> None:
        if not self._closed:
            self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        left = self._last_write + self._idle - self._loop.time()
        if left > 0:
            self._wait(left)
        else:
            self._task = asyncio.create_task(self._attempt())

    async def _attempt(self) -> None:
        begun, done = self._last_write, False
        try:
            done = await self._apart(truncate)
        except Exception:
            log.exception("the log was not truncated")
        self._task = None
        if not done or self._last_write != begun:
            self._wait(self._idle)


def truncate(connection: apsw.Connection) -> bool:
    """Truncates the log. Returns False if others are using it now: waiting for them would block writers, too."""
    timeout: Any = connection.pragma("busy_timeout")
    connection.set_busy_timeout(0)
    try:
        return all(_checkpoint(connection, mode) for mode in ("PASSIVE", "TRUNCATE"))
    finally:
        connection.set_busy_timeout(int(timeout))


def _checkpoint(connection: apsw.Connection, mode: str) -> bool:
    """Returns False if pages were left in the log, or if the file could not be truncated."""
    busy: Any
    pages: Any
    copied: Any
    ((busy, pages, copied),) = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
    return not busy and pages == copied


T = TypeVar("T")
WriterTask: TypeAlias = Callable[[apsw.Connection], T]
"""A function that the writer's thread runs inside a transaction. Its result is returned to the caller."""
ObserveCommit = Callable[[int, float], None]
"""Called after each group with the number of writes and the seconds."""

MAX_GROUP = 256

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Waiting:
    """A task that waits for the writer's thread."""

    work: WriterTask[Any]
    future: "asyncio.Future[Any]"
    outcome: Any = None
    """The result of the task, or the exception that it raised."""


@dataclass(frozen=True, slots=True)
class Alone:
    """A function that uses a connection of its own and runs while this process writes nothing."""

    work: Callable[[], None]
    future: "asyncio.Future[None]"


class WriterThread:
    """The only writer of a process. Commits all waiting lists of changes as one group."""

    def __init__(
        self,
        connection: apsw.Connection,
        execute: Callable[[apsw.Connection, Sequence[Change]], Committed],
        observe: ObserveCommit,
        written: Callable[[], None] = lambda: None,
    ) -> None:
        """Starts the thread. `written` is called in the event loop after each group."""
        self._connection, self._execute, self._observe, self._written = connection, execute, observe, written
        self._queue: SimpleQueue[Waiting | Alone | None] = SimpleQueue()
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="recalld-writer", daemon=True)
        self._thread.start()

    async def commit(self, changes: Sequence[Change]) -> Committed:
        """Makes all changes durably, or none. Raises CommitConflict or StoreUnavailable."""
        return await self.submit(lambda connection: self._execute(connection, changes))

    async def submit(self, work: WriterTask[T]) -> T:
        """Runs a task in the next group and returns its result once it is durable.

        A task that raises has no effect. Raises StoreUnavailable.
        """
        if self._closed:
            raise StoreUnavailable("The store is closed.")
        waiting = Waiting(work, self._loop.create_future())
        self._queue.put(waiting)
        result: T = await waiting.future
        return result

    async def alone(self, work: Callable[[], None]) -> None:
        """Runs a function while all writes wait. Raises StoreUnavailable."""
        if self._closed:
            raise StoreUnavailable("The store is closed.")
        waiting = Alone(work, self._loop.create_future())
        self._queue.put(waiting)
        await waiting.future

    async def close(self) -> None:
        """Commits what waits, then ends the thread."""
        self._closed = True
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        self._connection.close()

    def _run(self) -> None:
        going = True
        while going:
            group: list[Waiting] = []
            item = self._queue.get()
            while isinstance(item, Waiting):
                group.append(item)
                if len(group) == MAX_GROUP or self._queue.empty():
                    break
                item = self._queue.get()
            going = item is not None
            if group:
                self.commit_group(group)
            if isinstance(item, Alone):
                self._run_alone(item)

    def _run_alone(self, item: Alone) -> None:
        error: Exception | None = None
        try:
            with translate_errors():
                item.work()
        except Exception as raised:  # noqa: BLE001 (handed to its caller)
            error = raised
        self._loop.call_soon_threadsafe(_end, item.future, error)

    def commit_group(self, group: Sequence[Waiting]) -> None:
        """Commits the tasks, sets their results and reports the time."""
        started = time.perf_counter()
        self.make_durable(group)
        self.acknowledge(group)
        self._observe(len(group), time.perf_counter() - started)

    def make_durable(self, group: Sequence[Waiting]) -> None:
        """Runs and commits the tasks and sets each outcome. If the commit fails, all of them fail."""
        try:
            with translate_errors():
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    if len(group) == 1:
                        group[0].outcome = self._alone(group[0].work)
                    else:
                        for waiting in group:
                            waiting.outcome = self._attempt(waiting.work)
                        self._connection.execute("COMMIT")
                except BaseException:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    raise
        except Exception as error:  # noqa: BLE001 (every waiting caller gets it)
            log.warning("group not committed", extra={"error": type(error).__name__, "writes": len(group)})
            failure = error if isinstance(error, StoreUnavailable) else StoreUnavailable("The store refused the write.")
            for waiting in group:
                waiting.outcome = failure

    def _alone(self, work: WriterTask[Any]) -> Any:
        """Runs the only task of a group. Without a savepoint, which would copy each page that is written."""
        outcome = self._outcome(work)
        self._connection.execute("ROLLBACK" if isinstance(outcome, Exception) else "COMMIT")
        return outcome

    def _attempt(self, work: WriterTask[Any]) -> Any:
        self._connection.execute("SAVEPOINT one")
        outcome = self._outcome(work)
        if isinstance(outcome, Exception):
            self._connection.execute("ROLLBACK TO one")
        self._connection.execute("RELEASE one")
        return outcome

    def _outcome(self, work: WriterTask[Any]) -> Any:
        try:
            return work(self._connection)
        except (apsw.FullError, apsw.IOError, apsw.BusyError, apsw.CorruptError):
            raise  # SQLite may have rolled the whole transaction back
        except Exception as error:  # noqa: BLE001 (handed to its caller)
            return error

    def acknowledge(self, group: Sequence[Waiting]) -> None:
        """Passes the outcomes to the callers, in the event loop."""
        self._loop.call_soon_threadsafe(self._tell, list(group))

    def _tell(self, group: Sequence[Waiting]) -> None:
        _tell(group)
        self._written()


def _end(future: "asyncio.Future[None]", error: Exception | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def _tell(group: Sequence[Waiting]) -> None:
    for waiting in group:
        if waiting.future.cancelled():
            continue
        if isinstance(waiting.outcome, Exception):
            waiting.future.set_exception(waiting.outcome)
        else:
            waiting.future.set_result(waiting.outcome)
