"""Limits the work of each key by what it costs: a token bucket in units of work (`app/core/work.py`)."""

import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from math import ceil

from app.core.work import Account
from app.errors import RateLimited

MAX_KEYS = 10_000
"""The number of keys whose work is tracked; the least recently used is dropped first."""


class CostLimiter:
    """Allows `per_second` units of work for each key, and `burst_seconds` of that at once; 0 units mean no limit.

    What a request costs is known only while it runs, so a bucket may be overdrawn: the requests after it wait until the
    key has enough again. `clock` returns seconds.
    """

    def __init__(self, per_second: float, burst_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = per_second, per_second * burst_seconds, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def admit(self, key_id: str) -> Account | None:
        """Returns the account of a key, which takes units of work; None if there is no limit. Raises RateLimited if the
        account is overdrawn."""
        if not self._rate:
            return None
        units = self._left(key_id)
        if units < 0:
            raise RateLimited(
                f"At most {self._rate:g} units of work a second with one key, and {self._burst:g} at once. This key is "
                f"{ceil(-units)} units ahead of that. A unit is about a millisecond of one core.",
                retry_after=max(1, ceil(-units / self._rate)),
            )
        return partial(self._charge, key_id)

    def _charge(self, key_id: str, units: float) -> None:
        self._buckets[key_id] = self._left(key_id) - units, self._clock()
        self._buckets.move_to_end(key_id)
        if len(self._buckets) > MAX_KEYS:
            self._buckets.popitem(last=False)

    def _left(self, key_id: str) -> float:
        """Returns the units that the key has now; less than 0 if it is overdrawn."""
        now = self._clock()
        units, since = self._buckets.get(key_id, (self._burst, now))
        return min(self._burst, units + (now - since) * self._rate)
