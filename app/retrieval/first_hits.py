"""The second step of the ranking: it orders the first hits among themselves.

The ranking compares a document with all others of the scope, and so finds what was said about the query. Of the few
that it found, mostly the newer one holds, and a statement of a person tells more than a question or than what an
assistant made of it: asked "Where do I live?", "I moved to Boston" goes before "I live in Paris". And of two that are
about the same words of the query, "The budget is 20k" and "Sorry, the budget is 12k", the later one replaces the
earlier one. A long text says many things, of which the newer one need not be what was asked for, so its time counts
less. How much each of these properties counts is fitted as the ranking is, by scripts/fit_ranking.py (conditional logit
among the first hits, McFadden 1974): apart for turns of conversations and for plain memories. In a talk of two named
people it gains nothing.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from app.retrieval.features import LONG_TEXT, TINY, term_weights
from app.retrieval.memory_kinds import assistants, plain_memories, questions
from app.retrieval.model_weights import FirstHitWeights, Weights
from app.retrieval.query_settling import SettledQuery
from app.storage.search import Bools, Columns, Floats, Ints
from app.storage.text import name_id

FIRST = 12
"""So many turns, and so many plain memories, are ordered among themselves. They hold the right one of 9 in 10
questions."""
FAR = 4.0
"""What is farther behind the best one, in log-odds, does not come nearer."""
ENOUGH_OF_QUERY = 0.4
"""Minimum share of a query's weight that two hits have in common to be about the same. With less MemDaily, a benchmark
of daily notes that resemble each other, loses .07 recall@10."""
EQUAL = 1e-4
"""Cosines to the query of equal texts differ by less."""
PROPERTIES = ("gap", "cosine", "newness", "statement", "length", "renewed", "replaced")
"""The fields of `FirstHitWeights`, in this order."""
NO_ORDER = FirstHitWeights()
USER = name_id("user")
"""The speaker of what a user without a name says."""


def order_first_hits(
    columns: Columns, query: SettledQuery, odds: Floats, order: Ints, weights: Weights, parts: Mapping[str, Floats]
) -> tuple[Ints, Floats | None]:
    """Returns `order`, the best first, with the first hits ordered among themselves, turns and plain memories apart,
    and the log-odds that each document gains by that, shape (n,), below 0 for one that loses; None: none is moved.

    `odds`: the log-odds of each document. `parts`: the parts of these that not every query has.
    """
    if not query.subject:  # a query of a time alone is ordered by that time
        return order, None
    start = order[: 2 * FIRST]
    gained = np.zeros(len(odds), np.float32)
    for group, fitted in groups_of_first(columns, start, weights, parts):
        gained[group] = gains(properties(columns, odds, group, past=asks_for_past(query, parts)), fitted)
    if not gained.any():
        return order, None
    # all are sorted, because one of the first may lose: what "Sorry, the budget is 12k" replaces falls far behind
    return order[(-(odds + gained)[order]).argsort(kind="stable")], gained


def asks_for_past(query: SettledQuery, parts: Mapping[str, Floats]) -> bool:
    """Returns whether the query names a time or asks for the earliest."""
    return "when" in parts or query.order == "earliest"


def groups_of_first(
    columns: Columns, start: Ints, weights: Weights, parts: Mapping[str, Floats]
) -> Iterator[tuple[Ints, FirstHitWeights]]:
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


def properties(columns: Columns, odds: Floats, group: Ints, *, past: bool) -> Floats:
    """Returns what is known of the first hits of one kind, shape (PROPERTIES, len(group)). `past`: the query names a
    time, or asks for the earliest, so that what was said later replaces nothing.

    `gap`: log-odds behind the best one, 0 to −`FAR`. `statement`: 1 for what a person states, 0 for a question and for
    what an assistant says. `length`: 1 for a text of 147 terms. `newness`: of a statement 0 if it is the oldest of the
    hits, 1 − `length` if the newest; 0 for others, for an answer is no newer than what it rests on. `renewed` and
    `replaced`: how surely a later one of the hits says something else about the same, 0 to 1. For `renewed` the later
    one counts by its share of the hit's words, and less in a long text; for `replaced` only if it has all of them.
    """
    time, same = columns.time[group], _same_texts(columns, group)
    newest_time = np.where(same, time, time.min()).max(axis=1)  # a text that is said again is as new
    times = np.unique(newest_time)
    newness = times.searchsorted(newest_time) / max(len(times) - 1, 1)
    asks = questions(columns)[group]
    statement = ~(assistants(columns)[group] | asks)
    gap = np.maximum(odds[group] - odds[group].max(), -FAR)
    length = np.log1p(columns.length[group]) / LONG_TEXT
    brief = np.maximum(1 - length, 0)
    renewed = replaced = np.zeros(len(group), np.float32)
    if not past:
        share, has_all = _common_words(columns, group)
        later = _later(columns, gap, group, asks, same)
        renewed, replaced = (share * later).max(axis=1, initial=0), (has_all * later).max(axis=1, initial=0)
    rows = gap, columns.cosine[group], newness * statement * brief, statement, length, renewed * brief, replaced
    return np.array(rows, np.float32)


def _common_words(columns: Columns, group: Ints) -> tuple[Floats, Bools]:
    """Returns, for each hit (row) and each other one (column), which share of the query's words in the hit the other
    one has, weighed by their rarity, and whether it has all of them and they are `ENOUGH_OF_QUERY`.

    "Sorry, the budget is 12k" has all of "The budget is 20k" for "What is the budget?".
    """
    weights, total = term_weights(columns)
    has = columns.term_counts[:, group] > 0
    common = np.add.reduce((has[:, :, None] & has[:, None, :]) * weights[:, :, None], axis=0)
    of_hit = common.diagonal()[:, None]
    lacks = (has[:, :, None] & ~has[:, None, :]).any(axis=0)
    has_all: Bools = (of_hit >= ENOUGH_OF_QUERY * max(total, TINY)) & ~lacks
    return common / np.maximum(of_hit, TINY), has_all


def _later(columns: Columns, gap: Floats, group: Ints, asks: Bools, same: Bools) -> Floats:
    """Returns, for each hit (row), how much each other one (column) counts as a later word of the same speaker, 0 to 1:
    the farther behind it is, the less. A question renews nothing, nor does a text that is said again."""
    time, speaker = columns.time[group], columns.speaker[group]
    behind = np.maximum(gap[:, None] - gap, 0) / FAR
    later = (time > time[:, None]) & (speaker == speaker[:, None]) & ~asks & ~same
    counts: Floats = (1 - behind**2) * later
    return counts


def _same_texts(columns: Columns, group: Ints) -> Bools:
    """Returns which hits have the same text, shape (len(group), len(group)): the same content, or, as under two keys,
    vectors that are equally near to the query."""
    content, cosine, has_vector = columns.content[group], columns.cosine[group], columns.has_vector[group]
    near = (np.abs(cosine - cosine[:, None]) < EQUAL) & has_vector & has_vector[:, None]
    same: Bools = (content == content[:, None]) | near
    return same


def gains(values: Floats, weights: FirstHitWeights) -> Floats:
    """Returns the log-odds that each of the first hits gains on the one that was first, shape (len(group),).

    `values`: `properties`, by falling log-odds. That one keeps its log-odds, and so its place among the others.
    """
    factors = np.array([[getattr(weights, name)] for name in PROPERTIES], np.float32)
    gain: Floats = np.add.reduce(factors * values, axis=0)
    gain -= gain[0]
    return gain
