"""What tracing costs a request: a service without it, one that samples nothing, and one that sends each span, in turns.

`--beside FOLDER` adds a service from another checkout, such as one from before a change. The first table has what a
service without tracing still does: a call for each span that it might make.
"""

import argparse
import asyncio
import threading
import timeit
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from app.core import tracing
from benchmarks.harness import (
    Connection,
    Row,
    Section,
    Server,
    Times,
    alternate,
    environment,
    folder,
    percentile,
    recalld,
    serving,
)

OWNER = {"agent_id": "bench", "user_id": "u"}
SUBJECTS = ("bicycle", "garden", "kettle", "harbour", "violin", "lantern", "orchard", "compass")
SPANS = 16
"""More spans than a search or a write has."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memories", type=int, default=2_000)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--beside", type=Path, metavar="FOLDER", help="a checkout to compare with")


def run(options: argparse.Namespace) -> Iterator[Section]:
    with ExitStack() as stack:
        collector = _Sink()
        stack.callback(collector.stop)
        sent = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        kinds: dict[str, dict[str, str]] = {
            "off": {},
            "sampled out": {**sent, "OTEL_TRACES_SAMPLER": "always_off"},
            "sent": sent,
        }
        calls: dict[str, Callable[[int], Any]] = {}
        servers: dict[str, AbstractContextManager[Server]] = {}
        if options.beside:
            servers["beside"] = _other(options.beside, stack.enter_context(folder()))
        for kind, settings in kinds.items():
            servers[kind] = recalld(stack.enter_context(folder()), jobs=False, **settings)
        for kind, opened in servers.items():
            service = Connection(stack.enter_context(opened).url)
            _fill(service, options.memories)
            calls |= {f"{what}/{kind}": call for what, call in _requests(service).items()}
        times = asyncio.run(alternate(calls, options.requests))
        yield Section("a span that is not made", _unmade(times))
        yield Section("requests", _ratios(times, list(servers)))


def _other(checkout: Path, data: str) -> AbstractContextManager[Server]:
    code = (
        "import os, sys; os.chdir(sys.argv[1]); "
        "os.execv(sys.executable, [sys.executable, '-m', 'app.cli', 'serve', '--port', sys.argv[2]])"
    )
    settings = {**environment(data, jobs=False), "PYTHONPATH": str(checkout)}
    return serving(lambda port: ("-c", code, str(checkout), str(port)), settings)


def _fill(service: Connection, memories: int) -> None:
    for first in range(0, memories, 250):
        items = [{**OWNER, "content": _text(number), "deduplicate": False} for number in range(first, first + 250)]
        service.ask("POST", "/v1/memories/batch", {"items": items})


def _text(number: int) -> str:
    return f"note {number}: the {SUBJECTS[number % len(SUBJECTS)]} number {number % 97} stands beside the wall"


def _requests(service: Connection) -> dict[str, Callable[[int], Any]]:
    def search(number: int) -> bytes:
        query = f"where is the {SUBJECTS[number % len(SUBJECTS)]}?"
        return service.ask("POST", "/v1/memories/search", {**OWNER, "query": query, "record_access": False})

    messages = {**OWNER, "memorize": "none", "messages": [{"role": "user", "content": "the bicycle is red"}]}
    return {
        "search, its query known": search,
        "append a message": lambda _: service.ask("POST", "/v1/sessions/bench/messages", messages),
    }


def _unmade(times: Times) -> list[Row]:
    """The time of a span where nothing is traced, and what share of a request `SPANS` of them are."""
    number = 100_000

    def unmade() -> None:
        with tracing.span("search ranking", {"recalld.search.candidates": 1}) as open_span:
            open_span.set({"recalld.search.hits": 1})

    each = timeit.timeit(unmade, number=number) / number * 1e6
    rows: list[Row] = []
    for what in dict.fromkeys(name.partition("/")[0] for name in times):
        p50 = percentile(times[f"{what}/off"], 50)
        rows.append(
            {"call": what, "µs a span": round(each, 2), f"% of it for {SPANS}": round(each * SPANS / p50 / 10, 2)}
        )
    return rows


def _ratios(times: Times, kinds: list[str]) -> list[Row]:
    rows: list[Row] = []
    for what in dict.fromkeys(name.partition("/")[0] for name in times):
        p50 = {kind: percentile(times[f"{what}/{kind}"], 50) for kind in kinds}
        row: Row = {"call": what, "off ms": round(p50["off"], 2)}
        rows.append(row | {f"{kind} × off": round(p50[kind] / p50["off"], 3) for kind in kinds if kind != "off"})
    return rows


class _Sink:
    """A collector that throws away what it gets."""

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
