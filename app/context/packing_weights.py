"""The fitted numbers of `expectation.py`, by the embedding model whose scores and cosines they were fitted with.

`scripts/fit_packing.py` prints them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app.embedding.model import without_runtime


@dataclass(frozen=True, slots=True)
class PackingWeights:
    """Log-odds for each unit of a feature, in the order of the functions of `expectation.py`, and the constant."""

    least_asks: float
    """The least probability that the query asks for anything; below it nothing is packed by worth."""
    more: Sequence[float]
    least_more: float
    """The least probability that the nearest entries are too few."""
    rest: Sequence[float]
    least_rest: float
    """The least probability that an entry that is still to come is needed."""


# `scripts/fit_packing.py fit` prints these
_OF_MODEL = {
    "recalld-minilm-1": PackingWeights(
        least_asks=0.7,
        more=(-1.508, -0.728, 0.875, 0.559, 0.375, -0.791, -2.271),
        least_more=0.073,
        rest=(-0.352, -0.139, 0.958, 0.429, -0.04, 1.263),
        least_rest=0.005,
    ),
    "all-MiniLM-L6-v2": PackingWeights(
        least_asks=0.7,
        more=(0.024, -1.374, 1.177, 0.896, 0.378, -0.619, -4.077),
        least_more=0.103,
        rest=(0.034, -0.198, 1.161, 0.081, -0.338, 1.206),
        least_rest=0.005,
    ),
}
"""Fitted numbers by the part of a model's name before the runtime."""


def packing_weights_for(model: str) -> PackingWeights | None:
    """Returns the numbers for an embedder's name; None: none were fitted, and prompts are filled."""
    return _OF_MODEL.get(without_runtime(model))
