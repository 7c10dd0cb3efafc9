"""What the id of an action leads to once the action was rolled up and purged."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import httpx
import pytest

from app.actions.schemas import ACTIONS
from app.audit.trail import AUDIT
from app.lifespan import COLLECTIONS
from app.settings import JobSettings, Settings
from tests.conftest import Service, Starter
from tests.support.memories import OWNER, Json, problem
from tests.support.operations import rows_of, run

pytestmark = pytest.mark.anyio


@pytest.fixture
async def service(start: Starter, settings: Settings) -> AsyncIterator[Service]:
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as made:
        yield made


async def log(api: httpx.AsyncClient, at: str = "2026-04-01T10:00:00Z", **fields: Any) -> str:
    body = {**OWNER, "action_type": "mail", "content": "did it", "timestamp": at, **fields}
    made = await api.post("/v1/actions", json=body)
    assert made.status_code == 201, made.text
    return str(made.json()["action_id"])


async def summary_of(api: httpx.AsyncClient, action_id: str) -> Json:
    """The memory that stands for a purged action."""
    got = await api.get(f"/v1/actions/{action_id}")
    assert got.status_code == 200, got.text
    action = got.json()
    assert action["action_id"] == action_id
    memory: Json = (await api.get(f"/v1/memories/{action['rolled_up_into']}")).json()
    assert (action["content"], action["agent_id"], action["user_id"]) == (
        memory["content"],
        memory["agent_id"],
        memory["user_id"],
    )
    assert action_id in memory["source"]["action_ids"]
    return memory


async def test_an_action_that_stands_is_rolled_up_into_nothing(service: Service) -> None:
    action_id = await log(service.client, "2026-05-31T10:00:00Z")
    assert (await service.client.get(f"/v1/actions/{action_id}")).json()["rolled_up_into"] is None


async def test_the_days_summary_answers_for_its_actions(service: Service) -> None:
    api = service.client
    first = [await log(api, f"2026-04-01T{hour:02d}:00:00Z", outcome="success") for hour in (1, 2)]
    other = await log(api, "2026-04-02T01:00:00Z", outcome="failure")
    shared = await log(api, user_id=None)
    await run(service, "retention")
    assert await rows_of(service, ACTIONS.name) == []
    day = await summary_of(api, first[0])
    assert (await summary_of(api, first[1]))["memory_id"] == day["memory_id"]
    assert day["content"].startswith("On 2026-04-01: 2 actions")
    assert (await summary_of(api, other))["content"].startswith("On 2026-04-02: 1 action")
    assert (await summary_of(api, shared))["user_id"] is None


async def test_a_late_action_leads_to_the_same_summary(service: Service) -> None:
    early = await log(service.client)
    await run(service, "retention")
    service.clock.move(days=90)
    late = await log(service.client, "2026-04-01T23:00:00Z")
    await run(service, "retention")
    one, other = [await summary_of(service.client, action_id) for action_id in (early, late)]
    assert one["memory_id"] == other["memory_id"]


async def test_what_a_caller_named_as_its_source_stays_resolvable(service: Service) -> None:
    action_id = await log(service.client)
    body = {**OWNER, "content": "Mail works best in the morning", "source": {"action_ids": [action_id]}}
    lesson = (await service.client.post("/v1/memories", json=body)).json()
    await run(service, "retention")
    (named,) = lesson["source"]["action_ids"]
    assert (await summary_of(service.client, named))["memory_type"] == "summary"


async def test_feedback_on_a_purged_action_says_where_it_went(service: Service) -> None:
    action_id = await log(service.client)
    await run(service, "retention")
    memory = await summary_of(service.client, action_id)
    told = await service.client.patch(f"/v1/actions/{action_id}/feedback", json={"user_rating": 5})
    assert memory["memory_id"] in problem(told, 409, "conflict")["detail"]


async def test_without_its_summary_the_action_is_gone(service: Service) -> None:
    action_id = await log(service.client)
    await run(service, "retention")
    memory = await summary_of(service.client, action_id)
    assert (await service.client.delete(f"/v1/memories/{memory['memory_id']}")).status_code == 204
    problem(await service.client.get(f"/v1/actions/{action_id}"), 404, "not_found")
    problem(await service.client.get("/v1/actions/act_none"), 404, "not_found")


async def test_others_see_nothing_of_it(service: Service) -> None:
    action_id = await log(service.client)
    await run(service, "retention")
    owner = await service.key()
    for stranger in (await service.key("other"), await service.key(users=["nobody"]), await service.key(agents=["b"])):
        problem(await service.client.get(f"/v1/actions/{action_id}", headers=stranger), 404, "not_found")
    assert (await service.client.get(f"/v1/actions/{action_id}", headers=owner)).status_code == 200


async def test_what_all_users_see_goes_with_the_purged_actions_that_it_came_from(service: Service) -> None:
    theirs, others = await log(service.client), await log(service.client, user_id="v")
    await run(service, "retention")
    made = []
    for action_ids in ([theirs], [theirs, others]):
        body = {"agent_id": "a", "content": f"Of {len(action_ids)}", "source": {"action_ids": action_ids}}
        made.append((await service.client.post("/v1/memories", json=body)).json()["memory_id"])
    assert (await service.client.delete("/v1/users/u")).status_code in (200, 202)
    await run(service, "retention")
    statuses = [(await service.client.get(f"/v1/memories/{memory_id}")).status_code for memory_id in made]
    assert statuses == [404, 200]


async def test_erasing_the_user_leaves_nothing_that_names_the_action(service: Service) -> None:
    action_id = await log(service.client)
    await run(service, "retention")
    erased = await service.client.delete("/v1/users/u")
    assert erased.status_code in (200, 202)
    await run(service, "retention")
    problem(await service.client.get(f"/v1/actions/{action_id}"), 404)
    for collection in (one for one in COLLECTIONS if one is not AUDIT):  # which keeps ids of ours
        docs = await service.resources.store.find(collection, None, order="asc", limit=1_000)
        assert action_id not in str(cast(Sequence[Json], docs)), collection.name
