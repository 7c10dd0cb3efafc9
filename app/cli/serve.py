"""`recalld serve` and `recalld worker`."""

import asyncio
import gc
import logging
import os
import signal
import socket
from contextlib import AsyncExitStack, suppress
from types import FrameType
from typing import Annotated

import typer
import uvicorn

from app import VERSION
from app.api.connections import guarded
from app.api.errors import SaysWhy
from app.cli._logs import configure
from app.core import process, tracing
from app.embedding.factory import begin_loading
from app.embedding.model import ExtraOptions
from app.errors import RecalldError
from app.lifespan import RealParts, StartRefused, found_store, job_runner
from app.settings import Settings, describe, unknown_variables

SETTINGS_HELP = "Settings, by environment or .env:\n\n" + "\n\n".join(
    f"{name} ({default}): {text}" for name, default, text in describe()
)

CURL = """Recalld serves http://{address}. Try:

  curl -s http://{address}/v1/memories -H 'content-type: application/json' \\
    -d '{{"agent_id": "demo", "user_id": "ada", "content": "Ada prefers tea to coffee"}}'
  curl -s http://{address}/v1/memories/search -H 'content-type: application/json' \\
    -d '{{"agent_id": "demo", "user_id": "ada", "query": "what does she drink?"}}'
"""


def serve(
    host: Annotated[str | None, typer.Option(help="As RECALLD_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="As RECALLD_PORT.")] = None,
) -> None:
    """Serve the API. SIGTERM drains: in-flight requests finish, then the service ends."""
    given = {"RECALLD_HOST": host, "RECALLD_PORT": port}
    os.environ.update({name: str(value) for name, value in given.items() if value is not None})
    settings = Settings()
    for sentence in unknown_variables():
        print(sentence)
    configure(settings)
    process.use_one_arena()
    process.switch_threads_often()
    chosen = settings.embedding
    begin_loading(chosen.model, threads=chosen.threads, options=ExtraOptions.of(chosen))
    config = uvicorn.Config(
        "app.main:create_app",
        factory=True,
        host=settings.host,
        port=settings.port,
        http=guarded(settings.connections),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies,
        timeout_graceful_shutdown=settings.drain_seconds,
    )
    gc.disable()  # until the service has started; see `app/cli/__init__.py`
    try:
        config.load()
        config.loaded_app = SaysWhy(config.loaded_app)
        DrainingServer(config, settings.drain_delay_seconds).run()
    finally:
        gc.enable()


class DrainingServer(uvicorn.Server):
    """Drains on SIGTERM: readiness turns off, load balancers get a moment to notice, then no new connection is accepted
    and requests under way finish. SIGINT and a second SIGTERM skip the moment."""

    def __init__(self, config: uvicorn.Config, delay: float) -> None:
        super().__init__(config)
        self._delay = delay

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts the server. Raises the error that kept the service from starting."""
        try:
            await super().startup(sockets)
        except SystemExit as end:
            raise self._why() from end
        # a hundred thousand objects that stay: scanning them would make each full collection a pause of 0.1 s
        gc.freeze()
        gc.enable()
        address = self.servers[0].sockets[0].getsockname()
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        print(CURL.format(address=f"{host}:{address[1]}"), flush=True)

    def _why(self) -> RecalldError:
        app = self.config.loaded_app
        if isinstance(app, SaysWhy) and app.error is not None:
            return app.error
        if self.lifespan.should_exit:
            return StartRefused("The service could not start; the log says why.")
        return StartRefused(
            f"Cannot listen on {self.config.host}:{self.config.port}: the address is taken or not this machine's "
            "(the log says which). Choose another with --port or RECALLD_PORT."
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 (the base class's shape)
        """Starts draining, or stops at once."""
        state = getattr(getattr(self, "lifespan", None), "state", {}).get("resources")  # unset before startup
        if sig == signal.SIGTERM and state is not None and not state.lifecycle.draining:
            state.lifecycle.draining = True
            loop = asyncio.get_running_loop()
            loop.call_soon_threadsafe(loop.call_later, self._delay, self._stop)  # also wakes the loop
        else:
            self._stop()

    def _stop(self) -> None:
        self.should_exit = True


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
