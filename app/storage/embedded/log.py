"""Empties SQLite's log (the WAL file) once this process has written nothing for a while.

SQLite reuses the log and does not shorten it by itself: it would stay as long as the largest load made it. Its pages
are copied into the database first, by a checkpoint that lets others write meanwhile (PASSIVE). Only then is the file
cut (TRUNCATE), which keeps writers out for as long as the cut alone takes. A reader that still needs the log is not
waited for: the next attempt comes after another quiet time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import apsw

IDLE_SECONDS = 10.0

log = logging.getLogger(__name__)

Apart = Callable[[Callable[[apsw.Connection], bool]], Awaitable[bool]]
"""Runs work in a thread, on a connection of that thread."""


class LogTruncation:
    """Used from one event loop."""

    def __init__(self, apart: Apart, idle_seconds: float = IDLE_SECONDS) -> None:
        self._apart, self._idle = apart, idle_seconds
        self._loop = asyncio.get_running_loop()
        self._last_write = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def written(self) -> None:
        """This process has committed something."""
        self._last_write = self._loop.time()
        if self._timer is None and self._task is None:
            self._wait(self._idle)

    async def close(self) -> None:
        """Waits for an attempt that is under way."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    def _wait(self, seconds: float) -> None:
        if not self._closed:
            self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        left = self._last_write + self._idle - self._loop.time()
        if left > 0:
            self._wait(left)
        else:
            self._task = asyncio.create_task(self._attempt())

    async def _attempt(self) -> None:
        begun, done = self._last_write, False
        try:
            done = await self._apart(truncate)
        except Exception:
            log.exception("the log was not truncated")
        self._task = None
        if not done or self._last_write != begun:
            self._wait(self._idle)


def truncate(connection: apsw.Connection) -> bool:
    """False where others use the log in this moment. It is not waited for them: a writer would wait, too."""
    timeout: Any = connection.pragma("busy_timeout")
    connection.set_busy_timeout(0)
    try:
        return all(_checkpoint(connection, mode) for mode in ("PASSIVE", "TRUNCATE"))
    finally:
        connection.set_busy_timeout(int(timeout))


def _checkpoint(connection: apsw.Connection, mode: str) -> bool:
    """False where pages were left in the log, or the file could not be cut."""
    busy: Any
    pages: Any
    copied: Any
    ((busy, pages, copied),) = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
    return not busy and pages == copied
