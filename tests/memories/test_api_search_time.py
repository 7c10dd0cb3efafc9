"""Times in the query of POST /v1/memories/search: what is understood, from when, and in which zone."""

from typing import Any

import httpx
import pytest

from tests.support.memories import PAIR, Json, batch, problem, recall

pytestmark = pytest.mark.anyio

NOW = "2026-06-17T23:30:00Z"


async def understood(api: httpx.AsyncClient, query: str, **options: Any) -> Json:
    body: Json = await recall(api, query, **{"explain": True, "now": NOW, **options})
    found: Json = body["understood"]
    return found


async def test_explain_says_which_time_was_understood(api: httpx.AsyncClient) -> None:
    assert await understood(api, "What did we plan last month?") == {
        "time": {"from": "2026-05-01T00:00:00.000Z", "until": "2026-06-01T00:00:00.000Z", "words": "last month"}
    }
    assert await understood(api, "What does she like?") == {"time": None}


async def test_without_explain_the_answer_is_as_it_was(api: httpx.AsyncClient) -> None:
    assert "understood" not in await recall(api, "What did we plan last month?", now=NOW)


async def test_days_begin_in_the_zone_of_the_request(api: httpx.AsyncClient) -> None:
    asked = [await understood(api, "yesterday", timezone=zone) for zone in ("UTC", "Asia/Tokyo", "America/New_York")]
    assert [each["time"]["from"] for each in asked] == [
        "2026-06-16T00:00:00.000Z", "2026-06-16T15:00:00.000Z", "2026-06-16T04:00:00.000Z",
    ]  # fmt: skip


async def test_the_clock_is_now_where_the_request_names_none(api: httpx.AsyncClient) -> None:
    one = await understood(api, "tomorrow", now=None)
    other = await understood(api, "yesterday", now=None)
    assert one["time"]["from"] > other["time"]["until"]


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd", "Europe", "", "x" * 65, "UTC+25"])
async def test_an_unknown_zone_is_refused(api: httpx.AsyncClient, zone: str) -> None:
    answer = await api.post("/v1/memories/search", json={**PAIR, "query": "yesterday", "timezone": zone})
    problem(answer, 422, "invalid", "/timezone")


async def test_each_memory_tells_how_well_its_time_fits(api: httpx.AsyncClient) -> None:
    await batch(
        api,
        {"content": "budget meeting: travel is cut", "event_at": "2026-06-16T10:00:00Z"},
        {"content": "budget meeting: marketing is doubled", "event_at": "2026-03-16T10:00:00Z"},
    )
    asked: Json = {"explain": True, "now": NOW}
    items = (await recall(api, "what was the budget meeting yesterday", **asked))["items"]
    fits = {item["memory"]["content"]: item["scores"]["when"] for item in items}
    assert fits == {"budget meeting: travel is cut": 1.0, "budget meeting: marketing is doubled": 0.0}
    timeless = (await recall(api, "what was the budget meeting", **asked))["items"]
    assert all("when" not in item["scores"] for item in timeless)
