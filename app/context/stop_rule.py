"""The rule that ends packing before the budget is full. What it knows of a query stands in `expectation.py`."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from app.context.candidates import Candidate
from app.context.expectation import Rest, asks, needs_more
from app.context.packing_weights import PackingWeights
from app.retrieval.query_evidence import QueryEvidence

NEAREST_TOKENS = 450
"""Most tokens of the nearest entries. A query that nothing surely answers gets no more."""
CACHED_FACTOR = 30
"""Chosen so that 2,000 tokens of `layout: cached` lose less than .02 of what is needed: docs/concepts/context.md."""


class StopRule:
    """Says when enough of the competing items is packed: at once if the query asks for nothing, after the nearest
    entries if nothing surely answers it, and else when what is left is unlikely to be needed. The packer shows it these
    items once, in the order of packing, and then asks before it takes one:

        rule.begin(items)
        rule.is_enough(0, 0, 31)     # is anything needed at all?
        rule.is_enough(5, 420, 38)   # five items with 420 tokens are in, and the sixth has 38
    """

    _asks: bool
    _most_tokens: float
    _rest: Rest

    def __init__(
        self, evidence: Sequence[QueryEvidence], weights: PackingWeights, *, cached_share: float = 0.0
    ) -> None:
        """`cached_share`: the part of all scores that parts of the prompt have
        which a model caches. The more of what was found stands there, the likelier another entry has to be needed: the
        model reads it anew each time."""
        self._evidence = evidence
        self._weights = replace(weights, least_rest=weights.least_rest * (1 + CACHED_FACTOR * cached_share))

    def begin(self, items: Sequence[Candidate]) -> None:
        """Reads the competing items, in the order of packing."""
        scores = [item.score or 0.0 for item in items]
        self._asks = asks(self._evidence, self._weights)
        self._most_tokens = inf if needs_more(self._evidence, scores, self._weights) else NEAREST_TOKENS
        self._rest = Rest(scores, self._weights)

    def is_enough(self, index: int, tokens_before: int, cost: int) -> bool:
        """Returns whether packing ends before the item with this index. `tokens_before`: of the items before it;
        `cost`: its own tokens."""
        if not self._asks:
            return True
        too_many = tokens_before + cost > self._most_tokens
        return index > 0 and (too_many or not self._rest.is_needed(index, tokens_before))
