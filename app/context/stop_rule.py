"""The rule that ends packing before the budget is full. What it knows of a query stands in `expectation.py`."""

from collections.abc import Callable, Sequence

from app.context.candidates import Candidate
from app.context.expectation import stop_rule
from app.context.packing_weights import PackingWeights
from app.retrieval.query_evidence import QueryEvidence


class StopRule:
    """Says when enough of the competing items is packed. The packer shows it these items once, in the order of packing,
    and then asks before it takes one:

        rule.begin(items)
        rule.is_enough(0, 0, 31)     # is anything needed at all?
        rule.is_enough(5, 420, 38)   # five items with 420 tokens are in, and the sixth has 38
    """

    _is_enough: Callable[[int, int, int], bool]

    def __init__(
        self,
        query: str,
        evidence: Sequence[QueryEvidence],
        weights: PackingWeights,
        *,
        dated: bool = False,
        cached_share: float = 0.0,
    ) -> None:
        """`dated`: whether the query names a time. `cached_share`: the part of all scores that parts of the prompt have
        which a model caches."""
        self._query, self._evidence, self._weights = query, evidence, weights
        self._dated, self._cached_share = dated, cached_share

    def begin(self, items: Sequence[Candidate]) -> None:
        """Reads the competing items, in the order of packing."""
        self._is_enough = stop_rule(
            self._query, self._evidence, self._weights, items, dated=self._dated, told=self._cached_share
        )

    def is_enough(self, index: int, tokens_before: int, cost: int) -> bool:
        """Returns whether packing ends before the item with this index. `tokens_before`: of the items before it;
        `cost`: its own tokens."""
        return self._is_enough(index, tokens_before, cost)
