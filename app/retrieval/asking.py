"""Whether a query asks for anything that memory may have: "thanks, see you tomorrow!" asks for nothing, in no language.

The vectors of what asks and of what does not lie apart, whatever it is about: how far a query's vector lies along one
direction of the embedding model says how likely it asks (a linear probe, Alain and Bengio 2016, "Understanding
intermediate layers using linear classifier probes"). A bare name or a keyword lies between the two. It asks where
memory has it: "Rex" where a dog of that name was spoken of. No word of the query is read. scripts/fit_asking.py fits
the direction and the numbers; a model without them takes every query for one that asks.

    asks = 1 / (1 + e^-(along + covered * words + base))

`along` is the place of the query's vector along the direction, `words` how many of its words a document has, each
weighed by its rarity.
"""

import math
from dataclasses import dataclass

from app.retrieval.directions import direction
from app.storage.search import Floats


@dataclass(frozen=True, slots=True)
class AsksWeights:
    """The numbers of one embedding model."""

    covered: float
    """Log-odds for a word that a document has and hardly any other one."""
    base: float


def along(vector: Floats, model: str) -> float | None:
    """Returns where the `vector` of a query lies along the direction in which queries ask; None: the model has none."""
    asks = direction("asks", model, len(vector))
    return None if asks is None else float(vector @ asks)


def likely_asks(place: float, covered: float, weights: AsksWeights) -> float:
    """Returns the probability that a query asks for anything.

    Args:
        place: `along` of its vector.
        covered: How many of its words the document with most of them has, each weighed by its rarity
            (`QueryEvidence.covered`).
        weights: The numbers of the model.
    """
    odds = place + weights.covered * covered + weights.base
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, odds))))
