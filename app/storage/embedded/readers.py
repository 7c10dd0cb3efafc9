"""Who reads the database: the event loop itself where that is quick (a hop to a thread costs more), else a thread."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import apsw

from app.storage.embedded.schema import connect, guarded

T = TypeVar("T")

THREADS = 3
TICK_STEPS = 1_000
MAX_TICKS = 40
"""Instructions of SQLite that a read in the event loop may take, in ticks: some 2 ms."""
ROUND_SECONDS = 0.005
"""Reads in the event loop never wait for anything, so that background work that reads again and again would keep the
loop to itself: after this long the others have their turn."""


class Readers:
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
            with guarded():
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
            with guarded():
                connection: apsw.Connection = self._local.connection
                return work(connection)

        return await asyncio.get_running_loop().run_in_executor(self._threads, run)
