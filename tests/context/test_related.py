"""What changed is often told without the words that ask for it: a prompt has it beside the statement that was found."""

from typing import Any

import httpx
import pytest

from app.context.passages import FULLY_READ_CHARACTERS
from app.context.source import MIN_SCORE
from app.context.sources.searched import LEAST_RELATED, PARTNER_WORTH, related
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


def test_each_stands_beside_one_statement_and_questions_get_none() -> None:
    asked = hit("Will Dodong turn the boxes?", 0.6, "first")
    shown = [asked, hit(BOXES, 0.5, "first"), hit("Dodong turns the boxes", 0.4, "second")]
    assert told_beside([hit(LEFT)], *shown) == [(1, LEFT)]
    plain = [hit(BOXES, 0.5, None), hit("Mina pays the rate", 0.4, None)]
    assert told_beside([hit(LEFT, session=None), hit(RATE, session=None)], *plain) == [(1, RATE), (0, LEFT)]


async def test_a_prompt_has_it_though_its_own_score_is_below_the_minimum(api: httpx.AsyncClient) -> None:
    for name, line in (("first", FIRST), ("second", ""), ("later", LATER)):
        goats = [f"The goats of field {at} dry on the {name} roof from day {at} on" for at in range(25)]
        await append(api, said(*goats, *([line] if line else [])), name)
    hits = (await api.post("/v1/memories/search", json={**OWNER, "query": QUERY, "top_k": 100})).json()["items"]
    scores = {hit["memory"]["content"]: hit["score"] for hit in hits}
    assert LEAST_RELATED < scores[LATER] < MIN_SCORE
    body = await ask(api, QUERY, token_budget=2000)
    shown = {
        entry.text.removeprefix("user: "): item["score"]
        for entry, item in zip(entries(body, "memories"), items(body, "memories"), strict=True)
    }
    assert shown[LATER] == pytest.approx(shown[FIRST] * PARTNER_WORTH)
    assert LATER not in (await ask(api, QUERY, token_budget=2000, min_score=MIN_SCORE))["text"], "the caller's own"
