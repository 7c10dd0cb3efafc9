"""A budget is a limit: what asks for nothing gets a few entries, a question its answer, and `fill` the whole."""

import httpx
import pytest

from app.context.layout import ANSWERS
from tests.support.context import ask, dropped, is_unsure, items, texts
from tests.support.memories import OWNER, Json, problem, remember
from tests.support.sessions import append, said

pytestmark = pytest.mark.anyio

ANSWER = "My sister Ines keeps bees behind the old brewery in Ghent"
TALK = (
    "The boiler man comes on Tuesday between eight and ten",
    "I started reading a long novel about whalers",
    "We planted tomatoes and basil on the balcony",
    "My bike has a flat tyre again, the second this month",
    "The office moved to the fourth floor last week",
    "I signed up for a pottery course at the museum",
    "Our train to Lisbon leaves from platform nine",
    "The landlord raised the rent by forty euros",
    "I cannot stand coriander in any soup",
    "Our neighbour practises the trombone at night",
    "The dentist found nothing wrong this time",
    "I lent my drill to Karim from the second floor",
    "We watched a documentary about glaciers in Patagonia",
    "The car needs new brakes before the winter",
    "My daughter learns to juggle with three balls",
    "I wrote the minutes of the tenants' meeting",
)
SMALL = ("thanks!", "ok", "ok, danke", "merci beaucoup", "gracias, buenas noches", "good night")


async def told(api: httpx.AsyncClient) -> None:
    """Two weeks, in sessions of four."""
    for at in range(0, len(TALK), 4):
        await append(api, said(*TALK[at : at + 4]), session=f"day-{at}")
    await append(api, said(ANSWER), session="last")


async def test_what_asks_for_nothing_gets_a_few_entries_and_no_doubt(api: httpx.AsyncClient) -> None:
    await told(api)
    for query in SMALL:
        body = await ask(api, query, token_budget=2000)
        assert 0 < body["tokens"] <= 200, query
        assert not is_unsure(body)


async def test_nothing_is_in_doubt_where_nothing_follows(api: httpx.AsyncClient) -> None:
    body = await ask(api, "Where does Ines keep her bees?")
    assert (body["text"], body["tokens"]) == ("", 0)
    await remember(api, "Always answer in Dutch", memory_type="instruction")
    assert not is_unsure(await ask(api, "Where does Ines keep her bees?")), "a rule answers nothing"


async def test_rules_stay_when_nothing_is_asked(api: httpx.AsyncClient) -> None:
    await told(api)
    await remember(api, "Always answer in Dutch", memory_type="instruction")
    body = await ask(api, "thanks!", token_budget=2000)
    assert texts(body, "instructions") == ["Always answer in Dutch"]


async def test_a_question_and_an_order_get_what_they_need(api: httpx.AsyncClient) -> None:
    await told(api)
    for query in ("Where does Ines keep her bees?", "write to my sister Ines about her bees", "Ines"):
        body = await ask(api, query, token_budget=2000)
        assert f"user: {ANSWER}" in texts(body, "memories"), query


async def test_fill_goes_on_and_has_all_where_there_is_room(api: httpx.AsyncClient) -> None:
    await told(api)
    for query in ("thanks!", "Where does Ines keep her bees?", "What did the pottery course cost?"):
        enough = await ask(api, query, token_budget=2000)
        filled = await ask(api, query, token_budget=2000, fill=True)
        assert _ids(enough) <= _ids(filled)
        assert "enough" not in set(dropped(filled).values())
    assert len(items(await ask(api, "thanks!", token_budget=2000, fill=True), "memories")) == len(TALK) + 1


async def test_what_a_small_store_has_is_all_shown_whatever_was_asked(api: httpx.AsyncClient) -> None:
    for text in TALK[:10]:
        await remember(api, text)
    for query in ("thanks!", "Surprise me", "Who am I?", "Where does Ines keep her bees?"):
        assert len(items(await ask(api, query, token_budget=600), "memories")) == 10
        less = await ask(api, query, token_budget=150)
        assert set(dropped(less).values()) == {"budget"}, "as much as the budget holds"
    assert len(items(await ask(api, "Surprise me", token_budget=600, min_score=0.9), "memories")) == 0


async def test_fill_is_true_or_false(api: httpx.AsyncClient) -> None:
    refused = await api.post("/v1/context", json={**OWNER, "query": "x", "fill": "yes"})
    assert "fill" in problem(refused, 422).get("detail", "") + refused.text


def _ids(body: Json) -> set[str]:
    return {one["id"] for section in body["sections"] for one in section["items"]}


async def test_what_is_from_the_time_that_is_asked_for_is_not_in_doubt(api: httpx.AsyncClient) -> None:
    for day, place in (("2026-05-03", "at home"), ("2026-05-09", "in town"), ("2026-05-31", "by the sea")):
        for at, words in enumerate(("they said", "I heard")):
            lines = [f"{line}, {words} {place}" for line in TALK]
            await append(api, said(*lines, timestamp=f"{day}T1{at}:00:00Z"), f"{day}-{at}")
    for query in ("What happened yesterday?", "What happened on May 31?"):
        body = await ask(api, query, token_budget=2000)
        shown = [text for text in texts(body, "memories") if text.endswith("by the sea")]
        assert (len(shown), is_unsure(body)) == (2 * len(TALK), False), query
        assert max(item["score"] for item in items(body, "memories")) < ANSWERS
    for query in ("What happened on May 20?", "What happened on April 2?"):
        assert is_unsure(await ask(api, query, token_budget=2000)), query
