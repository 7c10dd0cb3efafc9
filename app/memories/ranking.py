"""Which memories answer a query, best first: a pure function of columns, query, time and a few fitted numbers.

Cosine and BM25 are combined with what the conversation tells. A turn is helped by its neighbours (an answer makes
sense of its question), by the best turn of its session and by being spoken by whom the query names; a plain memory
has none of these, so it has weights of its own, fitted on turns of which nothing but the text was known. Both sets
estimate the same thing, the log-odds of being evidence, so that the two kinds can stand in one list.
Formulas, evaluation and what was dropped: docs/retrieval.md.

A reranker (`retrieval/reranking.py`) may reorder the first of what `top` gives by their texts.
"""

from dataclasses import dataclass
from operator import attrgetter
from typing import Literal, TypeAlias

import numpy as np

from app.memories.features import ASKED, FEATURES, asked, bm25, importance_at, standing
from app.memories.query import QueryText
from app.memories.strength import DEFAULT_DECAY, Decay
from app.storage.search import Bools, Columns, Floats, Ints

__all__ = ["DEFAULT_WEIGHTS", "Blend", "Mode", "Ranked", "Weights", "importance_at", "rank", "top"]

Mode: TypeAlias = Literal["hybrid", "vector", "text"]


@dataclass(frozen=True, slots=True)
class Blend:
    """Log-odds for each unit of the first `FEATURES`, in order. The standardisation used in fitting is folded in."""

    intercept: float
    vector_scaled: float
    text_scaled: float
    vector_rank: float
    speaker: float = 0.0
    session: float = 0.0
    neighbour: float = 0.0
    number: float = 0.0
    question: float = 0.0


_FITTED = attrgetter(*FEATURES[:8])


@dataclass(frozen=True, slots=True)
class Weights:
    """`turn`: memories with a session and a speaker. `plain`: all others. The two priors are set by hand, and small."""

    turn: Blend
    plain: Blend
    importance: float = 0.5
    recency: float = 0.2


# Fitted by scripts/fit_ranking.py
DEFAULT_WEIGHTS = Weights(
    turn=Blend(
        intercept=-11.19,
        vector_scaled=0.7,
        text_scaled=4.18,
        vector_rank=18.49,
        number=0.87,
        question=-0.92,
        speaker=1.85,
        session=2.87,
        neighbour=2.46,
    ),
    plain=Blend(intercept=-7.84, vector_scaled=2.08, text_scaled=6.26, vector_rank=21.56),
)
"""A number makes a chatty turn likely to inform, a question makes it unlikely; a plain fact informs anyway."""


@dataclass(frozen=True, slots=True)
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
    decay: Decay = DEFAULT_DECAY,
    *,
    first: int | None = None,
    least_spread: float = 0.0,
) -> Ranked:
    """Rank what matched, or at least the `first` of it; `least_spread` as in `features`. Equal scores: the newer
    first, then by engine handle.

    Scores: `vector` the cosine (what has no vector is left out), `text` BM25 (what has none of the terms is left
    out), `hybrid` 0..1, like a probability (nothing is left out).
    """
    if mode == "vector":
        found = columns.matched & columns.has_vector
        return Ranked(_sorted(columns, columns.cosine, found, first), columns.cosine, {"vector": columns.cosine})
    text = bm25(columns)
    if mode == "text":
        found = columns.matched & (columns.hits > 0).any(axis=0)
        return Ranked(_sorted(columns, text, found, first), text, {"text": text})
    known, lasting = asked(columns, query, text, least_spread=least_spread), standing(columns, now_ms, decay)
    odds = _log_odds(columns, known, lasting, weights)
    score: Floats = np.reciprocal(1 + np.exp(-odds))
    order = _sorted(columns, odds, columns.matched, first)
    return Ranked(order, score, {"vector": columns.cosine, "text": text}, known, lasting)


def top(ranked: Ranked, columns: Columns, k: int) -> list[int]:
    """Indices of the first k of distinct contents: of equal contents the best placed stays."""
    chosen: dict[int, int] = {}
    for start in range(0, len(ranked.order), 2 * k):
        piece = ranked.order[start : start + 2 * k]
        for index, content in zip(piece.tolist(), columns.content.take(piece).tolist(), strict=True):
            chosen.setdefault(content, index)
            if len(chosen) == k:
                return list(chosen.values())
    return list(chosen.values())


def _log_odds(columns: Columns, known: Floats, lasting: Floats, weights: Weights) -> Floats:
    sources = columns.session, columns.speaker, weights
    each, rest, intercept = columns.derived.get("weights", sources, lambda: _weights(columns, weights))
    odds: Floats = np.add.reduce(known * each, axis=0)
    odds += columns.derived.get(
        "lasting", (lasting, rest, intercept), lambda: np.add.reduce(lasting * rest, axis=0) + intercept
    )
    return odds


def _weights(columns: Columns, weights: Weights) -> tuple[Floats, Floats, Floats]:
    """(ASKED, n or 1), (STANDING, n or 1) and (n or 1,): one column where all documents are of one kind."""
    plain = (columns.session < 0) | (columns.speaker == 0)
    kinds = [weights.plain] if plain.all() else [weights.turn] if not plain.any() else [weights.turn, weights.plain]
    each = np.array([[*_FITTED(kind), weights.importance, weights.recency] for kind in kinds], np.float32).T
    intercept = np.array([kind.intercept for kind in kinds], np.float32)
    if len(kinds) == 2:
        which = plain.astype(np.int64)
        each, intercept = np.ascontiguousarray(each[:, which]), intercept[which]
    return each[: len(ASKED)], each[len(ASKED) :], intercept


def _sorted(columns: Columns, score: Floats, found: Bools, first: int | None) -> Ints:
    """Indices of `found` by score, then time, both descending, then engine handle."""
    if first is not None and len(score) > 4 * first:
        order = np.flatnonzero(found)
        if len(order) > 4 * first:
            values = score[order]
            order = order[values >= np.partition(values, -first)[-first]]
        return order[np.lexsort((columns.rows[order], -columns.time[order], -score[order]))]
    rows, time = columns.rows, columns.time
    newest = columns.derived.get("newest", (rows, time), lambda: np.lexsort((rows, -time)))
    order = newest[found[newest]]  # poor matches are equal by the dozen: a stable sort leaves these as they are
    return order[(-score[order]).argsort(kind="stable")]
