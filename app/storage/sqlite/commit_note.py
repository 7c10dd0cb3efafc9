"""A file beside the database that notes the last acknowledged commit, so that a log whose end is missing is noticed.

Every group of writes counts up by one inside its transaction. Once the group is on the disk, the count is noted in
`recalld.db-commits`, with the end of the log. A database that counts less than the note lacks acknowledged writes. The
note is not synced with each commit: after a power failure it may be older than the database, never newer.
"""

import os
import secrets
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import apsw

from app.storage.sqlite.log_file import Salts, frame_salts, log_of

MAGIC = b"recalld1"
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
        fields = _FIELDS.pack(MAGIC, self.store, self.commits, *self.salts, self.frames)
        return fields + _CHECK.pack(crc32(fields))


def unpacked(content: bytes) -> LastCommit | None:
    """Returns the note, or None if the bytes are none."""
    if len(content) != NOTE_BYTES or crc32(content[: _FIELDS.size]) != _CHECK.unpack(content[_FIELDS.size :])[0]:
        return None
    magic, store, commits, first, second, frames = _FIELDS.unpack(content[: _FIELDS.size])
    return LastCommit(store, commits, Salts(first, second), frames) if magic == MAGIC else None


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
