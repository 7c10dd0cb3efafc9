"""Over HTTP and in jobs, what is embedded is the work of the tenant that asked for it."""

import asyncio
from typing import Any

import pytest

from app.core.work import tenant_at_work
from app.embedding.embedder import BatchingEmbedder, BatchQueue, Embedder
from app.jobs.queue import Job
from app.jobs.runner import Done, Run, Runner, Schedules
from app.settings import JobSettings, Settings
from tests.conftest import Starter, TestParts
from tests.embedding.test_queue import Stepped, texts
from tests.jobs.conftest import until
from tests.support.memories import OWNER

pytestmark = pytest.mark.anyio


async def test_batches_of_two_tenants_take_turns(start: Starter, parts: TestParts, settings: Settings) -> None:
    model = Stepped()
    embedders: list[Embedder] = []

    def scripted(_: Embedder) -> Embedder:
        embedders.append(BatchingEmbedder(BatchQueue(model)))
        return embedders[-1]

    parts.wrap = scripted
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as service:
        keys = {tenant: await service.key(tenant) for tenant in ("acme", "bolt")}

        async def post(tenant: str, path: str, body: dict[str, Any]) -> None:
            answer = await service.client.post(f"/v1/memories{path}", json=body, headers=keys[tenant])
            assert answer.status_code in (200, 201), answer.text

        def items(tenant: str, number: int) -> dict[str, Any]:
            return {"items": [{**OWNER, "content": text} for text in texts(tenant, number)]}

        held = asyncio.create_task(post("acme", "", {**OWNER, "content": texts("acme first", 1)[0]}))
        await model.begun()
        loads = [asyncio.create_task(post(tenant, "/batch", items(tenant, 6))) for tenant in ("acme", "bolt")]
        queue = embedders[0]._queue  # type: ignore[attr-defined]

        async def waiting() -> bool:
            return len(queue._inbox) == 2

        await until(waiting)  # both have come as far as the model
        model.let_all_go()
        await asyncio.gather(held, *loads)
        runs = [batch[0].split()[0] for batch in model.batches]
        assert runs == ["acme", *["bolt", "acme"] * 6]


async def test_a_job_embeds_for_its_tenant(start: Starter, settings: Settings) -> None:
    async with start(settings) as service:
        held, seen = service.resources, list[str]()

        async def work(_: Run) -> Done:
            seen.append(tenant_at_work())
            return Done({})

        runner = Runner(held.store, held.clock, {"work": work}, Schedules(held.store, held.clock, {}))
        for tenant in ("acme", "bolt"):
            await held.store.commit([Job("work", tenant).enqueue(held.clock.now())])
        while len(seen) < 2:
            await runner.step()
        assert sorted(seen) == ["acme", "bolt"]
