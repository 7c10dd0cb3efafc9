"""A token bucket for each key, in this process."""

import time
from collections import OrderedDict
from collections.abc import Callable
from math import ceil

from app.errors import RateLimited

MAX_KEYS = 10_000


class RateLimiter:
    """`per_second` requests with bursts of twice that; 0 limits nothing. `clock` counts seconds."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = per_second, max(1.0, 2 * per_second), clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, key_id: str) -> None:
        if not self._rate:
            return
        now = self._clock()
        tokens, since = self._buckets.pop(key_id, (self._burst, now))
        tokens = min(self._burst, tokens + (now - since) * self._rate)
        allowed = tokens >= 1
        self._buckets[key_id] = (tokens - allowed, now)
        if len(self._buckets) > MAX_KEYS:
            self._buckets.popitem(last=False)
        if not allowed:
            raise RateLimited(f"At most {self._rate:g} requests a second.", retry_after=ceil((1 - tokens) / self._rate))
