"""Gauges of what is stored and what waits: the same numbers on both engines, counted when somebody asks, and never by
writing. Where counting takes long its answer is kept for long, so the clock is moved by hours here."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app import VERSION, metrics
from app.errors import StoreUnavailable
from app.facts.schemas import FACTS
from app.jobs.queue import DECAY, SUMMARIZE, Job
from app.memories.repository import pending_note
from app.memories.schemas import MEMORIES
from app.sessions.schemas import MESSAGES, SESSIONS
from app.settings import JobSettings, Settings
from app.storage.changes import StoredTotals
from app.storage.protocol import Store
from tests.conftest import Service, Starter, TestParts, TurnedClock, wrapped_stores
from tests.support.memories import OWNER, remember
from tests.support.stores import Wrapped

pytestmark = pytest.mark.anyio


@pytest.fixture
async def service(start: Starter, settings: Settings) -> AsyncIterator[Service]:
    """Its jobs stay where they are."""
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as made:
        yield made


async def gauges(service: Service, name: str) -> dict[str, float]:
    """The samples of a gauge, by the value of their one label."""
    await service.client.get("/metrics")
    await asyncio.wait([service.resources.gauges._counting])  # type: ignore[union-attr]
    text = (await service.client.get("/metrics")).text
    (family,) = [one for one in text_string_to_metric_families(text) if one.name == name]
    return {next(iter(sample.labels.values()), ""): sample.value for sample in family.samples}


async def test_records_and_tenants_are_those_that_are_stored(service: Service, clock: TurnedClock) -> None:
    assert set((await gauges(service, "recalld_stored_records")).values()) == {0}
    assert await gauges(service, "recalld_tenants") == {"": 0}
    other = await service.key("acme")
    gone = await remember_as(service, other, "Ada prefers tea")
    await remember_as(service, other, "Ada lives in Boston")
    said = {**OWNER, "messages": [{"role": "user", "content": "Hello"}]}
    ours = await service.key()
    (await service.client.post("/v1/sessions/s/messages", json=said, headers=ours)).raise_for_status()
    clock.move(hours=1)
    records = await gauges(service, "recalld_stored_records")
    assert (records[SESSIONS.name], records[MESSAGES.name], records[FACTS.name]) == (1, 1, 0)
    assert records[MEMORIES.name] == (await service.resources.store.count(MEMORIES, None))
    assert (await gauges(service, "recalld_stored_bytes"))[MEMORIES.name] > 100
    assert await gauges(service, "recalld_tenants") == {"": 2}
    (await service.client.delete(f"/v1/memories/{gone}", headers=other)).raise_for_status()
    clock.move(hours=1)
    assert (await gauges(service, "recalld_stored_records"))[MEMORIES.name] == records[MEMORIES.name] - 1


async def remember_as(service: Service, headers: dict[str, str], content: str) -> str:
    made = await service.client.post("/v1/memories", json={**OWNER, "content": content}, headers=headers)
    memory_id: str = made.raise_for_status().json()["memory_id"]
    return memory_id


async def test_an_answer_is_kept_and_those_who_ask_at_once_share_one(
    start: Starter, settings: Settings, parts: TestParts, clock: TurnedClock
) -> None:
    counted = wrapped_stores(parts, Totalled)
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as service:
        await asyncio.gather(*(service.client.get("/metrics") for _ in range(5)))
        await remember(service.client, "tea")
        assert (await gauges(service, "recalld_tenants")) == {"": 0}
        assert counted[0].counts == 1
        clock.move(hours=1)
        assert (await gauges(service, "recalld_tenants")) == {"": 1}
        assert counted[0].counts == 2


class Totalled(Wrapped):
    """Counts how often its totals are asked for."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.counts = 0

    @property
    def accounting(self) -> "Totalled":
        return self

    async def totals(self) -> StoredTotals:
        self.counts += 1
        return await self._store.accounting.totals()


async def test_ages_are_those_of_what_waits_longest(service: Service, clock: TurnedClock) -> None:
    store, now = service.resources.store, clock.now()
    assert set((await gauges(service, "recalld_job_queue_age_seconds")).values()) == {0}
    assert await gauges(service, "recalld_pending_embedding_age_seconds") == {"": 0}
    await store.commit(
        [Job(SUMMARIZE, "default").enqueue(now), pending_note(MEMORIES, "default", "m1", now_text(clock))]
    )
    clock.move(hours=1)
    await store.commit([Job(SUMMARIZE, "default").enqueue(clock.now()), Job(DECAY, "default").enqueue(clock.now())])
    clock.move(hours=1)
    ages = await gauges(service, "recalld_job_queue_age_seconds")
    assert {lane: round(age) for lane, age in ages.items()} == {
        "language_model": 7200, "embedding_model": 0, "ordinary": 3600
    }  # fmt: skip
    assert round((await gauges(service, "recalld_pending_embedding_age_seconds"))[""]) == 7200
    assert await gauges(service, "recalld_jobs_queued") == {"": 3}
    assert await gauges(service, "recalld_pending_embeddings") == {"": 1}


def now_text(clock: TurnedClock) -> str:
    return clock.time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def test_a_job_that_is_not_due_yet_has_no_age(service: Service, clock: TurnedClock) -> None:
    later = clock.now().replace(year=2027)
    await service.resources.store.commit([Job(DECAY, "default").enqueue(later)])
    assert (await gauges(service, "recalld_job_queue_age_seconds"))["ordinary"] == 0


async def test_the_build_says_version_engine_and_model(service: Service) -> None:
    held = service.resources
    (sample,) = [one for family in metrics.BUILD_INFO.collect() for one in family.samples]
    assert sample.labels == {"version": VERSION, "engine": held.store.name, "model": held.embedder.name}
    assert sample.value == 1


class Away(Totalled):
    """Its totals cannot be had."""

    async def totals(self) -> StoredTotals:
        self.counts += 1
        raise StoreUnavailable("away") if self.counts == 2 else ValueError("odd")


async def test_a_store_that_does_not_answer_leaves_the_metrics_as_they_were(
    start: Starter, settings: Settings, parts: TestParts, clock: TurnedClock
) -> None:
    made = wrapped_stores(parts, Away)
    metrics.TENANTS.set(7)
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as service:
        for count in (1, 2):
            assert await gauges(service, "recalld_tenants") == {"": 7}
            assert made[0].counts == count
            clock.move(hours=1)
