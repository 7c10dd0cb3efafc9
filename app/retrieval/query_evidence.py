"""What the documents of a scope have of a query: a pure function of its columns.

A score says how likely one document helps. These numbers say something about the query itself: whether it asks for
anything, and whether anything answers it. "ok, thanks" has few rare words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log1p

import numpy as np

from app.retrieval.features import BM25_K1, index_of, largest, term_weights
from app.retrieval.query import AsksWeights, SettledQuery, likely_asks
from app.storage.search import Columns

TINY = 1e-6
LEAST_ASKS = 0.7
"""The least probability that a query asks for anything. It may shorten a prompt and never empties one."""
ALL_WORDS, RARE = 0.99, 0.5
"""The share of the query's words that is all of them, and the weight of one that is rare."""


@dataclass(frozen=True, slots=True)
class QueryEvidence:
    """What the documents that matched have of a query."""

    best: float
    """Share of the query's words, weighed by their rarity, that the document with most of them has."""
    words: float
    """The number of words, each weighed by its rarity: 1 is a word that no document has."""
    covered: float
    """The number of words of the document with most of them, weighed alike."""
    count: int
    """Documents of the scope."""
    asks: float | None = None
    """The probability that the query asks for anything; None: it has no vector, or nothing is known of its model's."""


def asks_for_anything(evidence: Sequence[QueryEvidence]) -> bool:
    """Returns whether a query asks for anything that memory may have, as far as anybody knows.

    One collection that has it is enough, and so is an entry with every word of it, such as a name: "ok" may be in many
    entries and is not rare."""
    if any(collection.best >= ALL_WORDS and collection.covered >= RARE for collection in evidence):
        return True
    return max((known.asks for known in evidence if known.asks is not None), default=1.0) >= LEAST_ASKS


def evidence_of(columns: Columns, query: SettledQuery, weights: AsksWeights | None) -> QueryEvidence:
    """Returns what the documents have of a query. `weights`: of the model of its vector."""
    term_weight, _ = term_weights(columns)
    most = largest(np.add.reduce((columns.term_counts > 0) * term_weight, axis=0)[index_of(columns.matched)])
    words = words_of(columns)
    covered = most / _weight_of_a_word(columns)
    asks = None if weights is None or query.along is None else likely_asks(query.along, covered, weights)
    return QueryEvidence(covered / max(words, TINY), words, covered, columns.count, asks)


def words_of(columns: Columns) -> float:
    """Returns the number of the query's words, each weighed by its rarity: 1 is a word that no document has."""
    _, total = term_weights(columns)
    return total / _weight_of_a_word(columns)


def _weight_of_a_word(columns: Columns) -> float:
    """Returns the weight of a word that no document has."""
    return (BM25_K1 + 1) * log1p(2 * columns.count + 1)
