"""What a start and a search cost: normal users beside those of a small store, and one user with very many memories."""

import random
from pathlib import Path
from statistics import median
from typing import Any

from app.settings import Settings
from scripts.bench_client import Client, Timing
from scripts.scale.data import BIG, SMALL, Size
from scripts.scale.service import TEXTS, WARMING_USER, both_served, disk_mib, drop_pages, ms, question, served

A_BLOCK, TIMES = 16, 16
"""Users of a block, and how often each is asked for once it is warm."""
BASE_MIB = 544
"""What a process may take beside the copies: see docs/operations/benchmarks.md."""
BURN_IN = 1_000
"""Searches before anything is compared: the large store's service has had thousands by then."""
MIB = 1 << 20


def reopen(client: Client, small: Path, large: Path, repeat: int) -> dict[str, Any]:
    taken: dict[str, list[float]] = {"small": [], "large": []}
    for _ in range(repeat):
        for name, directory in (("small", small), ("large", large)):
            with served(client, directory) as service:
                taken[name].append(round(service.ready, 2))
    return {
        "process start to ready, s": {name: median(times) for name, times in taken.items()},
        "all": taken,
        "on disk, MiB": {"small": disk_mib(small), "large": disk_mib(large)},
    }


def normal(client: Client, small: Path, large: Path, size: Size, repeat: int) -> dict[str, Any]:
    """First and later searches of normal users; in the large store once the cache is full. And its memory."""
    chosen = random.Random(5)
    fresh = {
        "small": iter(chosen.sample(range(1, SMALL.users), SMALL.users - 1)),
        "large": iter(chosen.sample(range(1, size.users), size.users - 1)),
    }
    firsts: dict[str, list[Timing]] = {name: [] for name in fresh}
    warm: dict[str, list[Timing]] = {name: [] for name in fresh}
    cpu: dict[str, list[float]] = {name: [] for name in fresh}
    with both_served(client, small, large) as both:
        base, scopes = both["large"].rss, size.users // 2
        filling = both["large"].search([question(next(fresh["large"]), at) for at in range(scopes)])
        full = both["large"].rss
        for service in both.values():
            service.search([question(WARMING_USER, at) for at in range(BURN_IN)])
        for _ in range(min(repeat, (SMALL.users - 1) // A_BLOCK)):
            for name, service in both.items():
                asked = [next(fresh[name]) for _ in range(A_BLOCK)]
                firsts[name].append(service.search([question(number, at) for at, number in enumerate(asked)]))
                again = [question(number, at * 7 + turn) for turn in range(TIMES) for at, number in enumerate(asked)]
                before = service.cpu
                warm[name].append(service.search(again))
                cpu[name].append((service.cpu - before) / len(again))
        both["large"].search([question(chosen.randrange(1, size.users), at) for at in range(scopes)], 16)
        last = both["large"].rss
    cache = int(Settings.model_fields["cache_bytes"].default) / MIB
    return {
        "first search of a user, p50 ms": _each(firsts, "p50"),
        "warm, p50 ms": _each(warm, "p50"),
        "warm, p95 ms": _each(warm, "p95"),
        "warm p50, large / small": _ratio([one.p50 for one in warm["large"]], [one.p50 for one in warm["small"]]),
        "warm CPU, large / small": _ratio(cpu["large"], cpu["small"]),
        "first searches while the cache fills, p50 and p95 ms": [ms(filling.p50), ms(filling.p95)],
        "users searched": 2 * scopes + repeat * A_BLOCK,
        "RSS, MiB": {"ready": round(base / MIB), "full": round(full / MIB), "after 16 at once": round(last / MIB)},
        "bound, MiB": BASE_MIB + round(cache),
    }


def _each(timings: dict[str, list[Timing]], what: str) -> dict[str, float]:
    return {name: ms(median(getattr(one, what) for one in found)) for name, found in timings.items()}


def _ratio(ours: list[float], others: list[float]) -> float:
    """Of blocks that took turns."""
    return round(median(one / other for one, other in zip(ours, others, strict=True)), 2)


def big(client: Client, large: Path, repeat: int) -> dict[str, Any]:
    """Fresh processes; the file in the system's cache, or dropped from it."""
    cold: dict[str, list[float]] = {"cold, ms": [], "cold, file not in the system's cache, ms": []}
    cpu, warm = [], []
    for turn in range(2 * repeat):
        dropped = turn % 2 == 1
        with served(client, large) as service:
            if dropped:
                drop_pages(large)
            asked, before = service.cpu, service.cpu
            asking = before - asked  # which costs some, too
            found = cold[list(cold)[dropped]]
            found.append(ms(service.search([question(BIG, 0)]).latencies[0]))
            cpu.append(service.cpu - before - asking)
            warm.append(service.search([question(BIG, at) for at in range(4 * TEXTS)]))
    return {
        **{name: median(times) for name, times in cold.items()},
        "all of these": cold,
        "cold, CPU ms": ms(median(cpu)),
        "warm, p50 ms": ms(median(one.p50 for one in warm)),
        "warm, p95 ms": ms(median(one.p95 for one in warm)),
    }
