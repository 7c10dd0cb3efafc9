"""What a request may wait for the store: its calls share one limit, and background work has none of it."""

import asyncio
from contextvars import Context

import pytest

from app.storage import protocol
from app.storage.change_log import LogWatch

pytestmark = pytest.mark.anyio


async def call(seconds: float) -> None:
    with protocol.waiting():
        await asyncio.sleep(seconds)


async def test_calls_one_after_another_share_what_a_request_may_wait() -> None:
    protocol.start_stopwatch()
    assert protocol.left(5) == 5
    await call(0.05)
    await call(0.05)
    assert protocol.left(5) <= 4.9
    assert protocol.left(0.1) == 0.001, "never 0, which a driver takes for no limit"


async def test_calls_at_the_same_time_count_once() -> None:
    protocol.start_stopwatch()
    await asyncio.gather(*(call(0.1) for _ in range(50)))
    assert 0.001 < protocol.left(5) <= 4.9, "one after the other, nothing would be left"


async def test_time_between_calls_is_not_the_stores() -> None:
    protocol.start_stopwatch()
    await asyncio.sleep(0.05)
    assert protocol.left(5) == 5


async def test_what_no_request_waits_for_has_all_its_time() -> None:
    await call(0.02)
    assert protocol.left(5) == 5
    protocol.start_stopwatch()
    await call(0.02)
    left = await asyncio.create_task(asyncio.to_thread(protocol.left, 5))
    assert left < 5, "a task of the request's is the request"
    assert Context().run(protocol.left, 5) == 5


async def test_who_looks_for_changes_of_others_spends_no_time_of_the_request_that_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.storage.change_log.LOOK_SECONDS", 0.001)
    left: list[float] = []

    async def mark(tenant: str) -> object:
        left.append(protocol.left(5))
        await call(0.02)
        return len(left)

    protocol.start_stopwatch()
    watch = LogWatch(mark)
    with watch.reading("t") as changed:
        while len(left) < 3:
            changed.clear()
            await changed.wait()
    await watch.close()
    assert {*left, protocol.left(5)} == {5}
