"""Work of this process: for whom it is done (the tenant, for fair turns, and the account that pays for it), and how
it is done beside the event loop.

Work is priced in units. A unit is about a millisecond of one core, as measured with the default model.
"""

import asyncio
import ctypes
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from functools import partial
from threading import get_native_id
from typing import Any, ParamSpec, TypeAlias, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

CHARACTERS_PER_UNIT = 32
"""Characters of English that the default model embeds in a millisecond."""
BODY_BYTES_PER_UNIT = 100_000
SEARCH_UNITS = 2.0
SEARCHED_PER_UNIT = 10_000
"""Records of a scope that a search scores in a millisecond, in addition to `SEARCH_UNITS`."""
CONTEXT_UNITS = 5.0
"""A context without its searches."""

Account: TypeAlias = Callable[[float], None]
"""Takes units of work."""

_TENANT: ContextVar[str] = ContextVar("tenant_at_work", default="")
_ACCOUNT: ContextVar[Account | None] = ContextVar("account", default=None)


def work_for(tenant: str) -> None:
    """Assigns the work of this context, and of tasks started in it, to a tenant."""
    _TENANT.set(tenant)


def tenant_at_work() -> str:
    """Returns the tenant of this context; empty if there is none."""
    return _TENANT.get()


def charge_to(account: Account | None) -> None:
    """Makes an account pay for the work of this context, and of tasks started in it. None: nobody pays."""
    _ACCOUNT.set(account)


def charge(units: float) -> None:
    """Charges work, before it is done, to the account of this context, if there is one."""
    account = _ACCOUNT.get()
    if account is not None:
        account(units)


RESTART_SECONDS = 1.0
CANCEL_SECONDS = 5.0
"""After which a task that goes on is cancelled again. One that tidies up has this time."""
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
U = TypeVar("U")

ASKED_AT_ONCE = 100
"""Documents that a filter is asked about in the event loop."""
MOST_ENCODED = 50_000
"""Characters that are encoded as JSON in the event loop, which takes less time than to change threads."""
LONG_TEXT = 20_000
"""Number of characters that take about ten milliseconds to tokenize and index."""


async def off_loop(characters: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns `work(*args)`, run `in_turn` if `characters`, the length of its input, exceeds `LONG_TEXT`."""
    if characters <= LONG_TEXT:
        return work(*args, **kwargs)
    return await in_turn(work, *args, **kwargs)


def json_work(length: int) -> int:
    """Returns what `off_loop` takes for JSON to parse: some 200,000 characters take as long as `LONG_TEXT` of a text,
    if they are no numbers."""
    return length // 10


_CONTAINERS = frozenset((dict, list, tuple))


def characters(*values: Any, most: int = LONG_TEXT) -> int:
    """Returns about how many characters JSON values have. Stops to count once they are more than `most`."""
    total, left = -len(values), list[Any]([values])
    while left and total <= most:
        container = left.pop()
        total += len(container)
        # a page of memories has 40 values for each: `isinstance` would take a tenth of the time of a list
        for value in container.values() if container.__class__ is dict else container:
            if value.__class__ is str:
                total += len(value)
                if total > most:
                    return total
            elif value and value.__class__ in _CONTAINERS:
                left.append(value)
    return total


async def in_turn(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns `work(*args)`, run in a thread of low priority. The work of one tenant takes turns, so that its threads
    are never many beside the event loop."""
    async with turn("threads"):
        called = partial(copy_context().run, work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(_threads, called)


async def taken_by(keep: Callable[[U], bool], items: Sequence[U]) -> list[bool]:
    """Returns for each item whether `keep` takes it. Many are asked `in_turn`: a filter may have 256 conditions."""
    if len(items) <= ASKED_AT_ONCE:
        return [keep(item) for item in items]
    return await in_turn(lambda: [keep(item) for item in items])


def turn(kind: str) -> asyncio.Lock:
    """Returns the lock of what a tenant does one at a time."""
    turns = _turns.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
    return turns.setdefault((kind, tenant_at_work()), asyncio.Lock())


async def in_parts(texts: Sequence[U], work: Callable[[U], T], length: Callable[[U], int]) -> list[T]:
    """Returns `work(text)` of each text. Many or long ones are done in parts of about `LONG_TEXT` characters, each run
    `in_turn`. After each part comes a rest as long as the part, at most `MAX_REST_SECONDS`, in which others go on.

    `length` returns the characters of a text.
    """
    if sum(map(length, texts)) <= LONG_TEXT:
        return [work(text) for text in texts]
    done: list[T] = []
    while len(done) < len(texts):
        started = time.perf_counter()
        end, characters = len(done), 0
        while end < len(texts) and characters < LONG_TEXT:
            characters += length(texts[end])
            end += 1
        done += await in_turn(lambda part: [work(text) for text in part], texts[len(done) : end])
        await asyncio.sleep(min(time.perf_counter() - started, MAX_REST_SECONDS))
    return done


def give_way() -> None:
    """Lowers the priority of this thread, so that the system runs the event loop's first. Only Linux has priorities of
    threads."""
    if sys.platform == "linux":
        thread = get_native_id()
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + GIVE_WAY)


def switch_threads_often() -> None:
    """Lets the event loop have the interpreter again soon. By default another thread may keep it for 5 ms, each time
    that the loop has waited for anything: a search does so several times."""
    sys.setswitchinterval(SWITCH_SECONDS)


GIVE_WAY = 5
"""Steps of priority (`nice`): a third of the time of a thread that is not lowered, if both want the same core."""
SWITCH_SECONDS = 0.0005
THREADS = 4
MAX_REST_SECONDS = 0.02

_threads = ThreadPoolExecutor(THREADS, "recalld-long-work", give_way)
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[tuple[str, str], asyncio.Lock]] = (
    WeakKeyDictionary()
)
"""By event loop, kind and tenant. A turn lives as long as somebody has it or waits for it."""


def begin(work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    """Starts a task that outlives whoever starts it: without the deadlines, the tenant and the trace of its context.

    `asyncio.create_task` hands all of these on. A watch that was started within a deadline of 5 s would fail from its
    fifth second on.
    """
    return asyncio.create_task(work, name=name, context=Context())


async def end(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancels the tasks, and returns when all have ended. None is no task, and what a task raises is not told.

    What goes on is cancelled again after `CANCEL_SECONDS`, because a cancellation may get lost: in Python 3.11
    `asyncio.wait_for` returns the result of its work if that ends as the cancellation comes, and MongoDB's driver sends
    each command that has a deadline through it.
    """
    left = {task for task in tasks if task is not None and not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_SECONDS)


@asynccontextmanager
async def running(name: str, run: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Runs a background task while the block runs. It is restarted after a failure, with increasing pauses."""

    async def run_again() -> None:
        pause = RESTART_SECONDS
        while True:
            try:
                await run()
            except Exception:
                log.exception("background task failed", extra={"task": name})
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_RESTART_SECONDS)

    task = begin(run_again(), name)
    try:
        yield
    finally:
        await end(task)
