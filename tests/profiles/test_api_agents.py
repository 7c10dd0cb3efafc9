"""Agents: settings, experience, and the prompt made of it."""

import asyncio
from datetime import timedelta

import httpx
import pytest

from app.core import prompt_text
from app.core.clock import rfc3339
from app.core.prompt_text import LEARNED
from app.memories.agents import AGENTS
from app.profiles.agents import LESSONS
from tests.conftest import Service, TurnedClock
from tests.profiles.test_prompt import HOSTILE, SKELETON, tags
from tests.support.memories import OWNER, Json, problem, remember
from tests.support.planting import plant
from tests.support.profiles import AGENT, know, learn, prompt, register, send

pytestmark = pytest.mark.anyio

DEFAULTS: Json = {
    "max_context_tokens": 8000,
    "min_importance": 0.0,
    "decay": {"factor": 0.95, "grace_days": 30.0, "floor": 0.1},
    "extraction_instructions": None,
}


async def test_a_new_agent_has_all_its_fields(api: httpx.AsyncClient) -> None:
    made = await register(api, model="m", system_prompt="p", description="d")
    assert (made["agent_id"], made["name"], made["model"], made["version"]) == ("a", "Support", "m", 1)
    assert made["settings"] == DEFAULTS
    lessons: Json = {name: [] for name in LESSONS}
    assert made["experience"] == {"procedural_knowledge": "", **lessons}
    assert {"tenant_id", "user_id"}.isdisjoint(made)
    got = await api.get(AGENT)
    assert (got.json(), got.headers["etag"]) == (made, '"1"')
    other = await send(api, "POST", "/v1/agents", {"name": "Other"}, 201)
    assert other["agent_id"].startswith("agent_")
    assert [one["name"] for one in (await send(api, "GET", "/v1/agents"))["items"]] == ["Other", "Support"]


async def test_a_name_is_one_agents_only(api: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(api.post("/v1/agents", json={"name": "Same"}) for _ in range(12)))
    assert sorted(made.status_code for made in answers) == [201] + [409] * 11
    await register(api)
    problem(await api.patch(AGENT, json={"name": "Same"}), 409, "already_exists")
    problem(await api.post("/v1/agents", json={"agent_id": "a", "name": "New"}), 409, "already_exists")
    assert (await send(api, "PATCH", AGENT, {"name": "Support"}))["version"] == 1
    assert (await send(api, "PATCH", AGENT, {"name": "Renamed"}))["version"] == 2
    await send(api, "POST", "/v1/agents", {"name": "Support"}, 201)  # it is free again


async def test_what_a_patch_leaves_out_of_the_settings_stays(api: httpx.AsyncClient) -> None:
    await register(api, settings={"min_importance": 0.3, "decay": {"floor": 0.2}})
    patched = await send(api, "PATCH", AGENT, {"settings": {"max_context_tokens": 100}})
    decay = {**DEFAULTS["decay"], "floor": 0.2}
    assert patched["settings"] == {**DEFAULTS, "max_context_tokens": 100, "min_importance": 0.3, "decay": decay}
    assert await send(api, "GET", AGENT) == patched
    nested = await send(api, "PATCH", AGENT, {"settings": {"decay": {"factor": 0.5}}, "model": "m"})
    assert nested["settings"] == {**patched["settings"], "decay": {**decay, "factor": 0.5}}
    cleared = await send(api, "PATCH", AGENT, {"settings": None, "model": None})
    assert (cleared["settings"], cleared["model"]) == (DEFAULTS, "")
    assert (await prompt(api, user_id="ada")) == {"text": "", "tokens": 0}
    for bad, pointer in (
        ({"settings": {"decay": {"factor": 0}}}, "/settings/decay/factor"),
        ({"settings": {"min_importance": 2}}, "/settings/min_importance"),
        ({"name": None}, "/name"),
        ({"experience": {}}, "/experience"),
    ):
        problem(await api.patch(AGENT, json=bad), 422, "invalid", pointer)


async def test_a_deleted_agent_is_gone_and_its_memories_stay(api: httpx.AsyncClient) -> None:
    await register(api)
    await remember(api, "likes tea")
    problem(await api.delete(AGENT, headers={"If-Match": '"9"'}), 412, "precondition_failed")
    assert (await api.delete(AGENT)).status_code == 204
    for path in ("", "/experience", "/experience-prompt"):
        problem(await api.get(AGENT + path), 404, "not_found")
    problem(await api.patch(AGENT, json={"name": "x"}), 404, "not_found")
    problem(await api.patch(f"{AGENT}/experience", json={}), 404, "not_found")
    problem(await api.delete(AGENT), 404, "not_found")
    assert len((await send(api, "GET", "/v1/memories?agent_id=a"))["items"]) == 1
    assert (await register(api))["version"] == 1


async def test_lessons_are_learned_once_and_counted(api: httpx.AsyncClient) -> None:
    await register(api)
    await learn(api, heuristics=["Ask first", "be brief"], procedural_knowledge="old")
    learned = await learn(api, heuristics=["ask  FIRST"], procedural_knowledge="new")
    assert [(one["text"], one["seen"]) for one in learned["heuristics"]] == [("Ask first", 2), ("be brief", 1)]
    assert learned["procedural_knowledge"] == "new"
    assert learned["heuristics"][0]["source"]["origin"] == "api"
    assert await send(api, "GET", f"{AGENT}/experience") == learned
    agent = await send(api, "GET", AGENT)
    assert (agent["experience"], agent["version"]) == (learned, 3)
    assert await learn(api) == learned
    many = await learn(api, heuristics=[f"lesson {at}" for at in range(60)])
    texts = [one["text"] for one in many["heuristics"]]
    assert (len(texts), texts[0], texts[-1]) == (50, "Ask first", "lesson 59")
    cleared = await learn(api, heuristics=None, procedural_knowledge=None)
    assert (cleared["heuristics"], cleared["procedural_knowledge"]) == ([], "")
    wrong: list[Json] = [{"heuristics": [""]}, {"unknown": []}, {"heuristics": [{"text": "x"}]}]
    for bad in wrong:
        problem(await api.patch(f"{AGENT}/experience", json=bad), 422, "invalid")


async def test_concurrent_lessons_all_land(api: httpx.AsyncClient) -> None:
    await register(api)
    await asyncio.gather(*(learn(api, heuristics=["shared", f"own {at}"]) for at in range(12)))
    learned = (await send(api, "GET", f"{AGENT}/experience"))["heuristics"]
    assert {one["text"]: one["seen"] for one in learned} == {"shared": 12, **{f"own {at}": 1 for at in range(12)}}


async def test_the_source_of_a_lesson_names_the_key(service: Service) -> None:
    api, headers = service.client, await service.key()
    await api.post("/v1/agents", json={"agent_id": "a", "name": "x"}, headers=headers)
    learned = await api.patch(f"{AGENT}/experience", json={"heuristics": ["x"]}, headers=headers)
    key_id = learned.json()["heuristics"][0]["source"]["api_key_id"]
    assert key_id
    assert key_id in headers["Authorization"]


PRIVATE = ("keep it secret", "learn no passwords", "ask for the order number")


async def test_a_key_of_a_user_does_not_read_what_an_agent_keeps_from_its_users(service: Service) -> None:
    api, operator = service.client, await service.key(verbs="read,write,admin")
    prompt, rule, lesson = PRIVATE
    agent = {"agent_id": "a", "name": "Support", "system_prompt": prompt, "settings": {"extraction_instructions": rule}}
    made = (await api.post("/v1/agents", json=agent, headers=operator)).json()
    learned = (await api.patch(f"{AGENT}/experience", json={"heuristics": [lesson]}, headers=operator)).json()
    for agents in ([], ["a"]):
        bound = await service.key(verbs="read,write,admin", users=["ada"], agents=agents)
        got, page = [await api.get(path, headers=bound) for path in (AGENT, "/v1/agents")]
        settings = made["settings"] | {"extraction_instructions": None}
        shown = {"system_prompt": None, "experience": None, "settings": settings}
        assert {name: got.json()[name] for name in shown} == shown
        assert got.json()["name"] == "Support"
        (listed,) = page.json()["items"]
        assert listed == got.json() | {name: listed[name] for name in ("records", "last_active")}
        problem(await api.get(f"{AGENT}/experience", headers=bound), 403, "forbidden")
        for body in ({}, {"name": "Support"}, {"system_prompt": "mine"}):
            refused = await api.patch(AGENT, json=body, headers=bound)
            assert not any(text in problem(refused, 403, "forbidden")["detail"] for text in PRIVATE)
        text = (await api.get(f"{AGENT}/experience-prompt?user_id=ada", headers=bound)).json()["text"]
        assert lesson in text, "the text of lessons is for the prompt of this user's agent"
        assert "source" not in text
    for own in (operator, await service.key(agents=["a"])):
        shown = (await api.get(AGENT, headers=own)).json()
        assert (shown["system_prompt"], shown["settings"]["extraction_instructions"]) == (prompt, rule)
        assert shown["experience"] == (await api.get(f"{AGENT}/experience", headers=own)).json() == learned
    for stranger in (await service.key(agents=["b"]), await service.key("other")):
        problem(await api.get(AGENT, headers=stranger), 404, "not_found")


async def test_the_prompt_tells_what_the_agent_may_know_of_the_user(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    await register(api, settings={"min_importance": 0.2})
    await learn(api, heuristics=["ask first"])
    await know(api, name="Ada")
    known: list[tuple[str, Json]] = [
        ("of this pair", {"importance": 0.5}),
        ("most important", {"importance": 0.9}),
        ("for all agents", {"agent_id": None, "importance": 0.4}),
        ("too unimportant", {"importance": 0.1}),
        ("of another agent", {"agent_id": "b"}),
        ("of another user", {"user_id": "eve"}),
        ("for all users", {"user_id": None}),
        ("expired by now", {"expires_at": "2026-06-02T00:00:00Z"}),
        ("only said", {"memory_type": "message"}),
    ]
    for content, fields in known:
        await remember(api, content, **{"user_id": "ada", **fields})
    clock.move(days=1)
    text = (await prompt(api, user_id="ada"))["text"]
    contents = ("ask first", "Ada", "most important", "of this pair", "for all agents")
    assert sorted(contents, key=text.index) == list(contents)
    for absent in ("too unimportant", "of another", "for all users", "expired", "only said"):
        assert absent not in text
    alone = (await prompt(api))["text"]
    assert alone == f"<agent_experience>\n{LEARNED}\nheuristics: ask first\n</agent_experience>"
    assert (await prompt(api, user_id="nobody"))["text"] == alone


async def test_an_agent_of_an_earlier_version_has_no_bound_of_importance(service: Service) -> None:
    agent = await register(service.client)
    earlier = {name: value for name, value in agent["settings"].items() if name != "min_importance"}
    await plant(service.resources.store, AGENTS, "a", settings=earlier)
    await remember(service.client, "takes tea without milk", user_id="ada", importance=0.01)
    assert "takes tea without milk" in (await prompt(service.client, user_id="ada"))["text"]


async def test_the_budget_is_a_wall_and_no_content_breaks_out(api: httpx.AsyncClient) -> None:
    await register(api)
    await learn(api, heuristics=HOSTILE, procedural_knowledge="".join(HOSTILE))
    await know(api, interests=HOSTILE, custom=dict.fromkeys(HOSTILE, HOSTILE))
    items = [{"agent_id": "a", "user_id": "ada", "content": one, "context": one} for one in HOSTILE]
    await send(api, "POST", "/v1/memories/batch", {"items": items}, 201)
    whole = await prompt(api, user_id="ada")
    assert len(tags(whole["text"])) == len(SKELETON)
    for budget in (0, 1, 50, whole["tokens"] // 2, whole["tokens"] - 1, whole["tokens"]):
        part = await prompt(api, user_id="ada", max_tokens=budget)
        assert part["tokens"] == prompt_text.count(part["text"]) <= budget
    problem(await api.get(f"{AGENT}/experience-prompt", params={"max_tokens": -1}), 422, "invalid")


@pytest.mark.parametrize("binding", [{"tenant": "other"}, {"agents": ["b"]}])
async def test_what_is_not_yours_does_not_exist(service: Service, binding: Json) -> None:
    api, owner, stranger = service.client, await service.key(), await service.key(**binding)
    await api.post("/v1/agents", json={"agent_id": "a", "name": "Secret"}, headers=owner)
    for method, path, body in (
        ("GET", "", None),
        ("PATCH", "", {"model": "mine"}),
        ("GET", "/experience", None),
        ("PATCH", "/experience", {"heuristics": ["x"]}),
        ("GET", "/experience-prompt", None),
        ("DELETE", "", None),
    ):
        problem(await api.request(method, AGENT + path, json=body, headers=stranger), 404, "not_found")
    assert (await api.get("/v1/agents", headers=stranger)).json()["items"] == []
    assert (await api.get(AGENT, headers=owner)).json()["version"] == 1


async def test_a_user_bound_key_reads_agents_and_writes_none(service: Service) -> None:
    api, owner, bound = service.client, await service.key(), await service.key(users=["ada"])
    await api.post("/v1/agents", json={"agent_id": "a", "name": "x"}, headers=owner)
    assert (await api.get(AGENT, headers=bound)).status_code == 200
    for method, path, body in (
        ("POST", "/v1/agents", {"name": "y"}),
        ("PATCH", AGENT, {"model": "m"}),
        ("PATCH", f"{AGENT}/experience", {"heuristics": ["x"]}),
        ("DELETE", AGENT, None),
    ):
        problem(await api.request(method, path, json=body, headers=bound), 403, "forbidden")
    assert (await api.get(AGENT, headers=owner)).json()["version"] == 1


async def test_a_user_bound_key_reads_no_other_user_in_the_prompt(service: Service) -> None:
    api, owner, bound = service.client, await service.key(), await service.key(users=["eve"])
    await api.post("/v1/agents", json={"agent_id": "a", "name": "x"}, headers=owner)
    await api.patch("/v1/users/ada/profile", json={"name": "Ada"}, headers=owner)
    memory = {"agent_id": "a", "user_id": "ada", "content": "secret"}
    await api.post("/v1/memories", json=memory, headers=owner)
    asked = await api.get(f"{AGENT}/experience-prompt", params={"user_id": "ada"}, headers=bound)
    assert asked.json() == {"text": "", "tokens": 0}


async def test_the_prompt_has_what_matters_most_however_old(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    await register(api, settings={"min_importance": 0.5})
    await remember(api, "is allergic to nuts", importance=0.95, pinned=True)
    await remember(api, "moves to Oslo", importance=0.9, valid_from=rfc3339(clock.now() + timedelta(days=30)))
    await remember(api, "lived in Rome", importance=0.9, valid_until=rfc3339(clock.now() - timedelta(days=30)))
    items = [{**OWNER, "content": f"note {at}", "importance": 0.1} for at in range(120)]
    assert (await api.post("/v1/memories/batch", json={"items": items})).status_code == 201
    text = (await prompt(api, user_id="u"))["text"]
    assert "allergic to nuts" in text
    assert not [one for one in ("Oslo", "Rome", "note") if one in text]
