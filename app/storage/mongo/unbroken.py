"""Operations that a caller's cancellation does not reach into.

The driver answers a cancelled operation by closing its connection, and an open transaction then lives on in the server
and keeps its records from everybody for a minute. With a deadline set it may also lose the cancellation altogether
(`asyncio.wait_for` before Python 3.12, in its network layer), so that a background task that was told to end never
does. So each operation is a task of its own: it ends by itself, within its deadline, and the caller is cancelled then.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from app.storage import patience

P = ParamSpec("P")
T = TypeVar("T")


class Unbroken:
    """Base class of what has operations that are `whole`."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        with patience.waiting():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError:
                await asyncio.wait((task,))
                raise
        return task.result()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may be gone: nobody else looks

    async def all_ended(self) -> None:
        while self._under_way:
            await asyncio.wait(set(self._under_way))


S = TypeVar("S", bound=Unbroken)


def whole(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The method as a task of its own."""

    @wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(method(self, *args, **kwargs))

    return call
