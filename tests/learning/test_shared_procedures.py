"""Procedures learned from one user's episodes serve the agent's other users, once nothing in them names a user."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.learning.episodes import QUOTED_WORDS, SharingRule, texts_of
from app.lifespan import COLLECTIONS
from app.procedures.schemas import PROCEDURES
from app.settings import Settings
from app.storage.schema import EVERYTHING
from tests.conftest import Service, Starter
from tests.support.actions import act, log_all
from tests.support.learning import consolidate, undo
from tests.support.memories import Json
from tests.support.model import Model

pytestmark = pytest.mark.anyio

ADA: Json = {"agent_id": "a", "user_id": "ada-77"}
BOB: Json = {"agent_id": "a", "user_id": "bob-88"}
word = st.text(st.sampled_from("abcdefgh"), min_size=1, max_size=6)
sentence = st.lists(word, min_size=1, max_size=12)


def way(name: str = "Release", *numbers: int, **more: Any) -> Json:
    """A procedure as the model says it."""
    told: Json = {"trigger": "A release is due", "preconditions": [], "steps": ["Test", "Deploy"], "notes": []}
    return {"procedure_id": None, "name": name, **told, "episode_numbers": list(numbers or (1,)), **more}


async def registered(api: httpx.AsyncClient) -> None:
    assert (await api.post("/v1/agents", json={"agent_id": "a", "name": "Builder"})).status_code == 201
    profile = {"name": "Ada Lovelace", "home": "Turin"}
    assert (await api.patch("/v1/users/ada-77/profile", json=profile)).status_code in (200, 201)


async def learn(service: Service, llm: Model, owner: Json, *said: Json, **episode: Any) -> Json:
    """Logs an episode of the owner and learns procedures from it. Returns the part of the report."""
    await log_all(service.client, act("Tested and deployed the shop", outcome="success", **{**owner, **episode}))
    llm.says["FoundProcedures"] = {"procedures": list(said)}
    part: Json = (await consolidate(service, **owner))["result"]["parts"]["procedures"]
    return part


async def ways(api: httpx.AsyncClient, **where: Any) -> list[Json]:
    items: list[Json] = (await api.get("/v1/procedures", params={"agent_id": "a", **where})).json()["items"]
    return items


async def found(api: httpx.AsyncClient, owner: Json) -> list[str]:
    body = {**owner, "situation": "A release is due"}
    return [item["procedure"]["name"] for item in (await api.post("/v1/procedures/search", json=body)).json()["items"]]


async def test_what_names_nobody_serves_the_other_users(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    await registered(api)
    await learn(service, llm, ADA, way())
    (learned,) = await ways(api)
    assert (learned["user_id"], learned["source"]["origin"]) == (None, "consolidation")
    assert await found(api, BOB) == await found(api, ADA) == ["Release"]
    assert await found(api, {"agent_id": "b", "user_id": "bob-88"}) == []


async def test_another_user_s_key_reads_it_and_sees_nothing_of_the_first(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    await registered(api)
    await learn(service, llm, ADA, way())
    (learned,) = await ways(api)
    api.headers.update(await service.key(users=["bob-88"]))
    body = {**BOB, "situation": "A release is due"}
    answers = [
        await api.post("/v1/procedures/search", json=body),
        await api.post("/v1/context", json={**BOB, "query": "A release is due"}),
        await api.get(f"/v1/procedures/{learned['procedure_id']}"),
    ]
    for answer in answers:
        assert answer.status_code == 200
        assert "Deploy" in answer.text
        assert not any(word in answer.text for word in ("ada-77", "Lovelace", "Turin", "the shop"))
    theirs = f"/v1/procedures/{learned['procedure_id']}"
    assert (await api.patch(theirs, json={"steps": ["x"]})).status_code == 403
    assert (await api.post(f"{theirs}/outcomes", json={"success": True})).status_code == 403


@pytest.mark.parametrize(
    "told",
    [
        {"steps": ["Ask Ada", "Deploy"]},
        {"trigger": "ada-77 wants a release"},
        {"notes": ["Lovelace likes it early"]},
        {"preconditions": ["It is day in Turin"]},
        {"name": "Release as Ada wants it"},
        {"notes": ["Never deploy on a friday evening"]},
    ],
)
async def test_what_names_or_quotes_the_user_stays_with_the_user(
    service: Service, llm: Model, api: httpx.AsyncClient, told: Json
) -> None:
    await registered(api)
    said = {"correction": "Please, never deploy on a Friday evening!"}
    await learn(service, llm, ADA, {**way(), **told}, feedback=said)
    assert [one["user_id"] for one in await ways(api)] == ["ada-77"]
    assert await found(api, BOB) == []


async def test_an_agent_that_is_not_registered_shares_nothing(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    await learn(service, llm, ADA, way())
    assert [one["user_id"] for one in await ways(api)] == ["ada-77"]


async def test_sharing_is_a_setting(start: Starter, settings: Settings, llm: Model) -> None:
    off = settings.procedures.model_copy(update={"share": False})
    async with start(settings.model_copy(update={"procedures": off})) as service:
        await registered(service.client)
        await learn(service, llm, ADA, way())
        assert [one["user_id"] for one in await ways(service.client)] == ["ada-77"]


async def test_a_key_of_one_user_shares_nothing(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    await registered(api)
    await log_all(api, act("Tested and deployed the shop", outcome="success", **ADA))
    llm.says["FoundProcedures"] = {"procedures": [way()]}
    bound = await service.key(verbs="read,write,admin", users=["ada-77"])
    await consolidate(service, bound, **ADA)
    api.headers.update(bound)
    assert [one["user_id"] for one in await ways(api)] == ["ada-77"]


async def test_only_the_same_user_s_episodes_refine_it(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    await registered(api)
    await learn(service, llm, ADA, way())
    (first,) = await ways(api)
    again = way(steps=["Test", "Deploy", "Watch"])
    assert (await learn(service, llm, BOB, again))["dropped"] == {"known": 1}
    assert (await learn(service, llm, ADA, way(steps=["Test", "Tell Ada"])))["dropped"] == {"not_of_this_part": 1}
    assert await ways(api) == [first]
    assert (await learn(service, llm, ADA, again))["refined_ids"] == [first["procedure_id"]]
    (refined,) = await ways(api)
    assert (refined["steps"], refined["user_id"]) == (["Test", "Deploy", "Watch"], None)
    assert len(refined["source"]["action_ids"]) == 2


async def test_erasing_the_user_takes_what_came_of_the_episodes(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    await registered(api)
    await learn(service, llm, ADA, way())
    await learn(service, llm, BOB, way("Roll back"))
    ids = {one["name"]: one["procedure_id"] for one in await ways(api)}
    assert (await api.delete("/v1/users/ada-77")).status_code == 200
    assert [one["name"] for one in await ways(api)] == ["Roll back"]
    store = service.resources.store
    kept = [doc for one in COLLECTIONS if one.audited for doc in await store.find(one, None, EVERYTHING, limit=10_000)]
    assert ids["Release"] not in json.dumps(kept)
    assert "ada-77" not in json.dumps(kept)
    assert "Lovelace" not in json.dumps(kept)


async def test_an_undo_takes_it_back(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    await registered(api)
    await log_all(api, act("Tested and deployed the shop", outcome="success", **ADA))
    llm.says["FoundProcedures"] = {"procedures": [way()]}
    over = await consolidate(service, **ADA)
    assert len(await ways(api)) == 1
    assert (await undo(service, over["operation_id"]))["status"] == "succeeded"
    assert await ways(api) == []


@given(sentence, st.lists(sentence, max_size=3), word)
def test_no_allowed_text_has_the_name_or_a_quote(text: list[str], said: list[list[str]], name: str) -> None:
    rule = SharingRule([name], [" ".join(one) for one in said])
    spoken = {tuple(one[at : at + QUOTED_WORDS]) for one in said for at in range(len(one) - QUOTED_WORDS + 1)}
    runs = {tuple(text[at : at + QUOTED_WORDS]) for at in range(len(text) - QUOTED_WORDS + 1)}
    assert rule.allows([" ".join(text)]) == (name not in text and not runs & spoken)


def test_all_texts_of_a_procedure_are_judged() -> None:
    procedure = PROCEDURES.as_record({**way(), "preconditions": ["p"], "notes": ["n"], "status": "active"})
    assert texts_of(procedure) == [
        "Release",
        "A release is due",
        "p",
        "Test",
        "Deploy",
        "n",
    ]
