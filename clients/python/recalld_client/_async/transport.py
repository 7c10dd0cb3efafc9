"""How the generated methods reach the service."""

import copy
from types import TracebackType
from typing import Any, Self

import anyio
import httpx

from recalld_client._connections import AsyncConnections
from recalld_client._requests import TIMEOUT, Retry, after_answer, after_error, prepare, read, settings, unreachable


class AsyncTransport:
    """Connections to one Recalld.

    url: the service's address; default RECALLD_URL, else http://127.0.0.1:8000. key: an API key; default RECALLD_KEY.
    timeout: seconds for one attempt. retry: how often and when a request is sent again.
    http: an httpx client of your own, with its own address, headers and timeout; it stays open. Without it, the
    asynchronous client has connections of its own for each event loop that it is used on.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = TIMEOUT,
        retry: Retry | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._owned = http is None
        self._connections = AsyncConnections(http, {**settings(url, key), "timeout": timeout})
        self._retry = retry or Retry()
        self._limits: dict[str, Any] = {}

    @property
    def url(self) -> str:
        return str(self._connections.base_url).rstrip("/")

    def with_options(self, *, timeout: float | None = None, retry: Retry | None = None) -> Self:
        """This client with another time limit (seconds) or other retries. Both share their connections."""
        other = copy.copy(self)
        other._owned = False
        other._retry = retry or self._retry
        other._limits = self._limits if timeout is None else {"timeout": timeout}
        return other

    async def _call(self, method: str, where: str, query: Any = None, body: Any = None, headers: Any = None) -> Any:
        request = prepare(method, where, query, body, headers)
        attempt = 0
        while True:
            try:
                response = await self._connections.request({**request.arguments, **self._limits})
            except httpx.TransportError as error:
                wait = after_error(request, error, self._retry, attempt)
                if wait is None:
                    raise unreachable(self._connections.base_url, error) from error
            else:
                wait = after_answer(request, response, self._retry, attempt)
                if wait is None:
                    return read(response)
            attempt += 1
            await anyio.sleep(wait)

    async def aclose(self) -> None:
        if self._owned:
            await self._connections.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
