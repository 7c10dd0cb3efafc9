"""A job that another worker has taken over writes nothing more, whatever it was about to write."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from app.jobs.queue import LEASE, Job, LeaseLost, Queue
from app.jobs.runner import Run
from app.lifespan import COLLECTIONS, job_runner
from app.settings import JobSettings, Settings
from app.storage.scope import SYSTEM
from tests.conftest import Service, Starter
from tests.jobs.conftest import taken
from tests.support.memories import OWNER, Json, remember
from tests.support.operations import forget

pytestmark = pytest.mark.anyio


@pytest.fixture
async def service(start: Starter, settings: Settings) -> AsyncIterator[Service]:
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as made:
        yield made


async def asked_to_forget(service: Service) -> None:
    await remember(service.client, "tea")
    service.clock.move(days=200)
    asked = {**OWNER, "policy": {"older_than_days": 100}, "dry_run": False}
    assert (await service.client.post("/v1/memories/forget", json=asked)).status_code == 202


async def something_expired(service: Service) -> None:
    await remember(service.client, "tea", expires_at="2026-07-01T00:00:00Z")
    await by_clock(service, "expiry")


async def an_old_message(service: Service) -> None:
    said = {**OWNER, "messages": [{"role": "user", "content": "tea please"}]}
    assert (await service.client.post("/v1/sessions/s/messages", json=said)).status_code == 201
    await by_clock(service, "retention")


async def old_actions(service: Service) -> None:
    act = {**OWNER, "action_type": "mail", "content": "did it"}
    assert (await service.client.post("/v1/actions", json=act)).status_code == 201
    await by_clock(service, "retention")


async def by_clock(service: Service, kind: str) -> None:
    service.clock.move(days=500)
    await service.resources.store.commit([Job(kind, SYSTEM).enqueue(service.clock.now())])


async def an_undo(service: Service) -> None:
    await remember(service.client, "tea")
    service.clock.move(days=200)
    done = await forget(service)
    assert (await service.client.post(f"/v1/operations/{done['operation_id']}/undo")).status_code == 202


async def an_undo_with_nothing_left_to_bring_back(service: Service) -> None:
    await an_undo(service)
    assert (await service.client.delete("/v1/memories", params={"user_id": "u"})).is_success


PREPARED: list[Callable[[Service], Awaitable[None]]] = [
    asked_to_forget,
    something_expired,
    an_old_message,
    old_actions,
    an_undo,
    an_undo_with_nothing_left_to_bring_back,
]


@pytest.mark.parametrize("prepared", PREPARED, ids=lambda prepared: prepared.__name__)
async def test_a_worker_whose_job_was_taken_over_writes_nothing(
    service: Service, prepared: Callable[[Service], Awaitable[None]]
) -> None:
    await prepared(service)
    held = service.resources
    handlers = job_runner(held.settings, held.store, held.embedder, held.clock)._handlers
    queue = Queue(held.store, held.clock)
    stalled = await taken(queue)
    service.clock.move(seconds=LEASE.total_seconds())
    other = await taken(queue)
    before = await everything(service)
    with pytest.raises(LeaseLost):
        await handlers[stalled.job.kind](Run(held.store, held.clock, stalled))
    assert await everything(service) == before
    await handlers[other.job.kind](Run(held.store, held.clock, other))
    assert await everything(service) != before, "there was something to do"


async def everything(service: Service) -> list[Json]:
    return [doc for one in COLLECTIONS for doc in await service.resources.store.find(one, None, order="asc")]
