"""Short words for what the tests of learning do."""

import asyncio
from typing import Any

from app.jobs.queue import JOBS
from app.lifespan import job_runner
from app.storage.schema import Eq
from app.storage.scope import SYSTEM
from tests.conftest import Service
from tests.support.memories import OWNER

Json = dict[str, Any]


def said(*texts: str) -> list[Json]:
    """The user and the assistant in turn."""
    return [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]


def learned(content: str, *seqs: int, **more: Any) -> Json:
    """A statement as the model says it."""
    return {"text": content, "message_seqs": list(seqs), "importance": 0.6, **more}


async def talk(service: Service, *texts: str, session: str = "s", **more: Any) -> None:
    body = {**OWNER, "messages": said(*texts), **more}
    answer = await service.client.post(f"/v1/sessions/{session}/messages", json=body)
    assert answer.status_code == 201, answer.text


async def work(service: Service, minutes: float = 0) -> int:
    """Runs every job that is due; how many. Waits for what the service's own loop has taken, where that runs, too."""
    held = service.resources
    service.clock.move(minutes=minutes)
    runner, number = job_runner(held.settings, held.store, held.embedder, held.clock, held.llm, held.tuning), 0
    while True:
        while await runner.step():
            number += 1
        if not (held.settings.jobs.enabled and await held.store.count(JOBS, SYSTEM, Eq("status", "running"))):
            return number
        await asyncio.sleep(0.01)


async def end(service: Service, session: str = "s") -> Json:
    """The operation of the session's end, once it is over or waits for another try."""
    answer = await service.client.post(f"/v1/sessions/{session}/end")
    assert answer.status_code == 202, answer.text
    await work(service)
    return await operation(service, answer.json()["operation_id"])


async def operation(service: Service, operation_id: str, headers: dict[str, str] | None = None) -> Json:
    body: Json = (await service.client.get(f"/v1/operations/{operation_id}", headers=headers)).json()
    return body


async def kept(service: Service, **params: Any) -> list[Json]:
    """Memories that are neither messages nor summaries, newest first."""
    page = await service.client.get("/v1/memories", params={"user_id": "u", "limit": 100, **params})
    return [item for item in page.json()["items"] if item["memory_type"] not in ("message", "summary")]


async def summaries(service: Service, **params: Any) -> list[Json]:
    """Memories of type `summary`, newest first."""
    page = await service.client.get("/v1/memories", params={"user_id": "u", "memory_type": "summary", **params})
    items: list[Json] = page.json()["items"]
    return items


async def consolidate(service: Service, headers: dict[str, str] | None = None, **body: Any) -> Json:
    """The operation, once it is over."""
    answer = await service.client.post("/v1/jobs/consolidation/run", json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    await work(service)
    return await operation(service, answer.json()["operation_id"], headers)


async def undo(service: Service, operation_id: str) -> Json:
    answer = await service.client.post(f"/v1/operations/{operation_id}/undo")
    assert answer.status_code == 202, answer.text
    await work(service)
    return await operation(service, answer.json()["operation_id"])
