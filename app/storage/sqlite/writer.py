"""The writer: one thread that commits groups of writes."""

import asyncio
import logging
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import apsw
import orjson

from app.core.work import tenant_at_work
from app.errors import StorageFull, StoreUnavailable
from app.storage import change_log
from app.storage.changes import (
    Allocate,
    Change,
    CommitConflict,
    Committed,
    Delete,
    DeleteWhere,
    Insert,
    StoredTotals,
    Update,
    Usage,
    UsageByTenant,
    WithinQuota,
    by_tenant,
    differences,
    may_use_reserve,
    resolve,
    stale,
)
from app.storage.protocol import left, waiting
from app.storage.records import parsed_one, unreadable
from app.storage.schema import EVERYTHING, Collection, Doc, Filter
from app.storage.sqlite import connections, search_rows, sql

T = TypeVar("T")

# --- Turns and room ---------------------------------------------------------------------------------------------------

# What a write waits for: a turn among the tenants, and room on the disk.
#
# **Turns.** What waits for the writer's thread is kept by tenant. Tenants take turns, so that none waits for all writes
# of another.
#
# **Room.** The file `recalld.db-reserve` takes `RECALLD_DISK_RESERVE_BYTES` of the disk, so that other programs cannot
# use them up. As many bytes again must be free for a write that adds something. A deletion is made in any case: it is
# given the bytes of the file, which are taken back as soon as they are free again. Example: with a reserve of 16 MiB a
# store stops taking new records while 16 MiB are free, and it can delete even if another program has filled the disk to
# its last byte.

OWNER_ONLY = 0o600
PIECE_BYTES = 1 << 20
SPARE_BYTES = 64 << 10
FULL_RETRY_SECONDS = 30


def reserve_of(path: Path) -> Path:
    """Returns the file that keeps space back beside a database file."""
    return path.with_name(f"{path.name}-reserve")


def storage_full(missing: int) -> StorageFull:
    """Returns the error of a write for which `missing` more bytes must be free."""
    return StorageFull(
        f"The disk is full: {missing:,} more bytes must be free for new data. Deletions and erasures work.",
        retry_after=FULL_RETRY_SECONDS,
    )


class DiskSpace:
    """Measures the free space beside a database file and keeps `reserve_bytes` of it back. 0 keeps nothing back and
    refuses nothing."""

    def __init__(self, path: Path, reserve_bytes: int) -> None:
        self._path, self._file, self._reserve = path, reserve_of(path), reserve_bytes

    def free(self) -> int:
        """Returns the free bytes of the disk, without those kept back. Raises StoreUnavailable."""
        try:
            return shutil.disk_usage(self._path.parent).free
        except OSError as error:
            raise StoreUnavailable(f"The disk of the store cannot be used: {error.strerror}.") from error

    def missing(self, reusable: int = 0, wal_bytes: int = 0) -> int:
        """Returns how many bytes must become free before new data are written; 0 if there are enough.

        `reusable` are unused bytes inside the database, which new data take first. They stand for up to half of the
        free bytes: the other half is for the write-ahead log (WAL). `wal_bytes` may be needed to copy that into the
        database.
        """
        if not self._reserve:
            return 0
        wanted = self._reserve + self._not_kept() + wal_bytes
        return max(0, wanted - self.free() - min(reusable, self._reserve // 2))

    def refuse_read_only(self) -> None:
        """Raises StoreUnavailable if the database or its directory may not be written."""
        for place in (self._path, self._path.parent):
            if not os.access(place, os.W_OK):
                raise StoreUnavailable(
                    f"{place.name} cannot be written: it is read-only.", retry_after=FULL_RETRY_SECONDS
                )

    def keep(self) -> None:
        """Takes what is free of the bytes to be kept back. Does nothing if it has them already."""
        lacking = self._not_kept()
        if lacking:
            with suppress(OSError, StoreUnavailable):
                # bytes that are on the disk, not only in the file's length
                opened = os.open(self._file, os.O_RDWR | os.O_CREAT, OWNER_ONLY)
                try:
                    size = os.fstat(opened).st_size
                    try:
                        _take_bytes(opened, size, min(lacking, self.free()))
                    except OSError:
                        os.ftruncate(opened, size)
                        raise
                finally:
                    os.close(opened)

    def release(self) -> None:
        """Gives the bytes kept back to the deletion that follows."""
        if self._reserve:
            with suppress(OSError):
                os.truncate(self._file, 0)

    def spare(self) -> None:
        """Frees some of the bytes kept back, until the next deletion."""
        with suppress(OSError):
            os.truncate(self._file, max(0, self._file.stat().st_size - SPARE_BYTES))

    @contextmanager
    def room_for(self, number: int, purpose: str) -> Iterator[None]:
        """Gives work that needs `number` bytes those kept back, if there are too few others, and takes them back after
        it. Raises StorageFull, before the work, if these are not enough either. `purpose` ends its sentence."""
        if self._reserve and self.free() < number:
            self.release()
        try:
            lacking = number - self.free() if self._reserve else 0
            if lacking > 0:
                raise StorageFull(
                    f"The disk is full: {lacking:,} more bytes must be free to {purpose}.",
                    retry_after=FULL_RETRY_SECONDS,
                )
            yield
        finally:
            self.keep()

    def _not_kept(self) -> int:
        try:
            return max(0, self._reserve - self._file.stat().st_size)
        except OSError:
            return self._reserve


def _take_bytes(opened: int, at: int, number: int) -> None:
    if number <= 0:
        return
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(opened, at, number)
        return
    os.lseek(opened, at, os.SEEK_SET)
    for start in range(0, number, PIECE_BYTES):
        os.write(opened, bytes(min(PIECE_BYTES, number - start)))


MAX_GROUP = 256
"""A group is full when it has so many lists of changes, which are committed together."""
MAX_GROUP_CHANGES = 1_000
"""A group is full when it has so many changes. One list may have more, and is then a group of its own or its end."""


class WriteTurns(Generic[T]):
    """A queue of any number of producers and one consumer."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._lanes: dict[str, deque[tuple[T, int]]] = {}  # the first tenant has the next turn
        self._closed = False

    def put(self, work: T, tenant: str, number: int) -> None:
        """Adds the work of a tenant, which makes about that number of changes."""
        with self._wake:
            self._lanes.setdefault(tenant, deque()).append((work, number))
            self._wake.notify()

    def close(self) -> None:
        """Ends the queue: what waits is still given out."""
        with self._wake:
            self._closed = True
            self._wake.notify()

    def next_group(self) -> list[T]:
        """Returns the next works, of one tenant after the other, and each tenant's in their order. Waits for one;
        returns none if the queue is closed and empty."""
        with self._wake:
            self._wake.wait_for(lambda: self._lanes or self._closed)
            group, in_group = list[T](), 0
            while self._lanes and len(group) < MAX_GROUP and in_group < MAX_GROUP_CHANGES:
                tenant = next(iter(self._lanes))
                lane = self._lanes.pop(tenant)
                work, number = lane.popleft()
                if lane:
                    self._lanes[tenant] = lane  # at the end
                group.append(work)
                in_group += number
            return group


# --- The writer -------------------------------------------------------------------------------------------------------

WriterTask: TypeAlias = Callable[[apsw.Connection], T]
"""A function that the writer's thread runs inside a transaction, and once more if another one of its group fails. Its
result is returned to the caller."""
ObserveCommit = Callable[[int, float], None]
"""Called after each group with the number of writes and the seconds."""

WAIT_SECONDS = 20.0
"""How long a write may wait for its turn and for the disk."""
RETRY_SECONDS = 10

log = logging.getLogger(__name__)


@dataclass(slots=True)
class QueuedTask:
    """A task that waits for the writer's thread."""

    run: WriterTask[Any]
    future: "asyncio.Future[Any]"
    reserve: bool = False
    """Whether the task may use the space kept back for deletions."""
    stale_reads: Set[connections.ReadKey] | None = None
    """What cached reads forget, as `("agent_memories", "acme", "mem_1")`: complete once the task has run. None: perhaps
    anything."""
    alone: bool = False
    """Whether the task uses a connection of its own, and runs while this process writes nothing."""
    outcome: Any = None
    """The result of the task, or the exception that it raised."""


class WriterThread:
    """The only writer of a process. Commits all waiting lists of changes as one group."""

    def __init__(
        self,
        connection: apsw.Connection,
        execute: Callable[[apsw.Connection, Sequence[Change], str | None, set[connections.ReadKey]], Committed],
        observe: ObserveCommit,
        written: Callable[[], None],
        faults: connections.Faults,
        space: DiskSpace,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        """Starts the thread. `execute`, that of this module, makes a list of changes. `written` is called in the event
        loop after each group; `space` refuses writes of new data on a full disk. Raises StoreUnavailable."""
        self._connection, self._execute, self._observe, self._written = connection, execute, observe, written
        self._faults, self._space, self._wait_seconds = faults, space, wait_seconds
        self._wal_file = connections.log_of(Path(connection.filename))
        self.failure: StoreUnavailable | None = None
        """Why the last write of new data failed; None once one has succeeded."""
        with self._faults.translated():
            self._commit_note = connections.CommitNote(connection)
        self.own_commits = connections.OwnCommits()
        self._queue: WriteTurns[QueuedTask] = WriteTurns()
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="recalld-writer", daemon=True)
        self._thread.start()

    async def commit(self, changes: Sequence[Change], at: str | None = None) -> Committed:
        """Makes all changes durably, or none, and logs them with the time `at`; None: they are not logged. Raises
        CommitConflict or StoreUnavailable, also if the disk does not answer in time; the changes may be made then."""
        stale_reads = set[connections.ReadKey]()
        write = self.submit(
            lambda connection: self._execute(connection, changes, at, stale_reads),
            len(changes),
            may_use_reserve(changes),
            stale_reads=stale_reads,
        )
        return await self._in_time(write)

    async def refuse_failing(self) -> None:
        """Raises StorageFull or StoreUnavailable if new data cannot be written. If the last write failed, one more is
        tried, which only counts the commits."""

        def attempt(connection: apsw.Connection) -> None:
            if self.failure is not None:
                connections.count_commit(connection)

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

    async def submit(
        self,
        task: WriterTask[T],
        number: int = MAX_GROUP_CHANGES,
        reserve: bool | None = None,
        *,
        stale_reads: Set[connections.ReadKey] | None = None,
        alone: bool = False,
    ) -> T:
        """Runs a task when it is its tenant's turn and returns its result once it is durable. `number`: about how many
        changes it makes. `stale_reads`: what cached reads forget, once it has run; None: perhaps anything. `alone`: it
        uses a connection of its own, and all writes wait meanwhile.

        A task that raises has no effect. With `reserve` it may use the space kept back for deletions; None: if it is
        inside `using_reserve`. Raises StoreUnavailable.
        """
        if reserve is None:
            reserve = may_use_reserve()
        if self._closed:
            raise StoreUnavailable("The store is closed.")
        queued = QueuedTask(task, self._loop.create_future(), reserve, stale_reads, alone)
        self._queue.put(queued, tenant_at_work(), number)
        result: T = await queued.future
        return result

    async def close(self) -> None:
        """Commits what waits, then ends the thread and empties the WAL."""
        if self._closed:
            return
        self._closed = True
        self._queue.close()
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        self._thread.join()
        if self._faults.damage is None:
            try:
                connections.truncate(self._connection)
            except Exception:
                log.exception("the log was not truncated")
        self._commit_note.close()
        self._connection.close()

    def _run(self) -> None:
        while group := self._queue.next_group():
            together = [queued for queued in group if not (queued.alone or queued.future.cancelled())]
            if together:
                # on a full disk only what may use the reserve is committed
                started = time.perf_counter()
                refusal = self._refusal()
                if refusal is None:
                    self._make_durable(together)
                    with_reserve = [
                        queued for queued in together if queued.reserve and isinstance(queued.outcome, StorageFull)
                    ]
                else:
                    self.failure = refusal
                    with_reserve = [queued for queued in together if queued.reserve]
                    for queued in together:
                        queued.outcome = refusal
                if with_reserve:
                    self._space.release()
                    for queued in with_reserve:  # one by one: each may use all of the room
                        self._make_durable([queued])
                        self._truncate_wal()
                    self._space.keep()
                self._loop.call_soon_threadsafe(self._finish, list(together))
                self._observe(len(together), time.perf_counter() - started)
            for queued in group:
                if queued.alone:
                    try:
                        with self._faults.translated():
                            connections.refuse_moved(self._connection)
                            queued.run(self._connection)
                    except Exception as error:  # noqa: BLE001 (handed to its caller)
                        queued.outcome = error
                    # it writes no record (`scrub` overwrites what was deleted), so `written` is not called
                    self._loop.call_soon_threadsafe(_resolve_futures, [queued])

    def _refusal(self) -> StorageFull | None:
        """Returns why no new data can be written, or None if the disk has room for them."""
        try:
            missing = self._space.missing(wal_bytes=self._wal_file.stat().st_size)
            if missing:
                self._truncate_wal()
                with self._faults.translated():
                    unused_pages = int(self._connection.pragma("freelist_count"))
                missing = self._space.missing(reusable=unused_pages * connections.PAGE_BYTES)
        except (StoreUnavailable, OSError):  # the write itself will say what is wrong
            return None
        if missing:
            return storage_full(missing)
        self._space.keep()
        return None

    def _truncate_wal(self) -> None:
        """Truncates the WAL, which takes up the room that is missing. If that fails, it stays as it is."""
        with suppress(StoreUnavailable), self._faults.translated():
            connections.truncate(self._connection)

    def _make_durable(self, group: Sequence[QueuedTask]) -> None:
        """Runs and commits the tasks and sets each outcome. If the commit fails, all of them fail."""
        try:
            with self._faults.translated():
                number = self._transact(group)
                connections.refuse_moved(self._connection)  # before anything is acknowledged
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
        if number is None:
            return
        if not all(queued.reserve for queued in group):
            self.failure = None
        try:
            self._commit_note.write(number)
        except OSError:  # the writes are on the disk, and only a missing end of the WAL would not be noticed
            log.exception("the commit was not noted")

    def _transact(self, group: Sequence[QueuedTask]) -> int | None:
        """Runs the tasks in one transaction. Returns the number of the commit; None if nothing was written.

        A savepoint copies each page that is written. So there is none, and where a task fails, all run once more, each
        with its own.
        """
        number = None
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            before = self._connection.total_changes()
            if any(isinstance(self._run_one(queued), Exception) for queued in group):  # runs them up to an error
                self._connection.execute("ROLLBACK")
                if len(group) == 1:
                    return None
                self._connection.execute("BEGIN IMMEDIATE")
                before = self._connection.total_changes()
                for queued in group:
                    self._connection.execute("SAVEPOINT one")
                    if isinstance(self._run_one(queued), Exception):
                        self._connection.execute("ROLLBACK TO one")
                    self._connection.execute("RELEASE one")
            if self._connection.total_changes() != before:
                number = connections.count_commit(self._connection)
                reads = [queued.stale_reads for queued in group]
                self.own_commits.note(number, None if None in reads else set().union(*filter(None, reads)))
            self._connection.execute("COMMIT")
        except BaseException:
            if number is not None:
                self.own_commits.note(number, None)  # another process may make the commit of this number
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        return number

    def _run_one(self, queued: QueuedTask) -> Any:
        try:
            queued.outcome = queued.run(self._connection)
        except (apsw.FullError, apsw.IOError, apsw.BusyError, apsw.CorruptError):
            raise  # SQLite may have rolled the whole transaction back
        except Exception as error:  # noqa: BLE001 (handed to its caller)
            queued.outcome = error
        return queued.outcome

    def _finish(self, group: Sequence[QueuedTask]) -> None:
        _resolve_futures(group)
        self._written()


def _resolve_futures(group: Sequence[QueuedTask]) -> None:
    for queued in group:
        if queued.future.cancelled():
            continue
        if isinstance(queued.outcome, Exception):
            queued.future.set_exception(queued.outcome)
        else:
            queued.future.set_result(queued.outcome)


# --- A list of changes ------------------------------------------------------------------------------------------------

_COUNT_UP = (
    "INSERT INTO change_heads VALUES (?1, lower(hex(randomblob(6))), ?2, 0) "
    "ON CONFLICT DO UPDATE SET last = last + ?2 RETURNING last"
)
LOG_COLUMNS = "tenant, kind, id, type, agent_id, user_id, version, at, seq"
"""In the order of the fields of `LogEntry`."""
_INSERT = f"INSERT INTO changes ({LOG_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"


def execute(
    connection: apsw.Connection,
    changes: Sequence[Change],
    at: str | None = None,
    stale_reads: set[connections.ReadKey] | None = None,
) -> Committed:
    """Executes all changes, and logs them with the time `at`; None: they are not logged. Adds what cached reads forget
    to `stale_reads`. If it raises, the caller rolls back. Raises CommitConflict or QuotaExceeded."""
    notes = change_log.ChangeNotes(at)
    writer = _ListWriter(connection, notes, set() if stale_reads is None else stale_reads)
    quotas = [change for change in changes if isinstance(change, WithinQuota)]
    before = [usage_of(connection, quota.tenant) for quota in quotas]  # counted by triggers: `sql.usage_triggers`
    for change in changes:
        writer.make(change)
    writer.search_rows.write_partitions()
    writer.stale_reads.update(writer.search_rows.stale_reads)
    for tenant, entries in notes.by_tenant().items():
        append_to_log(connection, tenant, entries)
    for quota, used in zip(quotas, before, strict=True):
        quota.check(used, usage_of(connection, quota.tenant))
    return Committed(writer.allocated, writer.deleted)


class _ListWriter:
    """Makes one list of changes, one after the other: documents, search rows and notes for the change log."""

    def __init__(
        self, connection: apsw.Connection, notes: change_log.ChangeNotes, stale_reads: set[connections.ReadKey]
    ) -> None:
        self._connection, self._notes, self.stale_reads = connection, notes, stale_reads
        self.allocated: dict[str, int] = {}
        self.deleted = 0
        self.search_rows = search_rows.SearchRowWriter(connection)

    def _wrote(self, collection: Collection, doc: Doc, row: int) -> None:
        read = doc[collection.id_field], row, connections.LISTS  # "mem_1", the row 17, each list
        self.stale_reads.update((collection.name, doc["tenant_id"], what) for what in read)

    def make(self, change: Change) -> None:
        match change:
            case Insert():
                self._insert(change)
            case Update():
                self._update(change)
            case Delete():
                row, text = self._stored(change.collection, change.tenant, change.id)
                self._delete(change, row, change.id, text)
            case DeleteWhere():
                condition, values = sql.where(change.collection, change.where)
                table = sql.quoted(change.collection.name)
                statement = f"SELECT row, id, doc FROM {table} WHERE tenant = ? AND {condition}"
                rows: list[Any] = self._connection.execute(statement, (change.tenant, *values)).fetchall()
                for row, doc_id, text in rows:
                    self._delete(change, row, doc_id, text)
            case Allocate():
                statement = (
                    "INSERT INTO counters VALUES (?, ?, ?) "
                    "ON CONFLICT DO UPDATE SET value = value + excluded.value RETURNING value"
                )
                last = self._connection.execute(statement, (change.tenant, change.name, change.count)).get
                self.allocated[change.name] = change.first(last)
            case WithinQuota():
                pass  # checked in the end, by `execute`

    def _insert(self, change: Insert) -> None:
        collection, doc = change.collection, resolve(change.doc, self.allocated)
        row = insert_document(self._connection, collection, doc)
        self._wrote(collection, doc, row)
        self._notes.created(collection, doc)
        if collection.searched is None:
            return
        if change.entry is not None:
            self.search_rows.add(collection, doc, row, change.entry)
        elif change.like is not None:
            like, _ = self._read(collection, doc["tenant_id"], change.like, {})
            self.search_rows.add_like(collection, doc, row, like)

    def _stored(self, collection: Collection, tenant: str, doc_id: str) -> tuple[int, str]:
        statement = f"SELECT row, {sql.WHOLE_DOC} FROM {sql.quoted(collection.name)} WHERE tenant = ? AND id = ?"
        stored: Any = self._connection.execute(statement, (tenant, doc_id)).fetchone()
        if stored is None:
            raise CommitConflict(collection.name, doc_id, "missing")
        return int(stored[0]), str(stored[1])

    def _read(self, collection: Collection, tenant: str, doc_id: str, expect: Mapping[str, object]) -> tuple[int, Doc]:
        """Returns the row and the document. Raises CommitConflict, or RecordDamaged if it cannot be read."""
        row, text = self._stored(collection, tenant, doc_id)
        doc = parsed_one(collection, doc_id, text)
        if doc is None:
            raise unreadable(collection, doc_id, {})
        if stale(doc, expect):
            raise CommitConflict(collection.name, doc_id, "expect")
        return row, doc

    def _update(self, change: Update) -> None:
        collection = change.collection
        row, doc = self._read(collection, change.tenant, change.id, change.expect)
        doc |= change.fields(doc, self.allocated)
        changed = frozenset({*change.set, *change.inc})
        columns, statement = sql.assignment(collection.name, collection.columns, changed)
        encoded = orjson.dumps(doc)
        values = (*sql.values_of(doc, columns), encoded.decode(), connections.sum_of(encoded), row)
        _execute_row(self._connection, collection, change.id, statement, values)
        self._wrote(collection, doc, row)
        self._notes.updated(collection, doc, change)
        if collection.searched is None:
            return
        if change.entry is not None:
            self.search_rows.put(collection, doc, row, change.entry, keep=change.keep)
        else:
            self.search_rows.amend(collection, doc, row, changed, change.terms)

    def _delete(self, change: Delete | DeleteWhere, row: int, doc_id: str, text: str) -> None:
        """Deletes a document, also one whose text cannot be read: its columns say enough of it."""
        collection, doc = change.collection, parsed_one(change.collection, doc_id, text)
        if doc is None:
            doc = sql.known_by_columns(self._connection, collection, change.tenant, doc_id)
        if isinstance(change, Delete) and stale(doc, change.expect):
            raise CommitConflict(collection.name, doc_id, "expect")
        self._connection.execute(f"DELETE FROM {sql.quoted(collection.name)} WHERE row = ?", (row,))
        self.deleted += 1
        self._wrote(collection, doc, row)
        self._notes.deleted(collection, doc)
        if collection.searched is not None:
            self.search_rows.remove(collection, doc, row)


def insert_document(connection: apsw.Connection, collection: Collection, doc: Doc) -> int:
    """Inserts a document and returns its row number. Raises CommitConflict."""
    doc_id, encoded = str(doc[collection.id_field]), orjson.dumps(doc)
    values = (
        doc["tenant_id"],
        doc_id,
        *sql.values_of(doc, collection.columns),
        encoded.decode(),
        connections.sum_of(encoded),
    )
    _execute_row(connection, collection, doc_id, sql.insertion(collection.name, collection.columns), values)
    return connection.last_insert_rowid()


def _execute_row(
    connection: apsw.Connection, collection: Collection, doc_id: str, statement: str, values: Sequence[sql.Value]
) -> None:
    try:
        connection.execute(statement, values)
    except apsw.ConstraintError as error:
        # SQLite names the index of a unique key, which is on expressions, and the columns of the id index
        violated = [key.name for key in collection.unique if f"'{sql.unique_index(collection, key)}'" in str(error)]
        raise CommitConflict(collection.name, doc_id, violated[0] if violated else "exists") from error


def append_to_log(connection: apsw.Connection, tenant: str, entries: Sequence[change_log.LogEntry]) -> None:
    """Appends entries to the tenant's change log. Runs in the transaction of the changes."""
    last = connection.execute(_COUNT_UP, (tenant, len(entries))).get
    rows = [(*entry[:-1], seq) for seq, entry in enumerate(entries, last - len(entries) + 1)]
    connection.executemany(_INSERT, rows)


# --- Usage of tenants -------------------------------------------------------------------------------------------------


def usage_of(connection: apsw.Connection, tenant: str) -> Usage:
    statement = "SELECT ifnull(sum(records), 0), ifnull(sum(bytes), 0) FROM usage WHERE tenant = ?"
    return Usage(*connection.execute(statement, (tenant,)).get)


def stored_usage(connection: apsw.Connection) -> dict[str, dict[str, Usage]]:
    return _usage_by(connection, "SELECT tenant, collection, records, bytes FROM usage")


def _totals(connection: apsw.Connection) -> StoredTotals:
    """Returns the sums over all tenants."""
    tenants = connection.execute("SELECT count(DISTINCT tenant) FROM usage WHERE records > 0").get
    statement = "SELECT collection, sum(records), sum(bytes) FROM usage GROUP BY collection"
    usages = {str(name): Usage(int(records), int(size)) for name, records, size in connection.execute(statement)}
    return StoredTotals.of(tenants, usages)


def counted_usage(connection: apsw.Connection, collections: Sequence[Collection]) -> dict[str, dict[str, Usage]]:
    return _usage_by(connection, *(sql.usage_query(collection) for collection in collections if collection.counted))


def _usage_by(connection: apsw.Connection, *statements: str) -> dict[str, dict[str, Usage]]:
    rows: list[Any] = [row for statement in statements for row in connection.execute(statement)]
    return by_tenant(((tenant, name), Usage(records, size)) for tenant, name, records, size in rows)


class EmbeddedAccounting:
    """Implements `Accounting`."""

    def __init__(self, collections: Sequence[Collection], readers: connections.ReadPool, writer: WriterThread) -> None:
        self._readers, self._writer = readers, writer
        self._collections = [collection for collection in collections if collection.counted]

    async def stored(self) -> UsageByTenant:
        return await self._readers.apart(stored_usage)

    async def totals(self) -> StoredTotals:
        return await self._readers.apart(_totals)

    async def recount(self) -> list[str]:
        def recount(connection: apsw.Connection) -> list[str]:
            wrong = differences(stored_usage(connection), counted_usage(connection, self._collections))
            for collection in self._collections if wrong else ():
                sql.count_usage(connection, collection)
            return wrong

        return await self._writer.submit(recount)


# --- The change log ---------------------------------------------------------------------------------------------------

# The change log in the embedded store: two tables, written in the transaction of the change.
#
# SQLite has one writer at a time, over all processes. The order of the numbers is therefore the order of the commits,
# and whoever sees an entry sees all earlier ones.


class EmbeddedChangeLog(change_log.ChangeLog):
    """The change log in the database file."""

    def __init__(self, readers: connections.ReadPool, writer: WriterThread, options: change_log.LogOptions) -> None:
        super().__init__(options)
        self._readers, self._writer = readers, writer

    async def page(
        self, tenant: str, after: change_log.Position | None, where: Filter = EVERYTHING, *, limit: int = 100
    ) -> change_log.LogPage:
        def read(connection: apsw.Connection) -> change_log.LogPage:
            connection.execute("BEGIN")  # one snapshot: the head tells how far the entries go
            try:
                head = _head(connection, tenant)
                start = head.start(after)
                upto = min(head.last, start + self.options.scanned)
                condition, values = sql.where(change_log.CHANGES, where)
                statement = (
                    f"SELECT {LOG_COLUMNS} FROM changes WHERE tenant = ? AND seq > ? AND seq <= ? AND {condition} "
                    f"ORDER BY seq LIMIT {int(limit)}"
                )
                rows: list[Any] = connection.execute(statement, (tenant, start, upto, *values)).fetchall()
            finally:
                connection.execute("COMMIT")
            return change_log.LogPage.read(head, [change_log.LogEntry(*row) for row in rows], upto, limit)

        return await self._readers.bounded(read)

    async def _current(self, tenant: str) -> change_log.Head:
        return await self._readers.bounded(lambda connection: _head(connection, tenant))

    async def _mark(self, tenant: str) -> int:
        statement = "SELECT ifnull(max(last), 0) FROM change_heads WHERE tenant = ?"
        return await self._readers.bounded(lambda connection: int(connection.execute(statement, (tenant,)).get))

    async def names(self, tenant: str, user: str) -> bool:
        statement = "SELECT EXISTS (SELECT 1 FROM changes WHERE tenant = ? AND user_id = ?)"
        return await self._readers.apart(lambda connection: bool(connection.execute(statement, (tenant, user)).get))

    async def forget(self, tenant: str, user: str) -> None:
        def forget_some(connection: apsw.Connection, start: int, mark: change_log.LogEntry | None) -> int:
            statement = "DELETE FROM changes WHERE tenant = ? AND seq > ? AND seq <= ? AND user_id = ?"
            connection.execute(statement, (tenant, start, start + change_log.STEP, user))
            removed = connection.changes()
            if removed and mark is not None:
                append_to_log(connection, tenant, [mark])
            return removed

        mark: change_log.LogEntry | None = change_log.erased(tenant, self.options.stamp_now())
        for start in range(0, await self._mark(tenant), change_log.STEP):
            if await self._writer.submit(partial(forget_some, start=start, mark=mark)):
                mark = None

    async def has_expired(self) -> bool:
        oldest = self.options.oldest()
        statement = (
            "SELECT EXISTS (SELECT 1 FROM change_heads h WHERE "
            "(SELECT at FROM changes c WHERE c.tenant = h.tenant ORDER BY seq LIMIT 1) < ?)"
        )
        return await self._readers.apart(lambda connection: bool(connection.execute(statement, (oldest,)).get))

    async def _expired(self, oldest: str) -> list[str]:  # noqa: ARG002 (each log is looked at, which is quick)
        statement = "SELECT tenant FROM change_heads"
        return await self._readers.apart(lambda c: [str(tenant) for (tenant,) in c.execute(statement)])

    async def _drop(self, tenant: str, oldest: str) -> int:
        def drop(connection: apsw.Connection) -> int:
            statement = "SELECT seq, at FROM changes WHERE tenant = ? ORDER BY seq LIMIT ?"
            cursor: Any = connection.execute(statement, (tenant, change_log.STEP))
            old = change_log.first_old(cursor.fetchall(), oldest)
            if old:
                connection.execute("DELETE FROM changes WHERE tenant = ? AND seq <= ?", (tenant, old[-1]))
                connection.execute("UPDATE change_heads SET floor = ? WHERE tenant = ?", (old[-1], tenant))
            return len(old)

        return await self._writer.submit(drop)


def _head(connection: apsw.Connection, tenant: str) -> change_log.Head:
    statement = "SELECT log, last, floor FROM change_heads WHERE tenant = ?"
    return change_log.Head(*connection.execute(statement, (tenant,)).get or ())
