"""The supervisor of several workers: one address, one store, N processes.

It opens the address and forks workers, which inherit the listening sockets. It imports the service and loads the
vocabulary, so that its workers share that memory. It opens no store and no model, starts no thread and draws no id:
threads end at a fork, and a generator of random numbers would go on alike in each worker.
"""

import fcntl
import gc
import logging
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from pydantic import ValidationError
from pydantic_settings import SettingsError

import app.main  # noqa: F401 (what is imported here is shared)
from app import metrics
from app.cli._common import configure
from app.cli.server import listening, serve_as_worker
from app.core import prompt_text, work, workers
from app.core.workers import BEAT, READY, STARTING, STATE
from app.errors import RecalldError
from app.lifespan import Openers, StartRefused
from app.settings import Settings, explain

FAILED_STARTS = 5
"""After so many in a row the service ends."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before a worker is started again that could not start or lived for a short time; doubled each time."""
LIVED_SECONDS = 10.0
"""A worker that was ready for so long is started again at once."""
KILL_SECONDS = 3.0
"""What a worker gets beyond the time to drain."""
QUICK, SLOW = 0.05, 1.0
"""Seconds between two looks, while something is going on and otherwise. A signal ends the pause."""
NOTICED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Worker:
    """A child process. `ready_at` and `kill_at` are moments of `time.monotonic()`; 0: not ready, not to be killed."""

    number: int
    pid: int
    ready_at: float = 0
    kill_at: float = 0

    @property
    def leaves(self) -> bool:
        return self.kill_at > 0


class Supervisor:
    """Keeps `wanted` workers running. SIGTERM and SIGINT end the service, SIGHUP replaces one worker after another."""

    def __init__(
        self, wanted: int, settings: Settings, openers: Openers, on_ready: Callable[[socket.socket], None]
    ) -> None:
        """`on_ready` gets the first listening socket once the first worker is ready."""
        self._wanted, self._settings, self._openers, self._on_ready = wanted, settings, openers, on_ready
        self._shared = workers.SharedMemory(wanted)
        self._board = self._shared.board
        self._workers: dict[int, Worker] = {}
        self._generation = 0
        self._failed, self._pause, self._not_before = 0, FIRST_PAUSE, 0.0
        self._served = False
        self._to_replace: list[Worker] = []
        self._replacement: Worker | None = None
        self._stop_at = 0.0
        """When workers begin to be ended; 0: not."""
        self._refused: StartRefused | None = None
        self._looked_at = time.monotonic()
        self._has_terminal = sys.stdin is not None and sys.stdin.isatty()

    def run(self) -> None:
        """Runs until the service has ended. Raises StartRefused if it cannot be served."""
        self._sockets = listening(self._settings.host, self._settings.port)
        place = _memory_folder(self._settings)
        _clear_ended(place)
        self._folder, held = _made_folder(place)
        self._lifeline, self._held = os.pipe()
        prompt_text.warm()
        work.trim()
        gc.collect()
        gc.freeze()  # what is imported stays: a collection in a worker would copy the pages of each object
        try:
            with self._noticing():
                self._watch()
        finally:
            self._end_all(signal.SIGKILL)
            shutil.rmtree(self._folder, ignore_errors=True)
            os.close(held)
            self._shared.close()
            self._close_door()

    def _watch(self) -> None:
        while True:
            self._reap()
            self._note_ready()
            if self._stop_at:
                if not self._workers:
                    break
                self._end_one_by_one()
            else:
                self._start_missing()
                self._replace()
            self._kill_late()
            self._wait()
        if self._refused is not None:
            raise self._refused

    def _wait(self) -> None:
        unready = any(not worker.ready_at for worker in self._workers.values())
        busy = self._stop_at or unready or self._to_replace or self._replacement
        missing = len(self._workers) < self._wanted
        select.select([self._woken], [], [], QUICK if busy or missing else SLOW)
        with suppress(BlockingIOError):
            self._woken.recv(1024)

    # --- Signals ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        """Handles signals while the block runs; each wakes the supervisor."""
        self._woken, waking = socket.socketpair()
        for end in (self._woken, waking):
            end.setblocking(False)
        before = {one: signal.signal(one, self._told) for one in NOTICED}
        signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            for one, handler in before.items():
                signal.signal(one, handler)

    def _told(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 (the shape of a handler)
        if number == signal.SIGCHLD:
            return
        if number == signal.SIGHUP and not self._hung_up():
            self._to_replace = [one for one in self._workers.values() if not one.leaves and one != self._replacement]
        elif not self._stop_at:
            self._stop(self._openers.tuning.drain_delay_seconds if number == signal.SIGTERM else 0)
        else:  # told twice: at once
            self._end_all(signal.SIGINT)

    def _stop(self, delay: float) -> None:
        """Begins the end of the service. After `delay` seconds workers are ended."""
        self._stop_at = time.monotonic() + delay
        self._board.ends_at = self._stop_at + self._openers.tuning.drain_seconds

    def _hung_up(self) -> bool:
        """Returns whether the terminal was closed that the supervisor was started on."""
        try:
            return self._has_terminal and os.tcgetpgrp(0) < 0
        except OSError:
            return True

    # --- Workers ------------------------------------------------------------------------------------------------------

    def _start(self) -> Worker:
        """Forks a worker."""
        number = next(one for one in range(1, workers.NUMBERS + 1) if one not in self._numbers())
        self._generation += 1
        self._board.begin(number, self._generation)
        signal.pthread_sigmask(signal.SIG_BLOCK, NOTICED)
        try:
            pid = os.fork()
            if pid == 0:
                self._become_worker(number)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, NOTICED)
        worker = self._workers[pid] = Worker(number, pid)
        log.info("a worker starts", extra={"number": number, "pid": pid})
        return worker

    def _numbers(self) -> set[int]:
        return {worker.number for worker in self._workers.values()}

    def _become_worker(self, number: int) -> NoReturn:
        """Serves in the child, and ends it."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for one in NOTICED:
                signal.signal(one, signal.SIG_DFL)
            os.setpgid(0, 0)  # the terminal's Ctrl-C is for the supervisor, which tells us
            os.close(self._held)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, NOTICED)
            workers.become(self._shared, number)
            metrics.share(self._folder, number, self._board)
            settings = Settings()  # a worker that replaces another takes what has changed
            configure(settings)
            serve_as_worker(settings, self._openers, self._sockets, self._lifeline)
            code = 0
        except RecalldError as error:
            self._say([error.detail])
        except (ValidationError, SettingsError) as error:
            self._say(explain(error))
        except BaseException:
            log.exception("a worker failed")
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _say(self, sentences: list[str]) -> None:
        """Says in the child why it could not start: to who starts the service, later in the log."""
        for sentence in sentences:
            if self._served:
                log.critical(sentence)
            else:
                print(f"recalld: {sentence}", file=sys.stderr)

    def _reap(self) -> None:
        """Takes note of workers that have ended. Raises StartRefused or SystemExit if the first cannot start."""
        for pid in [*self._workers]:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._ended(self._workers.pop(pid), os.waitstatus_to_exitcode(status))

    def _ended(self, worker: Worker, code: int) -> None:
        """Decides what becomes of a worker's place. `code`: its exit code, or a signal's number below 0."""
        self._board.clear(worker.number)
        metrics.worker_ended(self._folder, worker.number)
        told = {"number": worker.number, "pid": worker.pid, "exit_code": code}
        if worker.leaves or self._stop_at:
            log.info("a worker has ended", extra=told)
            return
        if worker is self._replacement:
            self._replacement, self._to_replace = None, []
            log.error("the restart is given up: the new worker could not start; the others go on", extra=told)
            return
        if not self._served and code > 0:
            sys.exit(code)  # it has said why
        log.error("a worker died" if worker.ready_at else "a worker could not start", extra=told)
        now = time.monotonic()
        if worker.ready_at and now - worker.ready_at >= LIVED_SECONDS:
            self._pause, self._not_before = FIRST_PAUSE, now
            return
        self._not_before = now + self._pause
        self._pause = min(LONGEST_PAUSE, 2 * self._pause)
        if worker.ready_at:
            return
        self._failed += 1
        if not self._served:
            raise StartRefused(f"The first worker was ended by signal {-code} before it was ready.")
        if self._failed >= FAILED_STARTS:
            self._refused = StartRefused(
                f"A worker could not start {self._failed} times in a row (exit code {code}), so the service ends; "
                "the lines above say why."
            )
            self._stop(self._openers.tuning.drain_delay_seconds)

    def _note_ready(self) -> None:
        for worker in self._workers.values():
            if not worker.ready_at and self._board.read(worker.number, STATE) == READY:
                worker.ready_at, self._failed = time.monotonic(), 0
                log.info("a worker is ready", extra={"number": worker.number, "pid": worker.pid})
                if not self._served:
                    self._served = True
                    self._on_ready(self._sockets[0])

    def _start_missing(self) -> None:
        """Starts the first worker alone, since it may have to make or migrate the store, and then those that miss."""
        wanted = self._wanted if self._served else 1
        here = [one for one in self._workers.values() if not one.leaves and one is not self._replacement]
        if time.monotonic() >= self._not_before:
            for _ in range(wanted - len(here)):
                self._start()

    def _replace(self) -> None:
        """Goes on with a restart: a new worker is ready before an old one ends, and that has ended before the next."""
        if self._replacement is not None:
            if not self._replacement.ready_at:
                return
            self._replacement = None
            old = self._to_replace.pop(0) if self._to_replace else None
            if old is not None and old.pid in self._workers:
                self._tell_to_end(
                    old, signal.SIGHUP, time.monotonic() + self._openers.tuning.drain_seconds + KILL_SECONDS
                )
        self._to_replace = [one for one in self._to_replace if one.pid in self._workers and not one.leaves]
        if self._to_replace and not any(one.leaves for one in self._workers.values()):
            self._replacement = self._start()

    # --- The end ------------------------------------------------------------------------------------------------------

    def _end_one_by_one(self) -> None:
        """Tells the next worker to end when the one before has ended, or has had its share of the time. The last one
        accepts connections until then."""
        now, ends_at = time.monotonic(), self._board.ends_at
        if now < self._stop_at:
            return
        staying = [worker for worker in self._workers.values() if not worker.leaves]
        done = self._wanted - len(staying)
        share = self._stop_at + done * (ends_at - self._stop_at) / self._wanted
        if staying and (len(staying) == len(self._workers) or now >= share):
            if len(staying) == 1:
                self._close_door()
            self._tell_to_end(staying[0], signal.SIGTERM, ends_at + KILL_SECONDS)

    def _close_door(self) -> None:
        """Lets the socket end with the last worker: whoever comes later is refused and does not wait in vain."""
        for one in self._sockets:
            one.close()

    def _tell_to_end(self, worker: Worker, how: signal.Signals, kill_at: float) -> None:
        worker.kill_at = kill_at
        with suppress(ProcessLookupError):
            os.kill(worker.pid, how)

    def _end_all(self, how: signal.Signals) -> None:
        for worker in self._workers.values():
            self._tell_to_end(worker, how, self._board.ends_at + KILL_SECONDS)
        if how == signal.SIGKILL:
            for pid in self._workers:
                os.waitpid(pid, 0)
            self._workers.clear()

    def _kill_late(self) -> None:
        """Kills workers that have not ended in time, and those whose event loop stands still."""
        now, most = time.monotonic(), self._openers.tuning.silent_seconds
        frozen = now - self._looked_at > most / 2  # the whole service was: nobody can have told anything
        self._looked_at = now
        for worker in self._workers.values():
            if frozen and self._board.read(worker.number, STATE) != STARTING:
                self._board.write(worker.number, BEAT, now)
            silent = worker.ready_at and not worker.leaves and now - self._board.read(worker.number, BEAT)
            if silent > most or (worker.leaves and now > worker.kill_at):
                log.error("a worker is killed: it does not answer", extra={"number": worker.number})
                with suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGKILL)


FOLDER = "recalld-workers-"
"""The beginning of the name of a service's folder. While it is made it has another name."""


def _made_folder(place: Path) -> tuple[Path, int]:
    """Makes the folder of a service. Returns it with a file descriptor that holds a lock on it. The workers inherit
    that, so that the system frees the lock when the last process of the service has ended, however it did."""
    new = Path(tempfile.mkdtemp(prefix=f"new-{FOLDER}", dir=place))
    held = os.open(new, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    folder = new.with_name(new.name.removeprefix("new-"))
    new.rename(folder)  # only now can another service see it, and it is locked
    return folder, held


def _clear_ended(place: Path) -> None:
    """Removes the folders of services of this user whose processes were killed and could not."""
    for folder in place.glob(f"{FOLDER}*"):
        with suppress(OSError):  # of another user, in use, or another service has just removed it
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
                log.info("what a killed service left was removed", extra={"folder": str(folder)})
            finally:
                os.close(opened)


def _memory_folder(settings: Settings) -> Path:
    """Returns where the workers' metrics lie: in memory if there is such a folder, else where a file may be made."""
    usual = Path("/dev/shm"), Path(tempfile.gettempdir())  # noqa: S108 (a folder of our own is made in it)
    return next((one for one in usual if os.access(one, os.W_OK | os.X_OK)), settings.data_dir)
