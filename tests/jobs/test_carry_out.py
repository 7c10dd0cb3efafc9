"""A job that a request waits for runs at once, and its run does not end with the request."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any, cast

import pytest

from app.jobs.queue import CONSOLIDATION, DECAY, EXPIRY, JOBS, POST_CONVERSATION, Job, Queue
from app.jobs.runner import Done, Run
from app.settings import JobSettings, Settings
from app.storage import protocol
from app.storage.changes import Insert
from app.storage.protocol import Store
from app.storage.scope import SYSTEM
from tests.conftest import Starter, TestParts, TurnedClock
from tests.jobs.conftest import MakeRunner, put, taken, until
from tests.jobs.test_queue import jobs, row, written
from tests.support.stores import Wrapped

pytestmark = pytest.mark.anyio

LONG = 60.0
"""Seconds: no test waits for so long."""


async def put_job(store: Store, clock: TurnedClock, kind: str = "work", due_in: float = 0) -> str:
    change: Insert = Job(kind, SYSTEM).enqueue(clock.now() + timedelta(seconds=due_in))
    await store.commit([change])
    return str(change.doc["job_id"])


async def note(run: Run) -> Done:
    await run.commit([row(f"ran {run.lease.doc['kind']}")])
    return Done({})


class Hanging:
    """A handler that begins and waits until it is let go."""

    def __init__(self) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self, run: Run) -> Done:
        self.begun.set()
        await self.go.wait()
        return await note(run)


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_job_is_carried_out_though_nothing_looks_at_the_queue(
    store: Store, clock: TurnedClock, runner: MakeRunner
) -> None:
    job_id = await put_job(store, clock, due_in=3_600)
    await runner(work=note).carry_out(job_id, LONG)
    assert await written(store) == ["ran work"]
    assert await jobs(store) == []


async def test_a_job_is_carried_out_while_its_lane_hangs(store: Store, clock: TurnedClock, runner: MakeRunner) -> None:
    hanging = Hanging()
    made = runner(**{POST_CONVERSATION: hanging, CONSOLIDATION: note})
    await put(store, clock, POST_CONVERSATION)
    loop = asyncio.create_task(made.run())
    await hanging.begun.wait()
    await made.carry_out(await put_job(store, clock, CONSOLIDATION), LONG)
    assert await written(store) == [f"ran {CONSOLIDATION}"]
    await stop(loop)


async def test_the_run_goes_on_when_the_caller_stops_waiting(
    store: Store, clock: TurnedClock, runner: MakeRunner
) -> None:
    hanging = Hanging()
    made = runner(work=hanging)
    await made.carry_out(await put_job(store, clock), 0)
    await hanging.begun.wait()
    assert await written(store) == []
    hanging.go.set()

    async def done() -> bool:
        return await jobs(store) == []

    await until(done)
    assert await written(store) == ["ran work"]


async def test_the_run_goes_on_when_the_caller_is_cancelled(
    store: Store, clock: TurnedClock, runner: MakeRunner
) -> None:
    hanging = Hanging()
    made = runner(work=hanging)
    caller = asyncio.create_task(made.carry_out(await put_job(store, clock), LONG))
    await hanging.begun.wait()
    await stop(caller)
    hanging.go.set()

    async def done() -> bool:
        return await jobs(store) == []

    await until(done)


async def test_a_run_does_not_share_the_time_that_the_request_may_wait_for_the_store(
    store: Store, clock: TurnedClock, runner: MakeRunner
) -> None:
    left: list[float] = []

    async def work(_: Run) -> Done:
        left.append(protocol.left(LONG))
        return Done({})

    protocol.start_stopwatch()
    with protocol.waiting():
        await runner(work=work).carry_out(await put_job(store, clock), LONG)
        assert protocol.left(LONG) < LONG
    assert left == [LONG]


async def test_a_job_that_another_worker_has_is_waited_for(
    store: Store, clock: TurnedClock, runner: MakeRunner
) -> None:
    job_id = await put_job(store, clock)
    lease = await taken(Queue(store, clock))
    waiting = asyncio.create_task(runner(work=note).carry_out(job_id, LONG))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await lease.done([row("by the other")])
    await waiting
    assert await written(store) == ["by the other"]


@pytest.mark.parametrize("ending", ["release", "failed"])
async def test_waiting_ends_when_the_other_worker_puts_the_job_back(
    store: Store, clock: TurnedClock, runner: MakeRunner, ending: str
) -> None:
    job_id = await put_job(store, clock)
    lease = await taken(Queue(store, clock))
    waiting = asyncio.create_task(runner(work=note).carry_out(job_id, LONG))
    await asyncio.sleep(0.05)
    await (lease.release() if ending == "release" else lease.failed("no", []))
    await waiting
    (doc,) = await jobs(store)
    assert doc["status"] == "queued"


async def test_waiting_for_another_worker_ends_with_the_seconds(
    store: Store, clock: TurnedClock, runner: MakeRunner
) -> None:
    job_id = await put_job(store, clock)
    await taken(Queue(store, clock))
    await runner(work=note).carry_out(job_id, 0.01)
    (doc,) = await jobs(store)
    assert doc["status"] == "running"


async def test_a_job_that_is_over_or_unknown_is_not_waited_for(
    store: Store, clock: TurnedClock, runner: MakeRunner
) -> None:
    await runner(work=note).carry_out("job_that_never_was", LONG)
    job_id = await put_job(store, clock)
    await runner(work=note).carry_out(job_id, LONG)
    await runner(work=note).carry_out(job_id, LONG)
    assert await written(store) == ["ran work"]


async def test_a_run_that_fails_is_tried_again_like_any(store: Store, clock: TurnedClock, runner: MakeRunner) -> None:
    async def bad(_: Run) -> Done:
        raise ValueError("no")

    await runner(work=bad).carry_out(await put_job(store, clock), LONG)
    (doc,) = await jobs(store)
    assert (doc["status"], doc["attempts"], doc["error"]) == ("queued", 1, "ValueError")


async def test_closing_hands_the_job_back_even_before_it_began(
    store: Store, clock: TurnedClock, runner: MakeRunner
) -> None:
    hanging = Hanging()
    made = runner(work=hanging)
    await made.carry_out(await put_job(store, clock), 0)
    await made.close()
    (doc,) = await jobs(store)
    assert (doc["status"], doc["attempts"], doc["leased_until"]) == ("queued", 0, None)


async def test_the_service_carries_out_jobs_without_a_loop_and_hands_them_back_at_its_end(
    start: Starter, settings: Settings, store: Store, parts: TestParts
) -> None:
    decaying = asyncio.Event()

    class Stuck(Wrapped):
        async def apply(self, *_: Any) -> int:
            decaying.set()
            await asyncio.Event().wait()
            return 0

    parts.wrap_store = lambda store: cast(Store, Stuck(store))
    idle = settings.model_copy(update={"jobs": JobSettings(enabled=False)})
    async with start(idle) as service:
        held = service.resources
        job_id = await put_job(held.store, service.clock, EXPIRY)
        await held.jobs.carry_out(job_id, LONG)
        assert await held.store.get(JOBS, SYSTEM, job_id) is None
        job_id = await put_job(held.store, service.clock, DECAY)
        await held.jobs.carry_out(job_id, 0)
        await decaying.wait()
    doc = await store.get(JOBS, SYSTEM, job_id)
    assert doc is not None
    assert (doc["status"], doc["leased_until"]) == ("queued", None)
