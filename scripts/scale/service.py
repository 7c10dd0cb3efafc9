"""A started service as the scale benchmark asks it."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from app.storage.sqlite.store import FILE_NAME
from scripts.bench_client import Client, Load, Timing, encoded
from scripts.bench_data import NAMES, Texts, owner
from scripts.bench_servers import recalld

TEXTS = 32
WARMING_USER = 0
"""Never measured: by asking for them all query vectors are cached, and all code has run."""
RARELY = {f"RECALLD_JOBS_{name}_SECONDS": "1000000" for name in ("DECAY", "EXPIRY", "RETENTION", "EMBED")}


def _questions() -> list[str]:
    texts = Texts(11)
    return [texts.query(texts.memory(), texts.choice(NAMES) if number % 2 else None) for number in range(TEXTS)]


QUESTIONS = _questions()


def question(number: int, at: int, **more: Any) -> bytes:
    """The body of a search for a user's memories, with one of the texts."""
    asked = {"query": QUESTIONS[at % TEXTS], **owner(number), "top_k": 10, "record_access": False}
    return encoded(asked | more)


def ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


@dataclass(frozen=True, slots=True)
class Service:
    """`ready`: seconds from the start of its process to a 200 of /readyz."""

    client: Client
    http: httpx.Client
    port: int
    ready: float

    def search(self, bodies: Sequence[bytes], connections: int = 1) -> Timing:
        return self.client.run(Load(self.port, "/v1/memories/search", bodies, connections, len(bodies)))

    def add(self, bodies: Sequence[bytes]) -> Timing:
        return self.client.run(Load(self.port, "/v1/memories", bodies, 1, len(bodies)))

    def metric(self, name: str) -> float:
        """0 where it has no value yet."""
        lines = self.http.get("/metrics").text.splitlines()
        return next((float(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0.0)

    @property
    def rss(self) -> float:
        """Bytes."""
        return self.metric("process_resident_memory_bytes")

    @property
    def cpu(self) -> float:
        """Seconds that the process has computed: other work on the machine changes them far less than latencies."""
        return self.metric("process_cpu_seconds_total")


@contextmanager
def served(client: Client, directory: Path, *, jobs: bool = False) -> Iterator[Service]:
    """Warm, but for the copies of users' memories."""
    started = time.perf_counter()
    with (
        recalld(directory, RECALLD_JOBS_ENABLED=str(jobs).lower(), **RARELY) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300) as http,
    ):
        http.get("/readyz").raise_for_status()
        service = Service(client, http, port, time.perf_counter() - started)
        service.search([question(WARMING_USER, at) for at in range(TEXTS)])
        # counting tokens waits for the vocabulary, which is read after the start, and in which nothing here is timed
        http.post("/v1/context", json={"query": "warm", **owner(WARMING_USER)}).raise_for_status()
        yield service


@contextmanager
def both_served(client: Client, small: Path, large: Path) -> Iterator[dict[str, Service]]:
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(served(client, directory))
            for name, directory in (("small", small), ("large", large))
        }


def drop_pages(directory: Path) -> None:
    """Tells the system to drop what it keeps of the file: it is read from the disk, or what the host keeps of it."""
    with (directory / FILE_NAME).open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def disk_mib(directory: Path) -> int:
    return round(sum(file.stat().st_size for file in directory.iterdir()) / (1 << 20))
