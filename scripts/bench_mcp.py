"""What a recall over MCP costs beside the same search over REST; and how long a new clone takes to its first one.

python scripts/bench_mcp.py [--memories 1000] [--calls 200] [--fresh]

One service, one store, one user; blocks of each way take turns. "request" is the bare HTTP request of a tool call, as
any client sends it; "client" is the official SDK's, whose own work is in it. With --fresh, this checkout is cloned and
its `scripts/recalld mcp` started by the SDK's client, as a host application would.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median, quantiles

import httpx2
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.server import environment, serving  # noqa: E402

PAIR = {"agent_id": "a", "user_id": "u"}
WHOM = "?agent_id=a&user_id=u"
WORDS = "tea piano Boston garden bicycle flight invoice guitar novel winter kitchen sister doctor market".split()
MODERN = "2026-07-28"
BLOCK = 20
Ask = Callable[[str], Awaitable[object]]


async def measured(ways: dict[str, Ask], calls: int) -> dict[str, list[float]]:
    """Milliseconds of each call. A first block of each is not counted."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    dice = random.Random(1)
    for block in range(calls // BLOCK + 1):
        for name, ask in ways.items():
            for _ in range(BLOCK):
                query = f"what about {dice.choice(WORDS)}?"
                began = time.perf_counter()
                await ask(query)
                if block:
                    took[name].append((time.perf_counter() - began) * 1000)
    return took


async def compare(url: str, data: Path, memories: int, calls: int) -> None:
    async with httpx2.AsyncClient(base_url=url, timeout=60) as http:
        dice = random.Random(0)
        items = [{**PAIR, "content": f"Note {n}: {' '.join(dice.sample(WORDS, 6))}"} for n in range(memories)]
        for at in range(0, memories, 250):
            made = await http.post("/v1/memories/batch", json={"items": items[at : at + 250]})
            made.raise_for_status()

        async def rest(query: str) -> None:
            found = await http.post("/v1/memories/search", json={**PAIR, "query": query, "top_k": 5})
            assert len(found.json()["items"]) == 5

        def request(modern: bool) -> Ask:
            headers = {"accept": "application/json, text/event-stream"}
            if modern:
                headers |= {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "recall"}
            prefix = "io.modelcontextprotocol/"
            meta = {f"{prefix}protocolVersion": MODERN, f"{prefix}clientCapabilities": {}}

            async def ask(query: str) -> None:
                params = {"name": "recall", "arguments": {"query": query}, **({"_meta": meta} if modern else {})}
                body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
                found = (await http.post(f"/mcp{WHOM}", json=body, headers=headers)).json()
                assert len(found["result"]["structuredContent"]["items"]) == 5, found

            return ask

        def client_of(client: Client) -> Ask:
            return lambda query: client.call_tool("recall", {"query": query})

        options = ["-m", "app.cli", "mcp", "--agent", "a", "--user", "u"]
        program = StdioServerParameters(command=sys.executable, args=options, env=environment(data), cwd=ROOT)
        with data.with_suffix(".stdio").open("w") as errors:
            async with (
                Client(streamable_http_client(f"{url}/mcp{WHOM}", http_client=http)) as modern,
                Client(streamable_http_client(f"{url}/mcp{WHOM}", http_client=http), mode="legacy") as legacy,
                Client(stdio_client(program, errlog=errors)) as local,
            ):
                ways = {
                    "REST search": rest,
                    "MCP request, 2026-07-28": request(modern=True),
                    "MCP request, earlier": request(modern=False),
                    "MCP client, 2026-07-28": client_of(modern),
                    "MCP client, earlier": client_of(legacy),
                    "MCP client, stdio": client_of(local),
                }
                took = await measured(ways, calls)
    base = median(took["REST search"])
    print(f"{memories} memories, top 5, {calls} calls each; milliseconds")
    for name, all_ in took.items():
        p50, p95 = median(all_), quantiles(all_, n=20)[-1]
        print(f"{name:28} p50 {p50:6.2f}   p95 {p95:6.2f}   over REST {p50 - base:+6.2f}")


async def fresh(folder: Path) -> None:
    """From nothing to a recalled memory; packages come from wherever pip is set up to take them."""
    began = time.perf_counter()
    clone = ["git", "clone", "--quiet", str(ROOT), str(folder / "recalld")]
    await asyncio.to_thread(subprocess.run, clone, check=True)
    cloned = time.perf_counter()
    program = StdioServerParameters(command=str(folder / "recalld/scripts/recalld"), args=["mcp"])
    async with Client(stdio_client(program), read_timeout_seconds=500) as client:
        ready = time.perf_counter()
        await client.call_tool("remember", {"content": "Ada keeps bees"})
        found = await client.call_tool("recall", {"query": "what animals does Ada keep?"})
        assert "bees" in json.dumps(found.structured_content)
        ended = time.perf_counter()
    print(f"clone {cloned - began:.1f} s, set up and started {ready - cloned:.1f} s, recalled {ended - ready:.2f} s")
    began = time.perf_counter()
    async with Client(stdio_client(program)) as client:
        await client.call_tool("recall", {"query": "what animals does Ada keep?"})
        print(f"started again and recalled: {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--fresh", action="store_true", help="measure a new clone instead")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if asked.fresh:
            asyncio.run(fresh(Path(name)))
        else:
            with serving(Path(name) / "data") as server:
                url = str(server.client.base_url)
                asyncio.run(compare(url, Path(name) / "data", asked.memories, asked.calls))
