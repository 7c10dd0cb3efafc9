"""Limits of a key's requests and work, and of an address' wrong keys.

Requests and work are limited by token buckets: a request takes one token, work takes as many units as it costs
(`app/core/work.py`). A right key is served whatever wrong ones came from its address: secrets have 256 bits and cannot
be guessed, so that limit saves work and makes attempts visible.
"""

import logging
import time
from collections.abc import Callable
from functools import partial
from ipaddress import IPv6Address, IPv6Network, ip_address
from math import ceil

from app.core import workers
from app.core.caches import kept
from app.core.work import Account
from app.core.workers import Pair, Pairs
from app.errors import RateLimited
from app.metrics import WRONG_KEYS

MAX_KEYS = 10_000
"""The number of keys whose requests and work are tracked; the least recently used is dropped first."""


def _refilled(bucket: Pair | None, now: float, rate: float, most: float) -> Pair:
    """Returns what a bucket holds now, at most `most`, and the time of that; it holds less than 0 if it is overdrawn.
    `rate`: units a second. A new bucket is full. The time is later than `now` if another worker has come in between."""
    held, since = bucket or (most, now)
    return min(most, held + max(0.0, now - since) * rate), max(now, since)


class RateLimiter:
    """Allows `per_second` requests for each key, with bursts of twice that; 0 means no limit.

    `clock` returns seconds. `buckets` hold the tokens of each key and the time of that; by default they are those of
    all workers.
    """

    def __init__(
        self, per_second: float, clock: Callable[[], float] = time.monotonic, buckets: Pairs | None = None
    ) -> None:
        self._rate, self._clock = per_second, clock
        self._buckets = workers.pairs("requests", MAX_KEYS) if buckets is None else buckets

    def check(self, key_id: str, per_second: float | None = None) -> None:
        """Counts a request. `per_second` is the key's own limit. Raises RateLimited if the key is over its limit."""
        rate = self._rate if per_second is None else per_second
        if not rate:
            return
        now, had = self._clock(), 0.0

        def take(bucket: Pair | None) -> Pair:
            nonlocal had
            had, since = _refilled(bucket, now, rate, max(1.0, 2 * rate))
            return had - (had >= 1), since

        self._buckets.change(key_id, take)
        if had < 1:
            raise RateLimited(f"At most {rate:g} requests a second.", retry_after=ceil((1 - had) / rate))


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
        return _refilled(bucket, now, self._rate, self._burst)


MAX_ADDRESSES = 10_000
"""The number of addresses that are counted; the one that sent none for longest is dropped first."""
NETWORK_BITS = 64
"""The prefix of an IPv6 network that counts as one address, since its owner can use any address in it."""

log = logging.getLogger(__name__)


class WrongKeyLimiter:
    """Allows `most` wrong keys of one address within `seconds`, counted from the first; 0 means no limit. `clock`
    returns seconds. `windows` hold when the window of each address began, and its wrong keys; by default
    they are those of all workers."""

    def __init__(
        self, most: int, seconds: float, clock: Callable[[], float] = time.monotonic, windows: Pairs | None = None
    ) -> None:
        self._most, self._seconds, self._clock = most, seconds, clock
        self._windows = workers.pairs("wrong_keys", MAX_ADDRESSES) if windows is None else windows

    def count(self, address: str) -> None:
        """Counts a wrong key. Raises RateLimited if the address has sent more than it may."""
        WRONG_KEYS.inc()
        if not self._most:
            return
        source, now = network(address), self._clock()

        def add(window: Pair | None) -> Pair:
            began, count = window or (now, 0)
            return (began, count + 1) if now < began + self._seconds else (now, 1)

        began, count = self._windows.change(source, add)
        if count <= self._most:
            return
        if count == self._most + 1:
            log.warning("an address sends wrong keys", extra={"address": source})
        raise RateLimited(
            f"More than {self._most} wrong keys came from this address within {self._seconds:g} s. "
            "This key is wrong, too; a right one is served.",
            retry_after=max(1, ceil(began + self._seconds - now)),
        )


@kept(1 << 20, longest=64)
def network(address: str) -> str:
    """Returns an IPv4 address as it is and the network of an IPv6 address. Text that is no address is returned as it
    is."""
    try:
        given = ip_address(address)
    except ValueError:
        return address[:64]
    if not isinstance(given, IPv6Address):
        return str(given)
    if given.ipv4_mapped is not None:
        return str(given.ipv4_mapped)
    return str(IPv6Network((int(given), NETWORK_BITS), strict=False))
