from dataclasses import fields, replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.memories.features import FEATURES
from app.memories.query import QueryText, analyse
from app.memories.ranking import Mode, importance_at, rank, top
from app.memories.strength import DAY_MS
from app.storage.search import Columns, Ints
from app.storage.text import content_hash, index_text, name_id

NOW = 1_750_000_000_000
MODES: tuple[Mode, ...] = ("hybrid", "vector", "text")
NOBODY = QueryText("", np.arange(2, dtype=np.uint32), 0)
SPOKEN = replace(NOBODY, speaker=7)


def columns_of(n: int, session: NDArray[np.int64] | None = None, terms: int = 2) -> Columns:
    """n documents with nothing to tell them apart but their handles; sessions of consecutive documents are linked."""
    session = np.full(n, -1) if session is None else session
    previous, following = np.full(n, -1), np.full(n, -1)
    joined = np.flatnonzero((session[1:] == session[:-1]) & (session[1:] >= 0))
    following[joined], previous[joined + 1] = joined + 1, joined
    return Columns(
        rows=np.arange(n),
        matched=np.ones(n, np.bool_),
        cosine=np.zeros(n, np.float32),
        has_vector=np.ones(n, np.bool_),
        hits=np.zeros((terms, n), np.float32),
        df=np.zeros(terms, np.float32),
        length=np.full(n, 10, np.float32),
        count=n,
        mean_length=10.0 if n else 0.0,
        previous=previous,
        following=following,
        session=session,
        speaker=np.where(session < 0, 0, 7),
        time=np.full(n, NOW),
        flags=np.zeros(n, np.int64),
        base_importance=np.full(n, 0.5, np.float32),
        anchor=np.full(n, NOW),
        pinned=np.zeros(n, np.bool_),
        agent=np.zeros(n, np.int64),
        content=np.arange(n),
    )


@st.composite
def scopes(draw: st.DrawFn) -> Columns:
    """Few distinct values, so that ties of every kind come up."""
    n = draw(st.integers(0, 12))

    def some(*values: float) -> list[float]:
        return draw(st.lists(st.sampled_from(values), min_size=n, max_size=n))

    session = np.sort(np.array(some(-1, 0, 1), np.int64))
    hits = np.array([some(0, 0, 1, 3), some(0, 0, 0, 1)], np.float32).reshape(2, n)
    return replace(
        columns_of(n, session),
        matched=np.array(some(0, 1, 1), np.bool_),
        cosine=np.array(some(-1, 0, 0.5, 0.7, 1), np.float32),
        has_vector=np.array(some(0, 1, 1), np.bool_),
        hits=hits,
        df=np.count_nonzero(hits, axis=1).astype(np.float32),
        length=np.array(some(0, 1, 20), np.float32),
        speaker=np.array(some(0, 7, 8), np.int64),
        time=np.array(some(0, NOW, NOW + DAY_MS), np.int64),
        flags=np.array(some(0, 1, 2, 3), np.int64),
        base_importance=np.array(some(0, 0.5, 1), np.float32),
        anchor=np.array(some(0, NOW, NOW + DAY_MS), np.int64),
        pinned=np.array(some(0, 1), np.bool_),
        content=np.array(some(1, 2, 3, 4), np.int64),
    )


def rearranged(columns: Columns, order: Ints) -> Columns:
    place = np.full(len(order) + 1, -1)
    place[order] = np.arange(len(order))
    changed: dict[str, Any] = {}
    for field in fields(columns):
        value = getattr(columns, field.name)
        if isinstance(value, np.ndarray) and field.name != "df":
            changed[field.name] = value[..., order]
    for name in ("previous", "following"):
        changed[name] = place[changed[name]]
    return replace(columns, **changed)


@given(scopes(), st.sampled_from(MODES), st.sampled_from((NOBODY, SPOKEN)))
def test_every_ranking_is_sound(columns: Columns, mode: Mode, query: QueryText) -> None:
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
        assert set(found.tolist()) == set(np.flatnonzero(columns.matched & columns.hits.any(axis=0)).tolist())


@given(scopes(), st.sampled_from(MODES), st.randoms(use_true_random=False))
def test_the_order_of_documents_does_not_matter(columns: Columns, mode: Mode, random: Random) -> None:
    order = list(range(len(columns.rows)))
    random.shuffle(order)
    moved = rearranged(columns, np.array(order, np.int64))
    ranked, other = (rank(each, SPOKEN, mode, NOW) for each in (columns, moved))
    assert columns.rows[ranked.order].tolist() == moved.rows[other.order].tolist()
    assert ranked.score[ranked.order].tolist() == other.score[other.order].tolist()


@given(scopes(), st.sampled_from(MODES))
def test_an_unmatched_document_elsewhere_changes_nothing(columns: Columns, mode: Mode) -> None:
    n = len(columns.rows)
    strong = replace(columns_of(1), cosine=np.ones(1, np.float32), hits=np.full((2, 1), 9, np.float32))
    strong = replace(strong, matched=np.zeros(1, np.bool_), session=np.array([5]), rows=np.array([99]))
    both: dict[str, Any] = {
        field.name: np.concatenate((getattr(columns, field.name), getattr(strong, field.name)), axis=-1)
        for field in fields(columns)
        if isinstance(getattr(columns, field.name), np.ndarray) and field.name != "df"
    }
    ranked, other = rank(columns, SPOKEN, mode, NOW), rank(replace(columns, **both), SPOKEN, mode, NOW)
    assert ranked.order.tolist() == other.order.tolist()
    assert ranked.score.tolist() == pytest.approx(other.score[:n].tolist(), rel=1e-5)  # sums of floats round by length


@given(scopes(), st.integers(1, 6))
def test_top_gives_k_distinct_contents_whenever_there_are_k(columns: Columns, k: int) -> None:
    ranked = rank(columns, NOBODY, "hybrid", NOW)
    contents = columns.content[top(ranked, columns, k)].tolist()
    in_order = list(dict.fromkeys(columns.content[ranked.order].tolist()))
    assert contents == in_order[:k]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("terms", [0, 2])
def test_an_empty_scope_has_no_results(mode: Mode, terms: int) -> None:
    columns = columns_of(0, terms=terms)
    ranked = rank(columns, NOBODY, mode, NOW)
    assert top(ranked, columns, 10) == []


def test_a_single_document_is_found() -> None:
    assert rank(columns_of(1), NOBODY, "hybrid", NOW).order.tolist() == [0]


def test_without_vectors_the_text_decides() -> None:
    columns = replace(columns_of(3), has_vector=np.zeros(3, np.bool_), df=np.ones(2, np.float32))
    columns.hits[0, 1] = columns.hits[1, 2] = columns.hits[0, 2] = 1
    assert rank(columns, NOBODY, "hybrid", NOW).order.tolist() == [2, 1, 0]


def test_without_terms_the_vector_decides() -> None:
    columns = replace(columns_of(3, terms=0), cosine=np.array([0.1, 0.3, 0.2], np.float32))
    assert rank(columns, NOBODY, "hybrid", NOW).order.tolist() == [1, 2, 0]


def test_of_equals_the_newer_comes_first_then_the_lower_handle() -> None:
    columns = replace(columns_of(3, terms=0), time=np.array([NOW - 1, NOW, NOW - 1]), rows=np.array([5, 9, 4]))
    assert rank(columns, NOBODY, "vector", NOW).order.tolist() == [1, 2, 0]


def test_a_turn_is_helped_by_its_neighbours_its_session_and_its_speaker() -> None:
    columns = columns_of(6, np.array([0, 0, 0, 1, 1, 1]))
    columns.hits[0, 0] = 1
    columns.df[0] = 1
    assert rank(columns, NOBODY, "hybrid", NOW).order.tolist()[:3] == [0, 1, 2]
    spoken = replace(columns, hits=np.zeros_like(columns.hits), speaker=np.array([8, 8, 8, 8, 7, 8]))
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
        columns.hits[0, 0] = columns.df[0] = 1
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
def test_plain_facts_are_found_beside_a_conversation(question: str, fact: int) -> None:
    texts, n = [*TURNS, *FACTS], len(TURNS)
    query = analyse(question, ("Ann", "Bea"))
    indexed = [index_text(text) for text in texts]
    hits = np.array([[np.dot(t.ids == term, t.counts) for t in indexed] for term in query.terms], np.float32)
    turn = np.arange(len(texts)) < n
    columns = replace(
        columns_of(len(texts), np.where(turn, 0, -1), terms=len(query.terms)),
        hits=hits,
        df=np.count_nonzero(hits, axis=1).astype(np.float32),
        has_vector=np.zeros(len(texts), np.bool_),
        length=np.array([t.length for t in indexed], np.float32),
        flags=np.array([t.flags for t in indexed]),
        speaker=np.where(turn, np.where(np.arange(len(texts)) % 2, name_id("Ann"), name_id("Bea")), 0),
        content=np.array([content_hash(text) for text in texts]),
        base_importance=np.where(turn, 0.3, 0.5).astype(np.float32),
    )
    assert rank(columns, query, "hybrid", NOW).order[0] == n + fact


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_large_scopes_are_in_order(seed: int) -> None:
    random = np.random.default_rng(seed)
    n = 500
    columns = replace(
        columns_of(n, np.arange(n) // 20),
        cosine=np.round(random.random(n), 2).astype(np.float32),
        hits=(random.random((2, n)) < 0.1).astype(np.float32),
        df=np.full(2, n / 10, np.float32),
    )
    ranked = rank(columns, SPOKEN, "vector", NOW)
    assert ranked.order.tolist() == sorted(range(n), key=lambda i: (-columns.cosine[i], i))


def test_cosines_within_the_least_spread_are_not_drawn_apart() -> None:
    columns = replace(columns_of(3), cosine=np.array([0.5, 0.4, 0.45], np.float32))
    wide, narrow = (rank(columns, NOBODY, "hybrid", NOW, least_spread=spread) for spread in (0.05, 0.4))
    assert wide.parts["vector_scaled"].tolist() == pytest.approx([1, 0, 0.5], abs=1e-5)
    assert narrow.parts["vector_scaled"].tolist() == pytest.approx([1, 0.75, 0.875], abs=1e-5)
    assert wide.score.tolist() == rank(columns, NOBODY, "hybrid", NOW).score.tolist()
    alone = rank(replace(columns_of(1), cosine=np.array([0.5], np.float32)), NOBODY, "hybrid", NOW, least_spread=0.4)
    assert alone.parts["vector_scaled"].tolist() == [1]
    rank(columns_of(0), NOBODY, "hybrid", NOW, least_spread=0.4)
