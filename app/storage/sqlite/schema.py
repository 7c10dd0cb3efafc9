"""Tables, indexes and triggers of the embedded store, and how a start brings them up to date."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import apsw
import orjson

from app import VERSION
from app.storage.schema import Collection, Unique, Written, due, newest, refuse_newer_layout
from app.storage.sqlite.connections import begin_counting, translate_errors
from app.storage.sqlite.sql import quoted, search_table, unique_index, values_of, where

log = logging.getLogger(__name__)


def tables(collection: Collection) -> list[str]:
    """Returns the statements that create the collection's tables.

    A `row` number is never reused, so that a stale handle finds nothing.
    """
    fields = "".join(f", {quoted(name)}" for name in collection.columns)
    result = [
        f"CREATE TABLE IF NOT EXISTS {quoted(collection.name)} (row INTEGER PRIMARY KEY AUTOINCREMENT, "
        f"tenant TEXT NOT NULL, id TEXT NOT NULL, doc_sum INTEGER{fields}, doc TEXT NOT NULL)"
    ]
    if collection.searched:
        result.append(
            f"CREATE TABLE IF NOT EXISTS {search_table(collection)} (partition INTEGER, row INTEGER, rev INTEGER "
            "NOT NULL, sum INTEGER, head BLOB, vector BLOB, terms BLOB, facets BLOB, PRIMARY KEY (partition, row)) "
            "WITHOUT ROWID"
        )
    return result


def indexes(collection: Collection) -> dict[str, str]:
    """Returns the statements that create the collection's indexes, by name."""
    name, order = collection.name, quoted(collection.order)
    result = {f"{name}_id": f"CREATE UNIQUE INDEX {quoted(f'{name}_id')} ON {quoted(name)} (tenant, id)"}
    for prefix in ((), *collection.indexes):
        ending, behind = collection.list_index(prefix)
        fields = ", ".join(("tenant", *map(quoted, prefix), order, "id", *map(quoted, behind)))
        result[f"{name}_{ending}"] = f"CREATE INDEX {quoted(f'{name}_{ending}')} ON {quoted(name)} ({fields})"
    for field in collection.global_indexes:
        label = f"{name}_everywhere_{field}"
        there = "" if field == collection.order else f" WHERE {quoted(field)} IS NOT NULL"  # time limits are rare
        result[label] = f"CREATE INDEX {quoted(label)} ON {quoted(name)} ({quoted(field)}, id){there}"
    for unique in collection.unique:
        result[unique_index(collection, unique)] = _unique(collection, unique)
    if collection.searched:
        result[f"{name}_rev"] = f"CREATE INDEX {quoted(f'{name}_rev')} ON {search_table(collection)} (partition, rev)"
    return result


def usage_triggers(collection: Collection) -> dict[str, str]:
    """Returns the statements that create the triggers that count the collection's usage, by name. Triggers count it so
    that no statement can forget to."""
    if not collection.counted:
        return {}
    table, named = quoted(collection.name), apsw.format_sql_value(collection.name)
    unit = int(not collection.only_bytes)
    of_row = f"WHERE tenant = {payer(collection, 'old.')} AND collection = {named}"
    actions = {
        "insert": f"AFTER INSERT ON {table} BEGIN INSERT INTO usage VALUES "
        f"({payer(collection, 'new.')}, {named}, {unit}, octet_length(new.doc)) "
        f"ON CONFLICT DO UPDATE SET records = records + {unit}, bytes = bytes + excluded.bytes; END",
        "update": f"AFTER UPDATE OF doc ON {table} WHEN octet_length(new.doc) <> octet_length(old.doc) BEGIN "
        f"UPDATE usage SET bytes = bytes + octet_length(new.doc) - octet_length(old.doc) {of_row}; END",
        "delete": f"AFTER DELETE ON {table} BEGIN UPDATE usage SET records = records - {unit}, "
        f"bytes = bytes - octet_length(old.doc) {of_row}; END",
    }
    names = {action: f"{collection.name}_counted_{action}" for action in actions}
    return {names[action]: f"CREATE TRIGGER {quoted(names[action])} {sql}" for action, sql in actions.items()}


def payer(collection: Collection, row: str = "") -> str:
    """Returns the expression for the tenant for whom a document counts. `row`: `old.` or `new.`, in triggers."""
    if collection.payer == "tenant_id":
        return f"{row}tenant"
    named = f"CASE WHEN json_valid({row}doc) THEN {row}doc ->> '$.{collection.payer}' END"  # a check reads broken ones
    return f"ifnull({named}, {row}tenant)"


def usage_query(collection: Collection) -> str:
    """Returns the query of tenant, collection, records and bytes that counts every document."""
    records = "0" if collection.only_bytes else "count(*)"
    return (
        f"SELECT {payer(collection)} AS payer, {apsw.format_sql_value(collection.name)}, {records}, "
        f"sum(octet_length(doc)) FROM {quoted(collection.name)} GROUP BY payer"
    )


def _unique(collection: Collection, unique: Unique) -> str:
    fields = ", ".join(f"ifnull({quoted(field)}, '')" for field in unique.fields)
    when, values = where(collection, unique.when)
    literals = map(apsw.format_sql_value, values)  # partial indexes take no parameters; these are our constants
    when = "".join(piece + next(literals, "") for piece in when.split("?"))
    return (
        f"CREATE UNIQUE INDEX {quoted(unique_index(collection, unique))} ON {quoted(collection.name)} "
        f"(tenant, {fields}) WHERE {when}"
    )


LAYOUT = 1
"""The first layout. `user_version` has that of a store. Newly declared fields and indexes need no new one: see
`_reconcile`."""

SqliteStep: TypeAlias = Callable[[apsw.Connection], None]
STEPS: Mapping[int, SqliteStep] = {}
"""What makes a layout of the one before, by the number of the layout; the first is 2. A step runs inside the
transaction that updates the tables, before newly declared fields are added."""

REFILLED_AT_ONCE = 1_000

_OWN_TABLES = (
    "CREATE TABLE IF NOT EXISTS counters (tenant TEXT, name TEXT, value INTEGER NOT NULL, PRIMARY KEY (tenant, name)) "
    "WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS partitions (partition INTEGER PRIMARY KEY AUTOINCREMENT, collection TEXT NOT NULL, "
    "tenant TEXT NOT NULL, user TEXT NOT NULL, agent TEXT NOT NULL, version INTEGER NOT NULL, "
    "floor INTEGER NOT NULL DEFAULT 0, count INTEGER NOT NULL, tombstones INTEGER NOT NULL DEFAULT 0, "
    "speakers TEXT NOT NULL DEFAULT '[]', model INTEGER NOT NULL DEFAULT 0, UNIQUE (collection, tenant, user, agent))",
    "CREATE TABLE IF NOT EXISTS kept_vectors (partition INTEGER, row INTEGER, model BLOB, vector BLOB NOT NULL, "
    "PRIMARY KEY (partition, row, model)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS change_heads (tenant TEXT PRIMARY KEY, log TEXT NOT NULL, last INTEGER NOT NULL, "
    "floor INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS changes (tenant TEXT, seq INTEGER, kind TEXT NOT NULL, id TEXT, type TEXT NOT NULL, "
    "agent_id TEXT, user_id TEXT, version INTEGER, at TEXT NOT NULL, PRIMARY KEY (tenant, seq)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS usage (tenant TEXT, collection TEXT, records INTEGER NOT NULL, bytes INTEGER NOT NULL, "
    "PRIMARY KEY (tenant, collection)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS store_info (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)
"""The engine's own tables.

`partitions` has each partition of a searched collection, with the empty string for no agent or user. A reader whose
copy is older than `floor` reloads the partition, because tombstones that it would need were dropped. `kept_vectors` has
the alternate vectors, with the model's code in the form of a head. `change_heads` and `changes` are the change log
(`change_log.py`). `usage` has a row for each tenant and counted collection; bytes are those of the documents as JSON.
`store_info` has notes: the release that last made or updated the tables, and those of migrations.
"""


def written(connection: apsw.Connection) -> Written:
    """Returns the layout of the store, 0 for a new one, and its release. Raises errors of SQLite."""
    layout, release = int(connection.pragma("user_version")), None
    if _columns(connection, "store_info"):
        row: Any = connection.execute("SELECT value FROM store_info WHERE name = 'release'").fetchone()
        release = None if row is None else str(row[0])
    return Written(layout, release)


def notes(connection: apsw.Connection, new: Mapping[str, str]) -> dict[str, str]:
    """Keeps notes about the store; an empty one goes. Returns all of them. Runs in the writer's thread."""
    for name, text in new.items():
        connection.execute("DELETE FROM store_info WHERE name = ?", (name,))
        if text:
            connection.execute("INSERT INTO store_info VALUES (?, ?)", (name, text))
    return {str(name): str(text) for name, text in connection.execute("SELECT name, value FROM store_info")}


def refuse_newer(connection: apsw.Connection, what: str = "The store", steps: Mapping[int, SqliteStep] = STEPS) -> None:
    """Raises StoreUnavailable if a newer version wrote the database. Writes nothing."""
    with translate_errors():
        refuse_newer_layout(what, written(connection), newest(LAYOUT, steps))


def migrate(
    connection: apsw.Connection,
    collections: Sequence[Collection],
    steps: Mapping[int, SqliteStep] = STEPS,
    *,
    keeps_log: bool = True,
) -> None:
    """Creates or updates tables and indexes in one transaction: all of it or nothing. Raises StoreUnavailable, also if
    a newer version wrote the file. Without `keeps_log` the change log begins anew."""
    with translate_errors():
        connection.execute("BEGIN IMMEDIATE")
        try:
            refuse_newer(connection, steps=steps)
            before = written(connection)
            layout = newest(LAYOUT, steps)
            for number, step in due(before.layout or layout, steps):  # a new store is made as the newest one
                log.info("the store is brought to a newer layout", extra={"layout": number})
                step(connection)
            for statement in _OWN_TABLES:
                connection.execute(statement)
            if not keeps_log:
                connection.execute("DELETE FROM changes; DELETE FROM change_heads")
            for collection in collections:
                _reconcile(connection, collection)
            begin_counting(connection)
            if before != Written(layout, VERSION):
                connection.execute("INSERT OR REPLACE INTO store_info VALUES ('release', ?)", (VERSION,))
                connection.pragma("user_version", layout)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


def _reconcile(connection: apsw.Connection, collection: Collection) -> None:
    """Creates what is missing, fills newly declared fields from the documents, and counts records that were not counted
    before."""
    for statement in tables(collection):
        connection.execute(statement)
    name = quoted(collection.name)
    there = _columns(connection, name)
    missing = [field for field in collection.columns if field not in there]
    for field in missing:
        connection.execute(f"ALTER TABLE {name} ADD COLUMN {quoted(field)}")
    if missing:
        _refill(connection, collection, missing)
    triggers = usage_triggers(collection)
    existing = {str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    if not triggers.keys() <= existing:
        count_usage(connection, collection)
    for label, statement in (indexes(collection) | triggers).items():
        if label not in existing:
            connection.execute(statement)


def count_usage(connection: apsw.Connection, collection: Collection) -> None:
    """Counts the records of a collection anew. Runs in a transaction."""
    connection.execute("DELETE FROM usage WHERE collection = ?", (collection.name,))
    connection.execute(f"INSERT INTO usage {usage_query(collection)}")


def _columns(connection: apsw.Connection, table: str) -> set[str]:
    return {str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")}


def _refill(connection: apsw.Connection, collection: Collection, missing: Sequence[str]) -> None:
    """Fills new columns from the documents, in steps: the documents of a collection may not fit into memory."""
    name = quoted(collection.name)
    fields = ", ".join(f"{quoted(field)} = ?" for field in missing)
    step, last = f"SELECT row, doc FROM {name} WHERE row > ? ORDER BY row LIMIT {REFILLED_AT_ONCE}", 0
    while True:
        rows: list[Any] = connection.execute(step, (last,)).fetchall()
        if not rows:
            return
        for row, doc in rows:
            values = values_of(orjson.loads(doc), missing)
            connection.execute(f"UPDATE {name} SET {fields} WHERE row = ?", (*values, row))
        last = rows[-1][0]
