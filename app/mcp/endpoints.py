"""`POST /mcp`: the MCP tools over streamable HTTP, stateless, with the API keys of the REST API."""

import asyncio
import importlib
from typing import Any

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app.api import strict
from app.auth.dependencies import authenticate, check_origin

PATH = "/mcp"
_NAMES = frozenset({"agent_id", "user_id"})


class Endpoint:
    """An ASGI app that serves as the endpoint of the route."""

    def __init__(self) -> None:
        self.route: Route
        self._sdk: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self.route  # for the metrics
        request = Request(scope)
        check_origin(request)  # checked even with a key, since the protocol requires it
        principal = await authenticate(request)
        strict.check(scope["query_string"], _NAMES)
        if self._sdk is None:  # importing the SDK takes a second, so it waits for the first call
            self._sdk = await asyncio.to_thread(importlib.import_module, "app.mcp.server")
        await self._sdk.serve_http(principal, dict(request.query_params), scope, receive, send)


def route() -> Route:
    """Returns the route of the endpoint."""
    endpoint = Endpoint()
    endpoint.route = Route(PATH, endpoint, methods=["POST"], name="mcp", include_in_schema=False)
    return endpoint.route
