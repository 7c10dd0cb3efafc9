"""`source`: where callers say that a memory comes from, and what the service adds."""

from typing import Any

import httpx
import pytest

from tests.conftest import Service
from tests.mcp.conftest import call, connecting
from tests.support.context import ask
from tests.support.memories import OWNER, Json, batch, found, listed, problem, recall, remember
from tests.support.sessions import append, said

pytestmark = pytest.mark.anyio

SAID: Json = {
    "session_id": "chat-7",
    "message_seq": 3,
    "action_ids": ["act_1", "act_2"],
    "url": "https://wiki.example/tea",
    "note": "read it in the wiki",
}


async def test_a_caller_says_where_a_memory_comes_from_and_the_service_adds_its_part(service: Service) -> None:
    key = await service.key()
    made = await service.client.post("/v1/memories", json={**OWNER, "content": "tea", "source": SAID}, headers=key)
    source = made.json()["source"]
    assert source | SAID == source
    assert (source["origin"], source["speaker"], source["memory_ids"]) == ("api", None, [])
    assert source["api_key_id"] is not None
    kept = await service.client.get(f"/v1/memories/{made.json()['memory_id']}", headers=key)
    assert kept.json()["source"] == source


async def test_every_memory_of_a_batch_has_its_own_source(api: httpx.AsyncClient) -> None:
    items: list[Json] = [{"source": {"url": "u:1"}}, {}, {"source": {}}]
    made = await batch(api, *({"content": f"number {at}", **item} for at, item in enumerate(items)))
    assert [one["source"]["url"] for one in made["items"]] == ["u:1", None, None]


async def test_an_import_may_say_more_than_that_it_is_one(api: httpx.AsyncClient) -> None:
    source = (await remember(api, "tea", origin="import", source={"note": "from the old system"}))["source"]
    assert (source["origin"], source["note"]) == ("import", "from the old system")


@pytest.mark.parametrize(
    ("source", "pointer"),
    [
        ({"origin": "message"}, "/source/origin"),
        ({"api_key_id": "key_1"}, "/source/api_key_id"),
        ({"speaker": "Ada"}, "/source/speaker"),
        ({"memory_ids": []}, "/source/memory_ids"),
        ({"message_seq": 0}, "/source/message_seq"),
        ({"message_seq": "3"}, "/source/message_seq"),
        ({"action_ids": ["act_1"] * 101}, "/source/action_ids"),
        ({"url": ""}, "/source/url"),
        ({"url": "x" * 2049}, "/source/url"),
        ({"note": "x" * 4097}, "/source/note"),
        ("chat-7", "/source"),
    ],
)
async def test_what_only_the_service_says_and_what_is_malformed_is_refused(
    api: httpx.AsyncClient, source: Any, pointer: str
) -> None:
    refused = await api.post("/v1/memories", json={**OWNER, "content": "tea", "source": source})
    problem(refused, 422, "invalid", pointer)


async def test_a_source_never_changes(api: httpx.AsyncClient) -> None:
    made = await remember(api, "tea", key="drink", source={"note": "first"})
    assert (await remember(api, "coffee", 200, key="drink", source={"note": "second"}))["source"] == made["source"]
    equal = await remember(api, "water", source={"note": "first"})
    assert (await remember(api, "water", 200, source={"note": "second"}))["source"] == equal["source"]
    problem(await api.patch(f"/v1/memories/{equal['memory_id']}", json={"source": {}}), 422)


async def test_the_session_of_the_source_filters_lists_and_searches(api: httpx.AsyncClient) -> None:
    await remember(api, "tea is best at four", source={"session_id": "chat-7"})
    await remember(api, "tea is best at five")
    assert await listed(api, session_id="chat-7") == ["tea is best at four"]
    assert await found(api, "when is tea best?", session_id="chat-7") == ["tea is best at four"]


async def test_what_names_a_message_is_no_turn_of_the_conversation(api: httpx.AsyncClient) -> None:
    """It neither stands beside the turns nor passes for one of them."""
    await append(api, said("Which drink do you serve at four?", role="assistant"))
    await append(api, said("Always a pot of Darjeeling"))
    before = await recall(api, "Which drink do you serve at four?", explain=True)
    await remember(api, "Serves Darjeeling tea at four", source={"session_id": "s", "message_seq": 1})
    after = await recall(api, "Which drink do you serve at four?", explain=True)

    def neighbours(answer: Json) -> dict[str, Any]:
        items = [item for item in answer["items"] if item["memory"]["memory_type"] == "message"]
        return {item["memory"]["content"]: item["scores"].get("neighbours") for item in items}

    assert neighbours(after) == neighbours(before)
    context = await ask(api, "Which drink do you serve at four?", session_id="s")
    assert "Serves Darjeeling tea at four" in context["text"]


async def test_facts_say_where_they_come_from(api: httpx.AsyncClient) -> None:
    fact: Json = {**OWNER, "subject": "Ada", "predicate": "drinks", "object": "tea", "source": SAID}
    made = (await api.post("/v1/facts", json=fact)).json()
    assert made["source"] | SAID == made["source"]
    assert made["source"]["origin"] == "api"
    assert (await api.get(f"/v1/facts/{made['fact_id']}")).json()["source"] == made["source"]
    items = [{**fact, "object": name, "source": {"note": name}, "cardinality": "many"} for name in ("milk", "rum")]
    both = (await api.post("/v1/facts/batch", json={"items": items})).json()["items"]
    assert [one["source"]["note"] for one in both] == ["milk", "rum"]
    refused = await api.post("/v1/facts", json={**fact, "source": {"origin": "message"}})
    problem(refused, 422, "invalid", "/source/origin")


async def test_actions_say_where_they_come_from(service: Service) -> None:
    key = await service.key()
    body = {**OWNER, "session_id": "chat-8", "action_type": "mail", "source": {"message_seq": 2, "url": "u:2"}}
    made = (await service.client.post("/v1/actions", json=body, headers=key)).json()
    assert made["source"] | {"session_id": "chat-8", "message_seq": 2, "url": "u:2", "origin": "api"} == made["source"]
    assert made["source"]["api_key_id"] is not None
    items = [{**OWNER, "action_type": "mail", "source": {"session_id": "other"}}, {**OWNER, "action_type": "mail"}]
    both = (await service.client.post("/v1/actions/batch", json={"items": items}, headers=key)).json()["items"]
    assert [one["source"]["session_id"] for one in both] == ["other", None]
    got = await service.client.get(f"/v1/actions/{made['action_id']}", headers=key)
    assert got.json()["source"] == made["source"]


async def test_the_tool_remember_passes_the_source_on(service: Service, api: httpx.AsyncClient) -> None:
    async with connecting(service)("?agent_id=a&user_id=u") as client:
        said = {"session_id": "chat-7", "url": "u:3"}
        made = await call(client, "remember", content="Ada lives in Boston", source=said)
    source = (await api.get(f"/v1/memories/{made['memory_id']}")).json()["source"]
    assert (source["session_id"], source["url"], source["origin"]) == ("chat-7", "u:3", "api")
