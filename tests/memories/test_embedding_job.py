"""The job that embeds what is pending is queued only where a run could do something."""

from collections.abc import AsyncIterator
from typing import cast

import pytest

from app.embedding.embedder import Embedder
from app.jobs.queue import Job, Queue
from app.jobs.runner import Run
from app.lifespan import EMBEDDABLE
from app.memories.reembed import LATEST, LONGEST_PAUSE, MOVES, EmbeddingJob, Reembed
from app.memories.repository import PENDING
from app.settings import JobSettings, Settings
from app.storage.index.record_codec import model_id
from app.storage.schema import Doc
from app.storage.scope import SYSTEM
from tests.conftest import Service, Starter, TestParts
from tests.support.memories import Faulty, batch, remember

pytestmark = pytest.mark.anyio


@pytest.fixture
async def service(start: Starter, parts: TestParts, settings: Settings) -> AsyncIterator[Service]:
    parts.wrap = Faulty
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as made:
        yield made


@pytest.fixture
def faulty(service: Service) -> Faulty:
    return cast(Faulty, service.resources.embedder)


def job_of(service: Service) -> EmbeddingJob:
    held = service.resources
    return EmbeddingJob(held.store, held.embedder, EMBEDDABLE, held.clock)


async def run(service: Service, job: EmbeddingJob) -> Doc:
    held = service.resources
    await held.store.commit([Job("embed_pending", SYSTEM).enqueue(held.clock.now())])
    lease = await Queue(held.store, held.clock).take()
    assert lease is not None
    done = await job.handle(Run(held.store, held.clock, lease))
    await lease.done([])
    return done.result


async def test_records_with_their_vectors_are_no_work(service: Service) -> None:
    job = job_of(service)
    await batch(service.client, *({"content": f"likes tea {at}"} for at in range(5)))
    assert not await job.has_work()


async def test_pending_texts_are_work_as_long_as_the_model_answers(service: Service, faulty: Faulty) -> None:
    job = job_of(service)
    await run(service, job)
    faulty.failing = True
    await remember(service.client, "plays the violin")
    assert not await job.has_work(), "the model is away"
    faulty.failing = False
    assert await job.has_work()
    assert (await run(service, job))["embedded"] == 1
    assert not await job.has_work()


async def test_a_text_that_was_put_off_is_work_when_its_time_has_come(service: Service, faulty: Faulty) -> None:
    job = job_of(service)
    await run(service, job)
    faulty.failing = True
    await remember(service.client, "plays the violin")
    faulty.failing, faulty.refused = False, "plays the violin"
    assert await job.has_work()
    await run(service, job)
    assert await service.resources.store.count(PENDING, SYSTEM) == 1
    assert not await job.has_work()
    service.clock.move(seconds=70)
    assert await job.has_work()


async def test_records_that_the_new_model_refuses_are_tried_ever_more_seldom(service: Service, faulty: Faulty) -> None:
    """A pair that is still in another model is work, but not every five seconds for ever."""
    held, job = service.resources, job_of(service)
    await run(service, job)
    await remember(service.client, "plays the violin")
    await Reembed(held.store, Named(faulty), EMBEDDABLE).begin("2026-06-01T00:00:00.000Z")
    assert (await held.store.get(MOVES, SYSTEM, LATEST) or {})["model"] == "another"
    job = EmbeddingJob(held.store, Named(faulty), EMBEDDABLE, held.clock)
    faulty.refused = "plays the violin"
    runs = 0
    for _ in range(24 * 60):
        service.clock.move(minutes=1)
        if await job.has_work():
            await run(service, job)
            runs += 1
    assert 24 <= runs <= 24 + 7
    service.clock.move(seconds=LONGEST_PAUSE.total_seconds())
    faulty.refused = None
    assert await job.has_work()
    assert (await run(service, job))["embedded"] == 1
    assert not await job.has_work()


class Named(Faulty):
    """The same vectors under the name of another model."""

    def __init__(self, embedder: Embedder) -> None:
        super().__init__(embedder)

    @property
    def name(self) -> str:
        return "another"


def test_the_name_makes_another_model(anyio_backend: str) -> None:
    assert model_id("another", 384) != model_id("all-MiniLM-L6-v2:onnx-int8-8199be6f", 384)
