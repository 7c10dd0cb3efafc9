"""Connections to the database file: settings, page checksums, and errors of SQLite as errors of the service.

The file has a checksum at the end of each page, which SQLite's `cksumvfs` writes and verifies on each read from the
file. A store of an earlier version has none; it is served as before. The pages of an encrypted store have an
authentication code in its place (`encryption`).
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import apsw
from apsw import sqlite_extra

from app.errors import StorageFull, StoreDamaged, StoreUnavailable
from app.storage.change_log import LogOptions
from app.storage.sqlite.pages import CHECKSUM_BYTES, StoreKey, key_errors, open_keyed, refuse_mismatch, uses_cipher

FILE_NAME = "recalld.db"
PAGE_BYTES = 8192
WITH_CHECKSUMS = 2
"""Value of `user_version` of a store with checksums. A store of layout 1 has the same tables, and no checksums."""
WAY_OUT = "Restore a backup, or run `recalld salvage`; `recalld doctor` says what is damaged."
WAL_PAUSE_MS = 20
IDLE_SECONDS = 10.0
OPEN_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
_PRAGMAS = (
    "synchronous = FULL",
    "wal_autocheckpoint = 0",  # the log is verified before it is copied: see `log_file.checkpoint`
    "cache_size = -4096",  # KiB for each of five connections; the system caches the file, too
    "temp_store = MEMORY",
    "secure_delete = ON",
)
_DAMAGED_READS = frozenset({apsw.SQLITE_IOERR_DATA, apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS})


@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    """Options of the engine."""

    cache_bytes: int = 256 << 20
    busy_timeout_ms: int = 5_000
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


def connect(path: Path, busy_timeout_ms: int, key: StoreKey | None = None, flags: int = OPEN_FLAGS) -> apsw.Connection:
    """Opens a connection with our settings. Makes a new file with room for checksums, or an encrypted one. Raises
    StoreUnavailable, also if the file is encrypted with another key.

    Closing the connection leaves the log as it is.
    """
    use_checksums()
    with translate_errors():
        if not path.exists() or not path.stat().st_size:
            _create(path, busy_timeout_ms, key)
        refuse_mismatch(path, key)
        connection = _opened(path, busy_timeout_ms, key, flags)
        with key_errors(path.name, key):
            _to_wal(connection, busy_timeout_ms)
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}").fetchall()
    if has_checksums(connection):
        return connection
    connection.close()
    raise damaged(path.name, "its header says that it has no checksums, but it was made with them")


def _opened(path: Path, busy_timeout_ms: int, key: StoreKey | None, flags: int = OPEN_FLAGS) -> apsw.Connection:
    connection = open_keyed(path, key, flags) if key else apsw.Connection(str(path), flags, statementcachesize=512)
    connection.set_busy_timeout(busy_timeout_ms)
    # otherwise a statement whose bound values might change its plan is prepared again at each execution
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return connection


def _create(path: Path, busy_timeout_ms: int, key: StoreKey | None) -> None:
    """Writes the first page, with the room for checksums.

    It is written without a log: `cksumvfs` learns from the first page of the file whether pages have checksums.
    """
    connection = _opened(path, busy_timeout_ms, key)
    try:
        connection.pragma("page_size", PAGE_BYTES)
        if key is None:
            connection.reserve_bytes("main", CHECKSUM_BYTES)
        connection.execute("BEGIN IMMEDIATE")
        if not connection.pragma("user_version"):  # no other process was first
            connection.pragma("user_version", WITH_CHECKSUMS)
        connection.execute("COMMIT")
    finally:
        connection.close()


def has_checksums(connection: apsw.Connection) -> bool:
    """Returns False if a store that was made with checksums is read without them. Raises StoreDamaged."""
    with translate_errors():
        made_with = int(connection.pragma("user_version")) >= WITH_CHECKSUMS
        return not made_with or verifies(connection)


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
