"""Process-wide helpers: memory of the C library, work that would block the event loop, background tasks."""

import asyncio
import ctypes
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import ParamSpec, TypeVar

RESTART_SECONDS = 1.0
MAX_RESTART_SECONDS = 60.0

log = logging.getLogger(__name__)

M_ARENA_MAX = -8  # of glibc's malloc.h


def use_one_arena() -> bool:
    """Makes all threads share one heap, so that each can reuse memory freed by another.

    Call it before other threads are started. Otherwise glibc gives each thread a heap, and about 20 MB freed by one
    thread cannot be used by others. Returns False if the C library has no such option.
    """
    try:
        return bool(ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1))
    except (AttributeError, OSError, TypeError):
        return False


def trim() -> bool:
    """Returns freed memory to the system: about 70 MB after the model and the vocabulary were loaded.

    Takes some milliseconds, in which other threads wait for memory. Returns False if the C library does not support it
    (it is not glibc), or if nothing was returned.
    """
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except (AttributeError, OSError, TypeError):
        return False


P = ParamSpec("P")
T = TypeVar("T")

LONG_TEXT = 20_000
"""Number of characters that take about ten milliseconds to tokenize and index."""


async def off_loop(characters: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns `work(*args)`, run in a thread if `characters`, the length of its input, exceeds `LONG_TEXT`."""
    if characters <= LONG_TEXT:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


async def with_a_turn_for_others(work: Awaitable[T]) -> T:
    """Awaits `work`, then yields to the event loop: a batch whose reads finish at once would otherwise block it."""
    result = await work
    await asyncio.sleep(0)
    return result


@asynccontextmanager
async def running(name: str, run: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Runs a background task while the block runs. It is restarted after a failure, with increasing pauses."""
    task = asyncio.create_task(_restarted(name, run), name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _restarted(name: str, run: Callable[[], Awaitable[None]]) -> None:
    pause = RESTART_SECONDS
    while True:
        try:
            await run()
        except Exception:
            log.exception("background task failed", extra={"task": name})
        await asyncio.sleep(pause)
        pause = min(2 * pause, MAX_RESTART_SECONDS)
