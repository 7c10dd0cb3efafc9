"""Decay of many memories in the embedded engine, and the searches that go on beside it.

Searches run over HTTP, one after another. The decay is a process of its own, as a worker beside a server would run it.
Each round is a month later than the one before, so that every memory has decayed and every row is written.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from app.lifespan import COLLECTIONS
from app.retention.decay_job import DecayJob
from app.storage.sqlite.store import EmbeddedStore
from benchmarks import data
from benchmarks.data import Shape, Texts
from benchmarks.harness import ROOT, Connection, Section, folder, percentile, recalld

USERS = 100
TARGET_SECONDS, TARGET_FACTOR = 2.0, 2.0
"""Longest decay, and highest p95 of a search beside it as a multiple of the p95 without it."""


class FixedClock:
    def __init__(self, moment: datetime) -> None:
        self._moment = moment

    def now(self) -> datetime:
        return self._moment


async def decay(directory: Path, month: int) -> dict[str, Any]:
    """Opens the store and decays it. Returns how many rows changed, and the seconds without the opening."""
    store = await EmbeddedStore.open(directory, COLLECTIONS, dim=data.DIM)
    clock = FixedClock(data.START + timedelta(days=60 + 30 * month))
    started = time.perf_counter()
    changed = await DecayJob(store, clock).apply(None)
    seconds = time.perf_counter() - started
    await store.close()
    return {"changed": changed, "seconds": seconds}


class Searches:
    """Searches of users in turn; each returns its milliseconds."""

    def __init__(self, url: str) -> None:
        self._connection = Connection(url)
        shape = Shape(USERS, USERS)
        self._bodies = data.queries(shape, 10 * USERS, distinct=USERS)
        for number in range(USERS):  # the first search of a user reads all memories of this user
            self._ask({"query": Texts(1).question(0), **data.owner(number), "record_access": False})
        self._next = 0
        self.many(len(self._bodies))

    def many(self, count: int) -> list[float]:
        return [self.one() for _ in range(count)]

    def one(self) -> float:
        self._next = (self._next + 1) % len(self._bodies)
        started = time.perf_counter()
        answer = self._ask(self._bodies[self._next])
        taken = (time.perf_counter() - started) * 1000
        if len(answer["items"]) != 10:
            raise RuntimeError("A search found fewer than ten memories.")
        return taken

    def _ask(self, body: dict[str, Any]) -> Any:
        return json.loads(self._connection.ask("POST", "/v1/memories/search", body))


def measure(directory: str, rounds: int) -> dict[str, Any]:
    alone: list[float] = []
    beside: list[float] = []
    decays: list[dict[str, Any]] = []
    with recalld(directory, jobs=False) as server:
        searches = Searches(server.url)
        for month in range(1, rounds + 1):
            worker = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.decay", directory, str(month)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdout.readline()  # it has loaded its modules, and waits
            alone += searches.many(150)
            worker.stdin.write("go\n")
            worker.stdin.flush()
            while worker.poll() is None:
                beside.append(searches.one())
            decays.append(json.loads(worker.stdout.read()))
    return {
        "rows changed": str([each["changed"] for each in decays]),
        "decay s": round(median(each["seconds"] for each in decays), 2),
        "searches": f"{len(alone)}, {len(beside)} beside decay",
        "search p95 ms": round(percentile(alone, 95), 2),
        "p95 ms beside decay": round(percentile(beside, 95), 2),
        "factor": round(percentile(beside, 95) / percentile(alone, 95), 2),
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memories", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)


def run(options: argparse.Namespace) -> Iterator[Section]:
    with folder() as directory:
        data.fill(directory, Shape(options.memories, USERS))
        row = measure(directory, options.rounds)
    met = row["decay s"] <= TARGET_SECONDS and row["factor"] <= TARGET_FACTOR
    yield Section(f"decay of {options.memories:,} memories", [row], met)


if __name__ == "__main__":
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(asyncio.run(decay(Path(sys.argv[1]), int(sys.argv[2])))))
