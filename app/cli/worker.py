"""`recalld worker`: background work as a process of its own."""

import asyncio
import signal
from contextlib import AsyncExitStack, suppress

from app import heap
from app.cli.logs import configure
from app.settings import Settings
from app.wiring import RealParts, found_store, job_runner


def worker() -> None:
    """Run background jobs until SIGTERM. Any number may run beside the server; set RECALLD_JOBS_ENABLED=false there to
    leave all of it to workers."""
    settings = Settings()
    configure(settings.log_level)
    heap.use_one_arena()
    with suppress(KeyboardInterrupt):
        asyncio.run(_run(settings))


async def _run(settings: Settings) -> None:
    parts = RealParts()
    async with AsyncExitStack() as stack:
        embedder = await parts.embedder(settings)
        stack.push_async_callback(embedder.close)
        clock = parts.clock()
        store, _ = await stack.enter_async_context(found_store(settings, parts, embedder.dim, clock))
        llm = parts.llm(settings)
        if llm is not None:
            stack.push_async_callback(llm.close)
        runner = job_runner(settings, store, embedder, clock, llm)
        task = asyncio.create_task(runner.run())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        with suppress(asyncio.CancelledError):
            await task
