"""Statements over many documents of the embedded store: decay, erasure, moving to another model or another store."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import apsw
import orjson

from app.storage.index.partitions import code, model_at
from app.storage.protocol import DecayRule, MissingVector, PartitionSelector, VectorCounts, unpinned
from app.storage.schema import Collection, Filter
from app.storage.sqlite import search_rows, sql
from app.storage.sqlite.changes import insert_document
from app.storage.sqlite.connections import ReadPool
from app.storage.sqlite.writer import WriterThread
from app.storage.transfer import Counter, Record

LOOKED_AT = 50_000
"""Rows read by one `look`. While it runs, the WAL cannot be truncated."""
ROWS = 5_000
DAY_SECONDS = 86_400.0

_IDLE_DAYS = f"(unixepoch(?, 'subsec') - unixepoch(anchored_at, 'subsec')) / {DAY_SECONDS}"
_VALUE = f"max(min(base_importance, ?), base_importance * pow(?, max(0.0, {_IDLE_DAYS} - ?) / 30.0))"
_DECAYS = (
    "typeof(importance) IN ('integer', 'real') AND typeof(base_importance) IN ('integer', 'real') "
    "AND typeof(anchored_at) = 'text' AND unixepoch(anchored_at, 'subsec') IS NOT NULL"
)
"""Whether a rule can be applied to a document."""
_MOVED = "importance IS NOT faded AND ifnull(abs(importance - faded) >= ?, 1)"


@dataclass(slots=True)
class DecaySteps:
    """Applies a decay rule in row order, alternating `look` and `write`."""

    collection: Collection
    tenant: str | None
    rule: DecayRule
    where: Filter
    last: int = 0

    def look(self, connection: apsw.Connection) -> list[int] | None:
        """Returns the next rows to write; an empty list if none of the rows read has moved, None at the end."""
        table = sql.quoted(self.collection.name)
        end: Any
        ((end,),) = connection.execute(f"SELECT max(row) FROM {table}").fetchall()
        if self.last >= (end or 0):
            return None
        upto = self.last + LOOKED_AT
        faded, values = self._faded("row > ? AND row <= ?", [self.last, upto])
        statement = f"SELECT which FROM ({faded}) WHERE {_MOVED} ORDER BY which LIMIT {ROWS}"
        rows = [int(row) for (row,) in connection.execute(statement, (*values, self.rule.least))]
        self.last = rows[-1] if len(rows) == ROWS else upto
        return rows

    def write(self, rows: Sequence[int], connection: apsw.Connection) -> int:
        """Recomputes and writes the rows. A row that changed since `look` keeps the newer values. Returns how many
        changed."""
        table = sql.quoted(self.collection.name)
        faded, values = self._faded("row IN (SELECT value FROM json_each(?))", [orjson.dumps(rows).decode()])
        statement = (
            f"UPDATE {table} SET importance = faded, doc = json_set(doc, '$.importance', faded) FROM "
            f"({faded}) WHERE row = which AND {_MOVED.replace('importance', f'{table}.importance')}"
        )
        connection.execute(statement, (*values, self.rule.least)).fetchall()
        changed = connection.changes()
        connection.execute(
            f"UPDATE {table} SET doc_sum = sum_of(CAST(doc AS BLOB)) "
            f"WHERE row IN (SELECT value FROM json_each(?)) AND octet_length(doc) >= {sql.SUMMED_BYTES}",
            (orjson.dumps(rows).decode(),),
        )
        return changed

    def _faded(self, rows: str, which: list[sql.Value]) -> sql.SqlFilter:
        """Returns a query for (which, importance, faded) of those of `rows` to which the rule applies."""
        condition, values = sql.selection(self.collection, self.tenant, unpinned(self.where))
        rule = self.rule
        formula: list[sql.Value] = [rule.floor, rule.factor, rule.now, rule.grace_days]
        statement = (
            f"SELECT row AS which, importance, {_VALUE} AS faded FROM {sql.quoted(self.collection.name)} "
            f"WHERE {rows} AND {condition} AND {_DECAYS}"
        )
        return statement, [*formula, *which, *values]


def undecayable(
    connection: apsw.Connection, collection: Collection, tenant: str | None, where: Filter, limit: int
) -> list[str]:
    """Returns the ids of documents that no decay rule can be applied to."""
    condition, values = sql.selection(collection, tenant, unpinned(where))
    table = sql.quoted(collection.name)
    statement = f"SELECT id FROM {table} WHERE {condition} AND NOT ({_DECAYS}) ORDER BY row LIMIT {int(limit)}"
    return [doc_id for (doc_id,) in connection.execute(statement, values)]


def empty_partitions(connection: apsw.Connection, tenant: str, user: str) -> list[int]:
    """Returns the numbers of the user's partitions without documents."""
    statement = "SELECT pair FROM pairs WHERE tenant = ? AND user = ? AND count = 0"
    rows: list[Any] = connection.execute(statement, (tenant, user)).fetchall()
    return [int(partition) for (partition,) in rows]


def forget(
    connection: apsw.Connection, collections: Sequence[Collection], tenant: str, user: str, counters: Sequence[str]
) -> None:
    """Deletes the user's empty partitions and these counters. Runs in the writer's thread, in a transaction."""
    for partition in empty_partitions(connection, tenant, user):
        for table in (
            *(sql.search_table(collection) for collection in collections if collection.searched),
            "kept_vectors",
            "pairs",
        ):
            connection.execute(f"DELETE FROM {table} WHERE pair = ?", (partition,))
    connection.executemany("DELETE FROM counters WHERE tenant = ? AND name = ?", [(tenant, name) for name in counters])


DROPPED_AT_ONCE = 5_000
_WHICH: dict[PartitionSelector, str] = {
    "every": "?1 = ?1",
    "unlike": "model <> ?1",
    "other": "model NOT IN (0, ?1)",
}


class EmbeddedReembedding:
    """Implements `Reembedding`."""

    def __init__(self, readers: ReadPool, writer: WriterThread) -> None:
        self._readers, self._writer = readers, writer

    async def partitions(
        self, collection: Collection, model: int, after: int, limit: int, which: PartitionSelector
    ) -> list[int]:
        statement = (
            f"SELECT pair FROM pairs WHERE +collection = ?2 AND count > 0 AND pair > ?3 AND {_WHICH[which]} "
            "ORDER BY pair LIMIT ?4"
        )
        bound = (model, collection.name, after, limit)
        return await self._readers.apart(
            lambda connection: [int(partition) for (partition,) in connection.execute(statement, bound)]
        )

    async def missing_vectors(
        self, collection: Collection, partitions: Sequence[int], model: int, after: int, limit: int
    ) -> list[MissingVector]:
        statement = (
            f"SELECT row, {sql.WHOLE_DOC} FROM {sql.quoted(collection.name)} WHERE row IN ("
            f"SELECT s.row FROM {sql.search_table(collection)} s WHERE s.pair IN ({_marks(partitions)}) AND s.row > ? "
            f"AND {_lacks(collection)} ORDER BY s.row LIMIT ?) ORDER BY row"
        )
        bound = (*partitions, after, code(model), limit)

        def read(connection: apsw.Connection) -> list[MissingVector]:
            rows: Any = connection.execute(statement, bound)
            return [MissingVector(row, orjson.loads(doc)) for row, doc in rows]

        return await self._readers.apart(read)

    async def mark_migrated(self, collection: Collection, partitions: Sequence[int], model: int) -> None:
        statement = (
            f"UPDATE pairs SET model = ? WHERE pair IN ({_marks(partitions)}) AND NOT EXISTS ("
            f"SELECT 1 FROM {sql.search_table(collection)} s WHERE s.pair = pairs.pair AND {_lacks(collection)})"
        )

        def write(connection: apsw.Connection) -> None:
            connection.execute(statement, (model, *partitions, code(model)))

        await self._writer.submit(write)

    async def counts(self, collection: Collection, model: int, dim: int) -> VectorCounts:
        of = f"substr(head, {model_at(collection.spec) + 1}, 4)"
        statement = (
            f"SELECT (SELECT count(*) FROM {sql.quoted(collection.name)}), count(vector), "
            f"ifnull(sum({of} = ?1 AND (length(vector) = ?2 OR (length(vector) - 1) % ?2 = 0)), 0), "
            "(SELECT count(*) FROM kept_vectors k JOIN pairs p ON p.pair = k.pair WHERE p.collection = ?3) "
            f"FROM {sql.search_table(collection)} WHERE head IS NOT NULL"
        )

        def read(connection: apsw.Connection) -> VectorCounts:
            row: Any = connection.execute(statement, (code(model), dim, collection.name)).fetchone()
            records, vectors, of_model, alternates = map(int, row)
            return VectorCounts.of(records, vectors, of_model, alternates)

        return await self._readers.apart(read)

    async def drop_previous_vectors(self, collection: Collection) -> int:
        statement = (
            "SELECT k.pair FROM kept_vectors k JOIN pairs p ON p.pair = k.pair "
            "WHERE k.pair > ? AND p.collection = ? ORDER BY k.pair LIMIT ?"
        )
        after = dropped = 0

        def drop_some(connection: apsw.Connection) -> bool:
            nonlocal after, dropped
            rows: Any = connection.execute(statement, (after, collection.name, DROPPED_AT_ONCE)).fetchall()
            for (partition,) in dict.fromkeys(rows):
                connection.execute("DELETE FROM kept_vectors WHERE pair = ?", (partition,))
                dropped += connection.changes()
                after = partition
            return len(rows) == DROPPED_AT_ONCE

        while await self._writer.submit(drop_some):
            pass  # others can write in between
        return dropped


def _marks(values: Sequence[int]) -> str:
    return ", ".join("?" * len(values))


def _lacks(collection: Collection) -> str:
    """Returns the condition that the search row `s` lacks a vector of a model. Its parameter is the model's code."""
    of = f"substr(s.head, {model_at(collection.spec) + 1}, 4)"
    return f"s.head IS NOT NULL AND ({of} <> ? OR s.vector IS NULL)"


def export(connection: apsw.Connection, collection: Collection, after: str | None, limit: int) -> list[Record]:
    """Returns up to `limit` records after the position `after`, by row number."""
    return _records(connection, collection, "d.row > ? ORDER BY d.row LIMIT ?", (int(after or 0), limit))


def records_between(connection: apsw.Connection, collection: Collection, first: int, last: int) -> list[Record]:
    """Returns the records of these row numbers."""
    return _records(connection, collection, "d.row BETWEEN ? AND ? ORDER BY d.row", (first, last))


def _records(connection: apsw.Connection, collection: Collection, which: str, bound: tuple[int, int]) -> list[Record]:
    table = sql.quoted(collection.name)
    named: tuple[str, ...] = ()
    if collection.searched is None:
        statement = f"SELECT d.row, {sql.WHOLE_DOC}, NULL, NULL, NULL, NULL, NULL FROM {table} d WHERE {which}"
    else:
        named = (collection.name,)
        statement = (
            f"SELECT d.row, {sql.WHOLE_DOC}, s.sum, s.head, s.vector, s.terms, s.facets FROM {table} d "
            "LEFT JOIN pairs p ON p.collection = ? AND p.tenant = d.tenant "
            "AND p.user = ifnull(d.user_id, '') AND p.agent = ifnull(d.agent_id, '') "
            f"LEFT JOIN {sql.search_table(collection)} s ON s.pair = p.pair AND s.row = d.row WHERE {which}"
        )
    return [
        Record(orjson.loads(doc), None if parts[1] is None else search_rows.checked(row, *parts), str(row))
        for row, doc, *parts in connection.execute(statement, (*named, *bound))
    ]


def load(connection: apsw.Connection, collection: Collection, records: Sequence[Record]) -> int:
    """Inserts records, skipping existing ids. Returns the number inserted. Runs in the writer's thread."""
    rows, new = search_rows.SearchRowWriter(connection), 0
    for record in records:
        tenant, doc_id = record.doc["tenant_id"], str(record.doc[collection.id_field])
        statement = f"SELECT 1 FROM {sql.quoted(collection.name)} WHERE tenant = ? AND id = ?"
        if connection.execute(statement, (tenant, doc_id)).fetchone() is not None:
            continue
        row = insert_document(connection, collection, record.doc)
        if record.packed is not None:
            rows.take_in(collection, record.doc, row, record.packed)
        new += 1
    rows.write_partitions()
    return new


def counters(connection: apsw.Connection) -> list[Counter]:
    """Returns all counters."""
    rows = connection.execute("SELECT tenant, name, value FROM counters")
    return [Counter(str(tenant), str(name), int(value)) for tenant, name, value in rows]


def load_counters(connection: apsw.Connection, given: Sequence[Counter], *, only: bool = False) -> None:
    """Raises the counters to these values; `only` makes them exactly these. Runs in the writer's thread."""
    if only:
        connection.execute("DELETE FROM counters")
    statement = "INSERT INTO counters VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = max(value, excluded.value)"
    for counter in given:
        connection.execute(statement, (counter.tenant, counter.name, counter.value))
