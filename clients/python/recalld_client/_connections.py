"""The connections of a client: httpx clients, and which of them a call takes."""

from typing import Any
from weakref import WeakKeyDictionary

import anyio
import httpx
from anyio.lowlevel import current_token

from recalld_client._errors import RecalldError

AT_ONCE = 100
"""Requests that httpx sees at once, as many as it has connections. Its pool looks at all that wait for each that ends,
so that thousands would take the square of the time."""


class Connections:
    """Those of a synchronous client. Threads may share them."""

    def __init__(self, http: httpx.Client | None, settings: dict[str, Any]) -> None:
        self._http = http or httpx.Client(**settings)

    @property
    def base_url(self) -> httpx.URL:
        return self._http.base_url

    def request(self, arguments: dict[str, Any]) -> httpx.Response:
        return self._http.request(**arguments)

    def close(self) -> None:
        self._http.close()


class AsyncConnections:
    """Those of an asynchronous client: connections belong to the event loop that opened them, so each loop has its own.

    Raises RecalldError where an httpx client of the caller's own is used on a second loop.
    """

    def __init__(self, http: httpx.AsyncClient | None, settings: dict[str, Any]) -> None:
        self._given, self._settings, self._taken = http, settings, False
        self._of_loops: WeakKeyDictionary[Any, tuple[httpx.AsyncClient, anyio.Semaphore]] = WeakKeyDictionary()

    @property
    def base_url(self) -> httpx.URL:
        return self._given.base_url if self._given else httpx.URL(self._settings["base_url"])

    async def request(self, arguments: dict[str, Any]) -> httpx.Response:
        loop = _loop()
        if loop not in self._of_loops:
            if self._given is not None and self._taken:
                raise RecalldError("http= belongs to another event loop: leave it out, or make a client for each loop.")
            self._taken = True
            self._of_loops[loop] = (self._given or httpx.AsyncClient(**self._settings), anyio.Semaphore(AT_ONCE))
        http, room = self._of_loops[loop]
        async with room:
            return await http.request(**arguments)

    async def aclose(self) -> None:
        """Closes the connections of this loop; another call would open new ones. Those of an ended loop are gone with
        it."""
        held = self._of_loops.pop(_loop(), None)
        if held is not None:
            await held[0].aclose()


def _loop() -> Any:
    """The running event loop, of asyncio or trio."""
    token = current_token()
    return getattr(token, "native_token", token)
