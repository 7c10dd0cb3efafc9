"""Renders every error as problem+json (RFC 9457), including the framework's own. Startup errors become one sentence."""

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import errors
from app.core.schemas import Problem
from app.errors import FieldError, RecalldError

MEDIA_TYPE = "application/problem+json"


def problem_response(error: RecalldError, request_id: str) -> Response:
    """Returns the problem+json response of an error."""
    body = {
        "type": "about:blank",
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "code": error.code,
        "request_id": request_id,
        "errors": [{"pointer": field.pointer, "detail": field.detail} for field in error.errors],
    }
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    if isinstance(error, errors.Unauthorized):
        headers["WWW-Authenticate"] = error.challenge
    return Response(orjson.dumps(body), error.status, headers, MEDIA_TYPE)


Responses = dict[int | str, dict[str, Any]]

_ERRORS = {
    400: ("malformed_request", "Cannot be parsed, or a cursor of another list"),
    401: ("unauthorized", "No valid API key"),
    403: ("forbidden", "The key's verbs or bindings do not allow it"),
    404: ("not_found", "There is no such record for this key"),
    409: ("conflict", "Conflicts with what is stored"),
    412: ("precondition_failed", "The version that If-Match names is not the current one"),
    413: ("too_large", "Too large"),
    415: ("unsupported_media_type", "Not JSON"),
    422: ("invalid", "Not valid: `errors` names field and rule"),
    429: ("rate_limited", "Too many requests with this key"),
    503: ("unavailable", "Cannot be done right now: try again after Retry-After"),
}
BODY = (415,)
"""The statuses that a route with a body adds."""


def problems(*statuses: int) -> Responses:
    """Returns the declarations of the given statuses and of those that any route may answer with."""
    return only(400, 401, 403, 413, 422, 429, 503, *statuses)


def only(*statuses: int) -> Responses:
    """Returns the declarations of the given statuses, for `responses=`."""
    return {status: _declared(status) for status in sorted(statuses)}


def _declared(status: int) -> dict[str, Any]:
    code, text = _ERRORS[status]
    example = {
        "type": "about:blank",
        "title": text,
        "status": status,
        "detail": text,
        "code": code,
        "request_id": "req_01a2003d395076f9a13acea58faaf745",
        "errors": [{"pointer": "/user_id", "detail": "what is wrong with it"}] if status == HTTPStatus(422) else [],
    }
    schema = {"$ref": f"#/components/schemas/{Problem.__name__}"}
    return {"description": text, "content": {MEDIA_TYPE: {"schema": schema, "example": example}}}


_BY_STATUS: Mapping[int, type[RecalldError]] = {
    400: errors.BadRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    405: errors.MethodNotAllowed,
    413: errors.TooLarge,
    415: errors.UnsupportedMediaType,
    422: errors.Invalid,
    503: errors.Unavailable,
}

_WRONG_KEY = "[key]"
"""Follows a key in an error's location when the key itself is invalid."""


def install(app: FastAPI) -> None:
    """Registers the handlers that render every error of the app as a problem."""
    app.add_exception_handler(RecalldError, _ours)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _framework)


def _respond(request: Request, error: RecalldError) -> Response:
    return problem_response(error, getattr(request.state, "request_id", "unknown"))


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, RecalldError)
    return _respond(request, error)


async def _validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [FieldError(_pointer(detail["loc"], error.body), _sentence(detail)) for detail in error.errors()[:20]]
    detail = f"{found[0].pointer or 'The body'}: {found[0].detail}" if found else ""
    return _respond(request, errors.Invalid(detail, errors=found))


async def _framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    cause = error.__cause__
    if isinstance(cause, RecalldError):  # raised while the framework was reading the body
        return _respond(request, cause)
    kind = _BY_STATUS.get(error.status_code, errors.BadRequest if error.status_code < 500 else RecalldError)
    unknown_route = error.status_code == HTTPStatus.NOT_FOUND
    response = _respond(request, kind("There is no such route." if unknown_route else ""))
    response.headers.update(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        response.headers["Allow"] = ", ".join(_allowed(request))
    return response


def _allowed(request: Request) -> list[str]:
    """Returns the methods of all routes with this path. The framework lists only those of the first one."""

    def known(method: str) -> bool:
        asked = {**request.scope, "method": method}
        return any(route.matches(dict(asked))[0] is Match.FULL for route in request.app.routes)

    methods = [method for method in ("GET", "POST", "PUT", "PATCH", "DELETE") if known(method)]
    return ["HEAD", *methods] if "GET" in methods else methods


def _pointer(loc: Sequence[int | str], body: Any) -> str:
    """Returns a JSON pointer: `("body", "items", 0, "content")` → `/items/0/content`. Other locations keep their name:
    `/query/limit`."""
    where = list(_within(loc[1:], body)) if loc and loc[0] == "body" else loc
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in where)


def _within(steps: Sequence[int | str], value: Any) -> Iterator[int | str]:
    """Yields the steps that exist in the body. A validator's path also names the members of a union, which do not."""
    for at, step in enumerate(steps):
        if isinstance(value, dict) and (step in value or (at == len(steps) - 1 and step != _WRONG_KEY)):
            value = value.get(str(step))
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            continue
        yield step


def _sentence(error: Mapping[str, Any]) -> str:
    text = str(error["msg"]).removeprefix("Value error, ")
    return "this field is not known" if error["type"] == "extra_forbidden" else text


class SaysWhy:
    """Wraps the app and reports a startup error as one sentence. `error` is the RecalldError that the
    lifespan raised."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.error: RecalldError | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        failed: list[Message] = []

        async def keep(message: Message) -> None:
            if message["type"] == "lifespan.startup.failed":
                failed.append(message)  # held back: a RecalldError explains itself, so its traceback is dropped
            else:
                await send(message)

        try:
            await self._app(scope, receive, keep)
        except RecalldError as error:
            self.error = error
            failed = [{**message, "message": ""} for message in failed]
            raise
        finally:
            for message in failed:
                await send(message)
