"""What the ranking knows of each document: pure functions of columns, query and time. Formulas: docs/retrieval.md.

Nothing is a matrix product: BLAS rounds by position, and equal documents must get equal numbers wherever they stand.
"""

import numpy as np

from app.memories.query import QueryText
from app.memories.strength import DAY_MS, DEFAULT_DECAY, Decay, importance
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


def features(columns: Columns, query: QueryText, text: Floats, now_ms: int, decay: Decay = DEFAULT_DECAY) -> Floats:
    """(FEATURES, n); `text` is `bm25(columns)`. Scales come from what matched: no other document can move them."""
    rows = np.empty((len(FEATURES), len(text)), np.float32)
    near, words, by_rank, number, question, spoken, session, strength, recent = rows
    seen = columns.matched & columns.has_vector
    near[:] = _scaled(columns.cosine, seen)
    near *= columns.has_vector
    np.minimum(text / max(float(text.max(where=columns.matched, initial=0)), TINY), 1, out=words)
    by_rank[:] = _reciprocal_rank(columns.cosine, seen)
    np.not_equal(columns.flags & HAS_NUMBER_OR_TIME_WORD, 0, out=number)
    np.not_equal(columns.flags & IS_QUESTION, 0, out=question)
    np.equal(columns.speaker, query.speaker or -1, out=spoken)
    session[:] = _best_of_session(base_score(near, words, columns), columns.session)
    strength[:] = importance_at(columns, now_ms, decay)
    np.maximum(now_ms - columns.time, 0, out=recent, casting="unsafe")
    recent *= np.float32(-1 / (RECENCY_DAYS * DAY_MS))
    np.exp2(recent, out=recent)
    return rows


def base_score(near: Floats, words: Floats, columns: Columns) -> Floats:
    """0..1: scaled cosine, with a part of the neighbours', and scaled BM25 in equal parts."""
    around = _neighbours(near, columns)
    around *= np.float32(NEIGHBOUR_VECTOR)
    around += near
    around *= np.float32(1 / (1 + 2 * NEIGHBOUR_VECTOR))
    around += words
    around *= np.float32(0.5)
    return around


def bm25(columns: Columns) -> Floats:
    """BM25 (Robertson & Zaragoza 2009, with Lucene's idf) within the scope; half of the neighbours' terms count too."""
    idf = np.log1p((columns.count - columns.df + 0.5) / (columns.df + 0.5)) * (BM25_K1 + 1)
    weight = idf[:, np.newaxis].astype(np.float32)
    norm = _with_neighbours(columns.length, columns)
    norm *= np.float32(BM25_K1 * BM25_B / max(columns.mean_length, 1.0))
    norm += np.float32(BM25_K1 * (1 - BM25_B))
    score = np.zeros(len(norm), np.float32)
    step = max(1, BLOCK // max(1, len(norm)))
    for start in range(0, len(weight), step):
        occurs = _with_neighbours(columns.hits[start : start + step], columns)
        occurs /= occurs + norm
        occurs *= weight[start : start + step]
        score += np.add.reduce(occurs, axis=0)
    return score


def importance_at(columns: Columns, now_ms: int, decay: Decay = DEFAULT_DECAY) -> Floats:
    """Decayed importance of each document."""
    return importance(columns.base_importance, columns.anchor, now_ms, columns.pinned, decay).astype(np.float32)


def _neighbours(values: Floats, columns: Columns) -> Floats:
    """Sum of both neighbours' values along the last axis. The index -1, for none, wraps to a zero put at the end."""
    padded = np.zeros((*values.shape[:-1], values.shape[-1] + 1), np.float32)
    padded[..., :-1] = values
    total: Floats = padded.take(columns.previous, axis=-1, mode="wrap")
    total += padded.take(columns.following, axis=-1, mode="wrap")
    return total


def _with_neighbours(values: Floats, columns: Columns) -> Floats:
    total = _neighbours(values, columns)
    total *= np.float32(NEIGHBOUR_TERMS)
    total += values
    return total


def _scaled(values: Floats, among: Bools) -> Floats:
    """Clipped to 0..1 between the least and the largest `among`; 1 for one value alone."""
    low = float(values.min(where=among, initial=np.inf))
    high = float(values.max(where=among, initial=-np.inf))
    if high - low < TINY:
        return (values >= low).astype(np.float32)
    scaled: Floats = (values - np.float32(low)) * np.float32(1 / (high - low))
    np.maximum(scaled, 0, out=scaled)
    np.minimum(scaled, 1, out=scaled)
    return scaled


def _reciprocal_rank(values: Floats, among: Bools) -> Floats:
    """1 / (offset + how many of `among` are larger) for the first ones, else 0: equal values have equal ranks."""
    pool = values[among]
    first = np.sort(np.partition(pool, -RANK_DEPTH)[-RANK_DEPTH:] if len(pool) > RANK_DEPTH else pool)
    result = np.zeros_like(values)
    if first.size:
        index = np.flatnonzero(among & (values >= first[0]))
        result[index] = 1 / (RANK_OFFSET + len(first) - first.searchsorted(values[index], side="right"))
    return result


def _best_of_session(score: Floats, session: Ints) -> Floats:
    """Score of the best document of each one's session; without a session its own class, that of -1."""
    best = np.zeros(int(session.max(initial=-1)) + 2, np.float32)
    np.maximum.at(best, session, score)
    found: Floats = best.take(session, mode="wrap")
    return found
