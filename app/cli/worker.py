"""`recalld worker`: background work as a process of its own."""

import asyncio
import signal
from contextlib import AsyncExitStack, suppress

from app.cli.logs import configure
from app.clock import SystemClock
from app.settings import Settings
from app.wiring import RealParts, job_runner


def worker() -> None:
    """Run background jobs until SIGTERM. Any number may run beside the server; set RECALLD_JOBS_ENABLED=false there to
    leave all of it to workers."""
    settings = Settings()
    configure(settings.log_level)
    with suppress(KeyboardInterrupt):
        asyncio.run(_run(settings))


async def _run(settings: Settings) -> None:
    parts = RealParts()
    async with AsyncExitStack() as stack:
        embedder = await parts.embedder(settings)
        stack.push_async_callback(embedder.close)
        store = await parts.store(settings, embedder.dim)
        stack.push_async_callback(store.close)
        llm = parts.llm(settings)
        if llm is not None:
            stack.push_async_callback(llm.close)
        runner = job_runner(settings, store, embedder, SystemClock(), llm)
        task = asyncio.create_task(runner.run())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        with suppress(asyncio.CancelledError):
            await task
