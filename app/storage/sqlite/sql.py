"""SQL for declared collections: tables, indexes, filters. Names come from declarations; values are always bound."""

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, TypeAlias

import apsw
import orjson

from app.storage.filters import Absent, And, Eq, Filter, Has, In, Not, Or, Range, top_of, value_at
from app.storage.schema import Collection, Unique

Value: TypeAlias = str | int | float | bytes | None
SqlFilter: TypeAlias = tuple[str, list[Value]]


def quoted(name: str) -> str:
    """Returns the name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def tables(collection: Collection) -> list[str]:
    """Returns the statements that create the collection's tables.

    A `row` number is never reused, so that a stale handle finds nothing.
    """
    fields = "".join(f", {quoted(name)}" for name in collection.columns)
    result = [
        f"CREATE TABLE IF NOT EXISTS {quoted(collection.name)} (row INTEGER PRIMARY KEY AUTOINCREMENT, "
        f"tenant TEXT NOT NULL, id TEXT NOT NULL{fields}, doc TEXT NOT NULL)"
    ]
    if collection.searched:
        result.append(
            f"CREATE TABLE IF NOT EXISTS {search_table(collection)} (pair INTEGER, row INTEGER, rev INTEGER NOT NULL, "
            "head BLOB, vector BLOB, terms BLOB, facets BLOB, PRIMARY KEY (pair, row)) WITHOUT ROWID"
        )
    return result


def indexes(collection: Collection) -> dict[str, str]:
    """Returns the statements that create the collection's indexes, by name."""
    name, order = collection.name, quoted(collection.order)
    result = {f"{name}_id": f"CREATE UNIQUE INDEX {quoted(f'{name}_id')} ON {quoted(name)} (tenant, id)"}
    for prefix in ((), *collection.indexes):
        label = quoted("_".join((name, "by", *prefix, collection.order)))
        listed = "".join(f"{quoted(field)}, " for field in prefix)
        result[label.strip('"')] = f"CREATE INDEX {label} ON {quoted(name)} (tenant, {listed}{order}, id)"
    for field in collection.global_indexes:
        label = f"{name}_everywhere_{field}"
        there = "" if field == collection.order else f" WHERE {quoted(field)} IS NOT NULL"  # time limits are rare
        result[label] = f"CREATE INDEX {quoted(label)} ON {quoted(name)} ({quoted(field)}, id){there}"
    for unique in collection.unique:
        result[unique_index(collection, unique)] = _unique(collection, unique)
    if collection.searched:
        result[f"{name}_rev"] = f"CREATE INDEX {quoted(f'{name}_rev')} ON {search_table(collection)} (pair, rev)"
    return result


@cache
def insertion(name: str, columns: tuple[str, ...]) -> str:
    """Returns the statement that inserts tenant, id, the columns and the document."""
    named = ", ".join(["tenant", "id", *map(quoted, columns), "doc"])
    return f"INSERT INTO {quoted(name)} ({named}) VALUES ({', '.join('?' * (len(columns) + 3))})"


@lru_cache(1_000)
def assignment(name: str, columns: tuple[str, ...], changed: frozenset[str]) -> tuple[tuple[str, ...], str]:
    """Returns the columns of the top-level fields `changed`, and the statement that sets only these and the document.

    SQLite rewrites each index that contains a column which is set, even to an equal value.
    """
    some = tuple(column for column in columns if top_of(column) in changed)
    listed = "".join(f"{quoted(column)} = ?, " for column in some)
    return some, f"UPDATE {quoted(name)} SET {listed}doc = ? WHERE row = ?"


def unique_index(collection: Collection, unique: Unique) -> str:
    """Returns the name of the index of a unique key."""
    return f"{collection.name}_unique_{unique.name}"


def search_table(collection: Collection) -> str:
    """Returns the quoted name of the collection's table of search rows."""
    return quoted(f"{collection.name}_search")


def _unique(collection: Collection, unique: Unique) -> str:
    fields = ", ".join(f"ifnull({quoted(field)}, '')" for field in unique.fields)
    when, values = where(collection, unique.when)
    literals = map(apsw.format_sql_value, values)  # partial indexes take no parameters; these are our constants
    when = "".join(piece + next(literals, "") for piece in when.split("?"))
    return (
        f"CREATE UNIQUE INDEX {quoted(unique_index(collection, unique))} ON {quoted(collection.name)} "
        f"(tenant, {fields}) WHERE {when}"
    )


def row_values(collection: Collection, doc: Mapping[str, Any]) -> list[Value]:
    """Returns the values of the collection's columns, in order."""
    return values_of(doc, collection.columns)


def values_of(doc: Mapping[str, Any], names: Sequence[str]) -> list[Value]:
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
            return _joined(collection, parts, " OR ", "0")
        case Not(inner):
            sql, values = where(collection, inner)
            return f"NOT ifnull({sql}, 0)", values
        case Absent(field):
            return f"{_column(collection, field)} IS NULL", []
        case Eq(field, value):
            return f"{_column(collection, field)} = ?", [_stored(value)]
        case In(field, wanted):
            return f"{_column(collection, field)} IN ({', '.join('?' * len(wanted))})", [_stored(v) for v in wanted]
        case Has(field, value):
            return f"EXISTS (SELECT 1 FROM json_each({_column(collection, field)}) WHERE value = ?)", [value]
        case Range():
            return _range(collection, part)


def _range(collection: Collection, part: Range) -> SqlFilter:
    column = _column(collection, part.field)
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


def distinct(collection: Collection, tenant: str, field: str, part: Filter, order: str, limit: int) -> SqlFilter:
    """Returns the statement for distinct values of a field, with its bound values.

    Each value is found from the one before by one look into an index, however many documents have it.
    """
    name, column = quoted(collection.name), _column(collection, field)
    condition, values = selection(collection, tenant, part)
    first = f"SELECT {column} FROM {name} WHERE {column} IS NOT NULL AND {condition}"
    following = f"{first} AND {column} {'<' if order == 'desc' else '>'} found.value"
    ordered = f"ORDER BY {column} {order} LIMIT 1"
    statement = (
        f"WITH RECURSIVE found(value) AS (SELECT * FROM ({first} {ordered}) UNION ALL "
        f"SELECT ({following} {ordered}) FROM found WHERE found.value IS NOT NULL LIMIT {int(limit)}) "
        "SELECT value FROM found WHERE value IS NOT NULL"
    )
    return statement, [*values, *values]


def order_of(collection: Collection, part: Filter) -> str:
    """Returns the order's column.

    A "+" keeps SQLite from walking the collection in order, so that it sorts what another index finds: if ids or
    selective fields are named, or if the filter looks for the few documents past a time limit.
    """
    another = _few(collection, part) or _selects(collection, part)
    return f"+{quoted(collection.order)}" if another else quoted(collection.order)


def _selects(collection: Collection, part: Filter) -> bool:
    """Returns whether only few documents can match."""
    parts = part.parts if isinstance(part, And) else (part,)
    fields = (collection.id_field, *collection.selective)
    return any(isinstance(one, Eq | In) and one.field in fields for one in parts)


def _few(collection: Collection, part: Filter) -> bool:
    parts = part.parts if isinstance(part, And) else (part,)
    times = {one.field for one in parts if isinstance(one, Range) and (one.le, one.lt) != (None, None)}
    return bool(times & {*collection.global_indexes} - {collection.order})


def _column(collection: Collection, field: str) -> str:
    if field in ("tenant_id", collection.id_field):
        return "tenant" if field == "tenant_id" else "id"
    if field not in collection.fields and field != collection.order:
        raise KeyError(f"{collection.name} declares no field {field}")
    return quoted(field)
