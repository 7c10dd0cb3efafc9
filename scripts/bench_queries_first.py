"""How long a search takes while the service embeds a batch or an import, and what the searches cost the load.

python scripts/bench_queries_first.py [--items 500] [--rounds 5] [--per-second 5] [--json FILE]

Each round takes the parts in turn: searches of an idle service, a batch and an import without searches, then the same
with searches (each with a new text, at a fixed rate). The load is another user's. A figure is the median of the rounds,
a p95 is that of all searches of its part. Ratios hold between machines; milliseconds do not.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import httpx

from app.importers import mem0
from app.importers.loader import bring
from app.importers.models import DefaultOwner
from scripts.bench_servers import recalld

WORDS = (
    "the support group made her feel accepted and gave courage to travel with two dogs over mountains in May".split()
)
IDLE_SEARCHES = 40
MOST_SLOWER, LEAST_THROUGHPUT = 3.0, 0.85
"""What is wanted: p95 of a search under load by the idle p50, and what is left of the load's throughput."""


@dataclass(slots=True)
class Part:
    """Of one kind of load. Seconds, one of each a round; `searches` are those of all rounds."""

    alone: list[float] = field(default_factory=list)
    shared: list[float] = field(default_factory=list)
    searches: list[float] = field(default_factory=list)


class Bench:
    def __init__(self, client: httpx.AsyncClient, items: int, per_second: float) -> None:
        self._client, self._items, self._pause = client, items, 1 / per_second
        self._random = random.Random(7)
        self.idle: list[float] = []
        self.parts = {"batch": Part(), "import": Part()}

    async def fill(self) -> None:
        """Something to find."""
        await self._post("/v1/memories/batch", {"items": self._memories("searched", 300)})
        await self._search()

    async def round(self) -> None:
        for _ in range(IDLE_SEARCHES):
            self.idle.append(await self._search())
        loads: dict[str, Callable[[], Awaitable[None]]] = {"batch": self._batch, "import": self._import}
        for name, load in loads.items():
            started = time.perf_counter()
            await load()
            self.parts[name].alone.append(time.perf_counter() - started)
            await self._shared(self.parts[name], load)

    async def _shared(self, part: Part, load: Callable[[], Awaitable[None]]) -> None:
        started = time.perf_counter()
        loading = asyncio.ensure_future(load())
        while not loading.done():
            part.searches.append(await self._search())
            await asyncio.wait([loading], timeout=self._pause)
        part.shared.append(time.perf_counter() - started)
        await loading

    async def _search(self) -> float:
        """A text that was not asked before, so that it has to be embedded."""
        body = {"agent_id": "a", "user_id": "searched", "query": self._text(8), "record_access": False}
        started = time.perf_counter()
        await self._post("/v1/memories/search", body)
        return time.perf_counter() - started

    async def _batch(self) -> None:
        await self._post("/v1/memories/batch", {"items": self._memories("loaded", self._items)})

    async def _import(self) -> None:
        """As `recalld import --from mem0` sends it."""
        records = [
            {"id": str(at), "memory": memory["content"], "agent_id": "a", "user_id": "imported"}
            for at, memory in enumerate(self._memories("imported", self._items))
        ]

        async def post(path: str, body: dict[str, Any]) -> str | None:
            await self._post(path, body)
            return None

        await bring(list(mem0.read(records, DefaultOwner(None, None, "2026-01-01T00:00:00.000Z"))), post)

    async def _post(self, path: str, body: dict[str, Any]) -> None:
        (await self._client.post(path, json=body)).raise_for_status()

    def _memories(self, user: str, number: int) -> list[dict[str, Any]]:
        each = [self._text(self._random.randint(6, 40)) for _ in range(number)]
        return [{"agent_id": "a", "user_id": user, "content": text} for text in each]

    def _text(self, words: int) -> str:
        return " ".join(self._random.choices(WORDS, k=words)) + f" {self._random.random()}"


def figures(bench: Bench) -> dict[str, Any]:
    idle = median(bench.idle)
    found: dict[str, Any] = {"idle_p50_ms": round(idle * 1000, 1)}
    for name, part in bench.parts.items():
        p95 = quantiles(part.searches, n=100, method="inclusive")[94]
        kept = median(alone / shared for alone, shared in zip(part.alone, part.shared, strict=True))
        found[name] = {
            "searches": len(part.searches),
            "search_p50_ms": round(median(part.searches) * 1000, 1),
            "search_p95_ms": round(p95 * 1000, 1),
            "p95_by_idle_p50": round(p95 / idle, 2),
            "load_seconds": round(median(part.alone), 2),
            "throughput_kept": round(kept, 2),
        }
    return found


def show(found: dict[str, Any]) -> None:
    print(f"search of an idle service: p50 {found['idle_p50_ms']} ms\n")
    print(f"{'load':10}{'searches':>9}{'p50 ms':>9}{'p95 ms':>9}{'p95/idle':>10}{'load s':>9}{'kept':>7}")
    for name in ("batch", "import"):
        row = found[name]
        print(
            f"{name:10}{row['searches']:9}{row['search_p50_ms']:9}{row['search_p95_ms']:9}{row['p95_by_idle_p50']:10}"
            f"{row['load_seconds']:9}{row['throughput_kept']:7}"
        )
    print(f"\nwanted: p95/idle at most {MOST_SLOWER}, kept at least {LEAST_THROUGHPUT}")


async def measure(port: int, args: argparse.Namespace) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=300) as client:
        bench = Bench(client, args.items, args.per_second)
        await bench.fill()
        for _ in range(args.rounds):
            await bench.round()
    return figures(bench)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--per-second", type=float, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    print(platform.processor() or platform.machine(), f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with TemporaryDirectory() as folder, recalld(Path(folder) / "data") as port:
        found = asyncio.run(measure(port, args))
    show(found)
    if args.json:
        args.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
