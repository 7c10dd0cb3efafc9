"""A service that nobody calls writes nothing, however long it stands there."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from app.jobs.queue import CONSOLIDATION, DECAY, EXPIRY, REFLECTION, RETENTION
from app.lifespan import job_runner
from app.memories.schemas import MEMORIES
from app.settings import JobSettings, Settings
from app.storage.changes import Change, Committed
from app.storage.protocol import Store
from tests.conftest import Service, Starter, TestParts, wrapped_stores
from tests.support.memories import OWNER, batch, recall, remember
from tests.support.stores import Wrapped

pytestmark = pytest.mark.anyio


class Counting(Wrapped):
    """Notes what is written."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.writes: list[Any] = []

    async def commit(self, changes: Sequence[Change]) -> Committed:
        self.writes.append(changes)
        return await self._store.commit(changes)

    async def apply(self, *given: Any, **named: Any) -> int:
        self.writes.append(given)
        return await self._store.apply(*given, **named)


@pytest.fixture
def counted(parts: TestParts) -> list[Counting]:
    return wrapped_stores(parts, Counting)


@pytest.fixture
async def service(counted: list[Counting], start: Starter, settings: Settings) -> AsyncIterator[Service]:
    """Its clock is turned by hand, so its jobs run when the test says so. The runs of the first start are over."""
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as made:
        api = made.client
        await batch(
            api, *({"user_id": user, "content": f"{user} likes tea {at}"} for user in "uvw" for at in range(20))
        )
        said = [{"role": "user", "content": f"my bicycle is number {at}"} for at in range(10)]
        await api.post("/v1/sessions/s/messages", json={**OWNER, "messages": said})
        await api.post("/v1/actions", json={**OWNER, "event_type": "tool_call", "action_type": "t", "content": "c"})
        await api.post("/v1/tasks", json={**OWNER, "title": "brew tea"})
        await recall(api, "tea")
        await made.resources.accesses.flush()  # type: ignore[attr-defined]
        made.clock.move(hours=1)
        jobs = Jobs(made)
        while await jobs.run():
            pass
        yield made


class Jobs:
    """What a process does by the clock."""

    def __init__(self, service: Service) -> None:
        held, on = service.resources, JobSettings()
        settings = held.settings.model_copy(update={"jobs": on})
        self._runner = job_runner(settings, held.store, held.embedder, held.clock)

    async def run(self) -> int:
        """All that is due; how many jobs ran."""
        await self._runner._schedules.tick()
        ran = 0
        while await self._runner.step():
            ran += 1
        return ran


async def groups(service: Service) -> str:
    """How many groups of writes any engine has committed, as the metrics count them."""
    (line,) = [
        line
        for line in (await service.client.get("/metrics")).text.splitlines()
        if line.startswith("recalld_store_commit_writes_count")
    ]
    return line


async def test_two_days_without_a_caller_write_nothing(service: Service, counted: list[Counting]) -> None:
    (store,) = counted
    jobs, before = Jobs(service), await groups(service)
    store.writes.clear()
    for minutes in (*[1 / 6] * 6, *[10] * 6, *[60] * 47):  # each schedule's look is due several times
        service.clock.move(minutes=minutes)
        assert await jobs.run() == 0
    assert store.writes == []
    assert await groups(service) == before


async def test_a_process_that_begins_later_finds_nothing_to_do_either(
    service: Service, counted: list[Counting]
) -> None:
    service.clock.move(hours=3)
    counted[0].writes.clear()
    assert await Jobs(service).run() == 0
    assert counted[0].writes == []


async def test_each_job_runs_once_there_is_work_for_it(service: Service) -> None:
    jobs, clock, store = Jobs(service), service.clock, service.resources.store

    async def ran() -> set[str]:
        """Kinds whose last run was in this moment."""
        listed = (await service.client.get("/v1/jobs")).json()["items"]
        before = {one["name"]: one["last_run"] for one in listed}
        while await jobs.run():
            pass
        now = (await service.client.get("/v1/jobs")).json()["items"]
        return {one["name"] for one in now if one["last_run"] != before[one["name"]]}

    gone = await remember(service.client, "soon over", expires_at="2026-06-01T16:00:00Z")
    await remember(service.client, "here to stay")
    assert await ran() == set()
    clock.move(hours=6)
    assert await ran() == {EXPIRY}
    assert await store.get(MEMORIES, "default", gone["memory_id"]) is None
    clock.move(hours=24)
    assert await ran() == {CONSOLIDATION, REFLECTION}  # for the memory that came after its last look
    clock.move(days=30)
    assert RETENTION in await ran()  # the day's actions are rolled up
    clock.move(days=30)
    assert DECAY in await ran()
