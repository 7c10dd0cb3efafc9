"""What the documents of a scope have of a query: a pure function of its columns.

A score says how likely one document helps. These numbers say something about the query itself: whether it asks for
anything, and whether anything answers it. "ok, thanks" has few rare words and lies as near to one turn as to the next.
"""

from dataclasses import dataclass
from math import log1p

import numpy as np

from app.retrieval.features import BM25_K1, index_of, largest, term_weights
from app.storage.search import Columns

TINY = 1e-6


@dataclass(frozen=True, slots=True)
class QueryEvidence:
    """What the documents that matched have of a query."""

    margin: float | None
    """How much nearer the nearest document is than the median; None: the query has no vector."""
    best: float
    """Share of the query's words, weighed by their rarity, that the document with most of them has."""
    words: float
    """The number of words, each weighed by its rarity: 1 is a word that no document has."""
    covered: float
    """The number of words of the document with most of them, weighed alike."""
    count: int
    """Documents of the scope."""


def evidence_of(columns: Columns, *, has_vector: bool) -> QueryEvidence:
    """Returns what the documents have of a query. `has_vector`: whether the query has one."""
    among = index_of(columns.matched)
    cosine = columns.cosine[among]
    margin = largest(cosine) - float(np.median(cosine)) if len(cosine) else 0.0
    weights, limit = term_weights(columns)
    best = largest(np.add.reduce((columns.term_counts > 0) * weights, axis=0)[among])
    unit = (BM25_K1 + 1) * log1p(2 * columns.count + 1)
    return QueryEvidence(
        margin if has_vector else None, best / max(limit, TINY), limit / unit, best / unit, columns.count
    )
