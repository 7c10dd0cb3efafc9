"""Usage of tenants in the embedded store. Triggers count it, so that no statement can forget to.

`usage` has a row for each tenant and counted collection. Bytes are those of the documents as JSON.

Executes one list of changes. Runs in the writer's thread, inside the list's savepoint.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import apsw
import orjson

from app.storage.change_log import ChangeNotes
from app.storage.changes import (
    Allocate,
    Change,
    CommitConflict,
    Committed,
    Delete,
    DeleteWhere,
    Insert,
    StoredTotals,
    Update,
    Usage,
    UsageByTenant,
    WithinQuota,
    differences,
    nonzero,
    resolve,
    stale,
)
from app.storage.schema import Collection, Doc
from app.storage.sqlite import schema, search_rows
from app.storage.sqlite.change_log import append
from app.storage.sqlite.schema import quoted
from app.storage.sqlite.set_wide import RunApart
from app.storage.sqlite.writer import WriterTask

TABLE = (
    "CREATE TABLE IF NOT EXISTS usage (tenant TEXT, collection TEXT, records INTEGER NOT NULL, bytes INTEGER NOT NULL, "
    "PRIMARY KEY (tenant, collection)) WITHOUT ROWID"
)


def migrate(connection: apsw.Connection, collections: Sequence[Collection]) -> None:
    """Creates the table and the missing triggers, and counts the collections that had none, in one transaction."""
    wanted = {one.name: _triggers(one) for one in collections if one.counted}
    if not _missing(connection, wanted):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(TABLE)
        for collection in collections:
            missing = _missing(connection, {collection.name: wanted.get(collection.name, {})})
            if missing:
                _count_anew(connection, collection)
            for statement in missing:
                connection.execute(statement)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _missing(connection: apsw.Connection, wanted: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Returns the statements of triggers that do not exist."""
    existing = {str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")}
    return [sql for triggers in wanted.values() for name, sql in triggers.items() if name not in existing]


def _triggers(collection: Collection) -> dict[str, str]:
    """Returns the statements that create the collection's triggers, by name."""
    table, named = quoted(collection.name), apsw.format_sql_value(collection.name)
    of_row = f"WHERE tenant = old.tenant AND collection = {named}"
    actions = {
        "insert": f"AFTER INSERT ON {table} BEGIN INSERT INTO usage VALUES "
        f"(new.tenant, {named}, 1, octet_length(new.doc)) "
        "ON CONFLICT DO UPDATE SET records = records + 1, bytes = bytes + excluded.bytes; END",
        "update": f"AFTER UPDATE OF doc ON {table} WHEN octet_length(new.doc) <> octet_length(old.doc) BEGIN "
        f"UPDATE usage SET bytes = bytes + octet_length(new.doc) - octet_length(old.doc) {of_row}; END",
        "delete": f"AFTER DELETE ON {table} BEGIN UPDATE usage SET records = records - 1, "
        f"bytes = bytes - octet_length(old.doc) {of_row}; END",
    }
    names = {action: f"{collection.name}_counted_{action}" for action in actions}
    return {names[action]: f"CREATE TRIGGER {quoted(names[action])} {sql}" for action, sql in actions.items()}


def _count_anew(connection: apsw.Connection, collection: Collection) -> None:
    connection.execute("DELETE FROM usage WHERE collection = ?", (collection.name,))
    connection.execute(
        f"INSERT INTO usage SELECT tenant, ?, count(*), sum(octet_length(doc)) FROM {quoted(collection.name)} "
        "GROUP BY tenant",
        (collection.name,),
    )


def usage_of(connection: apsw.Connection, tenant: str) -> Usage:
    """Returns the tenant's whole usage."""
    statement = "SELECT ifnull(sum(records), 0), ifnull(sum(bytes), 0) FROM usage WHERE tenant = ?"
    found: Any = connection.execute(statement, (tenant,)).fetchone()
    return Usage(int(found[0]), int(found[1]))


def stored(connection: apsw.Connection) -> dict[str, dict[str, Usage]]:
    """Returns the usage that is stored."""
    return _by_tenant(connection, ["SELECT tenant, collection, records, bytes FROM usage"])


def totals(connection: apsw.Connection) -> StoredTotals:
    """Returns the sums over all tenants."""
    tenants: Any = connection.execute("SELECT count(DISTINCT tenant) FROM usage WHERE records > 0").fetchone()
    statement = "SELECT collection, sum(records), sum(bytes) FROM usage GROUP BY collection"
    found = {str(name): Usage(int(records), int(size)) for name, records, size in connection.execute(statement)}
    return StoredTotals(int(tenants[0]), {name: usage for name, usage in found.items() if usage.records})


def counted(connection: apsw.Connection, collections: Sequence[Collection]) -> dict[str, dict[str, Usage]]:
    """Returns the usage by counting every record."""
    return _by_tenant(
        connection,
        [
            f"SELECT tenant, {apsw.format_sql_value(one.name)}, count(*), sum(octet_length(doc)) "
            f"FROM {quoted(one.name)} GROUP BY tenant"
            for one in collections
            if one.counted
        ],
    )


def _by_tenant(connection: apsw.Connection, statements: Sequence[str]) -> dict[str, dict[str, Usage]]:
    found: defaultdict[str, dict[str, Usage]] = defaultdict(dict)
    for statement in statements:
        for tenant, name, records, size in connection.execute(statement):
            found[str(tenant)][str(name)] = Usage(int(records), int(size))
    return nonzero(found)


class EmbeddedAccounting:
    """Implements `Accounting`."""

    def __init__(
        self,
        collections: Sequence[Collection],
        apart: RunApart,
        submit: Callable[[WriterTask[list[str]]], Awaitable[list[str]]],
    ) -> None:
        self._collections, self._apart, self._submit = collections, apart, submit

    async def stored(self) -> UsageByTenant:
        return await self._apart(stored)

    async def totals(self) -> StoredTotals:
        return await self._apart(totals)

    async def recount(self) -> list[str]:
        return await self._submit(self._recount)

    def _recount(self, connection: apsw.Connection) -> list[str]:
        wrong = differences(stored(connection), counted(connection, self._collections))
        for collection in self._collections if wrong else ():
            if collection.counted:
                _count_anew(connection, collection)
        return wrong


def execute(connection: apsw.Connection, changes: Sequence[Change], at: str | None = None) -> Committed:
    """Executes all changes, and logs them with the time `at`; None: they are not logged. If it raises, the caller rolls
    back. Raises CommitConflict or QuotaExceeded."""
    notes = None if at is None else ChangeNotes(at)
    work = _Work(connection, notes)
    quotas = [change for change in changes if isinstance(change, WithinQuota)]
    before = [usage_of(connection, quota.tenant) for quota in quotas]
    for change in changes:
        work.do(change)
    work.pairs.close()
    if notes is not None:
        for tenant, entries in notes.by_tenant().items():
            append(connection, tenant, entries)
    for quota, used in zip(quotas, before, strict=True):
        quota.check(used, usage_of(connection, quota.tenant))
    return Committed(work.allocated, work.deleted)


class _Work:
    def __init__(self, connection: apsw.Connection, notes: ChangeNotes | None) -> None:
        self._connection, self._notes = connection, notes
        self.allocated: dict[str, int] = {}
        self.deleted = 0
        self.pairs = search_rows.Writing(connection)

    def do(self, change: Change) -> None:
        match change:
            case Insert():
                self._insert(change)
            case Update():
                self._update(change)
            case Delete():
                row, doc = self._read(change.collection, change.tenant, change.id, change.expect)
                self._delete(change.collection, row, doc)
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
        self.allocated[change.name] = int(last) - change.count + 1

    def _insert(self, change: Insert) -> None:
        collection, doc = change.collection, resolve(change.doc, self.allocated)
        row = insert_document(self._connection, collection, doc)
        if self._notes is not None:
            self._notes.created(collection, doc)
        if collection.searched is None:
            return
        if change.entry is not None:
            self.pairs.add(collection, doc, row, change.entry)
        elif change.like is not None:
            self.pairs.add_like(collection, doc, row, self._row(collection, doc["tenant_id"], change.like))

    def _row(self, collection: Collection, tenant: str, doc_id: str) -> int:
        statement = f"SELECT row FROM {schema.quoted(collection.name)} WHERE tenant = ? AND id = ?"
        found: Any = self._connection.execute(statement, (tenant, doc_id)).fetchone()
        if found is None:
            raise CommitConflict(collection.name, doc_id, "missing")
        return int(found[0])

    def _read(self, collection: Collection, tenant: str, doc_id: str, expect: Mapping[str, Any]) -> tuple[int, Doc]:
        statement = f"SELECT row, doc FROM {schema.quoted(collection.name)} WHERE tenant = ? AND id = ?"
        found: Any = self._connection.execute(statement, (tenant, doc_id)).fetchone()
        if found is None:
            raise CommitConflict(collection.name, doc_id, "missing")
        doc: Doc = orjson.loads(found[1])
        if stale(doc, expect):
            raise CommitConflict(collection.name, doc_id, "expect")
        return int(found[0]), doc

    def _update(self, change: Update) -> None:
        collection = change.collection
        row, doc = self._read(collection, change.tenant, change.id, change.expect)
        doc |= resolve(change.set, self.allocated)
        for name, by in change.inc.items():
            doc[name] = (doc.get(name) or 0) + by
        changed = frozenset({*change.set, *change.inc})
        columns, statement = schema.assignment(collection.name, collection.columns, changed)
        values = (*schema.values_of(doc, columns), orjson.dumps(doc).decode(), row)
        _run(self._connection, collection, change.id, statement, values)
        if self._notes is not None:
            self._notes.updated(collection, doc, change)
        if not collection.searched:
            return
        if change.entry is not None:
            self.pairs.put(collection, doc, row, change.entry, keep=change.keep)
        elif change.text is not None:
            self.pairs.reword(collection, doc, row, change.text)
        else:
            self.pairs.amend(collection, doc, row, changed)

    def _delete(self, collection: Collection, row: int, doc: Doc) -> None:
        self._connection.execute(f"DELETE FROM {schema.quoted(collection.name)} WHERE row = ?", (row,))
        self.deleted += 1
        if self._notes is not None:
            self._notes.deleted(collection, doc)
        if collection.searched:
            self.pairs.remove(collection, doc, row)

    def _delete_where(self, change: DeleteWhere) -> None:
        condition, values = schema.where(change.collection, change.where)
        statement = f"SELECT row, doc FROM {schema.quoted(change.collection.name)} WHERE tenant = ? AND {condition}"
        rows: list[Any] = self._connection.execute(statement, (change.tenant, *values)).fetchall()
        for row, doc in rows:
            self._delete(change.collection, int(row), orjson.loads(doc))


def insert_document(connection: apsw.Connection, collection: Collection, doc: Doc) -> int:
    """Inserts a document and returns its row number. Raises CommitConflict."""
    doc_id = str(doc[collection.id_field])
    values = (doc["tenant_id"], doc_id, *schema.row_values(collection, doc), orjson.dumps(doc).decode())
    _run(connection, collection, doc_id, schema.insertion(collection.name, collection.columns), values)
    return connection.last_insert_rowid()


def _run(
    connection: apsw.Connection, collection: Collection, doc_id: str, statement: str, values: Sequence[schema.Value]
) -> None:
    try:
        connection.execute(statement, values)
    except apsw.ConstraintError as error:
        raise CommitConflict(collection.name, doc_id, _violated(collection, str(error))) from error


def _violated(collection: Collection, message: str) -> str:
    """Returns the name of the violated unique key, or `exists`.

    SQLite names an index on expressions, and the columns of the id index.
    """
    for unique in collection.unique:
        if f"'{schema.unique_index(collection, unique)}'" in message:
            return unique.name
    return "exists"
