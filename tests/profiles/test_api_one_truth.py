"""Fields of the profile that are facts: one write path, one truth."""

import asyncio
from typing import Any

import httpx
import pytest

from app.facts.profile import EMPTY_PROFILE
from app.profiles.users import Profile
from tests.conftest import Service
from tests.support.memories import Json, problem
from tests.support.profiles import USER, know, profile, send, state

pytestmark = pytest.mark.anyio


async def of_user(api: httpx.AsyncClient, **params: Any) -> list[Json]:
    answered = await api.get("/v1/facts", params={"user_id": "ada", "subject": "@user", **params})
    items: list[Json] = answered.json()["items"]
    return items


def test_the_empty_profile_has_every_field() -> None:
    assert Profile().model_dump() == EMPTY_PROFILE


async def test_a_patch_of_the_profile_asserts_facts(api: httpx.AsyncClient) -> None:
    await know(api, name="Ada", age=36, home="London", occupation="analyst", interests=["engines"])
    said = {fact["predicate"]: fact["object"] for fact in await of_user(api)}
    assert said == {"has_name": "Ada", "has_age": "36", "lives_in": "London", "works_as": "analyst"}
    assert {fact["agent_id"] for fact in await of_user(api)} == {None}
    assert (await profile(api))["age"] == 36


@pytest.mark.parametrize("predicate", ["lives_in", "livesIn", "Resides in", "home"])
async def test_a_fact_about_the_user_shows_in_the_profile(api: httpx.AsyncClient, predicate: str) -> None:
    fact = await state(api, predicate, "Oslo", agent_id="support")
    assert (fact["subject"], fact["predicate"], fact["agent_id"]) == ("@user", "lives_in", None)
    assert (await profile(api))["home"] == "Oslo"


async def test_the_later_wins_and_the_earlier_is_kept(api: httpx.AsyncClient) -> None:
    await state(api, "lives_in", "Rome", valid_from="2019-01-01T00:00:00Z")
    before = await profile(api)
    await state(api, "lives_in", "Oslo", valid_from="2021-05-01T00:00:00Z")
    after = await profile(api)
    assert (before["home"], after["home"]) == ("Rome", "Oslo")
    assert after["version"] > before["version"]
    assert (await profile(api, as_of="2020-01-01T00:00:00Z"))["home"] == "Rome"
    assert (await profile(api, as_of="2018-01-01T00:00:00Z"))["home"] is None
    assert (await profile(api, known_at=before["updated_at"]))["home"] == "Rome"


async def test_less_trust_changes_no_profile(api: httpx.AsyncClient) -> None:
    await know(api, home="London")
    disputed = await state(api, "lives_in", "Mars", trust=0.4)
    assert disputed["status"] == "disputed"
    assert (await profile(api))["home"] == "London"
    await send(api, "POST", f"/v1/facts/{disputed['fact_id']}/resolve", {"keep": disputed["fact_id"]})
    assert (await profile(api))["home"] == "Mars"


async def test_retracting_or_deleting_the_fact_empties_the_field(api: httpx.AsyncClient) -> None:
    home, job = await state(api, "lives_in", "Oslo"), await state(api, "works_as", "smith")
    first = await profile(api)
    await send(api, "POST", f"/v1/facts/{home['fact_id']}/retract")
    second = await profile(api)
    assert (await api.delete(f"/v1/facts/{job['fact_id']}")).status_code == 204
    third = await profile(api)
    assert [one["home"] for one in (first, second, third)] == ["Oslo", None, None]
    assert [one["occupation"] for one in (first, second, third)] == ["smith", "smith", None]
    assert first["version"] < second["version"] < third["version"]


async def test_null_retracts_the_fact(api: httpx.AsyncClient) -> None:
    await know(api, home="London", name="Ada")
    assert (await know(api, home=None))["home"] is None
    assert [fact["object"] for fact in await of_user(api)] == ["Ada"]
    assert [fact["object"] for fact in await of_user(api, status="retracted", timeline=True)] == ["London"]
    await send(api, "PUT", f"{USER}/profile", {"age": 3})
    assert [fact["object"] for fact in await of_user(api)] == ["3"]


async def test_the_same_value_again_writes_nothing(api: httpx.AsyncClient) -> None:
    first = await know(api, home="London", age=36)
    assert await know(api, home="London", age=36) == first
    await state(api, "lives_in", "London", 200)
    assert await profile(api) == first


async def test_a_condition_on_the_profile_sees_facts(api: httpx.AsyncClient) -> None:
    tag = (await api.patch(f"{USER}/profile", json={"name": "Ada"})).headers["etag"]
    await state(api, "lives_in", "Oslo")
    refused = await api.patch(f"{USER}/profile", json={"home": "Rome"}, headers={"If-Match": tag})
    problem(refused, 412, "precondition_failed")
    assert (await profile(api))["home"] == "Oslo"


@pytest.mark.parametrize(
    "said",
    [
        {"predicate": "has_age", "object": "about forty"},
        {"predicate": "has_age", "object": "151"},
        {"predicate": "has_age", "object": "٣"},
        {"predicate": "lives_in", "object": "x" * 2001},
        {"predicate": "lives_in", "object": "Oslo", "cardinality": "many"},
        {"predicate": "lives_in", "object": "Oslo", "on_conflict": "keep_both"},
    ],
)
async def test_a_value_that_no_profile_can_have_is_refused(api: httpx.AsyncClient, said: Json) -> None:
    body = {"user_id": "ada", "subject": "@user", **said}
    problem(await api.post("/v1/facts", json=body), 422, "invalid")
    problem(await api.post("/v1/facts/batch", json={"items": [body]}), 422, "invalid")
    problem(await api.get(f"{USER}/profile"), 404, "not_found")


async def test_other_facts_about_the_user_are_an_agents_own(api: httpx.AsyncClient) -> None:
    fact = await state(api, "likes", "tea", subject=" @USER ", agent_id="support")
    assert (fact["subject"], fact["agent_id"]) == ("@user", "support")
    problem(await api.get(f"{USER}/profile"), 404, "not_found")


async def test_the_list_of_users_and_the_prompts_show_facts(api: httpx.AsyncClient) -> None:
    await send(api, "POST", "/v1/agents", {"agent_id": "a", "name": "Support"}, 201)
    await state(api, "lives_in", "Oslo")
    (listed,) = (await api.get("/v1/users")).json()["items"]
    assert listed["home"] == "Oslo"
    prompt = await api.get("/v1/agents/a/experience-prompt", params={"user_id": "ada"})
    assert '"home":"Oslo"' in prompt.json()["text"].replace(" ", "")
    asked = {"agent_id": "a", "user_id": "ada", "query": "Where does the user live?"}
    text = (await api.post("/v1/context", json=asked)).json()["text"]
    assert text.count("Oslo") == 1, text
    assert "home: Oslo" in text


async def test_nothing_crosses_users_and_erasure_takes_all(api: httpx.AsyncClient) -> None:
    await state(api, "lives_in", "Oslo")
    await send(api, "PATCH", "/v1/users/ben/profile", {"home": "Rome"})
    assert (await profile(api))["home"] == "Oslo"
    lines = (await api.get(f"{USER}/export")).text
    assert "Oslo" in lines
    assert "Rome" not in lines


async def test_a_key_that_is_bound_to_agents_reads_and_does_not_write_the_profile(service: Service) -> None:
    api = service.client
    admin = await service.key(verbs="read,write")
    body = {"user_id": "ada", "agent_id": "a", "subject": "@user", "predicate": "lives_in", "object": "Oslo"}
    assert (await api.post("/v1/facts", json=body, headers=admin)).status_code == 201
    bound = await service.key(verbs="read,write", agents=["a"])
    for fields in ({"predicate": "lives_in"}, {"predicate": "has_name"}, {"predicate": "age"}, {"predicate": "job"}):
        said = body | {"object": "7"} | fields
        refused = problem(await api.post("/v1/facts", json=said, headers=bound), 403, "forbidden")
        assert "which all agents see" in refused["detail"]
    assert (await api.get(f"{USER}/profile", headers=bound)).json()["home"] == "Oslo"
    read = {"agent_id": "a", "user_id": "ada"}
    (listed,) = (await api.get("/v1/facts", params={"user_id": "ada", "subject": "@user"}, headers=bound)).json()[
        "items"
    ]
    assert (listed["object"], listed["agent_id"]) == ("Oslo", None)
    asked = read | {"query": "Where does the user live?"}
    found = (await api.post("/v1/facts/search", json=asked, headers=bound)).json()["items"]
    assert [one["fact"]["object"] for one in found] == ["Oslo"]
    around = await api.get("/v1/graph/entities/@user/neighbors", params=read, headers=bound)
    assert [one["name"] for one in around.json()["nodes"]] == ["Oslo"]
    assert "home: Oslo" in (await api.post("/v1/context", json=asked, headers=bound)).json()["text"]
    own = body | {"predicate": "likes", "object": "tea"}
    assert (await api.post("/v1/facts", json=own, headers=bound)).json()["agent_id"] == "a"
    other = await service.key(verbs="read,write", users=["ben"])
    problem(await api.post("/v1/facts", json=body | {"object": "Rome"}, headers=other), 403, "forbidden")
    problem(await api.get(f"{USER}/profile", headers=other), 404, "not_found")


async def test_erasing_a_user_erases_the_facts_of_the_profile(service: Service) -> None:
    api = service.client
    await state(api, "lives_in", "Oslo")
    await send(api, "PATCH", "/v1/users/ben/profile", {"home": "Rome"})
    receipt = (await api.delete("/v1/users/ada")).json()
    assert receipt["erased"]["facts"] == 1
    problem(await api.get(f"{USER}/profile"), 404, "not_found")
    assert await of_user(api, status="any", timeline=True) == []
    assert (await send(api, "GET", "/v1/users/ben/profile"))["home"] == "Rome"


async def test_two_writers_of_one_profile_lose_nothing(api: httpx.AsyncClient) -> None:
    await know(api, name="Ada")
    writes = [know(api, age=number) for number in range(5)]
    writes += [state(api, "lives_in", "Oslo"), state(api, "works_as", "smith"), know(api, interests=["engines"])]
    await asyncio.gather(*writes)
    found = await profile(api)
    assert (found["name"], found["home"], found["occupation"]) == ("Ada", "Oslo", "smith")
    assert found["interests"] == ["engines"]
    assert found["age"] in range(5)
