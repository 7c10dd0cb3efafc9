"""What runs beside the requests does not end by a fault."""

import asyncio
import logging

import pytest

from app.core import work

pytestmark = pytest.mark.anyio


async def test_a_background_task_that_fails_is_told_and_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(work, "RESTART_SECONDS", 0.001)
    started, works = 0, asyncio.Event()

    async def run() -> None:
        nonlocal started
        started += 1
        if started < 3:
            raise ValueError("a bug of ours")
        works.set()
        await asyncio.sleep(60)

    with caplog.at_level(logging.ERROR, "app.core.work"):
        async with work.running("accesses", run):
            await asyncio.wait_for(works.wait(), 60)
    assert started == 3
    told = [(record.message, getattr(record, "task", None)) for record in caplog.records]
    assert told == [("background task failed", "accesses")] * 2
