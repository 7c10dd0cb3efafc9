"""How long the request being answered has waited for a store beyond this process, all its calls together.

A limit on each call alone would let a request of four calls take four times as long. Engines that ask nobody else
need none of this; what works in the background is given its full time at each call.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class RequestDeadline:
    """Seconds during which at least one call of the request was under way."""

    def __init__(self) -> None:
        self._spent, self._since, self._calls = 0.0, 0.0, 0

    @property
    def spent(self) -> float:
        return self._spent + (time.monotonic() - self._since if self._calls else 0.0)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        if not self._calls:
            self._since = time.monotonic()
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._spent += time.monotonic() - self._since


_OF_REQUEST: ContextVar[RequestDeadline | None] = ContextVar("patience", default=None)


def begin_request() -> None:
    """What is called from now on, in this context and in tasks begun in it, is one request's."""
    _OF_REQUEST.set(RequestDeadline())


@contextmanager
def waiting() -> Iterator[None]:
    """A call to the store is under way."""
    patience = _OF_REQUEST.get()
    if patience is None:
        yield
        return
    with patience.waiting():
        yield


def left(seconds: float) -> float:
    """What the request may still wait, of `seconds` in all; never nothing, for a driver reads 0 as no limit."""
    patience = _OF_REQUEST.get()
    return seconds if patience is None else max(0.001, seconds - patience.spent)
