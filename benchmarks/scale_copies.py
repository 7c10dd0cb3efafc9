"""Copies of a synthetic store's users inside its own file, by SQL: ten million memories in minutes instead of hours.

Every copy of a user is another user with ids of his own; texts, times and vectors are those of the user he was copied
from. As in life, the documents of a user lie spread over the whole file, as many together as were written at once.
"""

import sys
import time
from pathlib import Path

import apsw

from app.memories.models import MEMORIES
from app.storage.sqlite import schema, sql
from app.storage.sqlite.connections import connect
from app.storage.sqlite.store import FILE_NAME
from benchmarks.data import BIG, user

AT_ONCE = 2_000
"""Rows of the first users copied by one transaction, each as often as there are copies."""
BUSY_MS = 5_000


def multiply(directory: Path, users: int, copies: int, together: int) -> float:
    """Makes `copies - 1` more of each of the `users` first users. Returns the seconds that it took.

    `together`: how many memories of a user lie side by side. The store must be closed. Indexes and the counts of
    records are made anew at its next start.
    """
    started = time.perf_counter()
    connection = connect(directory / FILE_NAME, BUSY_MS)
    try:
        connection.execute("PRAGMA synchronous = OFF")  # the file is worth nothing before it is complete
        connection.execute("PRAGMA cache_size = -500000")
        connection.execute("CREATE TEMP TABLE copies (copy INTEGER PRIMARY KEY)")
        connection.executemany("INSERT INTO copies VALUES (?)", [(number,) for number in range(1, copies)])
        _drop_derived(connection)
        _copy_documents(connection, users, together)
        _copy_partitions(connection, users)
        _copy_rows(connection, copies)
        for statement in schema.indexes(MEMORIES).values():
            connection.execute(statement)
            _checkpoint(connection)
    finally:
        connection.close()
    return time.perf_counter() - started


def _drop_derived(connection: apsw.Connection) -> None:
    """Takes away the indexes, which are faster made at the end, and the triggers that count records."""
    listed = "SELECT type, name FROM sqlite_schema WHERE type IN ('index', 'trigger') AND tbl_name IN (?, ?) "
    names = (MEMORIES.name, f"{MEMORIES.name}_search")
    found = connection.execute(listed + "AND name NOT LIKE 'sqlite_%'", names).fetchall()
    for kind, name in found:
        connection.execute(f"DROP {kind} {sql.quoted(str(name))}")


def _copied_user(of: str, users: int) -> str:
    """The name of a user's copy in SQL: numbers go on where those of the first users end."""
    return f"'{user(0)[:-1]}' || (CAST(substr({of}, {len(user(0))}) AS INTEGER) + copy * {users})"


def _copy_documents(connection: apsw.Connection, users: int, together: int) -> None:
    connection.execute("CREATE TEMP TABLE rows_of_copies (pair, row INTEGER PRIMARY KEY, source INTEGER, copy INTEGER)")
    table = sql.quoted(MEMORIES.name)
    owner = _copied_user("user_id", users)
    new_id = "'mem_' || printf('%05x', copy) || substr(id, 10)"  # the first digits of an id are of its time
    columns = ", ".join(map(sql.quoted, MEMORIES.columns))
    values = ", ".join(owner if name == "user_id" else sql.quoted(name) for name in MEMORIES.columns)
    doc = f"json_set(doc, '$.memory_id', {new_id}, '$.user_id', {owner})"
    ((last,),) = connection.execute(f"SELECT max(row) FROM {table}").fetchall()  # an open cursor keeps the log
    assert isinstance(last, int)
    statement = (
        f"INSERT INTO {table} (row, tenant, id, {columns}, doc) "
        f"SELECT ? + row_number() OVER (ORDER BY (row - 1) / {together}, copy, row), tenant, {new_id}, {values}, {doc} "
        f"FROM {table}, copies WHERE row > ? AND row <= ? AND user_id <> ?"
    )
    noted = (
        "INSERT INTO rows_of_copies (row, source, copy) "
        f"SELECT ? + row_number() OVER (ORDER BY (row - 1) / {together}, copy, row), row, copy "
        f"FROM {table}, copies WHERE row > ? AND row <= ? AND user_id <> ?"
    )
    made, started = last, time.perf_counter()
    for first in range(0, last, AT_ONCE):
        bound = (made, first, min(first + AT_ONCE, last), user(BIG))
        connection.execute("BEGIN")
        connection.execute(statement, bound)
        added = connection.changes()
        connection.execute(noted, bound)
        connection.execute("COMMIT")
        made += added
        _checkpoint(connection)
        print(f"  {made:,} documents, {made / (time.perf_counter() - started):,.0f}/s", file=sys.stderr)


def _copy_partitions(connection: apsw.Connection, users: int) -> None:
    owner = _copied_user("user", users)
    connection.execute(
        "INSERT INTO pairs (collection, tenant, user, agent, version, floor, count, tombstones, speakers, model) "
        f"SELECT collection, tenant, {owner}, agent, version, floor, count, tombstones, speakers, model "
        "FROM pairs, copies WHERE collection = ? AND user <> ? ORDER BY copy, pair",
        (MEMORIES.name, user(BIG)),
    )
    connection.execute("CREATE TEMP TABLE pairs_of_copies (pair INTEGER, source INTEGER, copy INTEGER)")
    connection.execute(
        "INSERT INTO pairs_of_copies SELECT made.pair, first.pair, copy "
        "FROM pairs first, copies JOIN pairs made ON made.collection = first.collection "
        "AND made.tenant = first.tenant AND made.agent = first.agent "
        f"AND made.user = {_copied_user('first.user', users)} "
        "WHERE first.collection = ? AND first.user <> ?",
        (MEMORIES.name, user(BIG)),
    )
    connection.execute("CREATE INDEX temp.pair_of_copy ON pairs_of_copies (source, copy)")


def _copy_rows(connection: apsw.Connection, copies: int) -> None:
    """Search rows, in the order of their partitions, which is the order of the table."""
    table = sql.search_table(MEMORIES)
    connection.execute("CREATE INDEX temp.row_of_copy ON rows_of_copies (source, copy)")
    statement = (
        f"INSERT INTO {table} (pair, row, rev, head, vector, terms, facets) "
        "SELECT p.pair, r.row, s.rev, s.head, s.vector, s.terms, s.facets "
        f"FROM pairs_of_copies p JOIN {table} s ON s.pair = p.source "
        "JOIN rows_of_copies r ON r.source = s.row AND r.copy = p.copy WHERE p.copy = ? ORDER BY p.pair, r.row"
    )
    for copy in range(1, copies):
        connection.execute("BEGIN")
        connection.execute(statement, (copy,))
        connection.execute("COMMIT")
        _checkpoint(connection)


def _checkpoint(connection: apsw.Connection) -> None:
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
