"""What one agent has learned is copied to another."""

import httpx
import pytest

from app.memories.agents import AGENTS
from app.profiles.agents import LESSONS
from app.storage.changes import Update
from tests.conftest import Service
from tests.support.memories import Json, problem
from tests.support.operations import run, work
from tests.support.profiles import send

pytestmark = pytest.mark.anyio

COPY = "/v1/agents/new/experience/copy"


async def agent(api: httpx.AsyncClient, name: str, headers: dict[str, str] | None = None, **lessons: object) -> None:
    made = await api.post("/v1/agents", json={"agent_id": name, "name": name}, headers=headers)
    assert made.status_code == 201, made.text
    if lessons:
        learned = await api.patch(f"/v1/agents/{name}/experience", json=lessons, headers=headers)
        assert learned.status_code == 200, learned.text


async def copy(api: httpx.AsyncClient, source: str = "old", expect: int = 200) -> Json:
    return await send(api, "POST", COPY, {"from_agent_id": source}, expect)


def texts(experience: Json, name: str = "heuristics") -> list[str]:
    return [lesson["text"] for lesson in experience[name]]


async def test_lessons_are_copied_once_with_their_source_and_where_they_came_from(api: httpx.AsyncClient) -> None:
    await agent(api, "old", heuristics=["Ask first", "Be brief"], tool_patterns=["search: two words"])
    await send(api, "PATCH", "/v1/agents/old/experience", {"heuristics": ["be brief"]})
    await agent(api, "new", heuristics=["ask  FIRST", "Own"], known_pitfalls=["Rain"])
    before = await send(api, "GET", "/v1/agents/old/experience")
    copied = await copy(api)
    assert texts(copied) == ["ask  FIRST", "Own", "Be brief"]
    mine, own, brief = copied["heuristics"]
    assert (brief["seen"], brief["copied_from"]) == (2, "old")
    assert brief["source"] == before["heuristics"][1]["source"]
    assert (mine["seen"], mine.get("copied_from"), own.get("copied_from")) == (1, None, None)
    assert texts(copied, "tool_patterns") == ["search: two words"]
    assert texts(copied, "known_pitfalls") == ["Rain"]
    got = await api.get("/v1/agents/new/experience")
    assert (got.json(), got.headers["etag"]) == (copied, '"3"')
    assert await copy(api) == copied, "copied again it changes nothing"
    assert (await api.get("/v1/agents/new")).json()["version"] == 3
    assert await send(api, "GET", "/v1/agents/old/experience") == before


async def test_knowledge_is_added_by_paragraphs(api: httpx.AsyncClient) -> None:
    await agent(api, "old", procedural_knowledge="Refunds take a day.\n\nAsk for the order.")
    await agent(api, "new", procedural_knowledge="ask for  the ORDER.\n\nBe kind.")
    whole = "ask for  the ORDER.\n\nBe kind.\n\nRefunds take a day."
    assert (await copy(api))["procedural_knowledge"] == whole
    assert (await copy(api))["procedural_knowledge"] == whole


async def test_own_lessons_stay_and_the_most_seen_fill_the_rest(api: httpx.AsyncClient) -> None:
    await agent(api, "old", heuristics=[f"theirs {at}" for at in range(30)])
    await send(api, "PATCH", "/v1/agents/old/experience", {"heuristics": ["theirs 7", "theirs 29"]})
    await agent(api, "new", heuristics=[f"own {at}" for at in range(48)])
    copied = await copy(api)
    assert texts(copied)[:48] == [f"own {at}" for at in range(48)]
    assert set(texts(copied)[48:]) == {"theirs 7", "theirs 29"}
    assert all(len(copied[name]) <= 50 for name in LESSONS)
    assert await copy(api) == copied


async def test_a_copy_of_a_copy_says_the_last_place(api: httpx.AsyncClient) -> None:
    await agent(api, "first", heuristics=["Ask"])
    await agent(api, "old")
    await send(api, "POST", "/v1/agents/old/experience/copy", {"from_agent_id": "first"})
    await agent(api, "new")
    (lesson,) = (await copy(api))["heuristics"]
    assert (lesson["text"], lesson["copied_from"]) == ("Ask", "old")
    learned = await send(api, "PATCH", "/v1/agents/new/experience", {"heuristics": ["ASK"]})
    assert [(one["seen"], one["copied_from"]) for one in learned["heuristics"]] == [(2, "old")]


async def test_conditions_and_retries_hold(api: httpx.AsyncClient) -> None:
    await agent(api, "old", heuristics=["Ask"])
    await agent(api, "new")
    body = {"from_agent_id": "old"}
    problem(await api.post(COPY, json=body, headers={"If-Match": '"9"'}), 412, "precondition_failed")
    keyed = {"Idempotency-Key": "once", "If-Match": '"1"'}
    first = await api.post(COPY, json=body, headers=keyed)
    again = await api.post(COPY, json=body, headers=keyed)
    assert (first.status_code, again.json(), again.headers["Idempotency-Replayed"]) == (200, first.json(), "true")
    for bad, pointer in (({"from_agent_id": "new"}, "/from_agent_id"), ({}, "/from_agent_id")):
        problem(await api.post(COPY, json=bad), 422, "invalid", pointer)
    problem(await api.post(COPY, json={"from_agent_id": "nobody"}), 404, "not_found")
    problem(await api.post("/v1/agents/nobody/experience/copy", json=body), 404, "not_found")


async def test_the_key_must_reach_both_agents(service: Service) -> None:
    api, owner = service.client, await service.key()
    await agent(api, "old", owner, heuristics=["secret"])
    await agent(api, "new", owner)
    body = {"from_agent_id": "old"}
    bindings: list[tuple[Json, int]] = [
        ({"tenant": "other"}, 404),
        ({"agents": ["new"]}, 404),
        ({"agents": ["old"]}, 404),
        ({"users": ["u"]}, 403),
        ({"verbs": "read"}, 403),
        ({"agents": ["old", "new"]}, 200),
    ]
    for binding, status in bindings:
        answered = await api.post(COPY, json=body, headers=await service.key(**binding))
        assert answered.status_code == status, (binding, answered.text)
        assert ("secret" in answered.text) == (status == 200)


async def test_a_copied_lesson_leaves_with_the_user_it_came_of(service: Service) -> None:
    """Its source comes along, so that an erasure finds it at both agents."""
    api = service.client
    await agent(api, "old")
    await agent(api, "new")
    said = {"agent_id": "old", "user_id": "ada", "messages": [{"role": "user", "content": "hi"}]}
    await api.post("/v1/sessions/s/messages", json=said)
    await send(api, "PATCH", "/v1/agents/old/experience", {"heuristics": ["Ask", "Stay"]})
    from_session = {**(await send(api, "GET", "/v1/agents/old/experience")), "procedural_knowledge": ""}
    from_session["heuristics"][0]["source"]["session_id"] = "s"
    await _store_experience(service, "old", from_session)
    assert texts(await copy(api)) == ["Ask", "Stay"]
    assert (await api.delete("/v1/users/ada")).status_code in (200, 202)
    await work(service)
    for name in ("old", "new"):
        assert texts(await send(api, "GET", f"/v1/agents/{name}/experience")) == ["Stay"]


async def test_a_lesson_learned_from_rolled_up_actions_leaves_with_their_user(service: Service) -> None:
    api = service.client
    await agent(api, "old", heuristics=["Ask", "Stay"])
    body = {"agent_id": "old", "user_id": "ada", "action_type": "look", "timestamp": "2026-01-01T00:00:00Z"}
    action = (await api.post("/v1/actions", json=body)).json()
    experience = await send(api, "GET", "/v1/agents/old/experience")
    experience["heuristics"][0]["source"]["action_ids"] = [action["action_id"]]
    await _store_experience(service, "old", experience)
    await run(service, "retention")
    assert (await api.delete("/v1/users/ada")).status_code in (200, 202)
    await work(service)
    assert texts(await send(api, "GET", "/v1/agents/old/experience")) == ["Stay"]


async def _store_experience(service: Service, agent_id: str, experience: Json) -> None:
    await service.resources.store.commit([Update(AGENTS, "default", agent_id, set={"experience": experience})])
