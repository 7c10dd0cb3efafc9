"""Facts that are asserted with `on_conflict: merge`: planned by a model, verified by rules, applied, undone."""

from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.learning.fact_merge import refusal
from tests.conftest import Service
from tests.support.learning import operation, undo, work
from tests.support.memories import Json, problem
from tests.support.model import Model

pytestmark = pytest.mark.anyio

OWNER: Json = {"agent_id": "a", "user_id": "u", "subject": "Kitchen", "predicate": "has_colour"}


async def state(api: httpx.AsyncClient, value: str, **more: Any) -> Json:
    answered = await api.post("/v1/facts", json={**OWNER, "object": value, "valid_from": None, **more})
    assert answered.status_code == 201, answered.text
    found: Json = answered.json()
    return found


async def merge(service: Service, value: str, **more: Any) -> Json:
    body = {**OWNER, "object": value, "valid_from": None, "on_conflict": "merge", **more}
    answered = await service.client.post("/v1/facts", json=body)
    assert answered.status_code == 202, answered.text
    assert answered.json()["kind"] == "merge_fact"
    await work(service)
    return await operation(service, answered.json()["operation_id"])


async def values(api: httpx.AsyncClient, **params: Any) -> list[str]:
    page = await api.get("/v1/facts", params={"user_id": "u", "predicate": "has_colour", **params})
    return [fact["object"] for fact in page.json()["items"]]


async def test_two_values_become_one_and_an_undo_brings_back_the_first(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    first = await state(api, "blue", valid_from="2020-01-01T00:00:00Z", trust=0.8, confidence=0.5)
    llm.says["MergedFact"] = {"value": "dark blue"}
    done = await merge(service, "dark", valid_from="2022-01-01T00:00:00Z")
    result = done["result"]
    assert (done["status"], result["merged"], result["reason"], result["status"]) == ("succeeded", True, None, "active")
    (made,) = (await api.get("/v1/facts", params={"user_id": "u", "predicate": "has_colour"})).json()["items"]
    assert (made["fact_id"], made["object"]) == (result["fact_ids"][0], "dark blue")
    assert (made["valid_from"], made["trust"], made["confidence"]) == ("2020-01-01T00:00:00.000Z", 0.8, 0.5)
    assert (made["supersedes"], made["source"]["model"]) == ([first["fact_id"]], "scripted")
    (shown,) = llm.shown("MergedFact")
    assert shown == {"subject": "Kitchen", "predicate": "has_colour", "values": ["blue", "dark"]}
    undone = await undo(service, done["operation_id"])
    assert undone["result"] == {"restored": 1, "not_restored": 0}
    assert await values(api) == ["blue"]


@pytest.mark.parametrize(
    ("said", "reason"),
    [("dark blue with gold", "invented"), ("blue", "left_out"), (None, "contradiction"), ("not dark blue", "invented")],
)
async def test_an_answer_that_the_rules_refuse_merges_nothing(
    service: Service, llm: Model, api: httpx.AsyncClient, said: str | None, reason: str
) -> None:
    await state(api, "blue")
    llm.says["MergedFact"] = {"value": said}
    done = await merge(service, "dark", valid_from="2022-01-01T00:00:00Z")
    assert (done["result"]["merged"], done["result"]["reason"]) == (False, reason)
    assert await values(api) == ["dark"]
    assert await values(api, as_of="2021-01-01T00:00:00Z") == ["blue"]
    await undo(service, done["operation_id"])
    assert await values(api) == ["blue"]


async def test_what_contends_with_nothing_asks_no_model(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    done = await merge(service, "dark")
    assert (done["result"]["merged"], done["result"]["reason"]) == (False, "no_conflict")
    assert (await values(api), llm.calls) == (["dark"], 0)


async def test_less_trust_merges_nothing(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    await state(api, "blue")
    llm.says["MergedFact"] = {"value": "dark blue"}
    done = await merge(service, "dark", trust=0.4)
    assert (done["result"]["reason"], done["result"]["status"]) == ("less_trust", "disputed")
    assert (await values(api), llm.calls) == (["blue"], 0)


async def test_a_field_of_the_profile_is_merged(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    await api.patch("/v1/users/u/profile", json={"home": "Norway"})
    llm.says["MergedFact"] = {"value": "Oslo, Norway"}
    done = await merge(service, "Oslo", subject="@user", predicate="lives_in")
    assert done["result"]["merged"] is True
    assert (await api.get("/v1/users/u/profile")).json()["home"] == "Oslo, Norway"
    await undo(service, done["operation_id"])
    assert (await api.get("/v1/users/u/profile")).json()["home"] == "Norway"


async def test_without_a_model_it_is_refused_and_nothing_is_written(service: Service, api: httpx.AsyncClient) -> None:
    await state(api, "blue")
    object.__setattr__(service.resources, "llm", None)
    refused = await api.post("/v1/facts", json={**OWNER, "object": "dark", "on_conflict": "merge"})
    problem(refused, 409, "llm_not_configured")
    assert await values(api, status="any", timeline=True) == ["blue"]
    assert (await api.get("/v1/operations")).json()["items"] == []


async def test_what_cannot_be_merged_is_refused(service: Service, api: httpx.AsyncClient) -> None:
    body = {**OWNER, "object": "dark", "on_conflict": "merge"}
    problem(await api.post("/v1/facts/batch", json={"items": [body]}), 422, "invalid")
    age = {"user_id": "u", "subject": "@user", "predicate": "has_age", "object": "old", "on_conflict": "merge"}
    problem(await api.post("/v1/facts", json=age), 422, "invalid")
    bound = await service.key(verbs="read,write", users=["ben"])
    problem(await api.post("/v1/facts", json=body, headers=bound), 403, "forbidden")
    reader = await service.key(verbs="read")
    problem(await api.post("/v1/facts", json=body, headers=reader), 403, "forbidden")


_WORDS = st.lists(st.sampled_from(["oslo", "norway", "blue", "dark", "42", "Berlin"]), min_size=1, max_size=3)


@given(_WORDS, _WORDS, st.sampled_from(["gold", "77", "Paris"]))
def test_nothing_invented_is_taken_and_nothing_is_lost(one: list[str], other: list[str], new: str) -> None:
    inputs = [" ".join(one), " ".join(other)]
    assert refusal(" ".join([*one, *other]), inputs) is None
    assert refusal(" ".join([*one, *other, new]), inputs) == "invented"
    if not {*one} & {*other}:
        assert refusal(inputs[0], inputs) == "left_out"
