"""The ranking: a pure function of columns, query, time and a few fitted numbers.

It combines cosine and BM25 with features of the conversation. A turn gains from its neighbours (an answer needs its
question), from the best turn of its session, and from being spoken by the person whom the query names. Each of three
kinds of memory has its own weights: turns of a person, turns of the assistant, and plain memories, which belong to no
conversation. The weights are fitted so that, for a query, the sum of a document's weighted features is the log of its
odds to be the answer (conditional logit, McFadden 1974). `calibration.py` converts the odds to a probability. Formulas,
evaluation and discarded features: docs/concepts/retrieval.md.
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
    bm25,
    everything_or,
    importance_at,
    query_features,
    query_independent_features,
)
from app.retrieval.query_analysis import QueryText, assistants, echoes, fillers, plain_memories
from app.retrieval.time_expressions import when
from app.storage.search import Bools, Columns, Floats, Ints
from app.storage.text import SUMMARY

__all__ = [
    "DEFAULT_WEIGHTS",
    "Blend",
    "Mode",
    "Ranked",
    "Weights",
    "foreign_weights",
    "importance_at",
    "rank",
    "top",
    "weight_columns",
]

Mode: TypeAlias = Literal["hybrid", "vector", "text"]

FEW = 700
"""Up to this number of documents a plain stable sort is as fast as `_by_score`."""
LATEST_AMONG, LATEST_WITHIN = 4, 3.0
"""Limits of the feature `latest`: it orders by time so many of the best, within so many log-odds of the best one."""


@dataclass(frozen=True, slots=True)
class Blend:
    """Fitted log-odds for each unit of the features, in the order of `FEATURES`, for one kind of memory.

    `base`: log-odds relative to the other kinds.
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
    """Changes of the weights for the share of a query in scripts that the embedding model does not support.
    `vector_scaled` replaces the weight of every kind; the weight of `vector_rank` becomes 0. The other fields are added
    to a blend's."""

    vector_scaled: float = 0.0
    text_scaled: float = 0.0
    repeats: float = 0.0


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights of the ranking.

    Fitted: `person`, for what a user or a named speaker says in a session; `assistant`, for what an assistant without a
    name says there; `plain`, for all other memories; `when`, for a memory inside the time that the query names.

    Set by hand: `importance` and `recency`, small priors; `latest`, for the newest of the best documents if the query
    asks for the present state; `summary`, negative because the messages that a summary covers are found as well;
    `echo`, for a question of a conversation that asks what the query asks and so answers nothing (`echoes`);
    `echo_cosine`, the minimum cosine of a question that asks the same in other words (it depends on the embedding
    model); and `filler`, for a turn that says no more than "Noted." (`fillers`).
    """

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


@dataclass(slots=True)  # not frozen, for speed: each search creates one
class Ranked:
    """A ranking. `order`: indices of the hits, best first. `score` and `parts` have one entry for each document."""

    order: Ints
    score: Floats
    plain: dict[str, Floats]
    known: Floats | None = None
    """Features that depend on the query, shape (ASKED, n)."""
    lasting: Floats | None = None
    """Features that do not depend on the query, shape (STANDING, n)."""

    @property
    def parts(self) -> dict[str, Floats]:
        """The components of the score, by name."""
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
    """Ranks the documents that matched, or at least the `first` of them. `interval`: the milliseconds that the query
    names.

    Scores: `vector` the cosine (documents without a vector are left out), `text` BM25 (documents without any of the
    terms are left out), `hybrid` the probability that the document helps to answer the query (no document is left out).
    Equal scores are ordered by time, newest first, then by engine handle.
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
    """Returns the indices of the first k documents with distinct contents. Of equal contents the best placed stays."""
    best = ranked.order[:k]
    if len(set(columns.content.take(best).tolist())) == k:  # the usual case
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
    """Returns `plain_memories`, or one number if all documents are alike."""
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
    """Returns the log-odds of each document, shape (n,), relative to the others, and the parts that not every query
    has."""
    sources = columns.session, columns.speaker, columns.flags, weights
    each, rest, base = columns.derived.get("weights", sources, lambda: weight_columns(columns, weights))
    odds: Floats = np.add.reduce(known * each, axis=0)
    odds += columns.derived.get("lasting", (lasting, rest, base), lambda: np.add.reduce(lasting * rest, axis=0) + base)
    if query.foreign:
        odds += np.float32(query.foreign) * np.add.reduce(
            known * (foreign_weights(each, weights.foreign) - each), axis=0
        )
    parts: dict[str, Floats] = {}
    for name, weight, at in (
        ("echo", weights.echo, echoes(columns, known[REPEATS], weights.echo_cosine)),
        ("filler", weights.filler, fillers(columns)),
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


def foreign_weights(each: Floats, foreign: Foreign) -> Floats:
    """Returns the weights of `ASKED`, shape (ASKED, …) as `each`, for a script that the model does not support."""
    changed = each.copy()
    changed[ASKED.index("vector_scaled")] = foreign.vector_scaled
    changed[ASKED.index("vector_rank")] = 0
    changed[ASKED.index("text_scaled")] += np.float32(foreign.text_scaled)
    changed[REPEATS] += np.float32(foreign.repeats)
    return changed


def weight_columns(columns: Columns, weights: Weights) -> tuple[Floats, Floats, Floats]:
    """Returns weights, shapes (ASKED, n or 1), (STANDING, n or 1), (n or 1,): one column if all documents are plain."""
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


def _latest(columns: Columns, odds: Floats, parts: dict[str, Floats]) -> Floats:
    """Returns 1 for the newest of the best documents that state something, halved with each step back, else 0."""
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
    """Returns the indices of `found` by score, then time, both descending, then engine handle."""
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
    """Returns `order` sorted by score, descending; equal scores keep their order.

    It sorts whole numbers once: their upper half is the score's bits, their lower half the place. This is several times
    as fast as a stable sort of floats.
    """
    bits = (0 - score[order]).view(np.int32)  # 0 - -0.0 is 0.0, as is 0 - 0.0
    rising = bits ^ (bits >> 31 & 0x7FFFFFFF)  # in a negative number, the bits after the sign rise as the number falls
    keys = rising.astype(np.int64)
    keys <<= 32
    keys |= np.arange(len(order))
    keys.sort()
    keys &= 0xFFFFFFFF
    return order[keys]
