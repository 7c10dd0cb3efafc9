"""The HTTP server: of a process that serves alone, and of one of several workers."""

import asyncio
import gc
import importlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType

import uvicorn

from app.api.connections import ConnectionLimits, Connections, guarded
from app.api.errors import SaysWhy
from app.cli._common import load_model
from app.core.tuning import Tuning
from app.core.workers import Workers
from app.lifespan import Openers, StartRefused
from app.resources import Lifecycle, Resources
from app.settings import Settings

BACKLOG = 2048
PASSED_ON_SECONDS = 0.002
"""How long a worker that has more connections than another leaves a new one to the others."""
FULL_SECONDS = 0.5
"""Pause before the next connection is accepted when there are no more file descriptors."""

log = logging.getLogger(__name__)

_CURL = """Recalld serves http://{serves}. Try:

  curl -s http://{address}/v1/memories {key}-H 'content-type: application/json' \\
    -d '{{"agent_id": "demo", "user_id": "ada", "content": "Ada prefers tea to coffee"}}'
  curl -s http://{address}/v1/memories/search {key}-H 'content-type: application/json' \\
    -d '{{"agent_id": "demo", "user_id": "ada", "query": "what does she drink?"}}'
"""
_KEY = '-H "Authorization: Bearer $RECALLD_KEY" '
_CALLED = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (nobody can call what stands for every address)


def curl(listening: socket.socket, *, needs_key: bool) -> str:
    """Returns what to try at the address of a socket."""
    host, port, *_ = listening.getsockname()
    serves, address = (
        f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in (host, _CALLED.get(host, host))
    )
    return _CURL.format(serves=serves, address=address, key=_KEY if needs_key else "")


def serve_alone(settings: Settings, openers: Openers) -> None:
    """Serves until SIGTERM. Raises the error that kept the service from starting.

    SIGHUP restarts workers one by one, and there are none: it is logged. It ends a service whose terminal was closed.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        does_nothing = "SIGHUP does nothing with one worker: restart the service, or set RECALLD_WORKERS"
        signal.signal(signal.SIGHUP, lambda *_: log.warning(does_nothing))
    DrainingServer(_loaded(settings, openers), openers.tuning).run()


def serve_as_worker(settings: Settings, openers: Openers, sockets: list[socket.socket], service: Workers) -> None:
    """Serves as a worker until it is told to end. Raises the error that kept the worker from starting."""
    WorkerServer(_loaded(settings, openers), openers.tuning, service).run(sockets)


def _loaded(settings: Settings, openers: Openers) -> uvicorn.Config:
    load_model(settings, openers.tuning)
    config = uvicorn.Config(
        # imports the routes once the model's thread has begun to read its file
        lambda: importlib.import_module("app.main").create_app(openers=openers),
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
    # the server's line that the start failed is dropped: the command ends with the reason, and one line is enough
    logging.getLogger("uvicorn.error").addFilter(
        lambda record: not record.getMessage().startswith("Application startup failed")
    )
    return config


class DrainingServer(uvicorn.Server):
    """Drains on SIGTERM: readiness turns off and each answer closes its connection, load balancers get a moment to
    notice, then no new connection is accepted and requests under way finish. SIGINT and a second SIGTERM skip the
    moment."""

    def __init__(self, config: uvicorn.Config, tuning: Tuning) -> None:
        super().__init__(config)
        self._delay = tuning.drain_delay_seconds
        self._guard: Connections = vars(config.http_protocol_class)["guard"]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts the server. Raises the error that kept the service from starting."""
        try:
            await super().startup(sockets)
        except SystemExit as end:
            app = self.config.loaded_app
            if isinstance(app, SaysWhy) and app.error is not None:
                raise app.error from end
            if self.lifespan.should_exit:
                raise StartRefused("The service could not start; the log says why.") from end
            raise cannot_listen(self.config.host, self.config.port) from end
        # a hundred thousand objects that stay: scanning them would make each full collection a pause of 0.1 s
        gc.freeze()
        gc.enable()
        self.open()

    def open(self) -> None:
        """Says where the service is."""
        print(curl(self.servers[0].sockets[0], needs_key=self.needs_key), flush=True)

    @property
    def _resources(self) -> Resources | None:
        """None before the service has started."""
        resources: Resources | None = getattr(getattr(self, "lifespan", None), "state", {}).get("resources")
        return resources

    @property
    def _lifecycle(self) -> Lifecycle | None:
        return None if self._resources is None else self._resources.lifecycle

    @property
    def needs_key(self) -> bool:
        """Whether a request needs a key or a token, as the service has started."""
        resources = self._resources
        if resources is None or resources.settings.auth == "off":
            return False
        return resources.keyless.ended or resources.tokens is not None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 (the base class's shape)
        """Starts draining, or stops at once."""
        self._guard.leaving = True
        if sig == signal.SIGTERM and (lifecycle := self._lifecycle) is not None and not lifecycle.draining:
            lifecycle.draining = True
            loop = asyncio.get_running_loop()
            loop.call_soon_threadsafe(loop.call_later, self._delay, self._stop)  # also wakes the loop
        else:
            self._stop()

    def _stop(self) -> None:
        self.should_exit = True


class WorkerServer(DrainingServer):
    """One of several servers on the same sockets. SIGHUP: another takes over, and the service is not seen to end."""

    def __init__(self, config: uvicorn.Config, tuning: Tuning, service: Workers) -> None:
        super().__init__(config, tuning)
        self._service, self._parent = service, service.supervisor
        self._sockets: list[socket.socket] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts the worker, which accepts connections of these sockets."""
        self._sockets = sockets or []
        await super().startup([])  # the base class would accept all that wait, whatever the others have

    def open(self) -> None:
        """Begins to accept connections."""
        self._service.own.needs_key = self.needs_key
        loop = asyncio.get_running_loop()
        kind: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        make = partial(kind, self.config, self.server_state, self.lifespan.state, loop)
        loop.add_signal_handler(signal.SIGHUP, self._hand_over)
        self.servers = [Door(self._sockets, self._service, make)]  # type: ignore[list-item]  # close, wait_closed

    def _hand_over(self) -> None:
        self._guard.leaving = self._guard.is_replaced = True
        if (lifecycle := self._lifecycle) is not None:
            lifecycle.replaced = True
        self._stop()

    async def on_tick(self, counter: int) -> bool:
        """Tells the supervisor that the event loop turns, and the other workers how many connections there are. Returns
        whether to end; the worker drains when its supervisor has died."""
        own = self._service.own
        own.beats += 1
        own.connections = len(self.server_state.connections)
        if os.getppid() != self._parent:
            self._parent = os.getppid()
            log.error("the supervisor has died: this worker ends")
            self.handle_exit(signal.SIGTERM, None)
        return await super().on_tick(counter)


def cannot_listen(host: str, port: int) -> StartRefused:
    """Returns the error of an address that cannot be served."""
    return StartRefused(
        f"Cannot listen on {host}:{port}: the address is taken or not this machine's "
        "(the log says which). Choose another with --port or RECALLD_PORT."
    )


def listening(host: str, port: int) -> list[socket.socket]:
    """Returns sockets that listen on every address of a host. Raises StartRefused."""
    sockets: list[socket.socket] = []
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(addresses):
            listener = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.setblocking(False)
            listener.listen(BACKLOG)
    except OSError as error:
        for listener in sockets:
            listener.close()
        log.error("cannot listen", extra={"address": f"{host}:{port}", "error": str(error)})  # noqa: TRY400 (no stack)
        raise cannot_listen(host, port) from error
    return sockets


class Door:
    """Accepts connections of sockets that several workers listen on, one in a turn of the event loop.

    Whoever comes first gets a connection, so that none waits while a worker is free. But a worker with more connections
    than another leaves it to the others for a moment: otherwise the one that wakes first would take most of them.
    """

    def __init__(
        self, sockets: Sequence[socket.socket], service: Workers, make: Callable[[], asyncio.Protocol]
    ) -> None:
        """`make` returns the protocol of a new connection."""
        self._sockets, self._service, self._make = sockets, service, make
        self._loop = asyncio.get_running_loop()
        self._coming: set[asyncio.Task[object]] = set()
        service.own.accepts = True
        for listener in sockets:
            self._listen(listener)

    def close(self) -> None:
        """Stops accepting. What waits in the sockets is for the other workers; if none has them open, it is refused."""
        self._service.own.accepts = False
        for listener in self._sockets:
            self._loop.remove_reader(listener.fileno())
            listener.close()
        self._sockets = ()

    async def wait_closed(self) -> None:
        """Returns: a connection that was accepted last is among those of the server by now."""

    def _listen(self, listener: socket.socket) -> None:
        if listener in self._sockets:
            self._loop.add_reader(listener.fileno(), self._answer, listener)

    def _answer(self, listener: socket.socket) -> None:
        if self._service.own.connections > self._service.fewest_connections():
            self._loop.remove_reader(listener.fileno())
            self._loop.call_later(PASSED_ON_SECONDS, self._accept, listener)
        else:
            self._accept(listener)

    def _accept(self, listener: socket.socket) -> None:
        if listener not in self._sockets:
            return
        self._listen(listener)
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):  # another worker took it, or it is gone
            return
        except OSError as error:
            log.error("no connection can be accepted", extra={"error": error.strerror})  # noqa: TRY400 (no stack)
            self._loop.remove_reader(listener.fileno())
            self._loop.call_later(FULL_SECONDS, self._listen, listener)
            return
        self._service.own.connections += 1
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task: asyncio.Task[object] = asyncio.ensure_future(self._loop.connect_accepted_socket(self._make, connection))
        self._coming.add(task)
        task.add_done_callback(self._came)

    def _came(self, task: asyncio.Task[object]) -> None:
        self._coming.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.warning("a connection was lost while it was accepted", exc_info=task.exception())
