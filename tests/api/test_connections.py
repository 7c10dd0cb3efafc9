"""No client can keep others out by holding connections, heads or bodies. Tested over real sockets."""

import asyncio
import gc
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from app.api.connections import DRAIN_SECONDS, SMALL_BODY, ConnectionLimits, guarded
from app.api.middleware import ProblemLayer, RequestLayer

pytestmark = pytest.mark.anyio

PATIENCE_SECONDS = 60
HALF_A_HEAD = b"GET / HTTP/1.1\r\nhost: here\r\n"
REST_OF_HEAD = b"\r\n"
MIB = 1 << 20


class Echo:
    """Answers with the number of bytes in the body. A request to `/wait` waits for `go_on`, one to `/early` is answered
    before its body is read, one to `/unread` waits without having read it."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.waiting = self.unread = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if scope["path"] == "/early":
            await JSONResponse({"bytes": 0})(scope, receive, send)
            return
        if scope["path"] == "/unread":
            self.unread += 1
            await self.go_on.wait()
        size = sum([len(piece) async for piece in request.stream()])
        if scope["path"] == "/wait":
            self.waiting += 1
            await self.go_on.wait()
        await JSONResponse({"bytes": size})(scope, receive, send)


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self) -> tuple[int, dict[str, object]]:
        """Status and body of the next answer."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
            return int(head.split()[1]), json.loads(await self._reader.readexactly(length))

    async def closed(self) -> bytes:
        """What comes until the server closes the connection."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            try:
                return await self._reader.read()
            except ConnectionResetError:
                return b""

    def leave(self) -> None:
        self._writer.transport.abort()


class Running:
    def __init__(self, app: Echo, port: int) -> None:
        self.app, self._port = app, port
        self.clients: list[Client] = []

    async def connect(self, data: bytes = b"") -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self._port))
        self.clients.append(client)
        if data:
            await client.send(data)
        return client


Serve = Callable[..., AbstractAsyncContextManager[Running]]


@asynccontextmanager
async def serve(**limits: Any) -> AsyncIterator[Running]:
    app = Echo()
    config = uvicorn.Config(
        RequestLayer(ProblemLayer(app, max_body=8 * MIB, files={}, blame=lambda error, read: None)),
        port=0,
        http=guarded(ConnectionLimits(**{"by_address": 512, **limits})),
        lifespan="off",
        log_config=None,
        access_log=False,
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    running = Running(app, server.servers[0].sockets[0].getsockname()[1])
    looking = asyncio.create_task(server.main_loop())
    try:
        yield running
    finally:
        app.go_on.set()
        for client in running.clients:
            client.leave()
        server.should_exit = True
        await looking
        await server.shutdown()


def post(path: str, length: int, body: bytes = b"") -> bytes:
    return f"POST {path} HTTP/1.1\r\nhost: here\r\ncontent-length: {length}\r\n\r\n".encode() + body


def problem(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["code"]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 (the server is observed from outside)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("limits", [{"total": 8}, {"by_address": 8}])
async def test_half_open_connections_make_room_for_a_request(limits: dict[str, float]) -> None:
    async with serve(**limits) as running:
        half_open = [await running.connect(HALF_A_HEAD) for _ in range(30)]
        client = await running.connect(HALF_A_HEAD + REST_OF_HEAD)
        assert await client.answer() == (200, {"bytes": 0})
        assert await half_open[0].closed() == b""


async def test_connections_with_a_request_in_work_are_never_closed_for_others() -> None:
    async with serve(total=8) as running:
        busy = [await running.connect(post("/wait", 2, b"{}")) for _ in range(8)]
        await until(lambda: running.app.waiting == 8)
        assert problem(await (await running.connect()).closed()) == (503, "busy")
        running.app.go_on.set()
        assert [await client.answer() for client in busy] == [(200, {"bytes": 2})] * 8


async def test_a_head_must_arrive_in_time() -> None:
    async with serve(header_seconds=0.3) as running:
        half, silent = await running.connect(HALF_A_HEAD), await running.connect()
        assert problem(await half.closed()) == (408, "request_timeout")
        assert await silent.closed() == b""


@pytest.mark.parametrize("piece", [4096, 2 * MIB])
async def test_a_head_has_a_largest_size(piece: int) -> None:
    async with serve() as running:
        client = await running.connect(HALF_A_HEAD + b"x-long: ")
        sending = asyncio.create_task(_send_all(client, b"x" * 2 * MIB + b"\r\n\r\n", piece))
        answer = await client.closed()
        await sending
        assert problem(answer) == (431, "head_too_large")
        assert await (await running.connect(HALF_A_HEAD + REST_OF_HEAD)).answer() == (200, {"bytes": 0})


async def _send_all(client: Client, data: bytes, piece: int) -> None:
    try:
        for start in range(0, len(data), piece):
            await client.send(data[start : start + piece])
    except ConnectionError:
        return


async def test_the_answer_to_a_large_head_names_the_rule() -> None:
    async with serve(header_bytes=4096) as running:
        client = await running.connect(HALF_A_HEAD + b"x-long: " + b"x" * 5000 + b"\r\n\r\n")
        assert problem(await client.closed()) == (431, "head_too_large")


async def test_a_body_must_not_stall_nor_drip_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "recalld.request"):
        async with serve(idle_seconds=0.3) as running:
            client = await running.connect(post("/", 1000, b"x" * 970))
            assert problem(await client.closed()) == (408, "request_timeout")
        async with serve(body_seconds=0.5) as running:
            client = await running.connect(post("/", 1_000_000))
            dripping = asyncio.create_task(_drip(client))
            assert problem(await client.closed()) == (408, "request_timeout")
            dripping.cancel()
    assert not [record for record in caplog.records if record.exc_info]


async def _drip(client: Client) -> None:
    try:
        while True:
            await client.send(b"x")
            await asyncio.sleep(0.02)
    except ConnectionError:
        return


async def test_stalled_bodies_make_room_in_memory_and_small_ones_always_fit() -> None:
    async with serve(body_bytes=2 * MIB) as running:
        stalled = [await running.connect(post("/", 2 * MIB, b"x" * MIB)) for _ in range(2)]
        await asyncio.sleep(1.5)  # longer than STALLED_SECONDS: the test needs the pause itself
        small = await running.connect(post("/", SMALL_BODY, b"x" * SMALL_BODY))
        assert await small.answer() == (200, {"bytes": SMALL_BODY})
        large = await running.connect(post("/", MIB, b"x" * MIB))
        assert await large.answer() == (200, {"bytes": MIB})
        assert problem(await stalled[0].closed()) == (408, "request_timeout")


async def test_bodies_in_motion_beyond_the_memory_are_refused() -> None:
    async with serve(body_bytes=MIB) as running:
        first = await running.connect(post("/wait", MIB, b"x" * MIB))
        await until(lambda: running.app.waiting == 1)
        second = await running.connect(post("/", MIB, b"x" * MIB))
        assert problem(await second.closed()) == (503, "busy")
        running.app.go_on.set()
        assert await first.answer() == (200, {"bytes": MIB})
        third = await running.connect(post("/", MIB, b"x" * MIB))
        assert await third.answer() == (200, {"bytes": MIB})


async def test_a_client_that_leaves_in_mid_body_is_a_499_without_a_stack(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "recalld.request"):
        async with serve() as running:
            client = await running.connect(post("/", 1000, b"x" * 500))
            await asyncio.sleep(0.05)
            client.leave()
            await until(lambda: "recalld.request" in [record.name for record in caplog.records])
    ours = [record for record in caplog.records if record.name == "recalld.request"]
    assert [getattr(record, "status", None) for record in ours] == [499]
    assert not [record for record in ours if record.exc_info]


async def test_requests_sent_at_once_are_answered_in_turn() -> None:
    async with serve() as running:
        client = await running.connect(post("/", 3, b"abc") + post("/", 4, b"abcd") + post("/", 5, b"ab"))
        assert await client.answer() == (200, {"bytes": 3})
        assert await client.answer() == (200, {"bytes": 4})
        await client.send(b"cde")
        assert await client.answer() == (200, {"bytes": 5})


async def test_what_comes_after_the_answer_is_dropped_slowly_and_holds_no_memory() -> None:
    async with serve(body_bytes=MIB) as server:
        greedy = await server.connect(post("/early", 6 * MIB, b"x" * SMALL_BODY))
        assert await greedy.answer() == (200, {"bytes": 0})
        started = time.monotonic()
        await greedy.send(b"x" * (4 * MIB - SMALL_BODY))
        modest = await server.connect(post("/", MIB // 2, b"x" * (MIB // 2)))
        assert await modest.answer() == (200, {"bytes": MIB // 2})
        await greedy.send(b"x" * (2 * MIB) + post("/", 3, b"abc"))
        assert await greedy.answer() == (200, {"bytes": 3})
        assert time.monotonic() - started > 5 * DRAIN_SECONDS


@pytest.mark.parametrize(
    ("head", "refused"),
    [
        (b"GET / HTTP/1.1\r\n", (400, "malformed_request")),
        (b"GET / HTTP/1.1\r\nhost: here\r\nHost: there\r\n", (400, "malformed_request")),
        (b"GET / HTTP/1.0\r\nhost: here\r\nHost: here\r\n", (400, "malformed_request")),
        (b"GET / HTTP/1.1\r\nhost: a b\r\n", (400, "malformed_request")),
        (b"GET / HTTP/1.1\r\nhost: user@here\r\n", (400, "malformed_request")),
        (b"GET / HTTP/1.1\r\nhost: here:80a\r\n", (400, "malformed_request")),
        (b"GET / HTTP/2.0\r\nhost: here\r\n", (505, "version_not_supported")),
        (b"GET / HTTP/1.1\r\nhost: my_service.example:8000 \t\r\n", None),
        (b"GET / HTTP/1.1\r\nhost: [::1]:8000\r\n", None),
        (b"GET / HTTP/1.1\r\nhost:\r\n", None),
        (b"GET http://there/ HTTP/1.1\r\nhost: here\r\n", None),
        (b"GET / HTTP/1.0\r\n", None),
    ],
)
async def test_a_request_names_one_host_and_a_version_that_is_served(head: bytes, refused: Any) -> None:
    async with serve() as running:
        client = await running.connect(head + b"\r\n")
        if refused is None:
            assert await client.answer() == (200, {"bytes": 0})
            return
        answer = await client.closed()
        assert problem(answer) == refused
        assert b"\r\ndate: " in answer.partition(b"\r\n\r\n")[0]


async def test_white_space_around_a_value_is_no_part_of_it() -> None:
    async with serve() as running:
        client = await running.connect(b"GET / HTTP/1.0\r\nx-request-id: \t one \t \r\n\r\n")
        assert b"\r\nx-request-id: one\r\n" in await client.closed()


async def test_a_body_that_nobody_will_read_is_not_kept() -> None:
    """Counts the bytes of bodies, where no search for garbage helps: a connection and its request refer to each
    other."""
    gc.collect()
    gc.disable()
    try:
        async with serve() as running:
            clients = [await running.connect(post("/unread", MIB, b"x" * SMALL_BODY)) for _ in range(5)]
            await until(lambda: running.app.unread == 5)
            assert sum(len(cycle.body) for cycle in _cycles()) > 0
            for client in clients:
                client.leave()
            await until(lambda: sum(len(cycle.body) for cycle in _cycles()) == 0)
            assert len(_cycles()) >= 5, "they are still there, without their bodies"
    finally:
        gc.enable()


def _cycles() -> list[RequestResponseCycle]:
    return [made for made in gc.get_objects() if isinstance(made, RequestResponseCycle)]
