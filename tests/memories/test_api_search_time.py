"""Times in the query of POST /v1/memories/search: what is understood, from when, and in which zone."""

from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.support.memories import OWNER, Json, batch, problem, recall, remember

pytestmark = pytest.mark.anyio

NOW = "2026-06-17T23:30:00Z"


async def understood(api: httpx.AsyncClient, query: str, **options: Any) -> Json:
    body: Json = await recall(api, query, **{"explain": True, "now": NOW, **options})
    found: Json = body["understood"]
    return found


async def test_explain_says_which_time_was_understood(api: httpx.AsyncClient) -> None:
    assert await understood(api, "What did we plan last month?") == {
        "time": {
            "from": "2026-05-01T00:00:00.000Z",
            "until": "2026-06-01T00:00:00.000Z",
            "words": "last month",
            "empty": True,
        }
    }
    assert await understood(api, "What does she like?") == {"time": None}


async def test_without_explain_only_an_empty_time_is_told(api: httpx.AsyncClient) -> None:
    query = "What did we plan last month?"
    assert (await recall(api, query, now=NOW))["understood"]["time"]["empty"]
    await remember(api, "The plan is a trip to Rome", event_at="2026-05-12T00:00:00Z")
    assert "understood" not in await recall(api, query, now=NOW)


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
    answer = await api.post("/v1/memories/search", json={**OWNER, "query": "yesterday", "timezone": zone})
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


async def test_of_two_readings_the_one_with_something_in_it_counts(api: httpx.AsyncClient) -> None:
    today = datetime.fromisoformat((await understood(api, "today", now=None))["time"]["from"])
    coming = today + timedelta(days=3)
    gone = coming - timedelta(days=7)
    day = f"{coming:%A}"
    await batch(api, {"content": "concert of the choir", "event_at": coming.isoformat()})

    async def read(query: str) -> str:
        interval: Json = (await understood(api, query, now=None))["time"]
        return str(interval["from"])[:10]

    assert await read(f"What is on {day}?") == f"{coming:%Y-%m-%d}", "nothing is from the day before now"
    assert await read(f"What did I do on {day}?") == f"{gone:%Y-%m-%d}", "the words say that it is past"
    await batch(api, {"content": "board meeting", "event_at": gone.isoformat()})
    assert await read(f"What is on {day}?") == f"{gone:%Y-%m-%d}"
    assert await read(f"Am I free on {day}?") == f"{coming:%Y-%m-%d}", "the words say that it is to come"


async def test_a_query_of_a_time_alone_is_answered_by_time(api: httpx.AsyncClient) -> None:
    told = {
        "2026-06-17T09:00:00Z": "What happened at the office: the printer broke",
        "2026-06-16T10:00:00Z": "one cavity was filled",
        "2026-06-16T19:00:00Z": "a documentary about octopuses",
        "2026-06-11T19:00:00Z": "yesterday's news were boring",
    }
    await batch(api, *({"content": content, "event_at": at} for at, content in told.items()))

    async def first(query: str, k: int) -> set[str]:
        return {item["memory"]["event_at"][:10] for item in (await recall(api, query, now=NOW))["items"][:k]}

    assert await first("What happened yesterday?", 2) == {"2026-06-16"}
    assert await first("Was habe ich gestern gemacht?", 2) == {"2026-06-16"}
    assert await first("what happened recently", 1) == {"2026-06-17"}
    assert await first("What is my oldest memory?", 1) == {"2026-06-11"}


async def test_no_word_moves_the_log_odds_of_a_memory_by_more_than_two(api: httpx.AsyncClient) -> None:
    await batch(
        api,
        {"content": "we use Postgres for the ledger", "event_at": "2026-01-25T10:00:00Z"},
        {"content": "we use Cockroach for the ledger", "event_at": "2026-06-10T10:00:00Z"},
    )
    asked = "What do we use for the ledger"
    for words in ("now", "currently", "recently", "last"):
        items = (await recall(api, f"{asked} {words}?", now=NOW, explain=True))["items"]
        moved = [item["contributions"].get("latest", 0) for item in items]
        assert max(moved) == 2
        assert min(moved) >= -2
    for words in ("", "before it changed", "still"):
        items = (await recall(api, f"{asked} {words}?", now=NOW, explain=True))["items"]
        assert all("latest" not in item["contributions"] for item in items)
