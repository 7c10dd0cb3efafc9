"""The write-ahead log: its checkpoints and truncation, and the note of the last acknowledged commit.

**The note** is a file beside the database, `recalld.db-commits`, so that a log whose end is missing is noticed: SQLite
takes the first frame of the log that is wrong for its end. Every group of writes counts up by one inside its
transaction, and once it is on the disk the count is noted. A database that counts less than the note lacks acknowledged
writes. The note is not synced with each commit: after a power failure it may be older than the database, never newer.
"""

import asyncio
import logging
import os
import secrets
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import apsw

from app.errors import StoreUnavailable
from app.storage.sqlite.connections import IDLE_SECONDS

log = logging.getLogger(__name__)

OTHERS_SECONDS = 60
"""The longest wait for a checkpoint that another connection runs. It copies pages, so it ends."""
PAUSE_SECONDS = 0.01
UNKNOWN_PAGES = -1
"""SQLite counts the pages of the log so if another connection runs a checkpoint."""


def checkpoint(connection: apsw.Connection, mode: str = "PASSIVE") -> bool:
    """Copies the log into the database. Returns False if pages were left, or if the file could not be truncated."""
    return _checkpointed(connection, mode).done


def checkpoint_after_others(connection: apsw.Connection, mode: str) -> bool:
    """As `checkpoint`, after those that others run, such as `truncate`: SQLite's busy timeout is not for these. Returns
    False if a reader or writer stayed longer than the busy timeout."""
    end = time.monotonic() + OTHERS_SECONDS
    while (found := _checkpointed(connection, mode)).pages == UNKNOWN_PAGES and time.monotonic() < end:
        time.sleep(PAUSE_SECONDS)
    return found.done


class _Checkpointed(NamedTuple):
    """Whether others were in the way, the pages of the log, and how many of them are in the database."""

    busy: int
    pages: int
    copied: int

    @property
    def done(self) -> bool:
        return not self.busy and self.pages == self.copied


def _checkpointed(connection: apsw.Connection, mode: str) -> _Checkpointed:
    answer: Any
    (answer,) = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
    return _Checkpointed(*answer)


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
        except StoreUnavailable as error:  # such as a full disk: it is tried again
            log.warning("the log was not truncated", extra={"error": error.detail})
        except Exception:
            log.exception("the log was not truncated")
        self._task = None
        if not done or self._last_write != begun:
            self._wait(self._idle)


NOTE_MAGIC = b"recalld1"
_FIELDS = struct.Struct(">8sIQ")
_CHECK = struct.Struct(">I")
NOTE_BYTES = _FIELDS.size + _CHECK.size
OWNER_ONLY = 0o600
NAME = "recalld commits"
"""Row of `sqlite_sequence` that counts. Each insert writes the page of this table anyway."""


@dataclass(frozen=True, slots=True)
class LastCommit:
    """The last acknowledged commit of a store."""

    store: int
    commits: int

    def packed(self) -> bytes:
        """Returns the note as bytes with a checksum."""
        fields = _FIELDS.pack(NOTE_MAGIC, self.store, self.commits)
        return fields + _CHECK.pack(crc32(fields))


def unpacked(content: bytes) -> LastCommit | None:
    """Returns the note, or None if the bytes are none."""
    if len(content) != NOTE_BYTES or crc32(content[: _FIELDS.size]) != _CHECK.unpack(content[_FIELDS.size :])[0]:
        return None
    magic, store, commits = _FIELDS.unpack(content[: _FIELDS.size])
    return LastCommit(store, commits) if magic == NOTE_MAGIC else None


def note_of(path: Path) -> Path:
    """Returns the file of the note of a database file."""
    return path.with_name(f"{path.name}-commits")


def begin(connection: apsw.Connection) -> None:
    """Gives the store its number and its count, if it has none. Runs in a transaction."""
    if not connection.pragma("application_id"):
        connection.pragma("application_id", secrets.randbits(31) | 1)
    if not _count(connection):
        connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, 1)", (NAME,))


def count_up(connection: apsw.Connection) -> int:
    """Counts one commit and returns its number. Runs in its transaction."""
    statement = "UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = ? RETURNING seq"
    number: Any
    ((number,),) = connection.execute(statement, (NAME,)).fetchall()
    return int(number)


def state(connection: apsw.Connection) -> tuple[int, int]:
    """Returns the number of the store and of its last commit; 0 for what it does not have yet."""
    has_table = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_sequence'").fetchone()
    return int(connection.pragma("application_id")), _count(connection) if has_table else 0


def _count(connection: apsw.Connection) -> int:
    row: Any = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (NAME,)).fetchone()
    return 0 if row is None else int(row[0])


class CommitNote:
    """Writes the note. Used from the writer's thread."""

    def __init__(self, connection: apsw.Connection) -> None:
        """Raises errors of SQLite, CantOpenError also if the file cannot be made or written."""
        path = Path(connection.filename)
        self._store, _ = state(connection)
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
