"""Negated questions: "Which herbs does she not like?" asks for what is denied, not for what she likes.

The vectors of a statement and of what denies it ("likes fish", "hates fish") differ along one direction, whatever the
statement is about. So the vector of a query that lies on the far side of it is moved along it, and comes nearer to what
is denied. No word is read, neither of the query nor of a document. The direction is fitted by scripts/fit_negation.py;
a model without one keeps its vectors.
"""

import numpy as np

from app.retrieval.directions import direction
from app.storage.search import Floats

ASSERTED, NEGATED = 0.03, 0.12
"""Where queries lie along the direction: below the first one nothing is denied (95 of 100 questions that ask what is
so), from the second one on everything is."""
FORCE = 0.6
"""How far the vector of a negated query is moved. Two documents as far apart as "likes" and "hates" then differ by 0.1
more in their cosine, and by less than 2 in their log-odds."""


def negation_of(vector: Floats, model: str) -> float:
    """Returns how surely a query denies, 0 to 1, by its `vector` of unit length."""
    denies = direction("negation", model, len(vector))
    if denies is None:
        return 0.0
    return min(max((float(vector @ denies) - ASSERTED) / (NEGATED - ASSERTED), 0.0), 1.0)


def towards_what_is_denied(vector: Floats, model: str) -> Floats:
    """Returns the `vector` of a query, nearer to what is denied as far as the query is negated; both of unit length."""
    denies, negated = direction("negation", model, len(vector)), negation_of(vector, model)
    if denies is None or not negated:
        return vector
    moved = vector + np.float32(FORCE * negated) * denies
    nearer: Floats = (moved / np.linalg.norm(moved)).astype(np.float32)
    return nearer
