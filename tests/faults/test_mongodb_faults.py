"""The service while its MongoDB is away, slow or cut off in the middle of a word: never a false answer.

Over real HTTP, and the real wire through a proxy. What was acknowledged is found afterwards; what was refused is there
at most once, and once when it had an idempotency key and was tried again; refusals come in time and say when to come
again; the process stays alive, says that it is not ready, and works again within seconds. The checks are themselves
checked: on services with a planted bug they must find it.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from uuid import uuid4

import httpx
import pytest

from tests.faults.proxy import Blinking, Mode, Proxy, proxying
from tests.faults.writing import Book, Load, check, settle
from tests.mongodb import SecantusDB, start_mongodb
from tests.server import Server, recalld, serving

pytestmark = [pytest.mark.slow, pytest.mark.anyio]

DEADLINE = 2.0
ANSWER_SECONDS = DEADLINE + 1.5
"""Of refusals, as a rule: the deadline is the request's, for all that it waits for the store (2.1 s in all, on a
machine that has time)."""
LONGEST_SECONDS = DEADLINE + 10
"""A request may wait for its embedding too, on a machine that does much else."""
FAULT_SECONDS = DEADLINE + 2.5
RECOVERY_SECONDS = 5.0
SERVE = ("-m", "tests.faults.serve")


@dataclass
class Bench:
    """A service, its database, and the wire between them."""

    server: Server
    database: SecantusDB
    proxy: Proxy
    settings: dict[str, str]

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.server.client.base_url, timeout=60)


@contextmanager
def bench(directory: Path, *planted: str) -> Iterator[Bench]:
    with start_mongodb(directory / "mongodb") as database, proxying(database.port) as proxy:
        settings = {
            "RECALLD_STORE": f"mongodb://127.0.0.1:{proxy.port}/?directConnection=true",
            "RECALLD_MONGODB_DEADLINE_SECONDS": str(DEADLINE),
            "RECALLD_LOG_LEVEL": "warning",
        }
        with serving(directory / "data", (*SERVE, *planted), **settings) as server:
            yield Bench(server, database, proxy, settings)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench(tmp_path_factory.mktemp("faults")) as made:
        yield made


@dataclass
class Seen:
    """What health checks were told while the fault lasted."""

    alive: list[int] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    alive_seconds: list[float] = field(default_factory=list)
    ready_seconds: list[float] = field(default_factory=list)


async def watch(client: httpx.AsyncClient, seconds: float) -> Seen:
    seen, ends = Seen(), time.perf_counter() + seconds

    async def ask(path: str, codes: list[int], took: list[float]) -> None:
        while time.perf_counter() < ends:
            started = time.perf_counter()
            answer = await client.get(path)
            took.append(time.perf_counter() - started)
            if time.perf_counter() < ends:
                codes.append(answer.status_code)
            assert answer.status_code == 200 or answer.headers["retry-after"]
            await asyncio.sleep(0.1)

    await asyncio.gather(ask("/livez", seen.alive, seen.alive_seconds), ask("/readyz", seen.ready, seen.ready_seconds))
    return seen


async def until_recovered(client: httpx.AsyncClient) -> float:
    """Seconds until it is ready, remembers and recalls."""
    started = time.perf_counter()
    mine = {"agent_id": "recovery", "user_id": uuid4().hex}
    wanted = [
        lambda: client.get("/readyz"),
        lambda: client.post("/v1/memories", json={**mine, "content": "likes tea"}),
        lambda: client.post("/v1/memories/search", json={**mine, "query": "tea"}),
    ]
    while wanted:
        if (await wanted[0]()).is_success:
            wanted.pop(0)
        else:
            assert time.perf_counter() - started < 60, "it never recovered"
            await asyncio.sleep(0.05)
    return time.perf_counter() - started


Felt = tuple[Book, Seen, float]


async def suffer(bench: Bench, begin: Callable[[], object], end: Callable[[], object], retried: bool = True) -> Felt:
    """Writers before, while and after; what was answered, what health checks said, seconds to recover."""
    async with bench.client() as client:
        load = Load(client, uuid4().hex)
        load.start()
        await asyncio.sleep(0.7)
        await asyncio.to_thread(begin)
        seen = await watch(client, FAULT_SECONDS)
        await asyncio.to_thread(end)
        recovery = await until_recovered(client)
        await asyncio.sleep(0.3)
        book = await load.end()
        if retried:
            await settle(client, book)
        await check(client, book)
    return book, seen, recovery


def judge(book: Book, seen: Seen, recovery: float) -> None:
    figures = {**book.figures(), "recovery s": round(recovery, 2), "seen": seen}
    assert not book.report.faults, (book.report.details, figures)
    assert book.acknowledged > 5, figures
    assert not book.refusals or median(book.refusals) < ANSWER_SECONDS, figures
    assert book.slowest < LONGEST_SECONDS, figures
    assert recovery < RECOVERY_SECONDS, figures
    assert set(seen.alive) == {200}, figures
    assert median(seen.alive_seconds) < DEADLINE / 2, figures  # a loop that waited for the store would take longer


def turning(bench: Bench, mode: Mode) -> tuple[Callable[[], None], Callable[[], None]]:
    """How a fault of the wire begins, and how it ends."""

    def turn(to: Mode) -> Callable[[], None]:
        return lambda: setattr(bench.proxy, "mode", to)

    return turn(mode), turn(Mode.PASS)


@pytest.mark.parametrize("mode", [Mode.REFUSE, Mode.RESET, Mode.DELAY, Mode.BLACKHOLE], ids=lambda mode: mode.name)
async def test_a_database_that_is_away_costs_nothing_but_time(good: Bench, mode: Mode) -> None:
    book, seen, recovery = await suffer(good, *turning(good, mode))
    judge(book, seen, recovery)
    assert book.refused > 0, "the fault was felt"
    assert 503 in seen.ready, seen
    assert 200 not in seen.ready[1:], seen  # the first may have been under way before
    assert max(seen.ready_seconds) < LONGEST_SECONDS


async def test_a_connection_that_breaks_now_and_then_costs_nothing(good: Bench) -> None:
    """Here some writes succeed after they were tried again, below us or by us: they must have happened once."""
    judge(*await suffer(good, *turning(good, Mode.FLAKY)))


async def test_replies_that_are_lost_in_bursts_cost_nothing(good: Bench) -> None:
    """Here commits are done and not answered, again and again, and asked for anew a moment later."""
    blinking = Blinking(good.proxy, Mode.RESET)
    judge(*await suffer(good, blinking.begin, blinking.end))


async def test_a_database_that_is_killed_and_started_again_has_everything(good: Bench) -> None:
    book, seen, recovery = await suffer(good, good.database.kill, good.database.start)
    judge(book, seen, recovery)
    assert 503 in seen.ready, seen


async def test_a_database_that_hangs_is_as_one_that_is_away(good: Bench) -> None:
    book, seen, recovery = await suffer(good, good.database.pause, good.database.resume)
    judge(book, seen, recovery)
    assert 503 in seen.ready, seen


async def test_the_store_is_whole_after_all_that(good: Bench) -> None:
    doctor = recalld(good.server.data_dir, "doctor", **good.settings)
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr


# --- The checks, checked ----------------------------------------------------------------------------------------------


async def test_the_checks_find_a_service_that_acknowledges_before_it_has_committed(tmp_path: Path) -> None:
    with bench(tmp_path, "hasty") as planted:
        book, _, _ = await suffer(planted, planted.database.kill, planted.database.start, retried=False)
    assert book.report.faults["lost"] > 0, book.figures()


async def test_the_checks_find_a_service_that_does_again_what_may_have_been_done(tmp_path: Path) -> None:
    with bench(tmp_path, "blind") as planted:
        book, _, _ = await suffer(planted, *turning(planted, Mode.PASS), retried=False)
    assert book.report.faults["duplicate"] > 0, book.figures()
