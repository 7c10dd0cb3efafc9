"""Executes one list of changes and logs them, in the writer's thread."""

from collections.abc import Mapping, Sequence
from typing import Any

import apsw
import orjson

from app.storage.change_log import ChangeNotes, LogEntry
from app.storage.changes import (
    Allocate,
    Change,
    CommitConflict,
    Committed,
    Delete,
    DeleteWhere,
    Insert,
    Update,
    WithinQuota,
    resolve,
    stale,
)
from app.storage.records import parsed_one, unreadable
from app.storage.schema import Collection, Doc
from app.storage.sqlite import search_rows, sql
from app.storage.sqlite.usage import usage_of

_COUNT_UP = (
    "INSERT INTO change_heads VALUES (?1, lower(hex(randomblob(6))), ?2, 0) "
    "ON CONFLICT DO UPDATE SET last = last + ?2 RETURNING last"
)
LOG_COLUMNS = "tenant, kind, id, type, agent_id, user_id, version, at, seq"
"""In the order of the fields of `LogEntry`."""
_INSERT = f"INSERT INTO changes ({LOG_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"


def execute(connection: apsw.Connection, changes: Sequence[Change], at: str | None = None) -> Committed:
    """Executes all changes, and logs them with the time `at`; None: they are not logged. If it raises, the caller rolls
    back. Raises CommitConflict or QuotaExceeded."""
    notes = ChangeNotes(at)
    work = _Work(connection, notes)
    quotas = [change for change in changes if isinstance(change, WithinQuota)]
    before = [usage_of(connection, quota.tenant) for quota in quotas]
    for change in changes:
        work.do(change)
    work.rows.write_partitions()
    for tenant, entries in notes.by_tenant().items():
        append_to_log(connection, tenant, entries)
    for quota, used in zip(quotas, before, strict=True):
        quota.check(used, usage_of(connection, quota.tenant))
    return Committed(work.allocated, work.deleted)


class _Work:
    def __init__(self, connection: apsw.Connection, notes: ChangeNotes) -> None:
        self._connection, self._notes = connection, notes
        self.allocated: dict[str, int] = {}
        self.deleted = 0
        self.rows = search_rows.SearchRowWriter(connection)

    def do(self, change: Change) -> None:
        match change:
            case Insert():
                self._insert(change)
            case Update():
                self._update(change)
            case Delete():
                collection, tenant = change.collection, change.tenant
                row, text = self._stored(collection, tenant, change.id)
                doc = self._to_delete(collection, tenant, change.id, text)
                if stale(doc, change.expect):
                    raise CommitConflict(collection.name, change.id, "expect")
                self._delete(collection, row, doc)
            case DeleteWhere():
                self._delete_where(change)
            case Allocate():
                self._allocate(change)
            case WithinQuota():
                pass  # checked in the end, by `execute`

    def _allocate(self, change: Allocate) -> None:
        statement = (
            "INSERT INTO counters VALUES (?, ?, ?) "
            "ON CONFLICT DO UPDATE SET value = value + excluded.value RETURNING value"
        )
        last: Any
        ((last,),) = self._connection.execute(statement, (change.tenant, change.name, change.count)).fetchall()
        self.allocated[change.name] = change.first(int(last))

    def _insert(self, change: Insert) -> None:
        collection, doc = change.collection, resolve(change.doc, self.allocated)
        row = insert_document(self._connection, collection, doc)
        self._notes.created(collection, doc)
        if collection.searched is None:
            return
        if change.entry is not None:
            self.rows.add(collection, doc, row, change.entry)
        elif change.like is not None:
            like, _ = self._read(collection, doc["tenant_id"], change.like, {})
            self.rows.add_like(collection, doc, row, like)

    def _stored(self, collection: Collection, tenant: str, doc_id: str) -> tuple[int, str]:
        statement = f"SELECT row, {sql.WHOLE_DOC} FROM {sql.quoted(collection.name)} WHERE tenant = ? AND id = ?"
        stored: Any = self._connection.execute(statement, (tenant, doc_id)).fetchone()
        if stored is None:
            raise CommitConflict(collection.name, doc_id, "missing")
        return int(stored[0]), str(stored[1])

    def _read(self, collection: Collection, tenant: str, doc_id: str, expect: Mapping[str, object]) -> tuple[int, Doc]:
        """Returns the row and the document. Raises CommitConflict, or RecordDamaged if it cannot be read."""
        row, text = self._stored(collection, tenant, doc_id)
        doc = parsed_one(collection, doc_id, text)
        if doc is None:
            raise unreadable(collection, doc_id, {})
        if stale(doc, expect):
            raise CommitConflict(collection.name, doc_id, "expect")
        return row, doc

    def _to_delete(self, collection: Collection, tenant: str, doc_id: str, text: str) -> Doc:
        """Returns the document, or what the columns say of one whose text cannot be read."""
        doc: Doc | None = parsed_one(collection, doc_id, text)
        return sql.known_by_columns(self._connection, collection, tenant, doc_id) if doc is None else doc

    def _update(self, change: Update) -> None:
        collection = change.collection
        row, doc = self._read(collection, change.tenant, change.id, change.expect)
        doc |= change.fields(doc, self.allocated)
        changed = frozenset({*change.set, *change.inc})
        columns, statement = sql.assignment(collection.name, collection.columns, changed)
        text = orjson.dumps(doc)
        values = (*sql.values_of(doc, columns), text.decode(), sql.sum_of(text), row)
        _run(self._connection, collection, change.id, statement, values)
        self._notes.updated(collection, doc, change)
        if collection.searched is None:
            return
        if change.entry is not None:
            self.rows.put(collection, doc, row, change.entry, keep=change.keep)
        else:
            self.rows.amend(collection, doc, row, changed, change.text)

    def _delete(self, collection: Collection, row: int, doc: Doc) -> None:
        self._connection.execute(f"DELETE FROM {sql.quoted(collection.name)} WHERE row = ?", (row,))
        self.deleted += 1
        self._notes.deleted(collection, doc)
        if collection.searched is not None:
            self.rows.remove(collection, doc, row)

    def _delete_where(self, change: DeleteWhere) -> None:
        condition, values = sql.where(change.collection, change.where)
        statement = f"SELECT row, id, doc FROM {sql.quoted(change.collection.name)} WHERE tenant = ? AND {condition}"
        rows: list[Any] = self._connection.execute(statement, (change.tenant, *values)).fetchall()
        for row, doc_id, text in rows:
            self._delete(change.collection, int(row), self._to_delete(change.collection, change.tenant, doc_id, text))


def insert_document(connection: apsw.Connection, collection: Collection, doc: Doc) -> int:
    """Inserts a document and returns its row number. Raises CommitConflict."""
    doc_id, text = str(doc[collection.id_field]), orjson.dumps(doc)
    values = (doc["tenant_id"], doc_id, *sql.row_values(collection, doc), text.decode(), sql.sum_of(text))
    _run(connection, collection, doc_id, sql.insertion(collection.name, collection.columns), values)
    return connection.last_insert_rowid()


def _run(
    connection: apsw.Connection, collection: Collection, doc_id: str, statement: str, values: Sequence[sql.Value]
) -> None:
    try:
        connection.execute(statement, values)
    except apsw.ConstraintError as error:
        # SQLite names the index of a unique key, which is on expressions, and the columns of the id index
        violated = [key.name for key in collection.unique if f"'{sql.unique_index(collection, key)}'" in str(error)]
        raise CommitConflict(collection.name, doc_id, violated[0] if violated else "exists") from error


def append_to_log(connection: apsw.Connection, tenant: str, entries: Sequence[LogEntry]) -> None:
    """Appends entries to the tenant's log. Runs in the transaction of the changes."""
    last: Any
    ((last,),) = connection.execute(_COUNT_UP, (tenant, len(entries))).fetchall()
    rows = [(*entry[:-1], seq) for seq, entry in enumerate(entries, int(last) - len(entries) + 1)]
    connection.executemany(_INSERT, rows)
