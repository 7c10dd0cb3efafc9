"""Decay of many memories in the embedded engine while searches go on.

    python scripts/bench_decay.py [--memories 100000] [--json]   # exit code 0: ≤ 2 s, searches' p95 ≤ doubled

Searches run over HTTP against the service, one after another; the decay is a process of its own (`recalld decay`'s
job), as a worker beside a server would run it. Every memory has faded, so that every row is written.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import httpx
import numpy as np

from app.core.clock import rfc3339
from app.lifespan import COLLECTIONS
from app.memories.models import MEMORIES
from app.memories.records import new_memory
from app.retention.decay_job import DecayJob
from app.storage.changes import Change, IndexEntry, Insert
from app.storage.sqlite.store import EmbeddedStore
from app.storage.text import index_text
from scripts.bench_servers import recalld

NOW = datetime(2030, 1, 1, tzinfo=UTC)
USERS, DIM, MODEL = 100, 384, "minilm-int8"
WORDS = "tea coffee roses garden Boston music mountains sea May bicycle bread rain letter window river".split()
LIMIT_SECONDS, LIMIT_FACTOR = 2.0, 2.0


class At:
    def __init__(self, moment: datetime) -> None:
        self._moment = moment

    def now(self) -> datetime:
        return self._moment


async def fill(directory: Path, memories: int) -> None:
    store = await EmbeddedStore.open(directory, COLLECTIONS, dim=DIM)
    seed, vectors = random.Random(1), np.random.default_rng(1)
    for at in range(0, memories, 500):
        changes: list[Change] = []
        for number in range(at, min(at + 500, memories)):
            content = f"memory {number} of {' '.join(seed.sample(WORDS, 6))}"
            fields = {
                "agent_id": "bench",
                "user_id": f"user-{number % USERS}",
                "memory_type": "fact",
                "content": content,
                "importance": 0.2 + 0.8 * seed.random(),
            }
            born = rfc3339(NOW - timedelta(days=seed.uniform(60, 400)))
            doc = new_memory(fields, {}, born, unique=False) | {
                "tenant_id": "default",
                "embedding": {"model": MODEL, "dim": DIM, "status": "ready"},
            }
            vector = vectors.standard_normal(DIM).astype(np.float32)
            entry = IndexEntry(index_text(content), vector / np.float32(np.linalg.norm(vector)), MODEL)
            changes.append(Insert(MEMORIES, doc, entry))
        await store.commit(changes)
    await store.close()


async def fade(directory: Path, moment: datetime) -> dict[str, Any]:
    store = await EmbeddedStore.open(directory, COLLECTIONS, dim=DIM)
    started = time.perf_counter()
    changed = await DecayJob(store, At(moment)).apply(None)
    seconds = time.perf_counter() - started
    await store.close()
    return {"changed": changed, "seconds": seconds}


def search(client: httpx.Client, number: int) -> float:
    seed = random.Random(number)
    body = {
        "agent_id": "bench",
        "user_id": f"user-{seed.randrange(USERS)}",
        "query": " ".join(seed.sample(WORDS, 3)),
        "record_access": False,
    }
    started = time.perf_counter()
    answer = client.post("/v1/memories/search", json=body)
    took = time.perf_counter() - started
    if len(answer.json()["items"]) != 10:
        raise RuntimeError("fewer than ten were found")
    return took


def p95(times: list[float]) -> float:
    return sorted(times)[int(0.95 * (len(times) - 1))]


def measure(directory: Path, rounds: int) -> dict[str, Any]:
    alone: list[float] = []
    beside: list[float] = []
    decays: list[dict[str, Any]] = []
    with ExitStack() as stack:
        port = stack.enter_context(recalld(directory, RECALLD_JOBS_ENABLED="false"))
        client = stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60))
        for number in range(3 * USERS):  # every scope is warm
            search(client, number)
        for again in range(rounds):
            decay = subprocess.Popen(
                [sys.executable, __file__, "--fade", str(again), "--directory", str(directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert decay.stdin is not None
            assert decay.stdout is not None
            decay.stdout.readline()  # it has loaded its modules, and waits
            alone += [search(client, 1_000 * again + number) for number in range(150)]
            decay.stdin.write("go\n")
            decay.stdin.flush()
            while decay.poll() is None:
                beside.append(search(client, random.randrange(10**6)))
            decays.append(json.loads(decay.stdout.read()))
    return {
        "changed": [one["changed"] for one in decays],
        "decay s": [round(one["seconds"], 2) for one in decays],
        "searches": [len(alone), len(beside)],
        "search p95 ms": round(p95(alone) * 1000, 2),
        "search p95 ms beside decay": round(p95(beside) * 1000, 2),
        "factor": round(p95(beside) / p95(alone), 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--fade", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fade is not None:
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(asyncio.run(fade(given.directory, NOW + timedelta(days=given.fade)))))
        return 0
    with tempfile.TemporaryDirectory(prefix="recalld-bench-", ignore_cleanup_errors=True) as path:
        asyncio.run(fill(Path(path), given.memories))
        report = measure(Path(path), given.rounds)
    report |= {"memories": given.memories}
    ok = sorted(report["decay s"])[given.rounds // 2] <= LIMIT_SECONDS and report["factor"] <= LIMIT_FACTOR
    print(
        json.dumps(report, indent=2)
        if given.json
        else "\n".join(f"{name:28} {value}" for name, value in report.items())
    )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
