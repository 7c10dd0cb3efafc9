"""The second step of the ranking: it orders the first hits of a conversation among themselves.

The ranking compares a document with all others of the scope, and so finds what was said about the query. Of the few
that it found, mostly the newer one holds, and a statement of a person tells more than a question or than what an
assistant made of it: asked "Where do I live?", "I moved to Boston" goes before "I live in Paris". How much each of
these properties counts is fitted as the ranking is, by scripts/fit_ranking.py (conditional logit among the first hits,
McFadden 1974), on conversations with an assistant alone: in a talk of two people, and among plain memories, it gains
nothing.
"""

import numpy as np

from app.retrieval.model_weights import FirstHits
from app.retrieval.query_analysis import assistants, questions
from app.storage.search import Columns, Floats, Ints

FIRST = 12
"""So many turns are ordered among themselves. They hold the right one of 9 in 10 questions."""
FAR = 4.0
"""What is farther behind the best one, in log-odds, does not come nearer."""
PROPERTIES = ("gap", "cosine", "newness", "statement")
"""The fields of `FirstHits`, in this order."""
NO_ORDER = FirstHits()


def properties(columns: Columns, odds: Floats, first: Ints) -> Floats | None:
    """Returns what is known of the first hits, shape (PROPERTIES, len(first)); None if no assistant said any of them.

    `gap`: log-odds behind the best one, 0 to −`FAR`. `newness`: 0 for the oldest of them, 1 for the newest.
    `statement`: 1 for what a person states, 0 for a question and for what an assistant says.
    """
    by_assistant = assistants(columns)[first]
    if not by_assistant.any():
        return None
    times = np.unique(columns.time[first])
    newness = times.searchsorted(columns.time[first]) / max(len(times) - 1, 1)
    statement = ~(by_assistant | questions(columns)[first])
    gap = np.maximum(odds[first] - odds[first].max(), -FAR)
    return np.array((gap, columns.cosine[first], newness, statement), np.float32)


def gains(found: Floats, weights: FirstHits) -> Floats:
    """Returns the log-odds that each of the first hits gains on the one that was first, shape (len(first),).

    `found`: `properties`, by falling log-odds. That one keeps its log-odds, and so its place among plain memories.
    """
    gain: Floats = np.array([getattr(weights, name) for name in PROPERTIES], np.float32) @ found
    gain -= gain[0]
    return gain
