"""The servers that a benchmark runs side by side: the service, a bare route of the same framework, the embedder alone.

`python scripts/bench_servers.py PORT BYTES` is the bare one.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import uvicorn
from fastapi import FastAPI, Response
from pydantic import BaseModel

from app.embedding.embedder import Embedder
from app.embedding.factory import open_embedder
from app.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 30


class Question(BaseModel):
    query: str
    agent_id: str
    user_id: str
    top_k: int
    record_access: bool


def bare_app(size: int) -> FastAPI:
    app = FastAPI()
    answer = b"x" * size

    @app.post("/v1/memories/search")
    async def search(body: Question) -> Response:  # noqa: ARG001 (the framework reads it)
        return Response(answer, media_type="application/json")

    return app


@contextmanager
def recalld(data: Path, **settings: str) -> Iterator[int]:
    """The service on a free port, with `settings` (RECALLD_…) beside the defaults."""
    with served_process(data, **settings) as (port, _):
        yield port


@contextmanager
def served_process(data: Path, **settings: str) -> Iterator[tuple[int, int]]:
    """As `recalld`: its port and the id of its process."""
    given = {"RECALLD_HOST": "127.0.0.1", "RECALLD_DATA_DIR": str(data), "RECALLD_LOG_LEVEL": "warning", **settings}
    with _served(lambda port: ["-m", "app.cli", "serve", "--port", str(port)], given) as found:
        yield found


@contextmanager
def bare(size: int) -> Iterator[int]:
    """One route that reads the same body and answers `size` bytes."""
    with _served(lambda port: [str(Path(__file__).resolve()), str(port), str(size)], {}) as (port, _):
        yield port


@contextmanager
def _served(command: Callable[[int], Sequence[str]], settings: dict[str, str]) -> Iterator[tuple[int, int]]:
    """The port and the process's id."""
    port = _free_port()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
    process = subprocess.Popen(
        [sys.executable, *command(port)], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        _wait(port, process)
        yield port, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit(f"A server ended with {process.returncode}.")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    sys.exit("A server did not start.")


class EmbedderAlone:
    """The service's embedder with the service's settings, in a process of its own."""

    def __enter__(self) -> "EmbedderAlone":
        self._pool = ProcessPoolExecutor(1, get_context("spawn"))
        self.seconds(["warm up"], 1)
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def seconds(self, texts: Sequence[str], at_once: int) -> float:
        """Time to embed `texts`, so many in a call, one call after another."""
        return self._pool.submit(_embed, list(texts), at_once).result()


@cache
def _runner() -> tuple[asyncio.Runner, Embedder]:
    chosen = Settings().embedding
    runner = asyncio.Runner()
    embedder = runner.run(open_embedder(chosen.model, threads=chosen.threads, batch_tokens=chosen.batch_tokens))
    return runner, embedder


def _embed(texts: list[str], at_once: int) -> float:
    runner, embedder = _runner()

    async def run() -> float:
        start = time.perf_counter()
        for at in range(0, len(texts), at_once):
            await embedder.embed_texts(texts[at : at + at_once])
        return time.perf_counter() - start

    return runner.run(run())


if __name__ == "__main__":
    uvicorn.run(
        bare_app(int(sys.argv[2])), port=int(sys.argv[1]), log_config=None, access_log=False, server_header=False
    )
