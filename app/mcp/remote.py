"""The REST API of a running service, for `recalld mcp --url`."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from app.mcp.api import Answer, Refused, encoded

SECONDS = 60.0


class Remote:
    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def __call__(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        sent = {"content-type": "application/json", **(headers or {})}
        try:
            response = await self._client.request(method, path, content=encoded(body), headers=sent)
            found = response.json() if response.content else None
        except httpx2.HTTPError as fault:
            raise Refused(
                f"The Recalld service at {self._client.base_url} cannot be reached: {type(fault).__name__}.",
                code="unavailable",
            ) from fault
        except json.JSONDecodeError as fault:
            raise Refused(f"{self._client.base_url} does not answer as Recalld does.", code="unavailable") from fault
        return Answer(response.status_code, found, {name.lower(): value for name, value in response.headers.items()})


@asynccontextmanager
async def calling(url: str, key: str | None) -> AsyncIterator[Remote]:
    """`url`: of the service's root."""
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=SECONDS) as client:
        yield Remote(client)
