"""Work on whole sets of records: decay in one statement, erasure that leaves no byte."""

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
"""Rows of one look: as long as it takes, the WAL cannot be cut."""
ROWS = 5_000
DAY_SECONDS = 86_400.0

_IDLE_DAYS = f"(unixepoch(?, 'subsec') - unixepoch(anchored_at, 'subsec')) / {DAY_SECONDS}"
_VALUE = f"max(min(base_importance, ?), base_importance * pow(?, max(0.0, {_IDLE_DAYS} - ?) / 30.0))"
_MOVED = "importance IS NOT faded AND ifnull(abs(importance - faded) >= ?, 1)"


@dataclass(slots=True)
class DecaySteps:
    """Goes through a collection in the order of its row numbers: `look` and `write` in turn."""

    collection: Collection
    tenant: str | None
    rule: DecayRule
    where: Filter
    last: int = 0

    def look(self, connection: apsw.Connection) -> list[int] | None:
        """The next rows to be written; None at the end, nothing where none of those looked at has moved."""
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
        """Reckons anew: whoever changed a row since the look keeps what they wrote."""
        table = sql.quoted(self.collection.name)
        faded, values = self._faded("row IN (SELECT value FROM json_each(?))", [orjson.dumps(rows).decode()])
        statement = (
            f"UPDATE {table} SET importance = faded, doc = json_set(doc, '$.importance', faded) FROM "
            f"({faded}) WHERE row = which AND {_MOVED.replace('importance', f'{table}.importance')}"
        )
        connection.execute(statement, (*values, self.rule.least)).fetchall()
        return connection.changes()

    def _faded(self, rows: str, which: list[sql.Value]) -> sql.SqlFilter:
        """(which, importance, faded) of those of `rows` that the rule is for."""
        condition, values = sql.selection(self.collection, self.tenant, both(self.where, Not(Eq("pinned", True))))
        rule = self.rule
        formula: list[sql.Value] = [rule.floor, rule.factor, rule.now, rule.grace_days]
        statement = (
            f"SELECT row AS which, importance, {_VALUE} AS faded FROM {sql.quoted(self.collection.name)} "
            f"WHERE {rows} AND {condition}"
        )
        return statement, [*formula, *which, *values]


LEAST_WAIT_MS = 5_000
"""For readers of other processes to end what they read."""


def empty_pairs(connection: apsw.Connection, tenant: str, user: str) -> list[int]:
    """Numbers of the user's pairs; one into which somebody writes again is none of them."""
    statement = "SELECT pair FROM pairs WHERE tenant = ? AND user = ? AND count = 0"
    found: list[Any] = connection.execute(statement, (tenant, user)).fetchall()
    return [int(pair) for (pair,) in found]


def forget(
    connection: apsw.Connection, collections: Sequence[Collection], tenant: str, user: str, counters: Sequence[str]
) -> None:
    """Runs in the writer's thread, in a transaction."""
    for pair in empty_pairs(connection, tenant, user):
        for table in (*(sql.search_table(one) for one in collections if one.searched), "kept_vectors", "pairs"):
            connection.execute(f"DELETE FROM {table} WHERE pair = ?", (pair,))
    connection.executemany("DELETE FROM counters WHERE tenant = ? AND name = ?", [(tenant, name) for name in counters])


def scrub(path: Path, busy_timeout_ms: int) -> None:
    """Runs while this process writes nothing. Raises StoreUnavailable where another process holds on to the log."""
    connection = connect(path, max(busy_timeout_ms, LEAST_WAIT_MS))
    try:
        connection.pragma("temp_store", "FILE")  # the copy may be larger than memory
        connection.execute("VACUUM").fetchall()
        busy: Any
        ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if busy:
            raise StoreUnavailable("Another process still reads what was deleted: please try again.")
    finally:
        connection.close()
