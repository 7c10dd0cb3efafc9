"""Limits of a key's work and of an address' wrong keys.

Limits the work of each key by what it costs: a token bucket in units of work (`app/core/work.py`).

Limits wrong keys by address. A right key is served all the same: secrets have 256 bits and cannot be guessed, so the
limit saves work and makes attempts visible.
"""

import logging
import time
from collections.abc import Callable
from functools import lru_cache, partial
from ipaddress import IPv6Address, IPv6Network, ip_address
from math import ceil

from app.core import workers
from app.core.work import Account
from app.core.workers import Pair, Pairs
from app.errors import RateLimited
from app.metrics import WRONG_KEYS

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


@lru_cache(maxsize=1024)
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
