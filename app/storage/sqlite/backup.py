"""Backup, restore, checksums for an old store, and loading of an export into the embedded store."""

import os
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path

import apsw
import orjson

from app.errors import StoreUnavailable
from app.storage.index.record_codec import PackedRecord
from app.storage.schema import Collection
from app.storage.sqlite import schema, search_rows, sql
from app.storage.sqlite.admission import reserve_of
from app.storage.sqlite.changes import insert_document
from app.storage.sqlite.connections import WITH_CHECKSUMS, connect, translate_errors, use_checksums, verifies
from app.storage.sqlite.log_file import note_of, verify
from app.storage.sqlite.pages import (
    CHECKSUM_BYTES,
    StoreKey,
    key_errors,
    open_keyed,
    refuse_mismatch,
    uses_cipher,
    write_checksums,
)
from app.storage.transfer import BackupRefused, Counter, Record

MARK = b"recalld-backup-1"
TRAILER = len(MARK) + 16 + 64
PIECE = 1 << 20


def backup(source: Path, target: Path, busy_timeout_ms: int, key: StoreKey | None = None) -> int:
    """Writes a consistent copy of the database with a checksum; of an encrypted one it has the same key. Returns its
    size in bytes.

    Raises BackupRefused if the target exists, and StoreUnavailable.
    """
    if target.exists():
        raise BackupRefused(f"{target} is there already: a backup overwrites nothing.")
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    try:
        make_private(part)  # SQLite can write into an existing file if it is empty
        with translate_errors():
            connection = connect(source, busy_timeout_ms, key)
            try:
                verify(connection)
                _copy(connection, part)
            finally:
                connection.close()
        _seal(part)
        _link(part, target)
    except OSError as error:
        raise BackupRefused(f"{target} cannot be written: {error.strerror}.") from error
    finally:
        part.unlink(missing_ok=True)
    return target.stat().st_size


def _copy(connection: apsw.Connection, target: Path) -> None:
    """Writes a compact copy with page checksums into an empty file, and syncs it."""
    if not uses_cipher(connection):
        connection.reserve_bytes("main", CHECKSUM_BYTES)  # of the copy: this file's pages stay as they are
    connection.execute("VACUUM INTO ?", (str(target),))
    with target.open("r+b") as file:
        layout = max(WITH_CHECKSUMS, schema.written(connection).layout)
        write_checksums(file, layout)  # nothing if it is encrypted
        file.flush()
        os.fsync(file.fileno())


def add_checksums(path: Path, busy_timeout_ms: int, key: StoreKey | None = None) -> bool:
    """Rewrites the database of an earlier version with page checksums. Returns False if it has them already.

    Needs the room of a second copy. A crash leaves the old file or the new one. Raises StoreUnavailable, also if
    another process uses the store.
    """
    with closing(connect(path, busy_timeout_ms, key)) as connection, translate_errors():
        schema.refuse_newer(connection)
        if verifies(connection):
            return False
        replace(path, connection, _copy)
    return True


def replace(path: Path, connection: apsw.Connection, copy: Callable[[apsw.Connection, Path], None]) -> None:
    """Replaces the database by what `copy` writes into an empty file. The connection keeps other processes out, and
    can only be closed afterwards.

    A crash leaves the old file or the new one. Raises StoreUnavailable and errors of SQLite.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        verify(connection)
        connection.pragma("locking_mode", "EXCLUSIVE")
        if connection.pragma("journal_mode", "DELETE") != "delete":
            raise StoreUnavailable("The store is used by another process.")
        connection.execute("BEGIN EXCLUSIVE")  # holds the lock until the connection is closed
        connection.execute("COMMIT")
        part.unlink(missing_ok=True)
        make_private(part)
        copy(connection, part)
        part.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise StoreUnavailable(f"{error.filename or path}: {error.strerror}.") from error
    finally:
        part.unlink(missing_ok=True)


def _seal(file: Path) -> None:
    with file.open("r+b") as opened:
        length = opened.seek(0, os.SEEK_END)
        opened.seek(0)
        digest = sha256()
        while piece := opened.read(PIECE):
            digest.update(piece)
        opened.write(MARK + f"{length:016x}{digest.hexdigest()}".encode())
        opened.flush()
        os.fsync(opened.fileno())


def _link(part: Path, target: Path) -> None:
    """Gives the complete file its final name. Never overwrites another file."""
    try:
        os.link(part, target)
    except FileExistsError:
        raise BackupRefused(f"{target} is there already: a backup overwrites nothing.") from None
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def restore(
    file: Path, directory: Path, name: str, beside: AbstractSet[str] = frozenset(), key: StoreKey | None = None
) -> int:
    """Restores a backup into a directory. Returns the size of the database in bytes.

    Raises BackupRefused if the file is damaged or not a backup, or if the directory contains anything but files named
    in `beside`. Raises StoreUnavailable if its key is not this one.
    """
    note, reserve = note_of(directory / name), reserve_of(directory / name)  # of the store that was lost
    if directory.exists() and any(one.name not in {*beside, note.name, reserve.name} for one in directory.iterdir()):
        raise BackupRefused(f"{directory} is not empty: restore into a new directory.")
    part = directory / f"{name}.part"
    try:
        length, expected = _trailer(file)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        make_private(part)
        if _copied(file, part, length) != expected:
            raise BackupRefused(f"{file} is damaged: its bytes are not those that were written.")
        look_through(part, key, file.name)
        note.unlink(missing_ok=True)
        _link(part, directory / name)
    except OSError as error:
        raise BackupRefused(f"{error.filename or file}: {error.strerror}.") from error
    finally:
        part.unlink(missing_ok=True)
    return length


def _trailer(file: Path) -> tuple[int, str]:
    with file.open("rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - TRAILER))
        trailer = opened.read()
    if len(trailer) != TRAILER or not trailer.startswith(MARK):
        raise BackupRefused(f"{file} is no backup of Recalld, or its end is missing.")
    try:
        length, digest = int(trailer[len(MARK) : -64], 16), trailer[-64:].decode()
    except ValueError:
        raise BackupRefused(f"{file} is damaged: its end cannot be read.") from None
    if length != size - TRAILER:
        raise BackupRefused(f"{file} is damaged: it should have {length + TRAILER} bytes and has {size}.")
    return length, digest


def verify_backup(file: Path) -> None:
    """Reads a backup back. Raises BackupRefused if it is none, or if one of its bytes is not as it was written."""
    try:
        length, expected = _trailer(file)
        digest, left = sha256(), length
        with file.open("rb") as opened:
            while left and (piece := opened.read(min(PIECE, left))):
                digest.update(piece)
                left -= len(piece)
    except OSError as error:
        raise BackupRefused(f"{file}: {error.strerror}.") from error
    if digest.hexdigest() != expected:
        raise BackupRefused(f"{file} is damaged: its bytes are not those that were written.")


def _copied(file: Path, target: Path, length: int) -> str:
    """Copies the first `length` bytes and returns their SHA-256."""
    digest, left = sha256(), length
    with file.open("rb") as opened, target.open("wb") as result:
        while left and (piece := opened.read(min(PIECE, left))):
            digest.update(piece)
            result.write(piece)
            left -= len(piece)
        result.flush()
        os.fsync(result.fileno())
    return digest.hexdigest()


def look_through(database: Path, key: StoreKey | None, name: str) -> None:
    """Reads every page of a database that no process uses. Raises BackupRefused if it is damaged, and StoreUnavailable,
    which names it, also if a newer version wrote it."""
    use_checksums()
    with translate_errors():
        refuse_mismatch(database, key, name)
        flags = apsw.SQLITE_OPEN_READONLY
        connection = open_keyed(database, key, flags) if key else apsw.Connection(str(database), flags=flags)
        try:
            with key_errors(name, key):
                found = connection.execute("PRAGMA quick_check").fetchall()
            schema.refuse_newer(connection, name)
        finally:
            connection.close()
    if found != [("ok",)]:
        raise BackupRefused(f"{database}: {found[0][0]}")


OWNER_ONLY = 0o600
BESIDE_DATABASE = ("-wal", "-shm", "-journal", "-commits")
"""Suffixes of the files beside a database: those of SQLite, which get the database's mode, and the note of commits."""


def make_private(database: Path, *, tighten: Callable[[Path, int], None] = Path.chmod) -> None:
    """Creates an empty file if there is none, and removes access by others from the database and the files beside it.

    If changing the mode is refused (a file of another user, a file system without modes), the mode stays. Raises
    OSError if the file cannot be created.
    """
    with suppress(
        FileExistsError
    ):  # an existing file is not opened: closing it would drop SQLite's locks of this process
        os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_EXCL, OWNER_ONLY))
    for file in (database, *(database.with_name(database.name + ending) for ending in BESIDE_DATABASE)):
        with suppress(OSError):
            if file.stat().st_mode & 0o077:
                tighten(file, OWNER_ONLY)


def export(connection: apsw.Connection, collection: Collection, after: str | None, limit: int) -> list[Record]:
    """Returns up to `limit` records after the position `after`, by row number."""
    return _records(connection, collection, "d.row > ? ORDER BY d.row LIMIT ?", (int(after or 0), limit))


def records_between(connection: apsw.Connection, collection: Collection, first: int, last: int) -> list[Record]:
    """Returns the records of these row numbers."""
    return _records(connection, collection, "d.row BETWEEN ? AND ? ORDER BY d.row", (first, last))


def _records(connection: apsw.Connection, collection: Collection, which: str, bound: tuple[int, int]) -> list[Record]:
    table = sql.quoted(collection.name)
    named: tuple[str, ...] = ()
    if collection.searched is None:
        statement = f"SELECT d.row, d.doc, NULL, NULL, NULL, NULL FROM {table} d WHERE {which}"
    else:
        named = (collection.name,)
        statement = (
            f"SELECT d.row, d.doc, s.head, s.vector, s.terms, s.facets FROM {table} d "
            "LEFT JOIN pairs p ON p.collection = ? AND p.tenant = d.tenant "
            "AND p.user = ifnull(d.user_id, '') AND p.agent = ifnull(d.agent_id, '') "
            f"LEFT JOIN {sql.search_table(collection)} s ON s.pair = p.pair AND s.row = d.row WHERE {which}"
        )
    return [
        Record(orjson.loads(doc), None if head is None else PackedRecord(head, vector, terms, facets), str(row))
        for row, doc, head, vector, terms, facets in connection.execute(statement, (*named, *bound))
    ]


def load(connection: apsw.Connection, collection: Collection, records: Sequence[Record]) -> int:
    """Inserts records, skipping existing ids. Returns the number inserted. Runs in the writer's thread."""
    writing, new = search_rows.Writing(connection), 0
    for record in records:
        tenant, doc_id = record.doc["tenant_id"], str(record.doc[collection.id_field])
        statement = f"SELECT 1 FROM {sql.quoted(collection.name)} WHERE tenant = ? AND id = ?"
        if connection.execute(statement, (tenant, doc_id)).fetchone() is not None:
            continue
        row = insert_document(connection, collection, record.doc)
        if record.packed is not None:
            writing.take_in(collection, record.doc, row, record.packed)
        new += 1
    writing.close()
    return new


def counters(connection: apsw.Connection) -> list[Counter]:
    """Returns all counters."""
    found = connection.execute("SELECT tenant, name, value FROM counters")
    return [Counter(str(tenant), str(name), int(value)) for tenant, name, value in found]


def load_counters(connection: apsw.Connection, given: Sequence[Counter], *, only: bool = False) -> None:
    """Raises the counters to these values; `only` makes them exactly these. Runs in the writer's thread."""
    if only:
        connection.execute("DELETE FROM counters")
    statement = "INSERT INTO counters VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = max(value, excluded.value)"
    for counter in given:
        connection.execute(statement, (counter.tenant, counter.name, counter.value))


def make_folder(path: Path) -> None:
    """Makes the folder of a database file and makes the file private. Raises CantOpenError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        make_private(path)
    except OSError as error:
        raise apsw.CantOpenError(f"{error.filename or path}: {error.strerror}") from error
