"""Which memories answer a query, best first: a pure function of columns, query, time and a few fitted numbers.

Cosine and BM25 are combined with what the conversation tells: a turn is helped by its neighbours (an answer makes sense
of its question), by the best turn of its session and by being spoken by whom the query names. There are three kinds of
memory, each with weights of its own: what a person says, what the assistant says, and plain memories, which belong to
no conversation. The weights are fitted so that, given a query, the sum of a document's weighted features is the log of
its odds to be the answer (conditional logit, McFadden 1974), whatever the kind. `calibration.py` makes a probability of
it. Formulas, evaluation and what was dropped: docs/retrieval.md.
"""

from dataclasses import dataclass
from operator import attrgetter
from types import EllipsisType
from typing import Literal, TypeAlias

import numpy as np

from app.retrieval.calibration import DEFAULT_CALIBRATION, Calibration, probabilities
from app.retrieval.decay import DEFAULT_DECAY, DecayCurve
from app.retrieval.features import (
    ASKED,
    FEATURES,
    FEW_TERMS,
    bm25,
    everything_or,
    importance_at,
    query_features,
    query_independent_features,
)
from app.retrieval.kinds import assistants, plain_memories, turn_kinds
from app.retrieval.query_analysis import QueryText
from app.retrieval.time_expressions import when
from app.storage.search import Bools, Columns, Floats, Ints
from app.storage.text import SUMMARY

__all__ = ["DEFAULT_WEIGHTS", "Blend", "Mode", "Ranked", "Weights", "importance_at", "rank", "top"]

Mode: TypeAlias = Literal["hybrid", "vector", "text"]

FEW = 700
"""So many are sorted as fast by a plain stable sort."""
LATEST_AMONG, LATEST_WITHIN = 4, 3.0
"""A query for the latest orders by their time at most so many of the best: those with log-odds so near to the best."""


@dataclass(frozen=True, slots=True)
class Blend:
    """Log-odds for each unit of the fitted features, in the order of `FEATURES`, for one kind of memory.

    `base`: log-odds beside the other kinds.
    """

    base: float = 0.0
    vector_scaled: float = 0.0
    text_scaled: float = 0.0
    vector_rank: float = 0.0
    coverage: float = 0.0
    repeats: float = 0.0
    speaker: float = 0.0
    session: float = 0.0
    neighbour: float = 0.0
    number: float = 0.0
    question: float = 0.0
    length: float = 0.0
    long_question: float = 0.0


FITTED = FEATURES[:12]
_FITTED = attrgetter(*FITTED)
REPEATS = ASKED.index("repeats")


@dataclass(frozen=True, slots=True)
class Foreign:
    """What changes as far as a query's letters are of a script that the embedding model does not know.

    `vector_scaled`: its weight there, whatever the kind; `vector_rank` has none. The others are added to a blend's.
    """

    vector_scaled: float = 0.0
    text_scaled: float = 0.0
    repeats: float = 0.0


@dataclass(frozen=True, slots=True)
class Weights:
    """`person`: what a user or a named speaker says in a session. `assistant`: what an assistant without a name says
    there. `plain`: all other memories. `when`: for a memory inside the time that the query speaks of.

    These are set by hand: the small priors `importance` and `recency`; `latest`, for the newest of the best where the
    query asks for the present state; `summary`, since what a summary holds is found in its messages as well; `echo`,
    for a question of a conversation that asks what the query asks (`_echoes`): it answers nothing; `echo_cosine`, the
    least cosine of a question that asks the same in other words (it depends on the embedding model); and `filler`, for
    a turn that says no more than "Noted." (`_fillers`)."""

    person: Blend
    assistant: Blend
    plain: Blend
    foreign: Foreign
    importance: float = 0.5
    recency: float = 0.2
    when: float = 0.0
    latest: float = 5.0
    summary: float = -1.5
    echo: float = -12.0
    echo_cosine: float = 0.6
    filler: float = -2.0


# Fitted by scripts/fit_ranking.py
DEFAULT_WEIGHTS = Weights(
    person=Blend(
        vector_scaled=2.21,
        text_scaled=0.32,
        vector_rank=13.03,
        coverage=3.47,
        repeats=-17.18,
        speaker=2.46,
        session=3.11,
        neighbour=3.47,
        number=0.66,
        question=-1.39,
        length=-2.12,
        long_question=1.28,
    ),
    assistant=Blend(
        base=-2.75,
        vector_scaled=4.07,
        text_scaled=1.54,
        session=1.71,
        neighbour=2.19,
        number=2.23,
        question=1.55,
        length=-1.57,
        long_question=-1.63,
    ),
    plain=Blend(
        base=-0.3, vector_scaled=6.04, coverage=4.93, repeats=-48.74, session=3.43, number=0.35, question=-0.49
    ),
    foreign=Foreign(vector_scaled=0.2, text_scaled=2.38, repeats=7.9),
    when=5.6,
)


@dataclass(slots=True)  # not frozen: it is made at each search
class Ranked:
    """`order`: indices of what is found, best first. `score` and each of `parts` have one entry for each document."""

    order: Ints
    score: Floats
    plain: dict[str, Floats]
    known: Floats | None = None
    """(ASKED, n)"""
    lasting: Floats | None = None
    """(STANDING, n)"""

    @property
    def parts(self) -> dict[str, Floats]:
        """What the score is made of."""
        if self.known is None or self.lasting is None:
            return self.plain
        return {**self.plain, **dict(zip(FEATURES, (*self.known, *self.lasting), strict=True))}


def rank(  # noqa: PLR0913 (what a ranking depends on)
    columns: Columns,
    query: QueryText,
    mode: Mode,
    now_ms: int,
    weights: Weights = DEFAULT_WEIGHTS,
    decay: DecayCurve = DEFAULT_DECAY,
    *,
    first: int | None = None,
    interval: tuple[int, int] | None = None,
    calibration: Calibration = DEFAULT_CALIBRATION,
) -> Ranked:
    """Rank what matched, or at least the `first` of it. Equal scores: the newer first, then by engine handle.

    `interval`: the milliseconds that the query speaks of. Scores: `vector` the cosine
    (what has no vector is left out), `text` BM25 (what has none of the terms is left out), `hybrid` the probability
    that the document helps to answer the query (nothing is left out).
    """
    if mode == "vector":
        found = everything_or(columns.matched & columns.has_vector)
        return Ranked(_sorted(columns, columns.cosine, found, first), columns.cosine, {"vector": columns.cosine})
    text = bm25(columns)
    if mode == "text":
        found = columns.matched & (columns.hits > 0).any(axis=0)
        return Ranked(_sorted(columns, text, found, first), text, {"text": text})
    known, lasting = query_features(columns, query, text), query_independent_features(columns, now_ms, decay)
    odds, parts = log_odds(columns, query, known, lasting, weights, interval)
    parts = {"vector": columns.cosine, "text": text, **parts}
    among = everything_or(columns.matched)
    score = probabilities(columns, query, odds, known, _on_plain(columns), calibration, among)
    return Ranked(_sorted(columns, odds, among, first), score, parts, known, lasting)


def top(ranked: Ranked, columns: Columns, k: int) -> list[int]:
    """Indices of the first k of distinct contents: of equal contents the best placed stays."""
    best = ranked.order[:k]
    if len(set(columns.content.take(best).tolist())) == k:  # as a rule
        return list(best.tolist())
    chosen: dict[int, int] = {}
    for start in range(0, len(ranked.order), 2 * k):
        piece = ranked.order[start : start + 2 * k]
        for index, content in zip(piece.tolist(), columns.content.take(piece).tolist(), strict=True):
            chosen.setdefault(content, index)
            if len(chosen) == k:
                return list(chosen.values())
    return list(chosen.values())


def _on_plain(columns: Columns) -> Bools | float:
    """`plain_memories`, or one number where all are alike."""
    plain = plain_memories(columns)
    return columns.derived.get("on plain", (plain,), lambda: plain if len(np.unique(plain)) != 1 else float(plain[0]))


def log_odds(
    columns: Columns,
    query: QueryText,
    known: Floats,
    lasting: Floats,
    weights: Weights,
    interval: tuple[int, int] | None,
) -> tuple[Floats, dict[str, Floats]]:
    """(n,) of each document, beside the others of this query; and the parts that not every query has."""
    sources = columns.session, columns.speaker, columns.flags, weights
    each, rest, base = columns.derived.get("weights", sources, lambda: _weights(columns, weights))
    odds: Floats = np.add.reduce(known * each, axis=0)
    odds += columns.derived.get("lasting", (lasting, rest, base), lambda: np.add.reduce(lasting * rest, axis=0) + base)
    if query.foreign:
        odds += np.float32(query.foreign) * _foreign(known, each, weights.foreign)
    parts: dict[str, Floats] = {}
    for name, weight, at in (
        ("echo", weights.echo, _echoes(columns, known, weights.echo_cosine)),
        ("filler", weights.filler, _fillers(columns)),
    ):
        if len(at):
            parts[name] = np.zeros(len(odds), np.float32)
            parts[name][at] = 1
            odds[at] += np.float32(weight)
    if interval is not None:
        parts["when"] = when(columns.time, interval)
        odds += np.float32(weights.when) * parts["when"]
    if query.latest:
        parts["latest"] = _latest(columns, odds, parts)
        odds += np.float32(weights.latest) * parts["latest"]
    return odds, parts


def _foreign(known: Floats, each: Floats, foreign: Foreign) -> Floats:
    """(n,) what changes for a query of a script that the embedding model does not know. `each`: (ASKED, n or 1)."""
    vector, rank = ASKED.index("vector_scaled"), ASKED.index("vector_rank")
    more: Floats = known[vector] * (np.float32(foreign.vector_scaled) - each[vector]) - known[rank] * each[rank]
    more += known[ASKED.index("text_scaled")] * np.float32(foreign.text_scaled)
    more += known[REPEATS] * np.float32(foreign.repeats)
    return more


def _weights(columns: Columns, weights: Weights) -> tuple[Floats, Floats, Floats]:
    """(ASKED, n or 1), (STANDING, n or 1) and (n or 1,): one column where all documents are of one kind."""
    plain = plain_memories(columns)
    kinds = weights.person, weights.assistant, weights.plain
    which = np.where(plain, 2, np.where(assistants(columns), 1, 0))
    each = np.array([[*_FITTED(kind), weights.importance, weights.recency] for kind in kinds], np.float32).T
    base = np.array([kind.base for kind in kinds], np.float32)
    summaries = np.float32(weights.summary) * (columns.flags & SUMMARY != 0)
    if plain.all():
        return each[: len(ASKED), 2:], each[len(ASKED) :, 2:], base[2:] + summaries
    each = np.ascontiguousarray(each[:, which])
    return each[: len(ASKED)], each[len(ASKED) :], base[which] + summaries


def _echoes(columns: Columns, known: Floats, nearest: float) -> Ints:
    """Indices of the questions of conversations that ask what the query asks. The share of common words is not weighed
    by idf: the more often a question was asked, the less its words would count."""
    of = turn_kinds(columns)
    echoes = columns.cosine >= np.float32(nearest)
    echoes &= of.short_questions
    of_question = known[REPEATS] * of.repeated_terms
    of_question *= np.float32(max(len(columns.hits), FEW_TERMS))
    common = of_question >= np.float32(0.6)
    common &= of.questions
    at: Ints = common.nonzero()[0]
    if len(at):
        of_query = np.count_nonzero(columns.hits[:, at], axis=0) / len(columns.hits)
        nothing_else = (of_query >= 0.6) & (of_question[at] >= 0.75)
        echoes[at] |= nothing_else | of.short_questions[at] & (of_query >= 0.8)
    found: Ints = echoes.nonzero()[0]
    return found


def _fillers(columns: Columns) -> Ints:
    """Indices of the turns that say no more than "Noted." or "Of course I do!": of a few words, hardly any of which are
    the query's."""
    at = turn_kinds(columns).short
    if not len(at):
        return at
    fillers: Ints = at[3 * np.count_nonzero(columns.hits[:, at], axis=0) <= len(columns.hits)]
    return fillers


def _latest(columns: Columns, odds: Floats, parts: dict[str, Floats]) -> Floats:
    """1 for the newest of the best documents that state something, halved with each step back; 0 for all others."""
    found: Floats = np.zeros(len(odds), np.float32)
    stating = columns.matched
    for name in ("echo", "filler"):
        if name in parts:
            stating = stating & (parts[name] == 0)
    best = _sorted(columns, odds, stating, LATEST_AMONG)[:LATEST_AMONG]
    best = best[odds[best] >= odds[best[:1]] - np.float32(LATEST_WITHIN)]
    times = np.unique(columns.time[best])
    found[best] = np.exp2(times.searchsorted(columns.time[best]) - (len(times) - 1.0))
    return found


def _sorted(columns: Columns, score: Floats, found: Bools | EllipsisType, first: int | None) -> Ints:
    """Indices of `found` by score, then time, both descending, then engine handle."""
    if first is not None and len(score) > 4 * first:
        order = np.arange(len(score)) if found is ... else np.flatnonzero(found)
        if len(order) > 4 * first:
            values = score[order]
            order = order[values >= np.partition(values, -first)[-first]]
        return order[np.lexsort((columns.rows[order], -columns.time[order], -score[order]))]
    rows, time = columns.rows, columns.time
    newest = columns.derived.get("newest", (rows, time), lambda: np.lexsort((rows, -time)))
    order = newest if found is ... else newest[found[newest]]
    return _by_score(order, score) if len(order) > FEW else order[(-score[order]).argsort(kind="stable")]


def _by_score(order: Ints, score: Floats) -> Ints:
    """`order` by score, descending; equal scores stay as they are.

    One sort of whole numbers, of which the upper half is the score's bits and the lower half the place: several times
    as fast as a stable sort of floats.
    """
    bits = (0 - score[order]).view(np.int32)  # 0 - -0.0 is 0.0, as is 0 - 0.0
    rising = bits ^ (bits >> 31 & 0x7FFFFFFF)  # of a negative number the bits after the sign rise as it falls
    keys = rising.astype(np.int64)
    keys <<= 32
    keys |= np.arange(len(order))
    keys.sort()
    keys &= 0xFFFFFFFF
    return order[keys]
