"""The writer: one thread that commits groups of writes."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import apsw

from app.core.work import tenant_at_work
from app.errors import StorageFull, StoreUnavailable
from app.storage.changes import Change, Committed
from app.storage.protocol import left, may_use_reserve, waiting
from app.storage.sqlite import log_file
from app.storage.sqlite.admission import MAX_GROUP_CHANGES, DiskSpace, WriteTurns, storage_full
from app.storage.sqlite.connections import PAGE_BYTES, Faults, log_of, refuse_moved
from app.storage.sqlite.log_file import CommitNote, truncate

T = TypeVar("T")
WriterTask: TypeAlias = Callable[[apsw.Connection], T]
"""A function that the writer's thread runs inside a transaction. Its result is returned to the caller."""
ObserveCommit = Callable[[int, float], None]
"""Called after each group with the number of writes and the seconds."""

WAIT_SECONDS = 20.0
"""How long a write may wait for its turn and for the disk."""
RETRY_SECONDS = 10

log = logging.getLogger(__name__)


@dataclass(slots=True)
class QueuedTask:
    """A task that waits for the writer's thread."""

    work: WriterTask[Any]
    future: "asyncio.Future[Any]"
    reserve: bool = False
    """Whether the task may use the space kept back for deletions."""
    alone: bool = False
    """Whether the task uses a connection of its own, and runs while this process writes nothing."""
    outcome: Any = None
    """The result of the task, or the exception that it raised."""


class WriterThread:
    """The only writer of a process. Commits all waiting lists of changes as one group."""

    def __init__(
        self,
        connection: apsw.Connection,
        execute: Callable[[apsw.Connection, Sequence[Change], str | None], Committed],
        observe: ObserveCommit,
        written: Callable[[], None],
        faults: Faults,
        space: DiskSpace,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        """Starts the thread. `written` is called in the event loop after each group; `space` refuses writes of new data
        on a full disk. Raises StoreUnavailable."""
        self._connection, self._execute, self._observe, self._written = connection, execute, observe, written
        self._faults, self._space, self._wait_seconds = faults, space, wait_seconds
        self.failure: StoreUnavailable | None = None
        """Why the last write of new data failed; None once one has succeeded."""
        with self._faults.translated():
            self._note = CommitNote(connection)
        self._queue: WriteTurns[QueuedTask] = WriteTurns()
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="recalld-writer", daemon=True)
        self._thread.start()

    async def commit(self, changes: Sequence[Change], at: str | None = None) -> Committed:
        """Makes all changes durably, or none, and logs them with the time `at`; None: they are not logged. Raises
        CommitConflict or StoreUnavailable, also if the disk does not answer in time; the changes may be made then."""
        reserve = may_use_reserve(changes)
        made = self.submit(lambda connection: self._execute(connection, changes, at), len(changes), reserve)
        return await self._in_time(made)

    async def refuse_failing(self) -> None:
        """Raises StorageFull or StoreUnavailable if new data cannot be written. If the last write failed, one more is
        tried, which only counts the commits."""

        def attempt(connection: apsw.Connection) -> None:
            if self.failure is not None:
                log_file.count_up(connection)

        await self._in_time(self.submit(attempt, 1))

    async def _in_time(self, write: Coroutine[Any, Any, T]) -> T:
        """Returns the result of a write. What waits too long is given up; once it has begun, it may be made yet."""
        try:
            with waiting():
                async with asyncio.timeout(left(self._wait_seconds)):
                    return await write
        except TimeoutError:
            raise StoreUnavailable(
                f"The disk of the store did not answer within {self._wait_seconds:g} s. Whether the write was made is "
                "not known: repeat it with the same Idempotency-Key.",
                retry_after=RETRY_SECONDS,
            ) from None

    async def submit(self, work: WriterTask[T], changes: int = MAX_GROUP_CHANGES, reserve: bool | None = None) -> T:
        """Runs a task when it is its tenant's turn and returns its result once it is durable. `changes`: about how many
        it makes.

        A task that raises has no effect. With `reserve` it may use the space kept back for deletions; None: if it is
        inside `using_reserve`. Raises StoreUnavailable.
        """
        return await self._wait_for(work, changes, may_use_reserve() if reserve is None else reserve)

    async def alone(self, work: Callable[[], None]) -> None:
        """Runs a function, which uses a connection of its own, while all writes wait. Raises StoreUnavailable."""
        await self._wait_for(lambda _: work(), 0, alone=True)

    async def _wait_for(self, work: WriterTask[T], changes: int, reserve: bool = False, *, alone: bool = False) -> T:
        if self._closed:
            raise StoreUnavailable("The store is closed.")
        queued = QueuedTask(work, self._loop.create_future(), reserve, alone)
        self._queue.put(queued, tenant_at_work(), changes)
        result: T = await queued.future
        return result

    async def close(self) -> None:
        """Commits what waits, then ends the thread and empties the log."""
        if self._closed:
            return
        self._closed = True
        self._queue.close()
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        self._thread.join()
        if self._faults.damage is None:
            try:
                truncate(self._connection)
            except Exception:
                log.exception("the log was not truncated")
        self._note.close()
        self._connection.close()

    def _run(self) -> None:
        while group := self._queue.next_group():
            together = [item for item in group if not (item.alone or item.future.cancelled())]
            if together:
                self._commit_group(together)
            for item in group:
                if item.alone:
                    try:
                        with self._faults.translated():
                            refuse_moved(self._connection)
                            item.work(self._connection)
                    except Exception as error:  # noqa: BLE001 (handed to its caller)
                        item.outcome = error
                    self._loop.call_soon_threadsafe(_tell, [item])

    def _commit_group(self, group: Sequence[QueuedTask]) -> None:
        """Commits the tasks, passes their results to the callers and reports the time. On a full disk only the tasks
        that may use the reserve are committed."""
        started = time.perf_counter()
        refusal = self._refusal()
        if refusal is None:
            self._make_durable(group)
            full = [write for write in group if write.reserve and isinstance(write.outcome, StorageFull)]
        else:
            self.failure = refusal
            full = [write for write in group if write.reserve]
            for queued in group:
                queued.outcome = refusal
        if full:
            self._space.release()
            for queued in full:  # one by one: each may use all of the room
                self._make_durable([queued])
                self._shorten_log()
            self._space.keep()
        self._loop.call_soon_threadsafe(self._tell, list(group))
        self._observe(len(group), time.perf_counter() - started)

    def _refusal(self) -> StorageFull | None:
        """Returns why no new data can be written, or None if the disk has room for them."""
        try:
            missing = self._space.missing(log_bytes=log_of(Path(self._connection.filename)).stat().st_size)
            if missing:
                self._shorten_log()
                with self._faults.translated():
                    unused_pages = int(self._connection.pragma("freelist_count"))
                missing = self._space.missing(reusable=unused_pages * PAGE_BYTES)
        except (StoreUnavailable, OSError):  # the write itself will say what is wrong
            return None
        if missing:
            return storage_full(missing)
        self._space.keep()
        return None

    def _shorten_log(self) -> None:
        """Truncates the log, which takes up the room that is missing. If that fails, the log stays as it is."""
        with suppress(StoreUnavailable), self._faults.translated():
            truncate(self._connection)

    def _make_durable(self, group: Sequence[QueuedTask]) -> None:
        """Runs and commits the tasks and sets each outcome. If the commit fails, all of them fail."""
        try:
            with self._faults.translated():
                commits = self._transact(group)
                refuse_moved(self._connection)  # before anything is acknowledged
        except Exception as error:  # noqa: BLE001 (every waiting caller gets it)
            log.warning("group not committed", extra={"error": type(error).__name__, "writes": len(group)})
            failure = error if isinstance(error, StoreUnavailable) else StoreUnavailable("The store refused the write.")
            if isinstance(error, StorageFull):
                with suppress(StoreUnavailable):
                    failure = StorageFull(
                        f"The disk is full: {self._space.free():,} bytes are free, and the write needs more.",
                        retry_after=error.retry_after,
                    )
            self.failure = failure
            for queued in group:
                queued.outcome = failure
            return
        if commits is None:
            return
        if not all(queued.reserve for queued in group):
            self.failure = None
        try:
            self._note.write(commits)
        except OSError:  # the writes are on the disk, and only a missing end of the log would not be noticed
            log.exception("the commit was not noted")

    def _transact(self, group: Sequence[QueuedTask]) -> int | None:
        """Runs the tasks in one transaction. Returns the number of the commit; None if nothing was written.

        The only task of a group has no savepoint, which would copy each page that is written.
        """
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            before = self._connection.total_changes()
            if len(group) > 1:
                for queued in group:
                    self._connection.execute("SAVEPOINT one")
                    queued.outcome = self._outcome(queued.work)
                    if isinstance(queued.outcome, Exception):
                        self._connection.execute("ROLLBACK TO one")
                    self._connection.execute("RELEASE one")
            else:
                group[0].outcome = self._outcome(group[0].work)
                if isinstance(group[0].outcome, Exception):
                    self._connection.execute("ROLLBACK")
                    return None
            is_changed = self._connection.total_changes() != before
            commits = log_file.count_up(self._connection) if is_changed else None
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        return commits

    def _outcome(self, work: WriterTask[Any]) -> Any:
        try:
            return work(self._connection)
        except (apsw.FullError, apsw.IOError, apsw.BusyError, apsw.CorruptError):
            raise  # SQLite may have rolled the whole transaction back
        except Exception as error:  # noqa: BLE001 (handed to its caller)
            return error

    def _tell(self, group: Sequence[QueuedTask]) -> None:
        _tell(group)
        self._written()


def _tell(group: Sequence[QueuedTask]) -> None:
    for queued in group:
        if queued.future.cancelled():
            continue
        if isinstance(queued.outcome, Exception):
            queued.future.set_exception(queued.outcome)
        else:
            queued.future.set_result(queued.outcome)
