"""What runs by the clock: one tick, one job."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from app.core.clock import parse_rfc3339
from app.errors import StoreUnavailable
from app.jobs.queue import JOBS, SCHEDULES, Queue, ScheduleRecord
from app.jobs.runner import Schedules
from app.storage.protocol import Store
from app.storage.schema import Collection, R
from app.storage.scope import SYSTEM
from tests.conftest import TurnedClock
from tests.jobs.conftest import taken
from tests.support.stores import Open

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


@pytest.fixture
def schedules(store: Store, clock: TurnedClock) -> Schedules:
    return Schedules(store, clock, {"work": HOUR})


async def schedule(store: Store) -> ScheduleRecord:
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


class StandsStill:
    """A store whose reader stands still before it reads, while another process works off ticks."""

    def __init__(self, inner: Store, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._inner, self._meanwhile = inner, meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get(self, collection: Collection[R], tenant: str, doc_id: str) -> R | None:
        await self._meanwhile()
        return await self._inner.get(collection, tenant, doc_id)


async def test_a_process_that_stood_still_takes_no_tick_that_another_has_worked_off(
    store: Store, schedules: Schedules, queue: Queue, clock: TurnedClock
) -> None:
    async def ticks_of_another() -> None:
        for _ in range(4):
            assert await schedules.tick() == 1
            await (await taken(queue)).done([])
            clock.move(hours=1)
        clock.move(minutes=-30)

    stood_still = Schedules(StandsStill(store, ticks_of_another), clock, {"work": HOUR})
    assert await stood_still.tick() == 0
    assert clock.now() < parse_rfc3339((await schedule(store))["next_run"]) <= clock.now() + HOUR


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


class Looking:
    """A look that says what it is told to, and counts."""

    def __init__(self, *, finds: bool) -> None:
        self.finds, self.looks = finds, 0

    async def __call__(self) -> bool:
        self.looks += 1
        return self.finds


async def test_a_job_without_work_is_neither_queued_nor_noted_until_a_look_finds_some(
    store: Store, clock: TurnedClock
) -> None:
    look = Looking(finds=False)
    schedules = Schedules(store, clock, {"work": HOUR}, {"work": look})
    for looks in range(1, 4):
        assert [await schedules.tick() for _ in range(3)] == [0, 0, 0]
        assert look.looks == looks, "one look a period"
        clock.move(hours=1)
    assert (await store.count(JOBS, SYSTEM), await store.get(SCHEDULES, SYSTEM, "work")) == (0, None)
    look.finds = True
    assert [await schedules.tick() for _ in range(3)] == [1, 0, 0]
    assert await store.count(JOBS, SYSTEM) == 1


async def test_a_look_that_fails_counts_as_work(store: Store, clock: TurnedClock) -> None:
    async def broken() -> bool:
        raise ValueError("a bug of ours")

    assert await Schedules(store, clock, {"work": HOUR}, {"work": broken}).tick() == 1


async def test_a_look_that_finds_the_store_away_is_made_again(store: Store, clock: TurnedClock) -> None:
    outcomes = [StoreUnavailable("away"), None]

    async def look() -> bool:
        fault = outcomes.pop(0)
        if fault is not None:
            raise fault
        return True

    schedules = Schedules(store, clock, {"work": HOUR}, {"work": look})
    with pytest.raises(StoreUnavailable):
        await schedules.tick()
    assert await schedules.tick() == 1


async def test_a_process_whose_look_was_early_sees_the_run_of_another_and_keeps_the_beat(
    store: Store, queue: Queue, clock: TurnedClock
) -> None:
    look = Looking(finds=False)
    mine, other = Schedules(store, clock, {"work": HOUR}, {"work": look}), Schedules(store, clock, {"work": HOUR})
    assert [await mine.tick(), await other.tick()] == [0, 1]
    await (await taken(queue)).done([])
    look.finds = True
    clock.move(minutes=30)
    assert [await mine.tick(), await other.tick()] == [0, 0]
    clock.move(minutes=31)
    assert [await mine.tick(), await other.tick()] == [1, 0]


async def test_a_clock_that_was_set_back_parks_nothing(store: Store, queue: Queue, clock: TurnedClock) -> None:
    look = Looking(finds=False)
    schedules = Schedules(store, clock, {"work": HOUR}, {"work": look})
    await schedules.tick()
    look.finds = True
    for _ in range(3):  # first with a look in memory, then with a run in the store
        clock.move(days=-3)
        assert [await schedules.tick() for _ in range(3)] == [1, 0, 0]
        await (await taken(queue)).done([])


async def test_a_period_that_was_made_shorter_holds_at_once(store: Store, queue: Queue, clock: TurnedClock) -> None:
    await Schedules(store, clock, {"work": 24 * HOUR}).tick()
    await (await taken(queue)).done([])
    clock.move(minutes=1)
    assert await Schedules(store, clock, {"work": HOUR}).tick() == 1


async def test_the_next_look_says_how_long_to_sleep(store: Store, clock: TurnedClock) -> None:
    schedules = Schedules(store, clock, {"work": HOUR, "rest": 2 * HOUR}, {"work": Looking(finds=False)})
    assert schedules.seconds_to_next() == math.inf
    await schedules.tick()
    assert schedules.seconds_to_next() == pytest.approx(3_600, abs=1)
    clock.move(hours=1)
    assert schedules.seconds_to_next() == pytest.approx(3_600, abs=1)


async def test_all_are_shown_with_what_came_of_them(store: Store, schedules: Schedules, clock: TurnedClock) -> None:
    (unborn,) = await schedules.all()
    soon = unborn["next_run"]
    assert unborn == {
        "name": "work",
        "schedule": "every 3600 s",
        "last_run": None,
        "next_run": soon,
        "outcome": None,
    }
    assert soon is not None
    assert clock.now() < parse_rfc3339(soon) <= clock.now() + HOUR
    await schedules.tick()
    ran = schedules.ran("work", "succeeded")
    assert ran is not None
    await store.commit([ran])
    (shown,) = await schedules.all()
    assert shown["outcome"] == "succeeded"
    assert (shown["last_run"] or "") < (shown["next_run"] or "")
    assert schedules.ran("forget", "succeeded") is None


async def test_the_next_run_that_is_shown_lies_ahead(store: Store, schedules: Schedules, clock: TurnedClock) -> None:
    await schedules.tick()
    noted = parse_rfc3339((await schedule(store))["next_run"])
    clock.move(hours=5)  # nothing was to do
    (shown,) = await schedules.all()
    next_run = parse_rfc3339(shown["next_run"] or "")
    assert next_run - clock.now() < HOUR
    assert (next_run - noted) % HOUR == timedelta(0)
