"""The write-ahead log: its frames, its checkpoints and truncation, and the note of the last commit in it.

**Checkpoints.** SQLite verifies the checksums of the log only when it recovers after a crash, so each checkpoint
verifies them here: otherwise a damaged frame would be copied into the database and get a valid checksum there.
Format: https://sqlite.org/fileformat.html#walformat

**The note** is a file beside the database that names the last acknowledged commit, so that a log whose end is missing
is noticed. Every group of writes counts up by one inside its transaction. Once the group is on the disk, the count is
noted in `recalld.db-commits`, with the end of the log. A database that counts less than the note lacks acknowledged
writes. The note is not synced with each commit: after a power failure it may be older than the database, never newer.
"""

import asyncio
import logging
import os
import secrets
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

import apsw
import numpy as np
from numpy.typing import NDArray

from app.errors import StoreUnavailable
from app.storage.sqlite.connections import IDLE_SECONDS, PAGE_BYTES, damaged
from app.storage.sqlite.pages import PIECE_BYTES, WordArray, sums, weights

CHECKPOINT_PAGES = 6_000
"""Pages in the log after which a commit is followed by a checkpoint."""
HEADER_BYTES, HEAD_BYTES = 32, 24
MAGIC, BIG_ENDIAN = 0x377F0682, 1
RETRIES = 5

log = logging.getLogger(__name__)


class Salts(NamedTuple):
    """Two numbers that the frames of one generation of the log share. They change when the log begins anew."""

    first: int
    second: int


@dataclass(frozen=True, slots=True)
class LogContent:
    """The frames of a log file, one array entry each. A frame is `whole` if its checksum and its salts fit."""

    salts: Salts | None
    """None if the header is missing or damaged."""
    begun: Salts | None
    """The salts of the first frame."""
    pages: NDArray[np.int64]
    commits: NDArray[np.bool_]
    whole: NDArray[np.bool_]

    @property
    def valid(self) -> int:
        """Number of frames before the first one that is not whole. SQLite reads no frame after it."""
        broken = np.flatnonzero(~self.whole)
        return 0 if self.salts is None else int(broken[0]) if len(broken) else len(self.whole)

    @property
    def goes_on(self) -> bool:
        """Whether a later transaction follows the first broken frame.

        Each transaction is on the disk before the next one begins, so the broken frame was damaged later. A broken
        frame of the last transaction may just be what a crash left.
        """
        if self.salts is None:
            return False
        after = np.flatnonzero(self.whole[self.valid :])
        ends = np.flatnonzero((self.commits & self.whole)[self.valid :])
        return bool(len(ends)) and bool(after[-1] > ends[0])


def log_of(path: Path) -> Path:
    """Returns the log file of a database file."""
    return path.with_name(f"{path.name}-wal")


def read_log(file: Path, page_bytes: int = PAGE_BYTES) -> LogContent:
    """Reads a log file; `page_bytes` is used if its header is damaged. A missing file has no frames. Raises OSError."""
    with file.open("rb") if file.exists() else BytesIO() as opened:
        header = np.frombuffer(opened.read(HEADER_BYTES).ljust(HEADER_BYTES, b"\0"), ">u4").astype(np.uint32)
        order = ">u4" if int(header[0]) & BIG_ENDIAN else "<u4"
        own = sums(header[None, :6].astype(">u4").view(order).astype(np.uint32))[0]
        sound = int(header[0]) | BIG_ENDIAN == MAGIC | BIG_ENDIAN and bool((own == header[6:]).all())
        page_bytes = int(header[2]) if sound else page_bytes
        heads, added = _frames(opened, page_bytes, order)
    salts = Salts(int(header[4]), int(header[5])) if sound else None
    begun = Salts(int(heads[0, 2]), int(heads[0, 3])) if len(heads) else None
    before = np.concatenate([header[None, 6:], heads[:-1, 4:]])[: len(heads)]
    carry = weights(2 + page_bytes // 4)[1]
    fits = (added + before @ carry.T == heads[:, 4:]).all(1)
    alike = (heads[:, 2:4] == np.array(salts or begun or (0, 0), np.uint32)).all(1)
    return LogContent(salts, begun, heads[:, 0].astype(np.int64), heads[:, 1] > 0, fits & alike)


def _frames(opened: BinaryIO, page_bytes: int, order: str) -> tuple[WordArray, WordArray]:
    """Returns the fields in the heads of all frames, and what each frame adds to the checksum: the first 8 bytes of its
    head, and its page."""
    size = HEAD_BYTES + page_bytes
    heads, added = [np.zeros((0, 6), np.uint32)], [np.zeros((0, 2), np.uint32)]
    while number := len(content := opened.read(max(1, PIECE_BYTES // size) * size)) // size:
        frames = np.frombuffer(content, np.uint8, number * size).reshape(number, size)
        heads.append(frames[:, :HEAD_BYTES].copy().view(">u4").astype(np.uint32))
        words = np.concatenate([frames[:, :8], frames[:, HEAD_BYTES:]], 1).view(order)
        added.append(sums(words.astype(np.uint32, copy=False)))
    return np.concatenate(heads), np.concatenate(added)


def read_salts(file: Path) -> Salts | None:
    """Returns the salts in the header of a log, or None if there is none. Raises OSError."""
    try:
        with file.open("rb") as opened:
            header = opened.read(HEADER_BYTES)
    except FileNotFoundError:
        return None
    if len(header) < HEADER_BYTES:
        return None
    return Salts(int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big"))


def frame_salts(file: Path, frame: int, page_bytes: int) -> Salts | None:
    """Returns the salts of a frame, counted from 1, or None if it is not there. Raises OSError."""
    with file.open("rb", buffering=0) as opened:
        opened.seek(HEADER_BYTES + (frame - 1) * (HEAD_BYTES + page_bytes))
        head = opened.read(HEAD_BYTES)
    return Salts(*(int(one) for one in np.frombuffer(head, ">u4")[2:4])) if len(head) == HEAD_BYTES else None


def verify(connection: apsw.Connection) -> None:
    """Verifies the frames that a checkpoint would copy. Raises StoreDamaged, OSError and errors of SQLite."""
    file = Path(connection.filename_wal)
    for _ in range(RETRIES):
        salts = read_salts(file)
        pages, copied = _log_pages(connection, "NOOP")[1:]
        if pages <= copied:
            return
        found = read_log(file)
        if found.valid >= pages:
            return
        if salts == read_salts(file):  # otherwise another process began the log anew while it was read
            raise damaged(file.name, f"page {found.valid + 1} of {pages} in the log has a wrong checksum")


def checkpoint(connection: apsw.Connection, mode: str = "PASSIVE") -> bool:
    """Copies the log into the database. Returns False if pages were left, or if the file could not be truncated.

    Raises StoreDamaged if the log is damaged; nothing was copied then.
    """
    verify(connection)
    busy, pages, copied = _log_pages(connection, mode)
    return not busy and pages == copied


def _log_pages(connection: apsw.Connection, mode: str) -> tuple[int, int, int]:
    found: Any
    (found,) = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
    return int(found[0]), int(found[1]), int(found[2])


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
_FIELDS = struct.Struct(">8sIQIII")
_CHECK = struct.Struct(">I")
NOTE_BYTES = _FIELDS.size + _CHECK.size
OWNER_ONLY = 0o600
NAME = "recalld commits"
"""Row of `sqlite_sequence` that counts. Each insert writes the page of this table anyway."""


@dataclass(frozen=True, slots=True)
class LastCommit:
    """The last acknowledged commit of a store, and the number of frames in the log at that moment."""

    store: int
    commits: int
    salts: Salts
    frames: int

    def packed(self) -> bytes:
        """Returns the note as bytes with a checksum."""
        fields = _FIELDS.pack(NOTE_MAGIC, self.store, self.commits, *self.salts, self.frames)
        return fields + _CHECK.pack(crc32(fields))


def unpacked(content: bytes) -> LastCommit | None:
    """Returns the note, or None if the bytes are none."""
    if len(content) != NOTE_BYTES or crc32(content[: _FIELDS.size]) != _CHECK.unpack(content[_FIELDS.size :])[0]:
        return None
    magic, store, commits, first, second, frames = _FIELDS.unpack(content[: _FIELDS.size])
    return LastCommit(store, commits, Salts(first, second), frames) if magic == NOTE_MAGIC else None


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
    found: Any = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (NAME,)).fetchone()
    return 0 if found is None else int(found[0])


class CommitNote:
    """Writes the note. Used from the writer's thread."""

    def __init__(self, connection: apsw.Connection) -> None:
        """Raises errors of SQLite, CantOpenError also if the file cannot be made or written."""
        path = Path(connection.filename)
        self._log, self._page_bytes = log_of(path), int(connection.pragma("page_size"))
        self._store, _ = state(connection)
        try:
            self._file = os.open(note_of(path), os.O_RDWR | os.O_CREAT, OWNER_ONLY)
        except OSError as error:
            raise apsw.CantOpenError(f"{note_of(path)}: {error.strerror}") from error

    def write(self, commits: int, frames: int) -> None:
        """Notes a commit that is on the disk and the frame at which it ends, unless another process has noted a later
        one. Raises OSError.

        The salts are those of that frame: the header may be of a log that another process has begun anew meanwhile.
        """
        known = unpacked(os.pread(self._file, NOTE_BYTES, 0))
        if known is not None and known.store == self._store and known.commits >= commits:
            return
        salts = frame_salts(self._log, frames, self._page_bytes) or Salts(0, 0)
        os.pwrite(self._file, LastCommit(self._store, commits, salts, frames).packed(), 0)

    def sync(self) -> None:
        """Writes the note to the disk. Raises OSError."""
        os.fsync(self._file)

    def close(self) -> None:
        """Syncs and closes the file."""
        with suppress(OSError):
            self.sync()
        os.close(self._file)


def read_note(path: Path) -> LastCommit | None:
    """Returns the note about a database file, or None if there is none that can be read. Raises OSError."""
    file = note_of(path)
    return unpacked(file.read_bytes()) if file.exists() else None
