"""Filters of a search are applied before the top-k cut: k come back whenever k match, however near the others are."""

from typing import Any

import httpx
import pytest

from tests.conftest import TurnedClock
from tests.support.memories import OWNER, Json, batch, eventually, found, problem, recall, remember

pytestmark = pytest.mark.anyio

QUERY = "green tea in the morning"
NEAR = [{"content": f"green tea in the morning, cup {i}"} for i in range(30)]
FAR = ["the roof was repaired", "invoice paid in march", "a train to Lyon"]

CASES: list[tuple[Json, Json, Json]] = [
    # what those that match have, what the nearer ones have, the filter
    ({"memory_type": "issue"}, {}, {"memory_types": ["issue", "solution"]}),
    ({"tags": ["x", "y"]}, {"tags": ["z"]}, {"tags": ["x"]}),
    ({"tags": ["y"]}, {"tags": ["z"]}, {"tags": ["x", "y"]}),
    ({"metadata": {"a.b": 1, "c": [1]}}, {"metadata": {"a.b": 2, "c": [1]}}, {"metadata": {"a.b": 1.0, "c": [1]}}),
    ({"importance": 0.9}, {"importance": 0.2}, {"min_importance": 0.5}),
    ({"pinned": True, "importance": 0.5}, {"importance": 0.49}, {"min_importance": 0.5}),
    ({"trust": 0.5}, {"trust": 0.49}, {"min_trust": 0.5}),
    ({"event_at": "2020-01-01T00:00:00Z"}, {"event_at": "2019-12-31T23:59:59Z"}, {"since": "2020-01-01T00:00:00Z"}),
    ({"event_at": "2019-12-31T23:59:59Z"}, {}, {"until": "2020-01-01T00:00:00Z"}),
    ({}, {"event_at": "2020-01-01T00:00:00Z"}, {"since": "2026-06-01T00:00:00Z"}),  # else by created_at
    (
        {"valid_from": "2020-01-01T00:00:00Z", "valid_until": "2021-01-01T00:00:00Z"},
        {"valid_from": "2021-01-01T00:00:00Z"},
        {"as_of": "2020-12-31T23:59:59.999Z"},
    ),
    ({}, {"valid_until": "2026-01-01T00:00:00Z"}, {}),  # true now is the default
    ({}, {"valid_from": "2027-01-01T00:00:00Z"}, {}),
    ({}, {"expires_at": "2026-05-01T00:00:00Z"}, {}),
    ({}, {"user_id": None}, {"include_shared": False}),
]


@pytest.mark.parametrize(("matching", "nearer", "asked"), CASES, ids=lambda case: ",".join(case) or "-")
async def test_k_come_back_when_k_match(api: httpx.AsyncClient, matching: Json, nearer: Json, asked: Json) -> None:
    await batch(api, *({"content": content, **matching} for content in FAR))
    await batch(api, *({**item, **nearer} for item in NEAR))
    for mode in ("hybrid", "vector"):
        assert sorted(await found(api, QUERY, top_k=3, mode=mode, **asked)) == sorted(FAR)
    text = await found(api, "roof invoice train green tea", top_k=10, mode="text", **asked)
    assert sorted(text) == sorted(FAR)


async def test_by_session(api: httpx.AsyncClient) -> None:
    await batch(api, *NEAR)
    for session in ("s1", "s2"):
        said = [{"role": "user", "content": f"{session} says {content}"} for content in FAR]
        await api.post(f"/v1/sessions/{session}/messages", json={"agent_id": "a", "user_id": "u", "messages": said})
    contents = await found(api, QUERY, top_k=3, session_id="s1")
    assert sorted(contents) == sorted(f"s1 says {content}" for content in FAR)
    assert await found(api, QUERY, session_id="none") == []


@pytest.mark.parametrize("status", ["superseded", "archived"])
async def test_by_status(api: httpx.AsyncClient, status: str) -> None:
    made = await batch(api, *({"content": content} for content in FAR))
    ids = [item["memory_id"] for item in made["items"]]
    await batch(api, *NEAR)
    if status == "superseded":
        await remember(api, "replaces them", supersedes=ids)
    else:
        for memory_id in ids:
            await api.patch(f"/v1/memories/{memory_id}", json={"status": "archived"})
    assert sorted(await found(api, QUERY, top_k=3, status=status)) == sorted(FAR)
    assert set(await found(api, QUERY, top_k=100)).isdisjoint(FAR)


async def test_filters_are_taken_together_and_never_relaxed(api: httpx.AsyncClient) -> None:
    await remember(api, "tea", tags=["x"], memory_type="issue", trust=0.4)
    assert await found(api, "tea", tags=["x"], memory_types=["issue"], min_trust=0.4) == ["tea"]
    for other in ({"tags": ["y"]}, {"memory_types": ["fact"]}, {"min_trust": 0.41}, {"metadata": {"a": None}}):
        assert await found(api, "tea", **{"tags": ["x"], "memory_types": ["issue"], **other}) == []


async def test_least_importance_is_that_of_the_moment_asked_about(api: httpx.AsyncClient) -> None:
    await remember(api, "fades", importance=0.5)
    await remember(api, "stays", importance=0.5, pinned=True)
    ask: Json = {"min_importance": 0.49, "record_access": False}
    assert sorted(await found(api, "x", **ask)) == ["fades", "stays"]
    assert await found(api, "x", now="2026-09-01T00:00:00Z", **ask) == ["stays"]
    items = (await recall(api, "fades", now="2026-08-30T12:00:01Z", record_access=False))["items"]
    shown = {item["memory"]["content"]: item["memory"]["importance"] for item in items}
    assert shown == {"fades": pytest.approx(0.5 * 0.95**2, abs=1e-4), "stays": 0.5}


async def test_least_cosine(api: httpx.AsyncClient) -> None:
    await batch(api, {"content": "green tea in the morning"}, {"content": "green tea at dawn"}, {"content": FAR[0]})
    for mode in ("hybrid", "vector", "text"):
        assert await found(api, QUERY, mode=mode, min_similarity=0.99) == ["green tea in the morning"]
        assert FAR[0] not in await found(api, QUERY, mode=mode, min_similarity=0.4)


async def test_least_score(api: httpx.AsyncClient) -> None:
    await batch(api, {"content": "green tea in the morning"}, {"content": "green tea at dawn"}, {"content": FAR[0]})
    items = (await recall(api, QUERY, record_access=False))["items"]
    scores = [item["score"] for item in items]
    assert scores[0] > scores[1] > scores[2]
    contents = [item["memory"]["content"] for item in items]
    assert await found(api, QUERY, min_score=0, record_access=False) == contents
    for place, least in enumerate(scores, 1):
        kept = (await recall(api, QUERY, min_score=least, top_k=3, record_access=False))["items"]
        assert kept == items[:place], "the score itself is enough"
    assert await found(api, QUERY, min_score=1) == []


async def test_what_a_least_score_leaves_out_is_not_recorded_as_accessed(api: httpx.AsyncClient) -> None:
    made = (await batch(api, {"content": "green tea in the morning"}, {"content": FAR[0]}))["items"]
    best, other = (await recall(api, QUERY, record_access=False))["items"]
    (kept,) = (await recall(api, QUERY, min_score=(best["score"] + other["score"]) / 2))["items"]

    async def accesses(memory: Json) -> int:
        return int((await api.get(f"/v1/memories/{memory['memory_id']}")).json()["access_count"])

    assert kept["memory"]["memory_id"] == made[0]["memory_id"]
    assert await eventually(lambda: accesses(made[0])) == 1
    assert await accesses(made[1]) == 0


@pytest.mark.parametrize("mode", ["vector", "text"])
async def test_only_the_score_of_hybrid_search_is_a_probability_to_filter_by(api: httpx.AsyncClient, mode: str) -> None:
    answer = await api.post("/v1/memories/search", json={**OWNER, "query": QUERY, "mode": mode, "min_score": 0.1})
    assert "needs mode hybrid" in problem(answer, 422, "invalid", "/min_score")["detail"]
    assert (await recall(api, QUERY, mode=mode, min_score=None))["items"] == []


async def test_since_and_until_are_closed_and_open(api: httpx.AsyncClient) -> None:
    for day in (1, 2, 3):
        await remember(api, f"day {day}", event_at=f"2026-01-0{day}T00:00:00Z")
    span = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-03T01:00:00+01:00"}
    assert sorted(await found(api, "day", **span)) == ["day 1", "day 2"]


async def test_created_at_counts_where_nothing_says_when_it_happened(
    api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    await remember(api, "old")
    clock.move(days=10)
    await remember(api, "new")
    assert await found(api, "x", since="2026-06-05T00:00:00Z") == ["new"]
    assert await found(api, "x", until="2026-06-05T00:00:00Z") == ["old"]


HOSTILE: dict[str, Any] = {
    "$where": "1 == 1",
    "a.b.c": {"$gt": ""},
    "": None,
    "__proto__": [],
    "source.session_id": "s",
    "ключ 鍵 🔑": "да",
    "quote\"'`;--": True,
    "nested": {"a": {"b": [1, {"$ne": None}]}},
    "tenant_id": "other",
    "big": 9007199254740993,
    "float": 1e-12,
}


async def test_keys_of_metadata_are_data(api: httpx.AsyncClient) -> None:
    made = await remember(api, "tea", metadata=HOSTILE)
    await remember(api, "decoy", metadata={"a": {"b": {"c": {"$gt": ""}}}, "$where": "1 == 2"})
    assert (await api.get(f"/v1/memories/{made['memory_id']}")).json()["metadata"] == HOSTILE
    equalities = {key: value for key, value in HOSTILE.items() if key != "a.b.c"}  # a filter of operators is refused
    for key, value in equalities.items():
        assert await found(api, "tea", metadata={key: value}) == ["tea"], key
        assert await found(api, "tea", metadata={key: "something else"}) == [], key
    assert await found(api, "tea", metadata=equalities) == ["tea"]
    assert (await api.get(f"/v1/memories/{made['memory_id']}")).json()["agent_id"] == "a"


async def test_256_keys_fit_and_257_do_not(api: httpx.AsyncClient) -> None:
    metadata = {f"k{i}": i for i in range(256)}
    assert (await remember(api, "tea", metadata=metadata))["metadata"] == metadata
    assert await found(api, "tea", metadata=metadata) == ["tea"]
    await remember(api, "x", 422, metadata={**metadata, "more": 1})


async def test_numbers_are_equal_as_json_has_them_and_flags_are_none(api: httpx.AsyncClient) -> None:
    await remember(api, "tea", metadata={"n": 1, "flag": True})
    assert await found(api, "tea", metadata={"n": 1.0}) == ["tea"]
    assert await found(api, "tea", metadata={"n": True}) == []
    assert await found(api, "tea", metadata={"n": "1"}) == []
    assert await found(api, "tea", metadata={"flag": 1}) == []
