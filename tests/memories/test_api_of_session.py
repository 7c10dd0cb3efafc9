"""Lists of what came of a session: memories and facts by session and message, operations by session."""

from typing import Any

import httpx
import pytest

from tests.support.facts import tell
from tests.support.memories import OWNER, problem, remember

pytestmark = pytest.mark.anyio


async def _contents(api: httpx.AsyncClient, **query: Any) -> list[str]:
    answer = await api.get("/v1/memories", params={"order": "asc", **query})
    assert answer.status_code == 200, answer.text
    return [item["content"] for item in answer.json()["items"]]


async def test_memories_are_listed_by_the_messages_that_they_come_from(api: httpx.AsyncClient) -> None:
    said = [{"role": ("user", "assistant")[at % 2], "content": f"line {at + 1}"} for at in range(4)]
    assert (await api.post("/v1/sessions/s/messages", json={**OWNER, "messages": said})).status_code == 201
    await remember(api, "of message 3", source={"session_id": "s", "message_seq": 3})
    await remember(api, "of another session", source={"session_id": "t", "message_seq": 3})
    await remember(api, "of the session", source={"session_id": "s"})
    assert await _contents(api, session_id="s", after_seq=1, before_seq=4) == ["line 2", "line 3", "of message 3"]
    assert await _contents(api, session_id="s", after_seq=3) == ["line 4"]
    assert await _contents(api, session_id="s", before_seq=1) == []
    assert await _contents(api, session_id="s", origin="api") == ["of message 3", "of the session"]
    assert len(await _contents(api, session_id="s")) == 6


async def test_facts_are_listed_by_the_messages_that_they_come_from(api: httpx.AsyncClient) -> None:
    await tell(api, "Boston", source={"session_id": "s", "message_seq": 2})
    await tell(api, "tea", predicate="drinks", source={"session_id": "s", "message_seq": 5})
    await tell(api, "climbing", predicate="likes", source={"session_id": "t", "message_seq": 2})

    async def objects(**query: Any) -> list[str]:
        answer = await api.get("/v1/facts", params={"order": "asc", **query})
        assert answer.status_code == 200, answer.text
        return [item["object"] for item in answer.json()["items"]]

    assert await objects(session_id="s") == ["Boston", "tea"]
    assert await objects(session_id="s", after_seq=2) == ["tea"]
    assert await objects(session_id="s", before_seq=5, **OWNER) == ["Boston"]
    assert await objects(session_id="none") == []


@pytest.mark.parametrize("path", ["/v1/memories", "/v1/facts"])
async def test_a_message_is_numbered_in_its_session(api: httpx.AsyncClient, path: str) -> None:
    for name in ("after_seq", "before_seq"):
        refused = problem(await api.get(path, params={name: 1}), 422, "invalid")
        assert [error["pointer"] for error in refused["errors"]] == [f"/query/{name}"]
        assert "session_id is required" in refused["errors"][0]["detail"]
    problem(await api.get(path, params={"session_id": "s", "after_seq": -1}), 422)


async def test_operations_are_listed_by_session_and_kind(api: httpx.AsyncClient) -> None:
    for session in ("s", "t"):
        said = [{"role": "user", "content": "I moved to Boston."}]
        await api.post(f"/v1/sessions/{session}/messages", json={**OWNER, "messages": said})
        ended = (await api.post(f"/v1/sessions/{session}/end")).json()
        assert ended["session_id"] == session
    await api.post("/v1/jobs/decay/run", json={})

    async def listed(**query: str) -> list[tuple[str, str | None]]:
        items = (await api.get("/v1/operations", params=query)).json()["items"]
        return [(item["kind"], item["session_id"]) for item in items]

    assert await listed(session_id="s") == [("post_conversation", "s")]
    assert await listed(kind="decay") == [("decay", None)]
    assert await listed(kind="post_conversation") == [("post_conversation", "t"), ("post_conversation", "s")]
    assert await listed(session_id="s", kind="decay") == []
