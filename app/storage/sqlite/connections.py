"""Connections to the database file: their settings, a pool of them, and errors of SQLite as errors of the service.

The file has a checksum at the end of each page, which SQLite's `cksumvfs` writes and verifies on each read from the
file. The pages of an encrypted store have an authentication code in its place (`encryption`).
"""

import asyncio
import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar, cast

import apsw
from apsw import sqlite_extra

from app.core.caches import ENTRY_BYTES
from app.core.tuning import USUAL
from app.errors import StorageFull, StoreDamaged, StoreUnavailable
from app.storage.change_log import LogOptions
from app.storage.sqlite.encryption import StoreKey, key_errors, open_keyed, refuse_mismatch, uses_cipher
from app.storage.sqlite.sql import sum_of

FILE_NAME = "recalld.db"
PAGE_BYTES = 8192
CHECKSUM_BYTES = 8
"""Bytes that each page reserves for its checksum. `cksumvfs` works with exactly this number."""
WAY_OUT = "Restore a backup, or run `recalld salvage`; `recalld doctor` says what is damaged."
WAL_PAUSE_MS = 20
IDLE_SECONDS = 10.0
OPEN_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
_PRAGMAS = (
    "synchronous = FULL",
    "wal_autocheckpoint = 6000",  # pages, 48 MiB
    "cache_size = -4096",  # KiB for each of five connections; the system caches the file, too
    "temp_store = MEMORY",
    "secure_delete = ON",
)
_DAMAGED_READS = frozenset({apsw.SQLITE_IOERR_DATA, apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS})


@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    """Options of the engine."""

    cache_bytes: int = 256 << 20
    busy_timeout_ms: int = USUAL.busy_timeout_ms
    observe_commit: Callable[[int, float], None] = lambda writes, seconds: None
    idle_seconds: float = IDLE_SECONDS
    """After so many seconds without a write the log is truncated (`LogTruncation`)."""
    reserve_bytes: int = 0
    """Bytes of the disk that are kept back for deletions (`DiskSpace`)."""
    key: StoreKey | None = field(default=None, repr=False)
    """The key of an encrypted store."""
    log: LogOptions = field(default_factory=LogOptions)


@cache
def use_checksums() -> None:
    """Makes `cksumvfs` the process's way to open databases. Raises StoreUnavailable if this apsw was built without
    it."""
    connection = apsw.Connection(":memory:")
    try:
        sqlite_extra.load(connection, "cksumvfs")
    except (sqlite_extra.NotAvailable, apsw.Error) as error:
        raise StoreUnavailable(f"Page checksums need apsw with its extra `cksumvfs`: {error}.") from error
    finally:
        connection.close()


def log_of(path: Path) -> Path:
    """Returns the log file of a database file."""
    return path.with_name(f"{path.name}-wal")


def connect(path: Path, busy_timeout_ms: int, key: StoreKey | None = None, flags: int = OPEN_FLAGS) -> apsw.Connection:
    """Opens a connection with our settings. Makes a new file with room for checksums, or an encrypted one, if the
    `flags` allow it. Raises StoreUnavailable, also if the file is encrypted with another key.

    Closing the connection leaves the log as it is.
    """
    use_checksums()
    with translate_errors():
        if flags & apsw.SQLITE_OPEN_CREATE and (not path.exists() or not path.stat().st_size):
            if log_of(path).exists() and log_of(path).stat().st_size:  # SQLite would delete it
                raise damaged(log_of(path).name, "it is the log of a database that is missing")
            create(path, busy_timeout_ms, key)
        refuse_mismatch(path, key)
        connection = open_file(path, busy_timeout_ms, key, flags)
        with key_errors(path.name, key):
            _to_wal(connection, busy_timeout_ms)
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}").fetchall()
        sound = verifies(connection)
    if sound:
        return connection
    connection.close()
    raise damaged(path.name, "its header says that its pages have no checksums")


def open_file(path: Path, busy_timeout_ms: int, key: StoreKey | None, flags: int = OPEN_FLAGS) -> apsw.Connection:
    """Opens a connection as `connect` does, without the settings that need a store. Raises errors of SQLite."""
    connection = open_keyed(path, key, flags) if key else apsw.Connection(str(path), flags, statementcachesize=512)
    connection.set_busy_timeout(busy_timeout_ms)
    # otherwise a statement whose bound values might change its plan is prepared again at each execution
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.create_scalar_function("sum_of", cast(Any, sum_of), 1, deterministic=True)
    return connection


def create(path: Path, busy_timeout_ms: int, key: StoreKey | None) -> None:
    """Writes the first page of a new database, with the room for checksums. Raises errors of SQLite.

    It is written without a log: `cksumvfs` learns from the first page of the file whether pages have checksums.
    """
    connection = open_file(path, busy_timeout_ms, key)
    try:
        connection.pragma("page_size", PAGE_BYTES)
        if key is None:
            connection.reserve_bytes("main", CHECKSUM_BYTES)
        connection.execute("BEGIN IMMEDIATE")  # writes the first page, if no other process was first
        connection.execute("COMMIT")
    finally:
        connection.close()


def verifies(connection: apsw.Connection) -> bool:
    """Returns whether the checksums or codes of pages are verified. Raises errors of SQLite."""
    return uses_cipher(connection) or bool(connection.pragma("checksum_verification") == "1")


def _to_wal(connection: apsw.Connection, busy_timeout_ms: int) -> None:
    """Switches to WAL mode, with retries.

    If several connections open a new database at once, SQLite reports "busy" for this change without waiting.
    """
    for left in range(busy_timeout_ms // WAL_PAUSE_MS, -1, -1):
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        except apsw.BusyError:
            if not left:
                raise
            time.sleep(WAL_PAUSE_MS / 1000)
        else:
            return


def refuse_moved(connection: apsw.Connection) -> None:
    """Raises StoreDamaged if the file that a connection has open is not the one at its path any more: what is written
    into it is in no folder. Asks SQLite, which compares the two by one `stat` (3 µs)."""
    moved = ctypes.c_int()
    connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(moved))
    if moved.value:
        raise StoreDamaged(
            f"{FILE_NAME} was removed or replaced while this process had it open: nothing more is written. Look at the "
            "data directory, then start the service again.",
            retry_after=60,
        )


def damaged(name: str, what: str) -> StoreDamaged:
    """Returns the error about a damaged file of the store."""
    return StoreDamaged(f"{name} is damaged: {what}. {WAY_OUT}", retry_after=60)


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Converts errors of the disk and of locks to StoreUnavailable with the reason, and those of the file's content to
    StoreDamaged."""
    try:
        yield
    except (apsw.BusyError, apsw.LockedError) as error:
        raise StoreUnavailable("The store is locked by another process.") from error
    except apsw.FullError as error:
        raise StorageFull("The disk is full.", retry_after=30) from error
    except apsw.IOError as error:
        code = getattr(error, "extendedresult", apsw.SQLITE_IOERR)
        if code in _DAMAGED_READS:
            what = "a page is cut short" if code == apsw.SQLITE_IOERR_SHORT_READ else "the checksum of a page fails"
            raise damaged(FILE_NAME, what) from error
        raise StoreUnavailable(f"The store's file cannot be used: {error}.", retry_after=30) from error
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError) as error:
        raise StoreUnavailable(f"The store's file cannot be used: {error}.", retry_after=30) from error
    except apsw.ConnectionClosedError as error:
        raise StoreUnavailable("The store is closed.") from error
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise damaged(FILE_NAME, "its pages do not fit together") from error


class Faults:
    """Translates the errors of one store, and remembers the first damage that any of its connections met."""

    def __init__(self) -> None:
        self.damage: StoreDamaged | None = None

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """As `translate_errors`, and remembers damage. Raises StoreDamaged at once if there was some before."""
        if self.damage is not None:
            raise StoreDamaged(self.damage.detail, retry_after=self.damage.retry_after)
        try:
            with translate_errors():
                yield
        except StoreDamaged as error:
            self.note(error)
            raise

    def note(self, damage: StoreDamaged) -> None:
        """Remembers damage that was found elsewhere."""
        self.damage = self.damage or damage


T = TypeVar("T")

MAX_READ_BYTES = 32 << 20
PARSED_BYTES = 8
"""Of a character of JSON, once it is parsed."""


class ReadCache:
    """Results of reads on one connection since the last commit, up to about `MAX_READ_BYTES` of them. Used only from
    the event loop's thread."""

    def __init__(self, connection: apsw.Connection, faults: Faults) -> None:
        self._connection, self._faults = connection, faults
        self._held: dict[Hashable, Any] = {}
        self._bytes = 0
        self._version: Any = None
        self._version_known = False

    def get(self, key: Hashable, read: Callable[[], tuple[T, int]]) -> T:
        """Returns what `read()` returns, or its result since the last commit. `read` returns the characters of JSON of
        its result, too."""
        self.renew()
        if key not in self._held:
            with self._faults.translated():
                result, characters = read()
            self.keep(key, result, characters)
        value: T = self._held[key]
        return value

    def cached(self) -> Mapping[Hashable, Any]:
        """Returns all cached results by key. The caller may `keep` what it reads, before it awaits anything."""
        self.renew()
        return self._held

    def keep(self, key: Hashable, result: Any, characters: int) -> None:
        """Adds a result that was made of so many characters of JSON."""
        self._held[key] = result
        self._bytes += 2 * ENTRY_BYTES + PARSED_BYTES * characters

    def renew(self) -> None:
        """Clears the cache if the database has changed; looks once in each round of the event loop.

        This is safe: a commit that was acknowledged after this look was acknowledged in a later callback, and callbacks
        run in the order in which they were scheduled, thus after the one that ends the round.
        """
        if self._version_known:
            return
        with self._faults.translated():
            ((version,),) = self._connection.execute("PRAGMA data_version")  # faster than `pragma()`
        if version != self._version or self._bytes > MAX_READ_BYTES:
            self._held.clear()
            self._bytes = 0
            self._version = version
        self._version_known = True
        asyncio.get_running_loop().call_soon(self._end_round)

    def _end_round(self) -> None:
        self._version_known = False


THREADS = 3

TICK_STEPS = 1_000

MAX_TICKS = 40
"""Number of ticks (of `TICK_STEPS` SQLite instructions) that a read in the event loop may take: some 2 ms."""

ROUND_SECONDS = 0.005
"""Maximum time of consecutive reads in the event loop before others run.

These reads never wait for anything, so background work that reads again and again would otherwise block the loop.
"""


class ReadPool:
    """Connections for reads: one in the event loop, and one in each thread. Create it in the event loop that will use
    it."""

    def __init__(self, path: Path, busy_timeout_ms: int, faults: Faults, key: StoreKey | None = None) -> None:
        self._faults = faults
        self._connect = partial(connect, path, busy_timeout_ms, key, apsw.SQLITE_OPEN_READWRITE)
        self.inline = self._connect()
        self._threads = ThreadPoolExecutor(THREADS, "recalld-reader")
        self._local = threading.local()
        self._ticks: int | None = None
        self._round_began: float | None = None
        self.inline.set_progress_handler(self._tick, TICK_STEPS)

    def close(self) -> None:
        """Waits for reads in threads, then closes the event loop's connection."""
        self._threads.shutdown(wait=True)
        self.inline.close()

    async def bounded(self, work: Callable[[apsw.Connection], T]) -> T:
        """Runs a read in the event loop. If it turns out to be long, it is stopped and run again in a thread."""
        now = time.perf_counter()
        if self._round_began is None:
            self._round_began = now
            asyncio.get_running_loop().call_soon(self._end_round)
        if now - self._round_began > ROUND_SECONDS:
            await asyncio.sleep(0)
        self._ticks = MAX_TICKS
        try:
            with self._faults.translated():
                return work(self.inline)
        except apsw.InterruptError:
            pass
        finally:
            self._ticks = None
        return await self.apart(work)

    def _end_round(self) -> None:
        self._round_began = None

    def _tick(self) -> bool:
        """Returns True to end the read. Reads without a bound are not counted."""
        if self._ticks is None:
            return False
        self._ticks -= 1
        return self._ticks < 0

    async def apart(self, work: Callable[[apsw.Connection], T]) -> T:
        """Runs a read in a thread, on that thread's own connection."""

        def run() -> T:
            if not hasattr(self._local, "connection"):
                self._local.connection = self._connect()
            with self._faults.translated():
                connection: apsw.Connection = self._local.connection
                return work(connection)

        return await asyncio.get_running_loop().run_in_executor(self._threads, run)
