"""The ranking: a pure function of columns, query, time and a few fitted numbers.

It combines cosine and BM25 with features of the conversation. A turn gains from its neighbours (an answer needs its
question), from the best turn of its session, and from being spoken by the person that the query names. Each of three
kinds of memory has its own weights: turns of a person, turns of the assistant, and plain memories, which belong to no
conversation. The weights are fitted so that, for a query, the sum of a document's weighted features is the log of its
odds to be the answer (conditional logit, McFadden 1974). `order_first_hits` orders the first hits among themselves, and
`calibration.py` converts the odds to a probability. Formulas, evaluation: docs/contributing/ranking.md. `explained`
says what a hit's score is made of.
"""

import math
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import numpy as np
import orjson
from typing_extensions import TypeAliasType

from app.core.caches import kept_by_digest
from app.retrieval import features
from app.retrieval.calibration import at_another_time, probabilities
from app.retrieval.decay import DecayCurve
from app.retrieval.features import (
    FEATURES,
    LONG_TEXT,
    QUERY_FEATURES,
    TINY,
    DocumentIndex,
    assistants,
    echoes,
    fillers,
    index_of,
    plain_memories,
    plain_or_all,
    questions,
    term_weights,
)
from app.retrieval.model_weights import (
    Calibration,
    FirstHitWeights,
    Foreign,
    Weights,
)
from app.retrieval.query import SettledQuery
from app.retrieval.time_expressions import when
from app.storage.search import Bools, Columns, Floats, Ints
from app.storage.text import PASSAGE, SUMMARY, name_id, terms, words_in_order

SearchMode = TypeAliasType("SearchMode", Literal["hybrid", "vector", "text"])

FEW = 700
"""Up to this number of documents a plain stable sort is as fast as `_by_score`."""
ORDERED_AMONG, ORDERED_WITHIN = 4, 3.0
"""Limits of the feature `latest`: it orders by time so many of the best, within so many log-odds of the best one."""
ORDERED_NEAR = 0.6
"""The least scaled cosine of a document that `latest` orders without a word of the query."""
OTHER_READING = 0.5
"""What the time counts of the reading that is less likely: asked on Monday "What is on Friday?", last Friday."""
BY_HAND = frozenset({"importance", "recency"})
FITTED = tuple(name for name in FEATURES if name not in BY_HAND)
"""The features that each kind of memory has a fitted weight for (`Blend`)."""
REPEATS = QUERY_FEATURES.index("repeats")
COVERAGE, VECTOR_SCALED = QUERY_FEATURES.index("coverage"), QUERY_FEATURES.index("vector_scaled")


@dataclass(slots=True)  # not frozen, for speed: each search creates one
class Ranked:
    """A ranking."""

    order: Ints
    """Indices of the hits, best first."""
    score: Floats
    """(n,): the score of each document."""
    other_parts: dict[str, Floats]
    """The parts of the score that are no features, by name, each of shape (n,): `vector`, `text`, and those that not
    every query has: `echo`, `filler`, `when`, `latest`, `first`."""
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


def by_features(
    columns: Columns,
    query: SettledQuery,
    mode: SearchMode,
    now_ms: int,
    weights: Weights,
    decay: DecayCurve,
    *,
    at_least: int | None = None,
    intervals: Sequence[tuple[int, int]] = (),
) -> Ranked:
    """Ranks the documents that matched, or at least `at_least` of them. `intervals`: the milliseconds that the query
    names.

    Scores: `vector` the cosine (documents without a vector are left out), `text` BM25 (documents without any of the
    terms are left out), `hybrid` log-odds, no document is left out: `first_hits` and `finish` do the rest. Equal
    scores are ordered by time, newest first, then by engine handle.
    """
    among = index_of(results(columns, mode))
    if mode == "vector":
        return Ranked(_sorted(columns, columns.cosine, among, at_least), columns.cosine, {"vector": columns.cosine})
    text = features.bm25(columns)
    if mode == "text":
        return Ranked(_sorted(columns, text, among, at_least), text, {"text": text})
    query_features = features.query_features(columns, query, text)
    document_features = features.document_features(columns, now_ms, decay)
    odds, parts = log_odds(columns, query, query_features, document_features, weights, intervals)
    others = {"vector": columns.cosine, "text": text, **parts}
    return Ranked(_sorted(columns, odds, among, at_least), odds, others, query_features, document_features)


def finish(
    ranked: Ranked,
    columns: Columns,
    query: SettledQuery,
    first: "FirstHits",
    now_ms: int,
    weights: Weights,
    intervals: Sequence[tuple[int, int]],
    calibration: Calibration,
) -> None:
    """Orders the first hits of a hybrid ranking among themselves, and turns its log-odds into probabilities."""
    odds, parts = ranked.score, ranked.other_parts
    ranked.order, gained = order_first_hits(columns, first, odds, ranked.order, weights, parts)
    if gained is not None:
        odds = odds + gained
        parts["first"] = gained
    assert ranked.query_features is not None
    # what is planned was said before its time, so that only a time that has passed can be missed
    missable = bool(intervals) and intervals[0][1] <= now_ms
    elsewhen = at_another_time(columns, parts["when"]) if missable else None
    among = index_of(columns.matched)
    plain = plain_or_all(columns)
    ranked.score = probabilities(columns, query, odds, ranked.query_features, plain, calibration, among, elsewhen)


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


def top(ranked: Ranked, columns: Columns, k: int, without: Set[int] = frozenset()) -> list[int]:
    """Returns the indices of the first k documents with distinct contents. Of equal contents the best placed stays.
    `without`: contents that are passed over."""
    best = ranked.order[:k]
    if not without and len(set(columns.content.take(best).tolist())) == k:  # the usual case
        return list(best.tolist())
    chosen: dict[int, int] = {}
    for start in range(0, len(ranked.order), 2 * k):
        piece = ranked.order[start : start + 2 * k]
        for index, content in zip(piece.tolist(), columns.content.take(piece).tolist(), strict=True):
            if content not in without:
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
    intervals: Sequence[tuple[int, int]],
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
    if intervals:
        starts = columns.time if columns.starts is None else columns.starts
        fits = [when(starts, interval, columns.ends) for interval in intervals]
        parts["when"] = np.maximum(fits[0], fits[-1] if len(fits) == 1 else fits[-1] * np.float32(OTHER_READING))
        if query.dates is not None:  # "The visa expires on April 13, 2029" is of that day, whenever it was said
            parts["when"][(columns.term_counts[query.dates] > 0).any(axis=0)] = 1
        odds += np.float32(weights.when) * parts["when"]
    if query.order is not None:
        parts["latest"] = _by_time(columns, query, query_features, odds, parts, weights.latest)
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
    by_type = np.float32(weights.summary) * (columns.flags & SUMMARY != 0)
    passages = columns.flags & PASSAGE != 0
    by_type += np.float32(of_passages(len(passages), int(np.count_nonzero(passages)), weights)) * passages
    of_query = len(QUERY_FEATURES)
    if plain.all():
        return by_kind[:of_query, 2:], by_kind[of_query:, 2:], base[2:] + by_type
    by_document = np.ascontiguousarray(by_kind[:, kind_of])
    return by_document[:of_query], by_document[of_query:], base[kind_of] + by_type


def of_passages(count: int, passages: int, weights: Weights) -> float:
    """Returns the log-odds of a passage of a document, before a query is known, in a scope of `count` documents of
    which so many are passages.

    Of 2,000 passages some are near to any question, and each is as much less likely to be what is asked for as there
    are more of them than of memories: `of_passages(2_100, 2_000, weights)` is log(100 / 2,000) − 1.4, that of a note of
    three passages beside 97 memories 0. At least it is `least_passage`: a person of two memories has the manual, too.
    """
    if not passages:
        return 0.0
    odds = math.log(max(count - passages, 1) / passages) + weights.passage
    return max(min(odds, 0.0), weights.least_passage)


def _by_time(
    columns: Columns, query: SettledQuery, features: Floats, odds: Floats, parts: dict[str, Floats], most: float
) -> Floats:
    """Returns the feature `latest`, shape (n,), between -1 and 1. It is 0 except for the best documents that state
    something, and have a word of the query or are near to it.

    Of these it is 1 for the newest, or the oldest, whichever the query asks for. If the query asks for what holds now,
    the older ones are obsolete, and the newer ones are no answer to what held before: theirs is negative, but a weight
    of `most` takes none of them below the least of these documents. Of a query without a subject all documents are as
    good, and the feature halves with each step in time.
    """
    latest: Floats = np.zeros(len(odds), np.float32)
    stating = columns.matched & says_something(parts, np.arange(len(odds)))
    best = np.flatnonzero(stating)
    if query.subject:
        # "Who is our provider now?": the umbrella that broke today has no word of it, nor is it near
        near = (features[COVERAGE] > 0) | (features[VECTOR_SCALED] >= ORDERED_NEAR)
        best = _sorted(columns, odds, stating & near, ORDERED_AMONG)[:ORDERED_AMONG]
        best = best[odds[best] >= odds[best[:1]] - np.float32(ORDERED_WITHIN)]
    times = np.unique(columns.time[best])
    steps = times.searchsorted(columns.time[best])
    back = steps if query.order == "earliest" else len(times) - 1 - steps
    if not query.subject:
        latest[best] = np.exp2(-1.0 * back)
    elif query.order == "latest":
        latest[best] = back == 0
    else:
        latest[best] = np.where(back == 0, 1, -np.minimum((odds[best] - odds[best[-1:]]) / most, 1))
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


# --- The order of the first hits --------------------------------------------------------------------------------------

# The ranking compares a document with all others of the scope, and so finds the documents about the query. Among the
# first hits other properties tell which of them answers it:
#
# - A newer statement mostly holds: asked "Where do I live?", "I moved to Boston" goes before the older "I live in
#   Paris".
# - A person's statement tells more than a question, or than what an assistant made of that statement.
# - What an assistant answered when the same was asked before is second-hand: "You live in Paris." was made from what
#   memory had then, right or wrong.
# - A later statement replaces an earlier statement about the same subject: asked "What is the budget?", "Sorry, the
#   budget is 12k" replaces "The budget is 20k". Asked for my dog, "My sister's dog is called Bo" does not replace "My
#   dog is called Rex": its words differ before the new value, too (`same_subject`).
#
# The time of a long text counts less: it says many things, and the new thing in it need not be what was asked for.
#
# How much each property counts is fitted by scripts/fit_ranking.py, as the weights of the ranking are (conditional
# logit among the first hits), apart for turns of conversations and for plain memories. Turns of two people with names
# keep the order of the ranking: there these properties gained nothing.

FIRST = 12
"""So many turns, and so many plain memories, are ordered among themselves. The document that answers is among them for
9 of 10 questions."""
FAR = 4.0
"""The greatest distance to the best hit, in log-odds, that `gap` has: a hit that is 9 behind counts as 4 behind."""
ENOUGH_OF_QUERY = 0.4
"""Minimum share of the weight of a query's words that two hits have in common where the later hit replaces the earlier.
With a lower minimum, recall@10 falls by .07 in MemDaily, a benchmark of daily notes that resemble each other."""
TURNED = 2.0
"""Log-odds that a document loses that has the words of the query the other way round, beside one that has them in its
order."""
LONGEST = 1_000
"""Characters of a text of which it is told what it speaks of."""
EQUAL = 1e-4
"""Two hits whose cosines to the query differ by less have the same text."""
PROPERTIES = ("gap", "cosine", "newness", "statement", "length", "renewed", "second_hand", "replaced")
"""The fields of `FirstHitWeights`, in this order."""
NO_ORDER = FirstHitWeights()
USER = name_id("user")
"""The speaker of what a user without a name says."""


@dataclass(slots=True)
class FirstHits:
    """The first hits, turns and plain memories, and what each of them (row) has in common with each other one of its
    kind (column)."""

    group: Ints
    """Indices of the documents that are ordered among themselves, of each kind the best first."""
    plain: Bools
    """Which of them are plain memories."""
    same: Bools
    """The other one has the same text."""
    share: Floats
    """The share of the query's words of the hit, weighed by rarity, that the other one has, too: asked "What is the
    budget?", "The budget is 20k" has the word "budget", and "Sorry, the budget is 12k" has it, too."""
    has_all: Bools
    """It has all of them, and they are `ENOUGH_OF_QUERY`."""
    later: Bools
    """It is a later statement of the same speaker. A question is none, nor is the same text said again."""
    replaced: Sequence[tuple[int, int]] = ()
    """Pairs of an earlier and a later memory, of which the later one may say what holds instead. Their texts tell
    (`same_subject`), so that whoever has them leaves here those that do."""
    alike: Sequence[Sequence[int]] = ()
    """Groups of memories with the same words of the query, of which some may have them the other way round."""
    turned: Sequence[int] = ()
    """Those of them that do, as their texts tell (`turned`)."""


def first_hits(
    columns: Columns, query: SettledQuery, odds: Floats, order: Ints, weights: Weights, parts: Mapping[str, Floats]
) -> FirstHits:
    """Returns the first hits, turns and plain memories, at least two of a kind that has weights for its order. A query
    of a time alone, which is ordered by that time, has none.

    Turns are ordered if an assistant said one of the first documents, be it "Noted.", or if all turns are of a user
    without a name: when two people talk, "I" in the turns of one is not "I" in those of the other.

    `odds`: the log-odds of each document. `order`: indices of the documents, the best first. `parts`: the parts of
    these log-odds that not every query has, by name, such as `echo` and `when`.
    """
    start = order[: 2 * FIRST] if query.subject else order[:0]
    with_assistant = assistants(columns)[start].any()
    start = start[says_something(parts, start)]
    plain = plain_memories(columns)[start]
    turns, memories = start[~plain][:FIRST], start[plain][:FIRST]
    groups = alike(columns, memories, odds)
    of_one_person = with_assistant or (columns.speaker[turns] == USER).all()
    if len(turns) < 2 or weights.first_turns == NO_ORDER or not of_one_person:
        turns = turns[:0]
    if len(memories) < 2 or weights.first_plain == NO_ORDER:
        memories = memories[:0]
    past = asks_for_past(query, parts)
    first = compare_hits(columns, np.concatenate((turns, memories)), past=past)
    first.alike = groups
    if weights.first_plain.replaced and len(memories) and not past:
        first.replaced = _possible_replacements(columns, first)
    return first


def compare_hits(columns: Columns, group: Ints, *, past: bool) -> FirstHits:
    """Compares the documents of a group with each other. `past`: the query names a time or asks for the earliest, so
    that no later document replaces an earlier one."""
    plain, same = plain_memories(columns)[group], _same_texts(columns, group)
    if past or not len(group):
        return FirstHits(group, plain, same, np.zeros(same.shape, np.float32), np.zeros_like(same), np.zeros_like(same))
    weights, total = term_weights(columns)
    has = columns.term_counts[:, group] > 0
    common = np.einsum("ti,tj->ij", has * weights, has, dtype=np.float32)
    of_hit = common.diagonal()[:, None]
    time, speaker = columns.time[group], columns.speaker[group]
    later = (time > time[:, None]) & (speaker == speaker[:, None]) & (plain == plain[:, None])
    later &= ~(same | questions(columns)[group])
    has_all = (common >= of_hit) & (of_hit >= ENOUGH_OF_QUERY * max(total, TINY))
    return FirstHits(group, plain, same, common / np.maximum(of_hit, TINY), has_all, later)


def order_first_hits(
    columns: Columns, first: FirstHits, odds: Floats, order: Ints, weights: Weights, parts: Mapping[str, Floats]
) -> tuple[Ints, Floats | None]:
    """Returns `order` with the first hits ordered among themselves, turns and plain memories apart, and the log-odds
    that each document gains by this, shape (n,). A document that falls gains less than 0; None stands for no change.
    `odds`, `order`, `parts`: as in `first_hits`."""
    gained = np.zeros(len(odds), np.float32)
    if len(first.group):
        gained[first.group] = gains(properties(columns, odds, first, parts), first, weights)
    gained[list(first.turned)] -= np.float32(TURNED)
    if not gained.any():
        return order, None
    # all documents are sorted, because a first hit may fall behind those that follow: "The budget is 20k", which
    # "Sorry, the budget is 12k" replaces, falls far behind
    return order[(-(odds + gained)[order]).argsort(kind="stable")], gained


def asks_for_past(query: SettledQuery, parts: Mapping[str, Floats]) -> bool:
    """Returns whether the query names a time or asks for the earliest."""
    return "when" in parts or query.order == "earliest"


def says_something(parts: Mapping[str, Floats], among: Ints) -> Bools:
    """Returns the mask, shape (len(among),), of the documents that are neither an `echo` (a question that asks what the
    query asks) nor a `filler` ("Noted."). `among`: indices of documents."""
    stating = np.ones(len(among), np.bool_)
    for name in ("echo", "filler"):
        if name in parts:
            stating &= parts[name][among] == 0
    return stating


def properties(columns: Columns, odds: Floats, first: FirstHits, parts: Mapping[str, Floats]) -> Floats:
    """Returns the properties of the first hits, a row for each name of `PROPERTIES` and a column for each hit. Each hit
    is compared with those of its kind. `odds`, `parts`: as in `first_hits`.

    - `gap`: the log-odds that the hit has more than the best hit, from −`FAR` to 0.
    - `cosine`: that of the hit and the query.
    - `newness`: 0 for the oldest hit, 1 − `length` for the newest. Only statements have it: an assistant's answer is no
      newer than what it rests on.
    - `statement`: 1 for what a person states, 0 for a question and for what an assistant says.
    - `length`: grows with the logarithm of the number of terms; 1 for a text of 147 terms.
    - `second_hand`: 1 for what an assistant said right after an `echo`, a question that asks what the query asks.
    - `renewed` and `replaced`: how surely a later hit says something else about the same thing, 0 to 1: the less, the
      farther its log-odds are behind those of the hit. For `renewed` the share of the common words of the query counts,
      and less in a long text; for `replaced` the pairs that are known.
    """
    group, plain = first.group, first.plain
    time = columns.time[group]
    # a text that was said twice is as new as its last time
    newest_time = np.where(first.same, time, time.min()).max(axis=1)
    gap, newness = odds[group], np.zeros(len(group), np.float32)
    for of_kind in (plain, ~plain) if plain.any() and not plain.all() else (slice(None),):
        times = np.unique(newest_time[of_kind])
        newness[of_kind] = times.searchsorted(newest_time[of_kind]) / max(len(times) - 1, 1)
        gap[of_kind] -= gap[of_kind].max()
    np.maximum(gap, -FAR, out=gap)
    by_assistant = assistants(columns)[group]
    statement = ~(by_assistant | questions(columns)[group])
    length = np.log1p(columns.length[group]) / LONG_TEXT
    brief = np.maximum(1 - length, 0)
    behind = np.maximum(gap[:, None] - gap, 0) / FAR
    near = (1 - behind**2) * first.later
    renewed, replaced = (first.share * near).max(axis=1), np.zeros(len(group), np.float32)
    if first.replaced:
        places = {index: place for place, index in enumerate(group.tolist())}
        for earlier, later in first.replaced:
            replaced[places[earlier]] = near[places[earlier], places[later]]
    second_hand = np.zeros(len(group), np.bool_)
    if "echo" in parts:
        before = columns.previous[group]
        second_hand = by_assistant & (before >= 0) & (parts["echo"][before] > 0)
    newness *= statement * brief
    rows = gap, columns.cosine[group], newness, statement, length, renewed * brief, second_hand, replaced
    return np.array(rows, np.float32)


def _same_texts(columns: Columns, group: Ints) -> Bools:
    """Returns which pairs of hits have the same text, shape (len(group), len(group)).

    Two memories with the same text but different keys differ in `content`; their vectors are equally near to the query.
    """
    content, cosine, has_vector = columns.content[group], columns.cosine[group], columns.has_vector[group]
    near = (np.abs(cosine - cosine[:, None]) < EQUAL) & has_vector & has_vector[:, None]
    same: Bools = (content == content[:, None]) | near
    return same


def gains(values: Floats, first: FirstHits, weights: Weights) -> Floats:
    """Returns the log-odds that each hit gains on the first hit of its kind, shape (len(group),).

    `values`: what `properties` returns for hits of which each kind has falling log-odds. The first hit gains 0: it
    keeps its log-odds, and with them its place among documents of the other kind.
    """
    factors = np.where(first.plain, _factors(weights.first_plain), _factors(weights.first_turns))
    gain: Floats = np.add.reduce(factors * values, axis=0)
    gain -= np.where(first.plain, gain[first.plain.argmax()], gain[first.plain.argmin()])
    return gain


@lru_cache(maxsize=64)
def _factors(weights: FirstHitWeights) -> Floats:
    """Returns the weights of `PROPERTIES`, shape (PROPERTIES, 1)."""
    return np.array([[getattr(weights, name)] for name in PROPERTIES], np.float32)


def _possible_replacements(columns: Columns, first: FirstHits) -> list[tuple[int, int]]:
    """Returns, for each of the first plain memories, the newest of those that have all its words of the query and are
    later: the pairs whose texts tell whether they speak of the same subject."""
    later = first.has_all & first.later & first.plain
    newest = np.where(later, columns.time[first.group], np.iinfo(np.int64).min).argmax(axis=1)
    return [(int(first.group[at]), int(first.group[newest[at]])) for at in np.flatnonzero(later.any(axis=1))]


def same_subject(earlier: str, later: str, query: str) -> bool:
    """Returns whether two statements that have the same words of a query differ in their value alone.

        same_subject("The budget is 20k", "Sorry, the budget is 12k", "What is the budget?")
        not same_subject("My dog is called Rex", "My sister's dog is called Bo", "What is my dog called?")

    The clauses with the words of the query are compared word by word. They may differ in one place, where words of one
    stand for words of the other, or behind the last word that they have in common, and before it by single words in the
    place of others behind the first word of the query: "on Tuesday at 4", "on Thursday at 5". A word more or less tells
    nothing: "now", as well as "backups", may stand there. A later statement with all words of the earlier one corrects
    it: "Mr. Olsen is our contact", "Ms. Varga has replaced Mr. Olsen as our contact".
    """
    if max(len(earlier), len(later)) > LONGEST:
        return False
    asked = set(terms(query))
    (old_terms, old_clauses), (new_terms, new_clauses) = _read(earlier), _read(later)
    if old_terms < new_terms:
        return True
    old, new = _about(old_clauses, asked), _about(new_clauses, asked)
    first = next((at for at, word in enumerate(new) if word in asked), len(new))
    changes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    in_common = [at for at, (tag, *_) in enumerate(changes) if tag == "equal"]
    if not in_common:
        return False
    if len(changes) - len(in_common) == 1:
        return any(tag == "replace" for tag, *_ in changes)
    for at, (tag, old_start, old_end, new_start, new_end) in enumerate(changes):
        if tag == "equal":
            continue
        if at > in_common[-1]:
            return tag == "replace"
        if tag != "replace" or old_end - old_start != new_end - new_start or new_start <= first:
            return False
    return True


def _about(clauses: Sequence[Sequence[str]], asked: Set[str]) -> list[str]:
    """Returns the words from the first clause with a word of the query to the last one."""
    about = [at for at, clause in enumerate(clauses) if not asked.isdisjoint(clause)]
    return [word for clause in clauses[about[0] : about[-1] + 1] for word in clause] if about else []


@kept_by_digest(4 << 20, lambda read: 100 * (2 + len(read[0]) + sum(1 + len(clause) for clause in read[1])))
def _read(text: str) -> tuple[frozenset[str], list[list[str]]]:
    """Returns the terms of a text, and the words of its clauses in their order."""
    return frozenset(terms(text)), [words_in_order(clause) for clause in _CLAUSE_END.split(text)]


_CLAUSE_END = re.compile(r"[,:;.!?\n](?=\s|\Z)|[\uff0c\u3002\uff01\uff1f\uff1b\u3001\uff1a]")


def alike(columns: Columns, memories: Ints, odds: Floats) -> list[list[int]]:
    """Returns groups of the first plain `memories` that have the same words of the query, two words at least, and about
    the same log-odds: the documents whose texts tell who does what to whom (`turned`)."""
    memories = memories[odds[memories] >= odds[memories[:1]] - TURNED]  # what lies farther behind stays behind
    has = columns.term_counts[:, memories] > 0
    groups: dict[bytes, list[int]] = {}
    for index, words, count in zip(memories.tolist(), has.T, np.count_nonzero(has, axis=0).tolist(), strict=True):
        if count > 1:
            groups.setdefault(words.tobytes(), []).append(index)
    return [group for group in groups.values() if len(group) > 1]


def turned(texts: Mapping[int, str], query: str) -> list[int]:
    """Returns which texts have more neighbouring words of the query the other way round than another one of them.

        turned({0: "Mira manages Olaf", 1: "Olaf manages Pia"}, "Who manages Olaf?") == [1]

    A genitive turns the two: "Olaf's parent" is whose parent is Olaf in "Mira parent of Olaf".
    """
    asked, genitive = terms(query), _GENITIVE.search(query) is not None
    counts: dict[int, int] = {}
    for index, text in texts.items():
        words = [word for clause in _read(text)[1] for word in clause] if len(text) <= LONGEST else []
        at = {word: words.index(word) for word in asked if word in words}
        before_of = {word for word, place in at.items() if genitive and words[place + 1 : place + 2] == ["of"]}
        counts[index] = sum(
            (at[one] > at[other]) != bool(before_of & {one, other})
            for one, other in pairwise(word for word in asked if word in at)
            if one != other
        )
    return [index for index, count in counts.items() if count > min(counts.values())]


_GENITIVE = re.compile(r"['\u2019]s\b")


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
