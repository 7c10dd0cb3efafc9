"""The order of the first hits: newer before older, a statement before a question and before what an assistant said."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.retrieval.first_hits import FIRST, NO_ORDER, PROPERTIES, gains, properties
from app.retrieval.model_weights import DEFAULT_WEIGHTS, FirstHits
from app.retrieval.ranking import rank, with_first_ordered
from app.storage.search import Columns, Floats
from app.storage.text import IS_QUESTION, SAID_BY_ASSISTANT, SAID_BY_USER, name_id
from tests.support.columns import NOBODY, NOW, columns_of, scopes

NEWER = FirstHits(newness=1.0, statement=2.0)


def conversation(n: int, by_assistant: int | None) -> Columns:
    """n turns of one session, oldest first, the one at `by_assistant` an assistant's."""
    said = np.arange(n) == (-1 if by_assistant is None else by_assistant)
    return replace(
        columns_of(n),
        session=np.zeros(n, np.int64),
        speaker=np.where(said, name_id("assistant"), name_id("user")),
        flags=np.where(said, SAID_BY_ASSISTANT, SAID_BY_USER),
        time=np.arange(n) * 1_000,
    )


def test_of_equal_turns_the_newest_statement_is_first_and_the_assistants_last() -> None:
    columns, odds, parts = conversation(4, by_assistant=3), np.zeros(4, np.float32), dict[str, Floats]()
    columns.flags[2] |= IS_QUESTION
    order = with_first_ordered(columns, odds, np.arange(4), NEWER, parts)
    assert order.tolist() == [1, 0, 3, 2]
    assert parts["first"].tolist() == odds.tolist()
    assert odds[0] == 0


@pytest.mark.parametrize("weights", [NO_ORDER, NEWER])
def test_without_an_assistant_the_order_stays(weights: FirstHits) -> None:
    columns, odds, parts = conversation(4, by_assistant=None), np.zeros(4, np.float32), dict[str, Floats]()
    assert with_first_ordered(columns, odds, np.arange(4), weights, parts).tolist() == [0, 1, 2, 3]
    assert not parts
    assert not odds.any()


def test_plain_memories_keep_their_log_odds() -> None:
    columns, odds = conversation(4, by_assistant=3), np.zeros(4, np.float32)
    columns.session[1] = -1
    parts = dict[str, Floats]()
    with_first_ordered(columns, odds, np.arange(4), NEWER, parts)
    assert parts["first"][1] == odds[1] == 0
    assert odds[2] > odds[0] > odds[3]


@given(
    st.integers(2, FIRST),
    st.lists(st.floats(-10, 10), min_size=len(PROPERTIES), max_size=len(PROPERTIES)),
)
def test_the_first_one_gains_nothing(n: int, weights: list[float]) -> None:
    columns = conversation(n, by_assistant=0)
    found = properties(columns, -np.arange(n).astype(np.float32), np.arange(n))
    assert found is not None
    assert found.shape == (len(PROPERTIES), n)
    assert gains(found, FirstHits(*weights))[0] == 0


@given(scopes())
def test_a_ranking_with_it_is_sorted_by_its_score(columns: Columns) -> None:
    ranked = rank(columns, NOBODY, "hybrid", NOW, replace(DEFAULT_WEIGHTS, first=NEWER))
    assert (np.diff(ranked.score[ranked.order]) <= 0).all()
    assert sorted(ranked.order.tolist()) == np.flatnonzero(columns.matched).tolist()
