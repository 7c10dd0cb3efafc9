"""The HTTP server: of a process that serves alone, and of one of several workers."""

import asyncio
import gc
import importlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType

import uvicorn
from uvicorn._types import ASGIApplication

from app.api.connections import ConnectionLimits, Connections, guarded
from app.api.errors import SaysWhy
from app.cli._common import load_model
from app.core import workers
from app.core.tuning import Tuning
from app.core.workers import BEAT, CONNECTIONS, LEAVING, READY, STATE, Board
from app.errors import RecalldError
from app.lifespan import Openers, StartRefused
from app.settings import Settings

BACKLOG = 2048
PASSED_ON_SECONDS = 0.002
"""How long a worker that has more connections than another leaves a new one to the others."""
FULL_SECONDS = 0.5
"""Pause before the next connection is accepted when there are no more file descriptors."""
IDLE_SECONDS = 6.0
"""How long a worker that is replaced keeps idle connections: longer than an idle one is kept anyway."""
BEAT_SECONDS = 1.0

log = logging.getLogger(__name__)

_CURL = """Recalld serves http://{address}. Try:

  curl -s http://{address}/v1/memories -H 'content-type: application/json' \\
    -d '{{"agent_id": "demo", "user_id": "ada", "content": "Ada prefers tea to coffee"}}'
  curl -s http://{address}/v1/memories/search -H 'content-type: application/json' \\
    -d '{{"agent_id": "demo", "user_id": "ada", "query": "what does she drink?"}}'
"""


def curl(listening: socket.socket) -> str:
    """Returns what to try at the address of a socket."""
    address = listening.getsockname()
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return _CURL.format(address=f"{host}:{address[1]}")


def serve_alone(settings: Settings, openers: Openers) -> None:
    """Serves until SIGTERM. Raises the error that kept the service from starting.

    SIGHUP restarts workers one by one, and there are none: it is logged. It ends a service whose terminal was closed.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        signal.signal(signal.SIGHUP, _no_reload)
    _loaded(settings, openers, lambda config: DrainingServer(config, openers.tuning.drain_delay_seconds)).run()


def _no_reload(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (the shape of a handler)
    log.warning("SIGHUP does nothing with one worker: restart the service, or set RECALLD_WORKERS")


def serve_as_worker(settings: Settings, openers: Openers, sockets: Sequence[socket.socket], lifeline: int) -> None:
    """Serves as a worker until it is told to end. `lifeline`: a pipe that closes when the supervisor dies. Raises the
    error that kept the worker from starting."""
    _loaded(settings, openers, lambda config: WorkerServer(config, openers.tuning, sockets, lifeline)).run()


def _application(openers: Openers) -> ASGIApplication:
    application: ASGIApplication = importlib.import_module("app.main").create_app(openers=openers)
    return application


def _loaded(
    settings: Settings, openers: Openers, server: "Callable[[uvicorn.Config], DrainingServer]"
) -> "DrainingServer":
    load_model(settings, openers.tuning)
    config = uvicorn.Config(
        partial(_application, openers),  # imports the routes once the model's thread has begun to read its file
        factory=True,
        host=settings.host,
        port=settings.port,
        http=guarded(ConnectionLimits(settings.connections.by_address, idle_seconds=openers.tuning.idle_seconds)),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies,
        timeout_graceful_shutdown=openers.tuning.drain_seconds,
    )
    gc.disable()  # until the service has started; see `app/cli/__init__.py`
    config.load()
    config.loaded_app = SaysWhy(config.loaded_app)
    logging.getLogger("uvicorn.error").addFilter(_gives_reason)
    return server(config)


def _gives_reason(record: logging.LogRecord) -> bool:
    """Drops the server's line that the start failed: the command ends with the reason, and one line is enough."""
    return not record.getMessage().startswith("Application startup failed")


class DrainingServer(uvicorn.Server):
    """Drains on SIGTERM: readiness turns off, load balancers get a moment to notice, then no new connection is accepted
    and requests under way finish. SIGINT and a second SIGTERM skip the moment."""

    def __init__(self, config: uvicorn.Config, delay: float) -> None:
        super().__init__(config)
        self._delay = delay

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts the server. Raises the error that kept the service from starting."""
        try:
            await self._start(sockets)
        except SystemExit as end:
            raise self._why() from end
        # a hundred thousand objects that stay: scanning them would make each full collection a pause of 0.1 s
        gc.freeze()
        gc.enable()
        self._started()

    async def _start(self, sockets: list[socket.socket] | None) -> None:
        await super().startup(sockets)

    def _started(self) -> None:
        print(curl(self.servers[0].sockets[0]), flush=True)

    def _why(self) -> RecalldError:
        app = self.config.loaded_app
        if isinstance(app, SaysWhy) and app.error is not None:
            return app.error
        if self.lifespan.should_exit:
            return StartRefused("The service could not start; the log says why.")
        return cannot_listen(self.config.host, self.config.port)

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


def cannot_listen(host: str, port: int) -> StartRefused:
    """Returns the error of an address that cannot be served."""
    return StartRefused(
        f"Cannot listen on {host}:{port}: the address is taken or not this machine's "
        "(the log says which). Choose another with --port or RECALLD_PORT."
    )


def listening(host: str, port: int) -> list[socket.socket]:
    """Returns sockets that listen on every address of a host. Raises StartRefused."""
    made: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(found):
            one = socket.socket(family, socket.SOCK_STREAM)
            made.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(address)
            one.setblocking(False)
            one.listen(BACKLOG)
    except OSError as error:
        for one in made:
            one.close()
        log.error("cannot listen", extra={"address": f"{host}:{port}", "error": str(error)})  # noqa: TRY400 (no stack)
        raise cannot_listen(host, port) from error
    return made


class Door:
    """Accepts connections of sockets that several workers listen on.

    Whoever comes first gets a connection, so that none waits while a worker is free. But a worker with more connections
    than another leaves it to the others for a moment: otherwise the one that wakes first would take most of them.
    """

    def __init__(self, sockets: Sequence[socket.socket], board: Board, make: Callable[[], asyncio.Protocol]) -> None:
        """`make` returns the protocol of a new connection."""
        self.sockets, self._board, self._make = sockets, board, make
        self._loop = asyncio.get_running_loop()
        self._own = workers.number()
        self._coming: set[asyncio.Task[object]] = set()
        self._open = True
        for one in sockets:
            self._listen(one)

    def close(self) -> None:
        """Stops accepting. What waits in the sockets is for the other workers; if none has them open, it is refused."""
        if not self._open:
            return
        self._open = False
        for one in self.sockets:
            self._loop.remove_reader(one.fileno())
            one.close()

    async def wait_closed(self) -> None:
        """Waits for the connections that were accepted last."""
        if self._coming:
            await asyncio.wait(self._coming)

    def _listen(self, one: socket.socket) -> None:
        if self._open:
            self._loop.add_reader(one.fileno(), self._answer, one)

    def _answer(self, one: socket.socket) -> None:
        if self._has_more_than_others():
            self._loop.remove_reader(one.fileno())
            self._loop.call_later(PASSED_ON_SECONDS, self._take_after_all, one)
        else:
            self._accept(one)

    def _take_after_all(self, one: socket.socket) -> None:
        if self._open:
            self._accept(one)
            self._listen(one)

    def _has_more_than_others(self) -> bool:
        others = (number for number in self._board.numbers(READY) if number != self._own)
        fewest = min((self._board.read(number, CONNECTIONS) for number in others), default=float("inf"))
        return self._board.read(self._own, CONNECTIONS) + len(self._coming) > fewest

    def _accept(self, one: socket.socket) -> None:
        try:
            connection, _ = one.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):  # another worker took it, or it is gone
            return
        except OSError as error:
            log.error("no connection can be accepted", extra={"error": error.strerror})  # noqa: TRY400 (no stack)
            self._loop.remove_reader(one.fileno())
            self._loop.call_later(FULL_SECONDS, self._listen, one)
            return
        connection.setblocking(False)
        if connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task: asyncio.Task[object] = asyncio.ensure_future(self._loop.connect_accepted_socket(self._make, connection))
        self._coming.add(task)
        task.add_done_callback(self._came)

    def _came(self, task: asyncio.Task[object]) -> None:
        self._coming.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.warning("a connection was lost while it was accepted", exc_info=task.exception())


class WorkerServer(DrainingServer):
    """One of several servers on the same sockets.

    SIGHUP: others take over. It accepts no more, each further answer closes its connection, and idle connections end as
    they would anyway. SIGTERM: the service ends, and idle connections are closed after the moment that load balancers
    get. When the supervisor has died it acts as at SIGTERM.
    """

    def __init__(self, config: uvicorn.Config, tuning: Tuning, sockets: Sequence[socket.socket], lifeline: int) -> None:
        super().__init__(config, delay=0)
        board = workers.board()
        assert board is not None
        self._board, self._tuning, self._sockets, self._lifeline = board, tuning, sockets, lifeline

    async def _start(self, sockets: list[socket.socket] | None) -> None:  # noqa: ARG002 (the base class's shape)
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise SystemExit(1)
        loop = asyncio.get_running_loop()
        config = self.config
        kind: Callable[..., asyncio.Protocol] = config.http_protocol_class
        make = partial(kind, config, self.server_state, self.lifespan.state, loop)
        loop.add_signal_handler(signal.SIGHUP, self.handle_exit, signal.SIGTERM, None)
        loop.add_reader(self._lifeline, self._orphaned)
        self.servers = [Door(self._sockets, self._board, make)]  # type: ignore[list-item]  # close, wait_closed
        self.started = True

    def _started(self) -> None:
        self._tell(READY)

    async def main_loop(self) -> None:
        """Serves until it is told to end."""
        beat = asyncio.create_task(self._beat())
        try:
            await super().main_loop()
        finally:
            beat.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Lets requests under way finish, and clients change to other connections."""
        self._tell(LEAVING)
        for server in self.servers:
            server.close()
        guard: Connections = vars(self.config.http_protocol_class)["guard"]
        guard.leaving = True
        ends_at, now = self._board.ends_at, time.monotonic()
        if ends_at:
            self.config.timeout_graceful_shutdown = max(1, int(ends_at - now))
            grace = self._tuning.drain_delay_seconds
        else:
            grace = min(IDLE_SECONDS, self._tuning.drain_seconds)
        for one in [*self.server_state.connections]:
            if self._is_busy(one):
                one.shutdown()
        # the base class's connections tell nobody when they end
        while self.server_state.connections and time.monotonic() < now + grace and not self.force_exit:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)

    @staticmethod
    def _is_busy(one: object) -> bool:
        cycle = getattr(one, "cycle", None)
        return cycle is not None and not cycle.response_complete

    def _tell(self, state: int) -> None:
        self._board.write(workers.number(), BEAT, time.monotonic())
        self._board.write(workers.number(), STATE, state)

    async def _beat(self) -> None:
        while True:
            self._board.write(workers.number(), BEAT, time.monotonic())
            await asyncio.sleep(BEAT_SECONDS)

    def _orphaned(self) -> None:
        asyncio.get_running_loop().remove_reader(self._lifeline)
        log.error("the supervisor has died: this worker ends")
        self._board.ends_at = self._board.ends_at or time.monotonic() + self._tuning.drain_seconds
        os.kill(os.getpid(), signal.SIGTERM)
