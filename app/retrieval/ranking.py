"""The ranking: a pure function of columns, query, time and a few fitted numbers.

It combines cosine and BM25 with features of the conversation. A turn gains from its neighbours (an answer needs its
question), from the best turn of its session, and from being spoken by the person whom the query names. Each of three
kinds of memory has its own weights: turns of a person, turns of the assistant, and plain memories, which belong to no
conversation. The weights are fitted so that, for a query, the sum of a document's weighted features is the log of its
odds to be the answer (conditional logit, McFadden 1974). `calibration.py` converts the odds to a probability. Formulas,
evaluation: docs/concepts/retrieval.md. `explained` says what a hit's score is made of.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from types import EllipsisType
from typing import Literal, TypeAlias

import numpy as np
import orjson

from app.retrieval.calibration import at_another_time, probabilities
from app.retrieval.decay import DEFAULT_DECAY, DecayCurve
from app.retrieval.features import (
    ASKED,
    FEATURES,
    bm25,
    everything_or,
    query_features,
    query_independent_features,
)
from app.retrieval.first_hits import FIRST, NO_ORDER, gains, properties
from app.retrieval.model_weights import DEFAULT_CALIBRATION, DEFAULT_WEIGHTS, Calibration, FirstHits, Foreign, Weights
from app.retrieval.query_analysis import QueryText, assistants, echoes, fillers, plain_memories
from app.retrieval.time_expressions import when
from app.storage.search import Bools, Columns, Floats, Ints
from app.storage.text import SUMMARY, name_id

Mode: TypeAlias = Literal["hybrid", "vector", "text"]

FEW = 700
"""Up to this number of documents a plain stable sort is as fast as `_by_score`."""
ORDERED_AMONG, ORDERED_WITHIN = 4, 3.0
"""Limits of the feature `latest`: it orders by time so many of the best, within so many log-odds of the best one."""


USER = name_id("user")
"""The speaker of what a user without a name says."""
FITTED = FEATURES[:12]
_FITTED = attrgetter(*FITTED)
REPEATS = ASKED.index("repeats")


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
        found = everything_or(results(columns, mode))
        return Ranked(_sorted(columns, columns.cosine, found, first), columns.cosine, {"vector": columns.cosine})
    text = bm25(columns)
    if mode == "text":
        found = results(columns, mode)
        return Ranked(_sorted(columns, text, found, first), text, {"text": text})
    known, lasting = query_features(columns, query, text), query_independent_features(columns, now_ms, decay)
    odds, parts = log_odds(columns, query, known, lasting, weights, interval)
    parts = {"vector": columns.cosine, "text": text, **parts}
    among = everything_or(results(columns, mode))
    # what is planned was said before its time, so that only a time that has passed can be missed
    missable = interval is not None and interval[1] <= now_ms
    elsewhen = at_another_time(columns, parts["when"]) if missable else None
    order = with_first_ordered(columns, query, odds, _sorted(columns, odds, among, first), weights, parts)
    score = probabilities(columns, query, odds, known, _on_plain(columns), calibration, among, elsewhen)
    return Ranked(order, score, parts, known, lasting)


def results(columns: Columns, mode: Mode) -> Bools:
    """Returns the documents that a search in this mode may return."""
    if mode == "vector":
        return columns.matched & columns.has_vector
    if mode == "text":
        found: Bools = columns.matched & (columns.hits > 0).any(axis=0)
        return found
    return columns.matched


def different_matches(columns: Columns, mode: Mode) -> int:
    """Returns how many documents with distinct contents a search in this mode may return."""
    return len(np.unique(columns.content[results(columns, mode)]))


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
    if query.order is not None:
        parts["latest"] = _by_time(columns, query, odds, parts, weights.latest)
        odds += np.float32(weights.latest) * parts["latest"]
    return odds, parts


def with_first_ordered(
    columns: Columns, query: QueryText, odds: Floats, order: Ints, weights: Weights, parts: dict[str, Floats]
) -> Ints:
    """Returns `order` with the first hits ordered among themselves (`first_hits.py`), turns and plain memories apart.

    Adds what each of them gains to `odds` and to `parts`.
    """
    if not query.subject:  # a query of a time alone is ordered by that time
        return order
    start = order[: 2 * FIRST]
    gained = np.zeros(len(odds), np.float32)
    for first, fitted in first_hits(columns, start, weights, parts):
        gained[first] = gains(properties(columns, odds, first, past=asks_for_past(query, parts)), fitted)
    if not gained.any():
        return order
    parts["first"] = gained
    odds += gained
    return np.concatenate((start[(-odds[start]).argsort(kind="stable")], order[len(start) :]))


def asks_for_past(query: QueryText, parts: Mapping[str, Floats]) -> bool:
    """Returns whether the query names a time or asks for the earliest."""
    return "when" in parts or query.order == "earliest"


def first_hits(
    columns: Columns, start: Ints, weights: Weights, parts: Mapping[str, Floats]
) -> Iterator[tuple[Ints, FirstHits]]:
    """Yields the hits of one kind that are ordered among themselves, two at least, with the weights of their order.

    `start`: the best documents, best first. Turns are ordered if an assistant said one of these, be it "Noted.", or if
    all are of a user without a name: two people who talk mean different things by the same words.
    """
    with_assistant = assistants(columns)[start].any()
    start = start[says_something(parts, start)]
    plain = plain_memories(columns)[start]
    turns, others = start[~plain][:FIRST], start[plain][:FIRST]
    of_one = with_assistant or (columns.speaker[turns] == USER).all()
    if len(turns) > 1 and weights.first_turns != NO_ORDER and of_one:
        yield turns, weights.first_turns
    if len(others) > 1 and weights.first_plain != NO_ORDER:
        yield others, weights.first_plain


def says_something(parts: Mapping[str, Floats], among: Ints) -> Bools:
    """Returns the mask of those that are neither an `echo` nor a `filler`."""
    stating = np.ones(len(among), np.bool_)
    for name in ("echo", "filler"):
        if name in parts:
            stating &= parts[name][among] == 0
    return stating


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


def _by_time(columns: Columns, query: QueryText, odds: Floats, parts: dict[str, Floats], most: float) -> Floats:
    """Returns the feature `latest`, shape (n,), between -1 and 1. It is 0 except for the best documents that state
    something.

    Of these it is 1 for the newest, or the oldest, whichever the query asks for. If the query asks for what holds now,
    the older ones are obsolete: theirs is negative, but a weight of `most` takes none of them below the least of these
    documents. Of a query without a subject all documents are as good, and the feature halves with each step in time.
    """
    found: Floats = np.zeros(len(odds), np.float32)
    stating = columns.matched & says_something(parts, np.arange(len(odds)))
    best = np.flatnonzero(stating)
    if query.subject:
        best = _sorted(columns, odds, stating, ORDERED_AMONG)[:ORDERED_AMONG]
        best = best[odds[best] >= odds[best[:1]] - np.float32(ORDERED_WITHIN)]
    times = np.unique(columns.time[best])
    steps = times.searchsorted(columns.time[best])
    back = steps if query.order == "earliest" else len(times) - 1 - steps
    if not query.subject:
        found[best] = np.exp2(-1.0 * back)
    elif query.order == "present":
        found[best] = np.where(back == 0, 1, -np.minimum((odds[best] - odds[best[-1:]]) / most, 1))
    else:
        found[best] = back == 0
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


# --- What a score is made of ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a score is made of."""

    scores: dict[str, float]
    """The features by name, before their weights; with `rerank`, the score of the second stage, if there was one."""
    contributions: dict[str, float]
    """The log-odds that each feature adds, by name, in a hybrid search; else empty. Their sum orders the hits."""


def explained(
    ranked: Ranked,
    columns: Columns,
    query: QueryText,
    weights: Weights,
    index: int,
    reranked: float | None,
) -> Explanation:
    """Returns what the score of one document is made of.

    Args:
        ranked: The ranking.
        columns: The columns that were ranked.
        query: The query.
        weights: The weights of the ranking.
        index: The index of the document in the columns.
        reranked: The document's score in the second stage, if there was one.
    """
    scores = {name: values[index] for name, values in ranked.parts.items()}
    if reranked is not None:
        scores["rerank"] = reranked
    return Explanation(_short(scores), _short(contributions(ranked, columns, query, weights, index)))


def contributions(ranked: Ranked, columns: Columns, query: QueryText, weights: Weights, index: int) -> dict[str, float]:
    """Returns the log-odds that each feature adds to one document; those that add nothing are left out.

    `kind` is what the document has by its kind alone: a turn of a person, a turn of an assistant, a plain memory, a
    summary.
    """
    if ranked.known is None or ranked.lasting is None:
        return {}
    each, rest, base = (_of(one, index) for one in weight_columns(columns, weights))
    if query.foreign:
        each = each + query.foreign * (foreign_weights(each, weights.foreign) - each)
    values = np.concatenate((ranked.known[:, index], ranked.lasting[:, index]))
    found = {"kind": float(base)}
    found |= dict(zip(FEATURES, (values * np.concatenate((each, rest))).tolist(), strict=True))
    for name in ("echo", "filler", "when", "latest"):
        if name in ranked.plain:
            found[name] = float(ranked.plain[name][index]) * float(getattr(weights, name))
    if "first" in ranked.plain:
        found["first"] = float(ranked.plain["first"][index])
    return {name: value for name, value in found.items() if value}


def _of(weights: Floats, index: int) -> Floats:
    """Returns the weights of one document. `weights` has one column for each document or one for all."""
    found: Floats = weights[..., index if weights.shape[-1] > 1 else 0]
    return found


def _short(values: Mapping[str, float]) -> dict[str, float]:
    return dict(zip(values, as_short(np.array(list(values.values()), np.float32)), strict=True))


def as_short(values: Floats) -> list[float]:
    """Returns the values with the digits of a float32, so that small scores stay distinct.

    orjson writes and reads them in this form faster than Python formats one number.
    """
    found: list[float] = orjson.loads(orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY))
    return found
