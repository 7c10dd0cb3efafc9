"""The probability that a search says: its bounds, its order, and what it depends on."""

from dataclasses import replace
from math import exp, log
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.retrieval.calibration import describe, probabilities
from app.retrieval.model_weights import DEFAULT, OF_COLLECTION, Calibration, CalibrationFactors, OfCollection
from app.retrieval.query import SettledQuery
from app.retrieval.ranking import bm25, query_features
from app.storage.search import Columns, Floats
from app.storage.text import IS_QUESTION
from tests.support.columns import (
    NOBODY,
    NOW,
    columns_of,
    rank,
    rearranged,
    scopes,
    unmatched_elsewhere,
    with_one_more,
)

FOREIGN = replace(NOBODY, foreign=1.0)
QUERIES = st.sampled_from((NOBODY, FOREIGN, replace(NOBODY, foreign=0.3)))
NUMBERS, SLOPES = st.floats(-4, 4, width=32), st.floats(0.1, 3)
TERMS = st.builds(
    CalibrationFactors, base=NUMBERS, share=SLOPES, tail=SLOPES, nearest=NUMBERS, coverage=NUMBERS, foreign=NUMBERS
)
CALIBRATIONS = st.one_of(st.just(DEFAULT.calibration), st.builds(Calibration, TERMS, TERMS))


@st.composite
def ranked_scopes(draw: st.DrawFn) -> tuple[Columns, Floats]:
    """Columns and log-odds for each document, far apart and equal ones among them."""
    columns = draw(scopes())
    values = st.sampled_from((-200.0, -3.0, 0.0, 0.5, 0.5001, 4.0, 90.0))
    n = len(columns.rows)
    return columns, np.array(draw(st.lists(values, min_size=n, max_size=n)), np.float32)


def scored(columns: Columns, odds: Floats, query: SettledQuery, calibration: Calibration) -> Floats:
    known = query_features(columns, query, bm25(columns))
    return probabilities(columns, query, odds, known, calibration)


def logit(probability: float) -> float:
    return log(probability) - log(1 - probability)


@given(ranked_scopes(), QUERIES, CALIBRATIONS)
def test_every_score_lies_between_0_and_1(
    scope: tuple[Columns, Floats], query: SettledQuery, calibration: Calibration
) -> None:
    columns, odds = scope
    score = scored(columns, odds, query, calibration)
    assert score.shape == odds.shape
    assert ((score > 0) & (score < 1))[columns.matched].all()


@given(ranked_scopes(), QUERIES, CALIBRATIONS)
def test_the_score_never_falls_where_the_odds_rise(
    scope: tuple[Columns, Floats], query: SettledQuery, calibration: Calibration
) -> None:
    columns, odds = scope
    score = scored(columns, odds, query, calibration)[columns.matched]
    order = np.argsort(odds[columns.matched], kind="stable")
    assert (np.diff(score[order]) >= 0).all()
    for value in set(odds.tolist()):
        assert len(set(score[odds[columns.matched] == value].tolist())) <= 1, "equal odds have equal scores"


@given(ranked_scopes(), QUERIES, CALIBRATIONS, st.randoms(use_true_random=False))
def test_the_order_of_documents_does_not_matter(
    scope: tuple[Columns, Floats], query: SettledQuery, calibration: Calibration, random: Random
) -> None:
    columns, odds = scope
    order = list(range(len(odds)))
    random.shuffle(order)
    moved = scored(rearranged(columns, np.array(order, np.int64)), odds[order], query, calibration)
    score = scored(columns, odds, query, calibration)
    assert moved.tolist() == pytest.approx(score[order].tolist(), rel=1e-4)  # sums of floats round by order


@given(ranked_scopes(), QUERIES, CALIBRATIONS)
def test_a_mixed_scope_lies_between_the_numbers_of_turns_and_those_of_plain_memories(
    scope: tuple[Columns, Floats], query: SettledQuery, calibration: Calibration
) -> None:
    columns, odds = scope
    mixed = scored(columns, odds, query, calibration)[columns.matched]
    turn = scored(columns, odds, query, Calibration(calibration.turn, calibration.turn))[columns.matched]
    plain = scored(columns, odds, query, Calibration(calibration.plain, calibration.plain))[columns.matched]
    assert (mixed >= np.minimum(turn, plain) * (1 - 1e-4)).all()
    assert (mixed <= np.maximum(turn, plain) * (1 + 1e-4)).all()


@given(ranked_scopes(), QUERIES, CALIBRATIONS)
def test_a_document_that_was_filtered_out_changes_nothing(
    scope: tuple[Columns, Floats], query: SettledQuery, calibration: Calibration
) -> None:
    columns, odds = scope
    more = with_one_more(columns, unmatched_elsewhere())
    others = scored(more, np.append(odds, np.float32(99)), query, calibration)
    score = scored(columns, odds, query, calibration)[columns.matched]
    assert others[:-1][columns.matched].tolist() == pytest.approx(score.tolist(), rel=1e-4)


def test_each_kind_has_its_own_numbers_by_its_part_of_the_odds() -> None:
    """Two documents of equal odds: a turn and a plain memory."""
    both = columns_of(2, np.array([0, -1]))
    odds, calibration = (
        np.zeros(2, np.float32),
        Calibration(turn=CalibrationFactors(base=-1.0), plain=CalibrationFactors(base=3.0)),
    )
    alone = np.zeros(1, np.float32)
    assert logit(scored(columns_of(1, np.array([0])), alone, NOBODY, calibration)[0]) == pytest.approx(-1.0, abs=1e-5)
    assert logit(scored(columns_of(1), alone, NOBODY, calibration)[0]) == pytest.approx(3.0, abs=1e-5)
    score = scored(both, odds, NOBODY, calibration)
    assert [logit(value) for value in score] == pytest.approx([1.0 - log(2)] * 2, abs=1e-5)
    mostly_turn = scored(both, np.array([log(3), 0], np.float32), NOBODY, calibration)
    assert logit(mostly_turn[0]) == pytest.approx(0.0 + log(3 / 4), abs=1e-5)


def test_the_formula_is_the_documented_one() -> None:
    """docs/contributing/ranking.md: base, the share of the odds with two slopes, the best cosine, the best coverage."""
    columns = replace(columns_of(3), cosine=np.array([0.4, 0.1, 0.0], np.float32), df=np.ones(2, np.float32))
    columns.term_counts[0, 1] = 1  # one of two terms, equally rare
    terms = CalibrationFactors(base=-2.0, share=1.5, tail=0.5, nearest=3.0, coverage=2.0)
    odds = np.array([2.0, 1.0, -1.0], np.float32)
    of_query = -2.0 + 3.0 * 0.4 + 2.0 * 0.5
    first, second, last = (log(exp(each) / (exp(2.0) + exp(1.0) + exp(-1.0))) for each in odds)
    assert second > -2 > last
    expected = [of_query + 1.5 * first, of_query + 1.5 * second, of_query + 1.5 * -2 + 0.5 * (last + 2)]
    score = scored(columns, odds, NOBODY, Calibration(terms, terms))
    assert [logit(each) for each in score] == pytest.approx(expected, abs=1e-5)


def test_a_question_asked_ten_times_takes_no_more_from_the_answer_than_one_asked_once() -> None:
    def answer_and(questions: int, flags: int) -> float:
        columns = columns_of(1 + questions, np.arange(1 + questions))
        columns.flags[1:] = flags
        odds = np.array([1.0, *[0.5] * questions], np.float32)
        return float(scored(columns, odds, NOBODY, DEFAULT.calibration)[0])

    assert answer_and(10, IS_QUESTION) == pytest.approx(answer_and(1, IS_QUESTION), rel=1e-5)
    assert answer_and(10, 0) < answer_and(1, 0) == pytest.approx(answer_and(1, IS_QUESTION), rel=1e-5)


def test_what_is_there_sixteen_times_is_as_probable_as_what_is_there_once() -> None:
    """And it takes no more from another memory."""

    def scores(times: int) -> list[float]:
        columns = columns_of(1 + times)
        contents = replace(columns, content=np.array([1, *[2] * times]))
        odds = np.array([0.5, *[1.0] * times], np.float32)
        return [float(score) for score in scored(contents, odds, NOBODY, DEFAULT.calibration)[:2]]

    assert scores(4) == pytest.approx(scores(1), rel=1e-5)
    assert scores(16) == pytest.approx(scores(1), rel=1e-5)


def test_what_is_a_question_is_told_anew_when_the_flags_change() -> None:
    """What is kept between searches goes by the arrays that it was made of."""
    columns = columns_of(11, np.arange(11))
    odds = np.array([1.0, *[0.5] * 10], np.float32)
    before = scored(columns, odds, NOBODY, DEFAULT.calibration)[0]
    asked_again = replace(columns, flags=np.array([0, *[IS_QUESTION] * 10]))
    assert asked_again.memo is columns.memo
    assert scored(asked_again, odds, NOBODY, DEFAULT.calibration)[0] > before


def test_where_the_model_does_not_know_the_script_the_cosine_counts_less() -> None:
    columns = replace(columns_of(1), cosine=np.array([0.8], np.float32), df=np.ones(2, np.float32))
    columns.term_counts[:, 0] = 1
    known = query_features(columns, NOBODY, bm25(columns))
    assert describe(columns, NOBODY, known, ...) == pytest.approx((0.8, 1.0, 0.0, 0.0))
    assert describe(columns, FOREIGN, known, ...) == pytest.approx((0.0, 1.0, 1.0, 1.0))
    assert describe(columns, replace(NOBODY, foreign=0.5), known, ...) == pytest.approx((0.4, 1.0, 0.5, 0.5))


def test_nothing_matched_has_no_score_to_speak_of() -> None:
    columns = replace(columns_of(2), matched=np.zeros(2, np.bool_))
    assert scored(columns, np.zeros(2, np.float32), NOBODY, DEFAULT.calibration).max() < 1e-20
    assert len(scored(columns_of(0), np.zeros(0, np.float32), NOBODY, DEFAULT.calibration)) == 0


def test_a_near_memory_is_a_likelier_answer_than_a_far_one_with_nothing_else_there() -> None:
    """The ranking alone cannot tell: in both scopes one memory has all the odds."""
    near, far = (replace(columns_of(1), cosine=np.array([value], np.float32)) for value in (0.7, 0.1))
    scores = [rank(columns, NOBODY, "hybrid", NOW).score[0] for columns in (near, far)]
    assert scores[0] > 0.5 > 0.3 > scores[1]


@given(ranked_scopes(), st.sampled_from(list(OF_COLLECTION.values())))
def test_a_kind_moves_the_log_odds_and_keeps_their_order(ranked: tuple[Columns, Floats], kind: OfCollection) -> None:
    columns, odds = ranked
    features = query_features(columns, NOBODY, bm25(columns))
    as_memories = probabilities(columns, NOBODY, odds, features, DEFAULT.calibration)
    moved = probabilities(columns, NOBODY, odds, features, replace(DEFAULT.calibration, of_collection=kind))
    for before, after in zip(as_memories.tolist(), moved.tolist(), strict=True):
        if 1e-6 < before < 1 - 1e-6:
            assert after == pytest.approx(1 / (1 + exp(-kind.base - kind.slope * log(before / (1 - before)))), rel=1e-2)
