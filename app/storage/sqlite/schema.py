"""Opens a database and creates what its declarations need. The first process does this; others wait."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import orjson

from app.errors import StoreUnavailable
from app.storage.schema import Collection
from app.storage.sqlite import sql

LAYOUT = 1
"""Version of the physical layout, stored in `user_version`. Newly declared fields and indexes do not change it: see
`_reconcile`."""

WAL_PAUSE_MS = 20
_PRAGMAS = (
    "synchronous = FULL",
    "wal_autocheckpoint = 6000",
    "cache_size = -4096",  # KiB for each of five connections; the system caches the file, too
    "temp_store = MEMORY",
    "secure_delete = ON",
)

_OWN_TABLES = (
    "CREATE TABLE IF NOT EXISTS counters (tenant TEXT, name TEXT, value INTEGER NOT NULL, PRIMARY KEY (tenant, name)) "
    "WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS pairs (pair INTEGER PRIMARY KEY AUTOINCREMENT, collection TEXT NOT NULL, "
    "tenant TEXT NOT NULL, user TEXT NOT NULL, agent TEXT NOT NULL, version INTEGER NOT NULL, "
    "floor INTEGER NOT NULL DEFAULT 0, count INTEGER NOT NULL, tombstones INTEGER NOT NULL DEFAULT 0, "
    "speakers TEXT NOT NULL DEFAULT '[]', model INTEGER NOT NULL DEFAULT 0, UNIQUE (collection, tenant, user, agent))",
    "CREATE TABLE IF NOT EXISTS kept_vectors (pair INTEGER, row INTEGER, model BLOB, vector BLOB NOT NULL, "
    "PRIMARY KEY (pair, row, model)) WITHOUT ROWID",
)
"""The engine's own tables.

`pairs` has each partition of a searched collection, with the empty string for no agent or user. A reader whose copy is
older than `floor` reloads the partition, because tombstones that it would need were dropped. `kept_vectors` has the
alternate vectors, with the model's code in the form of a head.
"""


def connect(path: Path, busy_timeout_ms: int) -> apsw.Connection:
    """Opens a connection with our settings. Raises StoreUnavailable."""
    with translate_errors():
        connection = apsw.Connection(str(path), statementcachesize=512)
        connection.set_busy_timeout(busy_timeout_ms)
        # otherwise a statement whose bound values might change its plan is prepared again at each execution
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.pragma("page_size", 8192)
        _to_wal(connection, busy_timeout_ms)
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}").fetchall()
        return connection


def _to_wal(connection: apsw.Connection, busy_timeout_ms: int) -> None:
    """Switches to WAL mode, with retries.

    If several connections open a new database at once, SQLite reports "busy" for this change without waiting.
    """
    for left in range(busy_timeout_ms // WAL_PAUSE_MS, -1, -1):
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        except apsw.BusyError:
            if not left:
                raise
            time.sleep(WAL_PAUSE_MS / 1000)
        else:
            return


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Converts errors of the disk, of locks and of the file's content to StoreUnavailable with the reason."""
    try:
        yield
    except (apsw.BusyError, apsw.LockedError) as error:
        raise StoreUnavailable("The store is locked by another process.") from error
    except apsw.FullError as error:
        raise StoreUnavailable("The disk is full.", retry_after=30) from error
    except (apsw.IOError, apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError) as error:
        raise StoreUnavailable(f"The store's file cannot be used: {error}.", retry_after=30) from error
    except apsw.ConnectionClosedError as error:
        raise StoreUnavailable("The store is closed.") from error
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise StoreUnavailable("The store is damaged: run `recalld doctor`.", retry_after=60) from error


def migrate(connection: apsw.Connection, collections: Sequence[Collection]) -> None:
    """Creates or updates tables and indexes in one transaction. Raises StoreUnavailable, also if a newer version wrote
    the file."""
    with translate_errors():
        connection.execute("BEGIN IMMEDIATE")
        try:
            found = int(connection.pragma("user_version"))
            if found > LAYOUT:
                raise StoreUnavailable(f"The store was written by a newer version (layout {found}, known: {LAYOUT}).")
            for statement in _OWN_TABLES:
                connection.execute(statement)
            if "model" not in _columns(connection, "pairs"):
                connection.execute("ALTER TABLE pairs ADD COLUMN model INTEGER NOT NULL DEFAULT 0")
            for collection in collections:
                _reconcile(connection, collection)
            connection.pragma("user_version", LAYOUT)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


def _reconcile(connection: apsw.Connection, collection: Collection) -> None:
    """Creates what is missing. A newly declared field is filled from the documents."""
    for statement in sql.tables(collection):
        connection.execute(statement)
    name = sql.quoted(collection.name)
    there = _columns(connection, name)
    missing = [field for field in collection.columns if field not in there]
    for field in missing:
        connection.execute(f"ALTER TABLE {name} ADD COLUMN {sql.quoted(field)}")
    if missing:
        _refill(connection, collection)
    wanted = sql.indexes(collection)
    existing = {str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")}
    for index, statement in wanted.items():
        if index not in existing:
            connection.execute(statement)


def _columns(connection: apsw.Connection, table: str) -> set[str]:
    return {str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")}


def _refill(connection: apsw.Connection, collection: Collection) -> None:
    name = sql.quoted(collection.name)
    fields = ", ".join(f"{sql.quoted(field)} = ?" for field in collection.columns)
    rows: list[Any] = connection.execute(f"SELECT row, doc FROM {name}").fetchall()
    for row, doc in rows:
        values = sql.row_values(collection, orjson.loads(doc))
        connection.execute(f"UPDATE {name} SET {fields} WHERE row = ?", (*values, row))
