"""`POST /mcp`: the MCP tools over streamable HTTP, stateless, with the API keys of the REST API."""

import asyncio
import importlib
from typing import Any

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app.api import strict
from app.auth.dependencies import authenticate, check_origin, header
from app.errors import UnsupportedMediaType

PATH = "/mcp"
_TYPE = b"content-type"
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
        scope = {**scope, "headers": _json_headers(request)}
        if self._sdk is None:  # importing the SDK takes a second, so it waits for the first call
            self._sdk = await asyncio.to_thread(importlib.import_module, "app.mcp.server")
        await self._sdk.serve_http(principal, dict(request.query_params), scope, receive, send)


def _json_headers(request: Request) -> list[tuple[bytes, bytes]]:
    """Returns the headers with the content type as the SDK wants it, which compares it by case. Raises
    UnsupportedMediaType: the SDK would refuse another type, too, but not as a problem."""
    kind = (header(request, _TYPE) or "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise UnsupportedMediaType(f"Send application/json, not {kind or 'a body without a content type'}.")
    others = [(name, value) for name, value in request.scope["headers"] if name != _TYPE]
    return [*others, (_TYPE, b"application/json")]


def route() -> Route:
    """Returns the route of the endpoint."""
    endpoint = Endpoint()
    endpoint.route = Route(PATH, endpoint, methods=["POST"], name="mcp", include_in_schema=False)
    return endpoint.route
