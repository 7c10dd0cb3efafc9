"""What is known of an entity, and memories related to a memory, over HTTP."""

from typing import Any
from urllib.parse import quote

import httpx
import pytest

from app.settings import Settings
from tests.conftest import Service, Starter, TestParts
from tests.support.facts import day, edge, tell, tell_all
from tests.support.memories import OWNER, Faulty, Json, problem, remember

pytestmark = pytest.mark.anyio


async def page(api: httpx.AsyncClient, name: str, **params: Any) -> Json:
    answer = await api.get(f"/v1/graph/entities/{name}", params={**OWNER, **params})
    assert answer.status_code == 200, answer.text
    body: Json = answer.json()
    return body


@pytest.mark.parametrize("name", ["Line one\nLine two", "AC/DC\u2028\r\nlive", "two\n\n"])
async def test_an_entity_is_reached_by_the_name_that_it_is_listed_by(api: httpx.AsyncClient, name: str) -> None:
    fact = {**OWNER, "subject": name, "predicate": "is", "object": "a band", "object_type": "entity"}
    assert (await api.post("/v1/facts", json=fact)).status_code == 201
    listed = (await api.get("/v1/graph/entities", params=OWNER)).json()["items"]
    (shown,) = [one["name"] for one in listed if one["name"] != "a band"]
    path = f"/v1/graph/entities/{quote(shown, safe='')}"
    for below in ("", "/neighbors", "/aliases"):
        answer = await api.get(path + below, params=OWNER)
        assert answer.status_code == 200, answer.text
    made = await api.post(f"{path}/aliases", json={**OWNER, "aliases": ["Band"]})
    assert made.status_code == 201, made.text
    refused = problem(await api.get("/v1/graph/entitties/x"), 404)
    assert "did you mean /v1/graph/entities/{name}?" in refused["detail"]


async def related(api: httpx.AsyncClient, memory: Json, **params: Any) -> dict[str, dict[str, Json]]:
    """Reasons by the text of the related memory and their word."""
    answer = await api.get(f"/v1/memories/{memory['memory_id']}/related", params=params)
    assert answer.status_code == 200, answer.text
    items = answer.json()["items"]
    return {one["memory"]["content"]: {each["reason"]: each for each in one["reasons"]} for one in items}


def texts(found: Json) -> list[str]:
    return [one["memory"]["content"] for one in found["memories"]["items"]]


async def test_the_page_has_what_is_known_under_all_names(api: httpx.AsyncClient) -> None:
    await tell(api, "New York", "2019-01-01")
    await tell(api, "Boston", "2026-01-01")
    await tell_all(api, edge("Ben", "knows", "Ada Lovelace"), edge("Zoe", "knows", "Ben"))
    for at, text in enumerate(("Ada likes tea", "Canada is large", "met ada lovelace's cat", "Ben likes milk")):
        await remember(api, text, event_at=day(f"2026-03-0{at + 1}"))
    did = {**OWNER, "action_type": "call", "content": "called her", "action": {"tool": "phone"}, "entities": ["Ada"]}
    assert (await api.post("/v1/actions", json=did)).status_code == 201
    body = {**OWNER, "aliases": ["Ada"]}
    assert (await api.post("/v1/graph/entities/Ada Lovelace/aliases", json=body)).status_code == 201
    found = await page(api, "ada")
    assert (found["name"], found["key"], found["names"]) == ("Ada Lovelace", "ada lovelace", ["Ada Lovelace", "Ada"])
    assert {fact["object"] for fact in found["facts"]["items"]} == {"Boston", "Ada Lovelace"}
    assert [fact["object"] for fact in found["earlier"]["items"]] == ["New York"]
    assert found["neighbors"] == {"count": 2, "truncated": None}
    assert texts(found) == ["met ada lovelace's cat", "Ada likes tea"]
    assert [one["names"] for one in found["memories"]["items"]] == [["Ada Lovelace"], ["Ada"]]
    assert [one["content"] for one in found["actions"]["items"]] == ["called her"]
    assert found["first_seen"] == day("2026-03-01")
    assert found["last_seen"] >= found["first_seen"]


async def test_the_page_says_what_is_left_out(api: httpx.AsyncClient) -> None:
    await tell_all(api, *(edge("Ada", "knows", f"friend {at}") for at in range(4)))
    for at in range(4):
        await remember(api, f"Ada said {at}", event_at=day(f"2026-03-0{at + 1}"))
    found = await page(api, "Ada", limit=2)
    assert (len(found["facts"]["items"]), found["facts"]["truncated"]) == (2, True)
    assert (texts(found), found["memories"]["truncated"]) == (["Ada said 3", "Ada said 2"], True)
    assert found["first_seen"] == day("2026-03-01")
    assert (await page(api, "Ada", limit=4))["memories"]["truncated"] is False


async def test_an_unknown_name_has_an_empty_page(api: httpx.AsyncClient) -> None:
    found = await page(api, "Nobody")
    assert (found["name"], found["first_seen"], found["names"]) == ("Nobody", None, ["Nobody"])
    assert not any(found[part]["items"] for part in ("facts", "earlier", "memories", "actions"))
    problem(await api.get("/v1/graph/entities/Nobody"), 422)
    for name in ("%00", "AC%2FDC", "a%2Fneighbors", "%F0%9F%98%80", "n" * 256):
        assert (await api.get(f"/v1/graph/entities/{name}", params=OWNER)).status_code in (200, 422), name


async def test_what_is_another_users_is_on_no_page(service: Service) -> None:
    api = service.client
    other: Json = {"agent_id": "a", "user_id": "v"}
    await tell_all(api, edge("Ada", "knows", "Zoe", **other))
    hidden = await remember(api, "Ada likes gin", **other)
    await remember(api, "Ada likes tea")
    found = await page(api, "Ada")
    assert (found["facts"]["items"], texts(found)) == ([], ["Ada likes tea"])
    mine = await remember(api, "Ada likes gin a lot")
    assert "Ada likes gin" not in await related(api, mine)
    bound = await service.key(users="u")
    problem(await api.get(f"/v1/memories/{hidden['memory_id']}/related", headers=bound), 404, "not_found")
    seen = await api.get("/v1/graph/entities/Ada", params=other, headers=bound)
    assert (seen.json()["facts"]["items"], seen.json()["memories"]["items"]) == ([], [])
    stranger = await service.key("elsewhere")
    problem(await api.get(f"/v1/memories/{mine['memory_id']}/related", headers=stranger), 404, "not_found")


async def test_related_memories_say_why(api: httpx.AsyncClient) -> None:
    await tell(api, "Boston", "2026-01-01", subject="Ben Smith")
    source = {"session_id": "s", "message_seq": 4}
    old = await remember(api, "Her cat is called Tom", source={"session_id": "s", "message_seq": 2})
    await remember(api, "The invoice was paid", source={"session_id": "s", "message_seq": 9})
    await remember(api, "Ben Smith repairs boats")
    await remember(api, "The kitten plays with wool")
    made = await remember(
        api, "Ben Smith feeds her cat, which is called Mia", supersedes=[old["memory_id"]], source=source
    )
    found = await related(api, made)
    assert set(found["Her cat is called Tom"]) == {"supersedes"}
    assert found["Ben Smith repairs boats"]["shared_entity"]["names"] == ["Ben Smith"]
    assert "same_session" not in found.get("The invoice was paid", {})
    near = await remember(api, "She buys fish for the cat", source={"session_id": "s", "message_seq": 5})
    found = await related(api, near)
    assert set(found["Ben Smith feeds her cat, which is called Mia"]) == {"same_session", "similar"}
    assert 0.3 <= found["Ben Smith feeds her cat, which is called Mia"]["similar"]["score"] <= 1
    assert "superseded_by" in (await related(api, old))[made["content"]]
    first = next(iter(await related(api, made)))
    assert first == "Her cat is called Tom"
    assert len(await related(api, made, limit=1)) == 1


async def test_other_names_are_shared_entities_too(api: httpx.AsyncClient) -> None:
    body = {**OWNER, "aliases": ["Countess"]}
    assert (await api.post("/v1/graph/entities/Ada Lovelace/aliases", json=body)).status_code == 201
    await remember(api, "The Countess wrote programs")
    made = await remember(api, "Visited Ada Lovelace on Tuesday")
    assert (await related(api, made))["The Countess wrote programs"]["shared_entity"]["names"] == ["Ada Lovelace"]


async def test_a_memory_alone_has_none(api: httpx.AsyncClient) -> None:
    assert await related(api, await remember(api, "alone")) == {}
    problem(await api.get("/v1/memories/mem_none/related"), 404, "not_found")


async def test_without_the_model_the_other_reasons_remain(start: Starter, settings: Settings, parts: TestParts) -> None:
    parts.wrap = Faulty
    async with start(settings) as service:
        api = service.client
        await tell(api, "Boston", "2026-01-01", subject="Ben Smith")
        await remember(api, "Ben Smith repairs boats")
        made = await remember(api, "Saw Ben Smith today")
        embedder = service.resources.embedder
        assert isinstance(embedder, Faulty)
        embedder.failing = True
        answer = (await api.get(f"/v1/memories/{made['memory_id']}/related")).json()
        assert [one["code"] for one in answer["warnings"]] == ["embedding_unavailable"]
        assert [each["reason"] for each in answer["items"][0]["reasons"]] == ["shared_entity"]
