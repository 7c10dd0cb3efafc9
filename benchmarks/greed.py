"""How a neighbour's requests fare while one caller asks for as much as it can: connections, bodies, JSON, long texts.

Each attack runs in a process of its own. Meanwhile the neighbour, another user, searches (each time with a new text),
asks `/livez` and stores a memory, at a fixed rate and each on a new connection. Ratios hold between machines.
"""

import argparse
import asyncio
import json
import multiprocessing
import random
import resource
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from multiprocessing.synchronize import Event
from typing import Any
from urllib.parse import urlsplit

import httpx

from benchmarks.data import Texts
from benchmarks.harness import Connection, Row, Section, Times, folder, percentile, recalld

TARGET_SEARCH, TARGET_LIVEZ_MS = 2.0, 100.0
MIB = 1 << 20
HALF_OPEN, HELD_BODIES = 1_100, 150
HAN = range(0x4E00, 0x9FFF)


# --- Attacks: each runs until it is told to stop ----------------------------------------------------------------------


def half_open(url: str, stop: Event) -> None:
    """Opens connections that send half a head."""
    _hold(url, stop, HALF_OPEN, b"GET /livez HTTP/1.1\r\nhost: here\r\n", 0)


def held_bodies(url: str, stop: Event) -> None:
    """Sends 97 % of many large bodies."""
    length = 4 * MIB
    head = f"POST /v1/memories/search HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    _hold(url, stop, HELD_BODIES, head.encode() + b" " * (length * 97 // 100), 5)


def large_heads(url: str, stop: Event) -> None:
    """Sends heads of 20 MB."""
    while not stop.is_set():
        with suppress(OSError), _connect(url) as connection:
            connection.sendall(b"GET /livez HTTP/1.1\r\nhost: here\r\n")
            for number in range(200):
                connection.sendall(f"x-{number}: ".encode() + b"x" * 100_000 + b"\r\n")


def nested(url: str, stop: Event) -> None:
    """Searches with bodies of millions of brackets, open ones and closed ones."""
    deep = b'{"a":' + b"[" * (4 * MIB - 10)
    wide = b'{"a":[' + b",".join([b"[" * 25 + b"]" * 25] * (4 * MIB // 51 - 1)) + b"]}"
    _post_all(url, stop, "/v1/memories/search", [deep, wide] * 5)


def han_queries(url: str, stop: Event) -> None:
    """Searches for 32,000 Han characters, ten at a time."""
    chosen = random.Random(3)
    texts = ["".join(chr(chosen.choice(HAN)) for _ in range(32_000)) for _ in range(10)]
    bodies = [json.dumps({"agent_id": "a", "user_id": "greedy", "query": text}).encode() for text in texts]
    _post_all(url, stop, "/v1/memories/search", bodies)


def long_messages(url: str, stop: Event) -> None:
    """Appends messages of a megabyte, two at a time."""
    words = Texts(5)
    message = {"role": "user", "content": (words.sentence(40) + " ") * 300}
    message["content"] = message["content"][:32_000]
    body = json.dumps({"agent_id": "a", "user_id": "greedy", "messages": [message] * 32}).encode()
    _post_all(url, stop, "/v1/sessions/greedy/messages", [body] * 2)


ATTACKS: Mapping[str, Callable[[str, Event], None]] = {
    attack.__name__: attack for attack in (half_open, held_bodies, large_heads, nested, han_queries, long_messages)
}


def _connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((str(parts.hostname), int(parts.port or 80)), timeout=10)


def _hold(url: str, stop: Event, number: int, data: bytes, pause: float) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held: list[socket.socket] = []
    while not stop.is_set():
        for _ in range(number):
            if stop.is_set():
                return
            with suppress(OSError):
                connection = _connect(url)
                held.append(connection)
                connection.sendall(data)
        stop.wait(max(pause, 1))
        for connection in held:
            connection.close()
        held.clear()


def _post_all(url: str, stop: Event, path: str, bodies: list[bytes]) -> None:
    async def one(client: httpx.AsyncClient, body: bytes) -> None:
        with suppress(httpx.HTTPError):
            await client.post(path, content=body, headers={"content-type": "application/json"})

    async def all_of_them() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=300) as client:
            while not stop.is_set():
                await asyncio.gather(*(one(client, body) for body in bodies))

    asyncio.run(all_of_them())


# --- The neighbour ----------------------------------------------------------------------------------------------------


class Neighbour:
    def __init__(self, url: str) -> None:
        self._url, self._texts, self._random = url, Texts(7), random.Random(7)

    def fill(self, number: int) -> None:
        self._ask("POST", "/v1/memories/batch", {"items": [self._memory() for _ in range(number)]})

    def live(self, seconds: float, pause: float) -> Times:
        """Milliseconds of its requests, made in turn for so many seconds."""
        taken: Times = {"search": [], "livez": [], "write": []}
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            search = {"agent_id": "a", "user_id": "ada", "query": self._text(), "record_access": False}
            taken["search"].append(self._ask("POST", "/v1/memories/search", search))
            taken["livez"].append(self._ask("GET", "/livez"))
            taken["write"].append(self._ask("POST", "/v1/memories", self._memory()))
            time.sleep(pause)
        return taken

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> float:
        started = time.perf_counter()
        Connection(self._url).ask(method, path, body)
        return (time.perf_counter() - started) * 1000

    def _memory(self) -> dict[str, Any]:
        return {"agent_id": "a", "user_id": "ada", "content": self._text()}

    def _text(self) -> str:
        return f"{self._texts.sentence(8)} {self._random.random()}"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=15, help="of each attack")
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between two requests of the neighbour")
    parser.add_argument("--attacks", nargs="*", default=list(ATTACKS), choices=list(ATTACKS))


def run(options: argparse.Namespace) -> Iterator[Section]:
    context = multiprocessing.get_context("spawn")
    rows: list[Row] = []
    for name in ["none", *options.attacks]:
        with folder() as path, recalld(path) as server:
            neighbour = Neighbour(server.url)
            neighbour.fill(300)
            neighbour.live(2, options.pause)
            stop = context.Event()
            attacker = context.Process(target=ATTACKS[name], args=(server.url, stop)) if name != "none" else None
            if attacker:
                attacker.start()
                time.sleep(1)
            taken = neighbour.live(options.seconds, options.pause)
            stop.set()
            if attacker:
                attacker.join(30)
                attacker.kill()
        rows.append(_row(name, taken, rows))
    slowest = max(row["search p95 / none"] for row in rows[1:])
    met = slowest <= TARGET_SEARCH and max(row["livez most ms"] for row in rows[1:]) <= TARGET_LIVEZ_MS
    yield Section(f"target: search p95 ≤ {TARGET_SEARCH:g} × none, livez ≤ {TARGET_LIVEZ_MS:g} ms", rows, met)


def _row(name: str, taken: Times, before: list[Row]) -> Row:
    search = percentile(taken["search"], 95)
    return {
        "attack": name,
        "searches": len(taken["search"]),
        "search p50 ms": round(percentile(taken["search"], 50), 1),
        "search p95 ms": round(search, 1),
        "search p95 / none": round(search / (before[0]["search p95 ms"] if before else search), 2),
        "livez p95 ms": round(percentile(taken["livez"], 95), 1),
        "livez most ms": round(max(taken["livez"]), 1),
        "write p95 ms": round(percentile(taken["write"], 95), 1),
    }
