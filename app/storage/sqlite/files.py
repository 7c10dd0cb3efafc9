"""The files of an embedded store: checked, rewritten, backed up and salvaged.

`prepare` looks for damage before a store is served: the count of commits, and the pages' checksums.
`verify_rest` goes on with the checksums while it is served. `deep` and `findings` are the checks of `recalld doctor`:
integrity of the database, and agreement of search rows, partitions and usage with documents.
"""

import asyncio
import fcntl
import logging
import os
import re
import shutil
import struct
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import apsw
import orjson

from app.core.files import sync_folder
from app.errors import StoreDamaged, StoreUnavailable
from app.storage.changes import differences
from app.storage.index.record_codec import TERM, code, flags_at, head_dtype, holds_windows, model_at
from app.storage.protocol import MAX_NAMED, Finding, Told, telling, untold
from app.storage.schema import Collection
from app.storage.sqlite import connections, sql
from app.storage.sqlite.search_rows import records_where
from app.storage.sqlite.writer import OWNER_ONLY, DiskSpace, counted_usage, reserve_of, stored_usage
from app.storage.text import LONG
from app.storage.transfer import BackupRefused, Counter, MovableStore, Record, Rescued, Salvaged, load_each


def deep(connection: apsw.Connection, collections: Sequence[Collection], told: Told) -> list[Finding]:
    """Returns the findings of all checks. Reads every row."""

    def finding(name: str, faults: Iterator[str]) -> Finding:
        told(name, 0, None)
        named: list[str] = []
        try:
            named.extend(faults)
        except UNREADABLE as error:
            named.insert(0, f"cannot be read to the end: {error}")
        return Finding.of(name, named)

    messages = (str(message) for (message,) in connection.execute("PRAGMA integrity_check"))
    database = finding("database", (message for message in messages if message != "ok"))
    findings = [database, Finding("version", True, str(sql.written(connection)))]
    for collection in collections:
        documents, rows = f"{collection.name}: documents", f"{collection.name}: search rows"
        findings.append(finding(documents, _bad_documents(connection, collection, documents, told)))
        if collection.searched:
            findings.append(finding(rows, _bad_rows(connection, collection, rows, told)))
            findings.append(finding(f"{collection.name}: partitions", _bad_partitions(connection, collection)))
    findings.append(finding("usage", _bad_usage(connection, collections)))
    return findings


def _bad_usage(connection: apsw.Connection, collections: Sequence[Collection]) -> Iterator[str]:
    """Yields tenants whose stored usage is not what they have."""
    with connection:  # one state of the database: others may write
        yield from differences(stored_usage(connection), counted_usage(connection, collections))


def _bad_documents(connection: apsw.Connection, collection: Collection, name: str, told: Told) -> Iterator[str]:
    """Yields documents that cannot be read, or whose columns differ from their content."""
    fields = ", ".join(sql.quoted(name) for name in ("tenant", "id", *collection.columns))
    statement = f"SELECT {sql.WHOLE_DOC}, {fields} FROM {sql.quoted(collection.name)}"
    total = connection.execute(f"SELECT count(*) FROM {sql.quoted(collection.name)}").get
    for text, tenant, doc_id, *stored in telling(told, name, total, connection.execute(statement)):
        try:
            doc = orjson.loads(text)
        except orjson.JSONDecodeError:
            doc = None
        if not isinstance(doc, dict):
            yield f"{doc_id} is no JSON object"
            continue
        if [tenant, doc_id] != [doc.get("tenant_id"), doc.get(collection.id_field)]:
            yield f"{doc_id} lies under another id or tenant"
        if stored != sql.values_of(doc, collection.columns):
            yield f"{doc_id} has columns that differ from its document"


def _bad_rows(connection: apsw.Connection, collection: Collection, name: str, told: Told) -> Iterator[str]:
    table, documents = sql.search_table(collection), sql.quoted(collection.name)
    # a long text has several windows, and its vector says how many
    vectors = (
        f"SELECT row, substr(head, {flags_at(collection.spec) + 1}, 1), length(vector), substr(vector, -1) "
        f"FROM {table} WHERE head IS NOT NULL AND vector IS NOT NULL"
    )
    total = connection.execute(f"SELECT count(*) FROM {table}").get
    for row, flags, length, count in telling(told, name, total, connection.execute(vectors)):
        if flags and flags[0] & LONG and not (count and holds_windows(length, count[0])):
            yield f"search rows with a vector that does not fit their record: {row}"
    size = head_dtype(len(collection.spec.ranges)).itemsize
    checks = {
        "search rows without a document": (
            f"SELECT s.row FROM {table} s LEFT JOIN {documents} d ON d.row = s.row "
            "WHERE s.head IS NOT NULL AND d.row IS NULL"
        ),
        "documents without a search row": (
            f"SELECT d.id FROM {documents} d WHERE NOT EXISTS (SELECT 1 FROM partitions p JOIN {table} s "
            "ON s.partition = p.partition AND s.row = d.row WHERE s.head IS NOT NULL AND p.tenant = d.tenant "
            "AND p.collection = ? AND p.user = ifnull(d.user_id, '') AND p.agent = ifnull(d.agent_id, ''))"
        ),
        "kept vectors without a search row": (
            f"SELECT k.row FROM kept_vectors k JOIN partitions p ON p.partition = k.partition LEFT JOIN {table} s "
            "ON s.partition = k.partition AND s.row = k.row WHERE p.collection = ? AND s.head IS NULL"
        ),
        "search rows of a wrong size": (
            f"SELECT row FROM {table} WHERE head IS NOT NULL AND "
            f"(length(head) <> {size} OR length(terms) % {TERM.itemsize} OR length(facets) % 8)"
        ),
    }
    for fault, statement in checks.items():
        told(f"{collection.name}: {fault}", 0, None)
        for (which,) in connection.execute(statement, (collection.name,) if "?" in statement else ()):
            yield f"{fault}: {which}"


def _bad_partitions(connection: apsw.Connection, collection: Collection) -> Iterator[str]:
    table = sql.search_table(collection)
    statement = (
        "SELECT p.partition, p.count, count(s.head), p.version, ifnull(max(s.rev), 0) FROM partitions p "
        f"LEFT JOIN {table} s ON s.partition = p.partition WHERE p.collection = ? GROUP BY p.partition"
    )
    for partition, count, there, version, newest in connection.execute(statement, (collection.name,)):
        if count != there:
            yield f"partition {partition} counts {count} rows and has {there}"
        if newest > version:
            yield f"partition {partition} is at version {version} and holds a row of {newest}"
    # a partition that has vectors of one model only says which
    models = (
        f"SELECT DISTINCT p.partition, p.model, substr(s.head, {model_at(collection.spec) + 1}, 4) FROM partitions p "
        f"JOIN {table} s ON s.partition = p.partition WHERE p.collection = ? AND p.model <> 0 AND s.head IS NOT NULL"
    )
    for partition, model, stored in connection.execute(models, (collection.name,)):
        if stored != code(model):
            yield f"partition {partition} holds a row of another embedding model than it says"


PAGES_AT_START = 32_768
"""Pages that are verified before a store is served: the first 256 MiB. The others are verified while it is served."""
PAUSE_SECONDS = 0.05
RETRIES = 5
BUSY_TIMEOUT_MS = 5_000
UNREADABLE = (apsw.IOError, apsw.CorruptError, apsw.NotADBError)
ZEROS = bytes(connections.PAGE_BYTES)
LOCKED_PAGE = (1 << 30) // connections.PAGE_BYTES + 1
"""SQLite locks bytes of this page, and never writes it."""
log = logging.getLogger(__name__)


def prepare(
    path: Path,
    collections: Sequence[Collection],
    busy_timeout_ms: int,
    key: connections.StoreKey | None,
    *,
    logs: bool = True,
) -> None:
    """Looks for damage, then makes or migrates the tables. The change log begins anew if changes are not logged, and in
    a copy of a store, such as a restored backup: what was in the log later is not in it.

    Raises StoreDamaged and StoreUnavailable. Nothing was written if acknowledged writes are missing or a newer version
    wrote the store, and nothing but what the log has if a page is damaged.
    """
    with closing(connections.connect(path, busy_timeout_ms, key)) as connection, connections.translate_errors():
        sql.refuse_newer(connection)
        missing = missing_commits(path, connection)
        if missing:
            raise connections.damaged(connections.log_of(path).name, missing)
        connections.checkpoint(connection)  # a page of which the power failed in the middle is in the log
        pages = bad_pages(path, 1, PAGES_AT_START + 1, key)
        if pages:
            raise connections.damaged(path.name, named_pages(pages))
        if last_page(connection) <= PAGES_AT_START:
            faults = structure_faults(connection)
            if faults:
                raise connections.damaged(path.name, faults)
        sql.migrate(connection, collections, keeps_log=logs and connections.note_of(path).exists())
        connections.checkpoint(connection)


def structure_faults(connection: apsw.Connection) -> str:
    """Returns the first fault in how the pages hang together; empty if there is none. Two pages that have
    changed places have right checksums each."""
    faults: Any = connection.execute("PRAGMA integrity_check(1)").fetchall()
    return "" if faults == [("ok",)] else f"its pages do not fit together: {str(faults[0][0]).splitlines()[-1]}"


def missing_commits(path: Path, connection: apsw.Connection) -> str:
    """Returns how many acknowledged commits the store lacks, in words; empty if it has all of them."""
    try:
        note = connections.read_note(path)  # read first: a commit is stored before it is noted
    except OSError as error:
        log.warning("the note of the last commit cannot be read", extra={"error": str(error)})
        return ""
    if note is None and connections.note_of(path).exists() and connections.note_of(path).stat().st_size:
        log.warning("the note of the last commit is damaged: a log whose end is missing would not be noticed")
    store, commits = connections.commit_state(connection)
    if note is None or note.store != store or note.commits <= commits:
        return ""
    return (
        f"{note.commits - commits} acknowledged commits are missing (if {path.name} was replaced by an older copy "
        f"on purpose, delete {connections.note_of(path).name})"
    )


def bad_pages(
    path: Path, first: int = 1, end: int | None = None, key: connections.StoreKey | None = None, told: Told = untold
) -> list[int]:
    """Returns the pages of the file from `first` until before `end` that are not as they were written.

    A page may fail because a checkpoint is writing it just now, or because one was cut short; then the log has it. So
    what fails is read again after a checkpoint.
    """
    with connections.translate_errors(), closing(connections.connect(path, BUSY_TIMEOUT_MS, key)) as connection:
        pages = range(first, min(last_page(connection) + 1, end or sys.maxsize))
        failing = failing_pages(connection, telling(told, f"{path.name}: pages", len(pages), pages))
    for _ in range(RETRIES):
        if not failing:
            break
        time.sleep(PAUSE_SECONDS)
        with connections.translate_errors(), closing(connections.connect(path, BUSY_TIMEOUT_MS, key)) as connection:
            connections.checkpoint(connection, "PASSIVE", connections.OTHERS_SECONDS)
            failing = failing_pages(connection, failing)
    return failing


def last_page(connection: apsw.Connection) -> int:
    """Returns the number of pages in the file of the database. SQLite refuses a file that has less than it counts."""
    return Path(connection.filename).stat().st_size // connections.PAGE_BYTES


def failing_pages(connection: apsw.Connection, pages: Iterable[int] | None = None) -> list[int]:
    """Returns those of the pages (None: of all) that fail as they are in the file, which is read past SQLite's cache
    and its log: the checksum or code is wrong, or the page is zeros, whose checksum is zero, and no free page.

    An encrypted database cannot be read through the connection any more after a page has failed.
    """
    failing, zeros = list[int](), list[int]()
    for page in range(1, last_page(connection) + 1) if pages is None else pages:
        try:  # one page at a time: neither `cksumvfs` nor the cipher looks at longer reads
            is_there, content = connection.read("main", 0, (page - 1) * connections.PAGE_BYTES, connections.PAGE_BYTES)
        except UNREADABLE:
            failing.append(page)
        else:
            if is_there and content == ZEROS and page != LOCKED_PAGE:
                zeros.append(page)
    free = _free_pages(connection) if zeros else set()
    return sorted([*failing, *(page for page in zeros if page not in free)])


def _free_pages(connection: apsw.Connection) -> set[int]:
    """Returns the pages that the file's list of free pages names: trunks, each with its leaves. The file's, since the
    log may have given some of them to a table. Empty if the list is not whole.
    Source: https://www.sqlite.org/fileformat2.html#the_freelist"""
    _, header = connection.read("main", 0, 0, connections.PAGE_BYTES)
    trunk, count = struct.unpack_from(">II", header, 32)
    free = set[int]()
    while trunk and trunk not in free:
        try:
            _, content = connection.read("main", 0, (trunk - 1) * connections.PAGE_BYTES, connections.PAGE_BYTES)
            following, leaves = struct.unpack_from(">II", content)
            free |= {trunk, *struct.unpack_from(f">{leaves}I", content, 8)}
        except (*UNREADABLE, struct.error):
            return set()
        trunk = following
    return free if len(free) == count else set()


async def verify_rest(
    path: Path, faults: connections.Faults, step: int = PAGES_AT_START, key: connections.StoreKey | None = None
) -> None:
    """Verifies the pages after the first `step`, as many at a time, while the store is served. Notes damage in
    `faults`."""
    first = step + 1
    try:
        while await asyncio.to_thread(os.path.getsize, path) >= first * connections.PAGE_BYTES:
            pages = await asyncio.to_thread(bad_pages, path, first, first + step, key)
            if pages:
                raise connections.damaged(path.name, named_pages(pages))
            first += step
    except StoreDamaged as error:
        faults.note(error)
        log.critical(error.detail)
    except StoreUnavailable as error:
        log.warning("pages were not verified", extra={"error": error.detail})


def named_pages(pages: Sequence[int]) -> str:
    """Returns the number of damaged pages and the first of them."""
    more = ", …" if len(pages) > MAX_NAMED else ""
    return f"{len(pages)} pages are not as they were written ({', '.join(map(str, pages[:MAX_NAMED]))}{more})"


def findings(path: Path, key: connections.StoreKey | None = None, told: Told = untold) -> list[Finding]:
    """Returns what the files of a store show: the log, and the pages' checksums. Raises StoreUnavailable, also if the
    key is not that of the store."""
    try:
        with closing(connections.connect(path, BUSY_TIMEOUT_MS, key)) as connection, connections.translate_errors():
            missing = missing_commits(path, connection)
            # a log whose end is missing stays as it is
            pages = failing_pages(connection) if missing else bad_pages(path, key=key, told=told)
            if pages:
                what = named_pages(pages)
            else:
                right = "encrypted; the codes" if connections.uses_cipher(connection) else "the checksums"
                what = f"{right} of {path.stat().st_size // connections.PAGE_BYTES} pages are right"
    except StoreDamaged as error:
        return [Finding(path.name, ok=False, detail=error.detail)]
    return [
        Finding(connections.log_of(path).name, not missing, missing or "whole"),
        Finding(path.name, not pages, what),
    ]


# --- Rewriting --------------------------------------------------------------------------------------------------------

# The whole file, with another key or without deleted bytes. If it is interrupted, the store is as it was before or as
# it is afterwards.

BESIDE_DATABASE = ("-wal", "-shm", "-journal", "-commits")
"""Suffixes of the files beside a database: those of SQLite, which get the database's mode, and the note of commits."""
FRAME_HEADER_BYTES = 24
"""Of a page in the log."""
LEAST_WAIT_MS = 5_000
"""Waits at least this long for readers of other processes to finish."""


@contextmanager
def part_of(target: Path) -> Iterator[Path]:
    """Yields an empty private file beside the target, into which SQLite can write. If it still has this name in the
    end, it is deleted. Raises OSError."""
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    try:
        make_private(part)
        yield part
    finally:
        part.unlink(missing_ok=True)


def look_through(database: Path, key: connections.StoreKey | None, name: str) -> None:
    """Reads every page of a database that no process uses, and looks whether they fit together. Raises BackupRefused,
    which names it, if it is damaged, and StoreUnavailable, also if a newer version wrote it."""
    connections.use_checksums()
    with connections.translate_errors():
        connections.refuse_mismatch(database, key, name)
        flags = apsw.SQLITE_OPEN_READWRITE  # whoever only reads leaves the files of an empty log behind
        opened = connections.open_keyed(database, key, flags) if key else apsw.Connection(str(database), flags=flags)
        with closing(opened) as connection:
            with connections.key_errors(name, key):
                connection.pragma("user_version")
            pages = failing_pages(connection)
            faults = named_pages(pages) if pages else structure_faults(connection)
            if faults:
                raise BackupRefused(f"{name} is damaged: {faults}.")
            sql.refuse_newer(connection, name)


def make_private(database: Path) -> None:
    """Creates an empty file if there is none, and removes access by others from the database and the files beside it.

    If changing the mode is refused (a file of another user, a file system without modes), the mode stays. Raises
    OSError if the file cannot be created.
    """
    # an existing file is not opened: closing it would drop SQLite's locks of this process
    with suppress(FileExistsError):
        os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_EXCL, OWNER_ONLY))
    for file in (database, *(database.with_name(database.name + ending) for ending in BESIDE_DATABASE)):
        with suppress(OSError):
            if file.stat().st_mode & 0o077:
                file.chmod(OWNER_ONLY)


def make_folder(path: Path) -> int:
    """Makes the folder of a database file and makes the file private. Returns the folder as `hold_folder` opens it.
    Raises StoreUnavailable and CantOpenError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        held = hold_folder(path.parent)
        make_private(path)
    except OSError as error:
        raise apsw.CantOpenError(f"{error.filename or path}: {error.strerror}") from error
    return held


def hold_folder(folder: Path, *, alone: bool = False) -> int:
    """Opens a folder and locks it until it is closed. All processes with a store there hold it together, whatever
    becomes of its files; who restores a backup into it is `alone`. Raises StoreUnavailable and OSError."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_NB | (fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
    except BlockingIOError:
        os.close(opened)
        who = "a service or command has a store there" if alone else "a backup is restored into it"
        raise StoreUnavailable(f"{folder} is in use by another process: {who}. Nothing was written.") from None
    except OSError as error:  # a file system without such locks
        log.warning("the data directory cannot be locked", extra={"error": str(error)})
    return opened


def scrub(path: Path, busy_timeout_ms: int, space: DiskSpace, key: connections.StoreKey | None) -> None:
    """Rewrites the database without deleted bytes. Runs while this process writes nothing.

    The new pages are in the log first, so as many bytes must be free as the database uses. Raises StorageFull if they
    are not, even with those kept back, and StoreUnavailable if another process keeps the log open.
    """
    with closing(connections.connect(path, max(busy_timeout_ms, LEAST_WAIT_MS), key)) as connection:
        connection.pragma("temp_store", "FILE")  # the copy may not fit in memory; of an encrypted store it is encrypted
        pages = int(connection.pragma("page_count")) - int(connection.pragma("freelist_count"))
        log_bytes = (pages + 1) * (connections.PAGE_BYTES + FRAME_HEADER_BYTES)  # every page that is in use
        with space.room_for(log_bytes, "overwrite what was deleted"):
            connection.execute("VACUUM").fetchall()
            if not connections.checkpoint(connection, "TRUNCATE", connections.OTHERS_SECONDS):
                raise StoreUnavailable("Another process still reads what was deleted: please try again.")


def rekey(path: Path, key: connections.StoreKey | None, new: connections.StoreKey, busy_timeout_ms: int) -> None:
    """Writes the database anew, encrypted with the key `new`, and puts it in the place of the old file.

    `key` is the key of the store as it is, None if it is not encrypted. Needs the room of a second copy. A crash leaves
    the old file or the new one. Raises StoreUnavailable, also if another process uses the store.
    """
    connections.cipher_layer()  # before anything is done
    if key == new:
        raise StoreUnavailable("This is the key that the store has.")
    flags = connections.OPEN_FLAGS | apsw.SQLITE_OPEN_URI
    with closing(connections.connect(path, busy_timeout_ms, key, flags)) as connection, connections.translate_errors():
        # this connection is the only one until it is closed, and the log is empty
        connection.pragma("locking_mode", "EXCLUSIVE")
        if connection.pragma("journal_mode", "DELETE") != "delete":
            raise StoreUnavailable("The store is used by another process.")
        connection.execute("BEGIN EXCLUSIVE")  # holds the lock until the connection is closed
        connection.execute("COMMIT")
        try:
            with part_of(path) as part:
                encrypted = f"vfs={connections.cipher_layer()}&cipher={connections.CIPHER}&key={quote(new.pragma)}"
                try:
                    connection.execute("VACUUM INTO ?", (f"{part.absolute().as_uri()}?{encrypted}",))
                except apsw.CantOpenError:
                    raise apsw.CantOpenError(str(part)) from None  # SQLite's own message quotes the key
                look_through(part, new, part.name)
                with part.open("r+b") as file:
                    os.fsync(file.fileno())
                part.replace(path)
            sync_folder(path.parent)
        except OSError as error:
            raise StoreUnavailable(f"{error.filename or path}: {error.strerror}.") from error


# --- Backups ----------------------------------------------------------------------------------------------------------

MARK = b"recalld-backup-1"
TRAILER = len(MARK) + 16 + 64
PIECE = 1 << 20
_FORM = "recalld-%Y%m%dT%H%M%SZ.backup"

_NAME = re.compile(r"recalld-\d{8}T\d{6}Z\.backup")


def backup(source: Path, target: Path, busy_timeout_ms: int, key: connections.StoreKey | None = None) -> int:
    """Writes a consistent copy of the database with a checksum; of an encrypted one it has the same key. Returns its
    size in bytes.

    Raises BackupRefused if the target exists, and if what was copied is damaged; and StoreUnavailable.
    """
    if target.exists():
        raise BackupRefused(f"{target} is there already: a backup overwrites nothing.")
    try:
        with part_of(target) as part:
            with (
                connections.translate_errors(),
                closing(connections.connect(source, busy_timeout_ms, key)) as connection,
            ):
                # the database is copied page by page into an empty file, while others write
                # `cksumvfs` learns from the first page of a file that it has checksums: before it writes others
                connections.create(part, 0, key)
                with closing(connections.open_file(part, 0, key)) as copy:
                    copy.pragma("user_version")  # reads the first page
                    copy.pragma("journal_mode", "OFF")  # a copy that fails is deleted
                    with copy.backup("main", connection, "main") as run:
                        run.step()
            look_through(part, key, f"the copy of {source.name}")
            with part.open("r+b") as opened:
                length = opened.seek(0, os.SEEK_END)
                opened.seek(0)
                digest = _digest(opened, length)
                opened.write(MARK + f"{length:016x}{digest}".encode())
                opened.flush()
                os.fsync(opened.fileno())
            _link(part, target)
    except OSError as error:
        raise BackupRefused(f"{target} cannot be written: {error.strerror}.") from error
    return target.stat().st_size


def _link(part: Path, target: Path) -> None:
    """Gives the complete file its final name. Never overwrites another file."""
    try:
        os.link(part, target)
    except FileExistsError:
        raise BackupRefused(f"{target} is there already: a backup overwrites nothing.") from None
    sync_folder(target.parent)


def restore(
    file: Path,
    directory: Path,
    name: str,
    beside: AbstractSet[str] = frozenset(),
    key: connections.StoreKey | None = None,
) -> int:
    """Restores a backup into a directory. Returns the size of the database in bytes.

    Raises BackupRefused if the file is damaged or not a backup, or if the directory contains anything but files named
    in `beside`. Raises StoreUnavailable if its key is not this one, and if a process holds the directory: it would go
    on writing into the store that was there before.
    """
    note, reserve = connections.note_of(directory / name), reserve_of(directory / name)  # of the store that was lost
    if directory.exists() and any(
        entry.name not in {*beside, note.name, reserve.name} for entry in directory.iterdir()
    ):
        raise BackupRefused(f"{directory} is not empty: restore into a new directory.")
    try:
        length, expected = _trailer(file)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with ExitStack() as held:
            held.callback(os.close, hold_folder(directory, alone=True))
            part = held.enter_context(part_of(directory / name))
            with file.open("rb") as opened, part.open("wb") as result:
                digest = _digest(opened, length, result)
                result.flush()
                os.fsync(result.fileno())
            if digest != expected:
                raise BackupRefused(f"{file} is damaged: its bytes are not those that were written.")
            look_through(part, key, file.name)
            note.unlink(missing_ok=True)
            _link(part, directory / name)
    except OSError as error:
        raise BackupRefused(f"{error.filename or file}: {error.strerror}.") from error
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
        with file.open("rb") as opened:
            digest = _digest(opened, length)
    except OSError as error:
        raise BackupRefused(f"{file}: {error.strerror}.") from error
    if digest != expected:
        raise BackupRefused(f"{file} is damaged: its bytes are not those that were written.")


def _digest(source: BinaryIO, length: int, copy: BinaryIO | None = None) -> str:
    """Reads `length` bytes, writes them into `copy` and returns their SHA-256."""
    digest, left = sha256(), length
    while left and (piece := source.read(min(PIECE, left))):
        digest.update(piece)
        left -= len(piece)
        if copy is not None:
            copy.write(piece)
    return digest.hexdigest()


def next_file(folder: Path, now: datetime) -> Path:
    """Returns the file for a backup made now, and makes the folder. Raises BackupRefused."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise BackupRefused(f"{folder} cannot be used as a folder: {error.strerror}.") from error
    return folder / now.astimezone(UTC).strftime(_FORM)


def dated(folder: Path) -> list[tuple[datetime, Path]]:
    """Returns the files of the folder that are named like backups, each with the time in its name, the oldest first.
    Raises BackupRefused."""
    backups: list[tuple[datetime, Path]] = []
    try:
        for file in folder.iterdir():
            if _NAME.fullmatch(file.name) and file.is_file() and not file.is_symlink():
                with suppress(ValueError):  # a name with a 32nd day
                    backups.append((datetime.strptime(file.name, _FORM).replace(tzinfo=UTC), file))
    except OSError as error:
        raise BackupRefused(f"{folder} cannot be read: {error.strerror}.") from error
    return sorted(backups)


def chosen(folder: Path, at: datetime | None) -> Path:
    """Returns the newest backup of the folder that was begun at `at` or before it; the newest of all without `at`.

    Raises BackupRefused if there is none.
    """
    there = dated(folder)
    fitting = [file for time, file in there if at is None or time <= at]
    if fitting:
        return fitting[-1]
    if there:
        raise BackupRefused(f"{folder} has no backup from {at} or before; the oldest is {there[0][1].name}.")
    raise BackupRefused(f"{folder} has no dated backup, as `recalld backup --keep` makes them.")


def prune(new: Path, keep: int) -> list[Path]:
    """Verifies the backup `new`, then deletes all but the newest `keep` backups of its folder. Returns what it deleted.

    Deletes only whole backups of Recalld: any other file stays, whatever its name, and does not count. Raises
    BackupRefused, before anything was deleted, if `new` cannot be read back.
    """
    verify_backup(new)
    older = [file for _, file in reversed(dated(new.parent)) if file != new]
    whole = [file for file in older if _is_whole(file)]
    gone = whole[max(0, keep - 1) :]
    for file in gone:
        file.unlink(missing_ok=True)
    return gone


def _is_whole(file: Path) -> bool:
    try:
        verify_backup(file)
    except BackupRefused:
        return False
    return True


# --- Salvage ----------------------------------------------------------------------------------------------------------

# The records that can be read of a damaged database. A page whose checksum is wrong cannot, nor what follows the first
# damaged page of the log.

DAMAGE = (*UNREADABLE, apsw.SQLError, orjson.JSONDecodeError, StoreDamaged)
ROWS_AT_ONCE = 1_000
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


class Rescue(Rescued):
    """Reads one collection, and notes what cannot be read."""

    def read(self, connection: apsw.Connection) -> Iterator[list[Record]]:
        known = dict(self._indexed(connection))
        last = max([*known, *self._last(connection)], default=0)
        for first in range(1, last + 1, ROWS_AT_ONCE):
            if records := list(self._between(connection, first, min(first + ROWS_AT_ONCE - 1, last), known)):
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
            yield from records_where(connection, self.collection, "d.row BETWEEN ? AND ? ORDER BY d.row", (first, last))
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


def readable_counters(connection: apsw.Connection) -> tuple[list[Counter], bool]:
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
    key: connections.StoreKey | None = None,
) -> Salvaged:
    """Writes what can be read of a database into another store. `directory` takes the copy for as long as this runs.

    The source is only read; no process may use it. Raises StoreDamaged if not even its tables can be read, and
    StoreUnavailable.
    """
    copy = directory / f"{source.name}.salvaged"
    try:
        await asyncio.to_thread(shutil.copy, source, copy)
        if connections.log_of(source).exists():
            await asyncio.to_thread(shutil.copy, connections.log_of(source), connections.log_of(copy))
        lost_pages = await asyncio.to_thread(bad_pages, copy, key=key)
        with closing(connections.connect(copy, BUSY_TIMEOUT_MS, key)) as connection:
            note = connections.read_note(source)
            with connections.translate_errors():
                store, commits = connections.commit_state(connection)
            missing = note.commits - commits if note is not None and note.store == store else 0
            rescues = [Rescue(collection) for collection in collections]
            for rescue in rescues:
                for records in rescue.read(connection):
                    await rescue.load(target, records)
            readable, whole = readable_counters(connection)
            await target.load_counters(readable)
    except OSError as error:
        raise StoreUnavailable(f"{error.filename or source}: {error.strerror}.") from error
    finally:
        for ending in ("", *BESIDE_DATABASE):
            copy.with_name(copy.name + ending).unlink(missing_ok=True)
    return Salvaged(lost_pages, max(0, missing), [*rescues], whole)
