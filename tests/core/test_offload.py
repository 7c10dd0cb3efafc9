"""What reads long texts leaves the event loop to others."""

import asyncio
import threading

import pytest

from app.core.work import LONG_TEXT, off_loop

pytestmark = pytest.mark.anyio


async def test_while_long_work_is_done_the_event_loop_goes_on() -> None:
    ticked = threading.Event()
    asyncio.get_running_loop().call_soon(ticked.set)
    assert await off_loop(LONG_TEXT + 1, ticked.wait, timeout=5), "it was waited for by the loop that was to tick"


async def test_short_work_is_done_at_once() -> None:
    assert await off_loop(LONG_TEXT, threading.get_ident) == threading.get_ident()


async def test_a_fault_of_the_work_is_the_callers() -> None:
    for characters in (0, LONG_TEXT + 1):
        with pytest.raises(ValueError, match="seven"):
            await off_loop(characters, int, "seven")
