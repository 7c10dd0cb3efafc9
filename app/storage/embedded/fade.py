"""`Fade` as one SQL statement, in steps of so many rows that others write between them."""

from dataclasses import dataclass
from typing import Any

import apsw

from app.storage.collection import Collection, Committed
from app.storage.embedded import sql
from app.storage.filters import Eq, Filter, Not, both
from app.storage.rules import Fade

ROWS = 5_000
DAY_SECONDS = 86_400.0

_IDLE_DAYS = f"(unixepoch(?, 'subsec') - unixepoch(anchored_at, 'subsec')) / {DAY_SECONDS}"
_VALUE = f"max(min(base_importance, ?), base_importance * pow(?, max(0.0, {_IDLE_DAYS} - ?) / 30.0))"


@dataclass(slots=True)
class Step:
    """The rows after `last`, in the order of their numbers; `run` moves it on, to None at the end."""

    collection: Collection
    tenant: str | None
    rule: Fade
    where: Filter
    last: int | None

    def run(self, connection: apsw.Connection) -> Committed:
        table = sql.quoted(self.collection.name)
        condition, values = self._condition()
        end: Any
        ((end,),) = connection.execute(
            f"SELECT max(row) FROM (SELECT row FROM {table} WHERE row > ? AND {condition} ORDER BY row LIMIT {ROWS})",
            (self.last, *values),
        ).fetchall()
        before, self.last = self.last, end
        if end is None:
            return Committed({}, 0)
        statement = (
            f"UPDATE {table} SET importance = faded, doc = json_set(doc, '$.importance', faded) FROM "
            f"(SELECT row AS which, {_VALUE} AS faded FROM {table} WHERE row > ? AND row <= ? AND {condition}) "
            "WHERE row = which AND importance IS NOT faded"
        )
        rule = self.rule
        connection.execute(
            statement, (rule.floor, rule.factor, rule.now, rule.grace_days, before, end, *values)
        ).fetchall()
        return Committed({}, connection.changes())

    def _condition(self) -> tuple[str, list[sql.Value]]:
        return sql.where(self.collection, both(sql.of_tenant(self.tenant, self.where), Not(Eq("pinned", True))))
