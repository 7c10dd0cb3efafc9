"""How an error looks on the wire: problem+json, RFC 9457."""

from http import HTTPStatus

import orjson
from starlette.responses import Response

from app.errors import RecalldError

MEDIA_TYPE = "application/problem+json"


def problem_response(fault: RecalldError, request_id: str) -> Response:
    body = {
        "type": "about:blank",
        "title": fault.title,
        "status": fault.status,
        "detail": fault.detail,
        "code": fault.code,
        "request_id": request_id,
        "errors": [{"pointer": error.pointer, "detail": error.detail} for error in fault.errors],
    }
    headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
    if fault.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(orjson.dumps(body), fault.status, headers, MEDIA_TYPE)
