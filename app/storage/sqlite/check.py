"""Checks of an embedded store.

`prepare` looks for damage before a store is served: the log's end, the count of commits, and the pages' checksums.
`verify_rest` goes on with the checksums while it is served. `deep` and `findings` are the checks of `recalld doctor`:
integrity of the database, and agreement of search rows, partitions and usage with documents.
"""

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import apsw
import orjson

from app.errors import StoreDamaged, StoreUnavailable
from app.storage.changes import differences
from app.storage.index.partitions import code, flags_at, model_at
from app.storage.index.record_codec import TERM, head_dtype, holds_windows
from app.storage.protocol import MAX_NAMED, Finding
from app.storage.schema import Collection, Doc
from app.storage.sqlite import changes, log_file, schema, sql
from app.storage.sqlite.connections import WITH_CHECKSUMS, Faults, connect, damaged, translate_errors, verifies
from app.storage.sqlite.log_file import RETRIES, LastCommit, checkpoint, log_of, note_of, read_log, read_note
from app.storage.sqlite.pages import EncryptedFile, StoreKey, database_file
from app.storage.sqlite.schema import migrate, refuse_newer
from app.storage.text import LONG

USAGE = "usage"


def deep(connection: apsw.Connection, collections: Sequence[Collection]) -> list[Finding]:
    """Returns the findings of all checks. Reads every row."""
    findings = [_finding("database", _integrity(connection)), Finding("version", True, str(schema.written(connection)))]
    for collection in collections:
        findings.append(_finding(f"{collection.name}: documents", _bad_documents(connection, collection)))
        if collection.searched:
            findings.append(_finding(f"{collection.name}: search rows", _bad_rows(connection, collection)))
            findings.append(_finding(f"{collection.name}: pairs", _bad_pairs(connection, collection)))
    findings.append(_finding(USAGE, _bad_usage(connection, collections)))
    return findings


def _bad_usage(connection: apsw.Connection, collections: Sequence[Collection]) -> Iterator[str]:
    """Yields tenants whose stored usage is not what they have."""
    with connection:  # one state of the database: others may write
        yield from differences(changes.stored(connection), changes.counted(connection, collections))


def _integrity(connection: apsw.Connection) -> Iterator[str]:
    said = (str(line) for (line,) in connection.execute("PRAGMA integrity_check"))
    return (line for line in said if line != "ok")


def _finding(name: str, faults: Iterator[str]) -> Finding:
    found: list[str] = []
    try:
        found.extend(faults)
    except (apsw.IOError, apsw.CorruptError, apsw.NotADBError) as error:
        found.insert(0, f"cannot be read to the end: {error}")
    return Finding.of(name, found)


def _bad_documents(connection: apsw.Connection, collection: Collection) -> Iterator[str]:
    """Yields documents that cannot be read, or whose columns differ from their content."""
    fields = ", ".join(sql.quoted(name) for name in ("tenant", "id", *collection.columns))
    statement = f"SELECT doc, {fields} FROM {sql.quoted(collection.name)}"
    for text, tenant, doc_id, *stored in connection.execute(statement):
        doc = _read(text)
        if doc is None:
            yield f"{doc_id} is no JSON object"
            continue
        if [tenant, doc_id] != [doc.get("tenant_id"), doc.get(collection.id_field)]:
            yield f"{doc_id} lies under another id or tenant"
        if stored != sql.row_values(collection, doc):
            yield f"{doc_id} has columns that differ from its document"


def _read(text: str) -> Doc | None:
    try:
        doc = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return doc if isinstance(doc, dict) else None


def _bad_rows(connection: apsw.Connection, collection: Collection) -> Iterator[str]:
    table, documents = sql.search_table(collection), sql.quoted(collection.name)
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
    yield from _bad_vectors(connection, collection)
    for name, statement in checks.items():
        for (which,) in connection.execute(statement, (collection.name,) if "?" in statement else ()):
            yield f"{name}: {which}"


def _bad_vectors(connection: apsw.Connection, collection: Collection) -> Iterator[str]:
    """Yields rows of long texts whose number of windows does not fit their vector."""
    statement = (
        f"SELECT row, substr(head, {flags_at(collection.spec) + 1}, 1), length(vector), substr(vector, -1) "
        f"FROM {sql.search_table(collection)} WHERE head IS NOT NULL AND vector IS NOT NULL"
    )
    for row, flags, length, count in connection.execute(statement):
        if flags and flags[0] & LONG and not (count and holds_windows(length, count[0])):
            yield f"search rows with a vector that does not fit their record: {row}"


def _bad_pairs(connection: apsw.Connection, collection: Collection) -> Iterator[str]:
    table = sql.search_table(collection)
    statement = (
        "SELECT p.pair, p.count, count(s.head), p.version, ifnull(max(s.rev), 0) FROM pairs p "
        f"LEFT JOIN {table} s ON s.pair = p.pair WHERE p.collection = ? GROUP BY p.pair"
    )
    for pair, count, there, version, newest in connection.execute(statement, (collection.name,)):
        if count != there:
            yield f"pair {pair} counts {count} rows and has {there}"
        if newest > version:
            yield f"pair {pair} is at version {version} and holds a row of {newest}"
    yield from _mixed_pairs(connection, collection)


def _mixed_pairs(connection: apsw.Connection, collection: Collection) -> Iterator[str]:
    """Yields partitions that are marked as having vectors of one model only, but have others."""
    statement = (
        f"SELECT DISTINCT p.pair, p.model, substr(s.head, {model_at(collection.spec) + 1}, 4) FROM pairs p "
        f"JOIN {sql.search_table(collection)} s ON s.pair = p.pair "
        "WHERE p.collection = ? AND p.model <> 0 AND s.head IS NOT NULL"
    )
    for pair, model, found in connection.execute(statement, (collection.name,)):
        if found != code(model):
            yield f"pair {pair} holds a row of another embedding model than it says"


PAGES_AT_START = 32_768
"""Pages whose checksums are verified before the store is served: 256 MiB, in some 0.3 s if the system caches them. The
pages after them are verified while it is served."""
PAUSE_SECONDS = 0.05
NO_CHECKSUMS = "the store has no page checksums: `recalld add-checksums` adds them"

log = logging.getLogger(__name__)


def prepare(
    path: Path, collections: Sequence[Collection], busy_timeout_ms: int, key: StoreKey | None, *, logs: bool = True
) -> None:
    """Looks for damage, then makes or migrates the tables. The change log begins anew if changes are not logged, and in
    a copy of a store, such as a restored backup: what was in the log later is not in it.

    Raises StoreDamaged and StoreUnavailable. Nothing was written if the store is damaged, or of a newer version.
    """
    fault = log_fault(path)
    if fault is not None:
        raise damaged(log_of(path).name, fault)
    with closing(connect(path, busy_timeout_ms, key)) as connection:
        refuse_newer(connection)
        with translate_errors():
            refuse_missing_commits(path, connection)
        pages = bad_pages(path, 1, PAGES_AT_START + 1, key)
        if pages:
            raise damaged(path.name, named_pages(pages))
        migrate(connection, collections, keeps_log=logs and note_of(path).exists())
        with translate_errors():
            checkpoint(connection)
            if not verifies(connection):
                log.warning(NO_CHECKSUMS)


def log_fault(path: Path) -> str | None:
    """Returns what is wrong with the log, or None.

    Other processes may write meanwhile, so only what two looks agree on is a fault.
    """
    before: tuple[LastCommit | None, str] | None = None
    for _ in range(RETRIES):
        note = _note(path)
        with translate_errors():
            fault = _log_fault(path, note)
        if fault is None:
            return None
        if before == (note, fault):
            return fault
        before = note, fault
        time.sleep(PAUSE_SECONDS)
    return None


def _log_fault(path: Path, note: LastCommit | None) -> str | None:
    try:
        found = read_log(log_of(path))
        missing = not path.exists() or not path.stat().st_size
    except OSError as error:
        raise apsw.CantOpenError(f"{error.filename or path}: {error.strerror}") from error
    if missing and found.valid:
        return f"it has {found.valid} pages of a database that is missing"
    if note is not None and found.salts == note.salts:
        if found.valid < note.frames:
            return f"acknowledged writes are missing: {found.valid} of {note.frames} pages can be read"
        return None
    if note is not None and found.salts is None and found.begun == note.salts:
        return "its header cannot be read"
    return f"page {found.valid + 1} cannot be read, and later writes follow it" if found.goes_on else None


def _note(path: Path) -> LastCommit | None:
    try:
        note = read_note(path)
    except OSError as error:
        log.warning("the note of the last commit cannot be read", extra={"error": str(error)})
        return None
    if note is None and note_of(path).exists() and note_of(path).stat().st_size:
        log.warning("the note of the last commit is damaged: a log whose end is missing would not be noticed")
    return note


def refuse_missing_commits(path: Path, connection: apsw.Connection) -> None:
    """Raises StoreDamaged if the store lacks acknowledged commits."""
    note = _note(path)  # read first: a commit is stored before it is noted
    store, commits = log_file.state(connection)
    if note is not None and note.store == store and commits < note.commits:
        what = (
            f"{note.commits - commits} acknowledged commits are missing (if {path.name} was replaced by an older copy "
            f"on purpose, delete {note_of(path).name})"
        )
        raise damaged(log_of(path).name, what)


async def verify_rest(path: Path, faults: Faults, step: int = PAGES_AT_START, key: StoreKey | None = None) -> None:
    """Verifies the pages after the first `step`, as many at a time, while the store is served. Notes damage in
    `faults`."""
    first = step + 1
    try:
        while (pages := await asyncio.to_thread(_bad_pages_of, path, first, step, key)) is not None:
            if pages:
                raise damaged(path.name, named_pages(pages))
            first += step
    except StoreDamaged as error:
        faults.note(error)
        log.critical(error.detail)
    except StoreUnavailable as error:
        log.warning("pages were not verified", extra={"error": error.detail})


def _bad_pages_of(path: Path, first: int, step: int, key: StoreKey | None) -> list[int] | None:
    """Returns the damaged pages of one step, or None after the last page."""
    with translate_errors(), closing(database_file(path, key)) as file:
        there = file.page_bytes and file.size // file.page_bytes >= first
    return bad_pages(path, first, first + step, key) if there else None


def bad_pages(path: Path, first: int, end: int | None = None, key: StoreKey | None = None) -> list[int]:
    """Returns the pages from `first` until before `end` whose checksum fails and that the log does not replace."""
    with translate_errors(), closing(database_file(path, key)) as file:
        if not file.checksummed:
            return []
        found = file.bad_pages(first, end)
        for _ in range(RETRIES):
            if not found:
                return []
            # a checkpoint may be writing a page just now; what it writes is in the log
            content = read_log(log_of(path), file.page_bytes)
            covered = set(content.pages[: content.valid].tolist())
            found = [page for page in found if page not in covered and file.bad_pages(page, page + 1)]
        return found


def named_pages(pages: Sequence[int]) -> str:
    """Returns the number of damaged pages and the first of them."""
    more = ", …" if len(pages) > MAX_NAMED else ""
    return f"the checksums of {len(pages)} pages fail ({', '.join(map(str, pages[:MAX_NAMED]))}{more})"


def findings(path: Path, key: StoreKey | None = None) -> Iterator[Finding]:
    """Yields what the files of a store show without opening it: the log, and the pages' checksums. Raises
    StoreUnavailable, also if the key is not that of the store."""
    fault = log_fault(path)
    yield Finding(log_of(path).name, fault is None, fault or "whole")
    with translate_errors(), closing(database_file(path, key)) as file:
        encrypted = isinstance(file, EncryptedFile)
        checksummed, pages, version = file.checksummed, file.size // (file.page_bytes or 1), file.user_version
    if not checksummed:
        old = version < WITH_CHECKSUMS
        yield Finding(path.name, old, NO_CHECKSUMS if old else "the first page is damaged")
        return
    found = bad_pages(path, 1, key=key)
    what = "encrypted; the codes" if encrypted else "the checksums"
    yield Finding(path.name, not found, named_pages(found) if found else f"{what} of {pages} pages are right")
