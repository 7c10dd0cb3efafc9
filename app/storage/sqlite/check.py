"""The checks of `recalld doctor`: integrity of the database, and agreement of search rows with documents."""

from collections.abc import Callable, Iterator, Sequence

import apsw
import orjson

from app.storage.index.record_codec import TERM, head_dtype, holds_windows
from app.storage.partitions import code, flags_at, model_at
from app.storage.protocol import Finding
from app.storage.schema import Collection, Doc
from app.storage.sqlite import schema, usage
from app.storage.text import LONG
from app.storage.usage import differences

MAX_NAMED = 5
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
        yield from differences(usage.stored(connection), usage.counted(connection, collections))


def _integrity(connection: apsw.Connection) -> Iterator[str]:
    said = (str(line) for (line,) in connection.execute("PRAGMA integrity_check"))
    return (line for line in said if line != "ok")


def _finding(name: str, faults: Iterator[str]) -> Finding:
    found: list[str] = []
    try:
        found.extend(faults)
    except (apsw.IOError, apsw.CorruptError, apsw.NotADBError) as error:
        found.insert(0, f"cannot be read to the end: {error}")
    return Finding(name, not found, "ok" if not found else f"{len(found)} faults: {'; '.join(found[:MAX_NAMED])}")


def _bad_documents(connection: apsw.Connection, collection: Collection) -> Iterator[str]:
    """Yields documents that cannot be read, or whose columns differ from their content."""
    fields = ", ".join(schema.quoted(name) for name in ("tenant", "id", *collection.columns))
    statement = f"SELECT doc, {fields} FROM {schema.quoted(collection.name)}"
    for text, tenant, doc_id, *stored in connection.execute(statement):
        doc = _read(text)
        if doc is None:
            yield f"{doc_id} is no JSON object"
            continue
        if [tenant, doc_id] != [doc.get("tenant_id"), doc.get(collection.id_field)]:
            yield f"{doc_id} lies under another id or tenant"
        if stored != schema.row_values(collection, doc):
            yield f"{doc_id} has columns that differ from its document"


def _read(text: str) -> Doc | None:
    try:
        doc = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return doc if isinstance(doc, dict) else None


def _bad_rows(connection: apsw.Connection, collection: Collection) -> Iterator[str]:
    table, documents = schema.search_table(collection), schema.quoted(collection.name)
    size = head_dtype(len(collection.spec.ranges)).itemsize
    checks: dict[str, Callable[[], str]] = {
        "search rows without a document": lambda: (
            f"SELECT s.row FROM {table} s LEFT JOIN {documents} d ON d.row = s.row "
            "WHERE s.head IS NOT NULL AND d.row IS NULL"
        ),
        "documents without a search row": lambda: (
            f"SELECT d.id FROM {documents} d WHERE NOT EXISTS (SELECT 1 FROM pairs p JOIN {table} s "
            "ON s.pair = p.pair AND s.row = d.row WHERE s.head IS NOT NULL AND p.tenant = d.tenant "
            "AND p.collection = ? AND p.user = ifnull(d.user_id, '') AND p.agent = ifnull(d.agent_id, ''))"
        ),
        "kept vectors without a search row": lambda: (
            f"SELECT k.row FROM kept_vectors k JOIN pairs p ON p.pair = k.pair LEFT JOIN {table} s "
            "ON s.pair = k.pair AND s.row = k.row WHERE p.collection = ? AND s.head IS NULL"
        ),
        "search rows of a wrong size": lambda: (
            f"SELECT row FROM {table} WHERE head IS NOT NULL AND "
            f"(length(head) <> {size} OR length(terms) % {TERM.itemsize} OR length(facets) % 8)"
        ),
    }
    yield from _bad_vectors(connection, collection)
    for name, statement in checks.items():
        text = statement()
        for (which,) in connection.execute(text, (collection.name,) if "?" in text else ()):
            yield f"{name}: {which}"


def _bad_vectors(connection: apsw.Connection, collection: Collection) -> Iterator[str]:
    """Yields rows of long texts whose number of windows does not fit their vector."""
    statement = (
        f"SELECT row, substr(head, {flags_at(collection.spec) + 1}, 1), length(vector), substr(vector, -1) "
        f"FROM {schema.search_table(collection)} WHERE head IS NOT NULL AND vector IS NOT NULL"
    )
    for row, flags, length, count in connection.execute(statement):
        if flags and flags[0] & LONG and not (count and holds_windows(length, count[0])):
            yield f"search rows with a vector that does not fit their record: {row}"


def _bad_pairs(connection: apsw.Connection, collection: Collection) -> Iterator[str]:
    table = schema.search_table(collection)
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
        f"JOIN {schema.search_table(collection)} s ON s.pair = p.pair "
        "WHERE p.collection = ? AND p.model <> 0 AND s.head IS NOT NULL"
    )
    for pair, model, found in connection.execute(statement, (collection.name,)):
        if found != code(model):
            yield f"pair {pair} holds a row of another embedding model than it says"
