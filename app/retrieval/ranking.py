"""The ranking: a pure function of columns, query, time and a few fitted numbers.

It combines cosine and BM25 with features of the conversation. A turn gains from its neighbours (an answer needs its
question), from the best turn of its session, and from being spoken by the person whom the query names. Each of three
kinds of memory has its own weights: turns of a person, turns of the assistant, and plain memories, which belong to no
conversation. The weights are fitted so that, for a query, the sum of a document's weighted features is the log of its
odds to be the answer (conditional logit, McFadden 1974). `first_hits.py` orders the first hits among themselves, and
`calibration.py` converts the odds to a probability. Formulas, evaluation: docs/contributing/ranking.md. `explained`
says what a hit's score is made of.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import orjson
from typing_extensions import TypeAliasType

from app.retrieval import features
from app.retrieval.calibration import asks_of, at_another_time, probabilities
from app.retrieval.decay import DEFAULT_DECAY, DecayCurve
from app.retrieval.features import (
    FEATURES,
    QUERY_FEATURES,
    DocumentIndex,
    assistants,
    echoes,
    fillers,
    index_of,
    plain_memories,
    plain_or_all,
)
from app.retrieval.first_hits import alike, asks_for_past, order_first_hits, possible_replacements, says_something
from app.retrieval.model_weights import DEFAULT_CALIBRATION, DEFAULT_WEIGHTS, Calibration, Foreign, Weights
from app.retrieval.query import SettledQuery
from app.retrieval.time_expressions import when
from app.storage.search import Bools, Columns, Floats, Ints
from app.storage.text import SUMMARY

SearchMode = TypeAliasType("SearchMode", Literal["hybrid", "vector", "text"])

FEW = 700
"""Up to this number of documents a plain stable sort is as fast as `_by_score`."""
ORDERED_AMONG, ORDERED_WITHIN = 4, 3.0
"""Limits of the feature `latest`: it orders by time so many of the best, within so many log-odds of the best one."""
BY_HAND = frozenset({"importance", "recency"})
FITTED = tuple(name for name in FEATURES if name not in BY_HAND)
"""The features that each kind of memory has a fitted weight for (`Blend`)."""
REPEATS = QUERY_FEATURES.index("repeats")


@dataclass(slots=True)  # not frozen, for speed: each search creates one
class Ranked:
    """A ranking."""

    order: Ints
    """Indices of the hits, best first."""
    score: Floats
    """(n,): the score of each document."""
    other_parts: dict[str, Floats]
    """The parts of the score that are no features, by name, each of shape (n,): `vector`, `text`, and those that not
    every query has: `echo`, `filler`, `when`, `latest`, `first`; and
    `asks`, the probability that the query asks for anything, if it is known."""
    possible_replacements: Sequence[tuple[int, int]] = ()
    """Pairs of an earlier and a later hit, of which the later one may say what holds instead (`Columns.replaced`)."""
    alike: Sequence[Sequence[int]] = ()
    """Groups of hits with the same words of the query, of which some may have them the other way round
    (`Columns.turned`)."""
    query_features: Floats | None = None
    """(QUERY_FEATURES, n); None unless the mode is hybrid."""
    document_features: Floats | None = None
    """(DOCUMENT_FEATURES, n); None unless the mode is hybrid."""

    @property
    def parts(self) -> dict[str, Floats]:
        """All parts of the score, by name."""
        if self.query_features is None or self.document_features is None:
            return self.other_parts
        rows = *self.query_features, *self.document_features
        return {**self.other_parts, **dict(zip(FEATURES, rows, strict=True))}


def rank(
    columns: Columns,
    query: SettledQuery,
    mode: SearchMode,
    now_ms: int,
    weights: Weights = DEFAULT_WEIGHTS,
    decay: DecayCurve = DEFAULT_DECAY,
    *,
    at_least: int | None = None,
    interval: tuple[int, int] | None = None,
    calibration: Calibration = DEFAULT_CALIBRATION,
) -> Ranked:
    """Ranks the documents that matched, or at least `at_least` of them. `interval`: the milliseconds that the query
    names.

    Scores: `vector` the cosine (documents without a vector are left out), `text` BM25 (documents without any of the
    terms are left out), `hybrid` the probability that the document helps to answer the query (no document is left out).
    Equal scores are ordered by time, newest first, then by engine handle.
    """
    among = index_of(results(columns, mode))
    if mode == "vector":
        return Ranked(_sorted(columns, columns.cosine, among, at_least), columns.cosine, {"vector": columns.cosine})
    text = features.bm25(columns)
    if mode == "text":
        return Ranked(_sorted(columns, text, among, at_least), text, {"text": text})
    query_features = features.query_features(columns, query, text)
    document_features = features.document_features(columns, now_ms, decay)
    odds, parts = log_odds(columns, query, query_features, document_features, weights, interval)
    order = _sorted(columns, odds, among, at_least)
    candidates: Sequence[tuple[int, int]] = ()
    if weights.first_plain.replaced and query.subject and not asks_for_past(query, parts):
        candidates = possible_replacements(columns, order, parts)
    order, gained = order_first_hits(columns, query, odds, order, weights, parts)
    if gained is not None:
        odds += gained
        parts["first"] = gained
    # what is planned was said before its time, so that only a time that has passed can be missed
    missable = interval is not None and interval[1] <= now_ms
    elsewhen = at_another_time(columns, parts["when"]) if missable else None
    plain = plain_or_all(columns)
    asks = asks_of(columns, query, query_features, calibration, among)
    score = probabilities(columns, query, odds, query_features, plain, calibration, among, elsewhen)
    if asks is not None:
        parts["asks"] = np.broadcast_to(np.float32(asks), len(odds))
        score *= np.float32(asks)
    others = {"vector": columns.cosine, "text": text, **parts}
    groups = alike(columns, order, odds) if query.subject else ()
    return Ranked(order, score, others, candidates, groups, query_features, document_features)


def results(columns: Columns, mode: SearchMode) -> Bools:
    """Returns the documents that a search in this mode may return."""
    if mode == "vector":
        return columns.matched & columns.has_vector
    if mode == "text":
        with_a_term: Bools = columns.matched & (columns.term_counts > 0).any(axis=0)
        return with_a_term
    return columns.matched


def different_matches(columns: Columns, mode: SearchMode) -> int:
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


def log_odds(
    columns: Columns,
    query: SettledQuery,
    query_features: Floats,
    document_features: Floats,
    weights: Weights,
    interval: tuple[int, int] | None,
) -> tuple[Floats, dict[str, Floats]]:
    """Returns the log-odds of each document, shape (n,), relative to the others, and the parts that not every query
    has."""
    sources = columns.session, columns.speaker, columns.flags, weights
    query_weights, document_weights, base = columns.derived.get(
        "weights", sources, lambda: weight_columns(columns, weights)
    )
    odds: Floats = np.add.reduce(query_features * query_weights, axis=0)
    odds += columns.derived.get(
        "odds of documents",
        (document_features, document_weights, base),
        lambda: np.add.reduce(document_features * document_weights, axis=0) + base,
    )
    if query.foreign:
        change = foreign_weights(query_weights, weights.foreign) - query_weights
        odds += np.float32(query.foreign) * np.add.reduce(query_features * change, axis=0)
    parts: dict[str, Floats] = {}
    for name, weight, at in (
        ("echo", weights.echo, echoes(columns, weights.echo_cosine)),
        ("filler", weights.filler, fillers(columns)),
    ):
        if len(at):
            parts[name] = np.zeros(len(odds), np.float32)
            parts[name][at] = 1
            odds[at] += np.float32(weight)
    if interval is not None:
        parts["when"] = when(columns.time, interval)
        if query.dates is not None:  # "The visa expires on April 13, 2029" is of that day, whenever it was said
            parts["when"][(columns.term_counts[query.dates] > 0).any(axis=0)] = 1
        odds += np.float32(weights.when) * parts["when"]
    if query.order is not None:
        parts["latest"] = _by_time(columns, query, odds, parts, weights.latest)
        odds += np.float32(weights.latest) * parts["latest"]
    return odds, parts


def foreign_weights(query_weights: Floats, foreign: Foreign) -> Floats:
    """Returns the weights of `QUERY_FEATURES`, in the shape of `query_weights`, for a script that the model does not
    support."""
    changed = query_weights.copy()
    changed[QUERY_FEATURES.index("vector_scaled")] = foreign.vector_scaled
    changed[QUERY_FEATURES.index("vector_rank")] = 0
    changed[QUERY_FEATURES.index("text_scaled")] += np.float32(foreign.text_scaled)
    changed[REPEATS] += np.float32(foreign.repeats)
    return changed


def weight_columns(columns: Columns, weights: Weights) -> tuple[Floats, Floats, Floats]:
    """Returns the weights of the query's features, of the documents' features, and of the kind of each document, shapes
    (QUERY_FEATURES, n or 1), (DOCUMENT_FEATURES, n or 1), (n or 1,): one column if all documents are plain."""
    plain = plain_memories(columns)
    kinds = weights.person, weights.assistant, weights.plain
    kind_of = np.where(plain, 2, np.where(assistants(columns), 1, 0))
    by_hand = {"importance": weights.importance, "recency": weights.recency}
    rows = [[by_hand[name] if name in by_hand else getattr(kind, name) for kind in kinds] for name in FEATURES]
    by_kind = np.array(rows, np.float32)
    base = np.array([kind.base for kind in kinds], np.float32)
    summaries = np.float32(weights.summary) * (columns.flags & SUMMARY != 0)
    of_query = len(QUERY_FEATURES)
    if plain.all():
        return by_kind[:of_query, 2:], by_kind[of_query:, 2:], base[2:] + summaries
    by_document = np.ascontiguousarray(by_kind[:, kind_of])
    return by_document[:of_query], by_document[of_query:], base[kind_of] + summaries


def _by_time(columns: Columns, query: SettledQuery, odds: Floats, parts: dict[str, Floats], most: float) -> Floats:
    """Returns the feature `latest`, shape (n,), between -1 and 1. It is 0 except for the best documents that state
    something.

    Of these it is 1 for the newest, or the oldest, whichever the query asks for. If the query asks for what holds now,
    the older ones are obsolete: theirs is negative, but a weight of `most` takes none of them below the least of these
    documents. Of a query without a subject all documents are as good, and the feature halves with each step in time.
    """
    latest: Floats = np.zeros(len(odds), np.float32)
    stating = columns.matched & says_something(parts, np.arange(len(odds)))
    best = np.flatnonzero(stating)
    if query.subject:
        best = _sorted(columns, odds, stating, ORDERED_AMONG)[:ORDERED_AMONG]
        best = best[odds[best] >= odds[best[:1]] - np.float32(ORDERED_WITHIN)]
    times = np.unique(columns.time[best])
    steps = times.searchsorted(columns.time[best])
    back = steps if query.order == "earliest" else len(times) - 1 - steps
    if not query.subject:
        latest[best] = np.exp2(-1.0 * back)
    elif query.order == "present":
        latest[best] = np.where(back == 0, 1, -np.minimum((odds[best] - odds[best[-1:]]) / most, 1))
    else:
        latest[best] = back == 0
    return latest


def _sorted(columns: Columns, score: Floats, among: DocumentIndex, at_least: int | None) -> Ints:
    """Returns indices by score, then time, both descending, then engine handle: of all documents `among`, or at least
    of the best `at_least` of them."""
    if at_least is not None and len(score) > 4 * at_least:
        order = np.arange(len(score)) if among is ... else np.flatnonzero(among)
        if len(order) > 4 * at_least:
            values = score[order]
            order = order[values >= np.partition(values, -at_least)[-at_least]]
        return order[np.lexsort((columns.rows[order], -columns.time[order], -score[order]))]
    rows, time = columns.rows, columns.time
    newest = columns.derived.get("newest", (rows, time), lambda: np.lexsort((rows, -time)))
    order = newest if among is ... else newest[among[newest]]
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
    query: SettledQuery,
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


def contributions(
    ranked: Ranked, columns: Columns, query: SettledQuery, weights: Weights, index: int
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
    if query.foreign:
        change = foreign_weights(query_weights, weights.foreign) - query_weights
        query_weights = query_weights + query.foreign * change
    values = np.concatenate((ranked.query_features[:, index], ranked.document_features[:, index]))
    added = {"kind": float(base)}
    weighted = values * np.concatenate((query_weights, document_weights))
    added |= dict(zip(FEATURES, weighted.tolist(), strict=True))
    for name in ("echo", "filler", "when", "latest"):
        if name in ranked.other_parts:
            added[name] = float(ranked.other_parts[name][index]) * float(getattr(weights, name))
    if "first" in ranked.other_parts:
        added["first"] = float(ranked.other_parts["first"][index])
    return {name: value for name, value in added.items() if value}


def _short(values: Mapping[str, float]) -> dict[str, float]:
    return dict(zip(values, as_short(np.array(list(values.values()), np.float32)), strict=True))


def as_short(values: Floats) -> list[float]:
    """Returns the values with the digits of a float32, so that small scores stay distinct.

    orjson writes and reads them in this form faster than Python formats one number.
    """
    shortened: list[float] = orjson.loads(orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY))
    return shortened
