"""`recalld serve`."""

import asyncio
import os
import signal
import socket
from types import FrameType
from typing import Annotated

import typer
import uvicorn

from app.cli.logs import configure
from app.settings import Settings, describe

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
    configure(settings.log_level)
    config = uvicorn.Config(
        "app.main:create_app",
        factory=True,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=settings.drain_seconds,
    )
    server = DrainingServer(config, settings.drain_delay_seconds)
    server.run()
    if not server.started:
        raise typer.Exit(3)


class DrainingServer(uvicorn.Server):
    """SIGTERM: readiness goes off, balancers get a moment to notice, then no new connection is taken and what is under
    way is finished. SIGINT, and a second SIGTERM, skip the moment."""

    def __init__(self, config: uvicorn.Config, delay: float) -> None:
        super().__init__(config)
        self._delay = delay

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            address = self.servers[0].sockets[0].getsockname()
            host = f"[{address[0]}]" if ":" in address[0] else address[0]
            print(CURL.format(address=f"{host}:{address[1]}"), flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 (the base class's shape)
        state = getattr(self.lifespan, "state", {}).get("resources")
        if sig == signal.SIGTERM and state is not None and not state.lifecycle.draining:
            state.lifecycle.draining = True
            loop = asyncio.get_running_loop()
            loop.call_soon_threadsafe(loop.call_later, self._delay, self._stop)  # wakes the loop, too
        else:
            self._stop()

    def _stop(self) -> None:
        self.should_exit = True
