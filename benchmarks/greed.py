"""How a neighbour's requests fare while one caller asks for as much as it can: connections, bodies, JSON, long texts.

Each attack runs in a process of its own. Meanwhile the neighbour, another tenant, searches (each time with a new text),
asks `/livez` and stores a memory, at a fixed rate and each on a new connection. Ratios hold between machines.

The attacker and the neighbour have a key each, so that limits of a key and turns between tenants can act. The attacks
on connections and heads need none. An attacker is elsewhere, so that its own work costs the service nothing. Here it
shares the cores, and therefore runs at the lowest priority: it takes what service and neighbour leave over. What
the system does for its connections still counts as the service's. `answers` says how the attacker was answered, so that
a row in which it was hardly heard cannot pass for a good one.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import resource
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from typing import Any
from urllib.parse import urlsplit

import httpx

from benchmarks.data import Texts
from benchmarks.harness import ROOT, Connection, Row, Section, Times, environment, folder, percentile, recalld

TARGET_SEARCH, TARGET_LIVEZ_MS = 2.0, 100.0
MIB = 1 << 20
HALF_OPEN, HELD_BODIES = 1_100, 150
HAN = range(0x4E00, 0x9FFF)
LOWEST_PRIORITY = 19


@dataclass(frozen=True, slots=True)
class Target:
    """What an attacker has: the service's address, its own key, when to stop, and where its answers are counted."""

    url: str
    key: str
    stop: Event
    answers: "SimpleQueue[Counter[str]]"


# --- Attacks: each runs until it is told to stop ----------------------------------------------------------------------


def half_open(target: Target) -> None:
    """Opens connections that send half a head."""
    _hold(target, HALF_OPEN, b"GET /livez HTTP/1.1\r\nhost: here\r\n", 0)


def held_bodies(target: Target) -> None:
    """Sends 97 % of many large bodies."""
    length = 4 * MIB
    head = (
        "POST /v1/memories/search HTTP/1.1\r\nhost: here\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {target.key}\r\ncontent-length: {length}\r\n\r\n"
    )
    _hold(target, HELD_BODIES, head.encode() + b" " * (length * 97 // 100), 5)


def large_heads(target: Target) -> None:
    """Sends heads of 20 MB."""
    while not target.stop.is_set():
        with suppress(OSError), _connect(target.url) as connection:
            connection.sendall(b"GET /livez HTTP/1.1\r\nhost: here\r\n")
            for number in range(200):
                connection.sendall(f"x-{number}: ".encode() + b"x" * 100_000 + b"\r\n")


def nested(target: Target) -> None:
    """Searches with bodies of millions of brackets, open ones and closed ones."""
    deep = b'{"a":' + b"[" * (4 * MIB - 10)
    wide = b'{"a":[' + b",".join([b"[" * 25 + b"]" * 25] * (4 * MIB // 51 - 1)) + b"]}"
    _post_all(target, "/v1/memories/search", [deep, wide] * 5)


def han_queries(target: Target) -> None:
    """Searches for 32,000 Han characters, ten at a time."""
    chosen = random.Random(3)
    texts = ["".join(chr(chosen.choice(HAN)) for _ in range(32_000)) for _ in range(10)]
    bodies = [json.dumps({"agent_id": "a", "user_id": "greedy", "query": text}).encode() for text in texts]
    _post_all(target, "/v1/memories/search", bodies)


def long_messages(target: Target) -> None:
    """Appends messages of a megabyte, two at a time."""
    words = Texts(5)
    message = {"role": "user", "content": (words.sentence(40) + " ") * 300}
    message["content"] = message["content"][:32_000]
    body = json.dumps({"agent_id": "a", "user_id": "greedy", "messages": [message] * 32}).encode()
    _post_all(target, "/v1/sessions/greedy/messages", [body] * 2)


ATTACKS: Mapping[str, Callable[[Target], None]] = {
    attack.__name__: attack for attack in (half_open, held_bodies, large_heads, nested, han_queries, long_messages)
}


def _connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((str(parts.hostname), int(parts.port or 80)), timeout=10)


def _hold(target: Target, number: int, data: bytes, pause: float) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held: list[socket.socket] = []
    while not target.stop.is_set():
        for _ in range(number):
            if target.stop.is_set():
                return
            with suppress(OSError):
                connection = _connect(target.url)
                held.append(connection)
                connection.sendall(data)
        target.stop.wait(max(pause, 1))
        for connection in held:
            connection.close()
        held.clear()


def _post_all(target: Target, path: str, bodies: list[bytes]) -> None:
    headers = {"content-type": "application/json", "authorization": f"Bearer {target.key}"}
    answers = Counter[str]()

    async def one(client: httpx.AsyncClient, body: bytes) -> None:
        try:
            answer = await client.post(path, content=body, headers=headers)
            answers[str(answer.status_code)] += 1
        except httpx.HTTPError:
            answers["cut off"] += 1

    async def all_of_them() -> None:
        async with httpx.AsyncClient(base_url=target.url, timeout=300) as client:
            while not target.stop.is_set():
                await asyncio.gather(*(one(client, body) for body in bodies))

    asyncio.run(all_of_them())
    target.answers.put(answers)


def attack(name: str, target: Target) -> None:
    """Runs an attack in this process, which gives way to all others."""
    os.nice(LOWEST_PRIORITY)
    ATTACKS[name](target)


# --- The neighbour ----------------------------------------------------------------------------------------------------


class Neighbour:
    def __init__(self, url: str, key: str) -> None:
        self._headers = {"authorization": f"Bearer {key}"}
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
        Connection(self._url, self._headers).ask(method, path, body)
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
        with folder() as path:
            keys = {tenant: _key(path, tenant) for tenant in ("neighbour", "greedy")}
            with recalld(path) as server:
                neighbour = Neighbour(server.url, keys["neighbour"])
                neighbour.fill(300)
                neighbour.live(2, options.pause)
                target = Target(server.url, keys["greedy"], context.Event(), context.SimpleQueue())
                attacker = context.Process(target=attack, args=(name, target)) if name != "none" else None
                if attacker:
                    attacker.start()
                    time.sleep(1)
                taken = neighbour.live(options.seconds, options.pause)
                target.stop.set()
                if attacker:
                    attacker.join(30)
                    attacker.kill()
        rows.append(_row(name, taken, target, rows))
    slowest = max(row["search p95 / none"] for row in rows[1:])
    met = slowest <= TARGET_SEARCH and max(row["livez most ms"] for row in rows[1:]) <= TARGET_LIVEZ_MS
    yield Section(f"target: search p95 ≤ {TARGET_SEARCH:g} × none, livez ≤ {TARGET_LIVEZ_MS:g} ms", rows, met)


def _key(data: str, tenant: str) -> str:
    """Makes a key in a data directory."""
    command = [sys.executable, "-m", "app.cli", "keys", "create", "--tenant", tenant, "--name", "benchmark", "--json"]
    settings = {**os.environ, "PYTHONPATH": str(ROOT), **environment(data, jobs=False)}
    made = subprocess.run(command, cwd=ROOT, env=settings, check=True, capture_output=True)
    return str(json.loads(made.stdout)["key"])


def _row(name: str, taken: Times, target: Target, before: list[Row]) -> Row:
    search = percentile(taken["search"], 95)
    answers = Counter[str]() if target.answers.empty() else target.answers.get()
    return {
        "attack": name,
        "searches": len(taken["search"]),
        "search p50 ms": round(percentile(taken["search"], 50), 1),
        "search p95 ms": round(search, 1),
        "search p95 / none": round(search / (before[0]["search p95 ms"] if before else search), 2),
        "livez p95 ms": round(percentile(taken["livez"], 95), 1),
        "livez most ms": round(max(taken["livez"]), 1),
        "write p95 ms": round(percentile(taken["write"], 95), 1),
        "answers": ", ".join(f"{times} × {status}" for status, times in sorted(answers.items())),
    }
