"""Nothing left of a user: what the engine keeps by itself, then every byte of what was deleted.

`secure_delete` overwrites what is deleted, but SQLite leaves copies of cells that it moved between pages, and the log
holds pages as they were. `VACUUM` writes the database anew, and the checkpoint that follows empties the log.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from app.errors import StoreUnavailable
from app.storage.collection import Collection, Committed
from app.storage.embedded import sql
from app.storage.embedded.schema import connect

LEAST_WAIT_MS = 5_000
"""For readers of other processes to end what they read."""


def empty_pairs(connection: apsw.Connection, tenant: str, user: str) -> list[int]:
    """Numbers of the user's pairs; one into which somebody writes again is none of them."""
    statement = "SELECT pair FROM pairs WHERE tenant = ? AND user = ? AND count = 0"
    found: list[Any] = connection.execute(statement, (tenant, user)).fetchall()
    return [int(pair) for (pair,) in found]


def forget(
    connection: apsw.Connection, collections: Sequence[Collection], tenant: str, user: str, counters: Sequence[str]
) -> Committed:
    """Runs in the writer's thread, in a transaction."""
    for pair in empty_pairs(connection, tenant, user):
        for table in (*(sql.search_table(one) for one in collections if one.searched), "kept_vectors", "pairs"):
            connection.execute(f"DELETE FROM {table} WHERE pair = ?", (pair,))
    connection.executemany("DELETE FROM counters WHERE tenant = ? AND name = ?", [(tenant, name) for name in counters])
    return Committed({}, 0)


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
