"""The service while its MongoDB is away, slow or cut off in the middle of a word: never a false answer.

Over real HTTP, and the real wire through a proxy. What was acknowledged is found afterwards; what was refused is there
at most once, and once when it had an idempotency key and was tried again; refusals come while the fault lasts and say
when to come again; the process stays alive, says that it is not ready, and works again afterwards. No time is measured:
a fault lasts until it was felt, and only what takes more than a minute has failed. The checks are themselves checked:
on services with a planted bug they must find it.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from tests.support.load import Book, Load, check, retry_unanswered
from tests.support.mongodb import SecantusDB, start_mongodb
from tests.support.proxy import Blinking, Mode, Proxy, proxying
from tests.support.server import Server, recalld, serving

pytestmark = [pytest.mark.slow, pytest.mark.anyio]

DEADLINE = 2.0
"""Seconds that a request waits for the store."""
HANGS_SECONDS = 60
ANSWERS = 30
"""So many answers of any kind, and so many health checks, does a fault last at least."""
SERVE = ("-m", "tests.support.serve")


@dataclass
class Bench:
    """A service, its database, and the wire between them."""

    server: Server
    database: SecantusDB
    proxy: Proxy
    settings: dict[str, str]

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.server.client.base_url, timeout=HANGS_SECONDS)


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


Felt = Callable[[int, int, Seen], bool]
"""Of the refusals and the acknowledgements since a fault began."""


def refused(refusals: int, acknowledged: int, seen: Seen) -> bool:
    """Writers and readiness felt the fault, while it lasted."""
    return refusals >= 8 and 503 in seen.ready and len(seen.alive) >= ANSWERS


def answered(refusals: int, acknowledged: int, seen: Seen) -> bool:
    """Enough was done for a fault that nobody need feel."""
    return refusals + acknowledged >= ANSWERS and len(seen.alive) >= ANSWERS


async def watch(client: httpx.AsyncClient, book: Book, felt: Felt) -> Seen:
    """Asks for health until the fault was felt."""
    seen, refusals, acknowledgements = Seen(), book.refused, book.acknowledged

    def ended() -> bool:
        return felt(book.refused - refusals, book.acknowledged - acknowledgements, seen)

    async def ask(path: str, codes: list[int]) -> None:
        while not ended():
            answer = await client.get(path)
            codes.append(answer.status_code)
            assert answer.status_code == 200 or answer.headers["retry-after"]
            await asyncio.sleep(0.1)

    async with asyncio.timeout(2 * HANGS_SECONDS):
        await asyncio.gather(ask("/livez", seen.alive), ask("/readyz", seen.ready))
    return seen


async def until_recovered(client: httpx.AsyncClient) -> None:
    """It is ready, remembers and recalls."""
    hangs = time.monotonic() + HANGS_SECONDS
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
            assert time.monotonic() < hangs, "it never recovered"
            await asyncio.sleep(0.05)


async def acknowledged(book: Book, more: int, kind: str | None = None) -> None:
    """So many more writes, of a kind or of any."""

    def number() -> int:
        return book.acknowledged if kind is None else book.report.counts[kind]

    wanted = number() + more
    async with asyncio.timeout(HANGS_SECONDS):
        while number() < wanted:  # noqa: ASYNC110 (many callers write it)
            await asyncio.sleep(0.01)


async def suffer(
    bench: Bench,
    begin: Callable[[], object],
    end: Callable[[], object],
    felt: Felt = refused,
    *,
    retried: bool = True,
) -> tuple[Book, Seen]:
    """Writers before, while and after a fault that lasts until it was `felt`; what was answered, and what health checks
    said meanwhile."""
    async with bench.client() as client:
        load = Load(client, uuid4().hex)
        load.start()
        await acknowledged(load.book, 8)
        await acknowledged(load.book, 1, "memories")
        await asyncio.to_thread(begin)
        seen = await watch(client, load.book, felt)
        await asyncio.to_thread(end)
        await until_recovered(client)
        await acknowledged(load.book, 4)
        book = await load.end()
        if retried:
            await retry_unanswered(client, book)
        await check(client, book)
    return book, seen


def judge(book: Book, seen: Seen) -> None:
    figures = {**book.figures(), "seen": seen}
    assert not book.report.faults, (book.report.details, figures)
    assert set(seen.alive) == {200}, figures


def turning(bench: Bench, mode: Mode) -> tuple[Callable[[], None], Callable[[], None]]:
    """How a fault of the wire begins, and how it ends."""

    def turn(to: Mode) -> Callable[[], None]:
        return lambda: setattr(bench.proxy, "mode", to)

    return turn(mode), turn(Mode.PASS)


@pytest.mark.parametrize("mode", [Mode.REFUSE, Mode.RESET, Mode.DELAY, Mode.BLACKHOLE], ids=lambda mode: mode.name)
async def test_a_database_that_is_away_costs_nothing_but_time(good: Bench, mode: Mode) -> None:
    book, seen = await suffer(good, *turning(good, mode))
    judge(book, seen)
    assert 200 not in seen.ready, seen
    if mode in (Mode.DELAY, Mode.BLACKHOLE):  # a loop that waited for the store would answer both as often
        assert len(seen.alive) > 2 * len(seen.ready), seen


async def test_a_connection_that_breaks_now_and_then_costs_nothing(good: Bench) -> None:
    """Here some writes succeed after they were tried again, below us or by us: they must have happened once."""
    judge(*await suffer(good, *turning(good, Mode.FLAKY), answered))


async def test_replies_that_are_lost_in_bursts_cost_nothing(good: Bench) -> None:
    """Here commits are done and not answered, again and again, and asked for anew a moment later."""
    blinking = Blinking(good.proxy, Mode.RESET)
    judge(*await suffer(good, blinking.begin, blinking.end, answered))


async def test_a_database_that_is_killed_and_started_again_has_everything(good: Bench) -> None:
    judge(*await suffer(good, good.database.kill, good.database.start))


async def test_a_database_that_hangs_is_as_one_that_is_away(good: Bench) -> None:
    judge(*await suffer(good, good.database.pause, good.database.resume))


async def test_the_store_is_whole_after_all_that(good: Bench) -> None:
    doctor = recalld(good.server.data_dir, "doctor", **good.settings)
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr


# --- The checks, checked ----------------------------------------------------------------------------------------------


async def test_the_checks_find_a_service_that_acknowledges_before_it_has_committed(tmp_path: Path) -> None:
    with bench(tmp_path, "hasty") as planted:
        book, _ = await suffer(planted, planted.database.kill, planted.database.start, retried=False)
    assert book.report.faults["lost"] > 0, book.figures()


async def test_the_checks_find_a_service_that_does_again_what_may_have_been_done(tmp_path: Path) -> None:
    with bench(tmp_path, "blind") as planted:
        book, _ = await suffer(planted, *turning(planted, Mode.PASS), answered, retried=False)
    assert book.report.faults["duplicate"] > 0, book.figures()
