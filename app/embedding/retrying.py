"""Asking a server that may fail: again within a deadline, then not at all for a while."""

import math
import random
import time
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from app.errors import EmbeddingUnavailable

ATTEMPTS = 4
FIRST_WAIT, LONGEST_WAIT = 0.25, 4.0
LONGEST_PAUSE = 60.0

T = TypeVar("T")
Attempt: TypeAlias = Callable[[float], T]


class Fault(Exception):
    """An attempt failed in a way that passes. `after`: the seconds that the server asked to be left alone."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class Retrying:
    """Called from one thread.

    A call that fails for good opens a pause, in which others fail at once: they stand in line behind each other, and
    would otherwise wait for a dead server one deadline each. The pause lasts at least as long as the server kept the
    call waiting, so that callers wait for a server that hangs no more than half of the time.
    """

    def __init__(self, seconds: float, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """`seconds`: the most that one call may take, waiting included."""
        self._seconds, self._sleep = seconds, sleep
        self._failed = 0  # calls in a row
        self._pause_ends = 0.0
        self._reason = ""

    def call(self, attempt: Attempt[T], *, harmless: Attempt[object] | None = None) -> T:
        """`attempt` is given the seconds left and raises `Fault` for another try. Raises `EmbeddingUnavailable`.

        `harmless` is an attempt that succeeds wherever the server is well: then it is what was asked that is at fault
        (llama.cpp says 500 to a text that is too long), and others need not pause for it.
        """
        started = time.monotonic()
        if started < self._pause_ends:
            raise self._unavailable()
        deadline, slept = started + self._seconds, 0.0
        for tried in range(1, ATTEMPTS + 1):
            try:
                result = attempt(deadline - time.monotonic())
            except Fault as fault:
                wait = _wait(tried, fault.after)
                if tried == ATTEMPTS or time.monotonic() + wait >= deadline:
                    if fault.after is None and _succeeds(harmless, deadline):
                        raise EmbeddingUnavailable(str(fault)) from None
                    self._pause(fault, time.monotonic() - started - slept)
                    break
                self._sleep(wait)
                slept += wait
            else:
                self._failed = 0
                return result
        raise self._unavailable()

    def _pause(self, fault: Fault, kept_waiting: float) -> None:
        self._reason = str(fault)
        own = min(2.0**self._failed, LONGEST_PAUSE / 2) * _between(0.75, 1)
        self._failed = min(self._failed + 1, 10)
        self._pause_ends = time.monotonic() + min(max(fault.after or 0, own, kept_waiting), LONGEST_PAUSE)

    def _unavailable(self) -> EmbeddingUnavailable:
        left = self._pause_ends - time.monotonic()
        return EmbeddingUnavailable(self._reason, retry_after=max(1, math.ceil(left)))


def _succeeds(harmless: Attempt[object] | None, deadline: float) -> bool:
    left = deadline - time.monotonic()
    if harmless is None or left <= 0:
        return False
    try:
        harmless(left)
    except (Fault, EmbeddingUnavailable):
        return False
    return True


def _wait(tried: int, after: float | None) -> float:
    """Never less than was asked for, and never the same for all who wait."""
    if after is not None:
        return after + _between(0, FIRST_WAIT)
    return _between(0.5, 1) * min(FIRST_WAIT * 2.0 ** (tried - 1), LONGEST_WAIT)


def _between(low: float, high: float) -> float:
    return random.uniform(low, high)  # noqa: S311 (not a secret)
