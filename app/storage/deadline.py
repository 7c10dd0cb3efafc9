"""The request deadline: the time that one request has waited for a remote store, over all its calls.

With only a limit on each call, a request of four calls could take four times as long. Engines without a server do not
need this. Background work has no deadline: each of its calls gets the full time.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class RequestDeadline:
    """Measures the seconds during which at least one call of the request was in progress."""

    def __init__(self) -> None:
        self._spent, self._since, self._calls = 0.0, 0.0, 0

    @property
    def spent(self) -> float:
        """Seconds waited so far, including the calls in progress."""
        return self._spent + (time.monotonic() - self._since if self._calls else 0.0)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Counts the time inside the block as waiting. Calls may overlap."""
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
    """Starts a request deadline for this context and for the tasks that are started in it."""
    _OF_REQUEST.set(RequestDeadline())


@contextmanager
def waiting() -> Iterator[None]:
    """Counts the time inside the block as waiting, if a request is being answered."""
    patience = _OF_REQUEST.get()
    if patience is None:
        yield
        return
    with patience.waiting():
        yield


def left(seconds: float) -> float:
    """Returns the seconds that the request may still wait, out of `seconds`.

    At least 0.001, because a driver reads 0 as no limit. Outside a request, returns `seconds`.
    """
    patience = _OF_REQUEST.get()
    return seconds if patience is None else max(0.001, seconds - patience.spent)
