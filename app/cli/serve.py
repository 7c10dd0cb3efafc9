"""Commands that run until they are stopped.

`recalld serve` and `worker`; `demo`, which serves a throw-away store with a story; and `mcp`, which serves the MCP
tools over standard input and output.
"""

import asyncio
import errno
import fcntl
import gc
import importlib
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
import uvicorn
from prometheus_client.multiprocess import mark_process_dead
from pydantic import ValidationError
from pydantic_settings import SettingsError
from uvicorn.supervisors.multiprocess import SIGNALS, Multiprocess, Process

from app import VERSION, metrics
from app.api.connections import ConnectionLimits, Connections, guarded
from app.api.errors import SaysWhy
from app.cli import _common as cli
from app.core import tracing, work, workers
from app.core.tuning import Tuning
from app.errors import RecalldError, invalid
from app.lifespan import RealParts, StartRefused, found_store, job_runner
from app.resources import Lifecycle, Resources
from app.settings import JobSettings, Settings, by_subject, describe, explain, unknown_variables

# --- The HTTP server: of a process that serves alone, and of one of several workers -----------------------------------

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


def _loaded(settings: Settings, parts: RealParts) -> uvicorn.Config:
    cli.load_model(settings, parts.tuning)
    config = uvicorn.Config(
        # imports the routes once the model's thread has begun to read its file
        lambda: importlib.import_module("app.main").create_app(parts=parts),
        factory=True,
        host=settings.host,
        port=settings.port,
        http=guarded(ConnectionLimits(settings.connections.by_address, idle_seconds=parts.tuning.idle_seconds)),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies,
        timeout_graceful_shutdown=parts.tuning.drain_seconds,
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

    def __init__(self, config: uvicorn.Config, tuning: Tuning, service: workers.Workers) -> None:
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


_REFUSED = {
    errno.EADDRINUSE: ("port", "another program has this port, perhaps an earlier start of Recalld"),
    errno.EACCES: ("port", "this user may not use this port; those from 1024 on are free for all"),
}


def cannot_listen(host: str, port: int, number: int | None = errno.EADDRINUSE) -> StartRefused:
    """Returns the error of an address that cannot be served. `number`: that of the system's error."""
    setting, why = _REFUSED.get(number or 0, ("host", "this machine has no such address"))
    return StartRefused(
        f"Cannot listen on {f'[{host}]' if ':' in host else host}:{port}: {why}. "
        f"Choose another {setting} with --{setting} or RECALLD_{setting.upper()}."
    )


def bound(host: str, port: int) -> list[socket.socket]:
    """Returns sockets that have every address of a host, and do not listen yet. An address that this machine lacks is
    left out if it has another: `localhost` may be ::1, too. Raises StartRefused."""
    sockets, lacking = list[socket.socket](), list[OSError]()
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(addresses):
            try:
                sockets.append(_bound_to(family, address))
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                lacking.append(error)
        if not sockets:
            raise lacking[0]
    except OSError as error:
        for listener in sockets:
            listener.close()
        raise cannot_listen(host, port, error.errno) from error
    return sockets


def _bound_to(family: int, address: Any) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def listening(host: str, port: int) -> list[socket.socket]:
    """Returns sockets that listen on every address of a host. Raises StartRefused."""
    sockets = bound(host, port)
    try:
        for listener in sockets:
            listener.listen(BACKLOG)
    except OSError as error:
        for listener in sockets:
            listener.close()
        raise cannot_listen(host, port, error.errno) from error
    return sockets


class Door:
    """Accepts connections of sockets that several workers listen on, one in a turn of the event loop.

    Whoever comes first gets a connection, so that none waits while a worker is free. But a worker with more connections
    than another leaves it to the others for a moment: otherwise the one that wakes first would take most of them.
    """

    def __init__(
        self, sockets: Sequence[socket.socket], service: workers.Workers, make: Callable[[], asyncio.Protocol]
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


# --- The supervisor of several workers: one address, one store, N processes -------------------------------------------
# It is uvicorn's, which looks after its workers twice a second. It opens the address and forks workers, which inherit
# the listening sockets. It imports the service and loads vocabularies and tables, so that its workers share that
# memory. It opens no store and no session of a model, starts no thread and draws no id: threads end at a fork, and a
# generator of random numbers would continue alike in each worker.

LOOK_SECONDS = 0.5
"""Between two looks at the workers, as uvicorn has it."""
FAILED_STARTS = 5
"""After so many in a row the service ends."""
LIVED_SECONDS, PAUSE_SECONDS = 10.0, 2.0
"""A worker that died is started again at once if it had lived for so long, else after a pause."""
KILL_SECONDS = 3.0
"""What a worker gets beyond the time to drain."""


class Worker(Process):
    """A forked process that serves."""

    def __init__(self, supervisor: "Supervisor", number: int) -> None:
        super().__init__(supervisor.config, supervisor.sockets)
        self.supervisor, self.number = supervisor, number
        self.process = multiprocessing.get_context("fork").Process(target=self.target)  # type: ignore[assignment]
        self.line = supervisor.service.line(number)
        self.started_at, self.ends_at = time.monotonic(), float("inf")
        """`ends_at`: when it is killed if it has not ended."""
        self.ready = False
        self._beats = self._missed = 0

    @property
    def described(self) -> dict[str, int | None]:
        """What the log says of it."""
        return {"number": self.number, "pid": self.pid}

    def target(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 (the base class's shape)
        """Serves in the child."""
        supervisor = self.supervisor
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        os.setpgid(0, 0)  # the terminal's Ctrl-C is for the supervisor, which tells us
        workers.become(supervisor.service, self.number)
        metrics.share(supervisor.folder, self.number, supervisor.service.living)
        try:
            settings = Settings()  # a worker that replaces another takes what has changed
            cli.configure(settings)
            WorkerServer(_loaded(settings, supervisor.parts), supervisor.parts.tuning, supervisor.service).run(
                supervisor.sockets
            )
        except RecalldError as error:
            self._fail([error.detail])
        except (ValidationError, SettingsError) as error:
            self._fail(explain(error))
        except Exception:
            log.exception("a worker failed")
            sys.exit(1)

    def _fail(self, sentences: list[str]) -> None:
        """Ends the child and says why: to who starts the service, later in the log."""
        for sentence in sentences:
            if self.supervisor.served:
                log.critical(sentence)
            else:
                print(f"recalld: {sentence}", file=sys.stderr)
        sys.exit(1)

    def is_alive(self, timeout: float = 5) -> bool:
        """Returns whether the process lives, its event loop turns once it is ready, and it ends in time when it was
        told to. To be asked at each look: looks are counted and not seconds, so that a machine that was suspended has
        not lost its workers."""
        if not self.process.is_alive():
            return False
        self.ready = self.ready or self.line.accepts
        self._missed = self._missed + 1 if self.line.beats == self._beats and self.ready else 0
        self._beats = self.line.beats
        hung = time.monotonic() > self.ends_at or (self._missed * LOOK_SECONDS > timeout and not self.leaves)
        if hung:
            log.error("a worker is killed: it does not answer", extra=self.described)
        return not hung

    @property
    def leaves(self) -> bool:
        """Whether it was told to end."""
        return self.ends_at < float("inf")

    def tell_to_end(self, how: signal.Signals, ends_at: float) -> None:
        """Sends a signal to the worker. It is killed if it lives at `ends_at`."""
        self.ends_at = ends_at
        with suppress(ProcessLookupError):
            os.kill(self.pid or 0, how)


class Supervisor(Multiprocess):
    """Keeps workers running. SIGTERM and SIGINT end the service, SIGHUP replaces one worker after another."""

    processes: list[Worker]  # type: ignore[assignment]

    def __init__(self, settings: Settings, parts: RealParts) -> None:
        sockets = listening(settings.host, settings.port)
        most = parts.tuning.silent_seconds
        super().__init__(
            uvicorn.Config("", workers=settings.worker_count, log_config=None, timeout_worker_healthcheck=most), sockets
        )
        for number in SIGNALS.keys() - {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}:
            signal.signal(number, signal.SIG_DFL)
        self.parts, self._data_dir, self._model = parts, settings.data_dir, settings.embedding.model
        self.service = workers.Workers(self.processes_num)
        self.folder = Path()
        self.served = False
        """Whether a worker was ready."""
        self._old: list[Worker] = []
        """Workers that are still to be replaced."""
        self._leaving: list[Worker] = []
        self._failed = 0
        """Starts that failed in a row."""
        self._not_before = 0.0
        """When the next worker may be started."""
        self._refused: StartRefused | None = None
        self._has_terminal = sys.stdin is not None and sys.stdin.isatty()

    def run(self) -> None:
        """Runs until the service has ended. Raises StartRefused if it cannot be served."""
        gc.disable()  # see `app/cli/__init__.py`
        importlib.import_module("app.main").prepare(self._model)
        gc.collect()
        work.trim()
        gc.freeze()  # what is loaded stays: a collection in a worker would copy the pages of each object
        gc.enable()
        with _folder_of_metrics(self._data_dir) as self.folder:
            try:
                super().run()
            finally:
                for worker in [*self.processes, *self._leaving]:
                    worker.process.kill()
                    worker.process.join()
        if self._refused is not None:
            raise self._refused

    def init_processes(self) -> None:
        """Starts the first worker alone, since it may have to make or migrate the store."""
        self._start()

    def _start(self) -> None:
        numbers = {worker.number for worker in [*self.processes, *self._leaving]}
        worker = Worker(self, next(number for number in range(1, workers.NUMBERS + 1) if number not in numbers))
        worker.start()
        self.processes.append(worker)
        log.info("a worker starts", extra=worker.described)

    def keep_subprocess_alive(self) -> None:
        """Looks after the workers: takes note of those that became ready or have ended, starts those that miss, and
        goes on with a restart. There a new worker is ready before an old one ends, and that has ended before the
        next."""
        for worker in [*self.processes, *self._leaving]:
            was_ready = worker.ready
            if not worker.is_alive(self.config.timeout_worker_healthcheck):
                self._ended(worker)
            elif worker.ready and not was_ready:
                self._failed = 0
                log.info("a worker is ready", extra=worker.described)
        ready = [worker for worker in self.processes if worker.ready]
        if ready and not self.served:
            self.served = True
            print(curl(self.sockets[0], needs_key=self.service.line(ready[0].number).needs_key), flush=True)
        if self._old and len(ready) > self.processes_num:
            old = self._old.pop(0)
            self.processes.remove(old)
            self._leaving.append(old)
            old.tell_to_end(signal.SIGHUP, time.monotonic() + self.parts.tuning.drain_seconds + KILL_SECONDS)
        wanted = self.processes_num + bool(self._old and not self._leaving) if self.served else 1
        if time.monotonic() >= self._not_before and not self.should_exit.is_set():
            for _ in range(wanted - len(self.processes)):
                self._start()

    def _ended(self, worker: Worker) -> None:
        """Decides what becomes of a worker's place. Raises StartRefused or SystemExit if the first cannot start."""
        worker.kill()
        worker.process.join()
        code = worker.exitcode or 0
        self.service.clear(worker.number)
        mark_process_dead(worker.number, self.folder)  # type: ignore[no-untyped-call]
        described = {**worker.described, "exit_code": code}
        if worker.leaves:
            self._leaving.remove(worker)
            log.info("a worker has ended", extra=described)
            return
        self.processes.remove(worker)
        if not self.served and code > 0:
            sys.exit(code)  # it has said why
        if not self.served:
            raise StartRefused(f"The first worker was ended by signal {-code} before it was ready.")
        if self._old and not worker.ready:
            self._old = []
            log.error("the restart is given up: the new worker could not start; the others go on", extra=described)
            return
        self._old = [old for old in self._old if old is not worker]
        log.error("a worker died" if worker.ready else "a worker could not start", extra=described)
        now = time.monotonic()
        self._not_before = now + (PAUSE_SECONDS if now - worker.started_at < LIVED_SECONDS else 0)
        self._failed += not worker.ready
        if self._failed >= FAILED_STARTS:
            self._refused = StartRefused(
                f"A worker could not start {self._failed} times in a row (exit code {code}), so the service ends; "
                "the lines above say why."
            )
            self.should_exit.set()

    def handle_hup(self) -> None:
        """Restarts, or ends the service if the terminal was closed that it was started on."""
        if self._has_terminal and not os.isatty(0):
            self.handle_int()
        else:
            self._old = [*self.processes]

    def terminate_all(self) -> None:
        """Tells the workers to drain. From now on each holds the door open for itself."""
        for listener in self.sockets:
            listener.close()
        tuning = self.parts.tuning
        self._leaving += self.processes
        self.processes = []
        for worker in self._leaving:
            worker.tell_to_end(
                signal.SIGTERM, time.monotonic() + tuning.drain_delay_seconds + tuning.drain_seconds + KILL_SECONDS
            )

    def join_all(self) -> None:
        """Waits until the workers have ended, and kills those that are late."""
        while self._leaving:
            for worker in [*self._leaving]:
                worker.process.join(LOOK_SECONDS / len(self._leaving))
                if not worker.is_alive():
                    self._ended(worker)


FOLDER = "recalld-workers-"
"""The beginning of the name of a service's folder. While it is made it has another name."""


@contextmanager
def _folder_of_metrics(data_dir: Path) -> Iterator[Path]:
    """Makes a folder for the workers' metrics, in memory if there is such a place, and removes it at the end. While a
    process of the service lives, a lock is held on it: what a killed service left is removed by the next one."""
    usual = Path("/dev/shm"), Path(tempfile.gettempdir())  # noqa: S108 (a folder of our own is made in it)
    place = next((path for path in usual if os.access(path, os.W_OK | os.X_OK)), data_dir)
    for left in place.glob(f"{FOLDER}*"):
        with suppress(OSError), _locked(left):  # of another user, in use, or another service has just removed it
            shutil.rmtree(left)
            log.info("what a killed service left was removed", extra={"folder": str(left)})
    new = Path(tempfile.mkdtemp(prefix=f"new-{FOLDER}", dir=place))
    with _locked(new):
        folder = new.rename(new.with_name(new.name.removeprefix("new-")))  # only now can another service see it
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds a lock on a folder. Children inherit it, so that the system frees it when the last process has ended."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(opened)


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


def serve_with(parts: RealParts) -> None:
    """Serves with the settings of the environment. Tests give other parts, and what they are tuned to."""
    settings = Settings()
    for sentence in unknown_variables():
        print(sentence)
    cli.configure(settings)
    work.use_one_arena()
    work.switch_threads_often()
    if settings.worker_count > 1:
        Supervisor(settings, parts).run()
    else:
        # SIGHUP restarts workers one by one, and there are none; it ends a service whose terminal was closed
        if sys.stdin is None or not sys.stdin.isatty():
            does_nothing = "SIGHUP does nothing with one worker: restart the service, or set RECALLD_WORKERS"
            signal.signal(signal.SIGHUP, lambda *_: log.warning(does_nothing))
        with ExitStack() as opened:
            # a port that is taken is said before the model is loaded
            sockets = [opened.enter_context(listener) for listener in bound(settings.host, settings.port)]
            DrainingServer(_loaded(settings, parts), parts.tuning).run(sockets)


def worker() -> None:
    """Run background jobs until SIGTERM, on a store that `serve` has made. Any number may run beside the server; set
    RECALLD_JOBS_ENABLED=false there to leave all of it to workers."""
    settings = Settings()
    cli.configure(settings)
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
        typer.Option(
            "--only-fill",
            parser=cli.file_or_folder,
            help="Fill a store in this new folder (RECALLD_DATA_DIR is its data/) and end.",
        ),
    ] = None,
) -> None:
    """Fill a throw-away store with a story and serve it, to look around: what agents remember, learn and forget. It
    takes some seconds. Your own store, settings and keys are left alone."""
    if only_fill is not None:
        _fill(only_fill)
        return
    for listener in bound(LOOPBACK, port):  # before the story is written
        listener.close()
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
    cli.configure(settings)
    writer: Any = importlib.import_module("app.cli.demo_writer")  # imports the service, which takes a second
    print("Writing the story …", file=sys.stderr)
    counts = asyncio.run(writer.write_story(settings))
    print(", ".join(f"{number} × {kind}" for kind, number in counts.items()), file=sys.stderr)


def mcp(
    url: cli.UrlOption = None,
    key: Annotated[
        str | None, typer.Option(envvar="RECALLD_KEY", help="API key; the local store needs none.", show_envvar=True)
    ] = None,
    agent: Annotated[
        str | None, typer.Option(envvar="RECALLD_AGENT", help=f"Whose memory; of the local store: {cli.AGENT}.")
    ] = None,
    user: Annotated[
        str | None, typer.Option(envvar="RECALLD_USER", help=f"About whom; of the local store: {cli.USER}.")
    ] = None,
    tools: Annotated[str | None, typer.Option(help="all: list every tool; without it, the five of the core.")] = None,
) -> None:
    """Serve the tools to an MCP client over standard input and output, until it closes them."""
    settings = Settings()
    cli.configure(settings)
    if url is None:
        cli.load_model(settings)
    stdio: Any = importlib.import_module("app.cli.stdio")  # imports the SDK, which takes a second
    given = (agent, user)
    if url is None:
        asyncio.run(stdio.local(settings, key, given, (cli.AGENT, cli.USER), tools))
    else:
        asyncio.run(stdio.remote(url, key, given, tools))
