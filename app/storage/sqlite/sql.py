"""SQL for declared collections: names, filters, and the statements that read and write documents.

Names come from declarations; values are always bound.
"""

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, TypeAlias

import apsw
import orjson

from app.storage.protocol import Fetched, Order, Tallied
from app.storage.schema import (
    Absent,
    After,
    And,
    Collection,
    Doc,
    Eq,
    Filter,
    Has,
    In,
    Not,
    Or,
    Range,
    Unique,
    top_of,
    value_at,
)
from app.storage.sqlite.connections import SUMMED_BYTES

WHOLE_DOC = f"CASE WHEN octet_length(doc) < {SUMMED_BYTES} OR doc_sum = sum_of(CAST(doc AS BLOB)) THEN doc ELSE '' END"
"""The text of a document, or an empty one, which is no JSON, if its sum is wrong."""


Value: TypeAlias = str | int | float | bytes | None

SqlFilter: TypeAlias = tuple[str, list[Value]]


def quoted(name: str) -> str:
    """Returns the name as a quoted SQL identifier."""
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
    some = tuple(column for column in columns if top_of(column) in changed)
    listed = "".join(f"{quoted(column)} = ?, " for column in some)
    return some, f"UPDATE {quoted(name)} SET {listed}doc = ?, doc_sum = ? WHERE row = ?"


def unique_index(collection: Collection, unique: Unique) -> str:
    """Returns the name of the index of a unique key."""
    return f"{collection.name}_unique_{unique.name}"


def search_table(collection: Collection) -> str:
    """Returns the quoted name of the collection's table of search rows."""
    return quoted(f"{collection.name}_search")


def row_values(collection: Collection, doc: Mapping[str, object]) -> list[Value]:
    """Returns the values of the collection's columns, in order."""
    return values_of(doc, collection.columns)


def values_of(doc: Mapping[str, object], names: Sequence[str]) -> list[Value]:
    """Returns the stored values of these fields, in order."""
    return [_stored(value_at(doc, name)) for name in names]


def _stored(value: Any) -> Value:
    if isinstance(value, list):
        return orjson.dumps(value).decode()
    return int(value) if isinstance(value, bool) else value


def where(collection: Collection, part: Filter) -> SqlFilter:
    """Returns a filter as an SQL condition and its bound values."""
    match part:
        case And(parts):
            return _joined(collection, parts, " AND ", "1")
        case Or(parts):
            return _has_any(collection, parts) or _joined(collection, parts, " OR ", "0")
        case Not(inner):
            sql, values = where(collection, inner)
            return f"NOT ifnull({sql}, 0)", values
        case Absent(field):
            return f"{column_of(collection, field)} IS NULL", []
        case Eq(field, value):
            condition = f"{column_of(collection, field)} = ?"
            # of two indexes that know two columns each, SQLite shall take the one that finds few documents
            return f"likelihood({condition}, 0.001)" if field in collection.selective else condition, [_stored(value)]
        case In(field, wanted):
            return f"{column_of(collection, field)} IN ({', '.join('?' * len(wanted))})", [_stored(v) for v in wanted]
        case Has(field, value):
            return f"EXISTS (SELECT 1 FROM json_each({column_of(collection, field)}) WHERE value = ?)", [value]
        case Range():
            return _range(collection, part)


def _has_any(collection: Collection, parts: Sequence[Filter]) -> SqlFilter | None:
    """Returns the condition that a list has any of several values, in one walk of the list: a filter on metadata may
    name 256. None if the parts are something else."""
    values = [part.value for part in parts if isinstance(part, Has)]
    fields = {part.field for part in parts if isinstance(part, Has)}
    if len(fields) != 1 or len(values) < len(parts):
        return None
    listed = f"json_each({column_of(collection, *fields)})"
    return f"EXISTS (SELECT 1 FROM {listed} WHERE value IN ({', '.join('?' * len(values))}))", [*values]


def _range(collection: Collection, part: Range) -> SqlFilter:
    column = column_of(collection, part.field)
    bounds = {">=": part.ge, ">": part.gt, "<=": part.le, "<": part.lt}
    given = {sign: bound for sign, bound in bounds.items() if bound is not None}
    return " AND ".join([f"{column} {sign} ?" for sign in given]) or f"{column} IS NOT NULL", list(given.values())


def _joined(collection: Collection, parts: Sequence[Filter], word: str, empty: str) -> SqlFilter:
    result = [where(collection, part) for part in parts]
    return f"({word.join(sql for sql, _ in result) or empty})", [value for _, values in result for value in values]


def selection(collection: Collection, tenant: str | None, part: Filter) -> SqlFilter:
    """Returns the filter for one tenant, or for all with None.

    If the filter looks for the few documents past a time limit, a "+" keeps SQLite from walking all of the tenant: the
    index of the limit finds them.
    """
    condition, values = where(collection, part)
    if tenant is None:
        return condition, values
    return f"{'+' if _few(collection, part) else ''}tenant = ? AND {condition}", [tenant, *values]


def order_of(collection: Collection, part: Filter) -> str:
    """Returns the order's column.

    A "+" keeps SQLite from walking the collection in order, so that it sorts what another index finds: if ids or
    selective fields are named, or if the filter looks for the few documents past a time limit.
    """
    parts = part.parts if isinstance(part, And) else (part,)
    fields = (collection.id_field, *collection.selective)
    selects = any(isinstance(condition, Eq | In) and condition.field in fields for condition in parts)
    return f"+{quoted(collection.order)}" if selects or _few(collection, part) else quoted(collection.order)


def _few(collection: Collection, part: Filter) -> bool:
    """Returns whether the filter looks for the few documents past a time limit."""
    parts = part.parts if isinstance(part, And) else (part,)
    times = {
        condition.field
        for condition in parts
        if isinstance(condition, Range) and (condition.le, condition.lt) != (None, None)
    }
    return bool(times & {*collection.global_indexes} - {collection.order})


def column_of(collection: Collection, field: str) -> str:
    """Returns the quoted column of a field. Raises KeyError if the collection does not declare it."""
    if field in ("tenant_id", collection.id_field):
        return "tenant" if field == "tenant_id" else "id"
    if field not in collection.fields and field != collection.order:
        raise KeyError(f"{collection.name} declares no field {field}")
    return quoted(field)


def select_documents(
    connection: apsw.Connection,
    collection: Collection,
    tenant: str | None,
    where: Filter,
    order: Order,
    after: After | None,
    limit: int,
) -> list[tuple[str, str]]:
    """Returns ids and documents as JSON text. `order` and `after` are by the field that the filter selects, then
    by id."""
    condition, values = selection(collection, tenant, where)
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


def select_texts(
    connection: apsw.Connection, collection: Collection, tenant: str, rows: Sequence[int]
) -> list[tuple[int, str]]:
    """Returns documents by their row number, as JSON text."""
    if not rows:
        return []
    marks = ", ".join("?" * len(rows))
    # "+" keeps SQLite from walking all of the tenant in one of its indexes
    statement = f"SELECT row, {WHOLE_DOC} FROM {quoted(collection.name)} WHERE row IN ({marks}) AND +tenant = ?"
    texts: Any = connection.execute(statement, (*rows, tenant)).fetchall()
    return [*texts]


def fetched(text: str) -> Fetched | None:
    """Returns a document that was selected as JSON text, for a search, or None if it cannot be read."""
    try:
        return Fetched(orjson.loads(text))
    except orjson.JSONDecodeError:
        return None


def select_values(
    connection: apsw.Connection,
    collection: Collection,
    tenant: str,
    field: str,
    where: Filter,
    order: Order,
    limit: int,
) -> list[str]:
    """Returns distinct values of a field. Each is found from the one before by one look into an index, however many
    documents have it."""
    name, column = quoted(collection.name), column_of(collection, field)
    condition, values = selection(collection, tenant, where)
    first = f"SELECT {column} FROM {name} WHERE {column} IS NOT NULL AND {condition}"
    further = f"{first} AND {column} {'<' if order == 'desc' else '>'} found.value"
    nearest = f"ORDER BY {column} {order} LIMIT 1"
    statement = (
        f"WITH RECURSIVE found(value) AS (SELECT * FROM ({first} {nearest}) UNION ALL "
        f"SELECT ({further} {nearest}) FROM found WHERE found.value IS NOT NULL LIMIT {int(limit)}) "
        "SELECT value FROM found WHERE value IS NOT NULL"
    )
    return [value for (value,) in connection.execute(statement, [*values, *values])]


def known_by_columns(connection: apsw.Connection, collection: Collection, tenant: str, doc_id: str) -> Doc:
    """Returns what the columns say of a document whose text cannot be read: its id, its owners, its place in lists."""
    named = [name for name in collection.columns if "." not in name and collection.fields.get(name) != "list"]
    statement = f"SELECT {', '.join(map(quoted, named))} FROM {quoted(collection.name)} WHERE tenant = ? AND id = ?"
    row: Any = connection.execute(statement, (tenant, doc_id)).fetchone()
    known = dict(zip(named, row or (), strict=False))
    return {**known, "tenant_id": tenant, collection.id_field: doc_id}


def count_documents(connection: apsw.Connection, collection: Collection, tenant: str | None, where: Filter) -> int:
    """Counts the documents that match."""
    condition, values = selection(collection, tenant, where)
    statement = f"SELECT count(*) FROM {quoted(collection.name)} WHERE {condition}"
    ((count,),) = connection.execute(statement, values)
    return int(count)


def count_by_values(
    connection: apsw.Connection,
    collection: Collection,
    tenant: str,
    fields: Sequence[str],
    where: Filter,
    first: int | None,
) -> Tallied:
    """Counts the documents that match by their values of the fields, or by the first characters of the last one."""
    columns = [column_of(collection, field) for field in fields]
    condition, values = selection(collection, tenant, where)
    if first is not None:
        columns[-1] = f"substr({columns[-1]}, 1, {int(first)})"
    groups = ", ".join(str(place) for place in range(1, len(columns) + 1))
    statement = (
        f"SELECT {', '.join(columns)}, count(*) FROM {quoted(collection.name)} WHERE {condition} "
        f"GROUP BY {groups} ORDER BY {groups}"
    )
    return {tuple(group): int(count) for *group, count in connection.execute(statement, values)}
