"""A service for the time of one evaluation, and a client of it."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import httpx

START_SECONDS = 120
REQUEST_SECONDS = 300


@contextmanager
def connection(url: str | None, key: str | None, *, background: bool = True) -> Iterator[httpx.Client]:
    """A client of the service at `url`; without `url`, of a fresh service that stops when the block ends.

    Without `background` the fresh service runs no background work: it holds what was stored, and nothing else."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with (
        nullcontext(url) if url else server(background=background) as address,
        httpx.Client(base_url=address, headers=headers, timeout=REQUEST_SECONDS) as client,
    ):
        yield client


@contextmanager
def server(*, background: bool = True) -> Iterator[str]:
    """A fresh service on a free port; its data goes when it stops."""
    root = Path(__file__).resolve().parents[2]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as data:
        mine = {**os.environ, **environment(data, port, background=background)}
        command = [sys.executable, "-m", "app.cli", "serve"]
        process = subprocess.Popen(command, cwd=root, env=mine, stdout=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url, process)
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def environment(data: str, port: int, *, background: bool) -> dict[str, str]:
    """Settings of the fresh service."""
    jobs = {} if background else {"RECALLD_JOBS_ENABLED": "false"}
    address = {"RECALLD_HOST": "127.0.0.1", "RECALLD_PORT": str(port)}
    return {**address, **jobs, "RECALLD_DATA_DIR": data, "RECALLD_LOG_LEVEL": "warning"}


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit(f"The server ended with {process.returncode}.")
        try:
            if httpx.get(f"{url}/readyz").is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    sys.exit("The server did not get ready.")
