"""A record that a job cannot handle is skipped, counted and named; an error of anything else fails the run."""

import asyncio
from collections.abc import Callable

import pytest

from app.errors import Conflict, Invalid, LLMUnavailable, StoreUnavailable
from app.jobs.queue import OPERATIONS, SHOWN, handled, skipping
from app.jobs.runner import Done, Run
from app.memories.schemas import MEMORIES, MemoryRecord
from app.storage.changes import Change, Insert
from app.storage.protocol import Store
from tests.conftest import TurnedClock
from tests.jobs.conftest import MakeRunner
from tests.jobs.test_runner import ask, operation

pytestmark = pytest.mark.anyio


def damaged(memory_id: str) -> MemoryRecord:
    """A memory without its content."""
    return {"memory_id": memory_id}


async def test_skipped_records_are_counted_and_named_and_the_operation_is_partial(
    store: Store, clock: TurnedClock, runner: MakeRunner
) -> None:
    operation_id = await ask(store, clock)

    async def work(_: Run) -> Done:
        memories: list[MemoryRecord] = [
            {"memory_id": "m0", "access_count": 1},
            {"memory_id": "m1"},
            {"memory_id": "m2", "access_count": 2},
        ]
        sizes = handled(MEMORIES, memories, lambda memory: memory["access_count"])
        await asyncio.to_thread(handled, MEMORIES, [damaged("m3")], lambda memory: memory["content"])
        with skipping(MEMORIES, "m4"):
            raise Invalid("its text is refused")
        return Done({"n": sum(size for _, size in sizes)})

    assert await runner(work=work).step()
    doc = await operation(store, operation_id)
    named = [("m1", "KeyError"), ("m3", "KeyError"), ("m4", "Invalid")]
    skipped = {"count": 3, "items": [{"kind": "memory", "id": key, "error": error} for key, error in named]}
    assert (doc["status"], doc["result"]) == ("partial", {"n": 3, "skipped_records": skipped})


async def test_only_the_first_of_many_are_named(store: Store, clock: TurnedClock, runner: MakeRunner) -> None:
    operation_id = await ask(store, clock)

    async def work(_: Run) -> Done:
        memories = [damaged(f"m{number}") for number in range(SHOWN + 1)]
        handled(MEMORIES, memories, lambda memory: memory["content"])
        return Done({})

    assert await runner(work=work).step()
    result = (await operation(store, operation_id))["result"]
    skipped = (result or {})["skipped_records"]
    assert (skipped["count"], len(skipped["items"])) == (SHOWN + 1, SHOWN)


FAULTS: dict[str, Callable[[], Exception]] = {
    "conflict": lambda: Conflict("no"),
    "store": lambda: StoreUnavailable("no"),
    "model": lambda: LLMUnavailable("no"),
    "disk": lambda: OSError("no"),
    "late": TimeoutError,
    "memory": MemoryError,
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_what_is_not_about_the_record_is_no_skip(
    store: Store, clock: TurnedClock, runner: MakeRunner, fault: str
) -> None:
    operation_id = await ask(store, clock)

    async def work(_: Run) -> Done:
        with skipping(MEMORIES, "m"):
            raise FAULTS[fault]()
        return Done({})

    worker = runner(work=work)
    if fault == "store":
        with pytest.raises(StoreUnavailable):
            await worker.step()
    else:
        assert await worker.step()
    assert (await operation(store, operation_id))["status"] in ("queued", "running")


async def test_a_commit_that_fails_is_no_skip(store: Store, clock: TurnedClock, runner: MakeRunner) -> None:
    operation_id = await ask(store, clock)

    async def work(run: Run) -> Done:
        with skipping(MEMORIES, "m"):
            unstorable: list[Change] = [Insert(OPERATIONS, {"operation_id": object()})]
            await run.commit(unstorable)
        return Done({})

    assert await runner(work=work).step()
    assert (await operation(store, operation_id))["status"] == "queued"


def test_outside_a_job_nothing_is_skipped() -> None:
    with pytest.raises(KeyError):
        handled(MEMORIES, [damaged("m")], lambda memory: memory["content"])
