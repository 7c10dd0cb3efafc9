"""Reads: a pool of read-only connections in threads, and a cache of what is read at each request."""

import asyncio
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw
import orjson

from app.storage.protocol import Fetched, Order
from app.storage.schema import After, Collection, Doc, Filter
from app.storage.sqlite.connections import Faults, connect
from app.storage.sqlite.pages import StoreKey
from app.storage.sqlite.schema import column_of, order_of, quoted, selection

T = TypeVar("T")

MAX_READS = 5_000


class ReadCache:
    """Results of reads on one connection since the last commit. Used only from the event loop's thread."""

    def __init__(self, connection: apsw.Connection, faults: Faults) -> None:
        self._connection, self._faults = connection, faults
        self._held: dict[Hashable, Any] = {}
        self._version: Any = None
        self._version_known = False

    def get(self, key: Hashable, read: Callable[[], T]) -> T:
        """Returns `read()`, or its result since the last commit."""
        self.renew()
        if key not in self._held:
            with self._faults.translated():
                self._held[key] = read()
        found: T = self._held[key]
        return found

    def cached(self) -> dict[Hashable, Any]:
        """Returns all cached results by key. The caller may add what it reads, before it awaits anything."""
        self.renew()
        return self._held

    def renew(self) -> None:
        """Clears the cache if the database has changed; looks once in each round of the event loop.

        This is safe: a commit that was acknowledged after this look was acknowledged in a later callback, and callbacks
        run in the order in which they were scheduled, thus after the one that ends the round.
        """
        if self._version_known:
            return
        with self._faults.translated():
            ((version,),) = self._connection.execute("PRAGMA data_version")  # faster than `pragma()`
        if version != self._version or len(self._held) > MAX_READS:
            self._held.clear()
            self._version = version
        self._version_known = True
        asyncio.get_running_loop().call_soon(self._end_round)

    def _end_round(self) -> None:
        self._version_known = False


THREADS = 3
TICK_STEPS = 1_000
MAX_TICKS = 40
"""Number of ticks (of `TICK_STEPS` SQLite instructions) that a read in the event loop may take: some 2 ms."""
ROUND_SECONDS = 0.005
"""Maximum time of consecutive reads in the event loop before others run.

These reads never wait for anything, so background work that reads again and again would otherwise block the loop.
"""


class ReadPool:
    """Connections for reads: one in the event loop, and one in each thread. Create it in the event loop that will use
    it."""

    def __init__(self, path: Path, busy_timeout_ms: int, faults: Faults, key: StoreKey | None = None) -> None:
        self._faults = faults
        self._connect = partial(connect, path, busy_timeout_ms, key)
        self.inline = self._connect()
        self._threads = ThreadPoolExecutor(THREADS, "recalld-reader")
        self._local = threading.local()
        self._ticks: int | None = None
        self._round_began: float | None = None
        self.inline.set_progress_handler(self._tick, TICK_STEPS)

    def close(self) -> None:
        """Waits for reads in threads, then closes the event loop's connection."""
        self._threads.shutdown(wait=True)
        self.inline.close()

    async def bounded(self, work: Callable[[apsw.Connection], T]) -> T:
        """Runs a read in the event loop. If it turns out to be long, it is stopped and run again in a thread."""
        if self._long_round():
            await asyncio.sleep(0)
        self._ticks = MAX_TICKS
        try:
            with self._faults.translated():
                return work(self.inline)
        except apsw.InterruptError:
            pass
        finally:
            self._ticks = None
        return await self.apart(work)

    def _long_round(self) -> bool:
        now = time.perf_counter()
        if self._round_began is None:
            self._round_began = now
            asyncio.get_running_loop().call_soon(self._end_round)
        return now - self._round_began > ROUND_SECONDS

    def _end_round(self) -> None:
        self._round_began = None

    def _tick(self) -> bool:
        """Returns True to end the read. Reads without a bound are not counted."""
        if self._ticks is None:
            return False
        self._ticks -= 1
        return self._ticks < 0

    async def apart(self, work: Callable[[apsw.Connection], T]) -> T:
        """Runs a read in a thread, on that thread's own connection."""

        def run() -> T:
            if not hasattr(self._local, "connection"):
                self._local.connection = self._connect()
            with self._faults.translated():
                connection: apsw.Connection = self._local.connection
                return work(connection)

        return await asyncio.get_running_loop().run_in_executor(self._threads, run)


def select_documents(  # noqa: PLR0913 (what `find` takes)
    connection: apsw.Connection,
    collection: Collection,
    tenant: str | None,
    where: Filter,
    order: Order,
    after: After | None,
    limit: int,
) -> list[str]:
    """Returns documents as JSON text. `order` and `after` are by the field that the filter selects, then by id."""
    condition, values = selection(collection, tenant, where)
    by, sign = order_of(collection, where), "<" if order == "desc" else ">"
    if after is not None:
        condition += f" AND ({by}, id) {sign} (?, ?)"
        values += [after.value, after.id]
    # the limit is a literal, because the planner ignores bound values
    statement = (
        f"SELECT doc FROM {quoted(collection.name)} WHERE {condition} ORDER BY {by} {order}, id {order} "
        f"LIMIT {int(limit)}"
    )
    return [doc for (doc,) in connection.execute(statement, values)]


def select_texts(
    connection: apsw.Connection, collection: Collection, tenant: str, rows: Sequence[int]
) -> list[tuple[int, str]]:
    """Returns documents by their row number, as JSON text."""
    if not rows:
        return []
    marks = ", ".join("?" * len(rows))
    # "+" keeps SQLite from walking all of the tenant in one of its indexes
    statement = f"SELECT row, doc FROM {quoted(collection.name)} WHERE row IN ({marks}) AND +tenant = ?"
    found: Any = connection.execute(statement, (*rows, tenant)).fetchall()
    return [*found]


def parsed(found: list[str]) -> list[Doc]:
    """Returns documents that were selected as JSON text."""
    return [orjson.loads(doc) for doc in found]


def fetched(text: str) -> Fetched:
    """Returns a document that was selected as JSON text, for a search."""
    return Fetched(orjson.loads(text))


def select_values(  # noqa: PLR0913 (what `values` takes)
    connection: apsw.Connection,
    collection: Collection,
    tenant: str,
    field: str,
    where: Filter,
    order: Order,
    limit: int,
) -> list[str]:
    """Returns distinct values of a field. Each is found from the one before by one look into an index, however many
    documents have it."""
    name, column = quoted(collection.name), column_of(collection, field)
    condition, values = selection(collection, tenant, where)
    first = f"SELECT {column} FROM {name} WHERE {column} IS NOT NULL AND {condition}"
    further = f"{first} AND {column} {'<' if order == 'desc' else '>'} found.value"
    nearest = f"ORDER BY {column} {order} LIMIT 1"
    statement = (
        f"WITH RECURSIVE found(value) AS (SELECT * FROM ({first} {nearest}) UNION ALL "
        f"SELECT ({further} {nearest}) FROM found WHERE found.value IS NOT NULL LIMIT {int(limit)}) "
        "SELECT value FROM found WHERE value IS NOT NULL"
    )
    return [value for (value,) in connection.execute(statement, [*values, *values])]
