"""Jobs and operations, run and read by a test."""

import asyncio

import httpx

from app.lifespan import COLLECTIONS, job_runner
from tests.conftest import Service
from tests.support.memories import OWNER, Json

PATIENCE_SECONDS = 60


async def work(service: Service) -> int:
    """Runs every job that is due; how many."""
    held = service.resources
    runner, number = job_runner(held.settings, held.store, held.embedder, held.clock, tuning=held.tuning), 0
    while await runner.step():
        number += 1
    return number


async def forget(service: Service, headers: dict[str, str] | None = None, **body: object) -> Json:
    """The operation, ended."""
    asked = {"policy": {"older_than_days": 100}, "dry_run": False, **OWNER, **body}
    answer = await service.client.post("/v1/memories/forget", json=asked, headers=headers)
    assert answer.status_code == 202, answer.text
    assert answer.json()["status"] == "queued"
    await work(service)
    return await operation(service.client, answer.json()["operation_id"], headers)


async def operation(api: httpx.AsyncClient, operation_id: str, headers: dict[str, str] | None = None) -> Json:
    got = await api.get(f"/v1/operations/{operation_id}", headers=headers)
    assert got.status_code == 200, got.text
    body: Json = got.json()
    return body


async def undo(service: Service, operation_id: str, headers: dict[str, str] | None = None) -> Json:
    answer = await service.client.post(f"/v1/operations/{operation_id}/undo", headers=headers)
    assert answer.status_code == 202, answer.text
    await work(service)
    return await operation(service.client, answer.json()["operation_id"], headers)


async def rows(service: Service) -> list[Json]:
    """All but what a request for work is itself noted in."""
    held = [one for one in COLLECTIONS if one.name not in ("jobs", "operations", "audit")]
    return [doc for one in held for doc in await service.resources.store.find(one, None, order="asc")]


async def run(service: Service, name: str) -> Json:
    asked = (await service.client.post(f"/v1/jobs/{name}/run", json={})).json()
    done: Json = {"status": "queued"}
    async with asyncio.timeout(PATIENCE_SECONDS):
        while done["status"] in ("queued", "running"):  # a runner of the service's own may have taken it
            await work(service)
            await asyncio.sleep(0)
            done = await operation(service.client, asked["operation_id"])
    assert done["status"] == "succeeded", done
    result: Json = done["result"]
    return result


async def rows_of(service: Service, name: str) -> list[Json]:
    (collection,) = (one for one in COLLECTIONS if one.name == name)
    return await service.resources.store.find(collection, None, order="asc", limit=10_000)
