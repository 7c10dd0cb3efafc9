"""ASGI middleware around every request: its id, the limit of its body, metrics and the log line, and which web pages of
other origins may call the service.
"""

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Set
from functools import lru_cache
from http import HTTPStatus
from typing import Any, TypeAlias

from prometheus_client import Counter, Histogram
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import problem_response
from app.core import tracing
from app.core.clock import new_id
from app.errors import RecalldError, TooLarge
from app.metrics import REQUEST_SECONDS, REQUESTS, REQUESTS_IN_PROGRESS
from app.storage.protocol import begin_request, using_reserve
from app.storage.records import DAMAGED, remembering
from app.storage.schema import Collection, Doc

Headers = list[tuple[bytes, bytes]]
Blame: TypeAlias = Callable[[Exception, Iterable[tuple[Collection, Doc]]], RecalldError | None]
"""Returns the error for the caller where one of the documents that a failed request had read is damaged."""

METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE"
EXPOSED = b"ETag, Idempotency-Replayed, Retry-After, X-Request-ID"
KEPT_SECONDS = 600
"""How long a browser may keep the answer to a preflight: a change of the setting is seen after that."""

_UNLESS_SAID = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
"""What each answer says unless it says otherwise, as the pages do: no cache on the way or in a browser keeps records,
and no browser takes a text of one for a page or a script."""

_EXPOSE = (b"access-control-expose-headers", EXPOSED)
_NAMES = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,1024}")


class Cors:
    """The rule for the origins of the setting. With `*` every page may read what its key gives it, but a browser sends
    neither cookies nor other credentials of its own: that is for named origins."""

    def __init__(self, origins: Set[str]) -> None:
        self._origins = frozenset(origin.encode() for origin in origins)
        self._any = b"*" in self._origins

    def headers(self, origin: bytes | None) -> Headers:
        """Returns the headers that each answer gets. Caches learn that they depend on the origin."""
        if self._any:
            return [] if origin is None else [(b"access-control-allow-origin", b"*"), _EXPOSE]
        vary = (b"vary", b"Origin")
        if origin not in self._origins or origin is None:
            return [vary]
        allowed = (b"access-control-allow-origin", origin)
        return [vary, allowed, (b"access-control-allow-credentials", b"true"), _EXPOSE]

    def preflight(self, method: str, headers: Mapping[bytes, bytes]) -> Headers | None:
        """Returns the further headers of the answer to a preflight, or None if the request is none that may pass. A
        preflight carries no key: the request that follows it does."""
        origin = headers.get(b"origin")
        if method != "OPTIONS" or b"access-control-request-method" not in headers:
            return None
        if origin is None or not (self._any or origin in self._origins):
            return None
        requested = headers.get(b"access-control-request-headers", b"")
        named = [(b"access-control-allow-headers", requested)] if _NAMES.fullmatch(requested) else []
        kept = (b"access-control-max-age", b"%d" % KEPT_SECONDS)
        return [(b"access-control-allow-methods", METHODS), *named, kept]


log = logging.getLogger("recalld.request")

_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_QUIET = frozenset({"/livez", "/readyz", "/health", "/healthz", "/metrics"})
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_MANY_DIGITS = 18
CLIENT_LEFT = 499
"""Status in log and metrics of a request whose client closed the connection before the answer, as nginx has it."""


class RequestLayer:
    """Wraps the app. Requests with a body of more than `max_body` bytes get 413, and unexpected errors a problem with
    status 500, or the one that `blame` makes of them. Every answer gets the headers of `cors`, if web pages of other
    sites may call the service."""

    def __init__(self, app: ASGIApp, max_body: int, blame: Blame, cors: Cors | None = None) -> None:
        self._app, self._max_body, self._blame, self._cors = app, max_body, blame, cors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin_request()
        request = _Request(scope, receive, send, self._max_body, self._cors)
        with request.span() as span:
            await self._answer(request, span)

    async def _answer(self, request: "_Request", span: tracing.TraceSpan) -> None:
        REQUESTS_IN_PROGRESS.inc()
        try:
            if await request.answers_preflight():
                return
            request.check_declared_size()
            with using_reserve(allowed=request.scope["method"] == "DELETE"), remembering() as read:
                try:
                    await self._app(request.scope, request.receive, request.send)
                except DAMAGED as error:
                    damaged = self._blame(error, read)
                    if damaged is None:
                        raise
                    await self._refuse(request, damaged)
        except RecalldError as error:
            await self._refuse(request, error)
        except ClientDisconnect:
            request.status = request.status or CLIENT_LEFT
        except Exception:
            log.exception("unhandled error", extra={"request_id": request.id})
            await self._refuse(request, RecalldError())
        finally:
            REQUESTS_IN_PROGRESS.dec()
            request.record(span)

    async def _refuse(self, request: "_Request", error: RecalldError) -> None:
        if request.status:  # the response has started: it cannot be replaced
            return
        response = problem_response(error, request.id)
        await response(request.scope, request.receive, request.send)


class _Request:
    """One HTTP request on its way through the layer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, max_body: int, cors: Cors | None) -> None:
        # HEAD is routed as GET; the server drops the body
        self.scope = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        self._method = scope["method"] if scope["method"] in _METHODS else "other"
        self._receive, self._send = receive, send
        self._max_body, self._read, self._cors = max_body, 0, cors
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
            "url.scheme": self.scope.get("scheme", "http"),
            "recalld.request_id": self.id,
        }
        return tracing.root(self._method, attributes, "server", carrier)

    async def answers_preflight(self) -> bool:
        """Answers the request if it is a preflight of a page that may call the service."""
        preflight = None if self._cors is None else self._cors.preflight(self._method, self._headers)
        if preflight is None:
            return False
        await self.send({"type": "http.response.start", "status": HTTPStatus.NO_CONTENT, "headers": preflight})
        await self.send({"type": "http.response.body", "body": b""})
        return True

    def check_declared_size(self) -> None:
        """Raises TooLarge if `Content-Length` exceeds the limit."""
        declared = self._headers.get(b"content-length", b"0")
        if declared.isdigit() and (len(declared) > _MANY_DIGITS or int(declared) > self._max_body):
            raise self._too_large()

    async def receive(self) -> Message:
        """Receives a message. Raises TooLarge once the body exceeds the limit."""
        message = await self._receive()
        self._read += len(message.get("body", b""))
        if self._read > self._max_body:
            raise self._too_large()
        return message

    async def send(self, message: Message) -> None:
        """Sends a message, and adds to its headers `X-Request-ID`, what keeps the answer private, and what a page of
        another site needs."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            said = {name for name, _ in message["headers"]}
            private = [header for header in _UNLESS_SAID if header[0] not in said]
            message["headers"] = [*message["headers"], (b"x-request-id", self.id.encode()), *private]
            if self._cors is not None:
                message["headers"] += self._cors.headers(self._headers.get(b"origin"))
        await self._send(message)

    def _too_large(self) -> TooLarge:
        return TooLarge(f"The body is larger than {self._max_body} bytes.")

    def record(self, span: tracing.TraceSpan) -> None:
        """Records metrics, writes the log line and completes the span."""
        took = time.perf_counter() - self._started
        route = route_template(self.scope)
        count, seconds = _meters(self._method, route, self.status)
        count.inc()
        seconds.observe(took)
        span.name(f"{self._method} {route}")
        span.set({"http.route": route, "http.response.status_code": self.status})
        if log.isEnabledFor(logging.INFO) and route not in _QUIET:
            fields: dict[str, Any] = {"request_id": self.id, "method": self._method, "route": route}
            log.info("request", extra={**fields, "status": self.status, "took_ms": round(took * 1000, 2)})


@lru_cache(maxsize=1024)
def _meters(method: str, route: str, status: int) -> tuple[Counter, Histogram]:
    return REQUESTS.labels(method, route, str(status)), REQUEST_SECONDS.labels(method, route)


def route_template(scope: Scope) -> str:
    """Returns the route's path template, such as `/v1/memories/{memory_id}`. All unmatched paths share one label, to
    bound the number of labels."""
    return getattr(scope.get("route"), "path", None) or "unmatched"
