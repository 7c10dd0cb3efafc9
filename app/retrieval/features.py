"""The kinds of documents that the ranking distinguishes, and its features: pure functions of columns, query and time.

Kinds are masks of shape (n,) over the documents of a scope: plain memories and turns of an assistant (the others are
turns of a person) and, across these, questions and turns that answer nothing (echoes and fillers).

Formulas: docs/contributing/ranking.md. No function uses a matrix product: BLAS rounds by position, and equal documents
must get equal numbers at every position.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.retrieval.decay import DAY_MS, DEFAULT_DECAY, DecayCurve, DecayedImportance
from app.retrieval.query import SettledQuery
from app.storage.search import Bools, Columns, Floats, Ints
from app.storage.text import (
    DATE_TERMS,
    HAS_EVENT_TIME,
    HAS_NUMBER_OR_TIME_WORD,
    IS_QUESTION,
    SAID_BY_ASSISTANT,
    name_id,
)

_ASSISTANT = name_id("assistant")
SHORT_QUESTION = 12
"""Maximum terms of a question that states nothing beside what it asks."""
SHORT_TURN, SHORT_REPLY = 4, 10
"""Maximum terms of a turn, and of an assistant's turn, that may say nothing.

In Chinese 10 terms are five or six characters.
"""


def plain_memories(columns: Columns) -> Bools:
    """Returns the mask of documents that belong to no conversation: they have no session, or nobody says them."""
    return columns.derived.get(
        "plain", (columns.session, columns.speaker), lambda: (columns.session < 0) | (columns.speaker == 0)
    )


MaskOrShare: TypeAlias = Bools | float
"""The mask of plain memories, or one number for all documents: 1.0 if all are plain, 0.0 if none is."""


def plain_or_all(columns: Columns) -> MaskOrShare:
    """Returns `plain_memories`, or one number if all documents are alike."""
    plain = plain_memories(columns)
    return columns.derived.get(
        "plain or all", (plain,), lambda: plain if len(np.unique(plain)) != 1 else float(plain[0])
    )


def assistants(columns: Columns) -> Bools:
    """Returns the mask of turns of an assistant that has no name of its own."""
    plain = plain_memories(columns)
    return columns.derived.get(
        "assistants",
        (plain, columns.flags, columns.speaker),
        lambda: ~plain & (columns.flags & SAID_BY_ASSISTANT != 0) & (columns.speaker == _ASSISTANT),
    )


def questions(columns: Columns) -> Bools:
    """Returns the mask of turns that are questions."""
    plain = plain_memories(columns)
    return columns.derived.get("questions", (plain, columns.flags), lambda: ~plain & (columns.flags & IS_QUESTION != 0))


@dataclass(frozen=True, slots=True)
class TurnKinds:
    """Query-independent properties of turns that may answer nothing."""

    short_questions: Bools
    short: Ints
    """Indices of turns of a few terms, without a number or a time."""
    asking: Ints
    """Indices of `questions`."""
    per_length: Floats
    """1 / the number of terms of each of them, without those of its date."""


def turn_kinds(columns: Columns) -> TurnKinds:
    """Returns the turn kinds of a scope. They are computed once for the same columns."""

    def compute() -> TurnKinds:
        flags, question = columns.flags, questions(columns)
        own = columns.length - np.float32(DATE_TERMS) * (flags & HAS_EVENT_TIME != 0)
        few = own <= np.where(assistants(columns), SHORT_REPLY, SHORT_TURN)
        short = np.flatnonzero(~plain_memories(columns) & few & (flags & HAS_NUMBER_OR_TIME_WORD == 0))
        asking = np.flatnonzero(question)
        per_length = np.reciprocal(np.maximum(own[asking], 1), dtype=np.float32)
        return TurnKinds(question & (own <= SHORT_QUESTION), short, asking, per_length)

    sources = columns.session, columns.speaker, columns.flags, columns.length
    return columns.derived.get("turns", sources, compute)


def echoes(columns: Columns, nearest: float) -> Ints:
    """Returns the indices of questions in conversations that ask what the query asks. The share of common words is not
    weighed by idf: the more often a question was asked, the less its words would count."""
    turns = turn_kinds(columns)
    is_echo = columns.cosine >= np.float32(nearest)
    is_echo &= turns.short_questions
    share_of_question = np.add.reduce(columns.term_counts[:, turns.asking], axis=0) * turns.per_length
    alike = share_of_question >= np.float32(0.6)
    at, share_of_question = turns.asking[alike], share_of_question[alike]
    if len(at):
        share_of_query = np.count_nonzero(columns.term_counts[:, at], axis=0) / len(columns.term_counts)
        nothing_else = (share_of_query >= 0.6) & (share_of_question >= 0.75)
        is_echo[at] |= nothing_else | turns.short_questions[at] & (share_of_query >= 0.8)
    indices: Ints = is_echo.nonzero()[0]
    return indices


def fillers(columns: Columns) -> Ints:
    """Returns the indices of turns that say no more than "Noted." or "Of course I do!": of a few words, hardly any of
    which are in the query."""
    short = turn_kinds(columns).short
    if not len(short):
        return short
    indices: Ints = short[3 * np.count_nonzero(columns.term_counts[:, short], axis=0) <= len(columns.term_counts)]
    return indices


# --- Features ---------------------------------------------------------------------------------------------------------

QUERY_FEATURES = (
    "vector_scaled",
    "text_scaled",
    "vector_rank",
    "coverage",
    "repeats",
    "speaker",
    "session",
    "neighbour",
)
"""Features that depend on the query."""
DOCUMENT_FEATURES = ("number", "question", "length", "long_question", "importance", "recency")
"""Features that do not depend on the query."""
FEATURES = QUERY_FEATURES + DOCUMENT_FEATURES

Number = TypeVar("Number", np.float32, np.bool_)
DocumentIndex: TypeAlias = Bools | EllipsisType
"""An index of some documents in an array over all: their mask, or `...` for all of them."""

BM25_K1 = 0.9
BM25_B = 0.4
NEIGHBOUR_TERMS = 0.5
"""Weight of the neighbours' terms and lengths; a turn's own terms weigh 1."""
NEIGHBOUR_VECTOR = 0.3
"""Weight of the neighbours' cosines; a turn's own cosine weighs 1."""
MOST_REPEATED = 0.09
"""The most that a repeated word adds to `repeats`, in units of what it adds to `coverage`: a document never loses by
having a word of the query. No weight of `repeats` is more than 11 times that of `coverage`."""
SHORT_TEXT = 6
"""Minimum length, in terms, that a text counts with when the query terms that it repeats are counted."""
FEW_TERMS = 4
"""Minimum number of terms that a query counts with when repeated terms are counted.

A short text that repeats one or two words of the query does not ask the same. SHORT_TEXT is the like for texts.
"""
WORDS_OF_NEGATION = 0.4
"""The part of their weight that the words of a negated question lose."""
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


def query_features(columns: Columns, query: SettledQuery, text: Floats) -> Floats:
    """Returns the features that depend on the query, shape (QUERY_FEATURES, n). `text` is `bm25(columns)`.

    Scales come from the documents that matched, so other documents cannot change them. Cosines that lie within
    `LEAST_SPREAD` are not stretched to the whole scale.

    Of a query without a subject all features are 0: its words and its vector tell nothing about the memories.
    """
    if not query.subject:
        return np.zeros((len(QUERY_FEATURES), len(text)), np.float32)
    rows = np.empty((len(QUERY_FEATURES), len(text)), np.float32)
    # `QUERY_FEATURES` in their order, as views: each is written in place
    near, words, by_rank, covered, repeated, spoken, session, neighbour = rows
    arrays, (weights, total) = neighbour_arrays(columns), term_weights(columns)
    seen = columns.matched & columns.has_vector
    all_seen = index_of(seen) is ...
    _by_vector(columns, seen, near, by_rank, is_all=all_seen)
    best = largest(text if all_seen else text[columns.matched])
    scaled_text(text, best, out=words)
    if not all_seen:
        near *= columns.has_vector
    np.add.reduce((columns.term_counts > 0) * weights, axis=0, out=covered)
    # the words of "Which herbs does she not like?" stand in "Likes mint" rather than in "Hates cilantro"
    telling = np.float32(1 - query.negation * WORDS_OF_NEGATION)
    covered *= telling / max(total, TINY)
    words *= telling
    # an answer holds the identifier that was asked for: that is no repetition of the question
    repeating, gained = columns.term_counts, weights * np.float32(MOST_REPEATED / max(total, TINY))
    if query.exact is not None:
        repeating, gained = repeating[~query.exact], gained[~query.exact]
    repeating = repeating * (arrays.per_length * np.float32(1 / max(len(repeating), FEW_TERMS)))
    np.minimum(repeating, gained, out=repeating)
    np.add.reduce(repeating, axis=0, out=repeated)
    spoken[:] = columns.speaker == (query.speaker or -1)
    share = math.sqrt(best / max(total, TINY))
    # in a script that the model does not know, one character of ten is no sign that a document is about the query
    base = base_score(near, words * np.float32(1 + query.foreign * (share - 1)) if query.foreign else words, arrays)
    words *= share
    best_of_occasion = np.zeros(arrays.occasions, np.float32)
    np.maximum.at(best_of_occasion, arrays.occasion, base)
    best_of_occasion.take(arrays.occasion, out=session, mode="clip")
    before, after = arrays.neighbours(base, arrays.exists)
    np.maximum(before, after, out=neighbour)
    return rows


def document_features(columns: Columns, now_ms: int, decay: DecayCurve = DEFAULT_DECAY) -> Floats:
    """Returns the features that do not depend on the query, shape (DOCUMENT_FEATURES, n).

    They are computed once a minute, as of the start of the minute. Decay takes weeks.
    """
    minute = now_ms - now_ms % MINUTE_MS

    def compute() -> Floats:
        rows = np.empty((len(DOCUMENT_FEATURES), len(columns.time)), np.float32)
        number, question, length, long_question, importance, recency = rows  # views, as above
        number[:], question[:] = columns.flags & HAS_NUMBER_OR_TIME_WORD != 0, columns.flags & IS_QUESTION != 0
        length[:] = np.log1p(columns.length) / LONG_TEXT
        np.multiply(question, length, out=long_question)
        importance[:] = importance_at(columns, minute, decay)
        recency[:] = np.exp2(np.minimum(columns.time - minute, 0) / (RECENCY_DAYS * DAY_MS))
        return rows

    sources = columns.flags, columns.base_importance, columns.anchor, columns.pinned, columns.time, decay, minute
    return columns.derived.get("document features", sources, compute)


def scaled_text(text: Floats, best: float, out: Floats | None = None) -> Floats:
    """Returns BM25 as a fraction of `best`, the largest value of the documents that matched, clipped to 1."""
    scaled: Floats = np.multiply(text, 1 / max(best, TINY), out=out)
    np.minimum(scaled, ONE, out=scaled)
    return scaled


def base_score(near: Floats, words: Floats, arrays: "NeighbourArrays") -> Floats:
    """Returns a score in 0..1: half is the scaled cosine with a part of the neighbours', half is BM25 as a fraction of
    the best."""
    before, after = arrays.neighbours(near, arrays.vector_weights)
    score: Floats = before + after
    score += near * _OWN_VECTOR
    score += words * _TEXT
    return score


def bm25(columns: Columns) -> Floats:
    """Returns BM25 within the scope, shape (n,); terms of the neighbours count by half.

    Formula: Robertson & Zaragoza 2009, with Lucene's idf.
    """
    weights, _ = term_weights(columns)
    arrays = neighbour_arrays(columns)
    step = max(1, BLOCK // max(1, len(arrays.norm)))
    if len(weights) <= step:
        return _saturated(columns.term_counts, weights, arrays)
    score = np.zeros(len(arrays.norm), np.float32)
    for start in range(0, len(weights), step):
        score += _saturated(columns.term_counts[start : start + step], weights[start : start + step], arrays)
    return score


def _saturated(term_counts: Floats, weights: Floats, arrays: "NeighbourArrays") -> Floats:
    """Returns the sum over the terms of weight * f / (f + norm).

    f is how often a document contains a term; occurrences in its neighbours count by half.
    """
    occurs = arrays.with_neighbours(term_counts)
    occurs /= occurs + arrays.norm
    occurs *= weights
    score: Floats = np.add.reduce(occurs, axis=0)
    return score


def term_weights(columns: Columns) -> tuple[Floats, float]:
    """Returns the BM25 weight of each term, shape (terms, 1), and the sum of the weights.

    Documents of one content count once: a word does not become common by being repeated. A loop is used because a query
    has only a handful of terms. `term_counts` and `content` are read, too: `df` is a new array for each search, and so
    stands for them in the memo.
    """

    def weigh() -> tuple[Floats, float]:
        count, with_term = columns.count, columns.df
        if (groups := equal_contents(columns)) is not None:
            has_term = columns.term_counts > 0
            count -= len(groups.order) - len(groups.starts) + 1
            with_term = with_term - np.count_nonzero(has_term, axis=1) + np.count_nonzero(groups.most(has_term), axis=1)
        weights = [(BM25_K1 + 1) * math.log1p((count - df + 0.5) / (df + 0.5)) for df in with_term.tolist()]
        if columns.emphasis is not None:
            weights = [weight * factor for weight, factor in zip(weights, columns.emphasis.tolist(), strict=True)]
        return np.array(weights, np.float32).reshape(-1, 1), sum(weights)

    return columns.derived.get("term weights", (columns.df, columns.count, columns.emphasis), weigh)


@dataclass(frozen=True, slots=True)
class EqualContents:
    """Documents in the order of their contents, and where each content starts there; at last, where all end."""

    order: Ints
    starts: Ints
    code: Ints
    """The place of each document's content among `starts`."""

    def most(self, values: NDArray[Number]) -> NDArray[Number]:
        """Returns the largest value of each content, shape (…, contents), of values of shape (…, n)."""
        largest_of_each: NDArray[Number] = np.maximum.reduceat(values[..., self.order], self.starts[:-1], axis=-1)
        return largest_of_each

    def like(self, indices: Sequence[int]) -> Ints:
        """Returns the documents with the contents of these."""
        codes = {*self.code[indices].tolist()}
        return np.concatenate([self.order[self.starts[code] : self.starts[code + 1]] for code in codes])


def equal_contents(columns: Columns) -> EqualContents | None:
    """Returns the documents by content; None if all contents differ, as they mostly do."""

    def group() -> EqualContents | None:
        order = np.argsort(columns.content, kind="stable")
        ordered = columns.content[order]
        begins = np.concatenate(([True], ordered[1:] != ordered[:-1]))
        starts = np.flatnonzero(begins)
        if len(starts) >= len(order):
            return None
        code = np.empty_like(order)
        code[order] = np.cumsum(begins) - 1
        return EqualContents(order, np.append(starts, len(order)), code)

    groups: EqualContents | None = columns.derived.get("contents", (columns.content,), group)
    return groups


def importance_at(columns: Columns, now_ms: int, decay: DecayCurve = DEFAULT_DECAY) -> Floats:
    """Returns the decayed importance of each document, shape (n,)."""
    anchors = columns.base_importance, columns.anchor, columns.pinned
    fading = columns.derived.get("importance", (*anchors, decay), lambda: DecayedImportance(*anchors, decay))
    return fading.at(now_ms).astype(np.float32)


def index_of(matched: Bools) -> DocumentIndex:
    """Returns an index of what matched. It is `...` in the usual case that all matched, which avoids a copy."""
    return ... if np.count_nonzero(matched) == len(matched) else matched


def largest(values: Floats) -> float:
    """Returns the maximum, or 0 if `values` is empty.

    For a few hundred values it takes a third of the time of `maximum.reduce`.
    """
    return float(values[values.argmax()]) if len(values) else 0.0


_OWN_VECTOR = np.array(0.5 / (1 + 2 * NEIGHBOUR_VECTOR), np.float32)
_TEXT = np.array(0.5, np.float32)


class NeighbourArrays:
    """Arrays that depend only on the documents. They are cached with the columns."""

    __slots__ = ("_beside", "_terms", "exists", "norm", "occasion", "occasions", "per_length", "vector_weights")

    def __init__(self, columns: Columns) -> None:
        self._beside = np.array((columns.previous, columns.following))
        self.exists: Floats = (self._beside >= 0).astype(np.float32)
        """1 or 0, shape (2, n), for the documents before and after each one: 0 if there is none, because its index, -1,
        wraps to the last document."""
        self._terms = self.exists * np.float32(NEIGHBOUR_TERMS)
        self.vector_weights = self.exists * np.float32(0.5 / (1 + 2 * NEIGHBOUR_VECTOR) * NEIGHBOUR_VECTOR)
        norm = self.with_neighbours(columns.length) * np.float32(BM25_K1 * BM25_B / max(columns.mean_length, 1.0))
        self.norm: Floats = norm + np.float32(BM25_K1 * (1 - BM25_B))
        self.per_length: Floats = np.reciprocal(np.maximum(columns.length, SHORT_TEXT), dtype=np.float32)
        self.occasion, self.occasions = _occasions(columns)

    def neighbours(self, values: Floats, weights: Floats) -> Floats:
        """Returns the weighted values of both neighbours, shape (…, 2, n), for values of shape (…, n)."""
        beside: Floats = values.take(self._beside, axis=-1, mode="wrap")
        beside *= weights
        return beside

    def with_neighbours(self, values: Floats) -> Floats:
        """Returns the values plus `NEIGHBOUR_TERMS` times the values of both neighbours."""
        total: Floats = np.add.reduce(self.neighbours(values, self._terms), axis=-2)
        total += values
        return total


def neighbour_arrays(columns: Columns) -> NeighbourArrays:
    """Returns what the features need of lengths, sessions and neighbours. It is computed once for the same columns."""
    terms, neighbours = (columns.length, columns.mean_length), (columns.previous, columns.following)
    sources = (*terms, *neighbours, columns.session, columns.time, columns.flags)
    return columns.derived.get("neighbours", sources, lambda: NeighbourArrays(columns))


def _by_vector(columns: Columns, among: Bools, near: Floats, ranks: Floats, *, is_all: bool) -> None:
    """Writes scaled cosines into `near` and reciprocal ranks into `ranks`.

    `near`: the cosines clipped to 0..1 between the least and the largest `among` them (1 if there is only one value).
    `ranks`: 1 / (offset + how many of those are larger) for the first `RANK_DEPTH` of them, else 0; equal values have
    equal ranks. `is_all`: `among` are all documents.
    """
    values = columns.cosine
    pool = values if is_all else values[among]
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
    _scaled(values, low, high, is_all, near)
    by_place = _BY_PLACE[RANK_DEPTH - len(first) :]
    if is_all and few:
        by_place.take(first.searchsorted(values, side="right"), out=ranks, mode="clip")
        return
    ranks[:] = 0
    close = values >= first[0]
    (index,) = (close if is_all else close & among).nonzero()
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


def _occasions(columns: Columns) -> tuple[Ints, int]:
    """Returns the occasion of each document as a code, shape (n,), and the number of codes.

    An occasion is a session. Documents without a session that happened at the same time have one occasion, and each
    other document without a session has one of its own.
    """
    codes = columns.session.copy()
    count = int(codes.max(initial=-1)) + 1
    timed = np.flatnonzero((codes < 0) & (columns.flags & HAS_EVENT_TIME != 0))
    times, at = np.unique(columns.time[timed], return_inverse=True)
    codes[timed] = count + at
    alone = np.flatnonzero(codes < 0)
    codes[alone] = count + len(times) + np.arange(len(alone))
    return codes, count + len(times) + len(alone)
