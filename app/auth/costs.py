"""Limits the work of each key by what it costs: a token bucket in units of work (`app/core/work.py`)."""

import time
from collections.abc import Callable
from functools import partial
from math import ceil

from app.core import workers
from app.core.work import Account
from app.core.workers import Pair, Pairs
from app.errors import RateLimited

MAX_KEYS = 10_000
"""The number of keys whose work is tracked; the least recently used is dropped first."""


class CostLimiter:
    """Allows `per_second` units of work for each key, and `burst_seconds` of that at once; 0 units mean no limit.

    What a request costs is known only while it runs, so a bucket may be overdrawn: the requests after it wait until the
    key has enough again. `clock` returns seconds. `buckets` hold the units of each key and the time of that; by
    default they are those of all workers.
    """

    def __init__(
        self,
        per_second: float,
        burst_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        buckets: Pairs | None = None,
    ) -> None:
        self._rate, self._burst, self._clock = per_second, per_second * burst_seconds, clock
        self._buckets = workers.pairs("costs", MAX_KEYS) if buckets is None else buckets

    def admit(self, key_id: str) -> Account | None:
        """Returns the account of a key, which takes units of work; None if there is no limit. Raises RateLimited if the
        account is overdrawn."""
        if not self._rate:
            return None
        units, _ = self._left(self._buckets.get(key_id), self._clock())
        if units < 0:
            raise RateLimited(
                f"At most {self._rate:g} units of work a second with one key, and {self._burst:g} at once. This key is "
                f"{ceil(-units)} units ahead of that. A unit is about a millisecond of one core.",
                retry_after=max(1, ceil(-units / self._rate)),
            )
        return partial(self._charge, key_id)

    def _charge(self, key_id: str, units: float) -> None:
        now = self._clock()

        def pay(bucket: Pair | None) -> Pair:
            left, since = self._left(bucket, now)
            return left - units, since

        self._buckets.change(key_id, pay)

    def _left(self, bucket: Pair | None, now: float) -> Pair:
        """Returns the units of a bucket now, less than 0 if it is overdrawn, and the time of that. The time is later
        than `now` if another worker has come in between."""
        units, since = bucket or (self._burst, now)
        return min(self._burst, units + max(0.0, now - since) * self._rate), max(now, since)
