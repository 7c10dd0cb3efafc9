"""Export and import of all records, for `recalld migrate`."""

from collections.abc import Sequence
from typing import Any

import apsw
import orjson

from app.storage.index.record_codec import PackedRecord
from app.storage.schema import Collection
from app.storage.sqlite import search_rows, sql
from app.storage.sqlite.changes import insert_document
from app.storage.transfer import Counter, Record


def export(connection: apsw.Connection, collection: Collection, after: str | None, limit: int) -> list[Record]:
    """Returns up to `limit` records after the position `after`, by row number."""
    table = sql.quoted(collection.name)
    if collection.searched is None:
        statement = f"SELECT row, doc, NULL, NULL, NULL, NULL FROM {table} WHERE row > ? ORDER BY row LIMIT ?"
        bound: tuple[Any, ...] = (int(after or 0), limit)
    else:
        statement = (
            f"SELECT d.row, d.doc, s.head, s.vector, s.terms, s.facets FROM {table} d "
            "LEFT JOIN pairs p ON p.collection = ? AND p.tenant = d.tenant "
            "AND p.user = ifnull(d.user_id, '') AND p.agent = ifnull(d.agent_id, '') "
            f"LEFT JOIN {sql.search_table(collection)} s ON s.pair = p.pair AND s.row = d.row "
            "WHERE d.row > ? ORDER BY d.row LIMIT ?"
        )
        bound = (collection.name, int(after or 0), limit)
    return [
        Record(orjson.loads(doc), None if head is None else PackedRecord(head, vector, terms, facets), str(row))
        for row, doc, head, vector, terms, facets in connection.execute(statement, bound)
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


def load_counters(connection: apsw.Connection, given: Sequence[Counter]) -> None:
    """Raises the counters to these values. Runs in the writer's thread."""
    statement = "INSERT INTO counters VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = max(value, excluded.value)"
    for counter in given:
        connection.execute(statement, (counter.tenant, counter.name, counter.value))
