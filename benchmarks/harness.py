"""What all benchmarks share: servers in processes of their own, calls that take turns, percentiles and tables."""

import http.client
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import IO, Any, TypeAlias
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS, END_SECONDS = 120, 60
WARM_UP = 20

Row: TypeAlias = dict[str, Any]
Times: TypeAlias = dict[str, list[float]]
Call: TypeAlias = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Section:
    """One table of a benchmark."""

    title: str
    rows: Sequence[Row]
    met: bool = True
    """False when a figure misses its target."""
    notes: Sequence[str] = ()
    """Lines below the table."""
    figures: Any = None
    """What `--json` writes in place of the rows."""

    def __str__(self) -> str:
        return "\n".join((f"### {self.title}\n", table(self.rows), *(("", *self.notes) if self.notes else ())))


def table(rows: Sequence[Row]) -> str:
    """Markdown. The columns are the keys of all rows; a row without a key leaves its cell empty."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [f"| {' | '.join(columns)} |", "|---|" + "--:|" * (len(columns) - 1)]
    return "\n".join((*lines, *(f"| {' | '.join(_cell(row.get(name)) for name in columns)} |" for row in rows)))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int | float) else str(value)


# --- Measuring --------------------------------------------------------------------------------------------------------


async def alternate(calls: Mapping[str, Call], rounds: int, *, warm_up: int = WARM_UP, block: int = 1) -> Times:
    """Milliseconds of each call. The calls take turns, so that other work on the machine meets all of them.

    Each round makes `block` calls of each kind; the first `warm_up` rounds are not counted. A call gets its number, and
    is awaited when it returns an awaitable.
    """
    taken: Times = {name: [] for name in calls}
    for number in range(warm_up + rounds):
        for name, call in calls.items():
            for at in range(number * block, (number + 1) * block):
                started = time.perf_counter()
                result = call(at)
                if inspect.isawaitable(result):
                    await result
                if number >= warm_up:
                    taken[name].append((time.perf_counter() - started) * 1000)
    return taken


def percentile(values: Sequence[float], share: int) -> float:
    return quantiles(values, n=100, method="inclusive")[share - 1] if len(values) > 1 else values[0]


def p50_p95(milliseconds: Sequence[float]) -> Row:
    return {f"p{share} ms": round(percentile(milliseconds, share), 2) for share in (50, 95)}


def ratio_rows(times: Times, base_of: Mapping[str, str], targets: Mapping[str, float]) -> tuple[list[Row], bool]:
    """A row for each call. `base_of` names the call that its p50 is divided by; `targets` holds the highest ratio that
    is wanted. The second value is False when a ratio is higher."""
    rows: list[Row] = []
    for name, taken in times.items():
        row = {"call": name, **p50_p95(taken)}
        if base := base_of.get(name):
            row |= {"× bare": round(percentile(taken, 50) / percentile(times[base], 50), 2), "target": targets[name]}
        rows.append(row)
    return rows, all(row["× bare"] <= row["target"] for row in rows if "target" in row)


# --- Servers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Server:
    """A running server. `ready_seconds` is the time from the start of its process to its first answer."""

    port: int
    pid: int
    ready_seconds: float

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def folder() -> AbstractContextManager[str]:
    """A temporary directory. A server may still write into it while it is removed."""
    return tempfile.TemporaryDirectory(prefix="recalld-bench-", ignore_cleanup_errors=True)


def recalld(
    data: str | Path, checkout: Path = ROOT, /, *, jobs: bool = True, **settings: str
) -> AbstractContextManager[Server]:
    """The service on a free port. `settings` are environment variables (RECALLD_…) beside the caller's own ones.
    `checkout`: the folder whose code runs, such as one of an earlier revision."""
    variables = {**environment(data, jobs=jobs), **settings}
    return serving(lambda port: ("-m", "app.cli", "serve", "--port", str(port)), variables, checkout)


def environment(data: str | Path, *, jobs: bool) -> dict[str, str]:
    """The settings of a service for a benchmark. Without `jobs` it runs no background work."""
    address = {"RECALLD_HOST": "127.0.0.1", "RECALLD_DATA_DIR": str(data), "RECALLD_LOG_LEVEL": "warning"}
    return {**address, "RECALLD_JOBS_ENABLED": str(jobs).lower()}


def bare(data: str | Path, size: int = 0) -> AbstractContextManager[Server]:
    """The bare server (benchmarks/bare.py). `size` is the length of its answers to a search or a query, in bytes."""
    return serving(lambda port: ("-m", "benchmarks.bare", str(port), str(data), str(size)), {})


@contextmanager
def serving(
    command: Callable[[int], Sequence[str]],
    settings: Mapping[str, str],
    checkout: Path = ROOT,
    *,
    python: str | Path = sys.executable,
    ready: str = "/readyz",
    log: IO[bytes] | None = None,
) -> Iterator[Server]:
    """Runs Python with the arguments that `command` gives for a free port, until the block ends. `ready`: the path that
    answers once it serves. `log`: where its output goes; else standard error alone is shown."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    started = time.perf_counter()
    process = subprocess.Popen(
        [python, *command(port)],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout), **settings},
        stdout=log or subprocess.DEVNULL,
        stderr=log,
        start_new_session=True,
    )
    try:
        _wait(port, process, ready)
        yield Server(port, process.pid, time.perf_counter() - started)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(port: int, process: subprocess.Popen[bytes], path: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit(f"The server ended with exit code {process.returncode}.")
        connection = Connection(f"http://127.0.0.1:{port}")
        try:
            connection.ask("GET", path)
        except (OSError, RuntimeError, http.client.HTTPException):
            time.sleep(0.02)
        else:
            return
        finally:
            connection.close()
    sys.exit(f"The server was not ready after {START_SECONDS} s.")


def megabytes(pid: int, *fields: str) -> list[float]:
    """Millions of bytes of a process's memory, by the names of /proc/PID/smaps_rollup (Linux)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    kilobytes = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines)}
    return [round(kilobytes[field] * 1024 / 1e6, 1) for field in fields]


class Connection:
    """A kept-alive connection that costs little itself."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        address = urlsplit(url)
        kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(address.hostname or "127.0.0.1", address.port, timeout=300)
        self._headers = {"content-type": "application/json", **(headers or {})}

    def ask(self, method: str, path: str, body: Any = None) -> bytes:
        """The body of the answer. `body`: a value, or bytes that are JSON. Raises RuntimeError for a status other than
        200, 201 and 204."""
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            answer = self._send(method, path, sent)
        except (http.client.RemoteDisconnected, BrokenPipeError):  # idle for longer than the server keeps it open
            self._connection.close()
            answer = self._send(method, path, sent)
        read = answer.read()
        if answer.status not in (200, 201, 204):
            raise RuntimeError(f"{method} {path}: {answer.status} {read[:500].decode(errors='replace')}")
        return read

    def close(self) -> None:
        self._connection.close()

    def _send(self, method: str, path: str, body: bytes | None) -> http.client.HTTPResponse:
        self._connection.request(method, path, body, self._headers)
        return self._connection.getresponse()
