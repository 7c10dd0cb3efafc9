"""Throughput of one worker and of several on one address: cached searches, live ones, contexts.

    scripts/benchmark workers --workers 2 --turns 5

One service of each size runs on the same store. They take turns, A B A B, and a ratio is taken within a turn; figures
are medians. `cached`: 32 queries whose vectors are known; `live`: each query is new and is embedded; `context`: 32
known queries. `driver` is how much of a core the load generator took, which on a small machine the workers do not get.
`core ms` is what a request costs: other work on the machine changes it less than the throughput.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import data
from benchmarks.data import Shape
from benchmarks.harness import Connection, Row, Section, Server, folder, megabytes, recalld
from benchmarks.load import Client, Load, encoded

TEXTS = 32
TARGETS = {"cached": 1.6}
"""Least ratio of the throughput of two workers to that of one, on two cores."""
PATHS = {"cached": "/v1/memories/search", "live": "/v1/memories/search", "context": "/v1/context"}
PARTS = {"cached": 1.0, "live": 0.2, "context": 0.1}
"""Of --requests: so that runs take about as long."""
UNLIMITED = "1000000000"
LIMITS = {"RECALLD_LIMITS_REQUESTS_PER_SECOND": UNLIMITED, "RECALLD_LIMITS_COST_PER_SECOND": UNLIMITED}
"""Never reached, and counted nevertheless."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of the driver found. `driver`: cores that it took; `workers`: cores that the service took."""

    rate: float
    p99_ms: float
    driver: float
    workers: float

    @property
    def core_ms(self) -> float:
        """Milliseconds of a core for each request."""
        return 1000 * self.workers / self.rate


def _processes(pid: int) -> list[int]:
    """Returns a process and its children. Linux only; elsewhere none."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    return [pid, *map(int, children.read_text().split())] if children.exists() else []


def _worked(pid: int) -> float:
    """Returns the seconds that a process and its children have worked."""
    total = 0.0
    for one in _processes(pid):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / 100
    return total


def _run(client: Client, server: Server, kind: str, bodies: Sequence[bytes], connections: int) -> Run:
    used = _worked(server.pid)
    found = client.run(Load(server.port, PATHS[kind], bodies, connections, len(bodies)))
    used = _worked(server.pid) - used
    return Run(found.rate, found.percentile(99) * 1000, found.driver_seconds / found.elapsed, used / found.elapsed)


def _bodies(shape: Shape, kind: str, count: int, seed: int) -> list[bytes]:
    """As many bodies. Those of `live` have a text of their own for each seed."""
    distinct = count if kind == "live" else TEXTS
    asked = data.queries(shape, count, distinct=distinct, seed=seed if kind == "live" else 11)
    if kind == "context":
        asked = [{name: body[name] for name in ("agent_id", "user_id", "query")} for body in asked]
    return [encoded(body) for body in asked]


def _memory(server: Server) -> Row:
    """Returns MB of all processes of a service: proportional (PSS), and what no other process shares."""
    found = [megabytes(pid, "Pss", "Private_Clean", "Private_Dirty") for pid in _processes(server.pid)]
    shared, clean, dirty = (round(sum(column)) for column in zip(*found, strict=True))
    return {"processes": len(found), "PSS MB": shared, "private MB": clean + dirty}


def _wait_for(server: Server, number: int) -> None:
    wanted = f"{number} of {number} are ready".encode()
    connection = Connection(server.url)
    deadline = time.monotonic() + 120
    while number > 1 and wanted not in connection.ask("GET", "/readyz"):
        if time.monotonic() > deadline:
            sys.exit("not every worker was ready within 120 s")
        time.sleep(0.1)
    connection.close()


def _row(kind: str, found: dict[int, list[Run]]) -> Row:
    (_, one), (number, several) = found.items()
    ratios = [more.rate / single.rate for single, more in zip(one, several, strict=True)]
    row: Row = {
        "request": kind,
        "1 worker, per s": round(median(run.rate for run in one), 1),
        f"{number} workers, per s": round(median(run.rate for run in several), 1),
        "ratio": round(median(ratios), 2),
        "target": TARGETS.get(kind),
    }
    for name in ("p99_ms", "workers", "core_ms", "driver"):
        title = {"workers": "cores"}.get(name, name.replace("_", " "))
        for workers, runs in found.items():
            row[f"{title}, {workers}"] = round(median(getattr(run, name) for run in runs), 2)
    return row


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shape", type=Shape.read, default=Shape(10_000, 100), help="MEMORIES:USERS")
    parser.add_argument("--workers", type=int, default=2, help="workers of the second service")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--turns", type=int, default=5, help="runs of each service, for each kind of request")
    parser.add_argument("--requests", type=int, default=10_000, help="cached searches of a run; fewer of the others")
    parser.add_argument("--kinds", nargs="+", choices=sorted(PATHS), default=[*PATHS])


def run(options: argparse.Namespace) -> Iterator[Section]:
    with folder() as made, ExitStack() as stack:
        directory, client = Path(made) / "data", stack.enter_context(Client())
        data.build(directory, options.shape)
        servers = {
            number: stack.enter_context(recalld(directory, jobs=False, RECALLD_WORKERS=str(number), **LIMITS))
            for number in (1, options.workers)
        }
        for number, server in servers.items():
            _wait_for(server, number)
        rows, met = [], True
        for kind in options.kinds:
            count = max(options.connections, round(options.requests * PARTS[kind]))
            found: dict[int, list[Run]] = {number: [] for number in servers}
            for turn in range(-1, options.turns):
                for number, server in servers.items():
                    bodies = _bodies(options.shape, kind, count, seed=1000 * number + turn)
                    one = _run(client, server, kind, bodies, options.connections)
                    found[number] += [one] if turn >= 0 else []  # the first turn warms up
            rows.append(_row(kind, found))
            met &= options.workers != 2 or rows[-1]["ratio"] >= TARGETS.get(kind, 0)
        yield Section(f"one worker and {options.workers}, {options.shape}", rows, met)
        yield Section("memory", [{"workers": number, **_memory(server)} for number, server in servers.items()])
