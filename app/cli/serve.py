"""Commands that run until they are stopped.

`recalld serve` and `worker`; `demo`, which serves a throw-away store with a story; and `mcp`, which serves the MCP
tools over standard input and output.
"""

import asyncio
import importlib
import logging
import os
import signal
import sys
import tempfile
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from app import VERSION
from app.cli._common import AGENT, USER, UrlOption, configure, load_model
from app.cli.server import serve_alone
from app.cli.supervisor import Supervisor
from app.core import tracing, work
from app.errors import invalid
from app.lifespan import Openers, RealParts, found_store, job_runner
from app.settings import JobSettings, Settings, by_subject, describe, unknown_variables

SETTINGS_HELP = "Settings, by environment or .env. " + "\n\n".join(
    f"{subject}:\n\n" + "\n\n".join(f"{name} ({default}): {text}" for name, default, text in rows)
    for subject, rows in by_subject()
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
    serve_with(RealParts())


def serve_with(openers: Openers) -> None:
    """Serves with the settings of the environment. Tests give other parts, and what they are tuned to."""
    settings = Settings()
    for sentence in unknown_variables():
        print(sentence)
    configure(settings)
    work.use_one_arena()
    work.switch_threads_often()
    if settings.worker_count > 1:
        Supervisor(settings, openers).run()
    else:
        serve_alone(settings, openers)


def worker() -> None:
    """Run background jobs until SIGTERM, on a store that `serve` has made. Any number may run beside the server; set
    RECALLD_JOBS_ENABLED=false there to leave all of it to workers."""
    settings = Settings()
    configure(settings)
    for sentence in unknown_variables():
        logging.getLogger(__name__).warning(sentence)
    work.use_one_arena()
    with suppress(KeyboardInterrupt):
        asyncio.run(_run(settings))


async def _run(settings: Settings) -> None:
    parts = RealParts()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(tracing.running(VERSION))
        embedder = await parts.embedder(settings)
        stack.push_async_callback(embedder.close)
        clock = parts.clock()
        store, _ = await stack.enter_async_context(found_store(settings, parts, embedder.dim, clock, existing=True))
        llm = parts.llm(settings)
        if llm is not None:
            stack.push_async_callback(llm.close)
        runner = job_runner(settings, store, embedder, clock, llm, parts.tuning)
        task = asyncio.create_task(runner.run())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        with suppress(asyncio.CancelledError):
            await task


LOOPBACK = "127.0.0.1"
INTRODUCTION = """A bicycle workshop's memory of eight weeks: two agents, three people, and a tour to Lisbon.
Open http://{host}:{port}/console/, which shows it in five steps. Everything is deleted when you stop this with Ctrl+C.
"""


def demo(
    port: Annotated[int, typer.Option(help="Port of the service on 127.0.0.1.", min=1, max=65535)] = 8000,
    only_fill: Annotated[
        Path | None,
        typer.Option("--only-fill", help="Fill a store in this new folder (RECALLD_DATA_DIR is its data/) and end."),
    ] = None,
) -> None:
    """Fill a throw-away store with a story and serve it, to look around: what agents remember, learn and forget. It
    takes some seconds. Your own store, settings and keys are left alone."""
    if only_fill is not None:
        _fill(only_fill)
        return
    with tempfile.TemporaryDirectory(prefix="recalld-demo-") as folder:
        _fill(Path(folder))
        print(INTRODUCTION.format(host=LOOPBACK, port=port), flush=True)
        serve(LOOPBACK, port)


def _fill(folder: Path) -> None:
    """Fills a store in the folder. From here on, this process has none of the caller's settings."""
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise invalid("/--only-fill", f"{folder} is not empty: name a new folder")
    for name, _, _ in describe():
        os.environ.pop(name, None)
    os.environ |= {"RECALLD_DATA_DIR": str(folder / "data"), "RECALLD_LOG_LEVEL": "error"}
    os.chdir(folder)  # a .env of the caller's folder may name another store
    settings = Settings(jobs=JobSettings(enabled=False))
    configure(settings)
    writer: Any = importlib.import_module("app.cli.demo_writer")  # imports the service, which takes a second
    print("Writing the story …", file=sys.stderr)
    counts = asyncio.run(writer.write_story(settings))
    print(", ".join(f"{number} × {kind}" for kind, number in counts.items()), file=sys.stderr)


def mcp(
    url: UrlOption = None,
    key: Annotated[
        str | None, typer.Option(envvar="RECALLD_KEY", help="API key; the local store needs none.", show_envvar=True)
    ] = None,
    agent: Annotated[
        str | None, typer.Option(envvar="RECALLD_AGENT", help=f"Whose memory; of the local store: {AGENT}.")
    ] = None,
    user: Annotated[
        str | None, typer.Option(envvar="RECALLD_USER", help=f"About whom; of the local store: {USER}.")
    ] = None,
) -> None:
    """Serve the tools to an MCP client over standard input and output, until it closes them."""
    settings = Settings()
    configure(settings)
    if url is None:
        load_model(settings)
    stdio: Any = importlib.import_module("app.cli.stdio")  # imports the SDK, which takes a second
    given = (agent, user)
    asyncio.run(stdio.local(settings, key, given, (AGENT, USER)) if url is None else stdio.remote(url, key, given))
