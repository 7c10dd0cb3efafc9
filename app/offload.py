"""Work on texts that would hold up the event loop goes to a thread; a short one is done at once, which is quicker."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LONG_TEXT = 20_000
"""Characters that take about ten milliseconds to tokenize and index."""


async def off_loop(characters: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`work(*args)`, in a thread where it reads more than `LONG_TEXT` characters."""
    if characters <= LONG_TEXT:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


async def with_a_turn_for_others(work: Awaitable[T]) -> T:
    """`work`, then a turn of the event loop: a batch whose reads are done at once would keep the loop to itself."""
    result = await work
    await asyncio.sleep(0)
    return result
