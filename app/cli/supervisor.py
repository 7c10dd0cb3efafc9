"""The supervisor of several workers: one address, one store, N processes.

It is uvicorn's, which looks after its workers twice a second. It opens the address and forks workers, which inherit the
listening sockets. It imports the service and loads the vocabulary, so that its workers share that memory. It opens no
store and no model, starts no thread and draws no id: threads end at a fork, and a generator of random numbers would go
on alike in each worker.
"""

import fcntl
import gc
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn
from prometheus_client.multiprocess import mark_process_dead
from pydantic import ValidationError
from pydantic_settings import SettingsError
from uvicorn.supervisors.multiprocess import SIGNALS, Multiprocess, Process

import app.main  # noqa: F401 (what is imported here is shared)
from app import metrics
from app.cli._common import configure
from app.cli.server import curl, listening, serve_as_worker
from app.core import prompt_text, work, workers
from app.errors import RecalldError
from app.lifespan import Openers, StartRefused
from app.settings import Settings, explain

LOOK_SECONDS = 0.5
"""Between two looks at the workers, as uvicorn has it."""
FAILED_STARTS = 5
"""After so many in a row the service ends."""
LIVED_SECONDS, PAUSE_SECONDS = 10.0, 2.0
"""A worker that died is started again at once if it had lived for so long, else after a pause."""
KILL_SECONDS = 3.0
"""What a worker gets beyond the time to drain."""

log = logging.getLogger(__name__)


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
            configure(settings)
            serve_as_worker(settings, supervisor.openers, supervisor.sockets, supervisor.service)
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

    def __init__(self, settings: Settings, openers: Openers) -> None:
        sockets = listening(settings.host, settings.port)
        most = openers.tuning.silent_seconds
        super().__init__(
            uvicorn.Config("", workers=settings.worker_count, log_config=None, timeout_worker_healthcheck=most), sockets
        )
        for number in SIGNALS.keys() - {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}:
            signal.signal(number, signal.SIG_DFL)
        self.openers, self._data_dir = openers, settings.data_dir
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
        prompt_text.warm()
        work.trim()
        gc.collect()
        gc.freeze()  # what is imported stays: a collection in a worker would copy the pages of each object
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
            old.tell_to_end(signal.SIGHUP, time.monotonic() + self.openers.tuning.drain_seconds + KILL_SECONDS)
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

    def restart_all(self) -> None:
        """Begins to replace the workers."""
        self._old = [*self.processes]

    def handle_hup(self) -> None:
        """Restarts, or ends the service if the terminal was closed that it was started on."""
        if self._has_terminal and not os.isatty(0):
            self.handle_int()
        else:
            self.restart_all()

    def terminate_all(self) -> None:
        """Tells the workers to drain. From now on each holds the door open for itself."""
        for listener in self.sockets:
            listener.close()
        tuning = self.openers.tuning
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
