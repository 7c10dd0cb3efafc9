"""Answers malformed HTTP with problem+json, too."""

from http import HTTPStatus
from typing import TYPE_CHECKING

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from app.api.errors import problem_response
from app.core.ids import new_id
from app.errors import BadRequest

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Protocol
else:
    Protocol = AutoHTTPProtocol


class ProblemProtocol(Protocol):
    """The HTTP protocol of the server, with problem+json for malformed requests."""

    def send_400_response(self, msg: str) -> None:
        """Replaces the server's plain-text answer. The request could not be parsed, and the connection closes."""
        request_id = new_id("req")
        response = problem_response(BadRequest(msg), request_id)
        headers = [*response.raw_headers, (b"x-request-id", request_id.encode()), (b"connection", b"close")]
        lines = [f"HTTP/1.1 400 {HTTPStatus.BAD_REQUEST.phrase}".encode(), *(b": ".join(one) for one in headers)]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(response.body)]))
        self.transport.close()
