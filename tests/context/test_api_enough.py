"""A budget is a limit: what asks for nothing gets nothing by worth, a question its answer, and `fill` the whole."""

import httpx
import pytest

from tests.support.context import ask, dropped, items, texts
from tests.support.memories import PAIR, Json, problem, remember
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


async def test_what_asks_for_nothing_gets_nothing_by_worth(api: httpx.AsyncClient) -> None:
    await told(api)
    for query in SMALL:
        body = await ask(api, query, token_budget=2000)
        assert body["tokens"] <= 60, query
        assert "enough" in set(dropped(body).values())


async def test_rules_stay_when_nothing_is_asked(api: httpx.AsyncClient) -> None:
    await told(api)
    await remember(api, "Always answer in Dutch", memory_type="instruction")
    body = await ask(api, "thanks!", token_budget=2000)
    assert texts(body, "instructions") == ["Always answer in Dutch"]
    assert not items(body, "memories")


async def test_a_question_and_an_order_get_what_they_need(api: httpx.AsyncClient) -> None:
    await told(api)
    for query in ("Where does Ines keep her bees?", "write to my sister Ines about her bees", "Ines"):
        body = await ask(api, query, token_budget=2000)
        assert f"user: {ANSWER}" in texts(body, "memories"), query


async def test_fill_has_all_that_the_prompt_had_and_more(api: httpx.AsyncClient) -> None:
    await told(api)
    for query in ("thanks!", "Where does Ines keep her bees?", "What did the pottery course cost?"):
        for budget in (200, 600, 2000):
            enough = await ask(api, query, token_budget=budget)
            filled = await ask(api, query, token_budget=budget, fill=True)
            assert _ids(enough) <= _ids(filled)
            assert "enough" not in set(dropped(filled).values())
    assert len(items(await ask(api, "thanks!", token_budget=2000, fill=True), "memories")) == len(TALK) + 1


async def test_few_memories_are_all_shown(api: httpx.AsyncClient) -> None:
    for text in TALK[:3]:
        await remember(api, text)
    assert len(items(await ask(api, "thanks!"), "memories")) == 3


async def test_fill_is_true_or_false(api: httpx.AsyncClient) -> None:
    refused = await api.post("/v1/context", json={**PAIR, "query": "x", "fill": "yes"})
    assert "fill" in problem(refused, 422).get("detail", "") + refused.text


def _ids(body: Json) -> set[str]:
    return {one["id"] for section in body["sections"] for one in section["items"]}
