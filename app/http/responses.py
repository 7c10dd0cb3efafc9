"""Errors that operations declare in OpenAPI."""

from typing import Any

from app.schemas import Problem

Responses = dict[int | str, dict[str, Any]]

_TITLES = {
    400: "Cannot be parsed, or a cursor of another list",
    401: "No valid API key",
    403: "The key's verbs or bindings do not allow it",
    404: "There is no such record for this key",
    409: "Conflicts with what is stored",
    412: "The version that If-Match names is not the current one",
    413: "Too large",
    415: "Not JSON",
    422: "Not valid: `errors` names field and rule",
    429: "Too many requests with this key",
    503: "Cannot be done right now: try again after Retry-After",
}


def problems(*statuses: int) -> Responses:
    """The statuses named, and those that any route may answer."""
    return {
        status: {"description": _TITLES[status], "content": {"application/problem+json": {"schema": _SCHEMA}}}
        for status in sorted({400, 401, 403, 422, 429, 503, *statuses})
    }


_SCHEMA = {"$ref": f"#/components/schemas/{Problem.__name__}"}
ETAG = {"ETag": {"description": "The record's version, for If-Match.", "schema": {"type": "string"}}}
BODY = (413, 415)
