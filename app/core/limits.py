"""Limits of a key's requests and work, and of an address' wrong keys.

Requests and work are limited by token buckets: a request takes one token, work takes as many units as it costs
(`app/core/work.py`). A right key is served whatever wrong ones came from its address: secrets have 256 bits and cannot
be guessed, so that limit saves work and makes attempts visible. Each process counts for itself.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, IPv6Network, ip_address
from math import ceil

from app.core.caches import kept
from app.core.work import Account
from app.errors import RateLimited
from app.metrics import WRONG_KEYS

MAX_KEYS = 10_000
"""The number of keys whose requests and work are tracked; the least recently used is dropped first."""


class Recent(OrderedDict[str, tuple[float, float]]):
    """Pairs of numbers by name, of the names that were seen last: at most `most`."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def keep(self, name: str, pair: tuple[float, float]) -> None:
        """Keeps the pair of a name, and drops that of the name that was seen longest ago if there are too many."""
        self[name] = pair
        self.move_to_end(name)
        if len(self) > self._most:
            self.popitem(last=False)


class Buckets:
    """Token buckets by key: `rate` units a second flow in, at most `most` are held. A new bucket is full."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` returns seconds."""
        self._clock = clock
        self._held = Recent(MAX_KEYS)
        """What each bucket held when it was last changed, less than 0 if it was overdrawn, and when that was."""

    def holds(self, key_id: str, rate: float, most: float) -> float:
        tokens, since = self._held.get(key_id, (most, 0.0))
        return min(most, tokens + (self._clock() - since) * rate)

    def take(self, key_id: str, units: float, rate: float, most: float) -> None:
        """Takes units from a bucket, which may be overdrawn."""
        self._held.keep(key_id, (self.holds(key_id, rate, most) - units, self._clock()))

    def __len__(self) -> int:
        return len(self._held)


class RateLimiter:
    """Allows `per_second` requests for each key, with bursts of twice that; 0: no limit. `clock` returns seconds."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._buckets = per_second, Buckets(clock)

    def check(self, key_id: str, per_second: float | None = None) -> None:
        """Counts a request. `per_second` is the key's own limit. Raises RateLimited if the key is over its limit."""
        rate = self._rate if per_second is None else per_second
        if not rate:
            return
        burst = max(1.0, 2 * rate)
        left = self._buckets.holds(key_id, rate, burst)
        if left < 1:
            raise RateLimited(f"At most {rate:g} requests a second.", retry_after=ceil((1 - left) / rate))
        self._buckets.take(key_id, 1, rate, burst)


class CostLimiter:
    """Allows `per_second` units of work for each key, and `burst_seconds` of that at once; 0 units mean no limit.

    What a request costs is known only while it runs, so a bucket may be overdrawn: the requests after it wait until the
    key has enough again. `clock` returns seconds.
    """

    def __init__(self, per_second: float, burst_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._buckets = per_second, per_second * burst_seconds, Buckets(clock)

    def admit(self, key_id: str) -> Account | None:
        """Returns the account of a key, which takes units of work; None if there is no limit. Raises RateLimited if the
        account is overdrawn."""
        if not self._rate:
            return None
        units = self._buckets.holds(key_id, self._rate, self._burst)
        if units < 0:
            raise RateLimited(
                f"At most {self._rate:g} units of work a second with one key, and {self._burst:g} at once. This key is "
                f"{ceil(-units)} units ahead of that. A unit is about a millisecond of one core.",
                retry_after=max(1, ceil(-units / self._rate)),
            )
        return lambda spent: self._buckets.take(key_id, spent, self._rate, self._burst)


MAX_ADDRESSES = 10_000
"""The number of addresses that are counted; the one that sent none for longest is dropped first."""
NETWORK_BITS = 64
"""The prefix of an IPv6 network that counts as one address, since its owner can use any address in it."""

log = logging.getLogger(__name__)


class WrongKeyLimiter:
    """Allows `most` wrong keys of one address within `seconds`, counted from the first; 0 means no limit. `clock`
    returns seconds."""

    def __init__(self, most: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._seconds, self._clock = most, seconds, clock
        self._windows = Recent(MAX_ADDRESSES)
        """When the window of each address began, and its wrong keys."""

    def count(self, address: str) -> None:
        """Counts a wrong key. Raises RateLimited if the address has sent more than it may."""
        WRONG_KEYS.inc()
        if not self._most:
            return
        source, now = network(address), self._clock()
        began, count = self._windows.get(source, (now, 0))
        if now >= began + self._seconds:
            began, count = now, 0
        count += 1
        self._windows.keep(source, (began, count))
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
