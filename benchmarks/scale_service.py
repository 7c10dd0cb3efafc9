"""The service as `benchmark scale` starts and asks it."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.storage.sqlite.store import FILE_NAME
from benchmarks.data import Texts, owner
from benchmarks.harness import Connection, recalld
from benchmarks.load import Client, Load, Timing, encoded

TEXTS = 32
WARMING_USER = 0
"""Never measured: by asking for them all query vectors are cached, and all code has run."""
RARELY = {f"RECALLD_JOBS_{name}_SECONDS": "1000000" for name in ("DECAY", "EXPIRY", "RETENTION", "EMBED")}
_TEXTS = Texts(11)
QUESTIONS = [_TEXTS.question(number) for number in range(TEXTS)]


def question(number: int, at: int) -> bytes:
    """The body of a search for a user's memories, with one of the texts."""
    return encoded({"query": QUESTIONS[at % TEXTS], **owner(number), "top_k": 10, "record_access": False})


def ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


@dataclass(frozen=True, slots=True)
class Service:
    """`ready`: seconds from the start of its process to a 200 of /readyz."""

    client: Client
    api: Connection
    port: int
    ready: float

    def search(self, bodies: Sequence[bytes], connections: int = 1) -> Timing:
        return self.client.run(Load(self.port, "/v1/memories/search", bodies, connections, len(bodies)))

    def add(self, bodies: Sequence[bytes]) -> Timing:
        return self.client.run(Load(self.port, "/v1/memories", bodies, 1, len(bodies)))

    def metric(self, name: str) -> float:
        """0 where it has no value yet."""
        lines = self.api.ask("GET", "/metrics").decode().splitlines()
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
    with recalld(directory, jobs=jobs, **RARELY) as server:
        service = Service(client, Connection(server.url), server.port, server.ready_seconds)
        service.search([question(WARMING_USER, at) for at in range(TEXTS)])
        # counting tokens waits for the vocabulary, which is read after the start, and in which nothing here is timed
        service.api.ask("POST", "/v1/context", {"query": "warm", **owner(WARMING_USER)})
        yield service


def drop_pages(directory: Path) -> None:
    """Tells the system to drop what it keeps of the file: it is read from the disk, or what the host keeps of it."""
    with (directory / FILE_NAME).open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def disk_mib(directory: Path) -> int:
    return round(sum(file.stat().st_size for file in directory.iterdir()) / (1 << 20))
