"""Memories of the type `file`: texts under a key, which no search, prompt or judgement sees."""

import json
from typing import Any

import httpx
import pytest

from app.memories.search import _after
from app.settings import QuotaSettings, Settings
from tests.conftest import Service, Starter
from tests.support.documents import MANUAL, passages, read, send
from tests.support.memories import OWNER, Json, batch, found, listed, problem, remember
from tests.support.operations import run

pytestmark = pytest.mark.anyio

ABSENT = {"If-None-Match": "*"}


async def put(
    api: httpx.AsyncClient, key: str, content: str, headers: dict[str, str] | None = None, **more: Any
) -> httpx.Response:
    body = {**OWNER, "memory_type": "file", "key": key, "content": content, **more}
    return await api.post("/v1/memories", json=body, headers=headers or {})


async def test_create_only_if_absent(api: httpx.AsyncClient) -> None:
    made = await put(api, "/memories/a.md", "one", ABSENT)
    assert made.status_code == 201
    refused = problem(await put(api, "/memories/a.md", "two", ABSENT), 412, "precondition_failed")
    assert "If-None-Match" in refused["detail"]
    assert (await put(api, "/memories/a.md", "two")).status_code == 200
    stale = await put(api, "/memories/a.md", "three", {"If-Match": '"1"'})
    problem(stale, 412)
    assert (await put(api, "/memories/a.md", "three", {"If-Match": '"2"'})).json()["content"] == "three"
    other = await put(api, "/memories/a.md", "mine", ABSENT, user_id="v")
    assert other.status_code == 201, "a key is of its owner"
    problem(await put(api, "/memories/b.md", "x", {"If-None-Match": '"1"'}), 422)


async def test_texts_may_be_empty_and_long(api: httpx.AsyncClient) -> None:
    for content in ("", "\n", "é" * 50_000, "x" * 100_000):
        made = await put(api, "/memories/long", content)
        assert made.status_code in (200, 201), made.text[:300]
        assert (await api.get(f"/v1/memories/{made.json()['memory_id']}")).json()["content"] == content
    for content in ("é" * 50_001, "x" * 100_001):
        assert problem(await put(api, "/memories/long", content), 422)["errors"][0]["pointer"] == "/content"
    for fields in ({"content": "x" * 32_001}, {"content": ""}, {"content": " "}):
        answer = await api.post("/v1/memories", json={**OWNER, **fields})
        assert problem(answer, 422)["errors"][0]["pointer"] == "/content"
    answer = await api.post("/v1/memories", json={**OWNER, "memory_type": "file", "content": "nameless"})
    problem(answer, 422, "invalid", "/key")


async def test_a_change_and_a_batch_take_as_long_a_file(api: httpx.AsyncClient) -> None:
    (made,) = (await batch(api, {"memory_type": "file", "key": "/memories/a", "content": "x" * 100_000}))["items"]
    path = f"/v1/memories/{made['memory_id']}"
    for content in ("", "é" * 50_000):
        assert (await api.patch(path, json={"content": content})).json()["content"] == content
    fact = f"/v1/memories/{(await remember(api, 'tea'))['memory_id']}"
    for where, content in ((path, "é" * 50_001), (fact, "x" * 32_001), (fact, ""), (fact, " \n")):
        assert problem(await api.patch(where, json={"content": content}), 422)["errors"][0]["pointer"] == "/content"
    for fields, pointer in (
        ({"memory_type": "file", "key": "k", "content": "x" * 100_001}, "/items/0/content"),
        ({"content": "x" * 32_001}, "/items/0/content"),
        ({"content": "x", "context": "x" * 32_001}, "/items/0/context"),
        ({"content": "x", "metadata": {"content": "x" * 32_001}}, "/items/0/metadata/content"),
    ):
        answer = await api.post("/v1/memories/batch", json={"items": [{**OWNER, **fields}]})
        assert problem(answer, 422)["errors"][0]["pointer"] == pointer


async def test_no_search_prompt_or_comparison_sees_them(api: httpx.AsyncClient) -> None:
    await remember(api, "Ada keeps bees")
    await put(api, "/memories/bees.md", "Ada keeps bees", pinned=True)
    await put(api, "/memories/again.md", "Ada keeps bees")
    await put(api, "/memories/word.md", "👍")
    assert await found(api, "Who keeps bees?") == ["Ada keeps bees"]
    for asked in (
        {"memory_types": ["file"]},
        {"mode": "text"},
        {"session_id": "s"},
        {"filters": {"memory_type": "file"}},
    ):
        body = {**OWNER, "query": "word", "top_k": 50, **asked}
        hits = (await api.post("/v1/memories/search", json=body)).json()["items"]
        assert [hit["memory"]["memory_type"] for hit in hits if hit["memory"]["memory_type"] == "file"] == []
    assert "👍" not in await found(api, "👍")
    text = (await api.post("/v1/context", json={**OWNER, "query": "bees", "fill": True})).json()["text"]
    assert text.count("Ada keeps bees") == 1
    made = await remember(api, "Ada keeps bees too")
    assert all(near["content"] != "👍" for near in made["similar"])
    assert (await put(api, "/memories/third.md", "Ada keeps bees")).json()["similar"] == []


async def test_lists_and_deletions_by_the_beginning_of_the_key(service: Service) -> None:
    api, key = service.client, await service.key()
    api.headers.update(key)
    for name in ("/memories/a", "/memories/a/b", "/memories/a/c", "/memories/ab", "/memories", "/memoriez", "%_"):
        await put(api, name, name)
    await batch(api, {"content": "without a key"})
    assert set(await listed(api, key_prefix="/memories/a/")) == {"/memories/a/b", "/memories/a/c"}
    assert len(await listed(api, key_prefix="/memories")) == 5
    assert await listed(api, key_prefix="%") == ["%_"]
    assert set(await listed(api, filters=json.dumps({"memory_type": "file"}), key_prefix="/memories/ab")) == {
        "/memories/ab"
    }
    problem(await api.delete("/v1/memories", params={"key_prefix": "/memories/a/"}), 422)
    elsewhere = {**OWNER, "user_id": "v", "key_prefix": "/memories/"}
    assert (await api.delete("/v1/memories", params=elsewhere)).json() == {"deleted": 0}
    stranger = await service.key(users=["v"])
    asked = {**OWNER, "key_prefix": "/memories/"}
    assert (await api.delete("/v1/memories", params=asked, headers=stranger)).json() == {"deleted": 0}
    assert (await api.get("/v1/memories", params=asked, headers=stranger)).json()["items"] == []
    assert (await api.delete("/v1/memories", params={**OWNER, "key_prefix": "/memories/a/"})).json() == {"deleted": 2}
    assert len(await listed(api, key_prefix="/memories")) == 3


@pytest.mark.parametrize(
    ("prefix", "after"),
    [("/m/", "/m0"), ("a\U0010ffff", "b"), ("\U0010ffff", None), ("\ud7ff", "\ue000"), ("a", "b")],
)
def test_what_comes_after_a_prefix(prefix: str, after: str | None) -> None:
    assert _after(prefix) == after
    assert after is None or after > prefix + "\U0010ffff"


async def test_a_file_stays_a_file_and_is_exported_and_erased(api: httpx.AsyncClient) -> None:
    made: Json = (await put(api, "/memories/a", "")).json()
    path = f"/v1/memories/{made['memory_id']}"
    assert problem(await api.patch(path, json={"memory_type": "fact"}), 422)["errors"][0]["pointer"] == "/memory_type"
    fact = await remember(api, "tea", key="k")
    problem(await api.patch(f"/v1/memories/{fact['memory_id']}", json={"memory_type": "file"}), 422)
    problem(await put(api, "k", "tea"), 422)
    moved = await api.patch(path, json={"key": "/memories/b"})
    assert (moved.status_code, moved.json()["key"]) == (200, "/memories/b")
    await put(api, "/memories/a", "x")
    problem(await api.patch(path, json={"key": "/memories/a"}), 409)
    lines = [json.loads(line) for line in (await api.get("/v1/users/u/export")).text.splitlines()]
    kept = [line["record"]["content"] for line in lines if line.get("record", {}).get("memory_type") == "file"]
    assert sorted(kept) == ["", "x"]
    await api.delete("/v1/users/u")
    assert await listed(api, key_prefix="/memories") == []


async def test_nothing_forgets_fades_or_tells_what_is_kept_as_it_is(service: Service) -> None:
    api = service.client
    agent = (await api.post("/v1/agents", json={"name": "Support"})).json()["agent_id"]
    await read(service, MANUAL, agent_id=agent)
    made = (await put(api, "/memories/a", "Ada keeps bees", agent_id=agent)).json()
    await api.patch(f"/v1/memories/{made['memory_id']}", json={"importance": 0.9})
    fact = await remember(api, "Ada likes tea", agent_id=agent)
    prompt = (await api.get(f"/v1/agents/{agent}/experience-prompt", params={"user_id": "u"})).json()["text"]
    assert ("tea" in prompt, "bees" in prompt, "fern" in prompt) == (True, False, False)
    service.clock.move(days=400)
    for name in ("decay", "consolidation", "retention", "expiry"):
        await run(service, name)
    plan = (await api.post("/v1/memories/forget", json={"user_id": "u", "agent_id": agent, "policy": {}})).json()
    assert [item["memory_id"] for item in plan["items"]] == [fact["memory_id"]]
    for kind, expected in (("file", [made["memory_id"]]), ("document", None)):
        answer = await api.post(
            "/v1/memories/forget", json={"user_id": "u", "agent_id": agent, "policy": {"types": [kind]}}
        )
        if expected is None:
            assert problem(answer, 422)["errors"][0]["pointer"] == "/policy/types/0"
        else:
            assert [item["memory_id"] for item in answer.json()["items"]] == expected
    kept = (await api.get(f"/v1/memories/{made['memory_id']}")).json()
    assert (kept["importance"], kept["status"], kept["content"]) == (0.9, "active", "Ada keeps bees")
    assert {item["importance"] for item in await passages(api, agent_id=agent)} == {0.5}


async def test_files_and_documents_count_towards_the_quota(settings: Settings, start: Starter) -> None:
    quotas = QuotaSettings(records=3, bytes=150_000)
    async with start(settings.model_copy(update={"quotas": quotas})) as service:
        assert (await put(service.client, "/memories/a", "x" * 100_000)).status_code == 201
        problem(await put(service.client, "/memories/b", "x" * 99_000 + "é" * 500, agent_id="b"), 507)
        problem(await put(service.client, "/memories/a", "é" * 50_000), 507)
        assert (await send(service.client, b"x" * 150_000, "text/plain", expect=507))["code"] == "quota_exceeded"
        operation, document = await read(service, MANUAL)
        assert (operation["status"], document["status"]) == ("failed", "failed")
        assert "quota" in operation["error"]


async def test_others_neither_see_nor_change_a_file(service: Service) -> None:
    api, own = service.client, await service.key()
    made = (await put(api, "/memories/a", "mine", own)).json()
    path = f"/v1/memories/{made['memory_id']}"
    for headers in (await service.key("other"), await service.key(users=["v"])):
        problem(await api.get(path, headers=headers), 404)
        problem(await api.patch(path, json={"content": ""}, headers=headers), 404)
        problem(await api.delete(path, headers=headers), 404)
        assert (await api.get("/v1/memories", params={"key_prefix": "/"}, headers=headers)).json()["items"] == []
    assert (await put(api, "/memories/a", "x", await service.key(users=["v"]))).status_code == 403
    assert (await put(api, "/memories/a", "theirs", await service.key("other"))).status_code == 201
    assert (await api.get(path, headers=own)).json()["content"] == "mine"
