"""What runs by the clock: one tick, one job."""

import asyncio
from datetime import timedelta

import pytest

from app.clock import parse_rfc3339
from app.jobs.models import JOBS, SCHEDULES
from app.jobs.queue import Queue
from app.jobs.schedule import Schedules
from app.storage.collection import Doc, Store
from app.storage.scope import SYSTEM
from tests.conftest import TurnedClock
from tests.jobs.conftest import taken
from tests.stores import Open

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


@pytest.fixture
def schedules(store: Store, clock: TurnedClock) -> Schedules:
    return Schedules(store, clock, {"work": HOUR})


async def schedule(store: Store) -> Doc:
    doc = await store.get(SCHEDULES, SYSTEM, "work")
    assert doc is not None
    return doc


async def test_the_first_tick_runs_at_once_and_each_period_once(
    store: Store, schedules: Schedules, queue: Queue, clock: TurnedClock
) -> None:
    assert [await schedules.tick() for _ in range(3)] == [1, 0, 0]
    for _ in range(5):
        await (await taken(queue)).done([])
        clock.move(hours=1)
        assert [await schedules.tick() for _ in range(3)] == [1, 0, 0]


async def test_one_tick_is_one_job_however_many_look(open_store: Open, clock: TurnedClock) -> None:
    stores = [await open_store() for _ in range(3)]
    for _ in range(20 if stores[0].name == "embedded" else 5):
        tickers = [Schedules(store, clock, {"work": HOUR}) for store in stores for _ in range(8)]
        made = await asyncio.gather(*(ticker.tick() for ticker in tickers))
        assert sum(made) == 1
        assert await stores[0].count(JOBS, SYSTEM) == 1
        await (await taken(Queue(stores[0], clock))).done([])
        clock.move(hours=1)


async def test_after_an_outage_one_run_catches_up_and_the_beat_is_kept(
    store: Store, schedules: Schedules, queue: Queue, clock: TurnedClock
) -> None:
    await schedules.tick()
    beat = parse_rfc3339((await schedule(store))["next_run"])
    await (await taken(queue)).done([])
    clock.move(days=7, minutes=25)
    assert [await schedules.tick() for _ in range(3)] == [1, 0, 0]
    following = parse_rfc3339((await schedule(store))["next_run"])
    assert (following - beat) % HOUR == timedelta(0)
    assert timedelta(0) < following - clock.now() <= HOUR


async def test_a_job_that_outlasts_its_period_is_followed_not_joined(
    store: Store, schedules: Schedules, queue: Queue, clock: TurnedClock
) -> None:
    await schedules.tick()
    slow = await taken(queue)
    for _ in range(10):
        clock.move(minutes=30)
        await slow.renew()
        assert await schedules.tick() == 0
    assert await store.count(JOBS, SYSTEM) == 1
    await slow.done([])
    assert [await schedules.tick() for _ in range(2)] == [1, 0]


async def test_a_tick_that_nobody_works_off_does_not_pile_up(
    store: Store, schedules: Schedules, clock: TurnedClock
) -> None:
    for _ in range(50):
        await schedules.tick()
        clock.move(hours=1)
    assert await store.count(JOBS, SYSTEM) == 1


async def test_all_are_shown_with_what_came_of_them(store: Store, schedules: Schedules, clock: TurnedClock) -> None:
    unborn = {"name": "work", "schedule": "every 3600 s", "last_run": None, "next_run": None, "outcome": None}
    assert await schedules.all() == [unborn]
    await schedules.tick()
    ran = schedules.ran("work", "succeeded")
    assert ran is not None
    await store.commit([ran])
    (shown,) = await schedules.all()
    assert shown["outcome"] == "succeeded"
    assert shown["last_run"] < shown["next_run"]
    assert schedules.ran("forget", "succeeded") is None
