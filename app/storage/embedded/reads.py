"""What was read of the database, kept for as long as no connection, of any process, commits."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import apsw

from app.storage.embedded.schema import guarded

T = TypeVar("T")

MAX_READS = 5_000


class Reads:
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
            with guarded():
                self._held[key] = read()
        found: T = self._held[key]
        return found

    def held(self) -> dict[Hashable, Any]:
        """All that is known, by key; the caller may put into it what it reads, before it awaits anything."""
        self.renew()
        return self._held

    def renew(self) -> None:
        """Once in each round of the event loop. Who was told of a commit after this look was told in a later callback,
        and callbacks run in the order in which they were scheduled: after the one that ends the round."""
        if self._version_known:
            return
        with guarded():
            ((version,),) = self._connection.execute("PRAGMA data_version")  # faster than `pragma()`
        if version != self._version or len(self._held) > MAX_READS:
            self._held.clear()
            self._version = version
        self._version_known = True
        asyncio.get_running_loop().call_soon(self._end_round)

    def _end_round(self) -> None:
        self._version_known = False
