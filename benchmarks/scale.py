"""A million memories of ten thousand users: a start, searches, memory, writes and background jobs.

    scripts/benchmark scale                         # builds the stores (some minutes), measures, removes them
    scripts/benchmark scale --keep --folder FOLDER  # takes the stores that are there, or builds and leaves them
    scripts/benchmark scale --quick                 # a tenth of it

Normal users have as many memories in the large store as in a small one of 10,000 memories and 100 users. Both are
served at once, and blocks of requests to the two take turns. Queries are 32 texts whose vectors are cached.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from threading import Thread

from app.settings import Settings
from benchmarks.data import BIG, Texts, owner
from benchmarks.harness import Row, Section
from benchmarks.load import Client, Timing, encoded
from benchmarks.scale_data import SMALL, Size, build
from benchmarks.scale_jobs import jobs
from benchmarks.scale_service import TEXTS, WARMING_USER, Service, disk_mib, drop_pages, ms, question, served

USERS, TIMES = 16, 16
"""Users of a block, and how often each is asked for once it is warm."""
BASE_MIB = 544
"""What a process may take beside the copies: see docs/operations/benchmarks.md."""
BURN_IN = 1_000
"""Searches before anything is compared: the large store's service has had thousands by then."""
FILLING = 5_000
"""Users whose first searches fill the cache of copies more than once."""
MIB = 1 << 20
ADDED = 20
LISTS = {
    "of a user": "user_id=user-7",
    "the newest of all": "",
    "with a tag that some have": "tag=topic-7",
    "with a tag that nobody has": "tag=nothing",
    "of a type that is not there": "memory_type=summary",
}


class Bench:
    """The small store and the large one."""

    def __init__(self, client: Client, folder: Path, size: Size, repeat: int) -> None:
        self._client, self._size, self._repeat = client, size, repeat
        self._stores = {"small": folder / SMALL.name, "large": folder / size.name}

    @contextmanager
    def _both(self) -> Iterator[tuple[Service, Service]]:
        with served(self._client, self._stores["small"]) as small, served(self._client, self._stores["large"]) as large:
            yield small, large

    def reopen(self) -> list[Row]:
        ready: dict[str, list[float]] = {name: [] for name in self._stores}
        for _ in range(self._repeat):
            for name, directory in self._stores.items():
                with served(self._client, directory) as service:
                    ready[name].append(round(service.ready, 2))
        sizes = {name: disk_mib(directory) for name, directory in self._stores.items()}
        start = {name: median(times) for name, times in ready.items()}
        return [{"": "process start to ready, s", **start}, {"": "on disk, MiB", **sizes}]

    def normal(self) -> list[Row]:
        """First and later searches of normal users; in the large store once the cache is full. And its memory."""
        chosen, users = random.Random(5), (SMALL.users, self._size.users)
        fresh = [iter(chosen.sample(range(1, count), count - 1)) for count in users]
        first, warm = ([list[Timing](), list[Timing]()] for _ in range(2))
        cpu: list[list[float]] = [[], []]
        with self._both() as both:
            large, scopes = both[1], min(self._size.users // 2, FILLING)
            base = large.rss
            filling = large.search([question(next(fresh[1]), at) for at in range(scopes)])
            full = large.rss
            for service in both:
                service.search([question(WARMING_USER, at) for at in range(BURN_IN)])
            for _ in range(min(self._repeat, (SMALL.users - 1) // USERS)):
                for at, service in enumerate(both):
                    asked = [next(fresh[at]) for _ in range(USERS)]
                    first[at].append(service.search([question(number, text) for text, number in enumerate(asked)]))
                    again = [
                        question(number, text * 7 + turn) for turn in range(TIMES) for text, number in enumerate(asked)
                    ]
                    before = service.cpu
                    warm[at].append(service.search(again))
                    cpu[at].append((service.cpu - before) / len(again))
            large.search([question(chosen.randrange(1, self._size.users), at) for at in range(scopes)], 16)
            last = large.rss
        bound = BASE_MIB + round(int(Settings.model_fields["cache_bytes"].default) / MIB)
        return [
            _row("first search of a user, p50 ms", *([ms(one.p50) for one in found] for found in first)),
            _row("warm, p50 ms", *([ms(one.p50) for one in found] for found in warm)),
            _row("warm, p95 ms", *([ms(one.p95) for one in found] for found in warm)),
            _row("warm, CPU ms", *([each * 1000 for each in found] for found in cpu)),
            {"": "first searches while the cache fills, p50 ms", "large": ms(filling.p50)},
            {"": "first searches while the cache fills, p95 ms", "large": ms(filling.p95)},
            {"": "RSS when ready, MiB", "large": round(base / MIB)},
            {"": f"RSS after {scopes:,} users, MiB (bound {bound})", "large": round(full / MIB)},
            {"": f"RSS after {scopes:,} more, 16 at once, MiB (bound {bound})", "large": round(last / MIB)},
        ]

    def big(self) -> list[Row]:
        """Fresh processes; the file in the system's cache, or dropped from it."""
        cold: list[list[float]] = [[], []]
        cpu, warm = [], []
        for turn in range(2 * self._repeat):
            with served(self._client, self._stores["large"]) as service:
                if dropped := turn % 2:
                    drop_pages(self._stores["large"])
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
                    for name, asked in LISTS.items():
                        listed[name][at].append(_list_ms(service, asked))
            alone, beside = _longest_searches(both[1], LISTS["with a tag that nobody has"])
        return [
            _row("add with its embedding, p50 ms", *([ms(one.p50) for one in found] for found in added)),
            _row("add, p95 ms", *([ms(one.p95) for one in found] for found in added)),
            *(_row(f"list {name}, ms", *times) for name, times in listed.items()),
            {"": "longest search, ms", "large": alone},
            {"": "longest search beside the longest list, ms", "large": beside},
        ]

    def jobs(self) -> list[Row]:
        return jobs(self._client, self._stores["large"], self._size)


def _row(name: str, small: list[float], large: list[float]) -> Row:
    """Medians of blocks that took turns, and the median of their ratios."""
    ratio = median(one / other for one, other in zip(large, small, strict=True))
    return {"": name, "small": round(median(small), 2), "large": round(median(large), 2), "ratio": round(ratio, 2)}


def _list_ms(service: Service, asked: str) -> float:
    started = time.perf_counter()
    service.api.ask("GET", f"/v1/memories?{asked}")
    return (time.perf_counter() - started) * 1000


def _longest_searches(service: Service, asked: str) -> tuple[float, float]:
    """Milliseconds of the longest of as many searches without the list, and with it going on."""

    def searches(many: int) -> list[float]:
        return service.search([question(WARMING_USER, at) for at in range(many)]).latencies

    listing = Thread(target=_list_ms, args=(service, asked))
    beside: list[float] = []
    listing.start()
    while listing.is_alive():
        beside += searches(10)
    listing.join()
    return ms(max(searches(len(beside)))), ms(max(beside))


@contextmanager
def stores(folder: Path | None, keep: bool) -> Iterator[Path]:
    if keep:
        kept = folder or Path(tempfile.gettempdir()) / "recalld-scale"
        kept.mkdir(parents=True, exist_ok=True)
        print(f"stores: {kept}", file=sys.stderr)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="recalld-scale-", dir=folder, ignore_cleanup_errors=True) as path:
        yield Path(path)


PARTS: dict[str, Callable[[Bench], list[Row]]] = {
    "reopen": Bench.reopen,
    "normal": Bench.normal,
    "big": Bench.big,
    "writes": Bench.writes,
    "jobs": Bench.jobs,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memories", type=int, default=1_000_000)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--big", type=int, default=20_000, help="memories of one more user")
    parser.add_argument("--copies", type=int, default=1, help="each user is drawn once and copied, which is faster")
    parser.add_argument("--quick", action="store_true", help="a tenth of these")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the stores lie (5 GB)")
    parser.add_argument("--keep", action="store_true", help="leave the stores, and use those that are there")


def run(options: argparse.Namespace) -> Iterator[Section]:
    part = 10 if options.quick else 1
    size = Size(options.memories // part, options.users // part, options.big // part, options.copies)
    with stores(options.folder, options.keep) as folder, Client() as client:
        rates = {each.name: build(folder, each) for each in (SMALL, size)}
        yield Section("stores", [{"store": name, "memories/s": rate and round(rate)} for name, rate in rates.items()])
        bench = Bench(client, folder, size, options.repeat)
        for name in options.parts:
            yield Section(f"{name}, {size.name}", PARTS[name](bench))
