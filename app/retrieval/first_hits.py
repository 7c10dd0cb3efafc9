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

import numpy as np

from app.retrieval.features import LONG_TEXT, TINY, term_weights
from app.retrieval.model_weights import FirstHits
from app.retrieval.query_analysis import assistants, questions
from app.storage.search import Bools, Columns, Floats, Ints

FIRST = 12
"""So many turns, and so many plain memories, are ordered among themselves. They hold the right one of 9 in 10
questions."""
FAR = 4.0
"""What is farther behind the best one, in log-odds, does not come nearer."""
MOST = 0.4
"""Share of a query that is enough to be about the same. With less MemDaily loses .07 recall@10."""
EQUAL = 1e-4
"""Cosines to the query of equal texts differ by less."""
PROPERTIES = ("gap", "cosine", "newness", "statement", "length", "renewed", "replaced")
"""The fields of `FirstHits`, in this order."""
NO_ORDER = FirstHits()


def properties(columns: Columns, odds: Floats, first: Ints, *, past: bool) -> Floats:
    """Returns what is known of the first hits of one kind, shape (PROPERTIES, len(first)). `past`: the query names a
    time, or asks for the earliest, so that what was said later replaces nothing.

    `gap`: log-odds behind the best one, 0 to −`FAR`. `statement`: 1 for what a person states, 0 for a question and for
    what an assistant says. `length`: 1 for a text of 147 terms. `newness`: of a statement 0 if it is the oldest of the
    hits, 1 − `length` if the newest; 0 for others, for an answer is no newer than what it rests on. `renewed` and
    `replaced`: see `_renewed`; `renewed` counts less in a long text, too.
    """
    time, same = columns.time[first], _same(columns, first)
    time = np.where(same, time, time.min()).max(axis=1)  # a text that is said again is as new
    times = np.unique(time)
    newness = times.searchsorted(time) / max(len(times) - 1, 1)
    asks = questions(columns)[first]
    statement = ~(assistants(columns)[first] | asks)
    gap = np.maximum(odds[first] - odds[first].max(), -FAR)
    length = np.log1p(columns.length[first]) / LONG_TEXT
    brief = np.maximum(1 - length, 0)
    renewed, replaced = (0 * gap, 0 * gap) if past else _renewed(columns, gap, first, same)
    said = newness * statement * brief, statement, length, renewed * brief, replaced
    return np.array((gap, columns.cosine[first], *said), np.float32)


def _renewed(columns: Columns, gap: Floats, first: Ints, same: Bools) -> tuple[Floats, Floats]:
    """Returns how surely a later one of the hits says something else about the same, 0 to 1, shapes (len(first),).

    The first number is the share of the query's words in a hit, weighed by their rarity, that a later one of the same
    speaker has, too: "Sorry, the budget is 12k" has all of "The budget is 20k" for "What is the budget?". The second
    counts only one that has all of them, where they are `MOST` of the query. The farther the later one is behind, the
    less it counts, and a question renews nothing.
    """
    weights, limit = term_weights(columns)
    has = columns.hits[:, first] > 0
    common = np.add.reduce((has[:, :, None] & has[:, None, :]) * weights[:, :, None], axis=0)
    share = common / np.maximum(common.diagonal()[:, None], TINY)
    lacks = (has[:, :, None] & ~has[:, None, :]).any(axis=0)
    whole = (common.diagonal()[:, None] >= MOST * max(limit, TINY)) & ~lacks
    time, speaker = columns.time[first], columns.speaker[first]
    behind = np.maximum(gap[:, None] - gap, 0) / FAR
    later = (time > time[:, None]) & (speaker == speaker[:, None]) & ~questions(columns)[first]
    later &= ~same  # a text that is said again replaces nothing
    near = (1 - behind**2) * later
    return (share * near).max(axis=1, initial=0), (whole * near).max(axis=1, initial=0)


def _same(columns: Columns, first: Ints) -> Bools:
    """Returns which hits have the same text, shape (len(first), len(first)): the same content, or, as under two keys,
    vectors that are equally near to the query."""
    content, cosine, known = columns.content[first], columns.cosine[first], columns.has_vector[first]
    near = (np.abs(cosine - cosine[:, None]) < EQUAL) & known & known[:, None]
    same: Bools = (content == content[:, None]) | near
    return same


def gains(found: Floats, weights: FirstHits) -> Floats:
    """Returns the log-odds that each of the first hits gains on the one that was first, shape (len(first),).

    `found`: `properties`, by falling log-odds. That one keeps its log-odds, and so its place among the others.
    """
    gain: Floats = np.array([getattr(weights, name) for name in PROPERTIES], np.float32) @ found
    gain -= gain[0]
    return gain
