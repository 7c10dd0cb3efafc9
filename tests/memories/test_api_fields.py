"""`fields`: a search that answers with what the caller needs and no more."""

import httpx
import pytest

from tests.support.memories import OWNER, problem, recall, remember

pytestmark = pytest.mark.anyio


async def test_only_the_named_fields_come_and_always_the_id(api: httpx.AsyncClient) -> None:
    made = await remember(api, "tea at four", tags=["drink"], importance=0.9)
    (item,) = (await recall(api, "tea", fields=["content", "tags"]))["items"]
    assert item["memory"] == {"memory_id": made["memory_id"], "content": "tea at four", "tags": ["drink"]}
    assert set(item) == {"memory", "score"}
    (item,) = (await recall(api, "tea", fields=["memory_id", "importance"], explain=True))["items"]
    assert set(item["memory"]) == {"memory_id", "importance"}
    assert item["scores"]


async def test_a_field_has_the_value_that_it_has_without_the_filter(api: httpx.AsyncClient) -> None:
    await remember(api, "tea at four", pinned=True, metadata={"a.b": [1, None]}, event_at="2026-05-01T16:00:00Z")
    (whole,) = [item["memory"] for item in (await recall(api, "tea", record_access=False))["items"]]
    (every,) = [item["memory"] for item in (await recall(api, "tea", record_access=False, fields=[*whole]))["items"]]
    assert every == whole
    for name in whole:
        (one,) = (await recall(api, "tea", record_access=False, fields=[name]))["items"]
        assert one["memory"] == {"memory_id": whole["memory_id"], name: whole[name]}


async def test_two_slim_hits_are_small(api: httpx.AsyncClient) -> None:
    for text in ("tea at four", "tea at five"):
        await remember(api, text)
    body = {**OWNER, "query": "tea", "fields": ["content"]}
    slim, whole = [await api.post("/v1/memories/search", json=one) for one in (body, {**body, "fields": None})]
    assert len(slim.json()["items"]) == 2
    assert len(slim.content) < len(whole.content) / 4


async def test_an_unknown_field_is_refused_with_the_nearest_known_one(api: httpx.AsyncClient) -> None:
    for asked, nearest in (("contents", "content"), ("memory_typ", "memory_type")):
        refused = await api.post("/v1/memories/search", json={**OWNER, "query": "tea", "fields": ["tags", asked]})
        body = problem(refused, 422, "invalid", "/fields/1")
        assert nearest in body["errors"][0]["detail"]
    for internal in ("content_hash", "tenant_id", "metadata_terms"):
        refused = await api.post("/v1/memories/search", json={**OWNER, "query": "tea", "fields": [internal]})
        problem(refused, 422, "invalid", "/fields/0")
    problem(await api.post("/v1/memories/search", json={**OWNER, "query": "tea", "fields": []}), 422)
