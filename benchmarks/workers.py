"""Throughput of one worker and of several on one address, with the load of `wrk`: cached searches, live ones, contexts.

One service of each size runs on the same store, filled straight in the engine with random vectors. They take turns, A B
A B, and a ratio is taken within a turn; figures are medians. `cached`: 32 queries whose vectors are known; `live`: each
query is new and is embedded; `context`: 32 known queries. `driver` is how much of a core `wrk` itself took, which on a
small machine the workers do not get. `core ms` is what a request costs: other work on the
machine changes it less than the throughput.

Needs the program `wrk` (in Debian and Ubuntu: `apt-get install wrk`).
"""

import argparse
import json
import re
import resource
import shutil
import subprocess
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

TEXTS, LIVE_TEXTS = 32, 2048
WARM_SECONDS = 1.0
TARGETS = {"cached": 1.6}
"""Least ratio of the throughput of two workers to that of one, on two cores."""
PATHS = {"cached": "/v1/memories/search", "live": "/v1/memories/search", "context": "/v1/context"}
UNLIMITED = "1000000000"
_LIMITS = {"RECALLD_LIMITS_REQUESTS_PER_SECOND": UNLIMITED, "RECALLD_LIMITS_COST_PER_SECOND": UNLIMITED}
"""Never reached, and counted nevertheless."""
_RATE = re.compile(r"Requests/sec:\s+([0-9.]+)")
_P99 = re.compile(r"99%\s+([0-9.]+)(us|ms|s)\b")
_MILLISECONDS = {"us": 0.001, "ms": 1.0, "s": 1000.0}

_SCRIPT = """
local bodies, at = {}, 0
for line in io.lines(%(file)s) do bodies[#bodies + 1] = line end
wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
function request()
  at = at + 1
  local body = bodies[(at - 1) %% #bodies + 1]
  if %(new)s then body = string.gsub(body, "#", tostring(at) .. " " .. %(run)s, 1) end
  return wrk.format(nil, nil, nil, body)
end
"""


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


class Driver:
    """Runs `wrk` with bodies that lie in files."""

    def __init__(self, directory: Path, connections: int, seconds: float) -> None:
        self._directory, self._connections, self._seconds = directory, connections, seconds
        self._runs = 0

    def run(self, server: Server, kind: str, seconds: float | None = None) -> Run:
        """Loads a service. Ends the benchmark if an answer was not 2xx."""
        self._runs += 1
        script = self._directory / "run.lua"
        lines = json.dumps(str(self._directory / f"{kind}.jsonl"))
        how = {"file": lines, "new": str(kind == "live").lower(), "run": json.dumps(f"in run {self._runs}")}
        script.write_text(_SCRIPT % how, encoding="utf-8")
        lasts = max(1, round(seconds or self._seconds))
        before, used, began = resource.getrusage(resource.RUSAGE_CHILDREN), _worked(server.pid), time.perf_counter()
        program = ["wrk", "-t1", f"-c{self._connections}", f"-d{lasts}s", "--latency", "--timeout", "30s"]
        ended = subprocess.run(
            [*program, "-s", str(script), server.url + PATHS[kind]], capture_output=True, text=True, check=True
        )
        took = time.perf_counter() - began
        after, used = resource.getrusage(resource.RUSAGE_CHILDREN), _worked(server.pid) - used
        found, slowest = _RATE.search(ended.stdout), _P99.search(ended.stdout)
        if found is None or slowest is None or "Non-2xx" in ended.stdout or "Socket errors" in ended.stdout:
            sys.exit(f"{kind}: not every request was answered\n{ended.stdout}{ended.stderr}")
        driver = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        p99 = float(slowest[1]) * _MILLISECONDS[slowest[2]]
        return Run(float(found[1]), p99, driver / took, used / took)


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


def _memory(server: Server) -> Row:
    """Returns MB of all processes of a service: proportional (PSS), and what no other process shares."""
    found = [megabytes(pid, "Pss", "Private_Clean", "Private_Dirty") for pid in _processes(server.pid)]
    shared, clean, dirty = (round(sum(column)) for column in zip(*found, strict=True))
    return {"processes": len(found), "PSS MB": shared, "private MB": clean + dirty}


def _write_bodies(directory: Path, shape: Shape) -> None:
    """Writes the bodies of each kind of request, one a line. `#` in a live one is replaced by a number."""
    known = data.queries(shape, 512, distinct=TEXTS)
    new = data.queries(shape, LIVE_TEXTS, distinct=LIVE_TEXTS, seed=13)
    contexts = [{name: body[name] for name in ("agent_id", "user_id", "query")} for body in known]
    live = [{**body, "query": f"{body['query']} #"} for body in new]
    for kind, bodies in {"cached": known, "live": live, "context": contexts}.items():
        lines = "\n".join(json.dumps(body) for body in bodies)
        (directory / f"{kind}.jsonl").write_text(lines + "\n", encoding="utf-8")


def _wait_for(server: Server, number: int) -> None:
    wanted = f"{number} of {number} are ready".encode()
    connection = Connection(server.url)
    deadline = time.monotonic() + 120
    while number > 1 and wanted not in connection.ask("GET", "/readyz"):
        if time.monotonic() > deadline:
            sys.exit("not every worker was ready within 120 s")
        time.sleep(0.1)
    connection.close()


def _row(number: int, kind: str, one: Sequence[Run], several: Sequence[Run]) -> Row:
    ratios = [more.rate / single.rate for single, more in zip(one, several, strict=True)]
    return {
        "request": kind,
        "1 worker, per s": round(median(run.rate for run in one), 1),
        f"{number} workers, per s": round(median(run.rate for run in several), 1),
        "ratio": round(median(ratios), 2),
        "target": TARGETS.get(kind),
        "p99 ms, 1": round(median(run.p99_ms for run in one), 1),
        f"p99 ms, {number}": round(median(run.p99_ms for run in several), 1),
        "cores, 1": round(median(run.workers for run in one), 2),
        f"cores, {number}": round(median(run.workers for run in several), 2),
        "core ms, 1": round(median(run.core_ms for run in one), 2),
        f"core ms, {number}": round(median(run.core_ms for run in several), 2),
        "driver, 1": round(median(run.driver for run in one), 2),
        f"driver, {number}": round(median(run.driver for run in several), 2),
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shape", type=Shape.read, default=Shape(10_000, 100), help="MEMORIES:USERS")
    parser.add_argument("--workers", type=int, default=2, help="workers of the second service")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--turns", type=int, default=5, help="runs of each service, for each kind of request")
    parser.add_argument("--seconds", type=float, default=10, help="length of a run")
    parser.add_argument("--kinds", nargs="+", choices=sorted(PATHS), default=[*PATHS])


def run(options: argparse.Namespace) -> Iterator[Section]:
    if shutil.which("wrk") is None:
        sys.exit("This benchmark needs the program `wrk`: in Debian and Ubuntu, `apt-get install wrk`.")
    with folder() as made, ExitStack() as stack:
        directory = Path(made)
        data.build(directory / "data", options.shape)
        _write_bodies(directory, options.shape)
        sizes = (1, options.workers)
        servers = {
            number: stack.enter_context(recalld(directory / "data", jobs=False, RECALLD_WORKERS=str(number), **_LIMITS))
            for number in sizes
        }
        for number, server in servers.items():
            _wait_for(server, number)
        driver = Driver(directory, options.connections, options.seconds)
        rows, met = [], True
        for kind in options.kinds:
            found: dict[int, list[Run]] = {number: [] for number in sizes}
            for server in servers.values():
                driver.run(server, kind, WARM_SECONDS)
            for _ in range(options.turns):
                for number in sizes:
                    found[number].append(driver.run(servers[number], kind))
            row = _row(options.workers, kind, found[1], found[options.workers])
            met &= options.workers != 2 or row["ratio"] >= TARGETS.get(kind, 0)
            rows.append(row)
        yield Section(f"one worker and {options.workers}, {options.shape}", rows, met)
        yield Section("memory", [{"workers": number, **_memory(server)} for number, server in servers.items()])
