"""A queue on a store of its own. Workers that stop, stall and race are made by hand; no time is waited for."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from app.jobs.queue import Job, Lease, Queue
from app.jobs.runner import JobHandler, Runner, Schedules
from app.storage.protocol import Store
from app.storage.scope import SYSTEM
from tests.conftest import TurnedClock

MakeRunner = Callable[..., Runner]


@pytest.fixture
def queue(store: Store, clock: TurnedClock) -> Queue:
    return Queue(store, clock)


@pytest.fixture
def runner(store: Store, clock: TurnedClock) -> MakeRunner:
    """`runner(kind=handler, …)`; nothing is scheduled unless `every` says so."""

    def make(every: dict[str, timedelta] | None = None, lease: float = 30, **handlers: JobHandler) -> Runner:
        schedules = Schedules(store, clock, every or {})
        return Runner(store, clock, handlers, schedules, timedelta(seconds=lease))

    return make


async def until(check: Callable[[], Awaitable[bool]], seconds: float = 60) -> None:
    for _ in range(int(seconds / 0.005)):
        if await check():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"not within {seconds} s")


async def put(store: Store, clock: TurnedClock, kind: str = "work", tenant: str = SYSTEM) -> None:
    await store.commit([Job(kind, tenant).enqueue(clock.now())])


async def taken(queue: Queue) -> Lease:
    lease = await queue.take()
    assert lease is not None
    return lease
