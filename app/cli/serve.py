"""`recalld serve` and `recalld worker`."""

import asyncio
import logging
import os
import signal
from contextlib import AsyncExitStack, suppress
from typing import Annotated

import typer

from app import VERSION
from app.cli._logs import configure
from app.cli.server import curl, serve_alone
from app.cli.supervisor import Supervisor
from app.core import process, tracing
from app.lifespan import RealParts, found_store, job_runner
from app.settings import Settings, describe, unknown_variables

SETTINGS_HELP = "Settings, by environment or .env:\n\n" + "\n\n".join(
    f"{name} ({default}): {text}" for name, default, text in describe()
)


def serve(
    host: Annotated[str | None, typer.Option(help="As RECALLD_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="As RECALLD_PORT.")] = None,
    workers: Annotated[str | None, typer.Option(help="As RECALLD_WORKERS.")] = None,
) -> None:
    """Serve the API. SIGTERM drains: in-flight requests finish, then the service ends. SIGHUP restarts several workers
    one by one."""
    given = {"RECALLD_HOST": host, "RECALLD_PORT": port, "RECALLD_WORKERS": workers}
    os.environ.update({name: str(value) for name, value in given.items() if value is not None})
    settings = Settings()
    for sentence in unknown_variables():
        print(sentence)
    configure(settings)
    process.use_one_arena()
    process.switch_threads_often()
    if settings.worker_count > 1:
        Supervisor(settings.worker_count, settings, lambda address: print(curl(address), flush=True)).run()
    else:
        serve_alone(settings)


def worker() -> None:
    """Run background jobs until SIGTERM. Any number may run beside the server; set RECALLD_JOBS_ENABLED=false there to
    leave all of it to workers."""
    settings = Settings()
    configure(settings)
    for sentence in unknown_variables():
        logging.getLogger(__name__).warning(sentence)
    process.use_one_arena()
    with suppress(KeyboardInterrupt):
        asyncio.run(_run(settings))


async def _run(settings: Settings) -> None:
    parts = RealParts()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(tracing.running(VERSION))
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
