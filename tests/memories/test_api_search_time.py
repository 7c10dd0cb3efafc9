"""Times in the query of POST /v1/memories/search: what is understood, from when, and in which zone."""

from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.support.memories import OWNER, Json, batch, found, problem, recall, remember
from tests.support.sessions import append, said

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
    await append(api, said("Good morning!", timestamp=gone.isoformat()))
    assert await read(f"What is on {day}?") == f"{coming:%Y-%m-%d}", "what was said then does not happen then"
    await batch(api, {"content": "board meeting", "event_at": gone.isoformat()})
    assert await read(f"What is on {day}?") == f"{coming:%Y-%m-%d}", "a plan for it is there"
    assert await read(f"What did I do on {day}?") == f"{gone:%Y-%m-%d}", "the words say that it is past"
    asked = await recall(api, f"What is on {day}?", explain=True)
    fits = {item["memory"]["content"]: item["scores"]["when"] for item in asked["items"]}
    assert fits == {"concert of the choir": 1.0, "board meeting": 0.5, "Good morning!": 0.5}
    assert await read(f"Am I free on {day}?") == f"{coming:%Y-%m-%d}", "the words say that it is to come"


@pytest.mark.parametrize("asked", ["What is on tomorrow?", "Was steht morgen an?", "¿Qué hay el viernes?"])
async def test_a_day_that_a_text_names_is_its_time(api: httpx.AsyncClient, asked: str) -> None:
    """Asked on Wednesday the 17th; Friday is the 19th. Told in May, for this day, a later one, and in another year."""
    day = "19" if "viernes" in asked else "18"
    interview = f"The interview is on {day} June at two"
    for told, text in (
        ("2026-05-01", interview),
        ("2026-05-02", "The choir sings on 20 June"),
        ("2026-05-03", f"The piano is tuned on {day} July"),
        ("2023-05-04", f"The lease ends on {day} June"),
        ("2026-06-16", "Ben is well again"),
    ):
        await append(api, said(text, timestamp=f"{told}T10:00:00Z"), "may")
    found = await recall(api, asked, now="2026-06-17T12:00:00Z", explain=True)
    fits = {item["memory"]["content"]: item["scores"]["when"] for item in found["items"]}
    assert found["items"][0]["memory"]["content"] == interview
    assert [text for text in fits if fits[text] == 1] == [interview]
    assert found["understood"]["time"]["empty"] is False


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
    for words in ("now", "currently", "recently", "last", "before it changed"):
        items = (await recall(api, f"{asked} {words}?", now=NOW, explain=True))["items"]
        moved = [item["contributions"].get("latest", 0) for item in items]
        assert max(moved) == 2
        assert min(moved) >= -2
    for words in ("", "still"):
        items = (await recall(api, f"{asked} {words}?", now=NOW, explain=True))["items"]
        assert all("latest" not in item["contributions"] for item in items)


DENTIST, SHOP = "The dentist is at half past nine", "The shop has new notes on the tills and the stock"


@pytest.mark.parametrize("asked", ["2026-12-03T12:00:00Z", "2026-12-03T12:00:00+01:00"])
async def test_a_plan_is_first_on_its_day_and_not_the_newest(api: httpx.AsyncClient, asked: str) -> None:
    notes = [
        {"content": f"{SHOP}, part {number}", "event_at": f"2026-11-{number:02}T09:00:00Z"} for number in range(1, 29)
    ]
    told: Json = {"source": {"said_at": "2026-11-20T09:00:00Z"}}
    await batch(api, *notes, {"content": DENTIST, "event_at": "2026-12-04T09:30:00Z", **told})
    tomorrow = (await recall(api, "What do I have tomorrow?", now=asked, explain=True))["items"]
    assert tomorrow[0]["memory"]["content"] == DENTIST
    assert tomorrow[0]["score"] > 0.3
    assert tomorrow[0]["scores"]["recency"] < 0.9, "it was told two weeks ago"
    newest = (await recall(api, "What happened recently?", now=asked))["items"]
    assert newest[0]["memory"]["event_at"].startswith("2026-11-28")
    after = (await recall(api, "What did I have on 4 December?", now="2026-12-06T12:00:00Z", explain=True))["items"]
    assert (after[0]["memory"]["content"], after[0]["scores"]["when"]) == (DENTIST, 1.0)
    assert after[0]["scores"]["recency"] > 0.9


async def test_a_plan_for_a_month_fits_it_and_less_each_of_its_days(api: httpx.AsyncClient) -> None:
    told: Json = {"source": {"said_at": "2026-06-01T00:00:00Z"}}
    plans = {
        "Renew the passport": ("2026-10-20", "month"),
        "Visit Oslo": ("2026-10-12", "day"),
        "Buy a van": ("2027-03-01", "year"),
    }
    for content, (day, precision) in plans.items():
        await remember(api, content, event_at=f"{day}T00:00:00+02:00", event_at_precision=precision, **told)

    async def fits(query: str, **options: Any) -> Json:
        items = (await recall(api, query, now=NOW, explain=True, **options))["items"]
        return {item["memory"]["content"]: round(item["scores"]["when"], 2) for item in items}

    october = await fits("What do I have to do in October?")
    assert (october["Renew the passport"], october["Visit Oslo"]) == (1.0, 1.0)
    twelfth = await fits("What is planned on 12 October?", timezone="America/Los_Angeles")
    assert (twelfth["Visit Oslo"], twelfth["Renew the passport"]) == (1.0, 0.18), "the date counts in each zone"
    assert (await fits("What is planned on 13 October?", timezone="Asia/Tokyo"))["Visit Oslo"] < 0.3
    assert (await fits("What do I do in 2027?"))["Buy a van"] == 1.0
    for since, until, expected in (
        ("2026-10-31T00:00:00Z", "2026-11-05T00:00:00Z", {"Renew the passport"}),
        ("2026-10-12T10:00:00Z", "2026-10-12T11:00:00Z", {"Renew the passport", "Visit Oslo"}),
        ("2027-12-31T00:00:00Z", "2028-01-01T00:00:00Z", {"Buy a van"}),
        ("2028-01-01T00:00:00Z", None, set()),
    ):
        bounds: Json = {"since": since} if until is None else {"since": since, "until": until}
        assert {item["memory"]["content"] for item in (await recall(api, "plans", **bounds))["items"]} == expected


async def test_the_precision_belongs_to_the_time(api: httpx.AsyncClient) -> None:
    body = await remember(api, "Visit Oslo", event_at="2026-10-12T23:30:00-05:00", event_at_precision="day")
    assert (body["event_at"], body["event_at_precision"]) == ("2026-10-12T00:00:00.000Z", "day")
    path = f"/v1/memories/{body['memory_id']}"
    for change, expected in (
        ({"event_at_precision": "month"}, ("2026-10-01T00:00:00.000Z", "month")),
        ({"event_at": "2026-11-03T08:00:00Z"}, ("2026-11-03T08:00:00.000Z", "instant")),
        ({"event_at": None}, (None, None)),
    ):
        body = (await api.patch(path, json=change)).json()
        assert (body["event_at"], body["event_at_precision"]) == expected
    assert (await remember(api, "x", event_at="2026-10-12T00:00:00Z"))["event_at_precision"] == "instant"
    alone = await api.post("/v1/memories", json={**OWNER, "content": "x", "event_at_precision": "day"})
    problem(alone, 422, "invalid", "/event_at_precision")


@pytest.mark.parametrize(
    ("now", "before", "holds", "over"),
    [
        ("Where do I live now?", "Where did I live before?", "I live in Bonn", "I used to live in Trier"),
        ("Wo wohne ich jetzt?", "Wo wohnte ich früher?", "Ich wohne in Bonn", "Ich habe früher in Trier gewohnt"),
        ("¿Dónde vivo ahora?", "¿Dónde vivía antes?", "Vivo en Murcia", "Antes vivía en Málaga"),
        ("我现在住在哪里？", "我以前住在哪里？", "我住在杭州", "我以前住在苏州"),
    ],
)
async def test_what_says_that_it_is_over_held_before_whenever_it_was_told(
    api: httpx.AsyncClient, now: str, before: str, holds: str, over: str
) -> None:
    await remember(api, holds, source={"said_at": "2026-05-01T00:00:00Z"})
    await remember(api, over, source={"said_at": "2026-05-02T00:00:00Z"})
    assert (await found(api, now))[0] == holds
    assert (await found(api, before))[0] == over
