"""What a query expects of memory, by a few fitted numbers: whether it asks for anything (`app/retrieval/asking.py`),
whether what it needs is among the nearest entries, and whether entries that are still to come are needed. Pure
functions.

A budget is a limit, not a target: "thanks!" needs nothing, and most questions are answered by the first 400 tokens. The
numbers are in `packing_weights.py`, fitted by `scripts/fit_packing.py`; figures: docs/concepts/context.md.
"""

from collections.abc import Sequence
from math import exp, log, log1p
from operator import mul

from app.context.packing_weights import PackingWeights
from app.retrieval.query_evidence import QueryEvidence

AMONG = 10
"""The number of best scores that are compared: if the tenth is nearly as good as the first, none stands out."""
ALL_WORDS, RARE = 0.99, 0.5
"""The share of the query's words that is all of them, and the weight of one that is rare."""
LEAST_DOCUMENTS = 8
"""Of fewer documents the median says nothing, and all of them take hardly any room."""
LEAST_SCORE, STEP_TOKENS = 1e-4, 50


def asks(evidence: Sequence[QueryEvidence], weights: PackingWeights) -> bool:
    """Returns whether a query asks for anything that memory may have, as far as anybody knows.

    One collection that has it is enough, and so is an entry with every word of it, such as a name: "ok" may be in many
    entries and is not rare."""
    if any(collection.best >= ALL_WORDS and collection.covered >= RARE for collection in evidence):
        return True
    known = [collection.asks for collection in evidence if collection.asks is not None]
    return not known or max(known) >= weights.least_asks


def needs_more(evidence: Sequence[QueryEvidence], scores: Sequence[float], weights: PackingWeights) -> bool:
    """Returns whether a query may need more than the nearest entries. `evidence`: what each searched collection that
    has documents has of it; `scores`: of all entries that compete."""
    if not evidence:
        return True
    most = max(evidence, key=lambda collection: collection.covered)
    return _sigmoid(more_features(most, scores), weights.more) >= weights.least_more


def more_features(evidence: QueryEvidence, scores: Sequence[float]) -> list[float]:
    """Returns the features of `needs_more`: the words that memory has of the query, and how far the best entries stand
    out. Where one does, it is packed first; where none does, what was asked was hardly ever said."""
    best = [*sorted(scores, reverse=True)[:AMONG], *[0.0] * AMONG]
    stands_out = _logit(best[0]) - _logit(best[AMONG - 1])
    sizes = log1p(evidence.covered), log1p(evidence.words), log1p(evidence.count)
    return [evidence.best, *sizes, _logit(best[0]), stands_out]


class Rest:
    """The entries of a prompt in the order of packing, as far as they are still to come."""

    def __init__(self, scores: Sequence[float], weights: PackingWeights) -> None:
        self._scores, self._weights = scores, weights
        self._sums, self._largest = [0.0], [0.0]
        for score in reversed(scores):
            self._sums.append(self._sums[-1] + score)
            self._largest.append(max(self._largest[-1], score))

    def is_needed(self, at: int, tokens: int) -> bool:
        """Returns whether an entry from `at` on is likely to be needed. `tokens`: of the entries before."""
        return _sigmoid(self.features(at, tokens), self._weights.rest) >= self._weights.least_rest

    def features(self, at: int, tokens: int) -> list[float]:
        """Returns the features of `is_needed`: the scores of what is to come, and what stands there already."""
        left, largest = self._sums[len(self._scores) - at], self._largest[len(self._scores) - at]
        whole, best = max(self._sums[-1], LEAST_SCORE), max(self._largest[-1], LEAST_SCORE)
        return [
            log1p(tokens / STEP_TOKENS),
            log(left + LEAST_SCORE),
            log(left / whole + LEAST_SCORE),
            log(largest / best + LEAST_SCORE),
            log1p(at),
        ]


def _sigmoid(features: Sequence[float], weights: Sequence[float]) -> float:
    """Returns the probability. The last weight is the constant."""
    odds = sum(map(mul, features, weights)) + weights[-1]
    return 1 / (1 + exp(-max(-50.0, min(50.0, odds))))


def _logit(score: float) -> float:
    bounded = min(max(score, LEAST_SCORE), 1 - LEAST_SCORE)
    return log(bounded / (1 - bounded))
