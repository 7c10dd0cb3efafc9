"""Learned memories of little trust that nothing confirmed are found to be stale."""

from typing import Any

import pytest

from app.learning.dependencies import NO_PRECONDITION
from app.memories.create import MemoryPlanner
from app.memories.repository import Embeddings, MemoryRepository
from app.memories.schemas import MemoryCreate, Origin
from app.settings import JobSettings, Settings
from app.storage.scope import Scope
from tests.conftest import Service
from tests.support.findings import findings, memory, reflect
from tests.support.learning import undo, work
from tests.support.memories import OWNER, Json, eventually

pytestmark = pytest.mark.anyio
BIKE = "The user owns a cargo bike."


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"jobs": JobSettings(enabled=False)})


async def learn(service: Service, content: str = BIKE, origin: Origin = "extraction", **more: Any) -> str:
    """The id of a memory as a job learns it, by default of an assistant's message."""
    held = service.resources
    memories = MemoryRepository(held.store, Scope("default"))
    planner = MemoryPlanner(memories, Embeddings(held.embedder), service.clock.now(), NO_PRECONDITION)
    body = MemoryCreate.model_validate({**OWNER, "content": content, "trust": 0.7, **more})
    plan = await planner.plan([body], "", [{"origin": origin}])
    await held.store.commit(plan.changes)
    return str(plan.answers[0]["memory_id"])


async def stale(service: Service) -> list[str]:
    """The ids of what a run finds to be stale."""
    await reflect(service)
    return [one["id"] for finding in await findings(service, kind="stale") for one in finding["evidence"]]


async def test_what_nothing_confirmed_is_a_finding_that_ends_it(service: Service) -> None:
    bike = await learn(service)
    service.clock.move(days=179)
    assert await stale(service) == []
    service.clock.move(days=2)
    assert await stale(service) == [bike]
    (finding,) = await findings(service)
    assert finding["reason"] == "It was learned with little trust, and nothing has confirmed it for 180 days."
    assert (finding["trust"], finding["proposal"]["action"]) == (0.7, "end")
    accepted = await service.client.post(f"/v1/findings/{finding['finding_id']}/accept")
    assert accepted.status_code == 200, accepted.text
    ended = (await service.client.get(f"/v1/memories/{bike}")).json()
    assert ended["valid_until"] is not None
    assert ended["status"] == "active"
    await undo(service, accepted.json()["operation_id"])
    assert (await service.client.get(f"/v1/memories/{bike}")).json()["valid_until"] is None


async def test_a_dismissed_one_does_not_come_back(service: Service) -> None:
    await learn(service)
    service.clock.move(days=181)
    await reflect(service)
    (finding,) = await findings(service)
    await service.client.post(f"/v1/findings/{finding['finding_id']}/dismiss")
    service.clock.move(days=30)
    assert await stale(service) == []


@pytest.mark.parametrize(
    "more",
    [{"trust": 0.8}, {"origin": "import"}, {"pinned": True}, {"key": "bike"}, {"memory_type": "experience"}],
    ids=["trusted", "of a caller", "pinned", "of a key", "something that happened"],
)
async def test_what_needs_no_confirmation(service: Service, more: Json) -> None:
    await learn(service, **more)
    service.clock.move(days=181)
    assert await stale(service) == []


async def test_what_was_served_lately_is_not_stale(service: Service) -> None:
    bike = await learn(service)
    service.clock.move(days=100)
    body = {**OWNER, "query": "Does the user own a cargo bike?"}
    assert BIKE in (await service.client.post("/v1/context", json=body)).json()["text"]

    async def counted() -> Json | None:
        got: Json = (await service.client.get(f"/v1/memories/{bike}")).json()
        return got if got["access_count"] else None

    assert (await eventually(counted))["last_accessed"] is not None
    service.clock.move(days=100)
    assert await stale(service) == []
    service.clock.move(days=100)
    assert await stale(service) == [bike]


async def test_what_was_called_helpful_or_changed_is_not_stale(service: Service) -> None:
    helpful, changed = await learn(service), await learn(service, "The user owns a red canoe.")
    given = {"items": [{"memory_id": helpful, "helpful": True}]}
    assert (await service.client.post("/v1/memories/feedback", json=given)).json()["items"][0]["applied"]
    service.clock.move(days=100)
    await service.client.patch(f"/v1/memories/{changed}", json={"importance": 0.6})
    service.clock.move(days=100)
    assert await stale(service) == []


async def test_what_was_said_again_lately_is_not_stale(service: Service) -> None:
    bike = await learn(service)
    service.clock.move(days=181)
    await memory(service, "Yes, the user owns the cargo bike of Mira.")
    assert await stale(service) == []
    service.clock.move(days=181)
    assert await stale(service) == [bike]


async def test_the_daily_job_finds_it_though_nothing_is_new(service: Service) -> None:
    bike = await learn(service)
    assert (await service.client.post("/v1/jobs/reflection/run", json={})).status_code == 202
    await work(service)
    assert await findings(service) == []
    service.clock.move(days=181)
    assert (await service.client.post("/v1/jobs/reflection/run", json={})).status_code == 202
    await work(service)
    assert [one["id"] for finding in await findings(service) for one in finding["evidence"]] == [bike]
