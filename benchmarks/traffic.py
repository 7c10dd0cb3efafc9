"""What MongoDB is asked for one search, one create and one context: commands, in their order, and their bytes.

    scripts/benchmark traffic                                    # the double of Atlas in front of SecantusDB
    scripts/benchmark traffic --uri 'mongodb+srv://…' --commands # a deployment with search; each command by name

A command is a round trip. Each request is sent `--rounds` times and the median is shown: the first ones find nothing in
the caches of the process. What a request leaves for after its answer (a note that a memory was used) is counted apart.
It uses a database of its own, which it drops.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import bson
import httpx
from pydantic import SecretStr
from pymongo import MongoClient, monitoring

from app.core.tuning import Tuning
from app.lifespan import RealParts
from app.main import create_app
from app.settings import MongodbSettings, Settings
from benchmarks.harness import Row, Section

OWNER = {"agent_id": "bench", "user_id": "u"}
BATCH = 100
WAIT_SECONDS = 600
SETTLED_SECONDS = 5
"""An index follows writes by about a second."""


@dataclass
class Request:
    """Commands of one request. `answered`: what comes now comes after the answer."""

    names: list[str] = field(default_factory=list)
    sent: int = 0
    received: int = 0
    answered: bool = False
    after: int = 0


_REQUEST: ContextVar[Request | None] = ContextVar("request", default=None)


class Listener(monitoring.CommandListener):
    """Counts for the request in whose context a command is sent. The store's tasks inherit the context."""

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        request = _REQUEST.get()
        if request is None:
            return
        if request.answered:
            request.after += 1
            return
        target = event.command.get(event.command_name)
        detail = target if isinstance(target, str) else ""
        request.names.append(f"{event.command_name} {detail}".strip())
        request.sent += len(bson.encode(event.command))

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        request = _REQUEST.get()
        if request is not None and not request.answered:
            request.received += len(bson.encode(event.reply))

    def failed(self, event: monitoring.CommandFailedEvent) -> None: ...


@asynccontextmanager
async def served(uri: str, database: str, data: Path) -> AsyncIterator[httpx.AsyncClient]:
    """The service in this process. Every scope is a large one."""
    mongodb = MongodbSettings(database=database, deadline_seconds=120)
    parts = RealParts()
    parts.tuning = Tuning(exact_up_to=0)
    app = create_app(Settings(data_dir=data, store=SecretStr(uri), mongodb=mongodb, _env_file=None), parts)
    async with app.router.lifespan_context(app) as state:

        async def with_state(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "state": dict(state or {})}, receive, send)

        transport = httpx.ASGITransport(with_state)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=WAIT_SECONDS) as client:
            yield client


async def asked(client: httpx.AsyncClient, path: str, body: Mapping[str, Any]) -> Request:
    request = Request()
    token = _REQUEST.set(request)
    answer = await client.post(path, json=body)
    request.answered = True
    _REQUEST.reset(token)
    assert answer.is_success, answer.text
    return request


def requests(number: int) -> dict[str, tuple[str, dict[str, Any]]]:
    query = f"which garden has tea number {number}?"
    content = f"The {number}th visitor asked for a table by the window."
    return {
        "search": ("/v1/memories/search", {**OWNER, "query": query}),
        "create": ("/v1/memories", {**OWNER, "content": content}),
        "context": ("/v1/context", {**OWNER, "query": query}),
    }


async def measure(uri: str, database: str, memories: int, rounds: int) -> dict[str, list[Request]]:
    found: dict[str, list[Request]] = {name: [] for name in requests(0)}
    with tempfile.TemporaryDirectory() as folder:
        async with served(uri, database, Path(folder)) as client:
            for first in range(0, memories, BATCH):
                contents = [
                    f"The garden of house {n} grows tea number {n}." for n in range(first, min(memories, first + BATCH))
                ]
                items = [{**OWNER, "content": content} for content in contents]
                answer = await client.post("/v1/memories/batch", json={"items": items})
                assert answer.is_success, answer.text
            until = time.monotonic() + WAIT_SECONDS
            while "exact where" in (await client.get("/readyz")).text and time.monotonic() < until:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
            await asyncio.sleep(SETTLED_SECONDS)
            for number in range(rounds):
                for name, (path, body) in requests(number).items():
                    found[name].append(await asked(client, path, body))
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--uri", help="a deployment with search (default: the double of the tests)")
    parser.add_argument("--memories", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commands", action="store_true", help="name each command of the last request")


def run(options: argparse.Namespace) -> Iterator[Section]:
    monitoring.register(Listener())
    with ExitStack() as stack:
        uri = options.uri or _double(stack)
        database = f"recalld_bench_{uuid4().hex[:8]}"
        stack.callback(_drop, uri, database)
        found = asyncio.run(measure(uri, database, options.memories, options.rounds))
    rows: list[Row] = [
        {
            "request": name,
            "commands": int(median(len(one.names) for one in all_of)),
            "sent kB": round(median(one.sent for one in all_of) / 1_000, 1),
            "received kB": round(median(one.received for one in all_of) / 1_000, 1),
            "after the answer": int(median(one.after for one in all_of)),
        }
        for name, all_of in found.items()
    ]
    notes = [f"- {name}: {', '.join(all_of[-1].names)}" for name, all_of in found.items()] if options.commands else []
    yield Section(f"A scope of {options.memories:,} memories that search indexes answer", rows, notes=notes)


def _double(stack: ExitStack) -> str:
    from tests.support.atlas import start_atlas  # noqa: PLC0415 (a deployment that is named needs none)
    from tests.support.mongodb import start_mongodb  # noqa: PLC0415

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    server = stack.enter_context(start_mongodb(folder / "data", durable=False))
    return stack.enter_context(start_atlas(server.port)).uri


def _drop(uri: str, database: str) -> None:
    with MongoClient[dict[str, Any]](uri) as client:
        client.drop_database(database)
