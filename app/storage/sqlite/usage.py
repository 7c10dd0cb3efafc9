"""Usage of tenants in the embedded store. Triggers count it, so that no statement can forget to.

`usage` has a row for each tenant and counted collection. Bytes are those of the documents as JSON.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import apsw

from app.storage.schema import Collection
from app.storage.sqlite.schema import quoted
from app.storage.sqlite.set_wide import RunApart
from app.storage.sqlite.writer import WriterTask
from app.storage.usage import StoredTotals, Usage, UsageByTenant, differences, nonzero

TABLE = (
    "CREATE TABLE IF NOT EXISTS usage (tenant TEXT, collection TEXT, records INTEGER NOT NULL, bytes INTEGER NOT NULL, "
    "PRIMARY KEY (tenant, collection)) WITHOUT ROWID"
)


def migrate(connection: apsw.Connection, collections: Sequence[Collection]) -> None:
    """Creates the table and the missing triggers, and counts the collections that had none, in one transaction."""
    wanted = {one.name: _triggers(one) for one in collections if one.counted}
    if not _missing(connection, wanted):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(TABLE)
        for collection in collections:
            missing = _missing(connection, {collection.name: wanted.get(collection.name, {})})
            if missing:
                _count_anew(connection, collection)
            for statement in missing:
                connection.execute(statement)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _missing(connection: apsw.Connection, wanted: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Returns the statements of triggers that do not exist."""
    existing = {str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")}
    return [sql for triggers in wanted.values() for name, sql in triggers.items() if name not in existing]


def _triggers(collection: Collection) -> dict[str, str]:
    """Returns the statements that create the collection's triggers, by name."""
    table, named = quoted(collection.name), apsw.format_sql_value(collection.name)
    of_row = f"WHERE tenant = old.tenant AND collection = {named}"
    actions = {
        "insert": f"AFTER INSERT ON {table} BEGIN INSERT INTO usage VALUES "
        f"(new.tenant, {named}, 1, octet_length(new.doc)) "
        "ON CONFLICT DO UPDATE SET records = records + 1, bytes = bytes + excluded.bytes; END",
        "update": f"AFTER UPDATE OF doc ON {table} WHEN octet_length(new.doc) <> octet_length(old.doc) BEGIN "
        f"UPDATE usage SET bytes = bytes + octet_length(new.doc) - octet_length(old.doc) {of_row}; END",
        "delete": f"AFTER DELETE ON {table} BEGIN UPDATE usage SET records = records - 1, "
        f"bytes = bytes - octet_length(old.doc) {of_row}; END",
    }
    names = {action: f"{collection.name}_counted_{action}" for action in actions}
    return {names[action]: f"CREATE TRIGGER {quoted(names[action])} {sql}" for action, sql in actions.items()}


def _count_anew(connection: apsw.Connection, collection: Collection) -> None:
    connection.execute("DELETE FROM usage WHERE collection = ?", (collection.name,))
    connection.execute(
        f"INSERT INTO usage SELECT tenant, ?, count(*), sum(octet_length(doc)) FROM {quoted(collection.name)} "
        "GROUP BY tenant",
        (collection.name,),
    )


def usage_of(connection: apsw.Connection, tenant: str) -> Usage:
    """Returns the tenant's whole usage."""
    statement = "SELECT ifnull(sum(records), 0), ifnull(sum(bytes), 0) FROM usage WHERE tenant = ?"
    found: Any = connection.execute(statement, (tenant,)).fetchone()
    return Usage(int(found[0]), int(found[1]))


def stored(connection: apsw.Connection) -> dict[str, dict[str, Usage]]:
    """Returns the usage that is stored."""
    return _by_tenant(connection, ["SELECT tenant, collection, records, bytes FROM usage"])


def totals(connection: apsw.Connection) -> StoredTotals:
    """Returns the sums over all tenants."""
    tenants: Any = connection.execute("SELECT count(DISTINCT tenant) FROM usage WHERE records > 0").fetchone()
    statement = "SELECT collection, sum(records), sum(bytes) FROM usage GROUP BY collection"
    found = {str(name): Usage(int(records), int(size)) for name, records, size in connection.execute(statement)}
    return StoredTotals(int(tenants[0]), {name: usage for name, usage in found.items() if usage.records})


def counted(connection: apsw.Connection, collections: Sequence[Collection]) -> dict[str, dict[str, Usage]]:
    """Returns the usage by counting every record."""
    return _by_tenant(
        connection,
        [
            f"SELECT tenant, {apsw.format_sql_value(one.name)}, count(*), sum(octet_length(doc)) "
            f"FROM {quoted(one.name)} GROUP BY tenant"
            for one in collections
            if one.counted
        ],
    )


def _by_tenant(connection: apsw.Connection, statements: Sequence[str]) -> dict[str, dict[str, Usage]]:
    found: defaultdict[str, dict[str, Usage]] = defaultdict(dict)
    for statement in statements:
        for tenant, name, records, size in connection.execute(statement):
            found[str(tenant)][str(name)] = Usage(int(records), int(size))
    return nonzero(found)


class EmbeddedAccounting:
    """Implements `Accounting`."""

    def __init__(
        self,
        collections: Sequence[Collection],
        apart: RunApart,
        submit: Callable[[WriterTask[list[str]]], Awaitable[list[str]]],
    ) -> None:
        self._collections, self._apart, self._submit = collections, apart, submit

    async def stored(self) -> UsageByTenant:
        return await self._apart(stored)

    async def totals(self) -> StoredTotals:
        return await self._apart(totals)

    async def recount(self) -> list[str]:
        return await self._submit(self._recount)

    def _recount(self, connection: apsw.Connection) -> list[str]:
        wrong = differences(stored(connection), counted(connection, self._collections))
        for collection in self._collections if wrong else ():
            if collection.counted:
                _count_anew(connection, collection)
        return wrong
