"""The service is killed while a job runs and others of its lane wait: as a process of its own, with a slow model."""

import asyncio
import re
import signal
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.core.clock import SystemClock, rfc3339
from app.jobs.queue import JOBS, JobRecord
from app.settings import Settings
from app.storage.changes import Update
from app.storage.protocol import Store
from app.storage.schema import Eq, both
from app.storage.scope import SYSTEM
from tests.jobs.conftest import until
from tests.support.chat import completion
from tests.support.memories import OWNER
from tests.support.scripted import Reply, ScriptedServer, scripted_server
from tests.support.server import serving
from tests.support.stores import Open

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SESSIONS = 24
TOPIC = re.compile(r"topic-\d+")


class SlowModel:
    """A language model that answers nothing until the test is over, and notes which conversation it is asked about."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.over = threading.Event()
        self.server: ScriptedServer

    def answer(self, reply: Reply, body: dict[str, Any]) -> bytes:
        found = TOPIC.search(str(body["messages"]))
        self.asked.append(found[0] if found else "none")
        self.over.wait()
        return completion("{}")


@pytest.fixture
def model() -> Iterator[SlowModel]:
    slow = SlowModel()
    with scripted_server(slow.answer) as slow.server:
        yield slow
        slow.over.set()


def with_model(settings: Settings, model: SlowModel) -> dict[str, str]:
    return {
        "RECALLD_STORE": settings.store.get_secret_value(),
        "RECALLD_MONGODB_DATABASE": settings.mongodb.database,
        "RECALLD_MONGODB_DEADLINE_SECONDS": "30",
        "RECALLD_LLM_BASE_URL": model.server.url,
        "RECALLD_LLM_TIMEOUT_SECONDS": "600",
    }


def end_sessions(client: httpx.Client) -> None:
    for number in range(SESSIONS):
        said = {"role": "user", "content": f"Let us talk about topic-{number}."}
        assert client.post(f"/v1/sessions/s{number}/messages", json={**OWNER, "messages": [said]}).status_code == 201
        assert client.post(f"/v1/sessions/s{number}/end").status_code == 202


async def conversations(store: Store, status: str) -> list[JobRecord]:
    where = both(Eq("kind", "post_conversation"), Eq("status", status))
    return await store.find(JOBS, SYSTEM, where, order="asc")


async def asked(model: SlowModel) -> None:
    async def once() -> bool:
        return bool(model.asked)

    await until(once)


async def test_a_job_that_was_killed_in_mid_run_is_taken_before_the_queue_and_other_lanes_go_on(
    settings: Settings, model: SlowModel, open_store: Open
) -> None:
    environment = with_model(settings, model)
    with serving(settings.data_dir, **environment) as first:
        await asyncio.to_thread(end_sessions, first.client)
        await asked(model)
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
    store = await open_store()
    (killed,) = await conversations(store, "running")
    assert len(await conversations(store, "queued")) == SESSIONS - 1
    assert model.asked == ["topic-0"]
    model.asked.clear()
    passed = {"leased_until": rfc3339(SystemClock().now())}  # in place of the wait for the lease to lapse
    await store.commit([Update(JOBS, SYSTEM, killed["job_id"], set=passed)])

    with serving(settings.data_dir, **environment) as second:
        await asked(model)
        assert model.asked == ["topic-0"]
        (again,) = await conversations(store, "running")
        assert (again["job_id"], again["attempts"]) == (killed["job_id"], 1)
        assert len(await conversations(store, "queued")) == SESSIONS - 1, "it did not wait for the queue"
        policy = {**OWNER, "policy": {"older_than_days": 0}, "dry_run": False}
        operation_id = second.client.post("/v1/memories/forget", json=policy).json()["operation_id"]

        async def forgotten() -> bool:
            told = await asyncio.to_thread(second.client.get, f"/v1/operations/{operation_id}")
            return bool(told.json()["status"] == "succeeded")

        await until(forgotten)
        assert model.asked == ["topic-0"], "the model was waited for all the time"
