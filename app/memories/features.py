"""What the ranking knows of each document: pure functions of columns, query and time. Formulas: docs/retrieval.md.

Nothing is a matrix product: BLAS rounds by position, and equal documents must get equal numbers wherever they stand.
"""

import math

import numpy as np
from numpy.typing import NDArray

from app.memories.query import QueryText
from app.memories.strength import DAY_MS, DEFAULT_DECAY, MAX_EXPONENT, Decay, Fading
from app.storage.search import Bools, Columns, Floats, Ints
from app.storage.text import HAS_NUMBER_OR_TIME_WORD, IS_QUESTION

FEATURES = (
    "vector_scaled",
    "text_scaled",
    "vector_rank",
    "number",
    "question",
    "speaker",
    "session",
    "neighbour",
    "importance",
    "recency",
)

BM25_K1 = 0.9
BM25_B = 0.4
NEIGHBOUR_TERMS = 0.5
"""How much of a neighbour's terms, and length, counts as a turn's own."""
NEIGHBOUR_VECTOR = 0.3
RANK_OFFSET = 10
RANK_DEPTH = 100
"""Ranks by vector are told apart down to here."""
RECENCY_DAYS = 30
"""Half-life."""

TINY = 1e-6
BLOCK = 1 << 15
"""Numbers worked on at once, so that they stay in the processor's cache."""


def features(
    columns: Columns,
    query: QueryText,
    text: Floats,
    now_ms: int,
    decay: Decay = DEFAULT_DECAY,
    *,
    least_spread: float = 0.0,
) -> Floats:
    """(FEATURES, n); `text` is `bm25(columns)`. Scales come from what matched: no other document can move them. Cosines
    that lie within `least_spread` are not drawn apart to the whole scale."""
    rows = np.empty((len(FEATURES), len(text)), np.float32)
    near, words, by_rank, number, question, spoken, session, neighbour, strength, recent = rows
    seen = columns.matched & columns.has_vector
    if np.logical_and.reduce(seen):  # as usual: the same, without gathering what is everything
        pool, best = columns.cosine, float(np.maximum.reduce(text, initial=0))
        _scaled(columns.cosine, pool, least_spread, out=near)
    else:
        pool, best = columns.cosine[seen], float(text.max(where=columns.matched, initial=0))
        _scaled(columns.cosine, pool, least_spread, out=near)
        near *= columns.has_vector
    relative = scaled_text(text, best)
    np.multiply(relative, np.float32(math.sqrt(best / max(most_text(columns), TINY))), out=words)
    by_rank[:] = _reciprocal_rank(columns.cosine, seen, pool)
    number[:], question[:] = columns.derived.get("flags", (columns.flags,), lambda: _flags(columns))
    np.equal(columns.speaker, query.speaker or -1, out=spoken)
    base = base_score(near, relative, columns)
    session[:] = _best_of_session(base, columns)
    neighbour[:] = _better_neighbour(base, columns)
    strength[:] = importance_at(columns, now_ms, decay)
    recent[:] = columns.derived.get("recency", (columns.time,), lambda: _Recency(columns.time)).at(now_ms)
    return rows


def _flags(columns: Columns) -> tuple[Floats, Floats]:
    number, question = columns.flags & HAS_NUMBER_OR_TIME_WORD, columns.flags & IS_QUESTION
    return (number != 0).astype(np.float32), (question != 0).astype(np.float32)


def scaled_text(text: Floats, best: float) -> Floats:
    """BM25 as a part of the best that matched, 0..1."""
    scaled: Floats = np.multiply(text, np.float32(1 / max(best, TINY)))
    np.minimum(scaled, 1, out=scaled)
    return scaled


def base_score(near: Floats, words: Floats, columns: Columns) -> Floats:
    """0..1: scaled cosine, with a part of the neighbours', and BM25 as a part of the best, in equal parts."""
    around = _neighbours(near, columns)
    around *= np.float32(NEIGHBOUR_VECTOR)
    around += near
    around *= np.float32(1 / (1 + 2 * NEIGHBOUR_VECTOR))
    around += words
    around *= np.float32(0.5)
    return around


def bm25(columns: Columns) -> Floats:
    """BM25 (Robertson & Zaragoza 2009, with Lucene's idf) within the scope; half of the neighbours' terms count too."""
    weight = _term_weights(columns)[:, np.newaxis]
    sources = columns.length, columns.previous, columns.following, columns.mean_length
    norm = columns.derived.get("norm", sources, lambda: _norm(columns))
    score = np.zeros(len(norm), np.float32)
    step = max(1, BLOCK // max(1, len(norm)))
    for start in range(0, len(weight), step):
        occurs = _with_neighbours(columns.hits[start : start + step], columns)
        occurs /= occurs + norm
        occurs *= weight[start : start + step]
        score += np.add.reduce(occurs, axis=0)
    return score


def most_text(columns: Columns) -> float:
    """What BM25 cannot exceed: every term of the query, without end."""
    return float(np.add.reduce(_term_weights(columns)))


def _term_weights(columns: Columns) -> Floats:
    """(terms,)"""
    idf = np.log1p((columns.count - columns.df + 0.5) / (columns.df + 0.5))
    return (idf * (BM25_K1 + 1)).astype(np.float32)


def _norm(columns: Columns) -> Floats:
    norm = _with_neighbours(columns.length, columns)
    norm *= np.float32(BM25_K1 * BM25_B / max(columns.mean_length, 1.0))
    norm += np.float32(BM25_K1 * (1 - BM25_B))
    return norm


def importance_at(columns: Columns, now_ms: int, decay: Decay = DEFAULT_DECAY) -> Floats:
    """Decayed importance of each document."""
    of = columns.base_importance, columns.anchor, columns.pinned
    fading = columns.derived.get("importance", (*of, decay), lambda: Fading(*of, decay))
    return fading.at(now_ms).astype(np.float32)


class _Recency:
    """2 ** (-age / half-life), split as `Fading` is."""

    def __init__(self, time: Ints) -> None:
        self._time, self._latest = time, int(time.max(initial=0))
        earlier = (self._latest - time) / (RECENCY_DAYS * DAY_MS)
        self._parts = float(earlier.max(initial=0)) < MAX_EXPONENT
        self._recent: NDArray[np.float64] = np.exp2(-earlier)

    def at(self, now_ms: int) -> NDArray[np.float64]:
        age = (now_ms - self._latest) / (RECENCY_DAYS * DAY_MS)
        if not self._parts or age < -MAX_EXPONENT:
            return np.asarray(np.exp2(np.minimum(self._time - now_ms, 0) / (RECENCY_DAYS * DAY_MS)))
        recent: NDArray[np.float64] = self._recent * 2.0**-age
        np.minimum(recent, 1, out=recent)
        return recent


def _neighbours(values: Floats, columns: Columns) -> Floats:
    """Sum of both neighbours' values along the last axis. The index -1, for none, wraps to a zero put at the end."""
    padded = _with_zero(values)
    total: Floats = padded.take(columns.previous, axis=-1, mode="wrap")
    total += padded.take(columns.following, axis=-1, mode="wrap")
    return total


def _with_zero(values: Floats) -> Floats:
    """One more at the end of the last axis."""
    padded = np.empty((*values.shape[:-1], values.shape[-1] + 1), np.float32)
    padded[..., :-1] = values
    padded[..., -1] = 0
    return padded


def _better_neighbour(values: Floats, columns: Columns) -> Floats:
    """The larger of both neighbours' values, which are not negative; 0 without any."""
    padded = _with_zero(values)
    better: Floats = padded.take(columns.previous, mode="wrap")
    np.maximum(better, padded.take(columns.following, mode="wrap"), out=better)
    return better


def _with_neighbours(values: Floats, columns: Columns) -> Floats:
    total = _neighbours(values, columns)
    total *= np.float32(NEIGHBOUR_TERMS)
    total += values
    return total


def _scaled(values: Floats, pool: Floats, least_spread: float, out: Floats) -> None:
    """Clipped to 0..1 between the least and the largest of `pool`; 1 for one value alone."""
    low, high = (float(pool.min()), float(pool.max())) if len(pool) else (np.inf, -np.inf)
    if len(pool):
        low = min(low, high - least_spread)
    if high - low < TINY:
        np.greater_equal(values, np.float32(low), out=out)
        return
    np.subtract(values, np.float32(low), out=out)
    out *= np.float32(1 / (high - low))
    np.maximum(out, 0, out=out)
    np.minimum(out, 1, out=out)


def _reciprocal_rank(values: Floats, among: Bools, pool: Floats) -> Floats:
    """1 / (offset + how many of `among` are larger) for the first ones, else 0: equal values have equal ranks.
    `pool` is `values[among]`, or `values` themselves where that is all of them."""
    if pool is values and len(pool) <= RANK_DEPTH:
        return (1 / (RANK_OFFSET + len(pool) - np.sort(pool).searchsorted(pool, side="right"))).astype(np.float32)
    result = np.zeros_like(values)
    if len(pool) <= RANK_DEPTH:
        result[among] = 1 / (RANK_OFFSET + len(pool) - np.sort(pool).searchsorted(pool, side="right"))
        return result
    first = np.sort(np.partition(pool, -RANK_DEPTH)[-RANK_DEPTH:])
    index = np.flatnonzero(among & (values >= first[0]))
    result[index] = 1 / (RANK_OFFSET + len(first) - first.searchsorted(values[index], side="right"))
    return result


def _best_of_session(score: Floats, columns: Columns) -> Floats:
    """Score of the best document of each one's session; without a session its own class, that of -1."""
    session = columns.session
    classes = columns.derived.get("sessions", (session,), lambda: int(session.max(initial=-1)) + 2)
    best = np.zeros(classes, np.float32)
    np.maximum.at(best, session, score)
    found: Floats = best.take(session, mode="wrap")
    return found
