"""Every error becomes problem+json (RFC 9457), the framework's own included."""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from app import errors
from app.errors import FieldError, RecalldError
from app.http.problems import problem_response

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


def install(app: FastAPI) -> None:
    app.add_exception_handler(RecalldError, _ours)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _framework)


def _respond(request: Request, fault: RecalldError) -> Response:
    return problem_response(fault, getattr(request.state, "request_id", "unknown"))


async def _ours(request: Request, fault: Exception) -> Response:
    assert isinstance(fault, RecalldError)
    return _respond(request, fault)


async def _validation(request: Request, fault: Exception) -> Response:
    assert isinstance(fault, RequestValidationError)
    found = [FieldError(_pointer(error["loc"]), _sentence(error)) for error in fault.errors()[:20]]
    detail = f"{found[0].pointer or 'The body'}: {found[0].detail}" if found else ""
    return _respond(request, errors.Invalid(detail, errors=found))


async def _framework(request: Request, fault: Exception) -> Response:
    assert isinstance(fault, HTTPException)
    cause = fault.__cause__
    if isinstance(cause, RecalldError):  # raised while the framework read the body
        return _respond(request, cause)
    kind = _BY_STATUS.get(fault.status_code, errors.BadRequest if fault.status_code < 500 else RecalldError)
    response = _respond(request, kind())
    for name, value in (fault.headers or {}).items():
        response.headers[name] = value
    return response


def _pointer(loc: Sequence[int | str]) -> str:
    """`("body", "items", 0, "content")` → `/items/0/content`; other places keep their name: `/query/limit`."""
    where = loc[1:] if loc and loc[0] == "body" else loc
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in where)


def _sentence(error: Mapping[str, Any]) -> str:
    text = str(error["msg"]).removeprefix("Value error, ")
    return "this field is not known" if error["type"] == "extra_forbidden" else text
