"""What the ranking knows of each document: pure functions of columns, query and time. Formulas: docs/retrieval.md.

Nothing is a matrix product: BLAS rounds by position, and equal documents must get equal numbers wherever they stand.
"""

import math

import numpy as np

from app.memories.query import QueryText
from app.memories.strength import DAY_MS, DEFAULT_DECAY, Decay, Fading
from app.storage.search import Bools, Columns, Floats, Ints
from app.storage.text import HAS_NUMBER_OR_TIME_WORD, IS_QUESTION

ASKED = ("vector_scaled", "text_scaled", "vector_rank", "speaker", "session", "neighbour")
"""What depends on the query."""
STANDING = ("number", "question", "importance", "recency")
FEATURES = ASKED + STANDING

BM25_K1 = 0.9
BM25_B = 0.4
NEIGHBOUR_TERMS = 0.5
"""How much of a neighbour's terms, and length, counts as a turn's own."""
NEIGHBOUR_VECTOR = 0.3
RANK_OFFSET = 10
RANK_DEPTH = 100
"""Ranks by vector are told apart down to here."""
MINUTE_MS = 60_000
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
    """(FEATURES, n): `asked`, then `standing`."""
    return np.concatenate((asked(columns, query, text, least_spread=least_spread), standing(columns, now_ms, decay)))


def asked(columns: Columns, query: QueryText, text: Floats, *, least_spread: float = 0.0) -> Floats:
    """(ASKED, n); `text` is `bm25(columns)`. Scales come from what matched: no other document can move them. Cosines
    that lie within `least_spread` are not drawn apart to the whole scale."""
    rows = np.empty((len(ASKED), len(text)), np.float32)
    near, words, by_rank, spoken, session, neighbour = rows
    seen = columns.matched & columns.has_vector
    everything = bool(np.logical_and.reduce(seen))  # as usual: then nothing need be gathered
    pool = columns.cosine if everything else columns.cosine[seen]
    _by_vector(columns, seen, pool, least_spread, near, by_rank)
    best = float(np.maximum.reduce(text if everything else text[columns.matched], initial=0.0))
    scaled_text(text, best, out=words)
    if not everything:
        near *= columns.has_vector
    np.equal(columns.speaker, query.speaker or -1, out=spoken)
    base = base_score(near, words, columns)
    words *= np.float32(math.sqrt(best / max(most_text(columns), TINY)))
    _best_of_session(base, columns, session)
    _better_neighbour(base, columns, neighbour)
    return rows


def standing(columns: Columns, now_ms: int, decay: Decay = DEFAULT_DECAY) -> Floats:
    """(STANDING, n): what no query changes, as of the begin of this minute, in which it is made once. What fades does
    so over weeks."""
    minute = now_ms - now_ms % MINUTE_MS
    sources = columns.flags, columns.base_importance, columns.anchor, columns.pinned, columns.time, decay, minute
    return columns.derived.get("standing", sources, lambda: _standing(columns, minute, decay))


def _standing(columns: Columns, now_ms: int, decay: Decay) -> Floats:
    rows = np.empty((len(STANDING), len(columns.time)), np.float32)
    rows[0], rows[1] = columns.flags & HAS_NUMBER_OR_TIME_WORD != 0, columns.flags & IS_QUESTION != 0
    rows[2] = importance_at(columns, now_ms, decay)
    rows[3] = np.exp2(np.minimum(columns.time - now_ms, 0) / (RECENCY_DAYS * DAY_MS))
    return rows


def scaled_text(text: Floats, best: float, out: Floats | None = None) -> Floats:
    """BM25 as a part of the best that matched, 0..1."""
    scaled: Floats = np.multiply(text, np.float32(1 / max(best, TINY)), out=out)
    np.minimum(scaled, 1, out=scaled)
    return scaled


def base_score(near: Floats, words: Floats, columns: Columns) -> Floats:
    """0..1: scaled cosine, with a part of the neighbours', and BM25 as a part of the best, in equal parts."""
    around = _around(columns)
    score: Floats = np.add.reduce(around.each(near, around.vector), axis=0)
    score += near * np.float32(_OWN_VECTOR)
    score += words * np.float32(0.5)
    return score


def bm25(columns: Columns) -> Floats:
    """BM25 (Robertson & Zaragoza 2009, with Lucene's idf) within the scope; half of the neighbours' terms count too."""
    weight = np.array(_term_weights(columns), np.float32)[:, np.newaxis]
    sources = columns.length, columns.previous, columns.following, columns.mean_length
    norm = columns.derived.get("norm", sources, lambda: _norm(columns))
    step = max(1, BLOCK // max(1, len(norm)))
    if len(weight) <= step:
        return _saturated(columns.hits, weight, norm, columns)
    score = np.zeros(len(norm), np.float32)
    for start in range(0, len(weight), step):
        score += _saturated(columns.hits[start : start + step], weight[start : start + step], norm, columns)
    return score


def _saturated(hits: Floats, weight: Floats, norm: Floats, columns: Columns) -> Floats:
    """Sum over the terms of weight * f / (f + norm), where f is how often a document and, by half, its neighbours hold
    a term."""
    occurs = _with_neighbours(hits, columns)
    occurs /= occurs + norm
    occurs *= weight
    score: Floats = np.add.reduce(occurs, axis=0)
    return score


def most_text(columns: Columns) -> float:
    """What BM25 cannot exceed: every term of the query, without end."""
    return sum(_term_weights(columns))


def _term_weights(columns: Columns) -> list[float]:
    """One by one: a query has a handful of terms."""

    def weigh() -> list[float]:
        return [(BM25_K1 + 1) * math.log1p((columns.count - df + 0.5) / (df + 0.5)) for df in columns.df.tolist()]

    return columns.derived.get("term weights", (columns.df, columns.count), weigh)


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


_OWN_VECTOR = 0.5 / (1 + 2 * NEIGHBOUR_VECTOR)


class _Around:
    """Who stands before and after each document, (2, n), and how much each of the two counts: nothing where there is
    none, whose index, -1, wraps to the last document."""

    def __init__(self, previous: Ints, following: Ints) -> None:
        self._beside = np.array((previous, following))
        self.whole = (self._beside >= 0).astype(np.float32)
        self.terms = self.whole * np.float32(NEIGHBOUR_TERMS)
        self.vector = self.whole * np.float32(_OWN_VECTOR * NEIGHBOUR_VECTOR)

    def each(self, values: Floats, counts: Floats) -> Floats:
        """(…, 2, n) of values (…, n)."""
        found: Floats = values.take(self._beside, axis=-1, mode="wrap")
        found *= counts
        return found


def _around(columns: Columns) -> _Around:
    sources = columns.previous, columns.following
    return columns.derived.get("around", sources, lambda: _Around(*sources))


def _better_neighbour(values: Floats, columns: Columns, out: Floats) -> None:
    """The larger of both neighbours' values, which are not negative; 0 without any."""
    around = _around(columns)
    np.maximum.reduce(around.each(values, around.whole), axis=0, out=out)


def _with_neighbours(values: Floats, columns: Columns) -> Floats:
    around = _around(columns)
    total: Floats = np.add.reduce(around.each(values, around.terms), axis=-2)
    total += values
    return total


def _by_vector(columns: Columns, among: Bools, pool: Floats, least_spread: float, near: Floats, ranks: Floats) -> None:
    """Into `near` the cosines, clipped to 0..1 between the least and the largest `among` them (1 for one value alone);
    into `ranks` 1 / (offset + how many of those are larger), for the first of them, else 0: equal values have equal
    ranks. `pool` is the cosines of `among`: the very array where that is all of them."""
    values, whole = columns.cosine, pool is columns.cosine
    if not len(pool):
        near[:] = ranks[:] = 0
        return
    few = len(pool) <= RANK_DEPTH
    first = pool.copy() if few else np.partition(pool, -RANK_DEPTH)[-RANK_DEPTH:]
    first.sort()
    high = float(first[-1])
    low = min(float(first[0] if few else np.minimum.reduce(pool)), high - least_spread)
    _scaled(values, low, high, whole, near)
    if whole and few:
        np.reciprocal(RANK_OFFSET + len(first) - first.searchsorted(values, side="right"), dtype=np.float32, out=ranks)
        return
    ranks[:] = 0
    index = np.flatnonzero(among & (values >= first[0]))
    ranks[index] = 1 / (RANK_OFFSET + len(first) - first.searchsorted(values[index], side="right"))


def _scaled(values: Floats, low: float, high: float, within: bool, out: Floats) -> None:
    """`within`: no value is less than `low`."""
    if high - low < TINY:
        np.greater_equal(values, np.float32(low), out=out)
        return
    np.subtract(values, np.float32(low), out=out)
    out *= np.float32(1 / (high - low))
    if not within:
        np.maximum(out, 0, out=out)
    np.minimum(out, 1, out=out)


def _best_of_session(score: Floats, columns: Columns, out: Floats) -> None:
    """Score of the best document of each one's session; without a session its own class, that of -1."""
    session = columns.session
    classes = columns.derived.get("sessions", (session,), lambda: int(session.max(initial=-1)) + 2)
    best = np.zeros(classes, np.float32)
    np.maximum.at(best, session, score)
    best.take(session, mode="wrap", out=out)
