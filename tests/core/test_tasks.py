"""Tasks that run beside the requests: without what belongs to a request, and to their end when they are told to."""

import asyncio

import pytest

from app.core.work import begin, end, tenant_at_work, work_for
from app.storage import protocol

pytestmark = pytest.mark.anyio


async def test_a_task_has_neither_the_tenant_nor_the_deadline_of_who_started_it() -> None:
    work_for("greedy")
    protocol.start_stopwatch()
    with protocol.waiting():
        await asyncio.sleep(0.02)

    async def told() -> tuple[str, float]:
        return tenant_at_work(), protocol.left(5.0)

    assert protocol.left(5.0) < 5.0
    assert await begin(told(), "told") == ("", 5.0)


async def test_a_task_that_loses_cancellations_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.core.work.CANCEL_SECONDS", 0.01)
    lost = 0

    async def forever() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                lost += 1
                if lost == 3:
                    raise

    task = begin(forever(), "forever")
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await end(task)
    assert (task.cancelled(), lost) == (True, 3)


async def test_who_tidies_up_is_cancelled_once() -> None:
    tidied = False

    async def tidy() -> None:
        nonlocal tidied
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.02)
            tidied = True

    task = begin(tidy(), "tidy")
    await asyncio.sleep(0)
    await end(None, task)
    assert tidied


async def test_what_a_task_raised_is_no_fault_of_who_ends_it() -> None:
    async def fails() -> None:
        raise ValueError("a bug")

    task = begin(fails(), "fails")
    await asyncio.wait([task])
    await end(task)
    assert isinstance(task.exception(), ValueError)
