"""A large segment returns a part of its entries. What it returns of them is what the whole one says."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.core.clock import to_ms
from app.retrieval.decay import DEFAULT_DECAY
from app.retrieval.model_weights import DEFAULT
from app.retrieval.query import SettledQuery
from app.retrieval.ranking import by_features, top
from app.storage.index.record_codec import Row, pack
from app.storage.index.segment import AROUND, DAY_MS, EXTREMES, Segment
from app.storage.schema import EVERYTHING, Absent, Eq, Or, Range
from app.storage.search import Columns, SearchQuery
from tests.support.declared import DIM, SEARCHED, ask, at, entry_doc, random_vector, search_entry

MANY = 1_200
WORDS = "tea roses coffee mate garden rain lamp chair river stone".split()
SOME, MORE = 20, 200


def row(number: int, rev: int = 1, **fields: Any) -> Row:
    drawn = np.random.default_rng(number)
    text = " ".join(drawn.choice(WORDS, 3))
    session = {"session_id": f"s{number // 20}", "message_seq": number % 20} if number // 20 % 2 else None
    doc = entry_doc(text, source=session, kind="ab"[number % 3 > 0], created_at=at(37 * number % 86_400), **fields)
    return Row(number, pack(SEARCHED, doc, search_entry(text, random_vector(number)), rev))


@pytest.fixture(scope="module")
def segments() -> tuple[Segment, Segment]:
    """The same records in a segment that is large and in one that is not; some were deleted, and some have a weight."""
    large, whole = Segment(SEARCHED, DIM, large=100, leading=(SOME, MORE)), Segment(SEARCHED, DIM)
    for segment in (large, whole):
        segment.apply([row(number) for number in range(MANY)])
        segment.apply([Row(number, None) for number in range(0, MANY, 9)])
        segment.apply([row(number, rev=2, weight=number % 7) for number in range(5, MANY, 50)])
        segment.apply([row(number, base_importance=0.9) for number in (1, 2)])
    return large, whole


def query(seed: int = 0, **fields: Any) -> SearchQuery:
    text = " ".join(np.random.default_rng(seed).choice(WORDS, 2, replace=False))
    return replace(ask(f"{text} unheard", vector=random_vector(10_000 + seed)), **{"candidates": True, **fields})


def whole_of(segment: Segment, asked: SearchQuery) -> Columns:
    return segment.columns(replace(asked, depth=2))


WHERE = {
    "everything": EVERYTHING,
    "a facet": Eq("kind", "a"),
    "few": Range("weight", ge=6),
    "those without": Or((Absent("weight"), Range("weight", lt=1))),
    "nothing": Eq("kind", "c"),
}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("candidates", [True, False])
def test_what_is_returned_of_an_entry_is_what_the_whole_segment_says(
    segments: tuple[Segment, Segment], where: str, *, candidates: bool
) -> None:
    large, whole = segments
    asked = query(where=WHERE[where], candidates=candidates, vectors=True)
    part, every = large.columns(asked), whole.columns(asked)
    place = {number: index for index, number in enumerate(every.rows.tolist())}
    own = [place[number] for number in part.rows.tolist()]
    assert len(own) < len(every.rows) or not candidates
    names = "matched has_vector length speaker time flags base_importance anchor pinned agent content"
    for name in names.split():
        assert np.array_equal(getattr(part, name), getattr(every, name)[own]), name
    assert np.allclose(part.cosine, every.cosine[own])
    assert np.array_equal(part.term_counts, every.term_counts[:, own])
    assert part.vectors is not None
    assert every.vectors is not None
    assert np.array_equal(part.vectors, every.vectors[own])
    assert (part.df.tolist(), part.count, part.mean_length) == (every.df.tolist(), every.count, every.mean_length)
    for name in ("previous", "following"):
        links, all_links = getattr(part, name), getattr(every, name)[own]
        expected = [own.index(link) if link in own else -1 for link in all_links.tolist()]
        assert links.tolist() == expected, name
    if not candidates:
        assert part.matched.all()
        assert len(own) == np.count_nonzero(every.matched)


@pytest.mark.parametrize("where", WHERE)
def test_the_best_by_vector_and_by_words_are_candidates_with_their_neighbours(
    segments: tuple[Segment, Segment], where: str
) -> None:
    large, whole = segments
    for seed in range(5):
        asked = query(seed, where=WHERE[where])
        part, every = large.columns(asked), whole.columns(asked)
        matching = np.flatnonzero(every.matched)
        nearest = matching[np.argsort(-every.cosine[matching])]
        both_words = matching[(every.term_counts[:2, matching] > 0).all(axis=0)]
        expected = {*nearest[:SOME], *nearest[-1:], *(both_words if len(both_words) <= SOME else ())}
        around = {*expected}
        for _ in range(AROUND):
            around |= {int(links[index]) for links in (every.previous, every.following) for index in around} - {-1}
        assert set(every.rows[[*around]].tolist()) <= set(part.rows.tolist())
        assert part.complete == (set(every.rows[matching].tolist()) <= set(part.rows.tolist()))


def test_without_a_vector_the_best_by_words_are_candidates(segments: tuple[Segment, Segment]) -> None:
    large, whole = segments
    for seed in range(5):
        part, every = (segment.columns(query(seed, vector=None)) for segment in (large, whole))
        both_words = every.rows[(every.term_counts[:2] > 1).any(axis=0) & (every.term_counts[:2] > 0).all(axis=0)]
        assert 0 < len(both_words) <= SOME
        assert {*both_words.tolist()} <= set(part.rows.tolist())


def test_a_deeper_search_returns_more_and_the_deepest_everything(segments: tuple[Segment, Segment]) -> None:
    large, whole = segments
    found = [large.columns(query(depth=depth)) for depth in range(3)]
    assert len(found[0].rows) < len(found[1].rows) < len(found[2].rows)
    assert [columns.complete for columns in found] == [False, False, True]
    assert np.array_equal(found[2].rows, whole.columns(query()).rows)


def test_what_is_from_the_time_and_the_newest_and_oldest_are_candidates(segments: tuple[Segment, Segment]) -> None:
    large, whole = segments
    every = whole.columns(query())
    in_order = every.rows[np.argsort(every.time, kind="stable")].tolist()
    assert {*in_order[:EXTREMES], *in_order[-EXTREMES:]} <= set(large.columns(query()).rows.tolist())
    eleven = to_ms("2026-03-01T11:00:00.000Z")
    asked = query(interval=(eleven + DAY_MS, eleven + DAY_MS + 1))  # with a day's margin: all after eleven
    from_then = set(every.rows[every.time >= eleven].tolist())
    assert len(from_then) > 100
    assert from_then <= set(large.columns(asked).rows.tolist())


def test_the_first_hits_are_those_of_the_exact_ranking() -> None:
    large, whole = Segment(SEARCHED, DIM, large=100, leading=(MORE,)), Segment(SEARCHED, DIM)
    for segment in (large, whole):
        segment.apply([row(number) for number in range(MANY)])

    def first(segment: Segment, asked: SearchQuery) -> set[int]:
        columns, now = segment.columns(asked), to_ms(at(0))
        ranked = by_features(columns, SettledQuery(asked.terms), "hybrid", now, DEFAULT.weights, DEFAULT_DECAY, k=10)
        return set(columns.rows[top(ranked.order, columns, 10)].tolist())

    found = [first(large, query(seed)) & first(whole, query(seed)) for seed in range(20)]
    assert sum(map(len, found)) >= 0.97 * 200  # of a hundred memories of three out of ten words, many are alike
