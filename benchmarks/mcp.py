"""A recall over MCP beside the same search over REST; with `--fresh`, a new clone's way to its first recall.

One service, one store, one user; blocks of each way take turns. "request" is the bare HTTP request of a tool call, as
any client sends it; "client" is the official SDK's, whose own work is in it. With `--fresh`, this checkout is cloned
and its `scripts/recalld mcp` started by the SDK's client, as a host application would.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TextIO

import httpx2
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from benchmarks.data import Texts
from benchmarks.harness import ROOT, Call, Connection, Row, Section, alternate, folder, p50_p95, recalld

OWNER = {"agent_id": "a", "user_id": "u"}
ENDPOINT = "/mcp?agent_id=a&user_id=u"
MODERN = "2026-07-28"
BLOCK = 20
WORDS = Texts(3).any(BLOCK)  # all of their vectors are cached after the first block


class Ways:
    """The ways to recall. Each call asks for one of the words."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http

    async def rest(self, number: int) -> None:
        found = await self._http.post("/v1/memories/search", json={**OWNER, "query": _query(number), "top_k": 5})
        assert len(found.json()["items"]) == 5

    def request(self, *, modern: bool) -> Call:
        headers = {"accept": "application/json, text/event-stream"}
        prefix = "io.modelcontextprotocol/"
        params: dict[str, Any] = {"name": "recall"}
        if modern:
            headers |= {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "recall"}
            params["_meta"] = {f"{prefix}protocolVersion": MODERN, f"{prefix}clientCapabilities": {}}

        async def ask(number: int) -> None:
            asked = {**params, "arguments": {"query": _query(number)}}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked}
            found = (await self._http.post(ENDPOINT, json=body, headers=headers)).json()
            assert len(found["result"]["structuredContent"]["items"]) == 5, found

        return ask


def _query(number: int) -> str:
    return f"what about {WORDS[number * 7 % len(WORDS)]}?"


def _client_call(client: Client) -> Call:
    return lambda number: client.call_tool("recall", {"query": _query(number)})


async def compare(url: str, data: str, calls: int, errors: TextIO) -> list[Row]:
    options = ["-m", "app.cli", "mcp", "--agent", "a", "--user", "u"]
    environment = {**os.environ, "RECALLD_DATA_DIR": data}
    program = StdioServerParameters(command=sys.executable, args=options, env=environment, cwd=ROOT)
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx2.AsyncClient(base_url=url, timeout=60))
        modern, legacy, local = [
            await stack.enter_async_context(client)
            for client in (
                Client(streamable_http_client(f"{url}{ENDPOINT}", http_client=http)),
                Client(streamable_http_client(f"{url}{ENDPOINT}", http_client=http), mode="legacy"),
                Client(stdio_client(program, errlog=errors)),
            )
        ]
        ways = Ways(http)
        times = await alternate(
            {
                "REST search": ways.rest,
                f"MCP request, {MODERN}": ways.request(modern=True),
                "MCP request, earlier": ways.request(modern=False),
                f"MCP client, {MODERN}": _client_call(modern),
                "MCP client, earlier": _client_call(legacy),
                "MCP client, stdio": _client_call(local),
            },
            max(1, calls // BLOCK),
            warm_up=1,
            block=BLOCK,
        )
    rows: list[Row] = [{"way": name, **p50_p95(taken)} for name, taken in times.items()]
    return [{**row, "over REST ms": round(row["p50 ms"] - rows[0]["p50 ms"], 2)} for row in rows]


async def fresh(path: Path) -> list[Row]:
    """From nothing to a recalled memory; packages come from wherever pip is set up to take them."""
    times = [time.perf_counter()]
    clone = ["git", "clone", "--quiet", str(ROOT), str(path / "recalld")]
    await asyncio.to_thread(subprocess.run, clone, check=True)
    times.append(time.perf_counter())
    program = StdioServerParameters(command=str(path / "recalld/scripts/recalld"), args=["mcp"])
    async with Client(stdio_client(program), read_timeout_seconds=500) as client:
        times.append(time.perf_counter())
        await client.call_tool("remember", {"content": "Ada keeps bees"})
        found = await client.call_tool("recall", {"query": "what animals does Ada keep?"})
        assert "bees" in json.dumps(found.structured_content)
        times.append(time.perf_counter())
    again = time.perf_counter()
    async with Client(stdio_client(program)) as client:
        await client.call_tool("recall", {"query": "what animals does Ada keep?"})
    steps = ("clone", "set up and start", "remember and recall")
    rows: list[Row] = [{"step": step, "s": round(times[at + 1] - times[at], 2)} for at, step in enumerate(steps)]
    return [*rows, {"step": "start again and recall", "s": round(time.perf_counter() - again, 2)}]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memories", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--fresh", action="store_true", help="measure a new clone instead")


def run(options: argparse.Namespace) -> Iterator[Section]:
    with folder() as path:
        if options.fresh:
            yield Section("a new clone", asyncio.run(fresh(Path(path))))
            return
        dice = random.Random(0)
        notes = [f"Note {number}: {' '.join(dice.sample(WORDS, 6))}" for number in range(options.memories)]
        with recalld(f"{path}/data") as server:
            for at in range(0, len(notes), 250):
                items = [{**OWNER, "content": note} for note in notes[at : at + 250]]
                Connection(server.url).ask("POST", "/v1/memories/batch", {"items": items})
            with Path(f"{path}/errors").open("w") as errors:
                rows = asyncio.run(compare(server.url, f"{path}/data", options.calls, errors))
        yield Section(f"{options.memories:,} memories, top 5", rows)
