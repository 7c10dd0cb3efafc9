import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.embedding.onnx import OnnxModel
from app.retrieval.decay import DAY_MS
from app.retrieval.model_weights import DEFAULT, MULTILINGUAL, Blend, Foreign, Weights, weights_for
from app.retrieval.query import SettledQuery, analyse, settle
from app.retrieval.ranking import (
    FEATURES,
    LEAST_SPREAD,
    MOST_REPEATED,
    ORDERED_AMONG,
    ORDERED_WITHIN,
    QUERY_FEATURES,
    SearchMode,
    bm25,
    document_features,
    importance_at,
    log_odds,
    of_passages,
    query_features,
    top,
)
from app.retrieval.time_grammar import TIME_ORDERS, TimeOrder
from app.storage.search import Columns, Floats
from app.storage.text import (
    HAS_EVENT_TIME,
    HAS_NUMBER_OR_TIME_WORD,
    IS_QUESTION,
    PASSAGE,
    SAID_BY_ASSISTANT,
    SAID_BY_USER,
    SUMMARY,
    content_hash,
    index_text,
    name_id,
)
from tests.support.columns import (
    NOBODY,
    NOW,
    SPOKEN,
    columns_of,
    rank,
    rearranged,
    scope_of,
    scopes,
    unmatched_elsewhere,
    with_one_more,
)

MODES: tuple[SearchMode, ...] = ("hybrid", "vector", "text")


@given(scopes(), st.sampled_from(MODES), st.sampled_from((NOBODY, SPOKEN)))
def test_every_ranking_is_sound(columns: Columns, mode: SearchMode, query: SettledQuery) -> None:
    ranked = rank(columns, query, mode, NOW)
    found, scores = ranked.order, ranked.score
    assert len(set(found.tolist())) == len(found)
    assert columns.matched[found].all()
    assert len(scores) == len(columns.rows)
    assert all(np.isfinite(values).all() for values in (scores, *ranked.parts.values()))
    assert (np.diff(scores[found]) <= 0).all()
    if mode == "hybrid":
        assert len(found) == columns.matched.sum()
        assert ((scores > 0) & (scores < 1)).all()
    if mode == "vector":
        assert set(found.tolist()) == set(np.flatnonzero(columns.matched & columns.has_vector).tolist())
    if mode == "text":
        assert set(found.tolist()) == set(np.flatnonzero(columns.matched & columns.term_counts.any(axis=0)).tolist())


@given(scopes(), st.sampled_from(MODES), st.randoms(use_true_random=False))
def test_the_order_of_documents_does_not_matter(columns: Columns, mode: SearchMode, random: Random) -> None:
    order = list(range(len(columns.rows)))
    random.shuffle(order)
    moved = rearranged(columns, np.array(order, np.int64))
    ranked, other = (rank(each, SPOKEN, mode, NOW) for each in (columns, moved))
    assert columns.rows[ranked.order].tolist() == moved.rows[other.order].tolist()
    scores = other.score[other.order].tolist()
    assert ranked.score[ranked.order].tolist() == pytest.approx(scores, rel=1e-5)  # sums of floats round by order


@given(scopes(), st.sampled_from(MODES))
def test_an_unmatched_document_elsewhere_changes_nothing(columns: Columns, mode: SearchMode) -> None:
    n = len(columns.rows)
    both = with_one_more(columns, unmatched_elsewhere())
    ranked, other = rank(columns, SPOKEN, mode, NOW), rank(both, SPOKEN, mode, NOW)
    assert ranked.order.tolist() == other.order.tolist()
    assert ranked.score.tolist() == pytest.approx(other.score[:n].tolist(), rel=1e-5)  # sums of floats round by length


@given(scopes(), st.integers(1, 6))
def test_top_gives_k_distinct_contents_whenever_there_are_k(columns: Columns, k: int) -> None:
    ranked = rank(columns, NOBODY, "hybrid", NOW)
    contents = columns.content[top(ranked.order, columns, k)].tolist()
    in_order = list(dict.fromkeys(columns.content[ranked.order].tolist()))
    assert contents == in_order[:k]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("terms", [0, 2])
def test_an_empty_scope_has_no_results(mode: SearchMode, terms: int) -> None:
    columns = columns_of(0, terms=terms)
    ranked = rank(columns, NOBODY, mode, NOW)
    assert top(ranked.order, columns, 10) == []


def test_a_single_document_is_found() -> None:
    assert rank(columns_of(1), NOBODY, "hybrid", NOW).order.tolist() == [0]


def test_without_vectors_the_text_decides() -> None:
    columns = replace(columns_of(3), has_vector=np.zeros(3, np.bool_), df=np.ones(2, np.float32))
    columns.term_counts[0, 1] = columns.term_counts[1, 2] = columns.term_counts[0, 2] = 1
    assert rank(columns, NOBODY, "hybrid", NOW).order.tolist() == [2, 1, 0]


def test_without_terms_the_vector_decides() -> None:
    columns = replace(columns_of(3, terms=0), cosine=np.array([0.1, 0.3, 0.2], np.float32))
    assert rank(columns, NOBODY, "hybrid", NOW).order.tolist() == [1, 2, 0]


def test_of_equals_the_newer_comes_first_then_the_lower_handle() -> None:
    columns = replace(columns_of(3, terms=0), time=np.array([NOW - 1, NOW, NOW - 1]), rows=np.array([5, 9, 4]))
    assert rank(columns, NOBODY, "vector", NOW).order.tolist() == [1, 2, 0]


def test_a_turn_is_helped_by_its_neighbours_its_session_and_its_speaker() -> None:
    columns = columns_of(6, np.array([0, 0, 0, 1, 1, 1]))
    columns.term_counts[0, 0] = 1
    columns.df[0] = 1
    assert rank(columns, NOBODY, "hybrid", NOW).order.tolist()[:3] == [0, 1, 2]
    spoken = replace(columns, term_counts=np.zeros_like(columns.term_counts), speaker=np.array([8, 8, 8, 8, 7, 8]))
    assert rank(spoken, SPOKEN, "hybrid", NOW).order[0] == 4


def test_the_better_neighbour_counts_and_none_beyond_the_session() -> None:
    columns = columns_of(6, np.array([0, 0, 0, 1, 1, 1]))
    columns = replace(columns, cosine=np.array([0.0, 0.2, 1.0, 0.0, 0.0, 0.4], np.float32))
    base = np.array([0.0, 0.2, 1.0, 0.0, 0.0, 0.4]) / 1.6 / 2
    base += np.array([0.2, 1.0, 0.2, 0.0, 0.4, 0.0]) * 0.3 / 1.6 / 2
    neighbour = rank(columns, NOBODY, "hybrid", NOW).parts["neighbour"]
    assert neighbour == pytest.approx([base[1], base[2], base[1], base[4], base[5], base[4]], abs=1e-6)


def test_a_best_text_match_that_holds_little_of_the_query_is_no_full_match() -> None:
    """Both hold one term, once: of a query of two terms, and of a query of eight that are found nowhere else."""
    weak, strong = (columns_of(20, terms=terms) for terms in (8, 2))
    for columns in (weak, strong):
        columns.term_counts[0, 0] = columns.df[0] = 1
    text = [rank(columns, NOBODY, "hybrid", NOW).parts["text_scaled"] for columns in (weak, strong)]
    assert 0 < text[0][0] < text[1][0] < 1
    assert text[0][1:].max() == 0


def test_priors_break_a_draw_and_never_outweigh_an_answer() -> None:
    columns = replace(columns_of(3, terms=0), base_importance=np.array([0.1, 1.0, 0.1], np.float32))
    assert rank(columns, NOBODY, "hybrid", NOW).order[0] == 1
    closer = replace(columns, cosine=np.array([0.9, 0.1, 0.2], np.float32))
    assert rank(closer, NOBODY, "hybrid", NOW).order[0] == 0


def test_importance_is_decayed() -> None:
    columns = replace(columns_of(2), anchor=np.array([NOW, NOW - 60 * DAY_MS]))
    assert importance_at(columns, NOW) == pytest.approx([0.5, 0.5 * 0.95])


def test_explain_names_each_part() -> None:
    assert set(rank(columns_of(2), NOBODY, "hybrid", NOW).parts) == {"vector", "text", *FEATURES}


# --- Features ---------------------------------------------------------------------------------------------------------


def feature(name: str, columns: Columns, query: SettledQuery = NOBODY) -> list[float]:
    values: list[float] = rank(columns, query, "hybrid", NOW).parts[name].tolist()
    return values


def test_coverage_is_the_share_of_the_querys_words_each_by_its_rareness() -> None:
    columns = replace(columns_of(4), df=np.array([1, 3], np.float32))
    columns.term_counts[0, 0] = columns.term_counts[1, 0] = 1
    columns.term_counts[1, 1] = 7
    columns.term_counts[1, 2] = 1
    rare, common = (np.log1p((4 - df + 0.5) / (df + 0.5)) for df in (1, 3))
    part = common / (rare + common)
    assert feature("coverage", columns) == pytest.approx([1, part, part, 0])
    assert feature("coverage", columns_of(2, terms=0)) == [0, 0]


def test_repeats_is_the_part_of_a_text_that_the_query_said_already() -> None:
    columns = replace(columns_of(3), length=np.array([4, 10, 0], np.float32), df=np.ones(2, np.float32))
    columns.term_counts[0, 0], columns.term_counts[1, 0], columns.term_counts[0, 1] = 1, 2, 1
    most = MOST_REPEATED / 2  # each word has half of the weight
    assert feature("repeats", columns) == pytest.approx([most + most, 1 / 10 / 4, 0]), "four terms are asked for"


def odds_of(columns: Columns, query: SettledQuery, weights: Weights) -> Floats:
    known = query_features(columns, query, bm25(columns))
    odds, _ = log_odds(columns, query, known, document_features(columns, NOW), weights, ())
    return odds


NEAR_MISSES = {
    "en": ("Which table cost 14250 euros in Leeds?", "The elm table cost {} euros in {}"),
    "de": ("Welcher Tisch kostete 14250 Euro in Leeds?", "Der Tisch aus Ulme kostete {} Euro in {}"),
    "es": ("¿Qué mesa costó 14250 euros en Leeds?", "La mesa de olmo costó {} euros en {}"),
    "fr": ("Quelle table a coûté 14250 euros à Leeds ?", "La table en orme a coûté {} euros à {}"),
    "it": ("Quale tavolo costava 14250 euro a Leeds?", "Il tavolo di olmo costava {} euro a {}"),
    "pt": ("Que mesa custou 14250 euros em Leeds?", "A mesa de olmo custou {} euros em {}"),
    "ru": ("Какой стол стоил 14250 евро в Leeds?", "Стол из вяза стоил {} евро в {}"),
    "zh": ("Leeds的哪张桌子卖14250欧元？", "{1}的榆木桌子卖{0}欧元"),
}


@pytest.mark.parametrize("language", NEAR_MISSES)
@given(data=st.data())
def test_a_memory_never_loses_by_having_a_word_of_the_query(language: str, data: st.DataObject) -> None:
    query, text = NEAR_MISSES[language]
    analysed = analyse(query, ())
    whole = data.draw(st.booleans())  # the number is another one, or the place
    near_miss = text.format(
        14250 if whole else data.draw(st.integers(10_000, 99_999).filter(lambda n: n != 14250)),
        "York" if whole else "Leeds",
    )
    others = [
        text.format(number, place)
        for number, place in data.draw(
            st.lists(st.tuples(st.integers(1, 9_999), st.sampled_from(("York", "Bath"))), max_size=6)
        )
    ]
    texts = [
        near_miss,
        text.format(14250, "Leeds"),
        *others,
        *data.draw(st.lists(st.sampled_from(("Bees", "A lamp", "Leeds is wet", query)), max_size=6)),
    ]
    columns, settled = settle(scope_of(analysed.terms, *texts), analysed, {})
    for weights in (DEFAULT, weights_for("recalld-minilm-1"), MULTILINGUAL):
        odds = odds_of(columns, settled, weights.weights)
        assert odds[1] >= odds[0] - 1e-4


def test_length_is_logarithmic_and_counts_apart_for_questions() -> None:
    columns = replace(
        columns_of(3),
        length=np.array([0, 147, 147], np.float32),
        flags=np.array([IS_QUESTION, IS_QUESTION, HAS_NUMBER_OR_TIME_WORD]),
    )
    long = float(np.log(148) / 5)
    assert feature("length", columns) == pytest.approx([0, long, long])
    assert feature("long_question", columns) == pytest.approx([0, long, 0])
    assert feature("question", columns) == [1, 1, 0]
    assert feature("number", columns) == [0, 0, 1]


def test_plain_memories_of_one_event_are_one_session_and_others_stand_alone() -> None:
    columns = replace(
        columns_of(5),
        cosine=np.array([1.0, 0.0, 0.0, 0.0, 0.6], np.float32),
        time=np.array([NOW, NOW, NOW, NOW - 1, NOW - 1]),
        flags=np.array([HAS_EVENT_TIME, HAS_EVENT_TIME, 0, HAS_EVENT_TIME, HAS_EVENT_TIME]),
    )
    near = [0.5 / 1.6, 0.6 * 0.5 / 1.6]
    assert feature("session", columns) == pytest.approx([near[0], near[0], 0, near[1], near[1]], abs=1e-6)
    untold = replace(columns, flags=np.zeros(5, np.int64))
    assert feature("session", untold) == pytest.approx([near[0], 0, 0, 0, near[1]], abs=1e-6)


def test_a_session_is_not_joined_with_plain_memories_of_the_same_time() -> None:
    columns = replace(
        columns_of(3, np.array([0, 0, -1])),
        cosine=np.array([0.0, 1.0, 0.0], np.float32),
        flags=np.full(3, HAS_EVENT_TIME),
    )
    assert feature("session", columns)[2] == 0


def test_what_lies_in_the_time_that_the_query_speaks_of_comes_first_and_nothing_is_left_out() -> None:
    days = np.array([0, 1, 2, 40])
    columns = replace(columns_of(4), cosine=np.array([0.4, 0.38, 0.39, 0.36], np.float32), time=NOW - days * DAY_MS)
    assert rank(columns, NOBODY, "hybrid", NOW).order[0] == 0
    yesterday = NOW - DAY_MS - DAY_MS // 2, NOW - DAY_MS // 2
    ranked = rank(columns, NOBODY, "hybrid", NOW, readings=[yesterday])
    assert ranked.order[0] == 1
    assert sorted(ranked.order.tolist()) == [0, 1, 2, 3]
    assert ranked.parts["when"][1] == 1
    assert 0 <= ranked.parts["when"][3] < ranked.parts["when"][2] < 1
    assert (np.diff(ranked.score[ranked.order]) <= 0).all()
    assert "when" not in rank(columns, NOBODY, "hybrid", NOW).parts


@given(scopes())
def test_a_time_that_every_memory_fits_alike_changes_nothing(columns: Columns) -> None:
    ranked = rank(columns, NOBODY, "hybrid", NOW)
    other = rank(columns, NOBODY, "hybrid", NOW, readings=[(-1, 2 * NOW)])
    assert ranked.order.tolist() == other.order.tolist()
    assert ranked.score.tolist() == pytest.approx(other.score.tolist(), rel=1e-3)


def test_a_query_for_what_holds_now_prefers_the_newest_of_what_answers_and_lowers_the_older() -> None:
    cosine = np.array([0.6, 0.598, 0.596, *[0.1] * 20], np.float32)
    age = np.array([300, 200, 100, *[1] * 20])
    columns = replace(columns_of(23), cosine=cosine, time=NOW - age * DAY_MS)
    now = replace(NOBODY, order="present")
    assert rank(columns, NOBODY, "hybrid", NOW).order[:3].tolist() == [0, 1, 2]
    ranked = rank(columns, now, "hybrid", NOW)
    assert sorted(ranked.order.tolist()) == list(range(23))
    assert ranked.order[0] == 2
    order = ranked.parts["latest"]
    assert order[2] == 1
    assert -1 <= order[0] < order[1] < 0
    assert not order[3:].any(), "only what is nearly as good as the best"
    alike = rank(replace(columns, cosine=np.linspace(0.6, 0.598, 23, dtype=np.float32)), now, "hybrid", NOW)
    assert (alike.parts["latest"] != 0).sum() <= ORDERED_AMONG, "only the best ones take part"
    assert "latest" not in rank(columns, NOBODY, "hybrid", NOW).parts


def test_a_query_for_the_newest_raises_it_and_lowers_nothing_and_one_for_the_oldest_lowers_the_newer() -> None:
    cosine = np.array([0.6, 0.5999, 0.5998, 0.1], np.float32)
    columns = replace(columns_of(4), cosine=cosine, time=NOW - np.array([300, 200, 100, 400]) * DAY_MS)
    latest, earliest = (rank(columns, replace(NOBODY, order=order), "hybrid", NOW) for order in ("latest", "earliest"))
    assert latest.parts["latest"].tolist() == [0, 0, 1, 0]
    assert earliest.parts["latest"][0] == 1
    assert earliest.parts["latest"][1:].max() <= 0
    assert (latest.order[0], earliest.order[0]) == (2, 0)


def test_the_newest_is_not_raised_if_it_has_no_word_of_the_query_and_is_not_near_to_it() -> None:
    """ "Who is our provider now?", and the last that was said is that the umbrella broke."""
    columns = replace(columns_of(2), cosine=np.array([0.6, 0.3], np.float32), time=np.array([NOW - DAY_MS, NOW]))
    for least, raised in ((0.4, 0), (0.6, 1)):
        cosine = np.array([0.6, least], np.float32)
        ranked = rank(replace(columns, cosine=cosine), replace(NOBODY, order="present"), "hybrid", NOW)
        assert ranked.parts["latest"].argmax() == raised


def test_a_summary_is_not_newer_than_what_it_repeats() -> None:
    """ "I live in Altona" of noon, and the summary that has it, with the time of the last message."""
    columns = replace(columns_of(2), time=np.array([NOW - 1_000, NOW]), flags=np.array([0, SUMMARY]))
    for order in TIME_ORDERS:
        assert rank(columns, replace(NOBODY, order=order), "hybrid", NOW).parts["latest"].tolist() == [1, 0]


def test_memories_of_one_time_are_the_newest_together() -> None:
    columns = replace(columns_of(3), time=np.array([NOW, NOW, NOW - 1]))
    assert rank(columns, replace(NOBODY, order="latest"), "hybrid", NOW).parts["latest"].tolist() == [1, 1, 0]


@given(scopes(), st.sampled_from(TIME_ORDERS))
def test_no_word_moves_the_log_odds_of_a_memory_by_more_than_two(columns: Columns, order: TimeOrder) -> None:
    """And asking for what holds now takes none of the best out of the reach of the first."""
    known = query_features(columns, NOBODY, bm25(columns))
    lasting = document_features(columns, NOW)
    for weights in (DEFAULT.weights, MULTILINGUAL.weights):
        plain, _ = log_odds(columns, NOBODY, known, lasting, weights, ())
        moved, parts = log_odds(columns, replace(NOBODY, order=order), known, lasting, weights, ())
        assert (np.abs(moved - plain) <= 2 + 1e-4).all()
        best = np.flatnonzero(parts["latest"])
        assert (moved[best] >= plain[best].max(initial=-np.inf) - ORDERED_WITHIN - 1e-3).all()


@given(scopes(), st.sampled_from(["latest", "earliest"]))
def test_a_query_without_a_subject_is_answered_by_time(columns: Columns, order: TimeOrder) -> None:
    query = replace(NOBODY, order=order, subject=False)
    ranked = rank(columns, query, "hybrid", NOW)
    assert all(not ranked.parts[name].any() for name in QUERY_FEATURES)
    stating = columns.matched & (ranked.parts.get("echo", 0) == 0) & (ranked.parts.get("filler", 0) == 0)
    stating &= columns.flags & SUMMARY == 0
    best = np.flatnonzero(ranked.parts["latest"] == 1)
    times = columns.time[stating]
    if len(times):
        assert set(columns.time[best].tolist()) == {int(times.max() if order == "latest" else times.min())}


def test_of_a_query_without_a_subject_the_asked_time_counts_before_words_and_vectors() -> None:
    columns = replace(columns_of(3), cosine=np.array([0.9, 0.1, 0.5], np.float32), time=NOW - np.arange(3) * DAY_MS)
    columns.term_counts[0, 0] = columns.term_counts[1, 0] = 1
    query, yesterday = replace(NOBODY, subject=False), (NOW - DAY_MS, NOW - DAY_MS + 1)
    assert rank(columns, query, "hybrid", NOW, readings=[yesterday]).order[0] == 1


def test_in_a_script_that_the_model_does_not_know_the_words_decide() -> None:
    columns = replace(columns_of(10), cosine=np.full(10, 0.4, np.float32), df=np.ones(2, np.float32))
    columns.cosine[0] = 0.9
    columns.term_counts[0, 1] = 1
    assert rank(columns, NOBODY, "hybrid", NOW).order[0] == 0
    assert rank(columns, replace(NOBODY, foreign=1.0), "hybrid", NOW).order[0] == 1


# --- Kinds of memory --------------------------------------------------------------------------------------------------


def ranked_pair(first: int, second: int, repeats: float = 0) -> list[int]:
    """Order of two equal turns that have these flags; `repeats`: how much of the first is the query again."""
    columns = replace(columns_of(40, np.arange(40)), flags=np.zeros(40, np.int64), speaker=np.full(40, name_id("Ada")))
    columns.cosine[:2] = 0.5
    columns.flags[:2] = first, second
    columns.length[:2] = 4
    columns.term_counts[0, :2] = columns.df[0] = 1
    columns.term_counts[0, 0] += repeats
    order: list[int] = rank(columns, NOBODY, "hybrid", NOW).order[:2].tolist()
    return order


def test_a_remembered_question_does_not_outrank_what_answers_it() -> None:
    assert ranked_pair(IS_QUESTION | SAID_BY_USER, SAID_BY_USER) == [1, 0]
    assert ranked_pair(IS_QUESTION | SAID_BY_USER, SAID_BY_USER, repeats=2) == [1, 0]


def asked_before(cosine: float, hits: int, length: int, flags: int = IS_QUESTION | SAID_BY_USER) -> Columns:
    """Turns of a user. The first one is said to be a question that holds `hits` of the query's two words; the second
    one holds one of them and is less near."""
    columns = replace(columns_of(40, np.arange(40)), df=np.array([1, 2], np.float32))
    columns.cosine[:2] = cosine, 0.4
    columns.term_counts[:hits, 0] = columns.term_counts[1, 1] = 1
    columns.length[0] = length
    columns.flags[0] = flags
    return columns


def first_of(columns: Columns) -> int:
    return int(rank(columns, NOBODY, "hybrid", NOW).order[0])


def test_a_question_in_the_querys_words_answers_nothing() -> None:
    assert first_of(asked_before(0.9, hits=2, length=2)) == 1
    assert first_of(asked_before(0.9, hits=2, length=5, flags=IS_QUESTION | HAS_EVENT_TIME)) == 1, (
        "its date adds 3 terms"
    )
    assert first_of(asked_before(0.9, hits=2, length=2, flags=SAID_BY_USER)) == 0, "not a question"
    columns = asked_before(0.9, hits=2, length=2)
    plain = replace(columns, session=np.full(40, -1), speaker=np.zeros(40, np.int64))
    assert first_of(plain) == 0, "a stored fact that ends in a question mark is no echo"


def test_a_question_that_asks_the_same_in_other_words_answers_nothing() -> None:
    assert first_of(asked_before(0.65, hits=0, length=6)) == 1
    assert first_of(asked_before(0.65, hits=1, length=40)) == 0, "a long one may tell something as well"
    assert first_of(asked_before(1.0, hits=2, length=40)) == 1, "the query repeats it"


def test_a_question_that_adds_something_of_its_own_may_answer() -> None:
    assert first_of(asked_before(0.65, hits=2, length=20)) == 0


def test_an_echo_is_explained() -> None:
    columns = asked_before(0.9, hits=2, length=2)
    assert rank(columns, NOBODY, "hybrid", NOW).parts["echo"].tolist() == [1] + 39 * [0]
    assert "echo" not in rank(asked_before(0.9, hits=2, length=30), NOBODY, "hybrid", NOW).parts


def answered_before(length: int, hits: int = 0, flags: int = 0) -> Columns:
    """An assistant's turns of 20 terms; the first one has `length` terms and was said last."""
    columns = replace(columns_of(40, np.arange(40), terms=3), speaker=np.full(40, name_id("assistant")))
    columns.flags[:] = SAID_BY_ASSISTANT
    columns.flags[0] |= flags
    columns.time[0] += 1
    columns.length[:] = 20
    columns.length[0], columns.term_counts[:hits, 0] = length, 1
    columns.df[:hits] = 1
    return columns


def test_a_reply_that_says_nothing_comes_after_one_that_may() -> None:
    assert first_of(answered_before(length=10)) == 1
    assert first_of(answered_before(length=11)) == 0
    assert first_of(answered_before(length=10, hits=2)) == 0, "it holds most of the query's words"
    assert first_of(answered_before(length=10, flags=HAS_NUMBER_OR_TIME_WORD)) == 0


def test_what_states_nothing_is_not_the_latest_state() -> None:
    latest = replace(NOBODY, order="latest")
    for columns in (asked_before(0.9, hits=2, length=2), answered_before(length=2)):
        columns.time[0] += 1000
        ranked = rank(columns, latest, "hybrid", NOW)
        assert ranked.order[0] != 0
        assert ranked.parts["latest"][0] == 0


def test_what_its_messages_hold_counts_before_their_summary() -> None:
    columns = replace(columns_of(2), flags=np.array([SUMMARY, 0]), base_importance=np.array([1, 0.1], np.float32))
    assert rank(columns, NOBODY, "hybrid", NOW).order.tolist() == [1, 0]


def test_a_passage_of_a_long_manual_is_less_likely_than_a_memory_that_is_as_near() -> None:
    near = np.r_[np.full(3, 0.5), np.full(300, 0.52)].astype(np.float32)
    columns = replace(columns_of(303), flags=np.r_[np.zeros(3, np.int64), np.full(300, PASSAGE)], cosine=near)
    assert set(rank(columns, NOBODY, "hybrid", NOW).order[:3].tolist()) == {0, 1, 2}
    near[7] = 0.95
    assert rank(columns, NOBODY, "hybrid", NOW).order[0] == 7
    near = np.r_[np.full(300, 0.5), np.full(3, 0.52)].astype(np.float32)
    note = replace(columns_of(303), flags=np.r_[np.zeros(300, np.int64), np.full(3, PASSAGE)], cosine=near)
    assert set(rank(note, NOBODY, "hybrid", NOW).order[:3].tolist()) == {300, 301, 302}
    weights = DEFAULT.weights
    assert of_passages(101, 1, weights) == 0
    assert of_passages(2_100, 2_000, weights) == pytest.approx(math.log(100 / 2_000) - 1.4)
    assert of_passages(2_001, 2_000, weights) == of_passages(2_000, 2_000, weights) == weights.least_passage


def test_an_assistant_is_one_by_its_role_and_without_a_name() -> None:
    """A bot with a name is a speaker as any other; a summary of what was said has no place in a session."""
    weights = Weights(person=Blend(), assistant=Blend(base=5), plain=Blend(base=-5), foreign=Foreign())
    columns = replace(
        columns_of(4, np.array([0, 1, 2, -1])),
        speaker=np.array([name_id("assistant"), name_id("Botty"), name_id("assistant"), name_id("assistant")]),
        flags=np.array([SAID_BY_ASSISTANT, SAID_BY_ASSISTANT, 0, SAID_BY_ASSISTANT]),
    )
    odds = np.log(rank(columns, NOBODY, "hybrid", NOW, weights).score.astype(np.float64))
    assert odds[0] > odds[1] == odds[2] > odds[3]


TURNS = (
    "Hey, how was your weekend?",
    "Great! I went hiking in the hills with 3 friends.",
    "Nice, did you take the dog?",
    "Yes, she loved it, we saw 2 deer yesterday.",
    "I should get a dog, or a cat. What do you think?",
    "A cat is easier to keep if you travel a lot.",
    "True. I fly to Lisbon for work next month.",
    "Lucky you! The food there is so good.",
)
FACTS = (
    "Works as a nurse at the city hospital",
    "Is allergic to peanuts",
    "Prefers short answers in English",
    "Their sister lives in Oslo",
)


@pytest.mark.parametrize(
    ("question", "fact"),
    [
        ("What is Ann allergic to?", 1),
        ("Where does Ann work? hospital?", 0),
        ("What answers does Ann prefer?", 2),
        ("Where does the sister of Ann live?", 3),
    ],
)
def test_plain_facts_are_found_beside_a_conversation(question: str, fact: int, model: OnnxModel) -> None:
    texts, n = [*TURNS, *FACTS], len(TURNS)
    query = analyse(question, ("Ann", "Bea"))
    vectors = model.encode([*texts, query.stripped])
    indexed = [index_text(text) for text in texts]
    hits = np.array([[np.dot(t.ids == term, t.counts) for t in indexed] for term in query.terms], np.float32)
    turn = np.arange(len(texts)) < n
    columns = replace(
        columns_of(len(texts), np.where(turn, 0, -1), terms=len(query.terms)),
        term_counts=hits,
        df=np.count_nonzero(hits, axis=1).astype(np.float32),
        cosine=(vectors[:-1] @ vectors[-1]).astype(np.float32),
        length=np.array([t.length for t in indexed], np.float32),
        flags=np.array([t.flags for t in indexed]),
        speaker=np.where(turn, np.where(np.arange(len(texts)) % 2, name_id("Ann"), name_id("Bea")), 0),
        content=np.array([content_hash(text) for text in texts]),
        base_importance=np.where(turn, 0.3, 0.5).astype(np.float32),
    )
    columns, settled = settle(columns, query, {})
    assert rank(columns, settled, "hybrid", NOW).order[0] == n + fact


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_large_scopes_are_in_order(seed: int) -> None:
    random = np.random.default_rng(seed)
    n = 500
    columns = replace(
        columns_of(n, np.arange(n) // 20),
        cosine=np.round(random.random(n), 2).astype(np.float32),
        term_counts=(random.random((2, n)) < 0.1).astype(np.float32),
        df=np.full(2, n / 10, np.float32),
    )
    ranked = rank(columns, SPOKEN, "vector", NOW)
    assert ranked.order.tolist() == sorted(range(n), key=lambda i: (-columns.cosine[i], i))


def test_cosines_within_the_least_spread_are_not_drawn_apart() -> None:
    wide, narrow = np.array([0.9, 0.4, 0.65], np.float32), np.array([0.5, 0.4, 0.45], np.float32)

    def scaled(cosine: Floats) -> list[float]:
        columns = replace(columns_of(len(cosine)), cosine=cosine)
        return [float(value) for value in rank(columns, NOBODY, "hybrid", NOW).parts["vector_scaled"]]

    assert scaled(wide) == pytest.approx([1, 0, 0.5], abs=1e-5)
    assert scaled(narrow) == pytest.approx([1, 1 - 0.1 / LEAST_SPREAD, 1 - 0.05 / LEAST_SPREAD], abs=1e-5)
    assert scaled(np.array([0.5], np.float32)) == [1]
    rank(columns_of(0), NOBODY, "hybrid", NOW)
