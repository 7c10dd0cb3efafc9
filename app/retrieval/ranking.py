"""The ranking: a pure function of columns (of the searched documents), query, time and a few fitted numbers.

    ranked = by_features(columns, settled, "hybrid", now_ms, weights, decay)  # `settled`: a `SettledQuery`
    ranked.order[:3]  # the indices of the best documents: array([4, 0, 7])

It combines cosine and BM25 with features of the conversation. A turn gains from its neighbours (an answer needs its
question), from the best turn of its session, and from being spoken by the person that the query names. Each of three
kinds of memory has its own weights: turns of a person, turns of the assistant, and plain memories, which belong to no
conversation. The weights are fitted so that, for a query, the sum of a document's weighted features is the log of its
odds to be the answer (conditional logit, McFadden 1974). What is compared among the first hits alone follows in
`first_hits.py`; `calibration.py` converts the log-odds to a probability. In names, `odds` is short for log-odds.

Formulas, evaluation: docs/contributing/ranking.md. No function uses a matrix product: BLAS rounds by position, and
equal documents must get equal numbers at every position.
"""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import orjson
from typing_extensions import TypeAliasType

from app.retrieval.decay import DAY_MS, DEFAULT_DECAY, MINUTE_MS, DecayCurve, importances
from app.retrieval.model_weights import Foreign, Weights
from app.retrieval.query import SettledQuery
from app.retrieval.time_expressions import when, when_named
from app.storage.search import BM25_B, BM25_K1, Bools, Columns, Floats, Ints
from app.storage.text import DATE_TERMS, HAS_EVENT_TIME, HAS_NUMBER_OR_TIME_WORD, IS_QUESTION, PASSAGE, SUMMARY

SearchMode = TypeAliasType("SearchMode", Literal["hybrid", "vector", "text"])

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
COVERAGE, VECTOR_SCALED = QUERY_FEATURES.index("coverage"), QUERY_FEATURES.index("vector_scaled")

BY_HAND = frozenset({"importance", "recency"})
FITTED = tuple(name for name in FEATURES if name not in BY_HAND)
"""The features that each kind of memory has a fitted weight for (`Blend`)."""

NEIGHBOUR_TERMS = 0.5
"""Weight of the neighbours' terms and lengths; a turn's own terms weigh 1."""
NEIGHBOUR_VECTOR = 0.3
"""Weight of the neighbours' cosines; a turn's own cosine weighs 1."""
MOST_REPEATED = 0.09
"""The most that a repeated word adds to `repeats`, in units of what it adds to `coverage`: a document never loses by
having a word of the query. No weight of `repeats` is more than 11 times that of `coverage`."""
FEW_TERMS = 4
"""Minimum number of terms that a query counts with when repeated terms are counted.

A short text that repeats one or two words of the query does not ask the same.
"""
WORDS_OF_NEGATION = 0.4
"""The part of their weight that the words of a negated question lose."""
RANK_OFFSET = 10
RANK_DEPTH = 100
"""Number of documents that get a rank by vector."""
RECENCY_DAYS = 30
"""Half-life of the feature `recency`, in days."""
LEAST_SPREAD = 0.4
"""Minimum spread of cosines that is scaled to 0..1.

Among a few memories on one subject even the farthest is near.
"""
LONG_TEXT = 5
"""Divisor of the feature `length`: a text of e^5 - 1 = 147 terms has the length 1."""

ONE, ZERO = np.array(1, np.float32), np.array(0, np.float32)
"""Numbers as arrays without dimensions. They take half the time of Python numbers, which numpy converts first."""
TINY = 1e-6
BLOCK = 1 << 15
"""Numbers that are processed at once, so that they stay in the processor's cache."""

ENOUGH = 48
"""At least so many of the best are sorted: twice as many as are compared with each other."""
ORDERED_AMONG, ORDERED_WITHIN = 4, 3.0
"""Limits of the part `latest`: it orders by time so many of the best, within so many log-odds of the best one."""
ORDERED_NEAR = 0.9
"""The least scaled cosine of a document that `latest` orders without a word of the query."""
OTHER_READING = 0.5
"""What the time counts of the reading that is less likely: asked on Monday "What is on Friday?", last Friday."""
SHORT_QUESTION = 12
"""Maximum terms of a question that states nothing beside what it asks."""
SHORT_TURN, SHORT_REPLY = 4, 10
"""Maximum terms of a turn, and of an assistant's turn, that may say nothing.

In Chinese 10 terms are five or six characters.
"""
SAME_QUESTION = 0.97
"""The least cosine of a longer question that the query repeats."""
FILLER_SHARE = 3
"""A filler has at most one in so many of the query's words: "Jazz, of course!" has one of the three of "Who plays jazz
on Sunday?" (play, jazz, sunday)."""


@dataclass(slots=True)  # not frozen, for speed: each search creates one
class Ranked:
    """A ranking."""

    order: Ints
    """Indices of the hits, best first."""
    score: Floats
    """(n,): the score of each document. In a hybrid search log-odds, until the retriever makes them `probabilities`."""
    other_parts: dict[str, Floats]
    """By name, each of shape (n,): `vector` and `text`, the cosine and BM25 as they are, which a hybrid score has only
    scaled; and the parts of the score that not every query has: `echo`, `filler`, `when`, `latest`, `first`."""
    query_features: Floats | None = None
    """(QUERY_FEATURES, n); None unless the mode is hybrid."""
    document_features: Floats | None = None
    """(DOCUMENT_FEATURES, n); None unless the mode is hybrid."""

    @property
    def parts(self) -> dict[str, Floats]:
        """The features and the `other_parts`, by name."""
        if self.query_features is None or self.document_features is None:
            return self.other_parts
        rows = *self.query_features, *self.document_features
        return {**self.other_parts, **dict(zip(FEATURES, rows, strict=True))}


def by_features(
    columns: Columns,
    settled: SettledQuery,
    mode: SearchMode,
    now_ms: int,
    weights: Weights,
    decay: DecayCurve,
    readings: Sequence[tuple[int, int]] = (),
    k: int | None = None,
) -> Ranked:
    """Ranks the documents that matched: all, or so many of the best that at least `k` have distinct contents.
    `readings`: the milliseconds that the query names (`TimeInterval.readings`).

    Scores: `vector` the cosine (documents without a vector are left out), `text` BM25 (documents without any of the
    terms are left out), `hybrid` log-odds, no document is left out: `first_hits.py` and `calibration.py` do the rest.
    Equal scores are ordered by time, newest first, then by engine handle.
    """
    matched = columns.matched
    if mode == "vector":
        order = _sorted(columns, columns.cosine, matched & columns.has_vector, k)
        return Ranked(order, columns.cosine, {"vector": columns.cosine})
    text = bm25(columns)
    if mode == "text":
        return Ranked(_sorted(columns, text, matched & (columns.term_counts > 0).any(axis=0), k), text, {"text": text})
    of_query = query_features(columns, settled, text)
    of_documents = document_features(columns, now_ms, decay)
    odds, other_parts = log_odds(columns, settled, of_query, of_documents, weights, readings)
    order = _sorted(columns, odds, matched, k)
    return Ranked(order, odds, {"vector": columns.cosine, "text": text, **other_parts}, of_query, of_documents)


# --- BM25 -------------------------------------------------------------------------------------------------------------


def bm25(columns: Columns) -> Floats:
    """Returns BM25 among the searched documents, shape (n,); terms of the neighbours count by half.

    It is the sum over the terms of weight * f / (f + norm); f is how often a document contains a term. Formula:
    Robertson & Zaragoza 2009, with Lucene's idf.
    """
    of_terms, _ = term_weights(columns)
    arrays = document_arrays(columns)
    step, score = max(1, BLOCK // max(1, len(arrays.norm))), np.zeros(len(arrays.norm), np.float32)
    for start in range(0, len(of_terms), step):  # [0] unless there are many documents
        occurs = arrays.with_neighbours(columns.term_counts[start : start + step])
        saturated = occurs + arrays.norm
        np.divide(occurs, saturated, out=saturated)
        saturated *= of_terms[start : start + step]
        score += np.add.reduce(saturated, axis=0)
    return score


def term_weights(columns: Columns) -> tuple[Floats, float]:
    """Returns the BM25 weight of each term, shape (terms, 1), and the sum of the weights.

    Documents of one content count once: a word does not become common by being repeated. A loop is used because a query
    has only a handful of terms. `term_counts` and `content` are read, too: `df` is a new array for each search, and so
    stands for them in the memo.
    """

    def weigh() -> tuple[Floats, float]:
        count, with_term = columns.count, columns.df
        if (groups := columns.contents) is not None:
            has_term = columns.term_counts > 0
            count -= len(groups.order) - len(groups.starts) + 1
            with_term = with_term - np.count_nonzero(has_term, axis=1) + np.count_nonzero(groups.most(has_term), axis=1)
        weights = [(BM25_K1 + 1) * math.log1p((count - df + 0.5) / (df + 0.5)) for df in with_term.tolist()]
        if columns.emphasis is not None:
            weights = [weight * factor for weight, factor in zip(weights, columns.emphasis.tolist(), strict=True)]
        return np.array(weights, np.float32).reshape(-1, 1), sum(weights)

    return columns.memo.get("term weights", (columns.df, columns.count, columns.emphasis), weigh)


def word_weights(columns: Columns, settled: SettledQuery) -> dict[int, float]:
    """Returns the weight of each word of the query, without its emphasis. Of an identifier the parts have one, "lh" and
    "1234", and the term of the whole, "lh1234", has none."""
    of_terms, _ = term_weights(columns)
    of_words = of_terms[:, 0] if columns.emphasis is None else of_terms[:, 0] / columns.emphasis
    by_term = zip(settled.terms.tolist(), of_words.tolist(), strict=True)
    return {term: weight for term, weight in by_term if term not in settled.identifiers}


class DocumentArrays:
    """Arrays that depend only on the documents: of neighbours, of lengths, of occasions. They are cached with the
    columns."""

    def __init__(self, columns: Columns) -> None:
        self._beside = np.array((columns.previous, columns.following))
        self.exists: Floats = (self._beside >= 0).astype(np.float32)
        """1 or 0, shape (2, n), for the documents before and after each one: 0 if there is none, because its index, -1,
        wraps to the last document."""
        self.linked = bool(self.exists.any())
        """Whether any document has a neighbour: plain memories have none."""
        self._terms = self.exists * np.float32(NEIGHBOUR_TERMS)
        self.vector_weights = self.exists * np.float32(0.5 / (1 + 2 * NEIGHBOUR_VECTOR) * NEIGHBOUR_VECTOR)
        norm = self.with_neighbours(columns.length) * np.float32(BM25_K1 * BM25_B / max(columns.mean_length, 1.0))
        self.norm: Floats = norm + np.float32(BM25_K1 * (1 - BM25_B))
        self.per_length: Floats = np.reciprocal(np.maximum(columns.length, 1), dtype=np.float32)
        # the occasion of each document as a code: its session; documents without a session that happened at the same
        # time have one occasion, and each other document without a session has one of its own
        codes = columns.session.copy()
        count = int(codes.max(initial=-1)) + 1
        timed = np.flatnonzero((codes < 0) & (columns.flags & HAS_EVENT_TIME != 0))
        times, code_of_time = np.unique(columns.time[timed], return_inverse=True)
        codes[timed] = count + code_of_time
        alone = np.flatnonzero(codes < 0)
        codes[alone] = count + len(times) + np.arange(len(alone))
        self.occasion, self.occasions = codes, count + len(times) + len(alone)
        self.joined = len(np.unique(codes)) < len(codes)
        """Whether any documents share an occasion."""

    def neighbours(self, values: Floats, weights: Floats) -> Floats:
        """Returns the weighted values of both neighbours, shape (…, 2, n), for values of shape (…, n)."""
        beside: Floats = values.take(self._beside, axis=-1, mode="wrap")
        beside *= weights
        return beside

    def with_neighbours(self, values: Floats) -> Floats:
        """Returns the values plus `NEIGHBOUR_TERMS` times those of both neighbours; never changes them in place."""
        if not self.linked:
            return values
        total: Floats = np.add.reduce(self.neighbours(values, self._terms), axis=-2)
        total += values
        return total


def document_arrays(columns: Columns) -> DocumentArrays:
    """Returns what the features need of lengths, sessions and neighbours. It is computed once for the same columns."""
    terms, neighbours = (columns.length, columns.mean_length), (columns.previous, columns.following)
    sources = (*terms, *neighbours, columns.session, columns.time, columns.flags)
    return columns.memo.get("document arrays", sources, lambda: DocumentArrays(columns))


# --- Features ---------------------------------------------------------------------------------------------------------


def query_features(columns: Columns, settled: SettledQuery, text: Floats) -> Floats:
    """Returns the features that depend on the query, shape (QUERY_FEATURES, n). `text` is `bm25(columns)`.

    Scales come from the documents that matched, so other documents cannot change them. Cosines that lie within
    `LEAST_SPREAD` are not stretched to the whole scale.

    Of a query without a subject all features are 0: its words and its vector tell nothing about the memories.
    """
    if not settled.subject:
        return np.zeros((len(QUERY_FEATURES), len(text)), np.float32)
    rows = np.empty((len(QUERY_FEATURES), len(text)), np.float32)
    # `QUERY_FEATURES` in their order, as views: each is written in place
    vector_scaled, text_scaled, vector_rank, coverage, repeats, speaker, session, neighbour = rows
    arrays, (of_terms, total) = document_arrays(columns), term_weights(columns)
    with_vector = columns.matched & columns.has_vector
    all_comparable = np.count_nonzero(with_vector) == len(with_vector)  # each document matched and has a vector
    _by_vector(columns, with_vector, vector_scaled, vector_rank, is_all=all_comparable)
    best = largest(text if all_comparable else text[columns.matched])
    np.multiply(text, 1 / max(best, TINY), out=text_scaled)
    if not all_comparable:
        np.minimum(text_scaled, ONE, out=text_scaled)
        vector_scaled *= columns.has_vector
    np.add.reduce((columns.term_counts > 0) * of_terms, axis=0, out=coverage)
    # the words of "Which herbs does she not like?" stand in "Likes mint" rather than in "Hates cilantro"
    kept_weight = 1 - settled.negation * WORDS_OF_NEGATION
    coverage *= kept_weight / max(total, TINY)
    if settled.negation:
        text_scaled *= kept_weight
    # an answer holds the identifier that was asked for: that is no repetition of the question
    repeating, gained = columns.term_counts, of_terms * np.float32(MOST_REPEATED / max(total, TINY))
    if settled.exact is not None:
        repeating, gained = repeating[~settled.exact], gained[~settled.exact]
    repeating = repeating * (arrays.per_length * np.float32(1 / max(len(repeating), FEW_TERMS)))
    np.minimum(repeating, gained, out=repeating)
    np.add.reduce(repeating, axis=0, out=repeats)
    speaker[:] = columns.speaker == settled.speaker if settled.speaker else 0
    # BM25 as a fraction of the best, times this, lies halfway between the fraction of the best (1 for the best one,
    # however little it has) and that of all weights: 0.5 for the best one where it has a quarter of them
    share = math.sqrt(best / max(total, TINY))
    # in a script that the model does not know, one character of ten is no sign that a document is about the query
    of_words = text_scaled * np.float32(1 + settled.foreign * (share - 1)) if settled.foreign else text_scaled
    base = base_score(vector_scaled, of_words, arrays)
    text_scaled *= share
    if arrays.joined:
        best_of_occasion = np.zeros(arrays.occasions, np.float32)
        np.maximum.at(best_of_occasion, arrays.occasion, base)
        best_of_occasion.take(arrays.occasion, out=session, mode="clip")
    else:
        session[:] = base
    if arrays.linked:
        before, after = arrays.neighbours(base, arrays.exists)
        np.maximum(before, after, out=neighbour)
    else:
        neighbour[:] = 0
    return rows


def _by_vector(columns: Columns, among: Bools, scaled: Floats, ranks: Floats, *, is_all: bool) -> None:
    """Writes scaled cosines into `scaled` and reciprocal ranks into `ranks`.

    `scaled`: the cosines clipped to 0..1 between the least and the largest `among` them (1 if there is only one value).
    `ranks`: 1 / (offset + how many of those are larger) for the first `RANK_DEPTH` of them, else 0; equal values have
    equal ranks. `is_all`: `among` are all documents.
    """
    values = columns.cosine
    pool = values if is_all else values[among]
    if not len(pool):
        scaled[:] = ranks[:] = 0
        return
    leading = pool.copy()
    few = len(pool) <= RANK_DEPTH
    if not few:
        leading.partition(len(pool) - RANK_DEPTH)
        leading = leading[-RANK_DEPTH:]
    leading.sort()
    high = float(leading[-1])
    low = min(float(leading[0] if few else pool[pool.argmin()]), high - LEAST_SPREAD)
    np.subtract(values, low, out=scaled)
    scaled *= 1 / (high - low)
    if not is_all:
        np.maximum(scaled, ZERO, out=scaled)
    np.minimum(scaled, ONE, out=scaled)
    by_place = _BY_PLACE[RANK_DEPTH - len(leading) :]
    ranks[:] = 0
    close = values >= leading[0]
    (index,) = (close if is_all else close & among).nonzero()
    ranks[index] = by_place.take(leading.searchsorted(values[index], side="right"))


_BY_PLACE = np.reciprocal(RANK_OFFSET + RANK_DEPTH - np.arange(RANK_DEPTH + 1), dtype=np.float32)
"""1 / (offset + how many of the first RANK_DEPTH values are larger), indexed by how many of them are not larger."""
_OWN_VECTOR = np.array(0.5 / (1 + 2 * NEIGHBOUR_VECTOR), np.float32)
_TEXT = np.array(0.5, np.float32)


def base_score(vector_scaled: Floats, words: Floats, arrays: DocumentArrays) -> Floats:
    """Returns a score in 0..1: half is the scaled cosine with a part of the neighbours', half is BM25 as a fraction of
    the best."""
    score: Floats = vector_scaled * _OWN_VECTOR
    if arrays.linked:
        before, after = arrays.neighbours(vector_scaled, arrays.vector_weights)
        score += before + after
    score += words * _TEXT
    return score


def largest(values: Floats) -> float:
    """Returns the maximum, or 0 if `values` is empty.

    For a few hundred values it takes a third of the time of `maximum.reduce`.
    """
    return float(values[values.argmax()]) if len(values) else 0.0


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
    return columns.memo.get("document features", sources, compute)


def importance_at(columns: Columns, now_ms: int, decay: DecayCurve = DEFAULT_DECAY) -> Floats:
    """Returns the decayed importance of each document, shape (n,)."""
    return importances(columns.base_importance, columns.anchor, now_ms, columns.pinned, decay).astype(np.float32)


# --- The log-odds -----------------------------------------------------------------------------------------------------


def log_odds(
    columns: Columns,
    settled: SettledQuery,
    of_query: Floats,
    of_documents: Floats,
    weights: Weights,
    readings: Sequence[tuple[int, int]],
) -> tuple[Floats, dict[str, Floats]]:
    """Returns the log-odds of each document, shape (n,), relative to the others, and the parts that not every query
    has."""

    def apart_from_query() -> tuple[Floats, Floats]:
        query_weights, document_weights, base = weight_columns(columns, weights)
        return query_weights, np.add.reduce(of_documents * document_weights, axis=0) + base

    sources = columns.session, columns.speaker, columns.flags, of_documents, weights
    query_weights, odds_of_documents = columns.memo.get("odds of documents", sources, apart_from_query)
    odds: Floats = np.add.reduce(of_query * query_weights, axis=0)
    odds += odds_of_documents
    if settled.foreign:
        change = foreign_weights(query_weights, weights.foreign) - query_weights
        odds += np.float32(settled.foreign) * np.add.reduce(of_query * change, axis=0)
    other_parts: dict[str, Floats] = {}
    for name, weight, indices in (
        ("echo", weights.echo, echoes(columns, weights.echo_cosine)),
        ("filler", weights.filler, fillers(columns)),
    ):
        if len(indices):
            other_parts[name] = np.zeros(len(odds), np.float32)
            other_parts[name][indices] = 1
            odds[indices] += np.float32(weight)
    if readings:
        starts = columns.time if columns.starts is None else columns.starts
        fits = [when(starts, reading, columns.ends) for reading in readings]
        other_parts["when"] = np.maximum(fits[0], fits[-1] if len(fits) == 1 else fits[-1] * np.float32(OTHER_READING))
        if columns.named is not None:  # "The visa expires on April 13, 2029" is of that day, whenever it was said
            other_parts["when"][when_named(columns.named, readings[0])] = 1
        odds += np.float32(weights.when) * other_parts["when"]
    if settled.order is not None:
        other_parts["latest"] = _latest(columns, settled, of_query, odds, other_parts, weights.latest)
        odds += np.float32(weights.latest) * other_parts["latest"]
    return odds, other_parts


def weight_columns(columns: Columns, weights: Weights) -> tuple[Floats, Floats, Floats]:
    """Returns the weights of the query's features, of the documents' features, and of the kind of each document, shapes
    (QUERY_FEATURES, n or 1), (DOCUMENT_FEATURES, n or 1), (n or 1,): one column if all documents are plain."""
    plain, kinds = columns.plain, (weights.person, weights.assistant, weights.plain)
    kind_of = np.where(plain, 2, np.where(columns.assistants, 1, 0))
    by_hand = {"importance": weights.importance, "recency": weights.recency}
    rows = [[by_hand[name] if name in by_hand else getattr(kind, name) for kind in kinds] for name in FEATURES]
    by_kind = np.array(rows, np.float32)
    base = np.array([kind.base for kind in kinds], np.float32)
    by_type = np.float32(weights.summary) * (columns.flags & SUMMARY != 0)
    passages = columns.flags & PASSAGE != 0
    by_type += np.float32(of_passages(len(passages), int(np.count_nonzero(passages)), weights)) * passages
    count = len(QUERY_FEATURES)
    if plain.all():
        return by_kind[:count, 2:], by_kind[count:, 2:], base[2:] + by_type
    by_document = np.ascontiguousarray(by_kind[:, kind_of])
    return by_document[:count], by_document[count:], base[kind_of] + by_type


def of_passages(count: int, passages: int, weights: Weights) -> float:
    """Returns the log-odds of a passage of a document, before a query is known, among `count` documents of
    which so many are passages.

    Of 2,000 passages some are near to any question, and each is as much less likely to be what is asked for as there
    are more of them than of memories: `of_passages(2_100, 2_000, weights)` is log(100 / 2,000) − 1.4, that of a note of
    three passages beside 97 memories 0. At least it is `least_passage`: a person of two memories has the manual, too.
    """
    if not passages:
        return 0.0
    odds = math.log(max(count - passages, 1) / passages) + weights.passage
    return max(min(odds, 0.0), weights.least_passage)


def foreign_weights(query_weights: Floats, foreign: Foreign) -> Floats:
    """Returns the weights of `QUERY_FEATURES`, in the shape of `query_weights`, for a script that the model does not
    support."""
    changed = query_weights.copy()
    changed[VECTOR_SCALED] = foreign.vector_scaled
    changed[QUERY_FEATURES.index("vector_rank")] = 0
    changed[QUERY_FEATURES.index("text_scaled")] += np.float32(foreign.text_scaled)
    changed[QUERY_FEATURES.index("repeats")] += np.float32(foreign.repeats)
    return changed


class TurnKinds(NamedTuple):
    """Query-independent properties of turns that may answer nothing."""

    short: Ints
    """Indices of turns of a few terms, without a number or a time."""
    asking: Ints
    """Indices of `Columns.questions`."""
    brief: Bools
    """Which of those are no longer than a `SHORT_QUESTION`."""


def turn_kinds(columns: Columns) -> TurnKinds:
    """Returns the turn kinds of the searched documents. They are computed once for the same columns."""

    def compute() -> TurnKinds:
        flags, question = columns.flags, columns.questions
        own_terms = columns.length - np.float32(DATE_TERMS) * (flags & HAS_EVENT_TIME != 0)
        few = own_terms <= np.where(columns.assistants, SHORT_REPLY, SHORT_TURN)
        short = np.flatnonzero(~columns.plain & few & (flags & HAS_NUMBER_OR_TIME_WORD == 0))
        asking = np.flatnonzero(question)
        return TurnKinds(short, asking, own_terms[asking] <= SHORT_QUESTION)

    sources = columns.session, columns.speaker, columns.flags, columns.length
    return columns.memo.get("turns", sources, compute)


def echoes(columns: Columns, nearest: float) -> Ints:
    """Returns the indices of questions in conversations that ask what the query asks: short ones that are near to it,
    and longer ones that it repeats."""
    turns = turn_kinds(columns)
    cosine = columns.cosine.take(turns.asking)
    asking_again: Ints = turns.asking[(cosine >= SAME_QUESTION) | (turns.brief & (cosine >= nearest))]
    return asking_again


def fillers(columns: Columns) -> Ints:
    """Returns the indices of turns that say no more than "Noted." or "Of course I do!": of a few words, hardly any of
    which are in the query."""
    short = turn_kinds(columns).short
    if not len(short):
        return short
    has = columns.term_counts.take(short, axis=1) > 0
    indices: Ints = short[FILLER_SHARE * np.add.reduce(has, axis=0) <= len(has)]
    return indices


def has_words(columns: Columns, settled: SettledQuery) -> Bools:
    """Returns which document has which word of the query, function words apart, shape (words, n)."""
    return (columns.term_counts if settled.telling is None else columns.term_counts[settled.telling]) > 0


def says_something(other_parts: Mapping[str, Floats], among: Ints) -> Bools:
    """Returns the mask, shape (len(among),), of the documents that are neither an `echo` (a question that asks what the
    query asks) nor a `filler` ("Noted."). `among`: indices of documents."""
    stating = np.ones(len(among), np.bool_)
    for name in ("echo", "filler"):
        if name in other_parts:
            stating &= other_parts[name][among] == 0
    return stating


def _latest(
    columns: Columns,
    settled: SettledQuery,
    of_query: Floats,
    odds: Floats,
    other_parts: Mapping[str, Floats],
    weight: float,
) -> Floats:
    """Returns the part `latest`, shape (n,), between -1 and 1. It is 0 except for the best documents that state
    something, and have a word of the query or are near to it. A summary is none of them: it repeats what was said
    before, so that its time is not that of any statement in it.

    Of these it is 1 for the newest, or the oldest, whichever the query asks for. If the query asks for what holds now,
    the older ones are obsolete, and if it asks for what held before, the newer ones are no answer: theirs is negative,
    and they lose what they have more than the last of these documents, at most `weight`: of the log-odds 5, 4 (the
    newest) and 3.5 come 3.5, 6 and 3.5 by a weight of 2. Of a query without a subject all documents are as good, and
    the part halves with each step in time.
    """
    latest: Floats = np.zeros(len(odds), np.float32)
    stating = columns.matched & (columns.flags & SUMMARY == 0) & says_something(other_parts, np.arange(len(odds)))
    best = np.flatnonzero(stating)
    if settled.subject:
        # "Who is our provider now?": the umbrella that broke today has no word of it, nor is it near
        near = has_words(columns, settled).any(axis=0) | (of_query[VECTOR_SCALED] >= ORDERED_NEAR)
        best = _sorted(columns, odds, stating & near, ORDERED_AMONG)[:ORDERED_AMONG]
        best = best[odds[best] >= odds[best[:1]] - np.float32(ORDERED_WITHIN)]
    time, time_order = columns.time[best], settled.order
    time[np.isin(best, settled.over)] = 0  # whenever it was told, what is over held before the others
    times = np.unique(time)
    steps = times.searchsorted(time)
    back = steps if time_order == "earliest" else len(times) - 1 - steps
    if not settled.subject:
        latest[best] = np.exp2(-1.0 * back)
    elif time_order == "latest":
        latest[best] = back == 0
    else:
        latest[best] = np.where(back == 0, 1, -np.minimum((odds[best] - odds[best[-1:]]) / weight, 1))
    return latest


# --- The order --------------------------------------------------------------------------------------------------------


def _sorted(columns: Columns, score: Floats, among: Bools, k: int | None) -> Ints:
    """Returns indices by score, then time, both descending, then engine handle: of all documents `among`, or of so many
    of the best that at least `k` have distinct contents."""
    rows, time, all_of_them = columns.rows, columns.time, np.count_nonzero(among) == len(among)
    if k is not None and len(score) > 4 * (enough := max(8 * k, ENOUGH)):
        values = score if all_of_them else score[among]
        least = np.partition(values, -enough)[-enough] if len(values) > 4 * enough else -np.inf
        order = (among & (score >= least)).nonzero()[0]
        order = order[np.lexsort((rows[order], -time[order], -score[order]))]
        if len(order) < enough or len(top(order, columns, k)) == k:  # fewer are all that there are
            return order
    order = columns.memo.get("newest", (rows, time), lambda: np.lexsort((rows, -time)))
    order = order if all_of_them else order[among[order]]
    return order[(-score[order]).argsort(kind="stable")]


def top(order: Ints, columns: Columns, k: int, without: Set[int] = frozenset()) -> list[int]:
    """Returns the first k indices of `order` with distinct contents. Of equal contents the best placed stays.
    `without`: contents that are passed over."""
    best = order[:k]
    if not without and len(set(columns.content.take(best).tolist())) == k:  # the usual case
        return list(best.tolist())
    chosen: dict[int, int] = {}
    for start in range(0, len(order), 2 * k):
        piece = order[start : start + 2 * k]
        for index, content in zip(piece.tolist(), columns.content.take(piece).tolist(), strict=True):
            if content not in without:
                chosen.setdefault(content, index)
                if len(chosen) == k:
                    return list(chosen.values())
    return list(chosen.values())


# --- What a score is made of ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a score is made of."""

    scores: dict[str, float]
    """The features by name, before their weights; with `rerank`, the score of the second stage, if there was one."""
    contributions: dict[str, float]
    """The log-odds that each feature adds, by name, in a hybrid search; else empty. Their sum orders the
    documents, until a second stage or a present value (`raised_over`, app/facts/outdated.py) moves some."""


def explained(
    ranked: Ranked, columns: Columns, settled: SettledQuery, weights: Weights, index: int, reranked: float | None
) -> Explanation:
    """Returns what the score of one document is made of. `reranked`: its score in the second stage, if there was
    one."""
    scores = {name: values[index] for name, values in ranked.parts.items()}
    if reranked is not None:
        scores["rerank"] = reranked
    added = contributions(ranked, columns, settled, weights, index)
    shortened = as_short(np.array([*scores.values(), *added.values()], np.float32))
    return Explanation(
        dict(zip(scores, shortened, strict=False)), dict(zip(added, shortened[len(scores) :], strict=True))
    )


def contributions(
    ranked: Ranked, columns: Columns, settled: SettledQuery, weights: Weights, index: int
) -> dict[str, float]:
    """Returns the log-odds that each feature adds to one document; those that add nothing are left out.

    `kind` is what the document has by its kind alone: a turn of a person, a turn of an assistant, a plain memory, a
    summary.
    """
    if ranked.query_features is None or ranked.document_features is None:
        return {}
    query_weights, document_weights, base = (
        rows[..., index if rows.shape[-1] > 1 else 0]  # one column for each document, or one for all
        for rows in weight_columns(columns, weights)
    )
    if settled.foreign:
        change = foreign_weights(query_weights, weights.foreign) - query_weights
        query_weights = query_weights + settled.foreign * change
    added = {"kind": float(base)}
    added |= dict(zip(QUERY_FEATURES, (ranked.query_features[:, index] * query_weights).tolist(), strict=True))
    added |= dict(zip(DOCUMENT_FEATURES, (ranked.document_features[:, index] * document_weights).tolist(), strict=True))
    for name in ("echo", "filler", "when", "latest"):
        if name in ranked.other_parts:
            added[name] = float(ranked.other_parts[name][index]) * float(getattr(weights, name))
    if "first" in ranked.other_parts:
        added["first"] = float(ranked.other_parts["first"][index])
    return {name: value for name, value in added.items() if value}


def as_short(values: Floats) -> list[float]:
    """Returns the values with the digits of a float32, so that small scores stay distinct.

    orjson writes and reads them in this form faster than Python formats one number.
    """
    shortened: list[float] = orjson.loads(orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY))
    return shortened
