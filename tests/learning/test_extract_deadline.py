"""Extraction that takes longer than its request may."""

import asyncio
import threading
from dataclasses import replace

import pytest

from app.jobs.queue import JOBS, OPERATIONS
from app.learning import service as extraction_job
from app.storage.scope import SYSTEM
from tests.conftest import Service, TestParts
from tests.support.learning import kept, learned, operation, said, work
from tests.support.memories import OWNER, Json
from tests.support.model import Model

pytestmark = pytest.mark.anyio

BODY = {**OWNER, "messages": said("I prefer tea.")}


@pytest.fixture
def parts(parts: TestParts) -> TestParts:
    parts.tuning = replace(parts.tuning, extract_seconds=0.05)
    return parts


@pytest.fixture
def gate(llm: Model) -> threading.Event:
    """The model answers once it is set."""
    gate = threading.Event()

    def says(_: Json) -> Json:
        assert gate.wait(20)
        return {"memories": [learned("Ada prefers tea.", 1)]}

    llm.says["memories"] = says
    return gate


async def begun(service: Service, headers: dict[str, str] | None = None) -> Json:
    answer = await service.client.post("/v1/memories/extract", json=BODY, headers=headers)
    assert answer.status_code == 202, answer.text
    body: Json = answer.json()
    return body


async def ended(service: Service, operation_id: str) -> Json:
    while (found := await operation(service, operation_id))["status"] in ("queued", "running"):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return found


async def test_past_the_deadline_an_operation_ends_with_the_same_result(
    service: Service, llm: Model, gate: threading.Event
) -> None:
    started = await begun(service, {"Idempotency-Key": "k"})
    assert (started["kind"], started["user_id"]) == ("extract", "u")
    assert await kept(service) == []
    gate.set()
    done = await ended(service, started["operation_id"])
    assert done["status"] == "succeeded", done
    assert (done["result"]["created"], done["result"]["llm"]["calls"]) == (1, 2)
    (memory,) = await kept(service)
    assert [item["memory_id"] for item in done["result"]["items"]] == [memory["memory_id"]]
    assert llm.calls == 2  # the job waited for the answer that the request had asked for
    again = await begun(service, {"Idempotency-Key": "k"})
    assert again["operation_id"] == started["operation_id"]
    assert llm.calls == 2


async def test_a_job_of_another_process_asks_again_and_loses_nothing(
    service: Service, llm: Model, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object) -> None: ...

    monkeypatch.setattr(type(service.resources.jobs), "carry_out", nothing)
    started = await begun(service)
    while not llm.calls:  # noqa: ASYNC110 (on a busy machine the request ends before the model was asked)
        await asyncio.sleep(0.01)
    extraction_job._HANDED_OVER.pop(started["operation_id"]).cancel()  # as if the process had ended
    gate.set()
    await work(service)
    done = await operation(service, started["operation_id"])
    assert (done["status"], done["result"]["created"], llm.calls) == ("succeeded", 1, 3)
    assert await service.resources.store.find(JOBS, SYSTEM) == []


async def test_within_the_deadline_nothing_is_queued(service: Service, llm: Model) -> None:
    llm.says["memories"] = {"memories": []}
    body = {**OWNER, "messages": said("👍")}
    answer = await service.client.post("/v1/memories/extract", json=body)
    assert answer.status_code == 201, answer.text
    assert await service.resources.store.count(OPERATIONS, "default") == 0
