"""A load generator that costs little itself: HTTP/1.1 over kept-alive sockets by hand, in a process of its own."""

import asyncio
import json
import re
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import count
from multiprocessing import get_context
from typing import Any, cast

import uvloop

from benchmarks.harness import percentile

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
_EMBED = re.compile(rb'"took_ms":\{"embed":([0-9.e-]+)')


@dataclass(frozen=True, slots=True)
class Load:
    """`bodies` are posted in turn over `connections`, `requests` of them in all.

    `paths`: of each body, if they differ."""

    port: int
    path: str
    bodies: Sequence[bytes]
    connections: int
    requests: int
    paths: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. `embed`: what the service says that it waited for the query's vector. `driver_seconds`: CPU of this
    generator."""

    latencies: list[float]
    embed: list[float]
    elapsed: float
    driver_seconds: float
    size: int
    answers: list[bytes]

    def percentile(self, share: int) -> float:
        return percentile(self.latencies, share)

    @property
    def p50(self) -> float:
        return self.percentile(50)

    @property
    def p95(self) -> float:
        return self.percentile(95)

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.elapsed

    @property
    def beyond_embedding(self) -> float:
        over = [whole - part for whole, part in zip(self.latencies, self.embed, strict=True)]
        return percentile(over, 50)


class Client:
    """Use as a context: the process lives as long."""

    def __enter__(self) -> "Client":
        self._pool = ProcessPoolExecutor(1, get_context("spawn"))
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def run(self, load: Load, *, keep: bool = False) -> Timing:
        """`keep`: the answers' bodies too."""
        return self._pool.submit(_run, load, keep).result()

    def post(self, port: int, path: str, body: Any) -> Any:
        return json.loads(self.run(Load(port, path, [encoded(body)], 1, 1), keep=True).answers[0])


def encoded(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


def _run(load: Load, keep: bool) -> Timing:
    return uvloop.run(_drive(load, keep))


async def _drive(load: Load, keep: bool) -> Timing:
    loop = asyncio.get_running_loop()
    head = "HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: "
    paths = load.paths or [load.path] * len(load.bodies)
    requests = [
        f"POST {path} {head}{len(body)}\r\n\r\n".encode() + body for path, body in zip(paths, load.bodies, strict=True)
    ]
    job = _Job(requests, load.requests, keep)
    opened = [
        await loop.create_connection(lambda: _Connection(job), "127.0.0.1", load.port) for _ in range(load.connections)
    ]
    start, worked = time.perf_counter(), time.process_time()
    for _, connection in opened:
        connection.send()
    await job.done
    elapsed, worked = time.perf_counter() - start, time.process_time() - worked
    for transport, _ in opened:
        transport.close()
    return Timing(job.latencies, job.embed, elapsed, worked, job.size, job.answers)


class _Job:
    def __init__(self, requests: Sequence[bytes], wanted: int, keep: bool) -> None:
        self.requests, self.wanted, self.keep = requests, wanted, keep
        self.turn = count()
        self.latencies: list[float] = []
        self.embed: list[float] = []
        self.answers: list[bytes] = []
        self.size = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(self, seconds: float, answer: bytes) -> None:
        self.latencies.append(seconds)
        self.size = len(answer)
        if found := _EMBED.search(answer, max(0, len(answer) - 200)):
            self.embed.append(float(found[1]) / 1000)
        if self.keep:
            self.answers.append(answer)
        if len(self.latencies) == self.wanted:
            self.done.set_result(None)


class _Connection(asyncio.Protocol):
    def __init__(self, job: _Job) -> None:
        self._job = job
        self._held = b""
        self._end = 0
        self._begin = 0
        self._sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"connection lost: {exc}")

    def send(self) -> None:
        number = next(self._job.turn)
        if number < self._job.wanted:
            self._sent = time.perf_counter()
            self._transport.write(self._job.requests[number % len(self._job.requests)])

    def data_received(self, data: bytes) -> None:
        self._held = self._held + data if self._held else data
        if not self._end and (headers := self._held.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._held, 0, headers + 2)
            if length is None or not self._held.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")):
                self._fail(self._held[:500].decode(errors="replace"))
                return
            self._begin = headers + 4
            self._end = self._begin + int(length[1])
        if self._end and len(self._held) >= self._end:
            took = time.perf_counter() - self._sent
            answer, self._held, self._end = self._held[self._begin : self._end], b"", 0
            self._job.take(took, answer)
            self.send()

    def _fail(self, reason: str) -> None:
        if not self._job.done.done():
            self._job.done.set_exception(RuntimeError(reason))
