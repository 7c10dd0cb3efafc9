"""Renders every error as problem+json (RFC 9457), including the framework's own. Startup errors become one sentence."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from http import HTTPStatus
from itertools import islice
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import TypeAliasType, get_type_hints, is_typeddict

from app import errors
from app.api.strict import has_slash, slash_in_id
from app.core import tracing
from app.core.schemas import Problem
from app.errors import FieldError, RecalldError, did_you_mean, pointer, shortened
from app.validation_words import in_words

MEDIA_TYPE = "application/problem+json"


def problem_response(error: RecalldError, request_id: str) -> Response:
    """Returns the problem+json response of an error, and notes the error at the request's span."""
    tracing.fail(error.code, fault=error.status >= RecalldError.status)
    body: Problem = {
        "type": "about:blank",
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "code": error.code,
        "request_id": request_id,
        "errors": [{"pointer": field.pointer, "detail": field.detail} for field in error.errors],
    }
    traced = tracing.ids()
    if traced is not None:
        body["trace_id"] = traced[0]
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
    410: ("changes_lost", "The log of changes no longer goes back so far"),
    412: ("precondition_failed", "The version that If-Match names is not the current one"),
    413: ("too_large", "Too large"),
    415: ("unsupported_media_type", "Not JSON"),
    422: ("invalid", "Not valid: `errors` names field and rule"),
    429: ("rate_limited", "Too many requests with this key"),
    431: ("head_too_large", "The request line and the headers are too large"),
    503: ("unavailable", "Cannot be done right now: try again after Retry-After"),
    507: ("quota_exceeded", "The write would exceed the tenant's quota of records or bytes"),
}
BODY = (415,)
"""The statuses that a route with a body adds."""


def problems(*statuses: int) -> Responses:
    """Returns the declarations of the given statuses and of those that any route may answer with."""
    return only(400, 401, 403, 413, 422, 429, 503, *statuses)


def only(*statuses: int) -> Responses:
    """Returns the declarations of the given statuses, for `responses=`."""
    declarations: Responses = {}
    schema = {"$ref": f"#/components/schemas/{Problem.__name__}"}
    for status in sorted(statuses):
        code, text = _ERRORS[status]
        example: Problem = {
            "type": "about:blank",
            "title": text,
            "status": status,
            "detail": text,
            "code": code,
            "request_id": "req_01a2003d395076f9a13acea58faaf745",
            "errors": [{"pointer": "/user_id", "detail": "what is wrong with it"}] if status == HTTPStatus(422) else [],
        }
        content = {MEDIA_TYPE: {"schema": schema, "example": example}}
        declarations[status] = {"description": text, "content": content}
    return declarations


_BY_STATUS: Mapping[int, type[RecalldError]] = {
    400: errors.BadRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NoRoute,
    405: errors.MethodNotAllowed,
    413: errors.TooLarge,
    415: errors.UnsupportedMediaType,
    422: errors.Invalid,
    503: errors.Unavailable,
}

_SIMILAR_PATH = 0.8


def install(app: FastAPI) -> None:
    """Registers the handlers that render every error of the app as a problem."""

    @app.exception_handler(RecalldError)
    async def of_service(request: Request, error: RecalldError) -> Response:
        return _respond(request, error)

    @app.exception_handler(RequestValidationError)
    async def of_validation(request: Request, error: RequestValidationError) -> Response:
        return _not_valid(request, error)

    app.exception_handler(HTTPException)(_of_framework)


def _not_valid(request: Request, error: RequestValidationError) -> Response:
    body = getattr(request.scope.get("route"), "body_field", None)
    faults = islice(error.errors(), errors.MAX_ERRORS + 1)
    return _respond(request, errors.invalid_fields(_field_error(fault, error.body, body) for fault in faults))


def _respond(request: Request, error: RecalldError) -> Response:
    return problem_response(error, getattr(request.state, "request_id", "unknown"))


def _field_error(fault: ErrorDetails, value: Any, body: Any) -> FieldError:
    """Returns in words what validation found. `value` is the request's body, `body` the route's field for it."""
    loc = fault["loc"]
    if not (loc and loc[0] == "body"):
        return FieldError(pointer(loc), sentence(fault))
    return at_fault(fault, loc[1:], value, None if body is None else body.field_info.annotation)


def at_fault(
    fault: ErrorDetails, loc: Sequence[int | str], value: Any, annotation: Any, what: str = "field"
) -> FieldError:
    """Returns in words what validation found at `loc` in a value of that type, with a pointer to it."""
    steps = list(_within(loc, value, annotation))
    return FieldError(pointer(steps), sentence(fault, models_at(annotation, steps[:-1]), what))


async def _of_framework(request: Request, error: HTTPException) -> Response:
    cause = error.__cause__
    if isinstance(cause, RecalldError):  # raised while the framework was reading the body
        return _respond(request, cause)
    if isinstance(cause, RequestValidationError):
        return _not_valid(request, cause)
    if request.url.path.startswith("/v1/") and has_slash(request.scope.get("raw_path") or b""):
        return _respond(request, slash_in_id())
    kind = _BY_STATUS.get(error.status_code, errors.BadRequest if error.status_code < 500 else RecalldError)
    allowed = _allowed(request) if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED else []
    detail = _no_route(request) if error.status_code == HTTPStatus.NOT_FOUND else ""
    if allowed:
        taken = " and ".join([", ".join(allowed[:-1]), allowed[-1]] if allowed[1:] else allowed)
        detail = f"{shortened(request.scope['path'])} does not take {shortened(request.method)}. It takes {taken}."
    response = _respond(request, kind(detail))
    response.headers.update(error.headers or {})
    if allowed:
        response.headers["Allow"] = ", ".join(allowed)
    return response


def _no_route(request: Request) -> str:
    """Returns what to say of a path that no route has: the nearest route, the page for those who come from the product
    that has it, and where all routes are."""
    path = request.scope["path"]
    templates = [route.path_format for route in request.app.routes if isinstance(route, Route)]
    near = get_close_matches(path, (_filled(template, path) for template in templates), 1, _SIMILAR_PATH)
    meant = next((template for template in templates if near and _filled(template, path) == near[0]), None)
    hint = "." if meant is None else f": did you mean {meant}?"
    other = next((product for paths, product in errors.PATHS_ELSEWHERE.items() if re.match(paths, path)), None)
    moving = "" if other is None else f" Of {other}? docs/guides/importing.md says how its records come here."
    return f"There is no route {shortened(path)}{hint}{moving} /docs lists all routes."


def _filled(template: str, path: str) -> str:
    """Returns the template with the steps of the path in the places of its parameters."""
    steps = path.split("/")
    return "/".join(
        (steps[at] or step) if step.startswith("{") and at < len(steps) else step
        for at, step in enumerate(template.split("/"))
    )


def _allowed(request: Request) -> list[str]:
    """Returns the methods of all routes with this path. The framework lists only those of the first one."""

    def known(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(dict(scope))[0] is Match.FULL for route in request.app.routes)

    methods = [method for method in ("GET", "POST", "PUT", "PATCH", "DELETE") if known(method)]
    return ["HEAD", *methods] if "GET" in methods else methods


def _within(steps: Sequence[int | str], value: Any, annotation: Any) -> Iterator[int | str]:
    """Yields the steps that lead to a value that is there, or to a field that is missing. A validator's path also names
    the members of a union, which are neither: `("content", "list[str]")`."""
    found: list[int | str] = []
    for step in steps:
        if isinstance(value, dict) and step in value:
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        elif isinstance(value, dict) and any([*_inside(model, step)] for model in models_at(annotation, found)):
            value = None
        else:
            continue
        found.append(step)
        yield step


def sentence(fault: ErrorDetails, models: Iterable[type[Any]] = (), what: str = "field") -> str:
    """Returns what is wrong, in words. `models`: what may stand around an unknown field."""
    kind, text = fault["type"], in_words(fault)
    if kind == "extra_forbidden":
        return f"this {what} is not known{_meant(str(fault['loc'][-1]), models)}"
    if kind == "literal_error" and isinstance(fault.get("input"), str):
        return text + did_you_mean(fault["input"], re.findall(r"'([^']*)'", fault["ctx"]["expected"]), "'")
    return text


def _meant(name: str, models: Iterable[type[Any]]) -> str:
    """Returns the end of a sentence about a field that the models do not have: what does its work here, or the field
    that was probably meant."""
    known = {name for model in models for name in _fields(model)}
    return did_you_mean(name, known) + (
        ": what has no field of its own goes into `custom`" if "custom" in known else ""
    )


def models_at(annotation: Any, steps: Iterable[int | str]) -> list[type[Any]]:
    """Returns the models that may stand where the steps lead in a value of that type."""
    annotations = [annotation]
    for step in steps:
        annotations = [inner for outer in annotations for inner in _inside(outer, step)]
    return [option for reached in annotations for option in _options(reached) if _is_model(option)]


def _inside(annotation: Any, step: int | str) -> Iterator[Any]:
    for option in _options(annotation):
        if _is_model(option):
            yield from (annotation for name, annotation in _fields(option).items() if step == name)
        elif get_origin(option) in (list, dict):
            yield get_args(option)[-1]


def _options(annotation: Any) -> Iterator[Any]:
    """Yields the types of a union, without aliases and annotations."""
    if isinstance(annotation, TypeAliasType):
        yield from _options(annotation.__value__)
    elif get_origin(annotation) is Annotated:
        yield from _options(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for option in get_args(annotation):
            yield from _options(option)
    else:
        yield annotation


def _is_model(option: Any) -> bool:
    """Returns whether a type has fields: a pydantic class, or a `TypedDict`, as the settings of an agent."""
    return is_typeddict(option) or (
        isinstance(option, type) and get_origin(option) is None and issubclass(option, BaseModel)
    )


def _fields(model: Any) -> dict[str, Any]:
    """Returns the types of the fields of a model by the names that a body has them by."""
    if is_typeddict(model):
        return get_type_hints(model)
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


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
