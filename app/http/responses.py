"""Errors that operations declare in OpenAPI."""

from http import HTTPStatus
from typing import Any

from app.http.problems import MEDIA_TYPE
from app.schemas import Problem

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


def problems(*statuses: int) -> Responses:
    """The statuses named, and those that any route may answer."""
    return only(400, 401, 403, 413, 422, 429, 503, *statuses)


def only(*statuses: int) -> Responses:
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
