"""Checks of an embedded store.

`prepare` looks for damage before a store is served: the count of commits, and the pages' checksums.
`verify_rest` goes on with the checksums while it is served. `deep` and `findings` are the checks of `recalld doctor`:
integrity of the database, and agreement of search rows, partitions and usage with documents.
"""

import asyncio
import logging
import struct
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import orjson

from app.errors import StoreDamaged, StoreUnavailable
from app.storage.index.partitions import code, flags_at, model_at
from app.storage.index.record_codec import TERM, head_dtype, holds_windows
from app.storage.protocol import MAX_NAMED, Finding
from app.storage.schema import Collection
from app.storage.sqlite import log_file, schema, sql, usage
from app.storage.sqlite.connections import PAGE_BYTES, Faults, connect, damaged, log_of, translate_errors
from app.storage.sqlite.encryption import StoreKey, uses_cipher
from app.storage.sqlite.log_file import checkpoint, checkpoint_after_others, note_of, read_note
from app.storage.sqlite.schema import migrate, refuse_newer
from app.storage.text import LONG
from app.storage.usage import differences

USAGE = "usage"


def deep(connection: apsw.Connection, collections: Sequence[Collection]) -> list[Finding]:
    """Returns the findings of all checks. Reads every row."""
    messages = (str(message) for (message,) in connection.execute("PRAGMA integrity_check"))
    database = _finding("database", (message for message in messages if message != "ok"))
    findings = [database, Finding("version", True, str(schema.written(connection)))]
    for collection in collections:
        findings.append(_finding(f"{collection.name}: documents", _bad_documents(connection, collection)))
        if collection.searched:
            findings.append(_finding(f"{collection.name}: search rows", _bad_rows(connection, collection)))
            findings.append(_finding(f"{collection.name}: pairs", _bad_partitions(connection, collection)))
    findings.append(_finding(USAGE, _bad_usage(connection, collections)))
    return findings


def _bad_usage(connection: apsw.Connection, collections: Sequence[Collection]) -> Iterator[str]:
    """Yields tenants whose stored usage is not what they have."""
    with connection:  # one state of the database: others may write
        yield from differences(usage.stored(connection), usage.counted(connection, collections))


def _finding(name: str, faults: Iterator[str]) -> Finding:
    named: list[str] = []
    try:
        named.extend(faults)
    except (apsw.IOError, apsw.CorruptError, apsw.NotADBError) as error:
        named.insert(0, f"cannot be read to the end: {error}")
    return Finding.of(name, named)


def _bad_documents(connection: apsw.Connection, collection: Collection) -> Iterator[str]:
    """Yields documents that cannot be read, or whose columns differ from their content."""
    fields = ", ".join(sql.quoted(name) for name in ("tenant", "id", *collection.columns))
    statement = f"SELECT {sql.WHOLE_DOC}, {fields} FROM {sql.quoted(collection.name)}"
    for text, tenant, doc_id, *stored in connection.execute(statement):
        try:
            doc = orjson.loads(text)
        except orjson.JSONDecodeError:
            doc = None
        if not isinstance(doc, dict):
            yield f"{doc_id} is no JSON object"
            continue
        if [tenant, doc_id] != [doc.get("tenant_id"), doc.get(collection.id_field)]:
            yield f"{doc_id} lies under another id or tenant"
        if stored != sql.row_values(collection, doc):
            yield f"{doc_id} has columns that differ from its document"


def _bad_rows(connection: apsw.Connection, collection: Collection) -> Iterator[str]:
    table, documents = sql.search_table(collection), sql.quoted(collection.name)
    # a long text has several windows, and its vector says how many
    vectors = (
        f"SELECT row, substr(head, {flags_at(collection.spec) + 1}, 1), length(vector), substr(vector, -1) "
        f"FROM {table} WHERE head IS NOT NULL AND vector IS NOT NULL"
    )
    for row, flags, length, count in connection.execute(vectors):
        if flags and flags[0] & LONG and not (count and holds_windows(length, count[0])):
            yield f"search rows with a vector that does not fit their record: {row}"
    size = head_dtype(len(collection.spec.ranges)).itemsize
    checks = {
        "search rows without a document": (
            f"SELECT s.row FROM {table} s LEFT JOIN {documents} d ON d.row = s.row "
            "WHERE s.head IS NOT NULL AND d.row IS NULL"
        ),
        "documents without a search row": (
            f"SELECT d.id FROM {documents} d WHERE NOT EXISTS (SELECT 1 FROM pairs p JOIN {table} s "
            "ON s.pair = p.pair AND s.row = d.row WHERE s.head IS NOT NULL AND p.tenant = d.tenant "
            "AND p.collection = ? AND p.user = ifnull(d.user_id, '') AND p.agent = ifnull(d.agent_id, ''))"
        ),
        "kept vectors without a search row": (
            f"SELECT k.row FROM kept_vectors k JOIN pairs p ON p.pair = k.pair LEFT JOIN {table} s "
            "ON s.pair = k.pair AND s.row = k.row WHERE p.collection = ? AND s.head IS NULL"
        ),
        "search rows of a wrong size": (
            f"SELECT row FROM {table} WHERE head IS NOT NULL AND "
            f"(length(head) <> {size} OR length(terms) % {TERM.itemsize} OR length(facets) % 8)"
        ),
    }
    for name, statement in checks.items():
        for (which,) in connection.execute(statement, (collection.name,) if "?" in statement else ()):
            yield f"{name}: {which}"


def _bad_partitions(connection: apsw.Connection, collection: Collection) -> Iterator[str]:
    table = sql.search_table(collection)
    statement = (
        "SELECT p.pair, p.count, count(s.head), p.version, ifnull(max(s.rev), 0) FROM pairs p "
        f"LEFT JOIN {table} s ON s.pair = p.pair WHERE p.collection = ? GROUP BY p.pair"
    )
    for partition, count, there, version, newest in connection.execute(statement, (collection.name,)):
        if count != there:
            yield f"pair {partition} counts {count} rows and has {there}"
        if newest > version:
            yield f"pair {partition} is at version {version} and holds a row of {newest}"
    # a partition that has vectors of one model only says which
    models = (
        f"SELECT DISTINCT p.pair, p.model, substr(s.head, {model_at(collection.spec) + 1}, 4) FROM pairs p "
        f"JOIN {table} s ON s.pair = p.pair WHERE p.collection = ? AND p.model <> 0 AND s.head IS NOT NULL"
    )
    for partition, model, stored in connection.execute(models, (collection.name,)):
        if stored != code(model):
            yield f"pair {partition} holds a row of another embedding model than it says"


PAGES_AT_START = 32_768
"""Pages that are verified before a store is served: the first 256 MiB. The others are verified while it is served."""
PAUSE_SECONDS = 0.05
RETRIES = 5
BUSY_TIMEOUT_MS = 5_000
UNREADABLE = (apsw.IOError, apsw.CorruptError, apsw.NotADBError)
ZEROS = bytes(PAGE_BYTES)
LOCKED_PAGE = (1 << 30) // PAGE_BYTES + 1
"""SQLite locks bytes of this page, and never writes it."""
log = logging.getLogger(__name__)


def prepare(
    path: Path,
    collections: Sequence[Collection],
    busy_timeout_ms: int,
    key: StoreKey | None,
    *,
    logs: bool = True,
) -> None:
    """Looks for damage, then makes or migrates the tables. The change log begins anew if changes are not logged, and in
    a copy of a store, such as a restored backup: what was in the log later is not in it.

    Raises StoreDamaged and StoreUnavailable. Nothing was written if acknowledged writes are missing or a newer version
    wrote the store, and nothing but what the log has if a page is damaged.
    """
    with closing(connect(path, busy_timeout_ms, key)) as connection, translate_errors():
        refuse_newer(connection)
        missing = missing_commits(path, connection)
        if missing:
            raise damaged(log_of(path).name, missing)
        checkpoint(connection)  # a page of which the power failed in the middle is in the log
        pages = bad_pages(path, 1, PAGES_AT_START + 1, key)
        if pages:
            raise damaged(path.name, named_pages(pages))
        if last_page(connection) <= PAGES_AT_START:
            faults = structure_faults(connection)
            if faults:
                raise damaged(path.name, faults)
        migrate(connection, collections, keeps_log=logs and note_of(path).exists())
        checkpoint(connection)


def structure_faults(connection: apsw.Connection) -> str:
    """Returns the first fault in how the pages hang together; empty if there is none. Two pages that have
    changed places have right checksums each."""
    faults: Any = connection.execute("PRAGMA integrity_check(1)").fetchall()
    return "" if faults == [("ok",)] else f"its pages do not fit together: {str(faults[0][0]).splitlines()[-1]}"


def missing_commits(path: Path, connection: apsw.Connection) -> str:
    """Returns how many acknowledged commits the store lacks, in words; empty if it has all of them."""
    try:
        note = read_note(path)  # read first: a commit is stored before it is noted
    except OSError as error:
        log.warning("the note of the last commit cannot be read", extra={"error": str(error)})
        return ""
    if note is None and note_of(path).exists() and note_of(path).stat().st_size:
        log.warning("the note of the last commit is damaged: a log whose end is missing would not be noticed")
    store, commits = log_file.state(connection)
    if note is None or note.store != store or note.commits <= commits:
        return ""
    return (
        f"{note.commits - commits} acknowledged commits are missing (if {path.name} was replaced by an older copy "
        f"on purpose, delete {note_of(path).name})"
    )


def bad_pages(path: Path, first: int = 1, end: int | None = None, key: StoreKey | None = None) -> list[int]:
    """Returns the pages of the file from `first` until before `end` that are not as they were written.

    A page may fail because a checkpoint is writing it just now, or because one was cut short; then the log has it. So
    what fails is read again after a checkpoint.
    """
    with translate_errors(), closing(connect(path, BUSY_TIMEOUT_MS, key)) as connection:
        failing = failing_pages(connection, range(first, min(last_page(connection) + 1, end or sys.maxsize)))
    for _ in range(RETRIES):
        if not failing:
            break
        time.sleep(PAUSE_SECONDS)
        with translate_errors(), closing(connect(path, BUSY_TIMEOUT_MS, key)) as connection:
            checkpoint_after_others(connection, "PASSIVE")
            failing = failing_pages(connection, failing)
    return failing


def last_page(connection: apsw.Connection) -> int:
    """Returns the number of pages in the file of the database. SQLite refuses a file that has less than it counts."""
    return Path(connection.filename).stat().st_size // PAGE_BYTES


def failing_pages(connection: apsw.Connection, pages: Iterable[int] | None = None) -> list[int]:
    """Returns those of the pages (None: of all) that fail as they are in the file, which is read past SQLite's cache
    and its log: the checksum or code is wrong, or the page is zeros, whose checksum is zero, and no free page.

    An encrypted database cannot be read through the connection any more after a page has failed.
    """
    failing, zeros = list[int](), list[int]()
    for page in range(1, last_page(connection) + 1) if pages is None else pages:
        try:  # one page at a time: neither `cksumvfs` nor the cipher looks at longer reads
            is_there, content = connection.read("main", 0, (page - 1) * PAGE_BYTES, PAGE_BYTES)
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
    _, header = connection.read("main", 0, 0, PAGE_BYTES)
    trunk, count = struct.unpack_from(">II", header, 32)
    free = set[int]()
    while trunk and trunk not in free:
        try:
            _, content = connection.read("main", 0, (trunk - 1) * PAGE_BYTES, PAGE_BYTES)
            following, leaves = struct.unpack_from(">II", content)
            free |= {trunk, *struct.unpack_from(f">{leaves}I", content, 8)}
        except (*UNREADABLE, struct.error):
            return set()
        trunk = following
    return free if len(free) == count else set()


async def verify_rest(path: Path, faults: Faults, step: int = PAGES_AT_START, key: StoreKey | None = None) -> None:
    """Verifies the pages after the first `step`, as many at a time, while the store is served. Notes damage in
    `faults`."""
    first = step + 1
    try:
        while await asyncio.to_thread(_verify_step, path, first, step, key):
            first += step
    except StoreDamaged as error:
        faults.note(error)
        log.critical(error.detail)
    except StoreUnavailable as error:
        log.warning("pages were not verified", extra={"error": error.detail})


def _verify_step(path: Path, first: int, step: int, key: StoreKey | None) -> bool:
    """Verifies `step` pages. Returns whether there are more. Raises StoreDamaged."""
    if path.stat().st_size < first * PAGE_BYTES:
        return False
    pages = bad_pages(path, first, first + step, key)
    if pages:
        raise damaged(path.name, named_pages(pages))
    return True


def named_pages(pages: Sequence[int]) -> str:
    """Returns the number of damaged pages and the first of them."""
    more = ", …" if len(pages) > MAX_NAMED else ""
    return f"{len(pages)} pages are not as they were written ({', '.join(map(str, pages[:MAX_NAMED]))}{more})"


def findings(path: Path, key: StoreKey | None = None) -> list[Finding]:
    """Returns what the files of a store show: the log, and the pages' checksums. Raises StoreUnavailable, also if the
    key is not that of the store."""
    try:
        with closing(connect(path, BUSY_TIMEOUT_MS, key)) as connection, translate_errors():
            missing = missing_commits(path, connection)
            # a log whose end is missing stays as it is
            pages = failing_pages(connection) if missing else bad_pages(path, key=key)
            if pages:
                what = named_pages(pages)
            else:
                right = "encrypted; the codes" if uses_cipher(connection) else "the checksums"
                what = f"{right} of {path.stat().st_size // PAGE_BYTES} pages are right"
    except StoreDamaged as error:
        return [Finding(path.name, ok=False, detail=error.detail)]
    return [Finding(log_of(path).name, not missing, missing or "whole"), Finding(path.name, not pages, what)]
