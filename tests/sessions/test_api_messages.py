"""Messages: kept as they were sent, numbered without gaps, remembered."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.conftest import TurnedClock
from tests.support.memories import problem
from tests.support.sessions import OWNER, Json, append, create, memories, messages, said, seqs

pytestmark = pytest.mark.anyio

PARTS = [
    {"type": "text", "text": "What is this?"},
    {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
    {"type": "text", "text": "And that?", "cache_control": {"type": "ephemeral"}},
]
CALLS = [
    {
        "id": "call_1",
        "type": "function",
        "function": {"name": "lookup", "arguments": '{"q": 1}', "strict": None},
        "index": 0,
        "x-vendor": {"$a.b": [None]},
    },
    {"id": "call_2", "type": "custom", "custom": {"name": "shell", "input": "ls"}},
]
CONVERSATION: list[Json] = [
    {"role": "system", "content": "Be kind."},
    {"role": "developer", "content": "Be short.", "name": "dev"},
    {"role": "user", "content": PARTS, "name": "Ada", "metadata": {"a.b": {"$c": 1}}},
    {"role": "assistant", "content": None, "tool_calls": CALLS},
    {"role": "tool", "content": "42", "tool_call_id": "call_1", "result": {"rows": [1, None]}},
    {"role": "assistant", "content": "It is 42.", "timestamp": "2026-01-01T00:00:00.000Z"},
]


async def test_messages_come_back_as_openai_clients_hold_them(api: httpx.AsyncClient) -> None:
    made = await append(api, CONVERSATION)
    kept = await messages(api)
    assert kept == made["items"]
    for sent, got in zip(CONVERSATION, kept, strict=True):
        assert {name: got[name] for name in sent} == sent
        assert {name for name in ("content", "name", "tool_calls", "tool_call_id", "result") if got[name]} <= set(sent)
    assert [m["seq"] for m in kept] == [1, 2, 3, 4, 5, 6]
    assert kept[0]["timestamp"] == kept[0]["created_at"]


@pytest.mark.parametrize(
    ("message", "pointer"),
    [
        ({"role": "user"}, "/content"),
        ({"role": "user", "content": None}, "/content"),
        ({"role": "robot", "content": "x"}, "/role"),
        ({"role": "user", "content": "x", "tool_calls": CALLS}, "/tool_calls"),
        ({"role": "user", "content": "x", "timestamp": "2026-01-01T00:00:00"}, "/timestamp"),
        ({"role": "user", "text": "x"}, "/content"),
        ({"role": "assistant", "content": None, "tool_calls": [{"id": 7}]}, "/tool_calls/0/id"),
    ],
)
async def test_a_bad_message_is_named_and_none_is_kept(api: httpx.AsyncClient, message: Json, pointer: str) -> None:
    sent = {**OWNER, "messages": [*said("fine"), message]}
    problem(await api.post("/v1/sessions/s/messages", json=sent), 422, "invalid", f"/messages/1{pointer}")
    problem(await api.get("/v1/sessions/s"), 404)


async def test_the_first_append_makes_the_session(api: httpx.AsyncClient) -> None:
    problem(await api.post("/v1/sessions/s/messages", json={"messages": said("x")}), 422, pointer="/agent_id")
    sent = {"messages": said("x"), "agent_id": "a"}
    problem(await api.post("/v1/sessions/s/messages", json=sent), 422, pointer="/user_id")
    await append(api, said("x"), memorize="none", metadata={"k": 1})
    session = (await api.get("/v1/sessions/s")).json()
    assert (session["agent_id"], session["user_id"], session["memorize"]) == ("a", "u", "none")
    assert (session["metadata"], session["message_count"]) == ({"k": 1}, 1)
    more = await api.post("/v1/sessions/s/messages", json={"messages": said("y")})  # known by now
    assert more.json()["items"][0]["seq"] == 2


async def test_500_messages_fit_and_501_do_not(api: httpx.AsyncClient) -> None:
    await create(api, memorize="none")
    made = await append(api, said(*map(str, range(500))))
    assert [m["seq"] for m in made["items"]] == list(range(1, 501))
    problem(await api.post("/v1/sessions/s/messages", json={"messages": said("x") * 501}), 422, pointer="/messages")


async def test_concurrent_appends_lose_nothing_and_keep_each_callers_order(api: httpx.AsyncClient) -> None:
    await create(api, memorize="none")

    async def talk(who: int) -> None:
        for turn in range(10):
            await append(api, said(f"{who}/{turn}a", f"{who}/{turn}b"))

    await asyncio.gather(*(talk(who) for who in range(20)))
    kept: list[Json] = []
    while page := await messages(api, limit=100, after_seq=len(kept)):
        kept += page
    assert [m["seq"] for m in kept] == list(range(1, 401))
    for who in range(20):
        mine = [m["content"] for m in kept if m["content"].startswith(f"{who}/")]
        assert mine == [f"{who}/{turn}{half}" for turn in range(10) for half in "ab"]
    assert (await api.get("/v1/sessions/s")).json()["message_count"] == 400


async def test_first_appends_at_once_make_one_session(api: httpx.AsyncClient) -> None:
    made = await asyncio.gather(*(append(api, said(f"n {i}")) for i in range(5)))
    assert sorted(m["items"][0]["seq"] for m in made) == [1, 2, 3, 4, 5]
    assert len((await api.get("/v1/sessions")).json()["items"]) == 1
    assert len(await memories(api)) == 5


async def test_the_last_message_is_the_one_of_the_highest_seq(api: httpx.AsyncClient) -> None:
    await create(api, memorize="none")
    days = [f"2026-01-{day:02}T00:00:00.000Z" for day in range(10, 0, -1)]
    await append(api, said("first", timestamp=days[0]))
    await asyncio.gather(*(append(api, said("x", timestamp=day)) for day in days[1:]))
    last = (await messages(api))[-1]["timestamp"]
    session = (await api.get("/v1/sessions/s")).json()
    stats = (await api.get("/v1/sessions/s/stats")).json()
    assert session["last_message_at"] == stats["last_message_at"] == last
    assert stats["first_message_at"] == days[0]


async def test_the_order_is_that_of_the_numbers_whatever_the_clock_did(
    api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    """Clocks of several machines differ, and are put back."""
    for content in ("one", "two", "three", "four"):
        await append(api, said(content))
        clock.move(hours=-1)
    assert await seqs(api) == await seqs(api, last=4) == [1, 2, 3, 4]
    assert await seqs(api, last=2) == [3, 4]
    assert await seqs(api, after_seq=1, limit=2) == [2, 3]
    assert await seqs(api, before_seq=4, last=2) == [2, 3]
    page = (await api.get("/v1/sessions/s/messages", params={"limit": 3})).json()
    assert [message["content"] for message in page["items"]] == ["one", "two", "three"]
    assert [message["content"] for message in await messages(api, cursor=page["next_cursor"], limit=3)] == ["four"]
    context = (await api.get("/v1/sessions/s/context", params={"max_messages": 3})).json()
    assert context["text"] == "user: two\nuser: three\nuser: four"


# --- memorize ---------------------------------------------------------------------------------------------------------


async def test_what_user_and_assistant_say_is_remembered(api: httpx.AsyncClient) -> None:
    made = await append(api, CONVERSATION)
    kept = await memories(api)
    assert [m["memory_id"] for m in kept] == made["memory_ids"]
    assert [m["content"] for m in kept] == ["What is this?\nAnd that?", "It is 42."]
    assert [m["source"]["speaker"] for m in kept] == ["Ada", "assistant"]
    assert [m["source"]["message_seq"] for m in kept] == [3, 6]
    assert [m["trust"] for m in kept] == [1.0, 0.7]
    for memory in kept:
        assert (memory["memory_type"], memory["importance"]) == ("message", 0.3)
        assert (memory["agent_id"], memory["user_id"]) == ("a", "u")
        assert (memory["source"]["origin"], memory["source"]["session_id"]) == ("message", "s")
    assert kept[0]["metadata"] == {"a.b": {"$c": 1}}
    assert kept[0]["event_at"] == made["items"][2]["timestamp"]
    assert kept[1]["event_at"] == "2026-01-01T00:00:00.000Z"


@pytest.mark.parametrize("memorize", ["none", "extract"])
async def test_other_ways_of_remembering_leave_no_message_memories(api: httpx.AsyncClient, memorize: str) -> None:
    made = await append(api, said("x"), memorize=memorize)
    assert made["memory_ids"] == []
    assert await memories(api) == []


async def test_the_way_of_remembering_can_be_changed(api: httpx.AsyncClient) -> None:
    await append(api, said("not this"), memorize="none")
    await api.patch("/v1/sessions/s", json={"memorize": "messages"})
    await append(api, said("but this"))
    assert [m["content"] for m in await memories(api)] == ["but this"]


async def test_blank_messages_are_kept_but_not_remembered(api: httpx.AsyncClient) -> None:
    image: Any = [{"type": "image_url", "image_url": {"url": "x"}}]
    blank = {"role": "tool", "content": " \n", "tool_call_id": "c"}
    made = await append(api, [blank, {"role": "user", "content": image}])
    assert len(made["items"]) == 2
    assert made["memory_ids"] == []


async def test_equal_messages_are_each_remembered(api: httpx.AsyncClient) -> None:
    fact = (await api.post("/v1/memories", json={**OWNER, "content": "yes", "memory_type": "message"})).json()
    made = await append(api, said("yes", "yes"))
    assert len({fact["memory_id"], *made["memory_ids"]}) == 3
    again = await api.post("/v1/memories", json={**OWNER, "content": "yes", "memory_type": "message"})
    assert again.status_code == 200
    assert again.json()["memory_id"] == fact["memory_id"]


async def test_a_conversation_is_found_in_another_session(api: httpx.AsyncClient) -> None:
    await append(api, said("I am allergic to peanuts.", "The weather is fine."))
    search = {**OWNER, "query": "what must she not eat?", "top_k": 1}
    (item,) = (await api.post("/v1/memories/search", json=search)).json()["items"]
    assert item["memory"]["content"] == "I am allergic to peanuts."


@pytest.mark.parametrize(
    ("content", "pointer"),
    [([], ""), (7, ""), ([{"type": "text"}], "/0/text"), ([{"type": "text", "text": 7}], "/0/text")],
)
async def test_a_fault_in_content_is_named_as_it_was_sent(api: httpx.AsyncClient, content: Any, pointer: str) -> None:
    sent = {**OWNER, "messages": [{"role": "user", "content": content}]}
    answer = problem(await api.post("/v1/sessions/s/messages", json=sent), 422, "invalid")
    assert f"/messages/0/content{pointer}" in [error["pointer"] for error in answer["errors"]]


async def test_messages_come_as_an_openai_client_dumps_them(api: httpx.AsyncClient) -> None:
    """`ChatCompletionMessage.model_dump()`: every field is there, most of them null or empty."""
    dumped: Json = {
        "role": "assistant",
        "content": "Hello.",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": [],
        "metadata": None,
    }
    refused = {"role": "assistant", "content": None, "refusal": "I cannot help with that."}
    body = {"agent_id": "a", "user_id": "u", "messages": [dumped, refused]}
    made = await api.post("/v1/sessions/s/messages", json=body)
    assert made.status_code == 201, made.text
    first, second = made.json()["items"]
    assert (first["content"], first["annotations"], first["tool_calls"], first["metadata"]) == ("Hello.", [], None, {})
    assert second["refusal"] == "I cannot help with that."


async def test_the_parts_of_a_message_are_one_text_to_its_limit(api: httpx.AsyncClient) -> None:
    parts = [{"type": "text", "text": "x" * 16_001}, {"type": "text", "text": "y" * 16_000}]
    body = [*said("hello"), {"role": "user", "content": parts}]
    cut = await append(api, body)
    assert [warning["pointer"] for warning in cut["warnings"]] == [f"/messages/1/content/{n}/text" for n in (0, 1)]
    assert len((await memories(api))[1]["content"]) <= 32_000
    parts[0]["text"] = "x" * 15_999  # and a line break between them
    whole = await append(api, body)
    assert (whole["items"][1]["content"], whole["warnings"]) == (parts, [])


async def test_a_cursor_goes_with_no_look_back(api: httpx.AsyncClient) -> None:
    await append(api, said(*map(str, range(30))))
    cursor = (await api.get("/v1/sessions/s/messages", params={"limit": 2})).json()["next_cursor"]
    for window in ({"last": 2}, {"max_tokens": 100}):
        answered = await api.get("/v1/sessions/s/messages", params={**window, "cursor": cursor})
        problem(answered, 400, "invalid_cursor")
