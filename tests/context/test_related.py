"""What changed is often told without the words that ask for it: a prompt has it beside the statement that was found."""

from typing import Any

import httpx
import pytest

from app.context.passages import FULLY_READ_CHARACTERS
from app.context.source import MIN_SCORE
from app.context.sources.searched import LEAST_RELATED, PARTNER_WORTH, SCRAP, related
from app.retrieval.retriever import Hit
from app.storage.search import Memo
from tests.support.context import ask, entries, items
from tests.support.memories import OWNER
from tests.support.sessions import append, said

QUERY = "When does the fermentation of the beans begin?"
FIRST = "The fermentation of the beans begins on Friday, in the crates of uncle Marilog"
LATER = "The crates of uncle Marilog burned, so it is a week later"
pytestmark = pytest.mark.anyio

BOXES, LEFT = "Dodong will turn the boxes from Monday on", "Dodong left for Saudi, so his boxes are mine"
GYM = "The gym membership at PulseFit is 35 a month, from my own account"
CANCELLED = "I cancelled the gym, PulseFit was never worth it."
RATE = "Marilog pays the same rate as before"


def hit(content: str, score: float = 0.003, session: str | None = "later", role: str = "user") -> Hit[Any]:
    return Hit({"content": content, "source": {"session_id": session, "role": role}}, Memo(), score)


def told_beside(below: list[Hit[Any]], *shown: Hit[Any]) -> list[tuple[int, str]]:
    found = related(shown or (hit(BOXES, 0.5, "first"),), below)
    return [(place, other.doc["content"]) for place, other in found]


def test_the_statement_with_most_words_in_common_stands_beside_it() -> None:
    near = "Dodong bought new boxes, he turns them from Monday on"
    assert told_beside([hit(RATE), hit(LEFT), hit(near)]) == [(0, near)]
    assert told_beside([hit(RATE), hit(LEFT)]) == [(0, LEFT)]


@pytest.mark.parametrize(
    "other",
    [
        hit(LEFT, session="first"),
        hit(LEFT, role="assistant"),
        hit(f"{LEFT}, or not?"),
        hit(LEFT, LEAST_RELATED * 0.9),
        hit("Dodong sleeps"),
        hit(f"{LEFT} {'and so on ' * FULLY_READ_CHARACTERS}"),
    ],
    ids=["the same session", "an assistant's", "a question", "far from the query", "one word in common", "a long text"],
)
def test_no_other_stands_beside_it(other: Hit[Any]) -> None:
    assert told_beside([other]) == []
    assert told_beside([other, hit(LEFT)]) == [(0, LEFT)]


def test_none_stands_beside_a_statement_that_is_below_the_minimum_itself() -> None:
    below = [hit(BOXES, 0.006, "first"), hit(LEFT, 0.006)]
    assert related(below, below) == []


def test_each_stands_beside_one_statement_and_questions_get_none() -> None:
    asked = hit("Will Dodong turn the boxes?", 0.6, "first")
    shown = [asked, hit(BOXES, 0.5, "first"), hit("Dodong turns the boxes", 0.4, "second")]
    assert told_beside([hit(LEFT)], *shown) == [(1, LEFT)]
    plain = [hit(BOXES, 0.5, None), hit("Mina pays the rate", 0.4, None)]
    assert told_beside([hit(LEFT, session=None), hit(RATE, session=None)], *plain) == [(1, RATE), (0, LEFT)]


@pytest.mark.parametrize(
    ("query", "first", "later", "least", "below"),
    [
        (QUERY, FIRST, LATER, LEAST_RELATED, MIN_SCORE),
        ("What do I pay for each month?", GYM, CANCELLED, MIN_SCORE, MIN_SCORE / SCRAP),
    ],
    ids=["by its score", "by its score and its kind"],
)
async def test_a_prompt_has_it_though_it_is_below_the_minimum(
    api: httpx.AsyncClient, query: str, first: str, later: str, least: float, below: float
) -> None:
    for name, lines in (("first", [first]), ("second", []), ("third", [])):
        goats = [f"The goats of field {at} dry on the {name} roof from day {at} on" for at in range(25)]
        await append(api, said(*goats, *lines), name)
    await append(api, said(later), "later")
    hits = (await api.post("/v1/memories/search", json={**OWNER, "query": query, "top_k": 100})).json()["items"]
    scores = {hit["memory"]["content"]: hit["score"] for hit in hits}
    assert least < scores[later] < below
    body = await ask(api, query, token_budget=2000)
    shown = {
        entry.text.removeprefix("user: "): item["score"]
        for entry, item in zip(entries(body, "memories"), items(body, "memories"), strict=True)
    }
    assert shown[later] == pytest.approx(shown[first] * PARTNER_WORTH)
    assert later not in (await ask(api, query, token_budget=2000, min_score=MIN_SCORE))["text"], "the caller's own"
