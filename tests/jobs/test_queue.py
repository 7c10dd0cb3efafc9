"""The durable queue: one worker at a time, a fencing token, nothing lost."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from app.jobs.queue import FIRST_BACKOFF, JOBS, LEASE, MAX_ATTEMPTS, SCHEDULES, Job, JobRecord, LeaseLost, Queue
from app.storage.changes import CommitConflict, Insert, Update
from app.storage.protocol import Store
from app.storage.scope import SYSTEM
from tests.conftest import TurnedClock
from tests.jobs.conftest import put, taken
from tests.support.stores import Open

pytestmark = pytest.mark.anyio


def row(name: str) -> Insert:
    """Something that a job writes."""
    return Insert(SCHEDULES, {"tenant_id": SYSTEM, "name": name, "created_at": "2026-01-01T00:00:00.000Z"})


async def written(store: Store) -> list[str]:
    return [doc["name"] for doc in await store.find(SCHEDULES, SYSTEM, order="asc")]


async def jobs(store: Store) -> list[JobRecord]:
    return await store.find(JOBS, SYSTEM, order="asc")


async def test_a_job_is_taken_by_one_and_gone_when_done_with_its_last_changes(
    store: Store, queue: Queue, clock: TurnedClock
) -> None:
    await store.commit([Job("work", "acme", {"$a.b": [1]}, "op_1").enqueue(clock.now())])
    lease = await taken(queue)
    assert lease.job == Job("work", "acme", {"$a.b": [1]}, "op_1")
    assert await queue.take() is None
    await lease.done([row("last")])
    assert await jobs(store) == []
    assert await written(store) == ["last"]


async def test_a_job_waits_for_its_time_and_older_ones_go_first(store: Store, queue: Queue, clock: TurnedClock) -> None:
    await store.commit([Job("later", SYSTEM).enqueue(clock.now() + timedelta(minutes=1))])
    await put(store, clock, "now")
    first = await taken(queue)
    assert first.job.kind == "now"
    await first.done([])
    assert await queue.take() is None
    clock.move(minutes=1)
    assert (await taken(queue)).job.kind == "later"


async def test_many_takers_of_many_openers_take_each_job_once(open_store: Open, clock: TurnedClock) -> None:
    stores = [await open_store() for _ in range(3)]
    for number in range(40):
        await put(stores[0], clock, f"kind-{number}")
    got: list[str] = []

    async def work(queue: Queue) -> None:
        idle = 0
        while idle < 3:
            lease = await queue.take()
            idle = 0 if lease else idle + 1
            if lease:
                got.append(lease.job.kind)
                await lease.done([])
            await asyncio.sleep(0)

    await asyncio.gather(*(work(Queue(store, clock)) for store in stores for _ in range(4)))
    assert sorted(got) == sorted(f"kind-{number}" for number in range(40))


async def test_a_lapsed_job_goes_to_another_and_nothing_of_the_stale_worker_is_stored(
    store: Store, queue: Queue, clock: TurnedClock
) -> None:
    await put(store, clock)
    stale = await taken(queue)
    await stale.commit([row("by the first")])
    clock.move(seconds=LEASE.total_seconds())
    fresh = await taken(queue)
    assert fresh.doc["job_id"] == stale.doc["job_id"]
    assert fresh.doc["token"] > stale.doc["token"]
    late: list[Any] = [
        stale.commit([row("late")]),
        stale.renew(),
        stale.done([row("late")]),
        stale.failed("late", [row("late")]),
        stale.release(),
    ]
    for attempt in late:
        with pytest.raises(LeaseLost):
            await attempt
    assert await written(store) == ["by the first"]
    await fresh.done([row("fresh, of the second")])
    assert await written(store) == ["by the first", "fresh, of the second"]
    with pytest.raises(LeaseLost):
        await stale.commit([row("after all")])


async def test_a_stale_worker_writes_nothing_even_while_nobody_has_taken_over_after_a_retry(
    store: Store, queue: Queue, clock: TurnedClock
) -> None:
    await put(store, clock)
    lease = await taken(queue)
    await lease.failed("not today", [])
    with pytest.raises(LeaseLost):
        await lease.commit([row("late")])


async def test_a_renewed_lease_does_not_lapse(store: Store, queue: Queue, clock: TurnedClock) -> None:
    await put(store, clock)
    lease = await taken(queue)
    for _ in range(5):
        clock.move(seconds=LEASE.total_seconds() * 0.8)
        await lease.renew()
        assert await queue.take() is None
    await lease.done([])


async def test_a_lease_that_is_renewed_just_before_it_would_be_taken_stays(
    store: Store, queue: Queue, clock: TurnedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store, clock)
    lease = await taken(queue)
    clock.move(seconds=LEASE.total_seconds())
    seen = await jobs(store)
    await lease.renew()

    async def found_earlier(*_: Any, **__: Any) -> list[JobRecord]:
        return seen

    monkeypatch.setattr(store, "find", found_earlier)
    assert await queue.take() is None
    await lease.done([])


async def test_failures_back_off_ever_longer_and_end_with_the_reason(
    store: Store, queue: Queue, clock: TurnedClock
) -> None:
    await put(store, clock)
    pauses = []
    for attempt in range(1, MAX_ATTEMPTS + 1):
        lease = await taken(queue)
        assert lease.last_attempt is (attempt == MAX_ATTEMPTS)
        assert await lease.failed(f"reason {attempt}", [row(f"told {attempt}")]) is (attempt == MAX_ATTEMPTS)
        (doc,) = await jobs(store)
        if attempt < MAX_ATTEMPTS:
            assert await queue.take() is None
            pause = 4 ** (attempt - 1) * FIRST_BACKOFF.total_seconds()
            clock.move(seconds=pause - 1)
            assert await queue.take() is None
            clock.move(seconds=1)
            pauses.append(pause)
    assert pauses == sorted(pauses)
    (doc,) = await queue.failed()
    assert (doc["status"], doc["error"], doc["attempts"]) == ("failed", f"reason {MAX_ATTEMPTS}", MAX_ATTEMPTS)
    clock.move(days=1)
    assert await queue.take() is None
    assert len(await written(store)) == MAX_ATTEMPTS


async def test_a_released_job_is_free_at_once_and_counts_no_attempt(
    store: Store, queue: Queue, clock: TurnedClock
) -> None:
    await put(store, clock)
    for _ in range(MAX_ATTEMPTS + 2):
        await (await taken(queue)).release()
    assert (await taken(queue)).doc["attempts"] == 0


async def test_a_job_that_ends_its_workers_is_given_up(store: Store, queue: Queue, clock: TurnedClock) -> None:
    await put(store, clock)
    for _ in range(MAX_ATTEMPTS):
        assert not (await taken(queue)).abandoned
        clock.move(seconds=LEASE.total_seconds())
    assert (await taken(queue)).abandoned


async def test_a_conflict_of_the_work_is_no_lost_lease(store: Store, queue: Queue, clock: TurnedClock) -> None:
    await put(store, clock)
    lease = await taken(queue)
    with pytest.raises(CommitConflict) as conflict:
        await lease.commit([row("a"), Update(SCHEDULES, SYSTEM, "nothing")])
    assert not isinstance(conflict.value, LeaseLost)
    assert await written(store) == []
    await lease.done([])


async def test_a_crash_between_take_and_done_loses_nothing(open_store: Open, clock: TurnedClock) -> None:
    first = await open_store()
    await put(first, clock)
    await taken(Queue(first, clock))
    await first.close()
    second = await open_store()
    assert await Queue(second, clock).take() is None
    clock.move(seconds=LEASE.total_seconds())
    await (await taken(Queue(second, clock))).done([row("done")])
    assert await written(second) == ["done"]


async def test_of_jobs_with_a_slot_one_waits_at_a_time_until_it_is_over(
    store: Store, queue: Queue, clock: TurnedClock
) -> None:
    async def enqueue() -> None:
        await store.commit([Job("work", SYSTEM, slot="work").enqueue(clock.now())])

    await enqueue()
    with pytest.raises(CommitConflict):
        await enqueue()
    lease = await taken(queue)
    with pytest.raises(CommitConflict):
        await enqueue()
    await lease.done([])
    await enqueue()
    for _ in range(MAX_ATTEMPTS):
        await (await taken(queue)).failed("no", [])
        clock.move(hours=1)
    await enqueue()
