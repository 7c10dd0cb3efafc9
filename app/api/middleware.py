"""ASGI middleware around every request, from the outside: `RequestLayer` (id, metrics, log line), `Cors` (web pages of
other origins, where a setting names them), `ProblemLayer` (the body limit, and errors as problems).
"""

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Set
from http import HTTPStatus
from typing import Any, TypeAlias

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import problem_response
from app.core import tracing
from app.core.clock import new_id
from app.errors import BadRequest, RecalldError, TooLarge
from app.metrics import REQUEST_SECONDS, REQUESTS, REQUESTS_IN_PROGRESS
from app.storage.changes import using_reserve
from app.storage.protocol import start_stopwatch
from app.storage.records import DAMAGED, remembering
from app.storage.schema import Collection

Blame: TypeAlias = Callable[[Exception, Iterable[tuple[Collection, Mapping[str, Any]]]], RecalldError | None]
"""Returns the error for the caller where one of the documents that a failed request had read is damaged."""

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
EXPOSED = ("ETag", "Idempotency-Replayed", "Retry-After", "X-Request-ID")

_DEFAULT_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
"""Headers of each answer that does not set them itself, as the console's pages do: no cache on the way or in a browser
keeps records, and no browser takes a text of one for a page or a script."""

log = logging.getLogger("recalld.request")

_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_QUIET = frozenset({"/livez", "/readyz", "/health", "/healthz", "/metrics"})
_LABELS = frozenset({*METHODS, "OPTIONS"})
"""Methods that metrics name; any other one is "other"."""
_MANY_DIGITS = 18
CLIENT_LEFT = 499
"""Status in log and metrics of a request whose client closed the connection before the answer, as nginx has it."""


class RequestLayer:
    """The layer around all others: a request's id, span, metrics and log line, and the headers of every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start_stopwatch()
        request = _Request(scope, send)
        REQUESTS_IN_PROGRESS.inc()
        with request.span() as span:
            try:
                await self._app(request.scope, receive, request.send)
            except ClientDisconnect:
                request.status = request.status or CLIENT_LEFT
            finally:
                REQUESTS_IN_PROGRESS.dec()
                request.record(span)


class Cors(CORSMiddleware):
    """The rule for the origins of the setting. With `*` every page may read what its key gives it, but a browser sends
    neither cookies nor other credentials of its own: that is for named origins. A preflight carries no key: the request
    that follows it does."""

    def __init__(self, app: ASGIApp, origins: Set[str]) -> None:
        super().__init__(
            app,
            allow_origins=origins,
            allow_methods=METHODS,
            allow_headers=["*"],
            allow_credentials="*" not in origins,
            expose_headers=EXPOSED,
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answers a preflight. One that is refused is a problem."""
        answer = super().preflight_response(request_headers)
        return answer if answer.status_code == HTTPStatus.OK else _Refused(answer.body, headers=dict(answer.headers))


class _Refused(Response):
    """A refused preflight. It becomes a problem when it is sent: `preflight_response` is not given the scope, which has
    the request's id."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = problem_response(BadRequest(f"{bytes(self.body).decode()}."), scope["state"]["request_id"])
        problem.headers["vary"] = self.headers["vary"]
        await problem(scope, receive, send)


class ProblemLayer:
    """Answers with a problem where the app raises an error. A body of more than `max_body` bytes is 413; what nobody
    expected is 500, or what `blame` makes of it. `files`: the paths that take a file, with the limit of its bytes, such
    as `{"/v1/documents": 10_485_760}`."""

    def __init__(self, app: ASGIApp, max_body: int, files: Mapping[str, int], blame: Blame) -> None:
        self._app, self._max_body, self._files, self._blame = app, max_body, files, blame

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        received, started = 0, False
        most = self._files.get(scope["path"], self._max_body)

        async def receive_within_limit() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > most:
                raise _too_large(most)
            return message

        async def note_start(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            _check_declared_size(scope, most)
            await self._call(scope, receive_within_limit, note_start)
        except ClientDisconnect:
            raise
        except Exception as error:
            if not isinstance(error, RecalldError):
                log.exception("unhandled error", extra={"request_id": scope["state"]["request_id"]})
                error = RecalldError()
            if not started:  # otherwise the answer is under way and cannot be replaced
                await problem_response(error, scope["state"]["request_id"])(scope, receive, send)

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        with using_reserve(allowed=scope["method"] == "DELETE"), remembering() as read:
            try:
                await self._app(scope, receive, send)
            except DAMAGED as error:
                damaged = self._blame(error, read)
                if damaged is None:
                    raise
                raise damaged from error


def _check_declared_size(scope: Scope, most: int) -> None:
    """Raises TooLarge if `Content-Length` exceeds the limit."""
    declared = Headers(scope=scope).get("content-length", "0")
    if declared.isascii() and declared.isdigit() and (len(declared) > _MANY_DIGITS or int(declared) > most):
        raise _too_large(most)


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"The body is larger than {most} bytes.")


class _Request:
    """One HTTP request on its way through the layer."""

    def __init__(self, scope: Scope, send: Send) -> None:
        # HEAD is routed as GET; the server drops the body
        self.scope = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        self._method = scope["method"] if scope["method"] in _LABELS else "other"
        self._send = send
        self._started = time.perf_counter()
        self._headers: dict[bytes, bytes] = dict(scope["headers"])
        given = self._headers.get(b"x-request-id", b"").decode("latin-1")
        self.id = given if _SAFE_ID.fullmatch(given) else new_id("req")
        self.status = 0
        self.scope.setdefault("state", {})["request_id"] = self.id

    def span(self) -> tracing.TraceSpan:
        """Returns the span of the request, below the caller's where `traceparent` names one. Health has none."""
        if self.scope["path"] in _QUIET or not tracing.tracing():
            return tracing.NO_SPAN
        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in self._headers.items()}
        attributes = {
            "http.request.method": "_OTHER" if self._method == "other" else self._method,
            **({"http.request.method_original": self.scope["method"]} if self._method == "other" else {}),
            "url.scheme": self.scope.get("scheme", "http"),
            "recalld.request_id": self.id,
        }
        return tracing.root(self._method, attributes, "server", carrier)

    async def send(self, message: Message) -> None:
        """Sends a message, and adds to its headers `X-Request-ID` and what keeps the answer private."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            names = {name for name, _ in message["headers"]}
            private = [header for header in _DEFAULT_HEADERS if header[0] not in names]
            message["headers"] = [*message["headers"], (b"x-request-id", self.id.encode()), *private]
        await self._send(message)

    def record(self, span: tracing.TraceSpan) -> None:
        """Records metrics, writes the log line and completes the span."""
        took = time.perf_counter() - self._started
        matched = getattr(self.scope.get("route"), "path_format", None)
        route = matched or "unmatched"  # these paths share one label, to bound the number of labels
        REQUESTS.labels(self._method, route, str(self.status)).inc()
        REQUEST_SECONDS.labels(self._method, route).observe(took)
        if span is not tracing.NO_SPAN:
            span.name(" ".join(filter(None, ("HTTP" if self._method == "other" else self._method, matched))))
            span.set({"http.response.status_code": self.status} | ({"http.route": matched} if matched else {}))
        if log.isEnabledFor(logging.INFO) and route not in _QUIET:
            fields: dict[str, Any] = {"request_id": self.id, "method": self._method, "route": route}
            log.info("request", extra={**fields, "status": self.status, "took_ms": round(took * 1000, 2)})
