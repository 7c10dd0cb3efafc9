"""The service as a process of its own, as `scripts/serve` starts it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[2]
SERVE = ("-m", "app.cli", "serve")
RESERVE_BYTES = 64 << 10
"""Kept back on the disk for each store of a test: there are thousands of them."""
PLAIN: Any = {"verify": False}
"""Options of a client that needs no certificates: to read them takes 27 ms of processor time, and a request 2 ms."""
_ADDRESS = re.compile(r"http://\S+:\d+")


def environment(data_dir: Path, **settings: str) -> dict[str, str]:
    """Nothing of the developer's own settings."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RECALLD_")}
    ours |= {"PYTHONPATH": str(ROOT), "RECALLD_DATA_DIR": str(data_dir), "RECALLD_PORT": "0"}
    return {**ours, "RECALLD_DISK_RESERVE_BYTES": str(RESERVE_BYTES), **settings}


def recalld(
    data_dir: Path,
    *arguments: str,
    command: Sequence[str] = ("-m", "app.cli"),
    python: str = sys.executable,
    **settings: str,
) -> subprocess.CompletedProcess[str]:
    """One command, ended."""
    return subprocess.run(
        [python, *command, *arguments],
        check=False,
        env=environment(data_dir, **settings),
        cwd=data_dir.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )


class Server:
    """A running `recalld serve`. What it prints and logs is in files beside its data."""

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, str],
        command: Sequence[str] = SERVE,
        python: str = sys.executable,
        door: str = "/readyz",
    ) -> None:
        """Waits until `door` answers 200."""
        self.data_dir = data_dir
        self._out, self._log = data_dir.with_suffix(".out"), data_dir.with_suffix(".log")
        self._started = time.perf_counter()
        with self._out.open("wb") as out, self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [python, *command],
                env=environment(data_dir, **settings),
                cwd=data_dir.parent,
                stdout=out,
                stderr=log,
            )
        self.client = httpx.Client(base_url=self._wait(door), timeout=90, **PLAIN)
        self.seconds_to_ready = time.perf_counter() - self._started
        self.cpu_to_ready = self._cpu()

    def _wait(self, door: str) -> str:
        while time.perf_counter() < self._started + 90:
            if self.process.poll() is not None:
                raise AssertionError(self._log.read_text())
            found = _ADDRESS.search(self.printed())
            if found and self._ready(found[0] + door):
                return found[0]
            time.sleep(0.01)
        raise AssertionError("not ready within 90 s: " + self._log.read_text())

    @staticmethod
    def _ready(address: str) -> bool:
        try:
            return httpx.get(address, **PLAIN).status_code == 200
        except httpx.TransportError:
            return False

    def _cpu(self) -> float:
        """Seconds that it worked, which tells more than the clock where others use the machine; Linux only."""
        stat = Path(f"/proc/{self.process.pid}/stat")
        if not stat.exists():
            return self.seconds_to_ready
        user, system = stat.read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def printed(self) -> str:
        return self._out.read_text()

    def log(self) -> list[dict[str, Any]]:
        """Every whole line parses; the last one may still be under way, as the server writes on."""
        return [json.loads(line) for line in self._log.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def log_text(self) -> str:
        return self._log.read_text()

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """Its exit code."""
        if self.process.poll() is None:
            self.terminate()
        self.client.close()
        return self.process.wait(90)


@contextmanager
def serving(
    data_dir: Path,
    command: Sequence[str] = SERVE,
    python: str = sys.executable,
    door: str = "/readyz",
    **settings: str,
) -> Iterator[Server]:
    """`command`: what to run instead of `recalld serve`; it must say its address as that does. `door`: what must answer
    200 first."""
    server = Server(data_dir, settings, command, python, door)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait()
        server.client.close()
