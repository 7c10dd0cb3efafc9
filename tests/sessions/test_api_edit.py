"""One message is edited or deleted: it keeps its number, and what was kept of it follows."""

import asyncio
from typing import Any

import httpx
import pytest

from app.core import prompt_text
from app.lifespan import COLLECTIONS
from tests.conftest import Service
from tests.support.context import ask
from tests.support.memories import found, history, problem, recall
from tests.support.sessions import OWNER, Json, append, memories, messages, said, seqs

pytestmark = pytest.mark.anyio

WORDS = ("I live in Rome.", "Noted: you live in Rome.", "My dog is called Rex.")


async def talked(api: httpx.AsyncClient) -> list[Json]:
    made: list[Json] = []
    for number, text in enumerate(WORDS):
        made += (await append(api, said(text, role=("user", "assistant")[number % 2])))["items"]
    return made


def path(seq: int, session: str = "s") -> str:
    return f"/v1/sessions/{session}/messages/{seq}"


async def edit(api: httpx.AsyncClient, seq: int, **fields: Any) -> Json:
    answer = await api.patch(path(seq), json=fields)
    assert answer.status_code == 200, answer.text
    body: Json = answer.json()
    return body


async def delete(api: httpx.AsyncClient, seq: int) -> None:
    answer = await api.delete(path(seq))
    assert answer.status_code == 204, answer.text


async def session_of(api: httpx.AsyncClient) -> Json:
    body: Json = (await api.get("/v1/sessions/s")).json()
    return body


# --- Deleting ---------------------------------------------------------------------------------------------------------


async def test_a_deleted_message_leaves_a_tombstone_that_keeps_its_number(api: httpx.AsyncClient) -> None:
    made = await talked(api)
    await delete(api, 2)
    one, gone, three = await messages(api)
    assert ([one, three], gone["seq"]) == ([made[0], made[2]], 2)
    assert gone["deleted_at"] is not None
    assert (gone["role"], gone["timestamp"], gone["message_id"]) == tuple(
        made[1][name] for name in ("role", "timestamp", "message_id")
    )
    assert (gone["content"], gone["name"], gone["tool_calls"], gone["result"]) == (None, None, None, None)
    assert (gone["metadata"], gone["tokens"]) == ({}, 0)
    assert (await append(api, said("next")))["items"][0]["seq"] == 4


async def test_nothing_that_a_deleted_message_said_is_kept(service: Service) -> None:
    call = {"id": "c-secret", "type": "function", "function": {"name": "secret", "arguments": "secret"}}
    parts = [{"type": "text", "text": "the secret is 4711"}]
    fields = {"name": "Secret", "metadata": {"secret": 1}, "refusal": "secret", "annotations": [{"secret": 1}]}
    sent: list[Json] = [{"role": "assistant", "content": parts, "tool_calls": [call], **fields}]
    await append(service.client, [*sent, {"role": "tool", "tool_call_id": "c-secret", "result": {"secret": 1}}])
    await delete(service.client, 1)
    await delete(service.client, 2)
    for collection in ("messages", "agent_memories", "memory_history"):
        assert "secret" not in str([*await rows(service, collection)]).casefold(), collection


async def rows(service: Service, name: str) -> list[Json]:
    (collection,) = (one for one in COLLECTIONS if one.name == name)
    return await service.resources.store.find(collection, None, order="asc", limit=1_000)


async def test_its_memory_goes_with_its_history_and_is_not_found(api: httpx.AsyncClient) -> None:
    await talked(api)
    memory = (await memories(api))[2]
    await api.patch(f"/v1/memories/{memory['memory_id']}", json={"tags": ["pet"]})
    await delete(api, 3)
    assert [one["content"] for one in await memories(api)] == [*WORDS[:2]]
    problem(await api.get(f"/v1/memories/{memory['memory_id']}"), 404)
    problem(await api.get(f"/v1/memories/{memory['memory_id']}/history"), 404)
    assert WORDS[2] not in await found(api, "What is the dog called?")


async def test_counts_and_stats_follow(api: httpx.AsyncClient) -> None:
    made = await talked(api)
    before = await session_of(api)
    await delete(api, 3)
    session, stats = await session_of(api), (await api.get("/v1/sessions/s/stats")).json()
    assert session["message_count"] == stats["message_count"] == 2
    assert session["token_count"] == stats["token_count"] == before["token_count"] - made[2]["tokens"]
    assert session["last_message_at"] == stats["last_message_at"] == made[1]["timestamp"]
    assert session["version"] == before["version"] + 1
    assert (stats["by_role"], stats["memories"]) == ({"user": 1, "assistant": 1}, 2)
    await delete(api, 1)
    assert (await api.get("/v1/sessions/s/stats")).json()["first_message_at"] == made[1]["timestamp"]
    await delete(api, 2)
    stats = (await api.get("/v1/sessions/s/stats")).json()
    assert (stats["message_count"], stats["token_count"], stats["by_role"]) == (0, 0, {})
    assert (stats["first_message_at"], stats["last_message_at"]) == (None, None)
    assert await seqs(api) == [1, 2, 3]
    assert (await append(api, said("on we go")))["items"][0]["seq"] == 4
    assert (await session_of(api))["message_count"] == 1


async def test_windows_and_contexts_pass_over_tombstones(api: httpx.AsyncClient) -> None:
    await talked(api)
    await delete(api, 2)
    assert await seqs(api, last=2) == [1, 3]
    assert await seqs(api, max_tokens=1000) == [1, 3]
    assert await seqs(api, after_seq=1) == [2, 3]
    context = (await api.get("/v1/sessions/s/context", params={"max_messages": 2})).json()
    assert (context["text"], context["truncated"]) == (f"user: {WORDS[0]}\nuser: {WORDS[2]}", False)
    text = (await ask(api, "What is known?", session_id="s"))["text"]
    assert WORDS[1] not in text
    assert WORDS[0] in text


async def test_what_is_not_there_or_was_deleted_is_not_found(api: httpx.AsyncClient) -> None:
    problem(await api.delete(path(1)), 404, "not_found")
    await talked(api)
    await delete(api, 2)
    for seq in (2, 4, 0):
        problem(await api.delete(path(seq)), 404, "not_found")
        problem(await api.patch(path(seq), json={"content": "x"}), 404, "not_found")
    problem(await api.delete("/v1/sessions/s/messages/x"), 422, "invalid", "/path/seq")
    assert (await session_of(api))["message_count"] == 2


async def test_a_session_that_has_ended_can_still_be_corrected(api: httpx.AsyncClient) -> None:
    await talked(api)
    await api.post("/v1/sessions/s/end")
    await edit(api, 1, content="I live in Turin.")
    await delete(api, 2)
    assert [one["content"] for one in await memories(api, memory_type="message")] == ["I live in Turin.", WORDS[2]]


async def test_clearing_takes_tombstones_too(api: httpx.AsyncClient) -> None:
    await talked(api)
    await delete(api, 2)
    assert (await api.delete("/v1/sessions/s/messages")).json() == {"deleted": 2}
    assert await messages(api) == []


async def test_deletions_and_appends_at_once_lose_nothing(api: httpx.AsyncClient) -> None:
    await append(api, said(*(f"number {number}" for number in range(6))))
    await asyncio.gather(*(delete(api, seq) for seq in (1, 3, 5)), *(append(api, said(f"late {n}")) for n in range(6)))
    session, held = await session_of(api), await messages(api, limit=100)
    assert [one["seq"] for one in held] == list(range(1, 13))
    assert session["message_count"] == sum(one["deleted_at"] is None for one in held) == 9
    assert session["token_count"] == sum(one["tokens"] for one in held)
    assert len(await memories(api)) == 9


# --- Editing ----------------------------------------------------------------------------------------------------------


async def test_an_edited_message_keeps_its_place_and_its_memory_says_the_new_text(api: httpx.AsyncClient) -> None:
    made = await talked(api)
    before = await session_of(api)
    changed = await edit(api, 1, content="I live in Turin, not in Rome.", metadata={"a.b": 1}, name="Ada")
    assert changed["edited_at"] is not None
    assert changed["tokens"] == prompt_text.count("I live in Turin, not in Rome.")
    same = {name: made[0][name] for name in ("message_id", "seq", "role", "timestamp", "created_at")}
    assert changed == changed | same
    assert (await messages(api))[0] == changed
    memory = (await memories(api))[0]
    assert (memory["content"], memory["metadata"]) == ("I live in Turin, not in Rome.", {"a.b": 1})
    assert (memory["source"]["message_seq"], memory["source"]["speaker"]) == (1, "Ada")
    assert "I live in Rome." not in await found(api, "where does she live?")
    assert await found(api, "Turin", mode="text") == ["I live in Turin, not in Rome."]
    session = await session_of(api)
    assert session["token_count"] == before["token_count"] + changed["tokens"] - made[0]["tokens"]
    assert (session["message_count"], session["version"]) == (3, before["version"] + 1)


async def test_what_a_caller_did_to_the_memory_stays(api: httpx.AsyncClient) -> None:
    await talked(api)
    memory = (await memories(api))[0]
    await api.patch(f"/v1/memories/{memory['memory_id']}", json={"tags": ["home"], "pinned": True, "importance": 0.9})
    await edit(api, 1, content="I live in Turin.")
    (again,) = [one for one in await memories(api) if one["source"]["message_seq"] == 1]
    assert (again["memory_id"], again["tags"], again["pinned"]) == (memory["memory_id"], ["home"], True)
    assert again["importance"] == 0.9


async def test_what_is_absent_stays_and_null_clears(api: httpx.AsyncClient) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    sent: list[Json] = [{"role": "assistant", "content": "Looking.", "name": "Bot", "tool_calls": [call]}]
    await append(api, [*sent, {"role": "tool", "tool_call_id": "c1", "result": {"sky": None}}])
    changed = await edit(api, 1, name=None, timestamp="2026-01-01T02:00:00+02:00")
    assert (changed["content"], changed["name"], changed["timestamp"]) == ("Looking.", None, "2026-01-01T00:00:00.000Z")
    assert changed["tool_calls"] == [call]
    assert (await memories(api))[0]["event_at"] == "2026-01-01T00:00:00.000Z"
    assert (await edit(api, 2, result=["rain"]))["result"] == ["rain"]
    assert (await edit(api, 1, content=None))["content"] is None
    assert await memories(api) == [], "nothing is said any more"
    assert (await edit(api, 1, content="Looking again."))["content"] == "Looking again."
    assert [one["content"] for one in await memories(api)] == ["Looking again."]


async def test_an_edit_that_changes_nothing_is_none(api: httpx.AsyncClient) -> None:
    made, before = await talked(api), await session_of(api)
    assert await edit(api, 1, content=WORDS[0]) == made[0]
    assert await edit(api, 1) == made[0]
    assert await session_of(api) == before


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"content": 7}, "/content"),
        ({"content": None}, "/content"),
        ({"content": [{"type": "text"}]}, "/content"),
        ({"role": "assistant"}, "/role"),
        ({"seq": 9}, "/seq"),
        ({"tool_calls": [{"id": "c"}]}, "/tool_calls"),
        ({"timestamp": "yesterday"}, "/timestamp"),
        ({"content": "x" * 32_001}, "/content"),
        ({"content": [{"type": "text", "text": "x" * 20_000}] * 2}, "/content"),
    ],
)
async def test_a_message_that_would_be_none_is_refused(api: httpx.AsyncClient, fields: Json, pointer: str) -> None:
    made = await talked(api)
    answer = problem(await api.patch(path(1), json=fields), 422, "invalid")
    assert any(error["pointer"].startswith(pointer) for error in answer["errors"]), answer
    assert (await messages(api))[0] == made[0]


async def test_a_session_that_memorizes_nothing_makes_no_memory_of_an_edit(api: httpx.AsyncClient) -> None:
    await append(api, said("x"), memorize="none")
    await edit(api, 1, content="y")
    assert await memories(api) == []


async def test_writes_are_conditional_on_the_session(api: httpx.AsyncClient) -> None:
    await talked(api)
    stale, fresh = {"If-Match": '"9"'}, {"If-Match": f'"{(await session_of(api))["version"]}"'}
    problem(await api.patch(path(1), json={"content": "x"}, headers=stale), 412, "precondition_failed")
    problem(await api.delete(path(1), headers=stale), 412, "precondition_failed")
    assert (await api.patch(path(1), json={"content": "x"}, headers=fresh)).status_code == 200
    problem(await api.delete(path(1), headers=fresh), 412, "precondition_failed")


async def test_others_can_do_nothing_to_it(service: Service) -> None:
    headers = await service.key()
    api = service.client
    sent = {**OWNER, "messages": said("secret")}
    assert (await api.post("/v1/sessions/s/messages", json=sent, headers=headers)).status_code == 201
    for stranger in (await service.key("other"), await service.key(users=["nobody"]), await service.key(agents=["b"])):
        problem(await api.patch(path(1), json={"content": "x"}, headers=stranger), 404, "not_found")
        problem(await api.delete(path(1), headers=stranger), 404, "not_found")
    listed = await api.get("/v1/sessions/s/messages", headers=headers)
    assert [one["content"] for one in listed.json()["items"]] == ["secret"]


async def test_an_export_holds_tombstones_and_edits_and_is_imported(service: Service) -> None:
    api = service.client
    await talked(api)
    await edit(api, 1, content="I live in Turin.")
    await delete(api, 2)
    lines = (await api.get("/v1/users/u/export")).text
    assert WORDS[1] not in lines
    assert "I live in Turin." in lines


async def test_the_earlier_text_of_a_memory_is_in_its_history_until_the_message_is_deleted(
    api: httpx.AsyncClient,
) -> None:
    await talked(api)
    await edit(api, 1, content="I live in Turin.")
    memory = (await memories(api))[0]
    assert [one["record"]["content"] for one in await history(api, memory["memory_id"])] == [WORDS[0]]
    await delete(api, 1)
    problem(await api.get(f"/v1/memories/{memory['memory_id']}/history"), 404)
    assert all(item["memory"]["content"] in WORDS[1:] for item in (await recall(api, "Rome"))["items"])
