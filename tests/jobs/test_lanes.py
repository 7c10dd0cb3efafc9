"""Lanes are worked at the same time, and a job whose worker died waits behind none of them."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

import pytest

from app.errors import StoreUnavailable
from app.jobs import runner as running
from app.jobs.queue import EMBED_PENDING, EXPIRY, LEASE, MAX_ATTEMPTS, POST_CONVERSATION, SUMMARIZE, Queue
from app.jobs.runner import Done, Run, Runner
from app.storage.protocol import Store
from app.storage.schema import Collection, Doc
from tests.conftest import TurnedClock
from tests.jobs.conftest import MakeRunner, put, taken, until
from tests.jobs.test_queue import jobs
from tests.support.stores import Wrapped

pytestmark = pytest.mark.anyio


class Jobs:
    """Handlers that note what begins and what ends. A job of a kind in `hanging` waits until the kind is let go."""

    def __init__(self, *hanging: str) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self._go = {kind: asyncio.Event() for kind in hanging}

    async def __call__(self, run: Run) -> Done:
        kind = run.lease.doc["kind"]
        self.begun.append(run.lease.doc["job_id"])
        if kind in self._go:
            await self._go[kind].wait()
        self.ended.append(run.lease.doc["job_id"])
        return Done({})

    def let_go(self, kind: str) -> None:
        self._go[kind].set()

    def handlers(self, *kinds: str) -> dict[str, Any]:
        return dict.fromkeys(kinds, self)


class Loop:
    """A runner's loop, to be stopped."""

    def __init__(self, runner: Runner) -> None:
        self._task = asyncio.create_task(runner.run())

    async def __aenter__(self) -> "Loop":
        return self

    async def __aexit__(self, *_: object) -> None:
        assert not self._task.done()
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


def true(check: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    async def checked() -> bool:
        return check()

    return checked


async def job_of(store: Store, clock: TurnedClock, kind: str) -> str:
    """The id of a new job, due later than those before it."""
    clock.move(seconds=0.001)
    before = {doc["job_id"] for doc in await jobs(store)}
    await put(store, clock, kind)
    (job_id,) = {doc["job_id"] for doc in await jobs(store)} - before
    return str(job_id)


async def lapsed(store: Store, clock: TurnedClock, kind: str) -> str:
    """The id of a new job whose worker took it and died. Every job before it must be taken or over."""
    job_id = await job_of(store, clock, kind)
    lease = await taken(Queue(store, clock))
    assert lease.doc["job_id"] == job_id
    return job_id


async def test_a_job_that_hangs_delays_its_own_lane_alone(store: Store, clock: TurnedClock, runner: MakeRunner) -> None:
    done = Jobs(POST_CONVERSATION)
    hung = await job_of(store, clock, POST_CONVERSATION)
    behind = [await job_of(store, clock, SUMMARIZE) for _ in range(3)]
    others = [await job_of(store, clock, kind) for kind in (EMBED_PENDING, EXPIRY, EXPIRY, EMBED_PENDING)]
    made = runner(**done.handlers(POST_CONVERSATION, SUMMARIZE, EMBED_PENDING, EXPIRY))
    async with Loop(made):
        await until(true(lambda: sorted(done.ended) == sorted(others)))
        assert not set(behind) & set(done.begun), "one job of a lane at once"
        done.let_go(POST_CONVERSATION)
        await until(true(lambda: set(done.ended) == {hung, *behind, *others}))
        mine = [one for one in done.ended if one not in others]
    assert mine == [hung, *behind], "in the order in which they were due"


async def test_a_lapsed_job_runs_while_its_lanes_own_job_hangs_and_a_second_one_waits(
    store: Store, clock: TurnedClock, runner: MakeRunner
) -> None:
    done = Jobs(POST_CONVERSATION, SUMMARIZE)
    dead = [await lapsed(store, clock, SUMMARIZE) for _ in range(2)]
    hung = await job_of(store, clock, POST_CONVERSATION)
    made = runner(**done.handlers(POST_CONVERSATION, SUMMARIZE, EXPIRY))
    async with Loop(made):
        await until(true(lambda: done.begun == [hung]))
        clock.move(seconds=LEASE.total_seconds() - 1)
        behind = [await job_of(store, clock, POST_CONVERSATION) for _ in range(20)]
        clock.move(seconds=2)
        await until(true(lambda: len(done.begun) > 1))
        assert done.begun == [hung, dead[0]]
        other = await job_of(store, clock, EXPIRY)
        await until(true(lambda: other in done.ended))
        assert done.begun == [hung, dead[0], other], "no more than one beside the lane's own"
        done.let_go(SUMMARIZE)
        await until(true(lambda: done.ended == [other, *dead]))
        assert not set(behind) & set(done.begun)


async def test_a_lapsed_job_goes_before_the_queue_behind_it(
    store: Store, clock: TurnedClock, runner: MakeRunner
) -> None:
    done = Jobs()
    dead = await lapsed(store, clock, POST_CONVERSATION)
    behind = [await job_of(store, clock, POST_CONVERSATION) for _ in range(20)]
    clock.move(seconds=LEASE.total_seconds())
    async with Loop(runner(**done.handlers(POST_CONVERSATION))):
        await until(true(lambda: len(done.ended) == 21))
    assert done.begun == [dead, *behind]


async def test_a_job_that_ends_its_workers_fails_though_its_lane_hangs_and_has_a_queue(
    store: Store, clock: TurnedClock, runner: MakeRunner
) -> None:
    done = Jobs(POST_CONVERSATION)
    deadly = await lapsed(store, clock, SUMMARIZE)
    for _ in range(MAX_ATTEMPTS - 1):
        clock.move(seconds=LEASE.total_seconds())
        assert (await taken(Queue(store, clock))).doc["job_id"] == deadly
    clock.move(seconds=LEASE.total_seconds())
    for _ in range(3):
        await job_of(store, clock, POST_CONVERSATION)
    async with Loop(runner(**done.handlers(POST_CONVERSATION, SUMMARIZE))):
        await until(true(lambda: len(done.begun) == 1))

        async def given_up() -> bool:
            return [doc["job_id"] for doc in await Queue(store, clock).failed()] == [deadly]

        await until(given_up)
    assert deadly not in done.begun


async def test_a_stop_hands_back_the_jobs_of_all_lanes(store: Store, clock: TurnedClock, runner: MakeRunner) -> None:
    kinds = (POST_CONVERSATION, EMBED_PENDING, EXPIRY)
    done = Jobs(*kinds)
    await lapsed(store, clock, POST_CONVERSATION)
    clock.move(seconds=LEASE.total_seconds())
    for kind in kinds:
        await job_of(store, clock, kind)
    made = runner(**done.handlers(*kinds))
    async with Loop(made):
        carried_out = await job_of(store, clock, EXPIRY)
        await made.carry_out(carried_out, 0)
        await until(true(lambda: len(done.begun) == 4))
    assert [(doc["status"], doc["leased_until"]) for doc in await jobs(store)] == [("queued", None)] * 5
    assert done.ended == []


async def test_a_job_that_finds_the_store_away_pauses_its_lane_and_no_other(
    store: Store, clock: TurnedClock, runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "FAULT_PAUSE_SECONDS", 3_600)
    done, attempts = Jobs(), []

    async def away(run: Run) -> Done:
        attempts.append(run.lease.doc["job_id"])
        raise StoreUnavailable("This one alone takes too long.")

    first = await job_of(store, clock, POST_CONVERSATION)
    others = [await job_of(store, clock, EXPIRY) for _ in range(5)]
    async with Loop(runner(**{POST_CONVERSATION: away}, **done.handlers(EXPIRY))):

        async def over() -> bool:
            return len(await jobs(store)) == 1

        await until(over)
        assert done.ended == others
        (doc,) = await jobs(store)
        assert (doc["job_id"], doc["status"], doc["attempts"]) == (first, "queued", 0)
        assert attempts == [first]


class Counted(Wrapped):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.finds = self.writes = 0

    async def find(self, collection: Collection, *given: Any, **named: Any) -> list[Doc]:
        self.finds += 1
        return await self._store.find(collection, *given, **named)

    async def commit(self, changes: Any) -> Any:
        self.writes += 1
        return await self._store.commit(changes)


async def test_an_idle_runner_reads_twice_at_each_look_and_writes_nothing(
    store: Store, clock: TurnedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, over = 0, asyncio.Event()
    counted = Counted(store)

    class Ticks:
        """Schedules with nothing to do."""

        async def tick(self) -> int:
            nonlocal looks
            looks += 1
            if looks > 10:
                over.set()
                await asyncio.Event().wait()
            return 0

        def seconds_to_next(self) -> float:
            return math.inf

    monkeypatch.setattr(running, "POLL_SECONDS", 0.001)
    async with Loop(Runner(cast(Store, counted), clock, {}, cast(Any, Ticks()))):
        await over.wait()
    assert (counted.finds, counted.writes) == (20, 0)
