"""The process: where it keeps freed memory, and work that would hold up the event loop."""

import asyncio
import ctypes
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

M_ARENA_MAX = -8  # of glibc's malloc.h


def use_one_arena() -> bool:
    """Call it before other threads are started: all threads then share one heap, and use each other's freed memory.
    Otherwise glibc keeps a heap for each thread, and some 20 MB that one thread freed are of no use to another. False
    where the C library has no such option."""
    try:
        return bool(ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1))
    except (AttributeError, OSError, TypeError):
        return False


def trim() -> bool:
    """Some 70 MB after the model and the vocabulary were loaded. Takes some milliseconds, in which other threads wait
    for memory. False where the C library cannot do it (it is not glibc), or had nothing to give back."""
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except (AttributeError, OSError, TypeError):
        return False


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
