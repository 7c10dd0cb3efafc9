"""`POST /mcp`: the MCP tools over streamable HTTP, stateless, with the API keys of the REST API."""

import asyncio
import importlib
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from app.api import strict
from app.auth.dependencies import authenticate, check_origin
from app.core.schemas import BODY_LIMITS
from app.core.work import in_turn, work_for

PATH = "/mcp"
LIMITS = replace(BODY_LIMITS, json_depth=BODY_LIMITS.json_depth + 3)
"""Those of REST, with room for the levels around the arguments of a tool: `{"params": {"arguments": {…}}}`."""
_TYPE = b"content-type"
_NAMES = frozenset({"agent_id", "user_id", "tools"})


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
        work_for(principal.scope.tenant)
        query = strict.checked_query(scope["query_string"], _NAMES)
        scope = {**scope, "headers": _json_headers(request)}
        if self._sdk is None:  # importing the SDK takes a second, so it waits for the first call
            self._sdk = await asyncio.to_thread(importlib.import_module, "app.mcp.server")
        body = await strict.StrictRequest(scope, receive).body()
        if len(body) <= strict.LARGE_BODY:
            _check(body)
        else:
            await in_turn(_check, body)
        await self._sdk.serve_http(principal, query, scope, _replayed(body, receive), send)


def _check(body: bytes) -> None:
    """Checks that a message keeps the limits of a REST body. Values in the arguments of a tool are checked by the route
    that it calls, so that the model is told what is wrong with them. Raises BadRequest if it is not JSON or repeats a
    key in an object, and Invalid if it is too deep or holds too many values."""
    if strict.is_deeper(strict.decoded(body, LIMITS), LIMITS.json_depth):
        raise strict.too_deep(LIMITS)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Returns a `receive` that gives the body at once, and then what comes from the client."""
    whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return whole.pop() if whole else await receive()

    return again


def _json_headers(request: Request) -> list[tuple[bytes, bytes]]:
    """Returns the headers with the content type as the SDK wants it, which compares it by case. Raises
    UnsupportedMediaType: the SDK would refuse another type, too, but not as a problem."""
    strict.require_json(request)
    others = [(name, value) for name, value in request.scope["headers"] if name != _TYPE]
    return [*others, (_TYPE, b"application/json")]


def route() -> Route:
    endpoint = Endpoint()
    endpoint.route = Route(PATH, endpoint, methods=["POST"], name="mcp", include_in_schema=False)
    return endpoint.route
