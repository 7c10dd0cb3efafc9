"""Reads: connections that only read, in threads, and what they read at each request."""

import asyncio
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import apsw

from app.storage.sqlite.schema import connect, translate_errors

T = TypeVar("T")

MAX_READS = 5_000


class ReadCache:
    """Of one connection, which is used from the event loop's thread only."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._held: dict[Hashable, Any] = {}
        self._version: Any = None
        self._version_known = False

    def get(self, key: Hashable, read: Callable[[], T]) -> T:
        """`read()`, or what it returned since the last commit."""
        self.renew()
        if key not in self._held:
            with translate_errors():
                self._held[key] = read()
        found: T = self._held[key]
        return found

    def cached(self) -> dict[Hashable, Any]:
        """All that is known, by key; the caller may put into it what it reads, before it awaits anything."""
        self.renew()
        return self._held

    def renew(self) -> None:
        """Once in each round of the event loop. Who was told of a commit after this look was told in a later callback,
        and callbacks run in the order in which they were scheduled: after the one that ends the round."""
        if self._version_known:
            return
        with translate_errors():
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
"""Instructions of SQLite that a read in the event loop may take, in ticks: some 2 ms."""
ROUND_SECONDS = 0.005
"""Reads in the event loop never wait for anything, so that background work that reads again and again would keep the
loop to itself: after this long the others have their turn."""


class ReadPool:
    """Open from within the event loop that will use it."""

    def __init__(self, path: Path, busy_timeout_ms: int) -> None:
        self._path, self._busy_timeout_ms = path, busy_timeout_ms
        self.inline = connect(path, busy_timeout_ms)
        self._threads = ThreadPoolExecutor(THREADS, "recalld-reader")
        self._local = threading.local()
        self._ticks: int | None = None
        self._round_began: float | None = None
        self.inline.set_progress_handler(self._tick, TICK_STEPS)

    def close(self) -> None:
        self._threads.shutdown(wait=True)
        self.inline.close()

    async def bounded(self, work: Callable[[apsw.Connection], T]) -> T:
        """In the event loop; what turns out to be long is begun anew in a thread, and holds up nobody."""
        if self._long_round():
            await asyncio.sleep(0)
        self._ticks = MAX_TICKS
        try:
            with translate_errors():
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
        """True ends the read. What runs without a bound has none counted."""
        if self._ticks is None:
            return False
        self._ticks -= 1
        return self._ticks < 0

    async def apart(self, work: Callable[[apsw.Connection], T]) -> T:
        """In a thread, on that thread's own connection."""

        def run() -> T:
            if not hasattr(self._local, "connection"):
                self._local.connection = connect(self._path, self._busy_timeout_ms)
            with translate_errors():
                connection: apsw.Connection = self._local.connection
                return work(connection)

        return await asyncio.get_running_loop().run_in_executor(self._threads, run)
