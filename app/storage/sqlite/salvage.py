"""Salvage: a copy of a damaged database in which each page is either right or unreadable, and its records.

A page or frame in which a single bit is wrong is mended where the difference of the sums says which bit it is.
"""

import asyncio
import fcntl
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeAlias

import apsw
import numpy as np
import orjson

from app.errors import StoreUnavailable
from app.storage.schema import Collection
from app.storage.sqlite import sql, statements
from app.storage.sqlite.connections import PAGE_BYTES, WITH_CHECKSUMS, connect, translate_errors
from app.storage.sqlite.log_file import BIG_ENDIAN, HEAD_BYTES, HEADER_BYTES, log_of, read_log, read_note, state
from app.storage.sqlite.pages import (
    CHECKSUM_BYTES,
    RESERVED_AT,
    StoreKey,
    WordArray,
    database_file,
    is_encrypted,
    page_size,
    sums,
    version_of,
    weights,
)
from app.storage.sqlite.pages import HEADER_BYTES as DATABASE_HEADER
from app.storage.sqlite.rewrite import BESIDE_DATABASE
from app.storage.transfer import Counter, MovableStore, Record, Rescued, Salvaged, load_each

Pages: TypeAlias = dict[int, bytes | None]
"""Contents by page number; None for a page that cannot be read."""
DAMAGE = (apsw.IOError, apsw.CorruptError, apsw.NotADBError, apsw.SQLError, orjson.JSONDecodeError)
ROWS = 1_000
BUSY_TIMEOUT_MS = 5_000
SHARED_BYTES = 510, 0x40000002
"""Length and place of the bytes of a database file that SQLite locks for readers (its file format: `SHARED_FIRST`)."""
NOTHING: WordArray = np.zeros(2, np.uint32)


def mended(words: WordArray, stored: WordArray, before: WordArray) -> WordArray | None:
    """Returns the words to which the stored sums belong, if they fit or if exactly one change of one bit makes them
    fit, else None.

    `before` are the sums so far, (0, 0) at the beginning. The sums tell the words of a low bit apart, but not always
    those of a high one.
    """
    factors, carry = weights(len(words))
    computed = sums(words[None])[0] + carry @ before
    if (computed == stored).all():
        return words
    candidates = [words] if sum(int(word).bit_count() for word in computed ^ stored) == 1 else []
    for bit in range(32):
        added = factors << np.uint32(bit)
        for is_set, difference in ((1, added), (0, -added)):
            for at in np.flatnonzero((difference == (computed - stored)[:, None]).all(0)):
                if int(words[at]) >> bit & 1 == is_set:
                    right = words.copy()
                    right[at] ^= np.uint32(1 << bit)
                    candidates.append(right)
    return candidates[0] if len(candidates) == 1 else None


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


def copy_pages(path: Path, target: Path) -> list[int]:
    """Writes the database with what its log has into a new file without a log. Returns the pages that cannot be read;
    they fail in the copy, too. Raises OSError."""
    with path.open("rb") as source:
        header = source.read(DATABASE_HEADER).ljust(DATABASE_HEADER, b"\0")
        size = page_size(header) or PAGE_BYTES
        logged, end = _logged(path, size)
        with_checksums = header[RESERVED_AT] == CHECKSUM_BYTES or version_of(header) >= WITH_CHECKSUMS
        checked = with_checksums and not is_encrypted(header)  # the cipher verifies its own codes
        total = end or -(-path.stat().st_size // size)
        lost: list[int] = []
        with target.open("wb") as result:
            for page in range(1, total + 1):
                source.seek((page - 1) * size)
                content = logged[page] if page in logged else _page(source.read(size), size, checked=checked)
                if content is None:
                    lost.append(page)
                    content = bytes(size - CHECKSUM_BYTES) + b"\xff" * CHECKSUM_BYTES
                elif checked:
                    content = _checksummed(content)
                result.write(content)
    return lost


def _page(content: bytes, size: int, *, checked: bool) -> bytes | None:
    if len(content) < size:
        return None
    if not checked:
        return content
    words = np.frombuffer(content, "<u4").astype(np.uint32)
    right = mended(words[:-2], words[-2:], NOTHING)
    return None if right is None else right.astype("<u4").tobytes() + content[-CHECKSUM_BYTES:]


def _checksummed(content: bytes) -> bytes:
    words = np.frombuffer(content, "<u4")[:-2].astype(np.uint32)
    return content[:-CHECKSUM_BYTES] + sums(words[None]).astype("<u4").tobytes()


def _logged(path: Path, size: int) -> tuple[Pages, int]:
    """Returns the newest content of the pages in the log, and the number of pages after its last commit; 0 without one.

    Frames after a broken one count if they follow each other, until the end that the note names.
    """
    file = log_of(path)
    found, note = read_log(file, size), read_note(path)
    salts = found.salts or found.begun
    number = len(found.pages)
    if note is not None and note.salts == salts:
        number = max(found.valid, min(number, note.frames))
    content = file.read_bytes() if number else b""
    order = ">u4" if found.salts and content[3] & BIG_ENDIAN else "<u4"
    latest: Pages = {}
    waiting: Pages = {}
    end, before = 0, _first_sums(content, order)
    for at in range(HEADER_BYTES, HEADER_BYTES + number * (HEAD_BYTES + size), HEAD_BYTES + size):
        head, page = content[at : at + HEAD_BYTES], content[at + HEAD_BYTES : at + HEAD_BYTES + size]
        fields = np.frombuffer(head, ">u4").astype(np.uint32)
        if _bits(fields[2:4] ^ np.array(salts, np.uint32)) > 1:
            break
        right = mended(np.frombuffer(head[:8] + page, order).astype(np.uint32), fields[4:], before)
        if right is None:
            waiting[int(fields[0])], before = None, fields[4:]
            continue
        before = sums(right[None])[0] + weights(len(right))[1] @ before
        whole = right.astype(order).tobytes()
        waiting[int.from_bytes(whole[:4], "big")] = whole[8:]
        if commit := int.from_bytes(whole[4:8], "big"):
            latest |= waiting
            waiting, end = {}, commit
    return latest, end


def _first_sums(content: bytes, order: str) -> WordArray:
    """Returns the sums of the log's header."""
    words = np.frombuffer(content[:24].ljust(24, b"\0"), order).astype(np.uint32)
    stored = np.frombuffer(content[24:HEADER_BYTES].ljust(8, b"\0"), ">u4").astype(np.uint32)
    right = mended(words, stored, NOTHING)
    return stored if right is None else sums(right[None])[0]


def _bits(words: WordArray) -> int:
    return sum(int(word).bit_count() for word in words)


class Rescue(Rescued):
    """Reads one collection, and notes what cannot be read."""

    def read(self, connection: apsw.Connection) -> Iterator[list[Record]]:
        """Yields the records that can be read."""
        known = dict(self._known(connection))
        last = max([*known, *self._last(connection)], default=0)
        for first in range(1, last + 1, ROWS):
            if found := list(self._between(connection, first, min(first + ROWS - 1, last), known)):
                yield found

    async def load(self, target: MovableStore, records: Sequence[Record]) -> None:
        """Writes records into the other store, but for those that contradict others there."""
        new, refused = await load_each(target, self.collection, records)
        self.records += new
        self.lost |= {int(record.place): str(record.doc[self.collection.id_field]) for record in refused}

    def _known(self, connection: apsw.Connection) -> Iterator[tuple[int, str]]:
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
                found: list[Any] = connection.execute(statement, (self.collection.name,)).fetchall()
                yield from (int(number or 0) for (number,) in found)
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
                yield from self._one(connection, first, known)

    def _one(self, connection: apsw.Connection, row: int, known: dict[int, str]) -> Iterator[Record]:
        """Yields the document alone. Notes the row as lost if that cannot be read, either."""
        statement = f"SELECT doc FROM {sql.quoted(self.collection.name)} WHERE row = ?"
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
    found: dict[tuple[str, str], Counter] = {}
    for order in ("ASC", "DESC"):
        statement = f"SELECT tenant, name, value FROM counters ORDER BY tenant {order}, name {order}"
        try:
            for tenant, name, value in connection.execute(statement):
                found[str(tenant), str(name)] = Counter(str(tenant), str(name), int(str(value)))
        except DAMAGE:
            continue
        return list(found.values()), True
    return list(found.values()), False


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
        lost_pages = await asyncio.to_thread(copy_pages, source, copy)
        if key is not None:
            with translate_errors(), closing(database_file(copy, key)) as file:
                lost_pages = sorted({*lost_pages, *file.bad_pages()})
        with closing(connect(copy, BUSY_TIMEOUT_MS, key)) as connection:
            note = read_note(source)
            with translate_errors():
                store, commits = state(connection)
            missing = note.commits - commits if note is not None and note.store == store else 0
            rescues = [Rescue(collection) for collection in collections]
            for rescue in rescues:
                for records in rescue.read(connection):
                    await rescue.load(target, records)
            found, whole = counters(connection)
            await target.load_counters(found)
    except OSError as error:
        raise StoreUnavailable(f"{error.filename or source}: {error.strerror}.") from error
    finally:
        for ending in ("", *BESIDE_DATABASE):
            copy.with_name(copy.name + ending).unlink(missing_ok=True)
    return Salvaged(lost_pages, max(0, missing), [*rescues], whole)
