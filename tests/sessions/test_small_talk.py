"""Messages that say nothing weigh little, and searches leave them out."""

from typing import Any

import httpx
import pytest

from tests.support.memories import OWNER, found

pytestmark = pytest.mark.anyio


async def say(api: httpx.AsyncClient, *texts: str, session: str = "s") -> list[dict[str, Any]]:
    body = {**OWNER, "messages": [{"role": "user", "content": text} for text in texts]}
    made = await api.post(f"/v1/sessions/{session}/messages", json=body)
    assert made.status_code == 201, made.text
    return [(await api.get(f"/v1/memories/{each}")).json() for each in made.json()["memory_ids"]]


async def test_what_says_nothing_has_little_importance(api: httpx.AsyncClient) -> None:
    memories = await say(api, "Good morning!", "I like tea.", "…", "👍")
    assert [memory["importance"] for memory in memories] == [0.3, 0.3, 0.05, 0.05]


async def test_a_search_leaves_it_out_unless_it_is_asked_for(api: httpx.AsyncClient) -> None:
    await say(api, "👍👍", "I like tea.", "😂")
    assert await found(api, "What do I like? 👍👍", min_importance=0) == ["I like tea."]
    assert set(await found(api, "What do I like? 👍👍", session_id="s", min_importance=0)) >= {"👍👍", "I like tea."}
    assert (await found(api, "👍👍", min_importance=0))[0] == "👍👍"
    assert "😂" not in await found(api, "👍👍", min_importance=0)


async def test_small_talk_that_was_not_asked_for_takes_no_place_of_a_hit(api: httpx.AsyncClient) -> None:
    marks = ("🎉🎈", "🎉🎊", "🎉🥳", "🎈🎉", "🎊🎉")
    await say(api, "🎉 We moved into the new house.", "🎉 The release is out.", *marks, "🎉")
    hits = await found(api, "🎉", top_k=3, min_importance=0)
    assert sorted(hits) == ["🎉", "🎉 The release is out.", "🎉 We moved into the new house."]


async def test_two_hundred_messages_of_small_talk_do_not_hide_the_one_that_counts(api: httpx.AsyncClient) -> None:
    phrases = ("thanks", "ok", "good morning", "👍", "haha", "cool", "see you", "same here", "fine", "ok cool")
    for number in range(4):
        await say(api, *[phrases[at % 10] for at in range(50)], session=f"s{number}")
    await say(api, "I like rye bread.", session="last")
    assert (await found(api, "What do I like?"))[0] == "I like rye bread."
    context = await api.post("/v1/context", json={**OWNER, "query": "What do I like?"})
    assert context.status_code == 200, context.text
    assert "rye bread" in context.text


async def test_an_edit_or_a_caller_gives_a_message_its_weight_back(api: httpx.AsyncClient) -> None:
    _, other = await say(api, "👍", "🙂")
    edited = await api.patch("/v1/sessions/s/messages/1", json={"content": "I live in Turin."})
    assert edited.status_code == 200, edited.text
    assert (await found(api, "Where do I live?"))[0] == "I live in Turin."
    raised = await api.patch(f"/v1/memories/{other['memory_id']}", json={"importance": 0.4})
    assert raised.status_code == 200, raised.text
    assert "🙂" in await found(api, "what is 🙂", min_importance=0)
