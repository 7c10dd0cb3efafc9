"""The change log in the embedded store: two tables, written in the transaction of the change.

SQLite has one writer at a time, over all processes. The order of the numbers is therefore the order of the commits, and
whoever sees an entry sees all earlier ones.
"""

from functools import partial
from typing import Any

import apsw

from app.storage.change_log import (
    CHANGES,
    STEP,
    ChangeLog,
    Head,
    LogEntry,
    LogOptions,
    LogPage,
    Position,
    erased,
    first_old,
)
from app.storage.schema import EVERYTHING, Filter
from app.storage.sqlite import sql
from app.storage.sqlite.changes import LOG_COLUMNS, append_to_log
from app.storage.sqlite.connections import ReadPool
from app.storage.sqlite.writer import WriterThread

LAST = "SELECT last FROM change_heads WHERE tenant = ?"


class EmbeddedChangeLog(ChangeLog):
    """The log in the database file."""

    def __init__(self, readers: ReadPool, writer: WriterThread, options: LogOptions) -> None:
        super().__init__(options)
        self._readers, self._writer = readers, writer

    async def page(
        self, tenant: str, after: Position | None, where: Filter = EVERYTHING, *, limit: int = 100
    ) -> LogPage:
        def read(connection: apsw.Connection) -> LogPage:
            connection.execute("BEGIN")  # one snapshot: the head tells how far the entries go
            try:
                head = _head(connection, tenant)
                start = head.start(after)
                upto = min(head.last, start + self.options.scanned)
                condition, values = sql.where(CHANGES, where)
                statement = (
                    f"SELECT {LOG_COLUMNS} FROM changes WHERE tenant = ? AND seq > ? AND seq <= ? AND {condition} "
                    f"ORDER BY seq LIMIT {int(limit)}"
                )
                rows: list[Any] = connection.execute(statement, (tenant, start, upto, *values)).fetchall()
            finally:
                connection.execute("COMMIT")
            return LogPage.read(head, [LogEntry(*row) for row in rows], upto, limit)

        return await self._readers.bounded(read)

    async def _current(self, tenant: str) -> Head:
        return await self._readers.bounded(lambda connection: _head(connection, tenant))

    async def _mark(self, tenant: str) -> int:
        return await self._readers.bounded(lambda connection: _number(connection, LAST, (tenant,)))

    async def names(self, tenant: str, user: str) -> bool:
        statement = "SELECT EXISTS (SELECT 1 FROM changes WHERE tenant = ? AND user_id = ?)"
        return bool(await self._readers.apart(lambda connection: _number(connection, statement, (tenant, user))))

    async def forget(self, tenant: str, user: str) -> None:
        def forget_some(connection: apsw.Connection, start: int, mark: LogEntry | None) -> int:
            statement = "DELETE FROM changes WHERE tenant = ? AND seq > ? AND seq <= ? AND user_id = ?"
            connection.execute(statement, (tenant, start, start + STEP, user))
            removed = connection.changes()
            if removed and mark is not None:
                append_to_log(connection, tenant, [mark])
            return removed

        mark: LogEntry | None = erased(tenant, self.options.stamp_now())
        for start in range(0, await self._mark(tenant), STEP):
            if await self._writer.submit(partial(forget_some, start=start, mark=mark)):
                mark = None

    async def has_expired(self) -> bool:
        oldest = self.options.oldest()
        statement = (
            "SELECT EXISTS (SELECT 1 FROM change_heads h WHERE "
            "(SELECT at FROM changes c WHERE c.tenant = h.tenant ORDER BY seq LIMIT 1) < ?)"
        )
        return bool(await self._readers.apart(lambda connection: _number(connection, statement, (oldest,))))

    async def _expired(self, oldest: str) -> list[str]:  # noqa: ARG002 (each log is looked at, which is quick)
        statement = "SELECT tenant FROM change_heads"
        return await self._readers.apart(lambda c: [str(tenant) for (tenant,) in c.execute(statement)])

    async def _drop(self, tenant: str, oldest: str) -> int:
        def drop(connection: apsw.Connection) -> int:
            statement = "SELECT seq, at FROM changes WHERE tenant = ? ORDER BY seq LIMIT ?"
            cursor: Any = connection.execute(statement, (tenant, STEP))
            old = first_old(cursor.fetchall(), oldest)
            if old:
                connection.execute("DELETE FROM changes WHERE tenant = ? AND seq <= ?", (tenant, old[-1]))
                connection.execute("UPDATE change_heads SET floor = ? WHERE tenant = ?", (old[-1], tenant))
            return len(old)

        return await self._writer.submit(drop)


def _number(connection: apsw.Connection, statement: str, bound: tuple[str, ...]) -> int:
    row: Any = connection.execute(statement, bound).fetchone()
    return 0 if row is None else int(row[0] or 0)


def _head(connection: apsw.Connection, tenant: str) -> Head:
    statement = "SELECT log, last, floor FROM change_heads WHERE tenant = ?"
    row: Any = connection.execute(statement, (tenant,)).fetchone()
    return Head() if row is None else Head(*row)
