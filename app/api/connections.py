"""The HTTP protocol of the server, with limits for connections that ask for much and give little.

A connection waits for the head of a request, then for its body, then for the answer. The first two have deadlines, and
a sweep every second closes what has passed them. If too many connections are open, the one that has waited longest for
a head makes room, so that clients that hold connections open cannot keep others out. If bodies under way hold too much
memory, the one that has stalled longest makes room. Small bodies are always taken.

Requests of a connection are read one at a time: the next one waits, unparsed, until the answer before it was sent, and
meanwhile nothing more is read from the client.
"""

import asyncio
import re
import resource
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar, TypeAlias, cast

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.api.errors import problem_response
from app.core.clock import new_id
from app.core.work import trim
from app.errors import BadRequest, Busy, HeadTooLarge, RecalldError, RequestTimeout, VersionNotSupported

SWEEP_SECONDS = 1.0
SMALL_BODY = 64 << 10
STALLED_SECONDS = 1.0
"""A body that got no bytes for so long may be refused to make room for others."""
LINGER_SECONDS = 1.0
DRAIN_SECONDS = 0.05
"""Pause before more is read of what a refused client still sends. To drop it at full speed would hold others up."""
MOST_UNPARSED = 512 << 10
"""Bytes that may wait behind a request in work. Reading pauses after the first, but one read has up to 256 kB, and
there is one more each time the application asks whether the client is still there."""
MOST_PIECES = 1024
"""Pieces that are parsed before others have a turn: a body in chunks may be nothing but empty lines."""
MANY_BYTES = 32 << 20
"""Of bodies under way. Once there are fewer, the freed memory is returned to the system, which keeps it otherwise."""
OTHER_FILES = 128
"""File descriptors that are kept for the store, the model and outgoing connections."""

_HEAD_END = re.compile(rb"\n\r?\n")
"""The empty line behind a head. A body in chunks ends with one, too."""
_ABSOLUTE = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#]*@)?([^/?#]*)")

_HOST = re.compile(rb"(?:[\w.~!$&'()*+,;=%-]*|\[[\w.~!$&'()*+,;=%:-]+\])(?::\d*)?", re.ASCII)
"""A host and its port (RFC 9110, 7.2): `memory.example:8000`, `[::1]`. It may be empty."""

Address: TypeAlias = str


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one client may take from the others: `ConnectionLimits(by_address=512)`."""

    by_address: int
    """Most open connections of one address."""
    total: int = 4096
    """Most open connections; fewer where the limit of open files says so. One that waits for a request makes room for
    a new one."""
    header_seconds: float = 10
    """How long the head of a request may take to arrive."""
    header_bytes: int = 64 << 10
    """Largest request line and headers together."""
    body_seconds: float = 120
    """How long a request body may take to arrive."""
    idle_seconds: float = 20
    """Longest pause in sending a body, or in reading an answer."""
    body_bytes: int = 256 << 20
    """Memory for all request bodies together. Small ones always fit."""


class Connections:
    """All open connections of this process, and the limits that they share."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.total = min(limits.total, max(8, _file_limit() - OTHER_FILES))
        self.body_bytes = 0
        self._open: OrderedDict[GuardedProtocol, None] = OrderedDict()
        """In the order in which they last began to wait for a head: the first one that waits has waited longest."""
        self._by_address: dict[Address, OrderedDict[GuardedProtocol, None]] = {}
        """The same connections by address, in the same order, so that a flood of them is turned away cheaply."""
        self._sweep: asyncio.TimerHandle | None = None
        self._had_many = False
        """Whether bodies had `MANY_BYTES` at the last sweep."""
        self.leaving = False
        """Whether each answer closes its connection, because the process ends."""
        self.is_replaced = False
        """Whether another process takes over, so that idle connections may end as they would anyway."""

    def admit(self, connection: "GuardedProtocol") -> bool:
        """Notes a new connection. Closes another one if there are too many; returns False if none can be closed."""
        beside = self._by_address.get(connection.address, OrderedDict())
        if len(beside) >= self.limits.by_address and not self._make_room(beside):
            return False
        if len(self._open) >= self.total and not self._make_room(self._open):
            return False
        self._open[connection] = None
        self._by_address.setdefault(connection.address, OrderedDict())[connection] = None
        if self._sweep is None:
            self._sweep = connection.loop.call_later(SWEEP_SECONDS, self._close_late, connection.loop)
        return True

    def leave(self, connection: "GuardedProtocol") -> None:
        """Forgets a closed connection."""
        if connection in self._open:
            del self._open[connection]
            del self._by_address[connection.address][connection]
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]

    def waits(self, connection: "GuardedProtocol") -> None:
        """Notes that a connection begins to wait for a head."""
        if connection in self._open:
            self._open.move_to_end(connection)
            self._by_address[connection.address].move_to_end(connection)

    def relieve(self, connection: "GuardedProtocol", now: float) -> None:
        """Refuses a body if all bodies together hold too much memory: the one that stalled longest, else this one."""
        if connection.received <= SMALL_BODY or not self.is_out_of_memory:
            return
        large = [other for other in self._open if other.in_body and other.received > SMALL_BODY]
        slowest = min(large, key=lambda other: other.since, default=connection)
        if now - slowest.since >= STALLED_SECONDS:
            slowest.refuse(RequestTimeout("The body stalled while others waited for its memory."))
        else:
            connection.refuse(Busy("Too many large bodies are being received."))

    @property
    def is_out_of_memory(self) -> bool:
        """Whether all bodies, and what waits behind requests in work, have more bytes than they may."""
        return self.body_bytes > self.limits.body_bytes

    def _make_room(self, among: Iterable["GuardedProtocol"]) -> bool:
        """Closes the first of these connections that waits for a head."""
        oldest = next((connection for connection in among if connection.is_waiting), None)
        if oldest is None:
            return False
        self.leave(oldest)
        oldest.abort()
        return True

    def _close_late(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweep = loop.call_later(SWEEP_SECONDS, self._close_late, loop) if self._open else None
        now = loop.time()
        for connection in [*self._open]:
            connection.close_if_late(now)
        had_many, self._had_many = self._had_many, self.body_bytes > MANY_BYTES
        if had_many and not self._had_many:
            loop.call_later(SWEEP_SECONDS, loop.run_in_executor, None, trim)  # the last bodies are dropped meanwhile


class Answering:
    """The transport as the answer to a request uses it. Where the answer ends the connection, what the client still
    sends is read first: to close with unread bytes would reset the connection, and the client would lose the answer."""

    __slots__ = ("close", "is_closing", "write")

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self.write, self.is_closing, self.close = transport.write, transport.is_closing, close


class GuardedProtocol(HttpToolsProtocol):
    """One connection. `guarded` makes the class that a server uses."""

    guard: ClassVar[Connections]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.address: Address = ""
        self.in_head, self.in_body = False, False
        self.since = self._began = 0.0
        """When the connection began to wait for what it waits for; when it began to receive the body."""
        self.received = 0
        """Bytes of the request's body that are counted in the guard."""
        self._head_bytes = 0
        self._unparsed = bytearray()
        """What was received behind the request in work. Reading pauses while there is some."""
        self._held = 0
        """Bytes of it that are counted in the guard."""
        self._body_left = 0
        """Bytes of the body that are to come, as `Content-Length` declares them."""
        self._lingering = False
        self._ending = False
        """Whether the connection was answered for the last time, and is closed once the body has come."""
        self._writing_paused: float | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether it has no request in work: it waits for a head, or is about to close."""
        request = self._request()
        return self._lingering or self._ending or (self.in_head and (request is None or request.response_complete))

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admits the connection, or refuses it with a 503."""
        super().connection_made(transport)
        self._answering = Answering(transport, self._close_after_body)
        self.address = self.client[0] if self.client else ""
        self._wait_for_head()
        if not self.guard.admit(self):
            self.in_head = False  # nothing of it is read
            self.refuse(Busy("Too many connections are open."))

    def connection_lost(self, exc: Exception | None) -> None:
        """Releases what the connection held."""
        self.guard.leave(self)
        self._release_body()
        self._drop_unparsed()
        if (request := self._request()) is not None:
            request.body = bytearray()  # nobody will read it
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Takes bytes, and parses them as far as the request that they belong to."""
        if self._lingering:
            self._read_later()
            return
        self._unparsed += data
        self._parse()
        if len(self._unparsed) > MOST_UNPARSED:
            self.refuse(BadRequest("Wait for answers before more requests are sent."))
        elif len(self._unparsed) > SMALL_BODY and self.guard.is_out_of_memory:
            self.refuse(Busy("Too much was sent behind requests that are in work."))

    def _parse(self) -> None:
        """Parses what was received until a request is complete. A head may not have more bytes than the limit."""
        pieces = 0
        while self._unparsed and not (self._closing or self._is_in_work):
            if pieces == MOST_PIECES:
                self.loop.call_soon(self._parse_on)
                break
            if not (piece := self._next_piece()):
                break
            pieces += 1
            self._head_bytes += len(piece) if self.in_head else 0
            super().data_received(piece)
            if self.in_head and self._head_bytes > self.guard.limits.header_bytes and not self._closing:
                self.refuse(self._head_too_large())
        self.guard.body_bytes += len(self._unparsed) - self._held
        self._held = len(self._unparsed)
        if self._held and (self._is_in_work or pieces == MOST_PIECES):
            self.flow.pause_reading()

    def _parse_on(self) -> None:
        self._parse()
        request = self._request()
        if not (self._held or self._closing) and (request is None or len(request.body) <= HIGH_WATER_LIMIT):
            self.flow.resume_reading()

    def _next_piece(self) -> bytes:
        """Takes bytes in which one request may end, and none behind it: the parser cannot stop within what it gets."""
        if self._body_left:
            end = self._body_left
        elif (head := _HEAD_END.search(self._unparsed)) is not None:
            end = head.end()
        else:
            last = self._unparsed[-3:]  # the rest of an end may follow: b"\r\n\r", then b"\n"
            end = len(self._unparsed) - len(last) + len(last.rstrip(b"\r\n"))
        piece = bytes(self._unparsed[:end])
        del self._unparsed[:end]
        return piece

    @property
    def _is_in_work(self) -> bool:
        """Whether a request is complete, and its answer is not."""
        request = self._request()
        return request is not None and not (self.in_body or self.in_head or request.response_complete)

    def on_message_begin(self) -> None:
        """Begins to wait for the rest of the head, if the body before it was not read by the application."""
        super().on_message_begin()
        if not self.in_head:
            self._wait_for_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a header. The parser leaves the white space behind a value, which is no part of it."""
        super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        """Begins to wait for the body."""
        length = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        self.in_head = False
        if length > self.guard.limits.header_bytes:
            self.in_body = True  # a body may follow
            self.refuse(self._head_too_large())
            return
        if (error := self._head_fault()) is not None:
            self.in_body = True
            self.refuse(error)
            return
        self.in_body, self.since = True, self.loop.time()
        self._began = self.since
        declared = [value for name, value in self.headers if name == b"content-length"]
        self._body_left = int(declared[0]) if declared else 0
        self._name_target()
        super().on_headers_complete()
        self.cycle.transport = cast(asyncio.Transport, self._answering)
        if self.guard.leaving:
            self.cycle.keep_alive = False

    def _head_fault(self) -> RecalldError | None:
        """Returns what makes a head invalid that the parser takes (RFC 9112, 2.3 and 3.2)."""
        version, hosts = self.parser.get_http_version(), [value for name, value in self.headers if name == b"host"]
        if version not in ("1.0", "1.1"):
            return VersionNotSupported(f"This is HTTP/1.1, not {version}.")
        if len(hosts) > 1 or (not hosts and version == "1.1"):
            return BadRequest(f"A request has one Host header, and this one has {len(hosts)}.")
        if hosts and not _HOST.fullmatch(hosts[0]):
            return BadRequest("The Host header is not a host with or without a port, such as memory.example:8000.")
        return None

    def _name_target(self) -> None:
        """Puts the host of a target in absolute form (`GET http://memory.example/v1/memories`) before the header `Host`
        where the two differ: it is the one that counts (RFC 9112, 3.2.2). Only proxies are asked so."""
        target = _ABSOLUTE.match(self.url)
        if target is not None and (b"host", target[1]) not in self.headers:
            self.headers.insert(0, (b"host", target[1]))

    def on_body(self, body: bytes) -> None:
        """Counts the memory of the body. What comes after the answer is dropped and holds none."""
        self._body_left = max(0, self._body_left - len(body))
        request = self._request()
        if request is None or self._closing:
            return
        self.since = self.loop.time()
        if request.response_complete:
            self._read_later()
            return
        self.received += len(body)
        self.guard.body_bytes += len(body)
        super().on_body(body)
        self.guard.relieve(self, self.since)

    def on_message_complete(self) -> None:
        """The request was received."""
        self.in_body = False
        if self._ending:
            self.transport.close()
        elif self._request() is not None and not self._closing:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Waits for the next request. An unread rest of a body counts as one that is still under way."""
        self._release_body()
        if not (self.in_body or self.in_head):
            self._wait_for_head()
        super().on_response_complete()
        self._parse()

    def pause_writing(self) -> None:
        """Notes since when the client does not read its answer."""
        self._writing_paused = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._writing_paused = None
        super().resume_writing()

    def shutdown(self) -> None:
        """Ends the connection: with the answer to the request in work, at once if there is none. Where another process
        takes over, an idle connection answers once more, or ends after its pause as it would anyway."""
        request = self._request()
        if not self.guard.is_replaced or (request is not None and not request.response_started):
            super().shutdown()

    def close_if_late(self, now: float) -> None:
        """Closes the connection if it has passed the deadline of what it waits for."""
        limits = self.guard.limits
        if self._writing_paused is not None and now - self._writing_paused > limits.idle_seconds:
            self.abort()
        elif self.in_head and now - self.since > limits.header_seconds:
            if self._head_bytes:
                self.refuse(RequestTimeout(f"The head of a request must arrive within {limits.header_seconds:g} s."))
            else:
                self.transport.close()
        elif self._ending and (now - self.since > limits.idle_seconds or now - self._began > limits.body_seconds):
            self.transport.close()
        elif self.in_body and now - self.since > limits.idle_seconds:
            self.refuse(RequestTimeout(f"A body must not pause for more than {limits.idle_seconds:g} s."))
        elif self.in_body and now - self._began > limits.body_seconds:
            self.refuse(RequestTimeout(f"A body must arrive within {limits.body_seconds:g} s."))

    def refuse(self, error: RecalldError) -> None:
        """Answers with problem+json, if no answer has begun, and closes the connection.

        What the client still sends is read and dropped for a moment. Otherwise the system would reset the connection,
        and the client would lose the answer.
        """
        request, expects_more = self._request(), self.in_head or self.in_body or bool(self._unparsed)
        self.in_head = self.in_body = False
        self._drop_unparsed()
        if request is None or request.response_complete or not request.response_started:
            self.transport.write(_raw(error, self.server_state.default_headers))
        if request is not None and not request.response_complete:
            request.disconnected, request.body = True, bytearray()
            request.message_event.set()
        self._release_body()
        if not expects_more:
            self.transport.close()
            return
        self._lingering = True
        self.flow.resume_reading()
        self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _close_after_body(self) -> None:
        """Closes the connection after an answer, at once or when the rest of the body has come and was dropped. That is
        read slowly and has the deadlines of any body, and the connection makes room for others meanwhile."""
        request = self._request()
        if not self.in_body or self.transport.is_closing() or request is None or not request.response_complete:
            self.transport.close()
            return
        self._ending = True
        self.transport.write_eof()

    def abort(self) -> None:
        """Closes the connection without an answer."""
        self.in_head = self.in_body = False
        if (request := self._request()) is not None:
            request.disconnected = True  # before the loop says so: an answer that is just ready goes nowhere
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Replaces the server's plain-text answer. The request could not be parsed, and the connection closes."""
        if not self._closing:
            self.refuse(BadRequest(msg))

    @property
    def _closing(self) -> bool:
        return self._lingering or self.transport.is_closing()

    def _request(self) -> RequestResponseCycle | None:
        """Returns the request that came last; None before the first, which the base class does not declare."""
        return self.cycle

    def _wait_for_head(self) -> None:
        self.in_head, self._head_bytes, self.since = True, 0, self.loop.time()
        self.guard.waits(self)

    def _read_later(self) -> None:
        self.flow.pause_reading()
        self.loop.call_later(DRAIN_SECONDS, self.flow.resume_reading)

    def _release_body(self) -> None:
        self.guard.body_bytes -= self.received
        self.received = 0

    def _drop_unparsed(self) -> None:
        self.guard.body_bytes -= self._held
        self._held = 0
        self._unparsed.clear()

    def _head_too_large(self) -> HeadTooLarge:
        return HeadTooLarge(f"The request's line and headers have more than {self.guard.limits.header_bytes} bytes.")


def guarded(limits: ConnectionLimits) -> type[GuardedProtocol]:
    """Returns the protocol class of a server with these limits. Its connections share one guard."""
    return cast(type[GuardedProtocol], type("Protocol", (GuardedProtocol,), {"guard": Connections(limits)}))


def _file_limit() -> int:
    """Raises the process's limit of open files as far as it may go, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1 << 20


def _raw(error: RecalldError, usual: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Returns an answer as it is sent. `usual`: the headers of all answers, such as `Date`."""
    request_id = new_id("req")
    response = problem_response(error, request_id)
    headers = [*usual, *response.raw_headers, (b"x-request-id", request_id.encode()), (b"connection", b"close")]
    lines = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}".encode(), *(b": ".join(x) for x in headers)]
    return b"\r\n".join([*lines, b"", bytes(response.body)])
