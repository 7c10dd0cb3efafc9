"""How long a search takes while the service embeds a batch or an import, and what the searches cost the load.

Each round takes the parts in turn: searches of an idle service, a batch and an import without searches, then the same
with searches (each with a new text, at a fixed rate). The load is another user's. A figure is the median of the rounds,
a p95 is that of all searches of its part. Ratios hold between machines; milliseconds do not.
"""

import argparse
import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import httpx

from app.importers import formats
from app.importers.loader import DefaultOwner, bring
from benchmarks.data import Texts
from benchmarks.harness import Row, Section, folder, p50_p95, percentile, recalld

IDLE_SEARCHES = 40
TARGET_SLOWER, TARGET_KEPT = 3.0, 0.85
"""Highest p95 of a search under load by the idle p50, and least part of the load's throughput that is left."""


@dataclass(slots=True)
class Part:
    """Of one kind of load: seconds, one of each a round, and the milliseconds of the searches of all rounds."""

    alone: list[float] = field(default_factory=list)
    shared: list[float] = field(default_factory=list)
    searches: list[float] = field(default_factory=list)


class Bench:
    def __init__(self, client: httpx.AsyncClient, items: int, per_second: float) -> None:
        self._client, self._items, self._pause = client, items, 1 / per_second
        self._random, self._texts = random.Random(7), Texts(7)
        self.idle: list[float] = []
        self.parts = {"batch": Part(), "import": Part()}

    async def fill(self) -> None:
        """Stores something to find."""
        await self._post("/v1/memories/batch", {"items": self._memories("searched", 300)})
        await self._search()

    async def round(self) -> None:
        for _ in range(IDLE_SEARCHES):
            self.idle.append(await self._search())
        loads: dict[str, Callable[[], Awaitable[None]]] = {"batch": self._batch, "import": self._import}
        for name, load in loads.items():
            part, started = self.parts[name], time.perf_counter()
            await load()
            part.alone.append(time.perf_counter() - started)
            started = time.perf_counter()
            loading = asyncio.ensure_future(load())
            while not loading.done():
                part.searches.append(await self._search())
                await asyncio.wait([loading], timeout=self._pause)
            part.shared.append(time.perf_counter() - started)
            await loading

    async def _search(self) -> float:
        """Milliseconds of a search whose text has to be embedded."""
        body = {"agent_id": "a", "user_id": "searched", "query": self._text(8), "record_access": False}
        started = time.perf_counter()
        await self._post("/v1/memories/search", body)
        return (time.perf_counter() - started) * 1000

    async def _batch(self) -> None:
        await self._post("/v1/memories/batch", {"items": self._memories("loaded", self._items)})

    async def _import(self) -> None:
        """As `recalld import --from mem0` sends it."""
        records = [
            {"id": str(at), "memory": memory["content"], "agent_id": "a", "user_id": "imported"}
            for at, memory in enumerate(self._memories("imported", self._items))
        ]
        await bring(list(formats.read_mem0(records, DefaultOwner(None, None, "2026-01-01T00:00:00.000Z"))), self)

    async def post(self, path: str, body: dict[str, Any]) -> None:
        """As an import calls it."""
        await self._post(path, body)

    async def get(self, path: str) -> None:
        """As an import calls it: nothing is there yet."""

    async def _post(self, path: str, body: dict[str, Any]) -> None:
        (await self._client.post(path, json=body)).raise_for_status()

    def _memories(self, user: str, number: int) -> list[dict[str, Any]]:
        each = [self._text(self._random.randint(6, 40)) for _ in range(number)]
        return [{"agent_id": "a", "user_id": user, "content": text} for text in each]

    def _text(self, words: int) -> str:
        return f"{self._texts.sentence(words)} {self._random.random()}"


async def measure(url: str, options: argparse.Namespace) -> list[Row]:
    async with httpx.AsyncClient(base_url=url, timeout=300) as client:
        bench = Bench(client, options.items, options.per_second)
        await bench.fill()
        for _ in range(options.rounds):
            await bench.round()
    rows: list[Row] = [{"load": "none", "searches": len(bench.idle), **p50_p95(bench.idle)}]
    for name, part in bench.parts.items():
        kept = median(alone / shared for alone, shared in zip(part.alone, part.shared, strict=True))
        rows.append(
            {
                "load": name,
                "searches": len(part.searches),
                **p50_p95(part.searches),
                "p95 / idle p50": round(percentile(part.searches, 95) / median(bench.idle), 2),
                "load s": round(median(part.alone), 2),
                "throughput kept": round(kept, 2),
            }
        )
    return rows


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--items", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--per-second", type=float, default=5)


def run(options: argparse.Namespace) -> Iterator[Section]:
    with folder() as path, recalld(path) as server:
        rows = asyncio.run(measure(server.url, options))
    slower, kept = ([row[name] for row in rows[1:]] for name in ("p95 / idle p50", "throughput kept"))
    met = max(slower) <= TARGET_SLOWER and min(kept) >= TARGET_KEPT
    yield Section(f"target: p95 / idle p50 ≤ {TARGET_SLOWER}, kept ≥ {TARGET_KEPT}", rows, met)
