"""Transactions whose connection was cut: nothing stays locked, and nothing of them arrives later."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest

from app.errors import StoreUnavailable
from app.storage.changes import Allocate
from app.storage.mongo.store import MongoOptions, MongoStore
from tests.support.declared import DIM, NUMBERED, THINGS, T, thing
from tests.support.mongodb import Deployment, SecantusDB
from tests.support.proxy import Mode, Proxy, proxying

pytestmark = pytest.mark.anyio

DEADLINE = 2.0


@pytest.fixture
def proxy(mongodb: Deployment) -> Iterator[Proxy]:
    if not isinstance(mongodb, SecantusDB):
        pytest.skip("a deployment that was named is not put behind a proxy")
    with proxying(mongodb.port) as made:
        yield made


@pytest.fixture
async def store(proxy: Proxy, mongodb_database: str, anyio_backend: str) -> AsyncIterator[MongoStore]:
    uri = f"mongodb://127.0.0.1:{proxy.port}/?directConnection=true"
    options = MongoOptions(database=mongodb_database, deadline_seconds=DEADLINE)
    made = await opened(uri, options)
    yield made
    await made.close()


async def opened(uri: str, options: MongoOptions) -> MongoStore:
    """Opens the store. A busy machine may need several times the short deadline of these tests."""
    for _ in range(60):
        with suppress(StoreUnavailable):
            return await MongoStore.open(uri, (THINGS, NUMBERED), options, dim=DIM)
    raise AssertionError("the store cannot be opened")


async def numbers(store: MongoStore, at_once: int) -> int:
    """Commits that each want the same counter; how many of them were done."""
    wanted = [store.commit([Allocate("c", T), thing()]) for _ in range(at_once)]
    outcomes = await asyncio.gather(*wanted, return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert all(isinstance(outcome, StoreUnavailable) for outcome in refused), refused
    return at_once - len(refused)


@pytest.mark.parametrize("mode", [Mode.REFUSE, Mode.RESET, Mode.BLACKHOLE], ids=lambda mode: mode.name)
async def test_what_a_cut_off_transaction_held_is_free_soon_after(store: MongoStore, proxy: Proxy, mode: Mode) -> None:
    await numbers(store, 1)
    for delay in (0.004, 0.008, 0.012):  # somewhere between its first statement and its commit
        proxy.mode = Mode.PASS
        writing = asyncio.create_task(numbers(store, 4))
        await asyncio.sleep(delay)
        await asyncio.to_thread(setattr, proxy, "mode", mode)
        await writing
        await asyncio.to_thread(setattr, proxy, "mode", Mode.PASS)
        started = time.perf_counter()
        while not await numbers(store, 1):
            assert time.perf_counter() - started < 45, "MongoDB gives it up by itself after a minute"
    await asyncio.sleep(0.1)  # nothing comes in late, either
    committed = await store.commit([Allocate("c", T)])
    assert committed.allocated["c"] == await store.count(THINGS, T) + 1, "one number for each thing, no gap"


async def test_while_the_server_is_away_nothing_piles_up(store: MongoStore, proxy: Proxy) -> None:
    await asyncio.to_thread(setattr, proxy, "mode", Mode.REFUSE)
    assert await numbers(store, 30) == 0
    assert len(store._runner._abandoned._sessions) <= 2
    await asyncio.to_thread(setattr, proxy, "mode", Mode.PASS)
    for _ in range(1_200):
        if not store._runner._abandoned._sessions:
            break
        await asyncio.sleep(0.05)
    assert not store._runner._abandoned._sessions
    assert await numbers(store, 3) == 3
