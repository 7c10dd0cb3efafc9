"""The score: what is said often is as sure as what is said once, and what is asked for and not there is unsure."""

from typing import Any

import httpx
import pytest

from tests.support.memories import batch, recall

pytestmark = pytest.mark.anyio

NOW = "2026-11-25T17:00:00Z"
OTHERS = ({"content": "Bought a lamp"}, {"content": "Paid the rent"}, {"content": "Watched a film about bees"})
DINNER = {"content": "Dinner at the Thai place with Sofia"}


async def best(api: httpx.AsyncClient, query: str, **more: Any) -> float:
    (first, *_) = (await recall(api, query, now=NOW, **more))["items"]
    return float(first["score"])


async def test_what_happened_often_is_nearly_as_sure_as_what_happened_once(api: httpx.AsyncClient) -> None:
    runs = [{"content": "Went running by the river", "event_at": f"2026-09-{day:02}T07:00:00Z"} for day in range(1, 17)]
    await batch(api, *runs[:3], *OTHERS)
    few = await best(api, "Where do I go running?")
    await batch(api, *runs[3:])
    assert await best(api, "Where do I go running?") > 0.8 * few


async def test_a_past_time_that_nothing_is_from_makes_all_unsure_and_is_told(api: httpx.AsyncClient) -> None:
    await batch(api, DINNER | {"event_at": "2026-10-12T18:00:00Z"}, OTHERS[0] | {"event_at": "2026-09-30T08:00:00Z"})
    query = "Did I have dinner with Sofia last weekend?"
    answer = await recall(api, query, now=NOW)
    assert answer["items"][0]["score"] < 0.2
    assert answer["understood"]["time"] == {
        "from": "2026-11-21T00:00:00.000Z",
        "until": "2026-11-23T00:00:00.000Z",
        "words": "last weekend",
        "empty": True,
    }
    assert await best(api, "Where did I have dinner with Sofia?") > 0.5
    await batch(api, DINNER | {"event_at": "2026-11-21T19:00:00Z"})
    answer = await recall(api, query, now=NOW)
    assert answer["items"][0]["score"] > 0.5
    assert answer["items"][0]["memory"]["event_at"].startswith("2026-11-21")
    assert "understood" not in answer


async def test_what_was_said_later_about_a_time_and_what_is_planned_stay_as_sure(api: httpx.AsyncClient) -> None:
    await batch(
        api, {"content": "Sofia was in Lisbon in March"}, {"content": "Sofia flies to Rome in December"}, *OTHERS
    )
    assert await best(api, "Where was Sofia in March?") > 0.5
    assert await best(api, "Where does Sofia fly in December?") > 0.5
