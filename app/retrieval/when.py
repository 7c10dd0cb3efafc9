"""How well a memory's time fits the interval that a query speaks of."""

import numpy as np

from app.storage.search import Floats, Ints

HALF_LIFE = 0.5
"""Of the feature, in lengths of the interval: a day beside "yesterday" is a quarter."""
LEAST_HALF_LIFE_MS = 3_600_000
"""An hour: nobody remembers to the minute."""
MOST_HALF_LIFE_MS = 91 * 86_400_000
"""A quarter of a year: "before 2020" is long, and its end means what it says."""


def when(time_ms: Ints, interval: tuple[int, int] | None) -> Floats:
    """(n,): 1 inside of the interval (milliseconds since 1970, end excluded), beside it halved with each half length of
    distance; 0 everywhere without an interval."""
    if interval is None:
        return np.zeros(len(time_ms), np.float32)
    start, end = interval
    half_life = min(max(HALF_LIFE * (end - start), LEAST_HALF_LIFE_MS), MOST_HALF_LIFE_MS)
    distance = np.maximum(np.maximum(start - time_ms, time_ms - (end - 1)), 0)
    fit: Floats = np.exp2(distance * (-1 / half_life)).astype(np.float32)
    return fit
