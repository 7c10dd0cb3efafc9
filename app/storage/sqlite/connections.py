"""Connections to the database file: encryption, settings, a pool, errors of SQLite as ours; and the log.

The file has a checksum at the end of each page, which SQLite's `cksumvfs` writes and verifies on each read from the
file. The pages of an encrypted store have an authentication code in its place (`encryption`).
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import re
import secrets
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast
from zlib import crc32

import apsw
from apsw import sqlite_extra

from app.core import work
from app.core.caches import ENTRY_BYTES
from app.core.files import warn_of_readers
from app.core.tuning import USUAL
from app.errors import StorageFull, StoreDamaged, StoreUnavailable
from app.storage.change_log import LogOptions
from app.storage.index.segment import LARGE

# --- Encryption -------------------------------------------------------------------------------------------------------

# Encryption of the database file, its log and its backups, by SQLite3 Multiple Ciphers (the extra `encryption`).
#
# Each page is encrypted and authenticated with ChaCha20-Poly1305. The authentication code at the end of a page takes
# the place of the checksum of `cksumvfs`: a page that was altered cannot be read. Source:
# https://utelle.github.io/SQLite3MultipleCiphers/docs/ciphers/cipher_chacha20/

CIPHER = "chacha20"
CODE_BYTES = 32
"""Bytes that each encrypted page reserves: a nonce of 16 bytes and an authentication code of 16."""
RESERVED_AT = 20
"""Place of the number of reserved bytes in the header of a database."""
HEADER_BYTES = 24
PAYLOAD_FRACTIONS = b"\x40\x20\x20"
"""These bytes follow the number of reserved bytes in the header of every database. The cipher leaves them readable."""
MAKE_A_KEY = "`openssl rand -hex 32 > FILE` makes one"
_PREFIX = "multipleciphers-"
_PLAIN_LAYER = "win32" if os.name == "nt" else "unix"
_DIGITS = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True)
class StoreKey:
    """The key of a store, 256 bits as 64 hexadecimal digits. Its `repr` omits them."""

    digits: str = field(repr=False)

    @classmethod
    def of_text(cls, text: str, source: str) -> "StoreKey":
        """Returns the key that a text holds; `source` names it in errors. Raises StoreUnavailable."""
        digits = text.strip()
        if not _DIGITS.fullmatch(digits):
            raise StoreUnavailable(f"{source} holds no key: a key is 64 hexadecimal digits; {MAKE_A_KEY}.")
        return cls(digits.lower())

    @classmethod
    def of_file(cls, file: Path) -> "StoreKey":
        """Returns the key that a file holds. Raises StoreUnavailable."""
        try:
            text = file.read_text()
            warn_of_readers(file)
            return cls.of_text(text, str(file))
        except OSError as error:
            raise StoreUnavailable(f"The store's key cannot be read: {file}: {error.strerror}.") from error
        except UnicodeDecodeError:
            raise StoreUnavailable(f"{file} holds no key: a key is 64 hexadecimal digits; {MAKE_A_KEY}.") from None

    @property
    def pragma(self) -> str:
        """The value of `PRAGMA key`: the bytes of the key itself, not a passphrase from which one is derived."""
        return f"raw:{self.digits}"


def cipher_layer() -> str:
    """Returns the name of the file layer that encrypts. Raises StoreUnavailable if this apsw has none."""
    name = next((name for name in apsw.vfs_names() if name.startswith(_PREFIX)), None)
    if name is None:
        raise StoreUnavailable(
            "A key for the store is set, and encryption needs the package apsw-sqlite3mc in the place of apsw: "
            "`scripts/extra encryption` installs it."
        )
    return name


def open_keyed(path: Path, key: StoreKey, flags: int = apsw.SQLITE_OPEN_READWRITE) -> apsw.Connection:
    """Opens an encrypted database, or one that will be. Raises StoreUnavailable and errors of SQLite.

    SQLite uses the key at the first statement: see `key_errors`.
    """
    connection = apsw.Connection(str(path), flags=flags, vfs=cipher_layer(), statementcachesize=512)
    connection.pragma("cipher", CIPHER)
    connection.pragma("key", key.pragma)
    return connection


@contextmanager
def key_errors(name: str, key: StoreKey | None) -> Iterator[None]:
    """Converts the error of a database that the key does not open to StoreUnavailable, which names the file."""
    try:
        yield
    except apsw.NotADBError as error:
        if key is None:
            raise
        raise StoreUnavailable(
            f"The key does not open {name}: it was encrypted with another one, or its first page is damaged."
        ) from error


def header_of(path: Path) -> bytes:
    """Returns the first bytes of a database file; fewer if it is shorter. Raises errors of SQLite.

    SQLite's own file layer reads them: closing another handle of the file would drop SQLite's locks of this process.
    """
    file = apsw.VFSFile(_PLAIN_LAYER, str(path), [apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB, 0])
    try:
        size = min(HEADER_BYTES, file.xFileSize())
        return file.xRead(size, 0) if size else b""
    finally:
        file.xClose()


def is_encrypted(header: bytes) -> bool:
    """Returns whether the first bytes of a file are those of an encrypted database.

    Another database has another number of reserved bytes, even if its first bytes are damaged.
    """
    return header[RESERVED_AT : RESERVED_AT + 4] == bytes([CODE_BYTES]) + PAYLOAD_FRACTIONS


def uses_cipher(connection: apsw.Connection) -> bool:
    """Returns whether the connection's database is encrypted."""
    return connection.open_vfs.startswith(_PREFIX)


def refuse_mismatch(path: Path, key: StoreKey | None, name: str = "") -> None:
    """Raises StoreUnavailable, which names the file, if it is encrypted and there is no key, or the other way round."""
    header, name = header_of(path), name or path.name
    if header and key is None and is_encrypted(header):
        raise StoreUnavailable(f"{name} is encrypted: name its key with RECALLD_STORE_KEY_FILE or RECALLD_STORE_KEY.")
    if header and key is not None and not is_encrypted(header):
        raise StoreUnavailable(
            f"{name} is not encrypted, and a key for the store is set. Unset it and run `recalld rekey FILE` to "
            "encrypt the store with the key in FILE."
        )


# --- Connections ------------------------------------------------------------------------------------------------------

FILE_NAME = "recalld.db"
PAGE_BYTES = 8192
CHECKSUM_BYTES = 8
"""Bytes that each page reserves for its checksum. `cksumvfs` works with exactly this number."""
SUMMED_BYTES = 4_096
"""A document of so many bytes has a sum beside it, as it may take several pages: SQLite would read one that has changed
places with a page of another long text, or has become zeros, without a word."""
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
    large: int = LARGE
    """Records of a partition from which on a search is made in a thread and returns candidates."""
    busy_timeout_ms: int = USUAL.busy_timeout_ms
    observe_commit: Callable[[int, float], None] = lambda writes, seconds: None
    idle_seconds: float = IDLE_SECONDS
    """After so many seconds without a write the log is truncated (`LogTruncation`)."""
    reserve_bytes: int = 0
    """Bytes of the disk that are kept back for deletions (`DiskSpace`)."""
    key: StoreKey | None = field(default=None, repr=False)
    """The key of an encrypted store."""
    log: LogOptions = field(default_factory=LogOptions)


def sum_of(text: Any) -> int | None:
    """Returns the sum that is stored beside a document, of its bytes; None for a short one. Also a function of SQL."""
    return crc32(text) if len(text) >= SUMMED_BYTES else None


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
        sound = uses_cipher(connection) or connection.pragma("checksum_verification") == "1"
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
    except apsw.Error as error:
        if (translated := _translated(error)) is None:
            raise
        raise translated from error


def _translated(error: BaseException) -> StoreUnavailable | None:
    """Returns what an error of SQLite is for the caller; None if it is something else."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnavailable("The store is locked by another process.")
        case apsw.FullError():
            return StorageFull("The disk is full.", retry_after=30)
        case apsw.IOError():
            code = getattr(error, "extendedresult", apsw.SQLITE_IOERR)
            if code in _DAMAGED_READS:
                what = "a page is cut short" if code == apsw.SQLITE_IOERR_SHORT_READ else "the checksum of a page fails"
                return damaged(FILE_NAME, what)
            return StoreUnavailable(f"The store's file cannot be used: {error}.", retry_after=30)
        case apsw.CantOpenError() | apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.AuthError():
            return StoreUnavailable(f"The store's file cannot be used: {error}.", retry_after=30)
        case apsw.ConnectionClosedError():
            return StoreUnavailable("The store is closed.")
        case apsw.CorruptError() | apsw.NotADBError():
            return damaged(FILE_NAME, "its pages do not fit together")
    return None


class Faults:
    """Translates the errors of one store, and remembers the first damage that any of its connections met. Every read is
    inside a block of it: a generator there would take three times as long."""

    def __init__(self) -> None:
        self.damage: StoreDamaged | None = None

    def translated(self) -> "Faults":
        """As `translate_errors`, and remembers damage. Raises StoreDamaged at once if there was some before."""
        return self

    def __enter__(self) -> None:
        if self.damage is not None:
            raise StoreDamaged(self.damage.detail, retry_after=self.damage.retry_after)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        translated = _translated(error)
        if isinstance(damage := translated or error, StoreDamaged):
            self.note(damage)
        if translated is not None:
            raise translated from error

    def note(self, damage: StoreDamaged) -> None:
        """Remembers damage that was found elsewhere."""
        self.damage = self.damage or damage


T = TypeVar("T")

MAX_READ_BYTES = 32 << 20
PARSED_BYTES = 8
"""Of a character of JSON, once it is parsed."""


ReadKey: TypeAlias = tuple[str, str, str | int]
"""A collection, a tenant, and what was read: the id or the row of a document, `LISTS` or `PARTITIONS`."""
LISTS, PARTITIONS = -1, -2
MOST_COMMITS = 32
MOST_KEYS = 1_000


class OwnCommits:
    """What the last commits of this process changed, by their number (`count_commit`). The writer's thread notes it
    before the commit, and takes it back if that fails."""

    def __init__(self) -> None:
        self._keys: dict[int, Set[ReadKey] | None] = {}

    def note(self, commit: int, keys: Set[ReadKey] | None) -> None:
        """Notes what a commit changes; None: perhaps all, or it failed."""
        self._keys[commit] = keys if keys is None or len(keys) <= MOST_KEYS else None
        self._keys.pop(commit - MOST_COMMITS, None)

    def between(self, seen: int, commit: int) -> Iterable[ReadKey] | None:
        """Returns what the commits after `seen` changed, up to `commit`; None if others made one of them."""
        keys = [self._keys.get(number) for number in range(seen + 1, min(commit, seen + MOST_COMMITS) + 1)]
        known = [of_commit for of_commit in keys if of_commit is not None]
        return chain.from_iterable(known) if known and len(known) == commit - seen else None


class ReadCache:
    """Results of reads on one connection, up to about `MAX_READ_BYTES` of them, without those that a commit has changed
    since. After a commit of another process it is empty. Used only from the event loop's thread."""

    def __init__(self, connection: apsw.Connection, faults: Faults, own: OwnCommits) -> None:
        self._connection, self._faults, self._own = connection, faults, own
        self._held: dict[ReadKey, Any] = {}
        self._bytes = 0
        self._version: Any = None
        self._commit = 0
        self._version_known = False

    def get(self, key: ReadKey, read: Callable[[], tuple[T, int]]) -> T:
        """Returns what `read()` returns, or its result since the last commit. `read` returns the characters of JSON of
        its result, too."""
        self.renew()
        return self._get(self._held, key, read)

    def get_part(self, key: ReadKey, part: Hashable, read: Callable[[], tuple[T, int]]) -> T:
        """As `get`, for one of several results that are forgotten together."""
        self.renew()
        return self._get(self._held.setdefault(key, {}), part, read)

    def _get(self, held: dict[Any, Any], key: Hashable, read: Callable[[], tuple[T, int]]) -> T:
        if key not in held:
            with self._faults.translated():
                held[key], characters = read()
            self._count(characters)
        value: T = held[key]
        return value

    def cached(self) -> Mapping[ReadKey, Any]:
        """Returns all cached results by key. The caller may `keep` what it reads, before it awaits anything."""
        self.renew()
        return self._held

    def keep(self, key: ReadKey, result: Any, characters: int) -> None:
        """Adds a result that was made of so many characters of JSON."""
        self._held[key] = result
        self._count(characters)

    def _count(self, characters: int) -> None:
        self._bytes += 2 * ENTRY_BYTES + PARSED_BYTES * characters

    def renew(self) -> None:
        """Forgets what is no longer so, if the database has changed; looks once in each round of the event loop.

        This is safe: a commit that was acknowledged after this look was acknowledged in a later callback, and callbacks
        run in the order in which they were scheduled, thus after the one that ends the round.
        """
        if self._version_known:
            return
        with self._faults.translated():
            ((version,),) = self._connection.execute("PRAGMA data_version")  # faster than `pragma()`
            if version != self._version:
                commit = last_commit(self._connection)
                changed = self._own.between(self._commit, commit)
                self._version, self._commit = version, commit
                if changed is None:
                    self._bytes = MAX_READ_BYTES + 1
                else:
                    for key in changed:
                        self._held.pop(key, None)
        if self._bytes > MAX_READ_BYTES:
            self._held.clear()
            self._bytes = 0
        self._version_known = True
        asyncio.get_running_loop().call_soon(self._end_round)

    def _end_round(self) -> None:
        self._version_known = False


THREADS = 3

TICK_STEPS = 1_000

MAX_TICKS = 40
"""Number of ticks (of `TICK_STEPS` SQLite instructions) that a read in the event loop may take: some 2 ms."""
TICK_BYTES = 32 << 10
"""Of long documents, which take no instructions: to read as many takes as long as a tick."""

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
        self.inline.create_scalar_function("sum_of", cast(Any, self._sum_of), 1, deterministic=True)

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

    def _sum_of(self, text: Any) -> int | None:
        """As `sum_of`. Raises InterruptError where a bounded read has had its bytes of long documents."""
        if self._ticks is not None:
            self._ticks -= len(text) // TICK_BYTES + 1
            if self._ticks < 0:
                raise apsw.InterruptError
        return sum_of(text)

    async def apart(self, work: Callable[[apsw.Connection], T]) -> T:
        """Runs a read in a thread, on that thread's own connection."""

        def run() -> T:
            if not hasattr(self._local, "connection"):
                self._local.connection = self._connect()
            with self._faults.translated():
                connection: apsw.Connection = self._local.connection
                return work(connection)

        return await asyncio.get_running_loop().run_in_executor(self._threads, run)


# --- The log ----------------------------------------------------------------------------------------------------------

# The write-ahead log: its checkpoints and truncation, and the note of the last acknowledged commit.
#
# **The note** is a file beside the database, `recalld.db-commits`, so that a log whose end is missing is noticed:
# SQLite takes the first frame of the log that is wrong for its end. Every group of writes counts up by one inside its
# transaction, and once it is on the disk the count is noted. A database that counts less than the note lacks
# acknowledged writes. The note is not synced with each commit: after a power failure it may be older than the database,
# never newer.


log = logging.getLogger(__name__)

OTHERS_SECONDS = 60.0
"""The longest wait for a checkpoint that another connection runs. It copies pages, so it ends."""
PAUSE_SECONDS = 0.01
UNKNOWN_PAGES = -1
"""SQLite counts the pages of the log so if another connection runs a checkpoint."""


def checkpoint(connection: apsw.Connection, mode: str = "PASSIVE", wait_seconds: float = 0.0) -> bool:
    """Copies the log into the database. Returns False if pages were left, or if the file could not be truncated.

    `wait_seconds`: the longest wait for a checkpoint that others run, such as `truncate`; SQLite's busy timeout is not
    for these.
    """
    end = time.monotonic() + wait_seconds
    while True:
        busy, pages, copied = connection.execute(f"PRAGMA wal_checkpoint({mode})").get
        if pages != UNKNOWN_PAGES or time.monotonic() >= end:
            return not busy and bool(pages == copied)
        time.sleep(PAUSE_SECONDS)


def truncate(connection: apsw.Connection) -> bool:
    """Truncates the log. Returns False if others are using it now: waiting for them would block writers, too."""
    timeout: Any = connection.pragma("busy_timeout")
    connection.set_busy_timeout(0)
    try:
        return all(checkpoint(connection, mode) for mode in ("PASSIVE", "TRUNCATE"))
    finally:
        connection.set_busy_timeout(int(timeout))


RunOnConnection = Callable[[Callable[[apsw.Connection], bool]], Awaitable[bool]]
"""Runs a function in a thread, on a connection of that thread."""


class LogTruncation:
    """Truncates the WAL file after some idle seconds without a write. Used from one event loop."""

    def __init__(self, apart: RunOnConnection, idle_seconds: float = IDLE_SECONDS) -> None:
        self._apart, self._idle = apart, idle_seconds
        self._is_written = asyncio.Event()
        self._task = work.begin(self._run(), "truncation of the log")

    def written(self) -> None:
        """Records that this process has committed something."""
        self._is_written.set()

    async def close(self) -> None:
        """Stops. What is running in a thread ends with the readers."""
        await work.end(self._task)

    async def _run(self) -> None:
        while True:
            await self._is_written.wait()
            self._is_written.clear()
            await asyncio.sleep(self._idle)
            if self._is_written.is_set():
                continue
            try:
                done = await self._apart(truncate)
            except Exception as error:  # noqa: BLE001 (such as a full disk: it is tried again)
                log.warning("the log was not truncated", extra={"error": getattr(error, "detail", repr(error))})
                done = False
            if not done:
                self.written()


NOTE_MAGIC = b"recalld1"
_FIELDS = struct.Struct(">8sIQ")
_CHECK = struct.Struct(">I")
NOTE_BYTES = _FIELDS.size + _CHECK.size
OWNER_ONLY = 0o600
COMMITS_ROW = "recalld commits"
"""Row of `sqlite_sequence` that counts. Each insert writes the page of this table anyway."""


@dataclass(frozen=True, slots=True)
class LastCommit:
    """The last acknowledged commit of a store."""

    store: int
    commits: int

    def packed(self) -> bytes:
        fields = _FIELDS.pack(NOTE_MAGIC, self.store, self.commits)
        return fields + _CHECK.pack(crc32(fields))


def unpacked(content: bytes) -> LastCommit | None:
    if len(content) != NOTE_BYTES or crc32(content[: _FIELDS.size]) != _CHECK.unpack(content[_FIELDS.size :])[0]:
        return None
    magic, store, commits = _FIELDS.unpack(content[: _FIELDS.size])
    return LastCommit(store, commits) if magic == NOTE_MAGIC else None


def note_of(path: Path) -> Path:
    """Returns the file of the note of a database file."""
    return path.with_name(f"{path.name}-commits")


def begin_counting(connection: apsw.Connection) -> None:
    """Gives the store its number and its count, if it has none. Runs in a transaction."""
    if not connection.pragma("application_id"):
        connection.pragma("application_id", secrets.randbits(31) | 1)
    if not last_commit(connection):
        connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, 1)", (COMMITS_ROW,))


def count_commit(connection: apsw.Connection) -> int:
    """Counts one commit and returns its number. Runs in its transaction."""
    statement = "UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = ? RETURNING seq"
    return int(connection.execute(statement, (COMMITS_ROW,)).get)


def commit_state(connection: apsw.Connection) -> tuple[int, int]:
    """Returns the number of the store and of its last commit; 0 for what it does not have yet."""
    has_table = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_sequence'").fetchone()
    return int(connection.pragma("application_id")), last_commit(connection) if has_table else 0


def last_commit(connection: apsw.Connection) -> int:
    """Returns the number of the last commit; 0 if none is counted yet."""
    return connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (COMMITS_ROW,)).get or 0


class CommitNote:
    """Writes the note. Used from the writer's thread."""

    def __init__(self, connection: apsw.Connection) -> None:
        """Raises errors of SQLite, CantOpenError also if the file cannot be made or written."""
        path = Path(connection.filename)
        self._store, _ = commit_state(connection)
        try:
            self._file = os.open(note_of(path), os.O_RDWR | os.O_CREAT, OWNER_ONLY)
        except OSError as error:
            raise apsw.CantOpenError(f"{note_of(path)}: {error.strerror}") from error

    def write(self, commits: int) -> None:
        """Notes a commit that is on the disk, unless another process has noted a later one. Raises OSError."""
        known = unpacked(os.pread(self._file, NOTE_BYTES, 0))
        if known is None or known.store != self._store or known.commits < commits:
            os.pwrite(self._file, LastCommit(self._store, commits).packed(), 0)

    def close(self) -> None:
        """Syncs and closes the file."""
        with suppress(OSError):
            os.fsync(self._file)
        os.close(self._file)


def read_note(path: Path) -> LastCommit | None:
    """Returns the note about a database file, or None if there is none that can be read. Raises OSError."""
    file = note_of(path)
    return unpacked(file.read_bytes()) if file.exists() else None
