"""The official SDK's client on the service, over HTTP without a network between."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from app.core.prompt_text import CONTEXT
from tests.conftest import Service, _with_state

Json = dict[str, Any]
Connect = Callable[..., AbstractAsyncContextManager[Client]]


def connecting(service: Service) -> Connect:
    """`connect("?user_id=ada", headers)`; `mode="legacy"` for the revisions of the protocol that shake hands."""
    state = {"resources": service.resources}
    transport = httpx2.ASGITransport(app=_with_state(service.app, state))

    @asynccontextmanager
    async def connect(query: str = "", headers: Json | None = None, mode: str = "auto") -> AsyncIterator[Client]:
        async with (
            httpx2.AsyncClient(transport=transport, headers=headers or {}, timeout=60) as http,
            Client(streamable_http_client(f"http://127.0.0.1/mcp{query}", http_client=http), mode=mode) as client,
        ):
            yield client

    return connect


@pytest.fixture
def connect(service: Service) -> Connect:
    return connecting(service)


async def call(client: Client, tool: str, /, **arguments: Any) -> Any:
    """What the tool answered: an object, or text."""
    result: Any = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    if result.structured_content is None:
        return result.content[0].text
    return {name: value for name, value in result.structured_content.items() if name != CONTEXT}


async def refused(client: Client, tool: str, /, **arguments: Any) -> str:
    """What the tool said against it."""
    result: Any = await client.call_tool(tool, arguments)
    assert result.is_error
    text: str = result.content[0].text
    return text
