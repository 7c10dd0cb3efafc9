"""The runner: outcomes are noted, faults are survived, a stop lets go."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from app.errors import Conflict, LLMUnavailable, StoreUnavailable
from app.jobs import queue
from app.jobs import runner as running
from app.jobs.queue import JOBS, LEASE, MAX_ATTEMPTS, OPERATIONS, SCHEDULES, OperationRecord, Queue
from app.jobs.runner import Done, Run, Schedules
from app.storage.changes import CommitConflict, Delete, Insert
from app.storage.protocol import Store
from app.storage.schema import Doc
from app.storage.scope import SYSTEM, Scope
from tests.conftest import TurnedClock
from tests.jobs.conftest import MakeRunner, put, taken, until
from tests.jobs.test_queue import jobs, row, written
from tests.support.stores import Open

pytestmark = pytest.mark.anyio

ACME = Scope("acme")


async def fine(_: Run) -> Done:
    return Done({"n": 1})


async def ask(store: Store, clock: TurnedClock, kind: str = "work") -> str:
    answer, changes = queue.start(ACME, kind, {}, clock.now(), user_id="u")
    await store.commit(changes)
    return str(answer["operation_id"])


async def operation(store: Store, operation_id: str) -> OperationRecord:
    doc = await store.get(OPERATIONS, "acme", operation_id)
    assert doc is not None
    return doc


async def test_a_model_that_is_down_is_logged_by_its_reason_without_a_stack(
    store: Store, clock: TurnedClock, runner: MakeRunner, caplog: pytest.LogCaptureFixture
) -> None:
    async def down(_: Run) -> Done:
        raise LLMUnavailable("The model's server cannot be reached.")

    async def broken(_: Run) -> Done:
        raise ValueError("x")

    for kind in ("down", "broken"):
        await ask(store, clock, kind)
        assert await runner(down=down, broken=broken).step()
    told = {vars(record)["kind"]: record for record in caplog.records if record.message == "job failed"}
    assert vars(told["down"])["reason"] == "The model's server cannot be reached."
    assert told["down"].exc_info is None
    assert told["broken"].exc_info is not None, "a fault of ours shows its place"


async def test_an_operation_is_queued_runs_makes_progress_and_succeeds(
    store: Store, clock: TurnedClock, runner: MakeRunner
) -> None:
    operation_id = await ask(store, clock)
    seen = [await operation(store, operation_id)]

    async def work(run: Run) -> Done:
        assert run.tenant == "acme"
        seen.append(await operation(store, operation_id))
        await run.progress(3, 7)
        seen.append(await operation(store, operation_id))
        return Done({"n": 7})

    assert await runner(work=work).step()
    seen.append(await operation(store, operation_id))
    assert [doc["status"] for doc in seen] == ["queued", "running", "running", "succeeded"]
    assert [doc["progress"]["done"] for doc in seen] == [0, 0, 3, 3]
    assert (seen[-1]["result"], seen[-1]["error"]) == ({"n": 7}, None)
    assert await jobs(store) == []


async def test_a_failure_is_tried_again_and_its_reason_shown_until_it_succeeds(
    store: Store, clock: TurnedClock, runner: MakeRunner
) -> None:
    operation_id = await ask(store, clock)
    faults: list[Exception] = [ValueError("secret"), Conflict("It is in the way.")]

    async def work(_: Run) -> Done:
        if faults:
            raise faults.pop(0)
        return Done({})

    made = runner(work=work)
    for reason in ("ValueError", "It is in the way."):
        assert await made.step()
        doc = await operation(store, operation_id)
        assert (doc["status"], doc["error"]) == ("queued", reason)
        assert not await made.step()
        clock.move(minutes=10)
    assert await made.step()
    doc = await operation(store, operation_id)
    assert (doc["status"], doc["error"]) == ("succeeded", None)


async def test_what_fails_for_good_says_so(store: Store, clock: TurnedClock, runner: MakeRunner) -> None:
    operation_id = await ask(store, clock, "unheard-of")
    made = runner(work=fine)
    for _ in range(MAX_ATTEMPTS):
        assert await made.step()
        clock.move(hours=1)
    assert not await made.step()
    doc = await operation(store, operation_id)
    assert doc["status"] == "failed"
    assert "unheard-of" in (doc["error"] or "")
    (job,) = await Queue(store, clock).failed()
    assert job["operation_id"] == operation_id


async def test_a_result_that_cannot_be_stored_is_a_failure_like_any(
    store: Store, clock: TurnedClock, runner: MakeRunner
) -> None:
    operation_id = await ask(store, clock)

    async def work(_: Run) -> Done:
        return Done({"set": {1, 2}})

    assert await runner(work=work).step()
    assert (await operation(store, operation_id))["status"] == "queued"


async def test_partial_is_told_as_partial(store: Store, clock: TurnedClock, runner: MakeRunner) -> None:
    operation_id = await ask(store, clock)

    async def work(_: Run) -> Done:
        return Done({}, status="partial")

    await runner(work=work).step()
    assert (await operation(store, operation_id))["status"] == "partial"


async def test_a_scheduled_run_is_noted_in_its_schedule(store: Store, clock: TurnedClock, runner: MakeRunner) -> None:
    made = runner({"work": timedelta(hours=1)}, work=fine)
    ended = asyncio.create_task(made.run())

    async def noted() -> bool:
        doc = await store.get(SCHEDULES, SYSTEM, "work")
        return doc is not None and doc["outcome"] == "succeeded" and doc["last_run"] is not None

    await until(noted)
    await stopped(ended)


async def stopped(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_job_without_its_schedule_or_operation_is_done_all_the_same(
    store: Store, clock: TurnedClock, runner: MakeRunner
) -> None:
    await put(store, clock)  # as by a tick, but the schedule is not there
    operation_id = await ask(store, clock)

    async def work(run: Run) -> Done:
        if run.lease.job.operation_id:  # the user is erased meanwhile
            await store.commit([Delete(OPERATIONS, "acme", operation_id)])
            await run.progress(1, 2)
        return Done({})

    made = runner({"work": timedelta(hours=1)}, work=work)
    assert await made.step()
    assert await made.step()
    assert await jobs(store) == []


async def test_a_worker_that_lost_its_lease_stores_nothing_and_the_other_finishes(
    store: Store, clock: TurnedClock, runner: MakeRunner
) -> None:
    operation_id = await ask(store, clock)
    attempts = []

    async def work(run: Run) -> Done:
        attempts.append(run.lease.doc["token"])
        if len(attempts) == 1:
            clock.move(seconds=LEASE.total_seconds() + 1)  # stopped in the middle
            assert await runner(work=work).step()  # another takes over and ends
        await run.commit([row(f"by attempt {len(attempts)} of token {run.lease.doc['token']}")])
        return Done({"token": run.lease.doc["token"]})

    assert await runner(work=work).step()
    assert attempts == [1, 2]
    assert await written(store) == ["by attempt 2 of token 2"]
    doc = await operation(store, operation_id)
    assert (doc["status"], doc["result"]) == ("succeeded", {"token": 2})


async def test_two_runners_never_run_one_job_twice(store: Store, clock: TurnedClock, runner: MakeRunner) -> None:
    ran: list[str] = []

    async def work(run: Run) -> Done:
        ran.append(run.lease.doc["job_id"])
        await asyncio.sleep(0.001)
        return Done({})

    for _ in range(30):
        await put(store, clock)
    wanted = {doc["job_id"] for doc in await jobs(store)}
    tasks = [asyncio.create_task(runner(work=work).run()) for _ in range(2)]

    async def over() -> bool:
        return await store.count(JOBS, SYSTEM) == 0

    await until(over)
    for task in tasks:
        await stopped(task)
    assert len(ran) == 30
    assert set(ran) == wanted


async def test_long_jobs_keep_their_lease(store: Store, clock: TurnedClock, runner: MakeRunner) -> None:
    await put(store, clock)

    async def work(run: Run) -> Done:
        (before,) = await jobs(store)
        clock.move(seconds=0.05)
        for _ in range(2_000):
            await asyncio.sleep(0.005)
            (after,) = await jobs(store)
            if (after["leased_until"] or "") > (before["leased_until"] or ""):
                return Done({})
        raise AssertionError("not renewed")

    await runner(work=work, lease=0.06).step()
    assert await jobs(store) == []


async def test_a_stop_hands_the_job_back_at_once(store: Store, clock: TurnedClock, runner: MakeRunner) -> None:
    operation_id = await ask(store, clock)
    begun = asyncio.Event()

    async def work(_: Run) -> Done:
        begun.set()
        await asyncio.sleep(60)
        return Done({})

    task = asyncio.create_task(runner(work=work).run())
    await begun.wait()
    await stopped(task)
    assert task.cancelled()
    lease = await taken(Queue(store, clock))
    assert lease.doc["attempts"] == 0
    assert lease.doc["operation_id"] == operation_id


async def test_a_stop_in_the_moment_of_taking_leaves_no_job_leased(
    store: Store, clock: TurnedClock, runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store, clock)
    commit, reached = store.commit, asyncio.Event()

    async def slow(changes: Any) -> Any:
        reached.set()
        return await commit(changes)

    monkeypatch.setattr(store, "commit", slow)
    task = asyncio.create_task(runner(work=fine).step())
    await reached.wait()
    await stopped(task)
    (doc,) = await jobs(store)
    assert doc["status"] == "queued"


async def test_handlers_faults_do_not_end_the_runner(store: Store, clock: TurnedClock, runner: MakeRunner) -> None:
    async def bad(_: Run) -> Done:
        raise KeyError("x")

    for kind in ("bad", "unheard-of", "work"):
        await put(store, clock, kind)
    task = asyncio.create_task(runner(bad=bad, work=fine).run())

    async def last_done() -> bool:
        return len(await jobs(store)) == 2

    await until(last_done)
    assert not task.done()
    await stopped(task)


@pytest.mark.parametrize("fault", [StoreUnavailable("away"), RuntimeError("a bug of ours")])
async def test_a_store_that_is_away_is_waited_for_and_a_bug_of_ours_survived(
    store: Store,
    clock: TurnedClock,
    runner: MakeRunner,
    monkeypatch: pytest.MonkeyPatch,
    fault: Exception,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(running, "FAULT_PAUSE_SECONDS", 0.01)
    await put(store, clock)
    find, failures = store.find, 3

    async def faulty(*given: Any, **named: Any) -> list[Doc]:
        nonlocal failures
        if failures:
            failures -= 1
            raise fault
        return await find(*given, **named)

    monkeypatch.setattr(store, "find", faulty)
    task = asyncio.create_task(runner(work=fine).run())
    while failures or await store.count(JOBS, SYSTEM):
        assert not task.done()
        await asyncio.sleep(0.005)
    await stopped(task)
    if isinstance(fault, StoreUnavailable):
        assert [record.message for record in caplog.records].count("jobs wait for the store") == 1, "said once"


async def test_a_store_that_goes_away_in_the_middle_costs_no_attempt(
    store: Store, clock: TurnedClock, runner: MakeRunner
) -> None:
    await put(store, clock)
    faults: list[Exception] = [StoreUnavailable("away")]

    async def work(_: Run) -> Done:
        if faults:
            raise faults.pop()
        return Done({})

    made = runner(work=work)
    with pytest.raises(StoreUnavailable):
        await made.step()
    (doc,) = await jobs(store)
    assert (doc["status"], doc["attempts"]) == ("queued", 0)
    assert await made.step()
    assert await jobs(store) == []


async def test_a_job_that_ends_its_workers_fails_without_being_run_again(
    store: Store, clock: TurnedClock, runner: MakeRunner
) -> None:
    operation_id = await ask(store, clock)
    for _ in range(MAX_ATTEMPTS):
        await taken(Queue(store, clock))
        clock.move(seconds=LEASE.total_seconds())

    async def deadly(_: Run) -> Done:
        raise AssertionError("run again")

    assert await runner(work=deadly).step()
    doc = await operation(store, operation_id)
    assert doc["status"] == "failed"
    assert "stopped" in (doc["error"] or "")


async def test_a_conflict_of_the_handler_is_tried_again(store: Store, clock: TurnedClock, runner: MakeRunner) -> None:
    await put(store, clock)
    tries = []

    async def work(run: Run) -> Done:
        tries.append(1)
        if len(tries) == 1:
            await store.commit([row("a")])
            with pytest.raises(CommitConflict):
                await run.commit([row("b"), row("a")])
            raise Conflict("again, please")
        return Done({})

    made = runner(work=work)
    assert await made.step()
    clock.move(minutes=1)
    assert await made.step()
    assert await written(store) == ["a"]
    assert isinstance(row("c"), Insert)


async def test_a_job_of_this_process_begins_at_once(
    store: Store, clock: TurnedClock, runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "POLL_SECONDS", 3_600)
    ran = asyncio.Semaphore(0)

    async def work(_: Run) -> Done:
        ran.release()
        return Done({})

    async def asleep() -> bool:
        return any(task.get_name() == running.ASLEEP for task in asyncio.all_tasks())

    task = asyncio.create_task(runner(work=work).run())
    for _ in range(3):
        await until(asleep)
        await put(store, clock)
        await asyncio.wait_for(ran.acquire(), 60)
    await stopped(task)


async def test_a_job_of_another_process_is_found_by_looking(
    open_store: Open, clock: TurnedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "POLL_SECONDS", 0.01)
    mine, others = await open_store(), await open_store()
    ran = asyncio.Event()

    async def work(_: Run) -> Done:
        ran.set()
        return Done({})

    task = asyncio.create_task(running.Runner(mine, clock, {"work": work}, Schedules(mine, clock, {})).run())
    await put(others, clock)
    await asyncio.wait_for(ran.wait(), 60)
    await stopped(task)
