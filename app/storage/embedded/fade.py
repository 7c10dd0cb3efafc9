"""`Fade`: a reader looks for what has moved, the writer writes it down in one SQL statement, in steps of so many rows
that others write between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import apsw
import orjson

from app.storage.collection import Collection, Committed
from app.storage.embedded import sql
from app.storage.filters import Eq, Filter, Not, both
from app.storage.rules import Fade

LOOKED_AT = 50_000
"""Rows of one look: as long as it takes, the WAL cannot be cut."""
ROWS = 5_000
DAY_SECONDS = 86_400.0

_IDLE_DAYS = f"(unixepoch(?, 'subsec') - unixepoch(anchored_at, 'subsec')) / {DAY_SECONDS}"
_VALUE = f"max(min(base_importance, ?), base_importance * pow(?, max(0.0, {_IDLE_DAYS} - ?) / 30.0))"
_MOVED = "importance IS NOT faded AND ifnull(abs(importance - faded) >= ?, 1)"


@dataclass(slots=True)
class Steps:
    """Goes through a collection in the order of its row numbers: `look` and `write` in turn."""

    collection: Collection
    tenant: str | None
    rule: Fade
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

    def write(self, rows: Sequence[int], connection: apsw.Connection) -> Committed:
        """Reckons anew: whoever changed a row since the look keeps what they wrote."""
        table = sql.quoted(self.collection.name)
        faded, values = self._faded("row IN (SELECT value FROM json_each(?))", [orjson.dumps(rows).decode()])
        statement = (
            f"UPDATE {table} SET importance = faded, doc = json_set(doc, '$.importance', faded) FROM "
            f"({faded}) WHERE row = which AND {_MOVED.replace('importance', f'{table}.importance')}"
        )
        connection.execute(statement, (*values, self.rule.least)).fetchall()
        return Committed({}, connection.changes())

    def _faded(self, rows: str, which: list[sql.Value]) -> sql.Where:
        """(which, importance, faded) of those of `rows` that the rule is for."""
        condition, values = sql.selection(self.collection, self.tenant, both(self.where, Not(Eq("pinned", True))))
        rule = self.rule
        formula: list[sql.Value] = [rule.floor, rule.factor, rule.now, rule.grace_days]
        statement = (
            f"SELECT row AS which, importance, {_VALUE} AS faded FROM {sql.quoted(self.collection.name)} "
            f"WHERE {rows} AND {condition}"
        )
        return statement, [*formula, *which, *values]
