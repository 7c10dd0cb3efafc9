"""Operations on sets of records: decay in one statement, and erasure that leaves no bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import orjson

from app.errors import StoreUnavailable
from app.storage.filters import Eq, Filter, Not, both
from app.storage.protocol import DecayRule
from app.storage.schema import Collection
from app.storage.sqlite import sql
from app.storage.sqlite.schema import connect

LOOKED_AT = 50_000
"""Rows read by one `look`. While it runs, the WAL cannot be truncated."""
ROWS = 5_000
DAY_SECONDS = 86_400.0

_IDLE_DAYS = f"(unixepoch(?, 'subsec') - unixepoch(anchored_at, 'subsec')) / {DAY_SECONDS}"
_VALUE = f"max(min(base_importance, ?), base_importance * pow(?, max(0.0, {_IDLE_DAYS} - ?) / 30.0))"
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
        return connection.changes()

    def _faded(self, rows: str, which: list[sql.Value]) -> sql.SqlFilter:
        """Returns a query for (which, importance, faded) of those of `rows` to which the rule applies."""
        condition, values = sql.selection(self.collection, self.tenant, both(self.where, Not(Eq("pinned", True))))
        rule = self.rule
        formula: list[sql.Value] = [rule.floor, rule.factor, rule.now, rule.grace_days]
        statement = (
            f"SELECT row AS which, importance, {_VALUE} AS faded FROM {sql.quoted(self.collection.name)} "
            f"WHERE {rows} AND {condition}"
        )
        return statement, [*formula, *which, *values]


LEAST_WAIT_MS = 5_000
"""Waits at least this long for readers of other processes to finish."""


def empty_pairs(connection: apsw.Connection, tenant: str, user: str) -> list[int]:
    """Returns the numbers of the user's partitions without documents."""
    statement = "SELECT pair FROM pairs WHERE tenant = ? AND user = ? AND count = 0"
    found: list[Any] = connection.execute(statement, (tenant, user)).fetchall()
    return [int(pair) for (pair,) in found]


def forget(
    connection: apsw.Connection, collections: Sequence[Collection], tenant: str, user: str, counters: Sequence[str]
) -> None:
    """Deletes the user's empty partitions and these counters. Runs in the writer's thread, in a transaction."""
    for pair in empty_pairs(connection, tenant, user):
        for table in (*(sql.search_table(one) for one in collections if one.searched), "kept_vectors", "pairs"):
            connection.execute(f"DELETE FROM {table} WHERE pair = ?", (pair,))
    connection.executemany("DELETE FROM counters WHERE tenant = ? AND name = ?", [(tenant, name) for name in counters])


def scrub(path: Path, busy_timeout_ms: int) -> None:
    """Rewrites the database without deleted bytes. Runs while this process writes nothing.

    Raises StoreUnavailable if another process keeps the log open.
    """
    connection = connect(path, max(busy_timeout_ms, LEAST_WAIT_MS))
    try:
        connection.pragma("temp_store", "FILE")  # the copy may not fit in memory
        connection.execute("VACUUM").fetchall()
        busy: Any
        ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if busy:
            raise StoreUnavailable("Another process still reads what was deleted: please try again.")
    finally:
        connection.close()
