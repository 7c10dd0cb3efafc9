"""Sessions: how they begin, change, end and go."""

import asyncio
from typing import Any

import httpx
import pytest

from app.sessions.repository import SessionRepository, new_session
from app.sessions.schemas import SessionCreate, SessionRecord
from app.storage.changes import CommitConflict
from app.storage.scope import Scope
from tests.conftest import Service, TurnedClock
from tests.support.memories import problem
from tests.support.sessions import OWNER, append, create, memories, messages, said, seqs

pytestmark = pytest.mark.anyio


async def test_a_new_session_has_all_its_fields(api: httpx.AsyncClient) -> None:
    body = {"session_id": "chat:1", **OWNER, "memorize": "none", "metadata": {"$a.b": None, "": [1]}}
    made = await api.post("/v1/sessions", json={**body, "expires_at": "2027-01-01T01:00:00+01:00"})
    assert made.status_code == 201
    session = made.json()
    assert {name: session[name] for name in body} == body
    assert session["expires_at"] == "2027-01-01T00:00:00.000Z"
    assert (session["status"], session["version"], session["summary"]) == ("active", 1, None)
    assert (session["message_count"], session["token_count"], session["last_message_at"]) == (0, 0, None)
    got = await api.get("/v1/sessions/chat:1")
    assert got.json() == session
    assert got.headers["etag"] == made.headers["etag"] == '"1"'


async def test_an_id_is_made_up_where_none_is_given(api: httpx.AsyncClient) -> None:
    made = await api.post("/v1/sessions", json=OWNER)
    assert (await api.get(f"/v1/sessions/{made.json()['session_id']}")).status_code == 200


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"agent_id": None}, "/agent_id"),
        ({"user_id": "a/b"}, "/user_id"),
        ({"session_id": ""}, "/session_id"),
        ({"memorize": "everything"}, "/memorize"),
        ({"expires_at": "2027-01-01T00:00:00"}, "/expires_at"),
        ({"status": "ended"}, "/status"),
    ],
)
async def test_bad_fields_are_named(api: httpx.AsyncClient, fields: dict[str, Any], pointer: str) -> None:
    problem(await api.post("/v1/sessions", json={"session_id": "s", **OWNER, **fields}), 422, "invalid", pointer)
    problem(await api.get("/v1/sessions/s"), 404, "not_found")


async def test_an_id_is_taken_once_and_the_answer_names_nobody(api: httpx.AsyncClient) -> None:
    await create(api)
    for owner in (OWNER, {"agent_id": "a", "user_id": "somebody.else"}):
        made = await api.post("/v1/sessions", json={"session_id": "s", **owner})
        detail = problem(made, 409, "already_exists")["detail"]
        assert detail.startswith("That session_id is taken: a session_id is unique in a tenant")
        assert "for example" in detail
        assert "somebody" not in detail
    taken = {"messages": said("hi"), "agent_id": "a", "user_id": "somebody.else"}
    problem(await api.post("/v1/sessions/s/messages", json=taken), 409, "already_exists")
    assert await messages(api) == []


async def test_sessions_are_listed_by_owner_and_status(api: httpx.AsyncClient) -> None:
    await create(api, "one")
    await create(api, "two", user_id="u2")
    await create(api, "three", agent_id="a2")
    await api.post("/v1/sessions/one/end")

    async def listed(**params: Any) -> list[str]:
        return [s["session_id"] for s in (await api.get("/v1/sessions", params=params)).json()["items"]]

    assert await listed() == ["three", "two", "one"]
    assert await listed(order="asc", limit=2) == ["one", "two"]
    assert await listed(user_id="u") == ["three", "one"]
    assert await listed(agent_id="a") == ["two", "one"]
    assert await listed(agent_id="a", user_id="u2") == ["two"]
    assert await listed(status="ended") == ["one"]


async def test_a_patch_sets_what_it_names_and_null_clears(api: httpx.AsyncClient) -> None:
    await create(api, metadata={"a": 1}, expires_at="2027-01-01T00:00:00Z")
    path = "/v1/sessions/s"
    patched = await api.patch(path, json={"summary": "they talked", "metadata": {"b": 2}})
    body = patched.json()
    assert (body["summary"], body["metadata"], body["version"]) == ("they talked", {"b": 2}, 2)
    assert body["expires_at"] == "2027-01-01T00:00:00.000Z"
    cleared = (await api.patch(path, json={"summary": None, "expires_at": None})).json()
    assert (cleared["summary"], cleared["expires_at"], cleared["version"]) == (None, None, 3)
    assert (await api.patch(path, json={})).json()["version"] == 3
    assert (await api.patch(path, json={"metadata": None})).json()["metadata"] == {}
    for bad in ({"memorize": None}, {"user_id": "x"}, {"status": "active"}):
        problem(await api.patch(path, json=bad), 422, "invalid", f"/{next(iter(bad))}")


async def test_if_match_guards_every_write(api: httpx.AsyncClient) -> None:
    await create(api)
    await api.patch("/v1/sessions/s", json={"summary": "x"})
    stale, path = {"If-Match": '"1"'}, "/v1/sessions/s"
    for response in (
        await api.patch(path, json={"summary": "y"}, headers=stale),
        await api.post(f"{path}/messages", json={"messages": said("hi")}, headers=stale),
        await api.delete(f"{path}/messages", headers=stale),
        await api.post(f"{path}/end", headers=stale),
        await api.delete(path, headers=stale),
    ):
        problem(response, 412, "precondition_failed")
    assert (await api.get(path)).json()["version"] == 2
    assert (await api.delete(path, headers={"If-Match": '"2"'})).status_code == 204


async def test_an_ended_session_takes_no_more_messages_and_can_be_ended_again(api: httpx.AsyncClient) -> None:
    await append(api, said("hi"))
    operation = await api.post("/v1/sessions/s/end")
    assert (operation.status_code, operation.json()["kind"]) == (202, "post_conversation")
    ended = (await api.get("/v1/sessions/s")).json()
    assert ended["status"] == "ended"
    assert ended["ended_at"] is not None
    assert (await api.post("/v1/sessions/s/end")).status_code == 202
    assert (await api.get("/v1/sessions/s")).json() == ended
    refused = await api.post("/v1/sessions/s/messages", json={**OWNER, "messages": said("more")})
    detail = problem(refused, 409, "session_ended")["detail"]
    assert detail == "This session has ended. To add messages: POST /v1/sessions/s/reopen."
    assert [m["content"] for m in await messages(api)] == ["hi"]
    assert len(await memories(api)) == 1


async def test_a_clean_slate_empties_short_term_memory_only(api: httpx.AsyncClient) -> None:
    await append(api, said("one", "two"))
    await api.patch("/v1/sessions/s", json={"summary": "counting"})
    cleared = await api.delete("/v1/sessions/s/messages")
    assert (cleared.status_code, cleared.json()) == (200, {"deleted": 2})
    session = (await api.get("/v1/sessions/s")).json()
    assert (session["message_count"], session["token_count"], session["last_message_at"]) == (0, 0, None)
    assert await messages(api) == []
    context = (await api.get("/v1/sessions/s/context")).json()
    assert (context["text"], context["messages"], context["tokens"]) == ("", [], 0)
    assert len(await memories(api, memory_type="message")) == 2
    assert (await append(api, said("three")))["items"][0]["seq"] == 3


async def test_deleting_a_session_keeps_its_memories_and_its_numbering(api: httpx.AsyncClient) -> None:
    await append(api, said("one", "two"))
    assert (await api.delete("/v1/sessions/s")).status_code == 204
    for path in ("", "/messages", "/context", "/stats"):
        problem(await api.get(f"/v1/sessions/s{path}"), 404, "not_found")
    assert [m["source"]["message_seq"] for m in await memories(api, session_id="s")] == [1, 2]
    assert (await append(api, said("three")))["items"][0]["seq"] == 3
    assert await seqs(api) == [3]


async def test_an_expired_session_is_gone_and_its_id_is_free(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    await create(api, expires_at="2026-06-02T00:00:00Z")
    await append(api, said("one"))
    clock.move(days=1)
    for response in (
        await api.get("/v1/sessions/s"),
        await api.patch("/v1/sessions/s", json={"expires_at": None}),
        await api.get("/v1/sessions/s/messages"),
        await api.post("/v1/sessions/s/end"),
        await api.delete("/v1/sessions/s"),
    ):
        problem(response, 404, "not_found")
    assert (await api.get("/v1/sessions")).json()["items"] == []
    assert (await append(api, said("two"), user_id="u2"))["items"][0]["seq"] == 2
    assert [m["content"] for m in await messages(api)] == ["two"]
    assert (await api.get("/v1/sessions/s")).json()["user_id"] == "u2"
    assert (await api.get("/v1/sessions/s/stats")).json()["memories"] == 1, "without those of the first user"


async def test_stats_count_what_is_there(api: httpx.AsyncClient) -> None:
    await append(api, said("one", timestamp="2026-05-01T00:00:00Z") + said("be kind", role="system"))
    await append(api, said("two", role="assistant") + said("ok", role="tool", tool_call_id="c"))
    stats = (await api.get("/v1/sessions/s/stats")).json()
    session = (await api.get("/v1/sessions/s")).json()
    assert stats["by_role"] == {"system": 1, "user": 1, "assistant": 1, "tool": 1}
    assert stats["message_count"] == session["message_count"] == 4
    assert stats["token_count"] == session["token_count"] == sum(m["tokens"] for m in await messages(api)) == 5
    assert stats["first_message_at"] == "2026-05-01T00:00:00.000Z"
    assert stats["last_message_at"] == (await messages(api))[-1]["timestamp"]
    assert stats["memories"] == 2
    assert session["version"] == 1  # appended children leave it alone


async def test_first_messages_sent_at_once_make_one_session(api: httpx.AsyncClient) -> None:
    for name in ("one", "two", "three", "four", "five"):
        body = {"agent_id": "a", "user_id": "u", "memorize": "none", "messages": [{"role": "user", "content": "hi"}]}
        answers = await asyncio.gather(*(api.post(f"/v1/sessions/{name}/messages", json=body) for _ in range(12)))
        assert {answer.status_code for answer in answers} == {201}, [a.text for a in answers if a.status_code != 201]
        held = (await api.get(f"/v1/sessions/{name}")).json()
        assert held["message_count"] == 12


async def test_the_purge_of_an_expired_session_leaves_the_next_one_of_its_id_alone(
    service: Service, clock: TurnedClock
) -> None:
    """Both are at version 1."""
    api, store = service.client, service.resources.store
    await create(api, expires_at="2026-06-02T00:00:00Z")
    sessions = SessionRepository(store, Scope("default"))
    old = await sessions.get("s")
    clock.move(days=1)
    await append(api, said("two"), user_id="u2")
    with pytest.raises(CommitConflict):
        await store.commit(sessions.remove(old))
    assert (await api.get("/v1/sessions/s")).json()["user_id"] == "u2"
    assert (await api.get("/v1/sessions/s/stats")).json()["memories"] == 1, "without those of the first user"
    assert [m["content"] for m in await messages(api)] == ["two"]


async def test_sessions_are_listed_by_metadata(service: Service) -> None:
    api = service.client
    for number in range(5):
        await create(api, f"s{number}", metadata={"channel": "mail" if number % 2 else "chat", "n": number})
    await api.patch("/v1/sessions/s4", json={"metadata": {"channel": "mail", "a.b": [None]}})

    async def listed(**params: Any) -> list[str]:
        answer = await api.get("/v1/sessions", params=params)
        assert answer.status_code == 200, answer.text
        return [session["session_id"] for session in answer.json()["items"]]

    assert await listed(metadata='{"channel": "mail"}') == ["s4", "s3", "s1"]
    assert await listed(metadata='{"channel": "chat"}', order="asc") == ["s0", "s2"]
    assert await listed(metadata='{"channel": "mail", "n": 3.0}') == ["s3"]
    assert await listed(metadata='{"a.b": [null]}') == ["s4"]
    assert await listed(metadata='{"n": "3"}') == []
    first = (await api.get("/v1/sessions", params={"metadata": '{"channel": "mail"}', "limit": 2})).json()
    rest = {"metadata": '{"channel": "mail"}', "limit": 2, "cursor": first["next_cursor"]}
    assert [one["session_id"] for one in first["items"]] == ["s4", "s3"]
    assert await listed(**rest) == ["s1"]
    problem(await api.get("/v1/sessions", params={**rest, "metadata": "{}"}), 400, "invalid_cursor")
    problem(await api.get("/v1/sessions", params={"metadata": "mail"}), 422, "invalid", "/query/metadata")


def old_session(session_id: str, metadata: dict[str, Any]) -> SessionRecord:
    now = f"2026-05-01T00:00:00.{session_id[1:]}Z"
    session = new_session(SessionCreate(session_id=session_id, **OWNER, metadata=metadata), now)
    session.pop("metadata_terms", None)
    return session


# --- Reopening --------------------------------------------------------------------------------------------------------


async def test_an_ended_session_can_be_reopened(api: httpx.AsyncClient) -> None:
    await append(api, said("hello"))
    await api.post("/v1/sessions/s/end")
    await append(api, said("too late"), expect=409)
    ended = (await api.get("/v1/sessions/s")).json()
    reopened = await api.post("/v1/sessions/s/reopen")
    assert reopened.status_code == 200, reopened.text
    session = reopened.json()
    assert (session["status"], session["ended_at"], session["version"]) == ("active", None, ended["version"] + 1)
    assert reopened.headers["etag"] == f'"{session["version"]}"'
    await append(api, said("in time"))
    assert await seqs(api) == [1, 2]
    assert (await api.get("/v1/sessions", params={"status": "ended"})).json()["items"] == []
    again = (await api.post("/v1/sessions/s/reopen")).json()
    assert again["version"] == session["version"], "it is open already"
    assert (await api.post("/v1/sessions/s/end")).status_code == 202


async def test_reopening_is_conditional_repeatable_and_for_its_owners(service: Service) -> None:
    headers = await service.key()
    api = service.client
    session = {"session_id": "s", **OWNER}
    assert (await api.post("/v1/sessions", json=session, headers=headers)).status_code == 201
    await api.post("/v1/sessions/s/end", headers=headers)
    for stranger in (await service.key("other"), await service.key(users=["nobody"])):
        problem(await api.post("/v1/sessions/s/reopen", headers=stranger), 404, "not_found")
    stale = await api.post("/v1/sessions/s/reopen", headers={**headers, "If-Match": '"1"'})
    problem(stale, 412, "precondition_failed")
    once = {**headers, "Idempotency-Key": "again"}
    first = await api.post("/v1/sessions/s/reopen", headers=once)
    await api.post("/v1/sessions/s/end", headers=headers)
    replayed = await api.post("/v1/sessions/s/reopen", headers=once)
    assert (replayed.json(), replayed.headers["idempotency-replayed"]) == (first.json(), "true")
    assert (await api.get("/v1/sessions/s", headers=headers)).json()["status"] == "ended"
