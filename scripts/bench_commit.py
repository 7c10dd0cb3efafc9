"""Appending a message and patching a task's context, beside a bare route that makes one small durable commit.

    python scripts/bench_commit.py [--requests 500] [--json]   # exit code 0: p50 ≤ 1.5 × the bare one's

The three take turns, request by request, in one run: what the machine does to one it does to all. The bare route is
FastAPI and one INSERT through the same engine settings (WAL, synchronous=FULL), committed before it answers.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import httpx
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from app.storage.changes import Insert
from app.storage.schema import Collection
from app.storage.sqlite.store import EmbeddedStore
from scripts.bench_servers import _served, recalld

NOTES = Collection("notes", "note_id", {})
LIMIT = 1.5
PAIR = {"agent_id": "bench", "user_id": "u"}


class Note(BaseModel):
    agent_id: str
    user_id: str
    text: str


def bare(directory: Path) -> FastAPI:
    app = FastAPI()
    stores: list[EmbeddedStore] = []

    @app.post("/notes", status_code=201)
    async def add(body: Note) -> dict[str, Any]:
        if not stores:
            stores.append(await EmbeddedStore.open(directory, (NOTES,), dim=1))
        note_id = str(time.time_ns())
        created = "2026-01-01T00:00:00.000Z"
        doc = {"tenant_id": "t", "note_id": note_id, "created_at": created, **body.model_dump()}
        await stores[0].commit([Insert(NOTES, doc)])
        return {"note_id": note_id}

    return app


def measure(ours: httpx.Client, other: httpx.Client, requests: int) -> dict[str, list[float]]:
    said = {**PAIR, "memorize": "none", "messages": [{"role": "user", "content": "the red bicycle is in the garden"}]}
    task = {"task_id": "bench", **PAIR, "goal": "measure", "context": {"step": 0}}
    assert ours.post("/v1/tasks", json=task).status_code == 201
    calls: dict[str, Callable[[int], httpx.Response]] = {
        "bare commit": lambda n: other.post("/notes", json={**PAIR, "text": "the red bicycle is in the garden"}),
        "append": lambda n: ours.post("/v1/sessions/bench/messages", json=said),
        "context patch": lambda n: ours.patch("/v1/tasks/bench/context", json={"step": n}),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(requests + 20):
        for name, call in calls.items():
            started = time.perf_counter()
            answer = call(number + 1)
            took = time.perf_counter() - started
            if answer.status_code not in (200, 201):
                raise RuntimeError(answer.text)
            if number >= 20:
                times[name].append(took)
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--bare", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.bare:
        port, directory = int(given.bare[0]), Path(given.bare[1])
        uvicorn.run(bare(directory), port=port, log_config=None, access_log=False, server_header=False)
        return 0
    with tempfile.TemporaryDirectory(prefix="recalld-bench-", ignore_cleanup_errors=True) as path:
        here = str(Path(__file__).resolve())
        with (
            recalld(Path(path) / "ours", RECALLD_JOBS_ENABLED="false") as port,
            _served(lambda free: [here, "--bare", str(free), str(Path(path) / "bare")], {}) as (bare_port, _),
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as ours,
            httpx.Client(base_url=f"http://127.0.0.1:{bare_port}", timeout=60) as other,
        ):
            times = measure(ours, other, given.requests)
    base = median(times["bare commit"])
    report = {
        name: {
            "p50 ms": round(median(taken) * 1000, 2),
            "p95 ms": round(sorted(taken)[int(0.95 * (len(taken) - 1))] * 1000, 2),
            "factor": round(median(taken) / base, 2),
        }
        for name, taken in times.items()
    }
    if given.json:
        print(json.dumps(report, indent=2))
    else:
        for name, figures in report.items():
            print(f"{name:14}", "; ".join(f"{key} {value}" for key, value in figures.items()))
    return 0 if all(figures["factor"] <= LIMIT for figures in report.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
