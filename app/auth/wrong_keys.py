"""Limits wrong keys by address. A right key is served all the same: secrets have 256 bits and cannot be guessed, so the
limit saves work and makes attempts visible."""

import logging
import time
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address
from math import ceil

from app.core import workers
from app.core.workers import Pair, Pairs
from app.errors import RateLimited
from app.metrics import WRONG_KEYS

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
