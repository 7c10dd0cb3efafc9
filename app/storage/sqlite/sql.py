"""SQL of the embedded store: its tables, indexes and triggers, how a start brings them up to date, and the statements
that read and write documents."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, TypeAlias

import apsw
import orjson

from app import VERSION
from app.storage import schema
from app.storage.protocol import Order
from app.storage.sqlite.connections import SUMMED_BYTES, begin_counting, translate_errors

# --- Names, filters, and the statements that read and write documents -------------------------------------------------
# Names come from declarations; values are always bound.

WHOLE_DOC = f"CASE WHEN octet_length(doc) < {SUMMED_BYTES} OR doc_sum = sum_of(CAST(doc AS BLOB)) THEN doc ELSE '' END"
"""The text of a document, or an empty one, which is no JSON, if its sum is wrong."""


Value: TypeAlias = str | int | float | bytes | None

SqlFilter: TypeAlias = tuple[str, list[Value]]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@cache
def insertion(name: str, columns: tuple[str, ...]) -> str:
    """Returns the statement that inserts tenant, id, the columns, the document and its sum."""
    named = ", ".join(["tenant", "id", *map(quoted, columns), "doc", "doc_sum"])
    return f"INSERT INTO {quoted(name)} ({named}) VALUES ({', '.join('?' * (len(columns) + 4))})"


@lru_cache(1_000)
def assignment(name: str, columns: tuple[str, ...], changed: frozenset[str]) -> tuple[tuple[str, ...], str]:
    """Returns the columns of the top-level fields `changed`, and the statement that sets only these, the document
    and its sum.

    SQLite rewrites each index that contains a column which is set, even to an equal value.
    """
    some = tuple(column for column in columns if schema.top_of(column) in changed)
    listed = "".join(f"{quoted(column)} = ?, " for column in some)
    return some, f"UPDATE {quoted(name)} SET {listed}doc = ?, doc_sum = ? WHERE row = ?"


def unique_index(collection: schema.Collection, unique: schema.Unique) -> str:
    return f"{collection.name}_unique_{unique.name}"


def search_table(collection: schema.Collection) -> str:
    """Returns the quoted name of the collection's table of search rows."""
    return quoted(f"{collection.name}_search")


def values_of(doc: Mapping[str, object], names: Sequence[str]) -> list[Value]:
    """Returns the stored values of these fields, in order."""
    return [_stored(schema.value_at(doc, name)) for name in names]


def _stored(value: Any) -> Value:
    if value.__class__ is list:
        return orjson.dumps(value).decode()
    return int(value) if value.__class__ is bool else value


def where(collection: schema.Collection, part: schema.Filter, *, listed: bool = False) -> SqlFilter:
    """Returns a filter as an SQL condition and its bound values. `listed`: for a list of a tenant, in its order."""
    match part:
        case schema.And(parts):
            return _joined(collection, parts, " AND ", "1", listed=listed)
        case schema.Or(parts):
            return _has_any(collection, parts) or _joined(collection, parts, " OR ", "0")
        case schema.Not(inner):
            sql, values = where(collection, inner)
            return f"NOT ifnull({sql}, 0)", values
        case schema.Absent(field):
            return f"{column_of(collection, field)} IS NULL", []
        case schema.Eq(field, value):
            condition = f"{column_of(collection, field)} = ?"
            # of two indexes that know two columns each, SQLite shall take the one that finds few documents
            return f"likelihood({condition}, 0.001)" if field in collection.selective else condition, [_stored(value)]
        case schema.In(field, wanted):
            return f"{column_of(collection, field)} IN ({', '.join('?' * len(wanted))})", [_stored(v) for v in wanted]
        case schema.Has(field, value):
            return f"EXISTS (SELECT 1 FROM json_each({column_of(collection, field)}) WHERE value = ?)", [value]
        case schema.Range():
            column = column_of(collection, part.field)
            bounds = {">=": part.ge, ">": part.gt, "<=": part.le, "<": part.lt}
            given = {sign: bound for sign, bound in bounds.items() if bound is not None}
            bounded = [f"{column} {sign} ?" for sign in given]
            if listed and part.field == collection.order:
                # by itself SQLite takes a bound for one that leaves a quarter: between two times it would walk all of
                # the tenant in order, not the records of the user or session that is named
                bounded = [f"likelihood({bound}, 0.9375)" for bound in bounded]
            condition = " AND ".join(bounded)
            return condition or f"{column} IS NOT NULL", list(given.values())


def _has_any(collection: schema.Collection, parts: Sequence[schema.Filter]) -> SqlFilter | None:
    """Returns the condition that a list has any of several values, in one walk of the list: a filter on metadata may
    name 256. None if the parts are something else."""
    values = [part.value for part in parts if isinstance(part, schema.Has)]
    fields = {part.field for part in parts if isinstance(part, schema.Has)}
    if len(fields) != 1 or len(values) < len(parts):
        return None
    listed = f"json_each({column_of(collection, *fields)})"
    return f"EXISTS (SELECT 1 FROM {listed} WHERE value IN ({', '.join('?' * len(values))}))", [*values]


def _joined(
    collection: schema.Collection, parts: Sequence[schema.Filter], word: str, empty: str, *, listed: bool = False
) -> SqlFilter:
    result = [where(collection, part, listed=listed) for part in parts]
    return f"({word.join(sql for sql, _ in result) or empty})", [value for _, values in result for value in values]


def selection(
    collection: schema.Collection, tenant: str | None, part: schema.Filter, *, listed: bool = False
) -> SqlFilter:
    """Returns the filter for one tenant, or for all with None. `listed`: for a list.

    If the filter looks for the few documents past a time limit, a "+" keeps SQLite from walking all of the tenant: the
    index of the limit finds them.
    """
    condition, values = where(collection, part, listed=listed and tenant is not None)
    if tenant is None:
        return condition, values
    return f"{'+' if _few(collection, part) else ''}tenant = ? AND {condition}", [tenant, *values]


def order_of(collection: schema.Collection, part: schema.Filter) -> str:
    """Returns the order's column.

    A "+" keeps SQLite from walking the collection in order, so that it sorts what another index finds: if ids or
    selective fields are named, or if the filter looks for the few documents past a time limit.
    """
    parts = part.parts if isinstance(part, schema.And) else (part,)
    fields = (collection.id_field, *collection.selective)
    selects = any(
        isinstance(condition, schema.Eq | schema.In | schema.Absent) and condition.field in fields
        for condition in parts
    )
    return f"+{quoted(collection.order)}" if selects or _few(collection, part) else quoted(collection.order)


def _few(collection: schema.Collection, part: schema.Filter) -> bool:
    """Returns whether the filter looks for the few documents past a time limit."""
    parts = part.parts if isinstance(part, schema.And) else (part,)
    times = {
        condition.field
        for condition in parts
        if isinstance(condition, schema.Range) and (condition.le, condition.lt) != (None, None)
    }
    return bool(times & {*collection.global_indexes} - {collection.order})


def column_of(collection: schema.Collection, field: str) -> str:
    """Returns the quoted column of a field. Raises KeyError if the collection does not declare it."""
    if field in ("tenant_id", collection.id_field):
        return "tenant" if field == "tenant_id" else "id"
    if field not in collection.fields and field != collection.order:
        raise KeyError(f"{collection.name} declares no field {field}")
    return quoted(field)


def select_documents(
    connection: apsw.Connection,
    collection: schema.Collection,
    tenant: str | None,
    where: schema.Filter,
    order: Order,
    after: schema.After | None,
    limit: int,
) -> list[tuple[str, str]]:
    """Returns ids and documents as JSON text. `order` and `after` are by the field that the filter selects, then
    by id."""
    condition, values = selection(collection, tenant, where, listed=True)
    by, sign = order_of(collection, where), "<" if order == "desc" else ">"
    if after is not None:
        condition += f" AND ({by}, id) {sign} (?, ?)"
        values += [after.value, after.id]
    # the limit is a literal, because the planner ignores bound values
    statement = (
        f"SELECT id, {WHOLE_DOC} FROM {quoted(collection.name)} WHERE {condition} ORDER BY {by} {order}, id {order} "
        f"LIMIT {int(limit)}"
    )
    documents: Any = connection.execute(statement, values).fetchall()
    return [*documents]


def known_by_columns(
    connection: apsw.Connection, collection: schema.Collection, tenant: str, doc_id: str
) -> schema.Doc:
    """Returns what the columns say of a document whose text cannot be read: its id, its owners, its place in lists."""
    named = [name for name in collection.columns if "." not in name and collection.fields.get(name) != "list"]
    statement = f"SELECT {', '.join(map(quoted, named))} FROM {quoted(collection.name)} WHERE tenant = ? AND id = ?"
    row: Any = connection.execute(statement, (tenant, doc_id)).fetchone()
    known = dict(zip(named, row or (), strict=False))
    return {**known, "tenant_id": tenant, collection.id_field: doc_id}


log = logging.getLogger(__name__)


def tables(collection: schema.Collection) -> list[str]:
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


def indexes(collection: schema.Collection) -> dict[str, str]:
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


def usage_triggers(collection: schema.Collection) -> dict[str, str]:
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


def payer(collection: schema.Collection, row: str = "") -> str:
    """Returns the expression for the tenant for whom a document counts. `row`: `old.` or `new.`, in triggers."""
    if collection.payer == "tenant_id":
        return f"{row}tenant"
    named = f"CASE WHEN json_valid({row}doc) THEN {row}doc ->> '$.{collection.payer}' END"  # a check reads broken ones
    return f"ifnull({named}, {row}tenant)"


def usage_query(collection: schema.Collection) -> str:
    """Returns the query of tenant, collection, records and bytes that counts every document."""
    records = "0" if collection.only_bytes else "count(*)"
    return (
        f"SELECT {payer(collection)} AS payer, {apsw.format_sql_value(collection.name)}, {records}, "
        f"sum(octet_length(doc)) FROM {quoted(collection.name)} GROUP BY payer"
    )


def _unique(collection: schema.Collection, unique: schema.Unique) -> str:
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


def written(connection: apsw.Connection) -> schema.Written:
    """Returns the layout of the store, 0 for a new one, and its release. Raises errors of SQLite."""
    layout, release = int(connection.pragma("user_version")), None
    if _columns(connection, "store_info"):
        release = connection.execute("SELECT value FROM store_info WHERE name = 'release'").get
    return schema.Written(layout, release)


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
        schema.refuse_newer_layout(what, written(connection), schema.newest(LAYOUT, steps))


def migrate(
    connection: apsw.Connection,
    collections: Sequence[schema.Collection],
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
            layout = schema.newest(LAYOUT, steps)
            for number, step in schema.due(before.layout or layout, steps):  # a new store is made as the newest one
                log.info("the store is brought to a newer layout", extra={"layout": number})
                step(connection)
            for statement in _OWN_TABLES:
                connection.execute(statement)
            if not keeps_log:
                connection.execute("DELETE FROM changes; DELETE FROM change_heads")
            for collection in collections:
                _reconcile(connection, collection)
            begin_counting(connection)
            if before != schema.Written(layout, VERSION):
                connection.execute("INSERT OR REPLACE INTO store_info VALUES ('release', ?)", (VERSION,))
                connection.pragma("user_version", layout)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


def _reconcile(connection: apsw.Connection, collection: schema.Collection) -> None:
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


def count_usage(connection: apsw.Connection, collection: schema.Collection) -> None:
    """Counts the records of a collection anew. Runs in a transaction."""
    connection.execute("DELETE FROM usage WHERE collection = ?", (collection.name,))
    connection.execute(f"INSERT INTO usage {usage_query(collection)}")


def _columns(connection: apsw.Connection, table: str) -> set[str]:
    return {str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")}


def _refill(connection: apsw.Connection, collection: schema.Collection, missing: Sequence[str]) -> None:
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
