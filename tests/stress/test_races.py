"""Races over HTTP and between processes: what must happen once happens once, and nothing is lost.

Writers append to one session at once; PATCHes of one task have one If-Match; POSTs have one idempotency key; workers,
each a process with a lease of a second, work off what schedules tick, and one stops in the middle of a job, past its
lease, and goes on.
"""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from app.core.clock import parse_rfc3339, to_ms
from app.jobs.queue import JOBS, SCHEDULES
from app.settings import Settings
from app.storage.protocol import Store
from app.storage.schema import Eq
from app.storage.scope import SYSTEM
from tests.stress.race_worker import EFFECTS, PATIENCE_SECONDS, opened, period
from tests.stress.size import is_full, size
from tests.support.server import PLAIN, ROOT, Server, environment, serving

pytestmark = [pytest.mark.anyio, pytest.mark.stress]

OWNER = {"agent_id": "racer", "user_id": "u"}
WRITERS, AT_ONCE = (64, 100) if is_full() else (8, 20)
APPENDS, TICKS = size(10, 200), size(40, 1_000)
WORKERS, STOPPED_SECONDS, TRIES = 4, 3.0, 3_000


def told(settings: Settings) -> dict[str, str]:
    """What each process is told of the store."""
    return {
        "RECALLD_STORE": settings.store.get_secret_value(),
        "RECALLD_MONGODB_DATABASE": settings.mongodb.database,
        "RECALLD_MONGODB_DEADLINE_SECONDS": str(PATIENCE_SECONDS),
    }


@pytest.fixture
def given(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What each process is told of the store, and this one, too."""
    for name, value in told(settings).items():
        monkeypatch.setenv(name, value)
    return told(settings)


# --- Over HTTP --------------------------------------------------------------------------------------------------------


class Clients:
    """Of all services: each call goes to the next one."""

    def __init__(self, clients: Sequence[httpx.AsyncClient]) -> None:
        self._clients, self._turn = clients, 0

    def __call__(self) -> httpx.AsyncClient:
        self._turn += 1
        return self._clients[self._turn % len(self._clients)]


@pytest.fixture(scope="module", params=["services", "workers"])
def servers(
    request: pytest.FixtureRequest, shared_settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Server]]:
    """Four services on MongoDB, one on the embedded store. All start at once: they race for making the store.
    Then one service with four workers, on either. Started once for all races over HTTP."""
    given, folder = told(shared_settings), tmp_path_factory.mktemp("races")
    number = 1 if given["RECALLD_STORE"] == "embedded" else 4
    if request.param == "workers":
        number, given = 1, {**given, "RECALLD_WORKERS": "4", "RECALLD_LIMITS_REQUESTS_PER_SECOND": "0"}
    with ExitStack() as stack, ThreadPoolExecutor(number) as pool:
        started = [serving(folder / f"data{at}", **given) for at in range(number)]
        made = list(pool.map(stack.enter_context, started))
        while request.param == "workers" and not _all_ready(made[0]):
            time.sleep(0.1)
        yield made


@pytest.fixture
async def clients(servers: list[Server], anyio_backend: str) -> AsyncIterator[Clients]:
    """With connections of their own: one that was idle between two tests may be ended as it is used again."""
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=100)
    async with AsyncExitStack() as stack:
        made = [httpx.AsyncClient(base_url=s.client.base_url, timeout=120, limits=limits, **PLAIN) for s in servers]
        yield Clients([await stack.enter_async_context(client) for client in made])


def _all_ready(server: Server) -> bool:
    ready: str = server.client.get("/readyz").json()["checks"]["workers"]
    return ready == "4 of 4 are ready"


async def test_appends_leave_no_gap_and_keep_each_writers_order(clients: Clients) -> None:
    path = f"/v1/sessions/{uuid4().hex}/messages"  # services and workers share a database

    async def write(writer: int) -> set[int]:
        answers = set()
        for number in range(APPENDS):
            message = {"role": "user", "content": f"{writer} {number}"}
            body = {**OWNER, "memorize": "none", "messages": [message]}
            answers.add((await clients().post(path, json=body)).status_code)
        return answers

    assert set().union(*await asyncio.gather(*(write(writer) for writer in range(WRITERS)))) == {201}
    seqs: list[int] = []
    said: dict[str, list[int]] = defaultdict(list)
    while items := (await clients().get(path, params={"after_seq": len(seqs), "limit": 100})).json()["items"]:
        for item in items:
            seqs.append(item["seq"])
            writer, number = item["content"].split()
            said[writer].append(int(number))
    assert seqs == list(range(1, WRITERS * APPENDS + 1))
    assert all(numbers == list(range(APPENDS)) for numbers in said.values())


async def test_of_many_changes_of_one_version_one_is_made(clients: Clients) -> None:
    task_id = uuid4().hex
    made = await clients().post("/v1/tasks", json={"task_id": task_id, **OWNER, "goal": "win"})
    headers = {"If-Match": made.headers["etag"]}

    async def write(number: int) -> tuple[int, int]:
        answer = await clients().patch(f"/v1/tasks/{task_id}/context", json={"winner": number}, headers=headers)
        return answer.status_code, number

    answers = await asyncio.gather(*(write(number) for number in range(AT_ONCE)))
    assert Counter(status for status, _ in answers) == {200: 1, 412: AT_ONCE - 1}
    task = (await clients().get(f"/v1/tasks/{task_id}")).json()
    assert task["context"] == {"winner": next(number for status, number in answers if status == 200)}
    assert task["version"] == made.json()["version"] + 1


async def test_one_idempotency_key_has_one_effect(clients: Clients) -> None:
    headers, user = {"Idempotency-Key": uuid4().hex}, uuid4().hex
    body = {**OWNER, "user_id": user, "content": "one effect", "deduplicate": False}

    async def write() -> tuple[int, str]:
        while True:
            answer = await clients().post("/v1/memories", json=body, headers=headers)
            if answer.status_code != 409:  # under way: asked to come again
                return answer.status_code, answer.json().get("memory_id", "")
            await asyncio.sleep(0.05)

    answers = set(await asyncio.gather(*(write() for _ in range(AT_ONCE))))
    assert [status for status, _ in answers] == [201]
    stored = (await clients().get("/v1/memories", params={"user_id": user, "limit": 100})).json()["items"]
    assert [item["content"] for item in stored] == ["one effect"]


# --- Between processes ------------------------------------------------------------------------------------------------


async def test_each_tick_is_worked_off_once_even_by_a_worker_that_stood_still(
    given: dict[str, str], settings: Settings
) -> None:
    settings.data_dir.mkdir(exist_ok=True)
    store = await opened(settings.data_dir)
    workers = [start(settings.data_dir, given, *(["stops"] if number == 0 else [])) for number in range(WORKERS)]
    try:
        await stop_and_continue(workers[0], store)
        for _ in range(TRIES):
            if await store.count(EFFECTS, SYSTEM) >= TICKS:
                break
            await asyncio.sleep(0.2)
    finally:
        for process in workers:
            process.terminate()
            process.send_signal(signal.SIGCONT)  # one that still stands still would not end
        reports = [json.loads(process.communicate(timeout=90)[0] or "{}") for process in workers]
    figures = await counted(store)
    await store.close()
    assert figures["done"] >= TICKS, figures
    assert (figures["doubles"], figures["double ticks"], figures["unaccounted"]) == (0, 0, 0), figures
    assert reports[0]["lease_lost"] >= 1, f"a worker that was stopped past its lease wrote nothing more: {reports}"


def start(directory: Path, given: dict[str, str], *how: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.stress.race_worker", str(directory), *how]
    told = environment(directory, **given)
    return subprocess.Popen(command, env=told, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


async def stop_and_continue(process: "subprocess.Popen[str]", store: Store) -> None:
    """It stands still for some seconds, and until another worker took its job. Then it goes on, until it has worked off
    another tick."""

    async def stands_still() -> bool:
        return _state(process) == "T"

    await _until(stands_still, "the worker stops in the middle of a job")
    held = {doc["job_id"]: doc["token"] for doc in await store.find(JOBS, SYSTEM, Eq("status", "running"), limit=100)}
    await asyncio.sleep(STOPPED_SECONDS)

    async def taken_over() -> bool:  # each lease of a job has a token of its own
        docs = [await store.get(JOBS, SYSTEM, job_id) for job_id in held]
        return not any(doc is not None and doc["token"] == held[doc["job_id"]] for doc in docs)

    await _until(taken_over, "other workers take the jobs that were running")
    before = await _worked_off(process, store)
    process.send_signal(signal.SIGCONT)

    async def goes_on() -> bool:
        return await _worked_off(process, store) > before

    await _until(goes_on, "the worker that stood still works off another tick")


async def _until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    for _ in range(TRIES):
        if await holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"waited in vain until {what}")


async def _worked_off(process: "subprocess.Popen[str]", store: Store) -> int:
    effects = await store.find(EFFECTS, SYSTEM, limit=1_000_000)
    return sum(effect["pid"] == process.pid for effect in effects)


def _state(process: "subprocess.Popen[str]") -> str:
    """Linux's letter for what it does; T: stopped."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


async def counted(store: Store) -> dict[str, int]:
    effects = await store.find(EFFECTS, SYSTEM, limit=1_000_000)
    left = await store.find(JOBS, SYSTEM, limit=1_000_000)
    origin = {doc["name"]: to_ms(parse_rfc3339(doc["next_run"])) for doc in await store.find(SCHEDULES, SYSTEM)}
    each = period() // timedelta(milliseconds=1)
    done = {doc["job_id"]: doc for doc in effects}
    beats = Counter((doc["kind"], (to_ms(doc["ticked_at"]) - origin[doc["kind"]]) // each) for doc in done.values())
    return {
        "done": len(done),
        "doubles": len(effects) - len(done),
        "double ticks": sum(number - 1 for number in beats.values()),
        "unaccounted": sum(doc["status"] not in ("queued", "running") for doc in left),
    }
