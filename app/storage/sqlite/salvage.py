"""Salvage: the records that can be read of a damaged database. A page whose checksum is wrong cannot, nor what follows
the first damaged page of the log."""

import asyncio
import fcntl
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import apsw
import orjson

from app.errors import StoreDamaged, StoreUnavailable
from app.storage.schema import Collection
from app.storage.sqlite import sql, statements
from app.storage.sqlite.check import bad_pages
from app.storage.sqlite.connections import connect, log_of, translate_errors
from app.storage.sqlite.encryption import StoreKey
from app.storage.sqlite.log_file import read_note, state
from app.storage.sqlite.rewrite import BESIDE_DATABASE
from app.storage.transfer import Counter, MovableStore, Record, Rescued, Salvaged, load_each

DAMAGE = (apsw.IOError, apsw.CorruptError, apsw.NotADBError, apsw.SQLError, orjson.JSONDecodeError, StoreDamaged)
ROWS = 1_000
BUSY_TIMEOUT_MS = 5_000
SHARED_BYTES = 510, 0x40000002
"""Length and place of the bytes of a database file that SQLite locks for readers (its file format: `SHARED_FIRST`)."""


def refuse_if_used(path: Path) -> None:
    """Raises StoreUnavailable if a process has the database open: pages that it writes meanwhile would be torn in the
    copy. SQLite holds the shared bytes of a file for as long as a connection in WAL mode is open. Whoever may not write
    the file cannot ask."""
    with suppress(FileNotFoundError, PermissionError), path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, *SHARED_BYTES)
        except BlockingIOError:
            raise StoreUnavailable(
                f"{path} is in use by another process: stop every service and command of this store first. "
                "Nothing was written.",
                retry_after=None,
            ) from None


def copy_files(path: Path, copy: Path) -> None:
    """Copies a database and its log. Raises OSError."""
    shutil.copy(path, copy)
    if log_of(path).exists():
        shutil.copy(log_of(path), log_of(copy))


class Rescue(Rescued):
    """Reads one collection, and notes what cannot be read."""

    def read(self, connection: apsw.Connection) -> Iterator[list[Record]]:
        """Yields the records that can be read."""
        known = dict(self._indexed(connection))
        last = max([*known, *self._last(connection)], default=0)
        for first in range(1, last + 1, ROWS):
            if records := list(self._between(connection, first, min(first + ROWS - 1, last), known)):
                yield records

    async def load(self, target: MovableStore, records: Sequence[Record]) -> None:
        """Writes records into the other store, but for those that contradict others there."""
        new, refused = await load_each(target, self.collection, records)
        self.records += new
        self.lost |= {int(record.place): str(record.doc[self.collection.id_field]) for record in refused}

    def _indexed(self, connection: apsw.Connection) -> Iterator[tuple[int, str]]:
        """Yields row numbers and ids by the index, from both ends."""
        name = sql.quoted(self.collection.name)
        index = sql.quoted(f"{self.collection.name}_id")
        for order in ("ASC", "DESC"):
            statement = f"SELECT row, id FROM {name} INDEXED BY {index} ORDER BY tenant {order}, id {order}"
            try:
                yield from ((int(row), str(doc_id)) for row, doc_id in connection.execute(statement))
            except DAMAGE:
                continue
            return

    def _last(self, connection: apsw.Connection) -> Iterator[int]:
        newest = f"SELECT max(row) FROM {sql.quoted(self.collection.name)} WHERE ? > ''"
        for statement in ("SELECT seq FROM sqlite_sequence WHERE name = ?", newest):
            try:
                rows: list[Any] = connection.execute(statement, (self.collection.name,)).fetchall()
                yield from (int(number or 0) for (number,) in rows)
            except DAMAGE:
                continue

    def _between(self, connection: apsw.Connection, first: int, last: int, known: dict[int, str]) -> Iterator[Record]:
        try:
            yield from statements.records_between(connection, self.collection, first, last)
        except DAMAGE:
            if first < last:
                middle = (first + last) // 2
                yield from self._between(connection, first, middle, known)
                yield from self._between(connection, middle + 1, last, known)
            else:
                yield from self._read_alone(connection, first, known)

    def _read_alone(self, connection: apsw.Connection, row: int, known: dict[int, str]) -> Iterator[Record]:
        """Yields the document alone. Notes the row as lost if that cannot be read, either."""
        statement = f"SELECT {sql.WHOLE_DOC} FROM {sql.quoted(self.collection.name)} WHERE row = ?"
        try:
            texts: list[Any] = connection.execute(statement, (row,)).fetchall()
            for (text,) in texts:
                doc = orjson.loads(text)
                self.unindexed.append((doc["tenant_id"], str(doc[self.collection.id_field])))
                yield Record(doc, None, str(row))
        except (*DAMAGE, KeyError, TypeError):
            self.lost[row] = known.get(row, "")


def counters(connection: apsw.Connection) -> tuple[list[Counter], bool]:
    """Returns the counters that can be read, and whether these are all."""
    readable: dict[tuple[str, str], Counter] = {}
    for order in ("ASC", "DESC"):
        statement = f"SELECT tenant, name, value FROM counters ORDER BY tenant {order}, name {order}"
        try:
            for tenant, name, value in connection.execute(statement):
                readable[str(tenant), str(name)] = Counter(str(tenant), str(name), int(str(value)))
        except DAMAGE:
            continue
        return list(readable.values()), True
    return list(readable.values()), False


async def salvage(
    source: Path,
    directory: Path,
    collections: Sequence[Collection],
    target: MovableStore,
    key: StoreKey | None = None,
) -> Salvaged:
    """Writes what can be read of a database into another store. `directory` takes the copy for as long as this runs.

    The source is only read; no process may use it. Raises StoreDamaged if not even its tables can be read, and
    StoreUnavailable.
    """
    copy = directory / f"{source.name}.salvaged"
    try:
        await asyncio.to_thread(copy_files, source, copy)
        lost_pages = await asyncio.to_thread(bad_pages, copy, key=key)
        with closing(connect(copy, BUSY_TIMEOUT_MS, key)) as connection:
            note = read_note(source)
            with translate_errors():
                store, commits = state(connection)
            missing = note.commits - commits if note is not None and note.store == store else 0
            rescues = [Rescue(collection) for collection in collections]
            for rescue in rescues:
                for records in rescue.read(connection):
                    await rescue.load(target, records)
            readable, whole = counters(connection)
            await target.load_counters(readable)
    except OSError as error:
        raise StoreUnavailable(f"{error.filename or source}: {error.strerror}.") from error
    finally:
        for ending in ("", *BESIDE_DATABASE):
            copy.with_name(copy.name + ending).unlink(missing_ok=True)
    return Salvaged(lost_pages, max(0, missing), [*rescues], whole)
