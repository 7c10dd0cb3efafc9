"""The features of the ranking: pure functions of columns, query and time.

Formulas: docs/concepts/retrieval.md. No function uses a matrix product: BLAS rounds by position, and equal documents
must get equal numbers at every position.
"""

import math
from dataclasses import dataclass
from types import EllipsisType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from app.retrieval.decay import DAY_MS, DEFAULT_DECAY, DecayCurve, DecayedImportance
from app.retrieval.query_analysis import FEW_TERMS, SHORT_TEXT, QueryText
from app.storage.search import Bools, Columns, Floats, Ints
from app.storage.text import HAS_EVENT_TIME, HAS_NUMBER_OR_TIME_WORD, IS_QUESTION

ASKED = ("vector_scaled", "text_scaled", "vector_rank", "coverage", "repeats", "speaker", "session", "neighbour")
"""Features that depend on the query."""
STANDING = ("number", "question", "length", "long_question", "importance", "recency")
"""Features that do not depend on the query."""
FEATURES = ASKED + STANDING

Number = TypeVar("Number", np.float32, np.bool_)

BM25_K1 = 0.9
BM25_B = 0.4
NEIGHBOUR_TERMS = 0.5
"""Weight of the neighbours' terms and lengths; a turn's own terms weigh 1."""
NEIGHBOUR_VECTOR = 0.3
"""Weight of the neighbours' cosines; a turn's own cosine weighs 1."""
RANK_OFFSET = 10
RANK_DEPTH = 100
"""Number of documents that get a rank by vector."""
MINUTE_MS = 60_000
RECENCY_DAYS = 30
"""Half-life of the feature `recency`, in days."""
LEAST_SPREAD = 0.4
"""Minimum spread of cosines that is scaled to 0..1.

In a scope of a few memories on one subject even the farthest is near.
"""
LONG_TEXT = 5
"""Divisor of the feature `length`: a text of e^5 - 1 = 147 terms has the length 1."""

ONE, ZERO = np.array(1, np.float32), np.array(0, np.float32)
"""Numbers as arrays without dimensions. They take half the time of Python numbers, which numpy converts first."""
TINY = 1e-6
BLOCK = 1 << 15
"""Numbers that are processed at once, so that they stay in the processor's cache."""


def features(
    columns: Columns,
    query: QueryText,
    text: Floats,
    now_ms: int,
    decay: DecayCurve = DEFAULT_DECAY,
) -> Floats:
    """Returns all features, shape (FEATURES, n): `query_features`, then `query_independent_features`."""
    return np.concatenate((query_features(columns, query, text), query_independent_features(columns, now_ms, decay)))


def query_features(columns: Columns, query: QueryText, text: Floats) -> Floats:
    """Returns the features that depend on the query, shape (ASKED, n). `text` is `bm25(columns)`.

    Scales come from the documents that matched, so other documents cannot change them. Cosines that lie within
    `LEAST_SPREAD` are not stretched to the whole scale.

    Of a query without a subject all features are 0: its words and its vector tell nothing about the memories.
    """
    if not query.subject:
        return np.zeros((len(ASKED), len(text)), np.float32)
    rows = np.empty((len(ASKED), len(text)), np.float32)
    near, words, by_rank, covered, repeated, spoken, session, neighbour = rows
    fixed, (weights, limit) = _fixed(columns), term_weights(columns)
    seen = columns.matched & columns.has_vector
    everything = everything_or(seen) is ...
    pool = columns.cosine if everything else columns.cosine[seen]
    _by_vector(columns, seen, pool, near, by_rank)
    best = largest(text if everything else text[columns.matched])
    scaled_text(text, best, out=words)
    if not everything:
        near *= columns.has_vector
    np.add.reduce((columns.hits > 0) * weights, axis=0, out=covered)
    covered *= 1 / max(limit, TINY)
    # an answer holds the identifier that was asked for: that is no repetition of the question
    repeating = columns.hits if query.exact is None else columns.hits[~query.exact]
    np.add.reduce(repeating, axis=0, out=repeated)
    repeated *= fixed.per_length
    repeated *= 1 / max(len(repeating), FEW_TERMS)
    spoken[:] = columns.speaker == (query.speaker or -1)
    base = _base_score(near, words, fixed)
    words *= math.sqrt(best / max(limit, TINY))
    _best_of_session(base, fixed, session)
    before, after = fixed.neighbours(base, fixed.whole)
    np.maximum(before, after, out=neighbour)
    return rows


def query_independent_features(columns: Columns, now_ms: int, decay: DecayCurve = DEFAULT_DECAY) -> Floats:
    """Returns the features that do not depend on the query, shape (STANDING, n).

    They are computed once a minute, as of the start of the minute. Decay takes weeks.
    """
    minute = now_ms - now_ms % MINUTE_MS
    sources = columns.flags, columns.base_importance, columns.anchor, columns.pinned, columns.time, decay, minute
    return columns.derived.get("standing", sources, lambda: _standing(columns, minute, decay))


def _standing(columns: Columns, now_ms: int, decay: DecayCurve) -> Floats:
    rows = np.empty((len(STANDING), len(columns.time)), np.float32)
    rows[0], rows[1] = columns.flags & HAS_NUMBER_OR_TIME_WORD != 0, columns.flags & IS_QUESTION != 0
    rows[2] = np.log1p(columns.length) / LONG_TEXT
    rows[3] = rows[1] * rows[2]
    rows[4] = importance_at(columns, now_ms, decay)
    rows[5] = np.exp2(np.minimum(columns.time - now_ms, 0) / (RECENCY_DAYS * DAY_MS))
    return rows


def scaled_text(text: Floats, best: float, out: Floats | None = None) -> Floats:
    """Returns BM25 as a fraction of `best`, the largest value of the documents that matched, clipped to 1."""
    scaled: Floats = np.multiply(text, 1 / max(best, TINY), out=out)
    np.minimum(scaled, ONE, out=scaled)
    return scaled


def base_score(near: Floats, words: Floats, columns: Columns) -> Floats:
    """Returns a score in 0..1: half is the scaled cosine with a part of the neighbours', half is BM25 as a fraction of
    the best."""
    return _base_score(near, words, _fixed(columns))


def _base_score(near: Floats, words: Floats, fixed: "_Fixed") -> Floats:
    before, after = fixed.neighbours(near, fixed.vector)
    score: Floats = before + after
    score += near * _OWN_VECTOR
    score += words * _TEXT
    return score


def bm25(columns: Columns) -> Floats:
    """Returns BM25 within the scope, shape (n,); terms of the neighbours count by half.

    Formula: Robertson & Zaragoza 2009, with Lucene's idf.
    """
    weight, _ = term_weights(columns)
    fixed = _fixed(columns)
    step = max(1, BLOCK // max(1, len(fixed.norm)))
    if len(weight) <= step:
        return _saturated(columns.hits, weight, fixed)
    score = np.zeros(len(fixed.norm), np.float32)
    for start in range(0, len(weight), step):
        score += _saturated(columns.hits[start : start + step], weight[start : start + step], fixed)
    return score


def _saturated(hits: Floats, weight: Floats, fixed: "_Fixed") -> Floats:
    """Returns the sum over the terms of weight * f / (f + norm).

    f is how often a document contains a term; occurrences in its neighbours count by half.
    """
    occurs = fixed.with_neighbours(hits)
    occurs /= occurs + fixed.norm
    occurs *= weight
    score: Floats = np.add.reduce(occurs, axis=0)
    return score


def term_weights(columns: Columns) -> tuple[Floats, float]:
    """Returns the BM25 weight of each term, shape (terms, 1), and the sum of the weights.

    Documents of one content count once: a word does not become common by being repeated. A loop is used because a query
    has only a handful of terms.
    """

    def weigh() -> tuple[Floats, float]:
        count, with_term = columns.count, columns.df
        if (groups := equal_contents(columns)) is not None:
            held = columns.hits > 0
            count -= len(groups.order) - len(groups.starts)
            with_term = with_term - np.count_nonzero(held, axis=1) + np.count_nonzero(groups.most(held), axis=1)
        found = [(BM25_K1 + 1) * math.log1p((count - df + 0.5) / (df + 0.5)) for df in with_term.tolist()]
        if columns.emphasis is not None:
            found = [weight * factor for weight, factor in zip(found, columns.emphasis.tolist(), strict=True)]
        return np.array(found, np.float32).reshape(-1, 1), sum(found)

    return columns.derived.get("term weights", (columns.df, columns.count, columns.emphasis), weigh)


@dataclass(frozen=True, slots=True)
class EqualContents:
    """Documents in the order of their contents, and where each content starts there."""

    order: Ints
    starts: Ints

    def most(self, values: NDArray[Number]) -> NDArray[Number]:
        """Returns the largest value of each content, shape (…, contents), of values of shape (…, n)."""
        found: NDArray[Number] = np.maximum.reduceat(values[..., self.order], self.starts, axis=-1)
        return found


def equal_contents(columns: Columns) -> EqualContents | None:
    """Returns the documents by content; None if all contents differ, as they mostly do."""

    def group() -> EqualContents | None:
        order = np.argsort(columns.content, kind="stable")
        ordered = columns.content[order]
        starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        return None if len(starts) >= len(order) else EqualContents(order, starts)

    found: EqualContents | None = columns.derived.get("contents", (columns.content,), group)
    return found


def importance_at(columns: Columns, now_ms: int, decay: DecayCurve = DEFAULT_DECAY) -> Floats:
    """Returns the decayed importance of each document, shape (n,)."""
    of = columns.base_importance, columns.anchor, columns.pinned
    fading = columns.derived.get("importance", (*of, decay), lambda: DecayedImportance(*of, decay))
    return fading.at(now_ms).astype(np.float32)


def everything_or(matched: Bools) -> Bools | EllipsisType:
    """Returns an index of what matched. It is `...` in the usual case that all matched, which avoids a copy."""
    return ... if np.count_nonzero(matched) == len(matched) else matched


def largest(values: Floats) -> float:
    """Returns the maximum, or 0 if `values` is empty.

    For a few hundred values it takes a third of the time of `maximum.reduce`.
    """
    return float(values[values.argmax()]) if len(values) else 0.0


_OWN_VECTOR = np.array(0.5 / (1 + 2 * NEIGHBOUR_VECTOR), np.float32)
_TEXT = np.array(0.5, np.float32)


class _Fixed:
    """Arrays that depend only on the documents. They are cached with the columns."""

    __slots__ = ("_beside", "_terms", "norm", "occasion", "occasions", "per_length", "vector", "whole")

    def __init__(self, columns: Columns) -> None:
        self._beside = np.array((columns.previous, columns.following))
        self.whole: Floats = (self._beside >= 0).astype(np.float32)
        """Weights, shape (2, n), of the documents before and after each one: 0 if there is none, because its index, -1,
        wraps to the last document."""
        self._terms = self.whole * np.float32(NEIGHBOUR_TERMS)
        self.vector = self.whole * np.float32(0.5 / (1 + 2 * NEIGHBOUR_VECTOR) * NEIGHBOUR_VECTOR)
        norm = self.with_neighbours(columns.length) * np.float32(BM25_K1 * BM25_B / max(columns.mean_length, 1.0))
        self.norm: Floats = norm + np.float32(BM25_K1 * (1 - BM25_B))
        self.per_length: Floats = np.reciprocal(np.maximum(columns.length, SHORT_TEXT), dtype=np.float32)
        self.occasion, self.occasions = _occasions(columns)

    def neighbours(self, values: Floats, counts: Floats) -> Floats:
        """Returns the weighted values of both neighbours, shape (…, 2, n), for values of shape (…, n)."""
        found: Floats = values.take(self._beside, axis=-1, mode="wrap")
        found *= counts
        return found

    def with_neighbours(self, values: Floats) -> Floats:
        """Returns the values plus `NEIGHBOUR_TERMS` times the values of both neighbours."""
        total: Floats = np.add.reduce(self.neighbours(values, self._terms), axis=-2)
        total += values
        return total


def _fixed(columns: Columns) -> _Fixed:
    terms, neighbours = (columns.length, columns.mean_length), (columns.previous, columns.following)
    sources = (*terms, *neighbours, columns.session, columns.time, columns.flags)
    return columns.derived.get("fixed", sources, lambda: _Fixed(columns))


def _by_vector(columns: Columns, among: Bools, pool: Floats, near: Floats, ranks: Floats) -> None:
    """Writes scaled cosines into `near` and reciprocal ranks into `ranks`.

    `near`: the cosines clipped to 0..1 between the least and the largest `among` them (1 if there is only one value).
    `ranks`: 1 / (offset + how many of those are larger) for the first `RANK_DEPTH` of them, else 0; equal values have
    equal ranks. `pool`: the cosines of `among`, and the same array object as `columns.cosine` if that is all of them.
    """
    values, whole = columns.cosine, pool is columns.cosine
    if not len(pool):
        near[:] = ranks[:] = 0
        return
    first = pool.copy()
    few = len(pool) <= RANK_DEPTH
    if not few:
        first.partition(len(pool) - RANK_DEPTH)
        first = first[-RANK_DEPTH:]
    first.sort()
    high = float(first[-1])
    low = min(float(first[0] if few else pool[pool.argmin()]), high - LEAST_SPREAD)
    _scaled(values, low, high, whole, near)
    by_place = _BY_PLACE[RANK_DEPTH - len(first) :]
    if whole and few:
        by_place.take(first.searchsorted(values, side="right"), out=ranks, mode="clip")
        return
    ranks[:] = 0
    close = values >= first[0]
    (index,) = (close if whole else close & among).nonzero()
    ranks[index] = by_place.take(first.searchsorted(values[index], side="right"))


_BY_PLACE = np.reciprocal(RANK_OFFSET + RANK_DEPTH - np.arange(RANK_DEPTH + 1), dtype=np.float32)
"""1 / (offset + how many of the first RANK_DEPTH values are larger), indexed by how many of them are not larger."""


def _scaled(values: Floats, low: float, high: float, within: bool, out: Floats) -> None:
    """Scales the values from `low`..`high` to 0..1. `within`: no value is less than `low`."""
    if high - low < TINY:
        np.greater_equal(values, low, out=out)
        return
    np.subtract(values, low, out=out)
    out *= 1 / (high - low)
    if not within:
        np.maximum(out, ZERO, out=out)
    np.minimum(out, ONE, out=out)


def _best_of_session(score: Floats, fixed: _Fixed, out: Floats) -> None:
    """Writes the score of the best document of each document's session into `out`.

    Documents without a session that happened at the same time count as one session. Each other document without a
    session counts as a session of its own.
    """
    best = np.zeros(fixed.occasions, np.float32)
    np.maximum.at(best, fixed.occasion, score)
    best.take(fixed.occasion, out=out, mode="clip")


def _occasions(columns: Columns) -> tuple[Ints, int]:
    """Returns codes, shape (n,), of sessions, of times and of single documents, and the number of codes."""
    codes = columns.session.copy()
    count = int(codes.max(initial=-1)) + 1
    timed = np.flatnonzero((codes < 0) & (columns.flags & HAS_EVENT_TIME != 0))
    times, at = np.unique(columns.time[timed], return_inverse=True)
    codes[timed] = count + at
    alone = np.flatnonzero(codes < 0)
    codes[alone] = count + len(times) + np.arange(len(alone))
    return codes, count + len(times) + len(alone)
