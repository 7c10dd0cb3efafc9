"""Memories of the type `file`: texts under a key, which no search, prompt or judgement sees."""

import json
from typing import Any

import httpx
import pytest

from app.memories.search import _after
from tests.conftest import Service
from tests.support.memories import OWNER, Json, batch, found, listed, problem, remember

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
    assert "key" in problem(answer, 422)["detail"]


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
