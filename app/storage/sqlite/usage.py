"""Reads, counts and corrects the usage of tenants. Triggers keep it up."""

from collections.abc import Sequence
from typing import Any

import apsw

from app.storage.schema import Collection
from app.storage.sqlite.connections import ReadPool
from app.storage.sqlite.schema import count_usage, usage_query
from app.storage.sqlite.writer import WriterThread
from app.storage.usage import StoredTotals, Usage, UsageByTenant, by_tenant, differences


def usage_of(connection: apsw.Connection, tenant: str) -> Usage:
    """Returns the tenant's whole usage."""
    statement = "SELECT ifnull(sum(records), 0), ifnull(sum(bytes), 0) FROM usage WHERE tenant = ?"
    row: Any = connection.execute(statement, (tenant,)).fetchone()
    return Usage(int(row[0]), int(row[1]))


def stored(connection: apsw.Connection) -> dict[str, dict[str, Usage]]:
    """Returns the usage that is stored."""
    return _usage(connection, "SELECT tenant, collection, records, bytes FROM usage")


def totals(connection: apsw.Connection) -> StoredTotals:
    """Returns the sums over all tenants."""
    tenants: Any = connection.execute("SELECT count(DISTINCT tenant) FROM usage WHERE records > 0").fetchone()
    statement = "SELECT collection, sum(records), sum(bytes) FROM usage GROUP BY collection"
    usages = {str(name): Usage(int(records), int(size)) for name, records, size in connection.execute(statement)}
    return StoredTotals.of(int(tenants[0]), usages)


def counted(connection: apsw.Connection, collections: Sequence[Collection]) -> dict[str, dict[str, Usage]]:
    """Returns the usage by counting every record."""
    return _usage(connection, *(usage_query(collection) for collection in collections if collection.counted))


def _usage(connection: apsw.Connection, *statements: str) -> dict[str, dict[str, Usage]]:
    rows: list[Any] = [row for statement in statements for row in connection.execute(statement)]
    return by_tenant(((tenant, name), Usage(records, size)) for tenant, name, records, size in rows)


class EmbeddedAccounting:
    """Implements `Accounting`."""

    def __init__(self, collections: Sequence[Collection], readers: ReadPool, writer: WriterThread) -> None:
        self._readers, self._writer = readers, writer
        self._collections = [collection for collection in collections if collection.counted]

    async def stored(self) -> UsageByTenant:
        return await self._readers.apart(stored)

    async def totals(self) -> StoredTotals:
        return await self._readers.apart(totals)

    async def recount(self) -> list[str]:
        def recount(connection: apsw.Connection) -> list[str]:
            wrong = differences(stored(connection), counted(connection, self._collections))
            for collection in self._collections if wrong else ():
                count_usage(connection, collection)
            return wrong

        return await self._writer.submit(recount)
