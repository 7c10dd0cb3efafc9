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
        self._rate, self._clock = per_second, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, key_id: str, per_second: float | None = None) -> None:
        rate = self._rate if per_second is None else per_second
        if not rate:
            return
        burst, now = max(1.0, 2 * rate), self._clock()
        tokens, since = self._buckets.pop(key_id, (burst, now))
        tokens = min(burst, tokens + (now - since) * rate)
        allowed = tokens >= 1
        self._buckets[key_id] = (tokens - allowed, now)
        if len(self._buckets) > MAX_KEYS:
            self._buckets.popitem(last=False)
        if not allowed:
            raise RateLimited(f"At most {rate:g} requests a second.", retry_after=ceil((1 - tokens) / rate))
