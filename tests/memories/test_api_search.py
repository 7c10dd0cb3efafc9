"""POST /v1/memories/search: modes, scope, ranking's promises, access."""

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from prometheus_client import REGISTRY

from app.memories.schemas import MEMORIES
from app.retrieval.retriever import RetrievalRequest, Retriever
from app.settings import Settings
from app.storage.schema import EVERYTHING
from app.storage.scope import Partition, Scope
from tests.conftest import Service, Starter, TestParts, TurnedClock
from tests.support.memories import OWNER, Faulty, Json, batch, eventually, found, problem, recall, remember

pytestmark = pytest.mark.anyio


async def test_an_empty_scope_is_an_empty_list(api: httpx.AsyncClient) -> None:
    for mode in ("hybrid", "vector", "text"):
        body = await recall(api, "anything", mode=mode)
        assert body["items"] == []
        assert set(body["took_ms"]) == {"embed", "search", "total"}


async def test_an_empty_scope_asks_no_model(start: Starter, parts: TestParts, settings: Settings) -> None:
    parts.wrap = _failing
    async with start(settings) as service:
        assert (await recall(service.client, "anything"))["items"] == []


def _failing(embedder: Any) -> Faulty:
    faulty = Faulty(embedder)
    faulty.failing = True
    return faulty


async def test_each_mode_finds_in_its_way(api: httpx.AsyncClient) -> None:
    await batch(
        api,
        {"content": "She drives a red automobile"},
        {"content": "The quarterly report is due on Friday"},
        {"content": "Invoice QX-7731 was paid"},
    )
    assert (await found(api, "which car does she have?", mode="vector"))[0] == "She drives a red automobile"
    assert await found(api, "QX-7731", mode="text") == ["Invoice QX-7731 was paid"]
    assert await found(api, "which car?", mode="text") == []
    assert (await found(api, "which car does she have?"))[0] == "She drives a red automobile"
    assert (await found(api, "QX-7731"))[0] == "Invoice QX-7731 was paid"
    assert len(await found(api, "which car does she have?")) == 3  # a filter, not the ranking, decides what is found


async def test_scores_fall_and_are_explained(api: httpx.AsyncClient) -> None:
    await batch(api, {"content": "tea in the morning"}, {"content": "coffee at noon"}, {"content": "rain again"})
    for mode in ("hybrid", "vector", "text"):
        plain = (await recall(api, "tea at noon", mode=mode))["items"]
        scores = [item["score"] for item in plain]
        assert scores == sorted(scores, reverse=True)
        assert all("scores" not in item for item in plain)
        explained = (await recall(api, "tea at noon", mode=mode, explain=True))["items"]
        assert [item["score"] for item in explained] == scores
        wanted = {"hybrid": {"vector", "text"}, "vector": {"vector"}, "text": {"text"}}[mode]
        assert all(wanted <= set(item["scores"]) for item in explained)
        sums = [sum(item["contributions"].values()) for item in explained]
        assert sums == sorted(sums, reverse=True)
        assert any(sums) == (mode == "hybrid")
    assert all(0 <= item["score"] <= 1 for item in (await recall(api, "tea at noon"))["items"])


async def test_the_time_taken_is_told(api: httpx.AsyncClient) -> None:
    await remember(api, "tea")
    took = (await recall(api, "tea"))["took_ms"]
    assert took["embed"] > 0
    assert took["total"] == pytest.approx(took["embed"] + took["search"], abs=0.01)


class SlowNames:
    """No names, after a wait."""

    async def groups(
        self, scope: Scope, partitions: Sequence[Partition], known_at: str | None
    ) -> Sequence[Sequence[str]]:
        await asyncio.sleep(0.05)
        return ()


async def test_only_the_vector_counts_as_embedding(api: httpx.AsyncClient, service: Service) -> None:
    held, scope, partition = service.resources, Scope("default"), Partition("a", "u")
    await remember(api, "tea")
    retriever = Retriever(held.store, scope, held.embedder, MEMORIES, names=SlowNames())
    took = (await retriever.find(RetrievalRequest("tea", (partition,), EVERYTHING, now_ms=0, k=1, mode="text"))).took_ms
    assert took["search"] >= 50 > took["embed"]


async def test_a_search_of_nothing_embeds_nothing_and_is_not_counted(api: httpx.AsyncClient) -> None:
    def searches() -> float:
        return REGISTRY.get_sample_value("recalld_search_seconds_count") or 0

    await remember(api, "tea")
    before = searches()
    assert (await recall(api, "tea", agent_id="b", user_id="v"))["took_ms"]["embed"] == 0
    assert searches() == before
    await recall(api, "tea")
    assert searches() == before + 1


async def test_what_is_found_is_the_memory_as_get_serves_it(api: httpx.AsyncClient) -> None:
    made = await remember(api, "tea", metadata={"$a.b": 1}, tags=["t"])
    (item,) = (await recall(api, "tea", record_access=False))["items"]
    assert item["memory"] == (await api.get(f"/v1/memories/{made['memory_id']}")).json()


# --- Scope ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "seen"),
    [
        ({"agent_id": "a", "user_id": "u"}, {"a u", "a -", "- u"}),
        ({"agent_id": "a", "user_id": "u", "include_shared": False}, {"a u"}),
        ({"user_id": "u"}, {"a u", "b u", "- u"}),
        ({"agent_id": "a"}, {"a -"}),
        ({"agent_id": "b"}, set()),
        ({"agent_id": "b", "user_id": "u"}, {"b u", "- u"}),
        ({"agent_id": "b", "user_id": "v"}, set()),
        ({"agent_id": "a", "user_id": "v"}, {"a v", "a -"}),
        ({"user_id": "nobody"}, set()),
    ],
)
async def test_a_search_sees_its_pair_and_what_is_shared_with_it(
    api: httpx.AsyncClient, asked: Json, seen: set[str]
) -> None:
    for agent, user in (("a", "u"), ("a", None), (None, "u"), ("b", "u"), ("a", "v")):
        content = f"{agent or '-'} {user or '-'}"
        await remember(api, content, agent_id=agent, user_id=user, deduplicate=False)
    response = await api.post("/v1/memories/search", json={"query": "who?", **asked})
    assert {item["memory"]["content"] for item in response.json()["items"]} == seen


async def test_a_search_needs_an_owner(api: httpx.AsyncClient) -> None:
    problem(await api.post("/v1/memories/search", json={"query": "x"}), 422, "invalid")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("query", ""),
        ("query", " "),
        ("top_k", 0),
        ("top_k", 101),
        ("top_k", 1.5),
        ("mode", "magic"),
        ("min_importance", 1.1),
        ("min_similarity", 2),
        ("min_score", -0.1),
        ("min_score", 1.1),
        ("memory_types", []),
        ("memory_types", ["secret"]),
        ("tags", []),
        ("since", "2026-01-01T00:00:00"),
        ("now", "yesterday"),
        ("status", "any"),
        ("limit", 5),
    ],
)
async def test_bad_fields_are_named(api: httpx.AsyncClient, field: str, value: Any) -> None:
    response = await api.post("/v1/memories/search", json={**OWNER, "query": "x", field: value})
    body = problem(response, 422, "invalid")
    assert body["errors"][0]["pointer"].startswith(f"/{field}")


# --- Distinct contents ------------------------------------------------------------------------------------------------


async def test_identical_texts_appear_once_and_k_counts_distinct_ones(api: httpx.AsyncClient) -> None:
    for _ in range(6):
        await remember(api, "tea", deduplicate=False)
    await remember(api, "TEA ", user_id=None)
    await batch(api, {"content": "green tea"}, {"content": "black tea"}, {"content": "iced tea"})
    for mode in ("hybrid", "vector", "text"):
        contents = await found(api, "tea", mode=mode, top_k=3)
        assert len(contents) == len({content.strip().lower() for content in contents}) == 3


# --- Access -----------------------------------------------------------------------------------------------------------


async def test_an_access_is_seen_within_a_second_and_fading_starts_anew(
    api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    made = await remember(api, "tea", importance=0.8)
    path = f"/v1/memories/{made['memory_id']}"
    clock.move(days=90)
    await recall(api, "tea")
    await recall(api, "tea")

    async def accessed() -> Json | None:
        body: Json = (await api.get(path)).json()
        return body if body["access_count"] == 2 else None

    body = await eventually(accessed, 1.0)
    assert body["last_accessed"].startswith("2026-08-30T12:00:00")
    value = 0.8 * 0.95**2
    assert body["importance"] == pytest.approx(value, abs=1e-6)
    assert body["base_importance"] == pytest.approx(value, abs=1e-6)
    assert (body["version"], body["updated_at"]) == (1, made["updated_at"])
    clock.move(days=30)
    assert (await api.get(path)).json()["importance"] == pytest.approx(value, abs=1e-6)
    clock.move(days=30)
    assert (await api.get(path)).json()["importance"] == pytest.approx(value * 0.95, abs=1e-6)


async def test_only_what_is_returned_counts_as_accessed_and_only_if_wished(start: Starter, settings: Settings) -> None:
    async with start(settings) as service:
        await batch(service.client, {"content": "tea"}, {"content": "rain"})
        await recall(service.client, "tea", top_k=1)
        await recall(service.client, "tea rain", record_access=False)
    async with start(settings) as service:  # stopping writes what waits
        items = (await service.client.get("/v1/memories")).json()["items"]
        assert {item["content"]: item["access_count"] for item in items} == {"tea": 1, "rain": 0}


async def test_reading_by_id_and_listing_are_no_access(start: Starter, settings: Settings) -> None:
    async with start(settings) as service:
        made = await remember(service.client, "tea")
        await service.client.get(f"/v1/memories/{made['memory_id']}")
        await service.client.get("/v1/memories")
    async with start(settings) as service:
        got = (await service.client.get(f"/v1/memories/{made['memory_id']}")).json()
        assert (got["access_count"], got["last_accessed"]) == (0, None)


async def test_agents_that_forget_differently_are_searched_together_again_and_again(api: httpx.AsyncClient) -> None:
    for agent, factor in (("fast", 0.5), ("slow", 0.99)):
        made = await api.post(
            "/v1/agents", json={"agent_id": agent, "name": agent, "settings": {"decay": {"factor": factor}}}
        )
        assert made.status_code == 201, made.text
        for number in range(2):
            await remember(api, f"{agent} likes tea number {number}", agent_id=agent, user_id="u")
    for _ in range(3):
        asked = {"query": "who likes tea", "user_id": "u", "now": "2030-01-01T00:00:00Z"}
        items = (await api.post("/v1/memories/search", json=asked)).json()["items"]
        strength = {item["memory"]["content"]: item["memory"]["importance"] for item in items}
        assert len(strength) == 4
        assert strength["slow likes tea number 0"] > strength["fast likes tea number 0"]
