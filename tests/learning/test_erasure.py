"""A user who is erased while the language model reads: nothing of what it then says is stored."""

import asyncio
import json

import httpx
import pytest

from app.lifespan import COLLECTIONS
from app.storage.schema import EVERYTHING
from tests.conftest import Service
from tests.support.learning import learned, said, talk, work
from tests.support.memories import Json, problem
from tests.support.model import Model

pytestmark = pytest.mark.anyio
CANARY = "canary7f3a9c"


@pytest.fixture
async def reading(llm: Model, anyio_backend: str) -> asyncio.Event:
    """Set as soon as the model is asked; it takes its time to answer."""
    begun, loop = asyncio.Event(), asyncio.get_running_loop()

    def slowly(shown: Json) -> Json:
        if CANARY not in json.dumps(shown):
            return {"memories": [learned("The user prefers coffee.")]}
        loop.call_soon_threadsafe(begun.set)
        asyncio.run(asyncio.sleep(0.3))
        return {"memories": [learned(f"{CANARY} prefers tea.", 1)]}

    llm.says["memories"] = slowly
    return begun


async def stored(service: Service) -> list[str]:
    store = service.resources.store
    each = [(one, await store.find(one, None, EVERYTHING, limit=10_000)) for one in COLLECTIONS]
    return [one.name for one, docs in each for doc in docs if CANARY in json.dumps(doc)]


async def test_an_extraction_under_way_stores_nothing(
    service: Service, api: httpx.AsyncClient, reading: asyncio.Event
) -> None:
    body = {"agent_id": "a", "user_id": CANARY, "messages": said(f"I am {CANARY} and prefer tea.")}
    asked = asyncio.create_task(api.post("/v1/memories/extract", json=body, headers={"Idempotency-Key": "k"}))
    await reading.wait()
    assert (await api.delete(f"/v1/users/{CANARY}")).status_code == 200
    problem(await asked, 409, "conflict")
    assert await stored(service) == []
    assert (await api.post("/v1/memories/extract", json=body)).status_code == 201, "a new call may"


async def test_learning_under_way_stores_nothing(
    service: Service, api: httpx.AsyncClient, reading: asyncio.Event
) -> None:
    await talk(service, f"I am {CANARY} and prefer tea.", session=f"chat-{CANARY}", user_id=CANARY)
    await talk(service, "I prefer coffee.", session="other")
    for session in (f"chat-{CANARY}", "other"):
        assert (await api.post(f"/v1/sessions/{session}/end")).status_code == 202
    working = asyncio.create_task(work(service, minutes=1))
    await reading.wait()
    assert (await api.delete(f"/v1/users/{CANARY}")).status_code == 200
    await working
    await work(service, minutes=10)
    assert await stored(service) == []
    assert (await api.get("/v1/sessions/other")).json()["summary"] == "The user prefers coffee."
