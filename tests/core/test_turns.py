"""Long work in threads: one tenant's takes turns, and gives way to the event loop."""

import asyncio
import gc
import os
import sys
import threading
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core import work as process
from app.core.work import LONG_TEXT, in_parts, in_turn, off_loop, tenant_at_work, work_for

pytestmark = pytest.mark.anyio


class Busy:
    """Work that ends when it is told to. It notes how many of each tenant run at once."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.running: list[str] = []
        self.most: dict[str, int] = {}

    def __call__(self, number: int) -> int:
        tenant = tenant_at_work()
        self.running.append(tenant)
        self.most[tenant] = max(self.most.get(tenant, 0), self.running.count(tenant))
        assert self.go_on.wait(60)
        self.running.remove(tenant)
        return number


async def work_of(tenant: str, work: Busy, number: int) -> int:
    work_for(tenant)
    return await in_turn(work, number)


async def test_one_tenants_work_runs_one_after_the_other_and_holds_up_no_other_tenant() -> None:
    work = Busy()
    greedy = [asyncio.create_task(work_of("greedy", work, number)) for number in range(20)]
    await asyncio.sleep(0)
    modest = asyncio.create_task(work_of("modest", work, 99))
    while {"greedy", "modest"} - {*work.running}:  # noqa: ASYNC110 (they are threads)
        await asyncio.sleep(0.001)
    work.go_on.set()
    assert await asyncio.gather(*greedy, modest) == [*range(20), 99]
    assert work.most == {"greedy": 1, "modest": 1}


async def test_who_leaves_or_fails_gives_the_turn_on() -> None:
    work, quick = Busy(), Busy()
    quick.go_on.set()
    first = asyncio.create_task(work_of("a", work, 0))
    waiting = asyncio.create_task(work_of("a", work, 1))
    last = asyncio.create_task(work_of("a", quick, 2))
    await asyncio.sleep(0.01)
    waiting.cancel()
    work.go_on.set()
    assert await first == 0
    assert await last == 2
    with pytest.raises(ZeroDivisionError):
        await in_turn(lambda: 1 // 0)
    assert await in_turn(quick, 3) == 3
    del first, waiting, last
    gc.collect()
    assert not process._turns[asyncio.get_running_loop()], "nothing is kept for tenants without work"


@given(st.lists(st.integers(0, 2 * LONG_TEXT), max_size=12))
def test_parts_come_back_in_order_and_none_is_longer_than_it_must_be(lengths: list[int]) -> None:
    parts: list[list[int]] = []

    async def run() -> list[int]:
        return await in_parts([*enumerate(lengths)], lambda text: text[0], lambda text: text[1])

    def turn(work: Callable[[list[tuple[int, int]]], list[int]], part: list[tuple[int, int]]) -> Awaitable[list[int]]:
        parts.append([length for _, length in part])
        return in_turn(work, part)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "in_turn", turn)
        patch.setattr(process, "MAX_REST_SECONDS", 0)
        assert asyncio.run(run()) == [*range(len(lengths))]
    assert not parts or [length for part in parts for length in part] == lengths
    assert bool(parts) == (sum(lengths) > LONG_TEXT)
    assert all(sum(part[:-1]) < LONG_TEXT for part in parts)


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
async def test_long_work_has_a_lower_priority_than_the_event_loop_and_short_work_stays_on_it() -> None:
    def where() -> tuple[int, int]:
        return threading.get_ident(), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    here = where()
    assert await off_loop(LONG_TEXT, where) == here
    thread, priority = await off_loop(LONG_TEXT + 1, where)
    assert thread != here[0]
    assert priority > here[1] or here[1] == 19


def test_the_event_loop_is_served_beside_threads_that_compute() -> None:
    """A thread may keep the interpreter for 5 ms by default, each time that the loop has waited for anything."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)  # a service that ran in this process may have changed it
    try:
        process.switch_threads_often()
        assert sys.getswitchinterval() <= 0.001
    finally:
        sys.setswitchinterval(before)
