"""A million memories of ten thousand users: a start, searches, memory and writes. `benchmark jobs` runs the jobs there.

    scripts/benchmark scale                         # builds the stores (some minutes), measures, removes them
    scripts/benchmark scale --keep FOLDER           # takes the stores that are there, or builds and leaves them
    scripts/benchmark scale --quick                 # a tenth of it

Normal users have as many memories in the large store as in a small one of 10,000 memories and 100 users. Both are
served at once, and blocks of requests to the two take turns. Queries are 32 texts whose vectors are cached.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from threading import Thread

from app.settings import Settings
from app.storage.sqlite.store import FILE_NAME
from benchmarks.data import BIG, Shape, Texts, build, owner
from benchmarks.harness import Connection, Row, Section, Server, folder, recalld
from benchmarks.load import Client, Load, Timing, encoded

SMALL = Shape(10_000, 100)
TEXTS = 32
USERS, TIMES = 16, 16
"""Users of a block, and how often each is asked for once it is warm."""
WARMING_USER = 0
"""Never measured: by asking for them all query vectors are cached, and all code has run."""
BASE_MIB = 544
"""What a process may take beside the copies: see docs/contributing/benchmarks.md."""
BURN_IN = 1_000
"""Searches before anything is compared: the large store's service has had thousands by then."""
FILLING = 5_000
"""Users whose first searches fill the cache of copies more than once."""
ADDED = 20
LISTS = {
    "of a user": "user_id=user-7",
    "the newest of all": "",
    "with a tag that some have": "tag=topic-7",
    "with a tag that nobody has": "tag=nothing",
    "of a type that is not there": "memory_type=summary",
}
QUESTIONS = [Texts(11).question(number) for number in range(TEXTS)]


def question(number: int, at: int) -> bytes:
    """The body of a search for a user's memories, with one of the texts."""
    return encoded({"query": QUESTIONS[at % TEXTS], **owner(number), "top_k": 10, "record_access": False})


def ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


class Service:
    """A service that runs, and the client that loads it."""

    def __init__(self, client: Client, server: Server) -> None:
        self._client, self._port = client, server.port
        self.api, self.ready = Connection(server.url), server.ready_seconds

    def search(self, bodies: Sequence[bytes], connections: int = 1) -> Timing:
        return self._client.run(Load(self._port, "/v1/memories/search", bodies, connections, len(bodies)))

    def add(self, bodies: Sequence[bytes]) -> Timing:
        return self._client.run(Load(self._port, "/v1/memories", bodies, 1, len(bodies)))

    def list_ms(self, query: str) -> float:
        started = time.perf_counter()
        self.api.ask("GET", f"/v1/memories?{query}")
        return ms(time.perf_counter() - started)

    def metric(self, name: str) -> float:
        """0 where it has no value yet."""
        lines = self.api.ask("GET", "/metrics").decode().splitlines()
        return next((float(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0.0)

    @property
    def rss_mib(self) -> int:
        return round(self.metric("process_resident_memory_bytes")) >> 20

    @property
    def cpu(self) -> float:
        """Seconds that the process has computed: other work on the machine changes them far less than latencies."""
        return self.metric("process_cpu_seconds_total")


@contextmanager
def served(client: Client, directory: Path, *, jobs: bool = False) -> Iterator[Service]:
    """Warm, but for the copies of users' memories."""
    with recalld(directory, jobs=jobs) as server:
        service = Service(client, server)
        service.search([question(WARMING_USER, at) for at in range(TEXTS)])
        # counting tokens waits for the vocabulary, which is read after the start, and in which nothing here is timed
        service.api.ask("POST", "/v1/context", {"query": "warm", **owner(WARMING_USER)})
        yield service


class Bench:
    """The small store and the large one. Each public method makes the rows of one part."""

    def __init__(self, client: Client, directory: Path, shape: Shape, repeat: int) -> None:
        self._client, self._shape, self._repeat = client, shape, repeat
        self._stores = {"small": directory / SMALL.name, "large": directory / shape.name}

    @contextmanager
    def _both(self) -> Iterator[list[Service]]:
        with ExitStack() as stack:
            yield [stack.enter_context(served(self._client, directory)) for directory in self._stores.values()]

    def reopen(self) -> list[Row]:
        ready: dict[str, list[float]] = {name: [] for name in self._stores}
        for _ in range(self._repeat):
            for name, directory in self._stores.items():
                with served(self._client, directory) as service:
                    ready[name].append(round(service.ready, 2))
        sizes = {
            name: round(sum(file.stat().st_size for file in directory.iterdir())) >> 20
            for name, directory in self._stores.items()
        }
        start = {name: median(times) for name, times in ready.items()}
        return [{"": "process start to ready, s", **start}, {"": "on disk, MiB", **sizes}]

    def normal(self) -> list[Row]:
        """First and later searches of normal users; in the large store once the cache is full. And its memory."""
        chosen, users = random.Random(5), (SMALL.users, self._shape.users)
        fresh = [iter(chosen.sample(range(1, count), count - 1)) for count in users]
        first, warm = ([list[Timing](), list[Timing]()] for _ in range(2))
        cpu: list[list[float]] = [[], []]
        with self._both() as both:
            large, scopes = both[1], min(self._shape.users // 2, FILLING)
            rss = [large.rss_mib]
            filling = large.search([question(next(fresh[1]), at) for at in range(scopes)])
            rss.append(large.rss_mib)
            for service in both:
                service.search([question(WARMING_USER, at) for at in range(BURN_IN)])
            for _ in range(min(self._repeat, (SMALL.users - 1) // USERS)):
                for at, service in enumerate(both):
                    block = list(enumerate(next(fresh[at]) for _ in range(USERS)))
                    first[at].append(service.search([question(number, text) for text, number in block]))
                    again = [question(number, text * 7 + turn) for turn in range(TIMES) for text, number in block]
                    before = service.cpu
                    warm[at].append(service.search(again))
                    cpu[at].append((service.cpu - before) / len(again))
            large.search([question(chosen.randrange(1, self._shape.users), at) for at in range(scopes)], 16)
            rss.append(large.rss_mib)
        bound = BASE_MIB + (int(Settings.model_fields["cache_bytes"].default) >> 20)
        states = "when ready", f"after {scopes:,} users", f"after {scopes:,} more, 16 at once"
        return [
            _row("first search of a user, p50 ms", *([ms(one.p50) for one in found] for found in first)),
            _row("warm, p50 ms", *([ms(one.p50) for one in found] for found in warm)),
            _row("warm, p95 ms", *([ms(one.p95) for one in found] for found in warm)),
            _row("warm, CPU ms", *([each * 1000 for each in found] for found in cpu)),
            {"": "first searches while the cache fills, p50 ms", "large": ms(filling.p50)},
            {"": "first searches while the cache fills, p95 ms", "large": ms(filling.p95)},
            *({"": f"RSS {state}, MiB (bound {bound})", "large": mib} for state, mib in zip(states, rss, strict=True)),
        ]

    def big(self) -> list[Row]:
        """Fresh processes; the file in the system's cache, or dropped from it."""
        cold: list[list[float]] = [[], []]
        cpu, warm = [], []
        for turn in range(2 * self._repeat):
            with served(self._client, self._stores["large"]) as service:
                if dropped := turn % 2:
                    _drop_pages(self._stores["large"] / FILE_NAME)
                asked, before = service.cpu, service.cpu
                asking = before - asked  # which costs some, too
                cold[dropped].append(ms(service.search([question(BIG, 0)]).latencies[0]))
                cpu.append(service.cpu - before - asking)
                warm.append(service.search([question(BIG, at) for at in range(4 * TEXTS)]))
        return [
            {"": "cold, ms", "large": median(cold[0])},
            {"": "cold, file not in the system's cache, ms", "large": median(cold[1])},
            {"": "cold, CPU ms", "large": ms(median(cpu))},
            {"": "warm, p50 ms", "large": ms(median(one.p50 for one in warm))},
            {"": "warm, p95 ms", "large": ms(median(one.p95 for one in warm))},
        ]

    def writes(self) -> list[Row]:
        """A single add and lists in both stores, and searches beside a list that has to look long."""
        texts = Texts(time.time_ns())
        added = [list[Timing](), list[Timing]()]
        listed: dict[str, list[list[float]]] = {name: [[], []] for name in LISTS}
        with self._both() as both:
            for turn in range(self._repeat):
                for at, service in enumerate(both):
                    users = range(1 + turn * ADDED % 80, 1 + turn * ADDED % 80 + ADDED)
                    new = [{**owner(number), "memory_type": "fact", "content": texts.memory()} for number in users]
                    added[at].append(service.add([encoded(one) for one in new]))
                    for name, query in LISTS.items():
                        listed[name][at].append(service.list_ms(query))
            alone, beside = _longest_searches(both[1], LISTS["with a tag that nobody has"])
        return [
            _row("add with its embedding, p50 ms", *([ms(one.p50) for one in found] for found in added)),
            _row("add, p95 ms", *([ms(one.p95) for one in found] for found in added)),
            *(_row(f"list {name}, ms", *times) for name, times in listed.items()),
            {"": "longest search, ms", "large": alone},
            {"": "longest search beside the longest list, ms", "large": beside},
        ]


def _drop_pages(file: Path) -> None:
    """Tells the system to drop what it keeps of the file: it is read from the disk, or what the host keeps of it."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _row(name: str, small: list[float], large: list[float]) -> Row:
    """Medians of blocks that took turns, and the median of their ratios."""
    ratio = median(one / other for one, other in zip(large, small, strict=True))
    return {"": name, "small": round(median(small), 2), "large": round(median(large), 2), "ratio": round(ratio, 2)}


def _longest_searches(service: Service, query: str) -> tuple[float, float]:
    """Milliseconds of the longest of as many searches without the list, and with it going on."""

    def searches(many: int) -> list[float]:
        return service.search([question(WARMING_USER, at) for at in range(many)]).latencies

    listing, beside = Thread(target=service.list_ms, args=(query,)), list[float]()
    listing.start()
    while listing.is_alive():
        beside += searches(10)
    listing.join()
    return ms(max(searches(len(beside)))), ms(max(beside))


PARTS: dict[str, Callable[[Bench], list[Row]]] = {
    "reopen": Bench.reopen,
    "normal": Bench.normal,
    "big": Bench.big,
    "writes": Bench.writes,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memories", type=int, default=1_000_000)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--big", type=int, default=20_000, help="memories of one more user")
    parser.add_argument("--quick", action="store_true", help="a tenth of these")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="use its stores, and leave them there (5 GB)")


def run(options: argparse.Namespace) -> Iterator[Section]:
    part = 10 if options.quick else 1
    shape = Shape(options.memories // part, options.users // part, options.big // part)
    with ExitStack() as stack:
        directory = options.keep or Path(stack.enter_context(folder()))
        directory.mkdir(parents=True, exist_ok=True)
        print(f"stores: {directory}", file=sys.stderr)
        rates = {str(each): build(directory / each.name, each) for each in (SMALL, shape)}
        yield Section("stores", [{"store": name, "memories/s": rate and round(rate)} for name, rate in rates.items()])
        bench = Bench(stack.enter_context(Client()), directory, shape, options.repeat)
        for name in options.parts:
            yield Section(f"{name}, {shape.name}", PARTS[name](bench))
