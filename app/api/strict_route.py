"""The route class of the API: a request is authenticated and checked before its body is read, and the body is parsed
strictly."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from types import UnionType
from typing import Any, Union, get_args, get_origin

from fastapi import Request, Response, params
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute

from app.api import strict
from app.api.strict import Answer, parse
from app.auth.dependencies import authenticate, header, state_of
from app.core.limits import BODY_LIMITS, BodyLimits
from app.core.work import BODY_BYTES_PER_UNIT, charge, in_turn, turn, work_for
from app.errors import PreconditionFailed, UnsupportedMediaType, invalid

SMALL_BODY = 16 << 10
"""Bytes. What comes beyond them is taken in at `BYTES_PER_SECOND`."""
LARGE_BODY = 128 << 10
"""Bytes. A larger body is parsed and checked in a thread, because that takes 20 ms a megabyte and more."""
BYTES_PER_SECOND = 128 << 20
"""How fast large bodies of a tenant are taken in. At full speed one client could keep the event loop at work."""


def require_json(request: Request, *suffixes: str) -> None:
    """Raises UnsupportedMediaType unless the body is declared as JSON, or as `application/…` with one of the suffixes,
    and is not compressed."""
    kind = (header(request, b"content-type") or "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith(suffixes)):
        raise UnsupportedMediaType(f"Send application/json, not {kind or 'a body without a content type'}.")
    coding = header(request, b"content-encoding") or "identity"
    if coding.lower() != "identity":
        raise UnsupportedMediaType(f"Send the body as it is, without Content-Encoding: {coding[:64]}.")


RouteHandler = Callable[[Request], Coroutine[Any, Any, Response]]


class StrictRequest(Request):
    """A request whose body is parsed strictly (`app.api.strict`).

    FastAPI calls `body()` and `json()` of the request that it is given. `StrictRoute` gives it this one, so
    these two methods decide how a body is read, and dependencies and models stay FastAPI's.
    """

    lenient: frozenset[str] = frozenset()
    """Fields of the body with values of any size. A model of a body names them as `LENIENT`."""

    @property
    def limits(self) -> BodyLimits:
        """The limits of the body."""
        return BODY_LIMITS

    async def body(self) -> bytes:
        """Returns the body. The large ones of a tenant share `BYTES_PER_SECOND`."""
        if not hasattr(self, "_body"):
            parts, length = list[bytes](), 0
            try:
                async for part in self.stream():
                    charge(len(part) / BODY_BYTES_PER_UNIT)
                    if length > SMALL_BODY:
                        async with turn("bodies"):
                            await asyncio.sleep(len(part) / BYTES_PER_SECOND)  # the rest waits in the client's system
                    parts.append(part)
                    length += len(part)
                self._body = b"".join(parts)
            finally:
                parts.clear()  # the traceback of a body that breaks off would keep them
        return self._body

    async def json(self) -> Any:
        """Returns the parsed body. A large one is parsed in a thread, so that others are not held up, and those of a
        tenant one after the other. Raises BadRequest or Invalid."""
        body, limits = await self.body(), self.limits
        if len(body) <= LARGE_BODY:
            return parse(body, limits, self.lenient)
        return await in_turn(parse, body, limits, self.lenient)


class StrictRoute(APIRoute):
    """A route that authenticates and checks the request before its endpoint runs.
    `openapi_extra={"x-verb": …}` sets the verb that a key needs. By default GET needs `read`, and everything else
    `write`. An endpoint that returns `Answer[Action]` declares its response model so; of
    `Answer[Receipt] | Answer[Operation]` the first one counts."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        returned = inspect.signature(endpoint, eval_str=True).return_annotation
        answer, *_ = get_args(returned) if get_origin(returned) in (Union, UnionType) else (returned,)
        if get_origin(answer) is Answer:
            (options["response_model"],) = get_args(answer)
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> RouteHandler:
        """Wraps the endpoint with authentication, the check of the verb, and the strict checks of query string and
        body."""
        handle = super().get_route_handler()
        by_method = "read" if self.methods == {"GET"} else "write"
        verb = str((self.openapi_extra or {}).get("x-verb", by_method))
        taken = get_flat_params(self.dependant)
        parameters = frozenset(field.alias for field in taken if isinstance(field.field_info, params.Query))
        headers = {field.alias for field in taken if isinstance(field.field_info, params.Header)}
        headers |= {str(parameter["name"]) for parameter in (self.openapi_extra or {}).get("parameters", ())}
        refuses_if_match = self.methods != {"GET"} and verb != "read" and "If-Match" not in headers
        body = self.body_field
        lenient = frozenset[str]() if body is None else getattr(body.field_info.annotation, "LENIENT", frozenset())

        async def respond(request: Request) -> Response:
            principal = await authenticate(request)
            principal.require(verb)
            work_for(principal.scope.tenant)
            state_of(request)["principal"] = principal
            strict.check_path(request.scope.get("raw_path") or b"", self.path)
            strict.check(request.scope["query_string"], parameters)
            request = StrictRequest(request.scope, request.receive)  # FastAPI reads the body through it
            request.lenient = lenient
            if body is None:
                # some clients send {} with every POST
                if request.method == "POST" and (await request.body()).strip() not in (b"", b"{}", b"null"):
                    raise invalid("", "this request takes no body")
            elif body.field_info.is_required() or await request.body():
                require_json(request, "+json")
                await request.body()  # FastAPI would make a cycle of the error of one that breaks off, which is kept
            if refuses_if_match and header(request, b"if-match") is not None:
                raise PreconditionFailed("This changes no record that has one version: send it without If-Match.")
            return await handle(request)

        return respond
