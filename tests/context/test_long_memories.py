"""Long memories in a context: what is read of them is bounded by the budget, and others have their turn meanwhile."""

import asyncio

import pytest

from app.context.passages import CUT, FULLY_READ_CHARACTERS, LONGEST_PASSAGE, best_passage
from app.context.sources.searched import _shown_texts
from app.core import prompt_text
from app.core.work import LONG_TEXT as PART
from app.retrieval.retriever import Hit
from app.storage.search import Memo
from app.storage.text import term_ids, terms

pytestmark = pytest.mark.anyio

WEIGHTS = dict.fromkeys(term_ids(terms("zeppelin")).tolist(), 1.0)
FILLING = "The weather was as it often is. " * 900


def hit(number: int, content: str, partner: str | None = None) -> Hit:
    kind = {"memory_type": "fact"}
    beside = None if partner is None else {"memory_id": f"partner-{number}", "content": partner, **kind}
    return Hit({"memory_id": f"m-{number}", "content": content, **kind}, Memo(), 0.5, beside)


async def test_as_many_long_texts_are_read_to_their_end_as_have_room_in_the_budget() -> None:
    hits = [hit(number, f"{FILLING}A zeppelin came to town {number}.") for number in range(6)]
    shown = await _shown_texts(hits, WEIGHTS, 2 * LONGEST_PASSAGE)
    assert ["zeppelin" in text for text in shown.values()] == [True] * 3 + [False] * 3
    assert all(text.endswith(CUT) and prompt_text.count(text) <= LONGEST_PASSAGE for text in [*shown.values()][3:])
    assert all("zeppelin" in text for text in (await _shown_texts(hits, WEIGHTS, 4_000)).values())


async def test_partners_count_and_short_texts_do_not() -> None:
    long = f"{FILLING}A zeppelin came."
    hits = [hit(1, long, long), hit(2, "A zeppelin, short.", long), hit(3, "Another zeppelin.")]
    shown = await _shown_texts(hits, WEIGHTS, LONGEST_PASSAGE)
    assert {name for name, text in shown.items() if "zeppelin" in text} == {"m-1", "partner-1", "m-2", "m-3"}


async def test_others_have_a_turn_between_long_texts() -> None:
    turns = 0

    async def neighbour() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(neighbour())
    hits = [hit(number, FILLING) for number in range(8)]
    assert len(FILLING) > PART
    await _shown_texts(hits, WEIGHTS, 4_000)
    beside.cancel()
    assert turns > 8


@pytest.mark.parametrize("place", [0, 10, 100, 450, 899])
def test_a_long_text_shows_the_sentence_that_answers_wherever_it_is(place: int) -> None:
    often = "The weather was as it often is. "
    text = often * place + "A zeppelin came. " + often * (900 - place)
    assert len(text) > FULLY_READ_CHARACTERS
    assert "A zeppelin came." in best_passage(text, WEIGHTS)
