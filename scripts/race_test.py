"""Races over HTTP and between processes: what must happen once, happens once, and nothing is lost.

    python scripts/race_test.py [--quick] [--json]      # exit code 0: every figure is as it must be
    python scripts/race_test.py --store mongodb://...   # the same on MongoDB, with four services on one database

appends: writers append to one session at once. conditional: PATCHes of one task with one If-Match. idempotent: POSTs
under one key. jobs: workers, each a process with a lease of a second, work off what schedules tick; one stops itself
(SIGSTOP) in the middle of a job, past its lease, and is continued. With `--servers N` the requests go to N services in
turn. On MongoDB everything is in databases of its own, which are dropped afterwards.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import httpx
from pymongo import MongoClient

from app.core.clock import SystemClock, parse_rfc3339, rfc3339, to_ms
from app.jobs import runner as running
from app.jobs.models import JOBS, SCHEDULES
from app.jobs.runner import Done, Run, Runner
from app.jobs.schedule import Schedules
from app.metrics import JOB_RUNS
from app.settings import Settings
from app.storage.changes import Insert
from app.storage.factory import EMBEDDED, StoreLocation, open_store
from app.storage.filters import Eq
from app.storage.protocol import Store
from app.storage.schema import Collection
from app.storage.scope import SYSTEM
from benchmarks.harness import recalld

PAIR = {"agent_id": "racer", "user_id": "u"}
EFFECTS = Collection("effects", "effect_id", {"job_id": "text"}, indexes=(("job_id",),))
KINDS, LEASE = [f"tick-{number}" for number in range(10)], timedelta(seconds=1)
PERIODS = {True: timedelta(seconds=0.2), False: timedelta(seconds=2)}
"""On the embedded store, and elsewhere. A job that lapsed is taken when no other is due: there must be such moments."""
SIZES = {"full": (64, 200, 100, 1_000), "quick": (16, 50, 40, 150), "tiny": (8, 10, 20, 40)}
"""Writers, appends of each, requests at once, ticks."""
WORKERS, STOPPED_SECONDS, STOPS_AT, TRIES = 4, 3.0, 10, 3_000
PATIENCE_SECONDS = 30
"""Of a store call: what waits here waits for its turn, and nobody is to be refused."""


# --- Over HTTP --------------------------------------------------------------------------------------------------------


class Clients:
    """Of all services: each call goes to the next one."""

    def __init__(self, clients: Sequence[httpx.AsyncClient]) -> None:
        self._clients, self._turn = clients, 0

    def __call__(self) -> httpx.AsyncClient:
        self._turn += 1
        return self._clients[self._turn % len(self._clients)]


async def http(ports: Sequence[int], writers: int, appends: int, at_once: int) -> dict[str, dict[str, Any]]:
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=100)
    async with AsyncExitStack() as stack:
        clients = [httpx.AsyncClient(base_url=f"http://127.0.0.1:{p}", timeout=120, limits=limits) for p in ports]
        client = Clients([await stack.enter_async_context(one) for one in clients])
        return {
            "appends": {"servers": len(ports), **await append(client, writers, appends)},
            "conditional": await conditional(client, at_once),
            "idempotent": await idempotent(client, at_once),
        }


async def append(client: Clients, writers: int, appends: int) -> dict[str, Any]:
    path = "/v1/sessions/race/messages"

    async def write(writer: int) -> int:
        refused = 0
        for number in range(appends):
            body = {**PAIR, "memorize": "none", "messages": [{"role": "user", "content": f"{writer} {number}"}]}
            refused += (await client().post(path, json=body)).status_code != 201
        return refused

    started = time.perf_counter()
    refused = sum(await asyncio.gather(*(write(writer) for writer in range(writers))))
    seconds = time.perf_counter() - started
    seqs: list[int] = []
    said: dict[str, list[int]] = defaultdict(list)
    after = 0
    while items := (await client().get(path, params={"after_seq": after, "limit": 100})).json()["items"]:
        after = items[-1]["seq"]
        for item in items:
            seqs.append(item["seq"])
            writer, number = item["content"].split()
            said[writer].append(int(number))
    return {
        "sent": writers * appends,
        "refused": refused,
        "present": len(seqs),
        "gaps": sum(one != wanted for one, wanted in zip(seqs, range(1, len(seqs) + 1), strict=True)),
        "writers out of order": sum(numbers != list(range(appends)) for numbers in said.values()),
        "per second": round(writers * appends / seconds),
        "ok": not refused
        and seqs == list(range(1, writers * appends + 1))
        and all(numbers == list(range(appends)) for numbers in said.values()),
    }


async def conditional(client: Clients, at_once: int) -> dict[str, Any]:
    made = await client().post("/v1/tasks", json={"task_id": "race", **PAIR, "goal": "win"})
    headers = {"If-Match": made.headers["etag"]}

    async def write(number: int) -> tuple[int, int]:
        answer = await client().patch("/v1/tasks/race/context", json={"winner": number}, headers=headers)
        return answer.status_code, number

    answers = await asyncio.gather(*(write(number) for number in range(at_once)))
    winners = [number for status, number in answers if status == 200]
    statuses = Counter(status for status, _ in answers)
    task = (await client().get("/v1/tasks/race")).json()
    return {
        "sent": at_once,
        "statuses": {str(status): number for status, number in sorted(statuses.items())},
        "ok": statuses == {200: 1, 412: at_once - 1}
        and task["context"] == {"winner": winners[0]}
        and task["version"] == made.json()["version"] + 1,
    }


async def idempotent(client: Clients, at_once: int) -> dict[str, Any]:
    headers = {"Idempotency-Key": uuid4().hex}
    body = {**PAIR, "content": "one effect", "deduplicate": False}

    async def write() -> tuple[int, str]:
        while True:
            answer = await client().post("/v1/memories", json=body, headers=headers)
            if answer.status_code != 409:  # under way: asked to come again
                return answer.status_code, answer.json().get("memory_id", "")
            await asyncio.sleep(0.05)

    answers = await asyncio.gather(*(write() for _ in range(at_once)))
    held = (await client().get("/v1/memories", params={"user_id": "u", "limit": 100})).json()["items"]
    effects = sum(item["content"] == "one effect" for item in held)
    return {"sent": at_once, "effects": effects, "ok": effects == 1 and len(set(answers)) == 1 and answers[0][0] == 201}


# --- Between processes ------------------------------------------------------------------------------------------------


def _period() -> timedelta:
    return PERIODS[Settings().store.get_secret_value() == EMBEDDED]


async def _opened(directory: Path) -> Store:
    settings = Settings(data_dir=directory)
    where = StoreLocation(
        store=settings.store.get_secret_value(),
        directory=directory,
        database=settings.mongodb.database,
        exact_up_to=settings.mongodb.exact_up_to,
        deadline_seconds=PATIENCE_SECONDS,
        busy_timeout_ms=PATIENCE_SECONDS * 1000,
        cache_bytes=settings.cache_bytes,
    )
    return await open_store(where, (JOBS, SCHEDULES, EFFECTS), dim=1)


async def worker(directory: Path, *, stops: bool) -> None:
    """One process; prints how many leases it lost."""
    running.POLL_SECONDS = 0.01
    store = await _opened(directory)
    ran = 0

    async def tick(run: Run) -> Done:
        nonlocal ran
        ran += 1
        job_id = run.lease.doc["job_id"]
        is_new = not await run.store.count(EFFECTS, SYSTEM, Eq("job_id", job_id))  # one that was cut short goes on
        if stops and ran == STOPS_AT:
            os.kill(os.getpid(), signal.SIGSTOP)  # between looking and writing, where it hurts
        if is_new:
            await run.commit([Insert(EFFECTS, _effect(run, job_id))])
        return Done({})

    schedules = Schedules(store, SystemClock(), dict.fromkeys(KINDS, _period()))
    task = asyncio.create_task(Runner(store, SystemClock(), dict.fromkeys(KINDS, tick), schedules, LEASE).run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with suppress(asyncio.CancelledError):
        await task
    await store.close()
    lost = sum(JOB_RUNS.labels(kind, "lease_lost")._value.get() for kind in KINDS)
    print(json.dumps({"ran": ran, "lease_lost": int(lost)}))


def _effect(run: Run, job_id: str) -> dict[str, Any]:
    return {
        "tenant_id": SYSTEM,
        "effect_id": uuid4().hex,
        "job_id": job_id,
        "kind": run.lease.doc["kind"],
        "ticked_at": run.lease.doc["created_at"],
        "pid": os.getpid(),
        "created_at": rfc3339(run.clock.now()),
    }


async def jobs(directory: Path, ticks: int) -> dict[str, Any]:
    store = await _opened(directory)
    workers = [_start(directory, "--stops" if number == 0 else "--works") for number in range(WORKERS)]
    try:
        stopped = await _stop_and_continue(workers[0], store)
        for _ in range(TRIES):
            if await store.count(EFFECTS, SYSTEM) >= ticks:
                break
            await asyncio.sleep(0.2)
    finally:
        for process in workers:
            process.terminate()
        told = [json.loads(process.communicate(timeout=30)[0] or "{}") for process in workers]
    report = await _counted(store)
    await store.close()
    lost = told[0].get("lease_lost", 0)
    ok = not report["doubles"] and not report["double ticks"] and report["done"] >= ticks and lost >= 1
    shown = {"workers": WORKERS, "stopped s": stopped, **report, "stale tokens refused": lost}
    return {**shown, "ran": [one.get("ran") for one in told], "ok": ok and not report["unaccounted"]}


def _start(directory: Path, how: str) -> "subprocess.Popen[str]":
    command = [sys.executable, str(Path(__file__).resolve()), how, "--directory", str(directory)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


async def _stop_and_continue(process: "subprocess.Popen[str]", store: Store) -> float:
    """Seconds for which it stood still: some, and until another worker took its job."""
    for _ in range(TRIES):
        if _state(process) == "T":
            break
        await asyncio.sleep(0.02)
    started = time.perf_counter()
    lapsed = {doc["job_id"] for doc in await store.find(JOBS, SYSTEM, Eq("status", "running"), limit=100)}
    await asyncio.sleep(STOPPED_SECONDS)
    for _ in range(TRIES):
        if not await _still_held(store, lapsed):
            break
        await asyncio.sleep(0.02)
    process.send_signal(signal.SIGCONT)
    stopped = time.perf_counter() - started
    await asyncio.sleep(1)
    return round(stopped, 1)


async def _still_held(store: Store, jobs: set[str]) -> bool:
    docs = [await store.get(JOBS, SYSTEM, job_id) for job_id in jobs]
    return any(doc is not None and doc["status"] == "running" and not doc["attempts"] for doc in docs)


def _state(process: "subprocess.Popen[str]") -> str:
    """Linux's letter for what it does; T: stopped."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


async def _counted(store: Store) -> dict[str, int]:
    effects = await store.find(EFFECTS, SYSTEM, limit=1_000_000)
    left = await store.find(JOBS, SYSTEM, limit=1_000_000)
    origin = {doc["name"]: to_ms(parse_rfc3339(doc["next_run"])) for doc in await store.find(SCHEDULES, SYSTEM)}
    period = _period() // timedelta(milliseconds=1)
    done = {doc["job_id"]: doc for doc in effects}
    beats = Counter((doc["kind"], (to_ms(doc["ticked_at"]) - origin[doc["kind"]]) // period) for doc in done.values())
    return {
        "done": len(done),
        "doubles": len(effects) - len(done),
        "double ticks": sum(number - 1 for number in beats.values()),
        "unaccounted": sum(doc["status"] not in ("queued", "running") for doc in left),
    }


# --- All of it --------------------------------------------------------------------------------------------------------


@contextmanager
def own_database(uri: str) -> Iterator[None]:
    """What is started within works on a new database of that store, if it is MongoDB."""
    name = f"recalld_race_{uuid4().hex[:12]}"
    given = {"RECALLD_STORE": uri, "RECALLD_MONGODB_DATABASE": name}
    os.environ.update(given, RECALLD_MONGODB_DEADLINE_SECONDS=str(PATIENCE_SECONDS))
    try:
        yield
    finally:
        if uri != EMBEDDED:
            with MongoClient[dict[str, Any]](uri) as client:
                client.drop_database(name)


def races(directory: Path, uri: str, servers: int, size: str) -> dict[str, dict[str, Any]]:
    writers, appends, at_once, ticks = SIZES[size]
    with own_database(uri), ExitStack() as stack, ThreadPoolExecutor(servers) as pool:
        # all at once: they race for making the store, too
        started = [recalld(directory / "http") for _ in range(servers)]
        ports = [server.port for server in pool.map(stack.enter_context, started)]
        report = asyncio.run(http(ports, writers, appends, at_once))
    with own_database(uri):
        report["jobs"] = asyncio.run(jobs(directory / "jobs", ticks))
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", dest="size", action="store_const", const="quick", help="a tenth of everything")
    size.add_argument("--tiny", dest="size", action="store_const", const="tiny", help="what the test suite runs")
    parser.add_argument("--store", default=EMBEDDED, metavar="URI", help="as RECALLD_STORE (default: %(default)s)")
    parser.add_argument("--servers", type=int, help="services on the store (default: 4 on MongoDB, otherwise 1)")
    parser.add_argument("--works", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--stops", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.works or given.stops:
        asyncio.run(worker(given.directory, stops=given.stops))
        return 0
    with tempfile.TemporaryDirectory(prefix="recalld-race-", ignore_cleanup_errors=True) as path:
        servers = given.servers or (1 if given.store == EMBEDDED else 4)
        report = races(Path(path), given.store, servers, given.size or "full")
    if given.json:
        print(json.dumps(report, indent=2))
    else:
        for name, figures in report.items():
            print(f"{name:12} {'ok  ' if figures['ok'] else 'FAIL'} ", end="")
            print("; ".join(f"{key} {value}" for key, value in figures.items() if key != "ok"))
    return 0 if all(figures["ok"] for figures in report.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
