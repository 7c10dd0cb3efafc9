"""What holds now before what it replaced: hits in the order of facts that were replaced."""

from typing import Any

import httpx
import pytest

from tests.conftest import Service
from tests.support.memories import Json, batch, recall

pytestmark = pytest.mark.anyio

OLD, NEW = "I live in Oslo, near the harbour.", "We have moved, Bergen it is from now on."
USER: Json = {"user_id": "u"}


async def told(api: httpx.AsyncClient, *texts: tuple[str, str], **more: Any) -> None:
    await batch(api, *({**USER, "content": text, "event_at": at, **more} for text, at in texts))


async def assert_home(api: httpx.AsyncClient, value: str, since: str, **more: Any) -> None:
    named = {"subject": "@user", "predicate": "lives_in"}
    body = {**USER, **named, "object": value, "valid_from": since, **more}
    answer = await api.post("/v1/facts", json=body)
    assert answer.status_code == 201, answer.text


@pytest.fixture
async def moved(api: httpx.AsyncClient) -> None:
    await told(api, (OLD, "2026-01-05T00:00:00Z"), (NEW, "2026-04-02T00:00:00Z"))
    await told(api, ("I like to live near water.", "2026-02-01T00:00:00Z"), ("Tea is fine.", "2026-02-02T00:00:00Z"))


async def asked(api: httpx.AsyncClient, query: str = "Where do I live?", **more: Any) -> list[str]:
    answer = await recall(api, query, user_id="u", **more)
    scores = [item["score"] for item in answer["items"]]
    assert scores == sorted(scores, reverse=True)
    return [item["memory"]["content"] for item in answer["items"]]


async def test_the_present_value_takes_the_place_of_the_one_that_it_replaced(
    api: httpx.AsyncClient, moved: None
) -> None:
    before = await asked(api)
    assert before.index(OLD) < before.index(NEW), "by words and meaning alone the old one is nearer"
    await assert_home(api, "Oslo", "2025-01-01T00:00:00Z")
    await assert_home(api, "Bergen", "2026-04-01T00:00:00Z")
    after = await asked(api)
    assert after.index(NEW) == before.index(OLD)
    assert after.index(OLD) == after.index(NEW) + 1
    assert sorted(after) == sorted(before), "nothing is added or left out"


async def test_a_context_ranks_what_holds_now_first_too(api: httpx.AsyncClient, moved: None) -> None:
    body = {**USER, "agent_id": "a", "query": "Where do I live?", "token_budget": 2000}

    async def scores() -> dict[str, float]:
        answer = await api.post("/v1/context", json=body)
        assert answer.status_code == 200, answer.text
        items = [item for section in answer.json()["sections"] for item in section["items"]]
        # an item's id is that of its memory
        ids = {
            item["memory"]["content"]: item["memory"]["memory_id"]
            for item in (await recall(api, body["query"], user_id="u"))["items"]
        }
        return {text: item["score"] for item in items for text in (OLD, NEW) if item["id"] == ids[text]}

    before = await scores()
    assert before[OLD] > before[NEW]
    await assert_home(api, "Oslo", "2025-01-01T00:00:00Z")
    await assert_home(api, "Bergen", "2026-04-01T00:00:00Z")
    after = await scores()
    assert after[NEW] == after[OLD] == before[OLD]


async def test_at_a_time_before_the_change_the_order_is_as_it_was(api: httpx.AsyncClient, moved: None) -> None:
    before = await asked(api, as_of="2026-03-01T00:00:00Z")
    await assert_home(api, "Oslo", "2025-01-01T00:00:00Z")
    await assert_home(api, "Bergen", "2026-04-01T00:00:00Z")
    assert await asked(api, as_of="2026-03-01T00:00:00Z") == before


async def test_an_explanation_says_what_the_present_value_gained(api: httpx.AsyncClient, moved: None) -> None:
    await assert_home(api, "Oslo", "2025-01-01T00:00:00Z")
    await assert_home(api, "Bergen", "2026-04-01T00:00:00Z")
    items = (await recall(api, "Where do I live?", user_id="u", explain=True))["items"]
    gained = {item["memory"]["content"]: item["contributions"].get("present_value") for item in items}
    assert gained.pop(NEW) > 0
    assert set(gained.values()) == {None}


async def test_facts_of_another_user_move_nothing(api: httpx.AsyncClient, moved: None) -> None:
    before = await asked(api)
    await assert_home(api, "Oslo", "2025-01-01T00:00:00Z", user_id="v")
    await assert_home(api, "Bergen", "2026-04-01T00:00:00Z", user_id="v")
    assert await asked(api) == before


async def test_other_modes_keep_the_order_of_their_scores(api: httpx.AsyncClient, moved: None) -> None:
    before = {mode: await asked(api, mode=mode) for mode in ("vector", "text")}
    await assert_home(api, "Oslo", "2025-01-01T00:00:00Z")
    await assert_home(api, "Bergen", "2026-04-01T00:00:00Z")
    assert {mode: await asked(api, mode=mode) for mode in ("vector", "text")} == before


async def test_a_text_may_state_one_present_value_and_another_that_was_replaced(api: httpx.AsyncClient) -> None:
    both = "We have moved, Bergen it is, and I work as a nurse at the harbour there."
    await told(api, (OLD, "2026-01-05T00:00:00Z"), (both, "2026-04-02T00:00:00Z"))
    await told(api, ("Since summer I am a teacher.", "2026-07-01T00:00:00Z"))
    await assert_home(api, "Oslo", "2025-01-01T00:00:00Z")
    await assert_home(api, "Bergen", "2026-04-01T00:00:00Z")
    await assert_home(api, "nurse", "2025-01-01T00:00:00Z", predicate="works_as")
    await assert_home(api, "teacher", "2026-06-15T00:00:00Z", predicate="works_as")
    found = await asked(api, now="2026-08-01T00:00:00Z")
    assert found == [both, OLD, "Since summer I am a teacher."], "what replaced the work tells nothing of the home"


async def test_a_text_that_says_other_things_too_keeps_its_place(api: httpx.AsyncClient) -> None:
    allergy = "I have a deadly peanut allergy and live in Oslo."
    await told(api, (allergy, "2026-01-05T00:00:00Z"), (NEW, "2026-04-02T00:00:00Z"))
    before = await asked(api, "Is the user allergic to peanuts?")
    await assert_home(api, "Oslo", "2025-01-01T00:00:00Z")
    await assert_home(api, "Bergen", "2026-04-01T00:00:00Z")
    assert await asked(api, "Is the user allergic to peanuts?") == before
    assert before[0] == allergy


async def test_among_all_users_of_a_key_one_user_s_facts_move_nothing_of_another(service: Service) -> None:
    api = service.client
    headers = await service.key(users=["u", "v"])

    async def post(path: str, **body: Any) -> Json:
        answer = await api.post(path, json=body, headers=headers)
        assert answer.is_success, answer.text
        made: Json = answer.json()
        return made

    async def of_all() -> list[str]:
        found = await post("/v1/memories/search", query="Where do I live?", agent_id="a", filters={"user_id": "*"})
        return [item["memory"]["content"] for item in found["items"]]

    learned = {"agent_id": "a", "source": {"session_id": "s"}}
    await post("/v1/memories", user_id="u", agent_id="a", content=OLD, event_at="2026-01-05T00:00:00Z")
    await post("/v1/memories", user_id="v", **learned, content=NEW, event_at="2026-04-02T00:00:00Z")
    assert await of_all() == [OLD, NEW]
    home = {"user_id": "v", "subject": "@user", "predicate": "lives_in", **learned}
    await post("/v1/facts", **home, object="Oslo", valid_from="2025-01-01T00:00:00Z")
    await post("/v1/facts", **home, object="Bergen", valid_from="2026-04-01T00:00:00Z")
    assert await of_all() == [OLD, NEW]


async def test_what_one_user_says_neither_repeats_nor_replaces_what_another_says(service: Service) -> None:
    api = service.client
    headers = await service.key(users=["u", "v"])
    for user, content, at in (
        ("u", "I live in Oslo.", "2026-01-05T00:00:00Z"),
        ("v", "I live in Oslo.", "2026-01-05T00:00:00Z"),
        ("v", "i live in Oslo", "2026-01-05T00:00:00Z"),
        ("u", "My dog is called Rex.", "2026-01-05T00:00:00Z"),
        ("v", "My dog is called Bo.", "2026-02-05T00:00:00Z"),
    ):
        body = {"user_id": user, "agent_id": "a", "content": content, "event_at": at, "deduplicate": False}
        assert (await api.post("/v1/memories", json=body, headers=headers)).status_code == 201

    async def of_all(query: str) -> list[Json]:
        body = {"query": query, "agent_id": "a", "filters": {"user_id": "*"}}
        answer = await api.post("/v1/memories/search", json=body, headers=headers)
        found: list[Json] = answer.json()["items"]
        return found

    homes = [hit for hit in await of_all("Where do I live?") if "Oslo" in hit["memory"]["content"]]
    assert sorted((hit["memory"]["user_id"], hit.get("repeated", {}).get("count")) for hit in homes) == [
        ("u", None),
        ("v", 2),
    ]
    dogs = [hit for hit in await of_all("What is my dog called?") if "dog" in hit["memory"]["content"]]
    assert min(hit["score"] for hit in dogs) > 0.3, "the later dog is another's"
