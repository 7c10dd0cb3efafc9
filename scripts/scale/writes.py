"""A single add, and lists, in the large store and in the small; and searches beside a list that has to look long."""

import time
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any

from scripts.bench_client import Client, Timing, encoded
from scripts.bench_data import Texts, owner
from scripts.scale.service import WARMING_USER, Service, both_served, ms, question

ADDED = 20
LISTS = {
    "of a user": "user_id=user-7",
    "the newest of all": "",
    "with a tag that some have": "tag=topic-7",
    "with a tag that nobody has": "tag=nothing",
    "of a type that is not there": "memory_type=summary",
}


def writes(client: Client, small: Path, large: Path, repeat: int) -> dict[str, Any]:
    texts = Texts(time.time_ns())
    added: dict[str, list[Timing]] = {"small": [], "large": []}
    listed: dict[str, dict[str, list[float]]] = {what: {name: [] for name in added} for what in LISTS}
    with both_served(client, small, large) as both:
        for turn in range(repeat):
            for name, service in both.items():
                users = range(1 + turn * ADDED % 80, 1 + turn * ADDED % 80 + ADDED)
                new = [{**owner(number), "memory_type": "fact", "content": texts.memory()} for number in users]
                added[name].append(service.add([encoded(one) for one in new]))
                for what, asked in LISTS.items():
                    listed[what][name].append(_list(service, asked))
        alone, beside = _beside(both["large"], LISTS["with a tag that nobody has"])
    return {
        "add with its embedding, p50 ms": {name: ms(median(one.p50 for one in t)) for name, t in added.items()},
        "add, p95 ms": {name: ms(median(one.p95 for one in t)) for name, t in added.items()},
        **{
            f"list {what}, ms": {name: ms(median(times)) for name, times in found.items()}
            for what, found in listed.items()
        },
        "longest search alone and beside the longest list, ms": [ms(alone), ms(beside)],
    }


def _list(service: Service, asked: str) -> float:
    started = time.perf_counter()
    service.http.get(f"/v1/memories?{asked}").raise_for_status()
    return time.perf_counter() - started


def _beside(service: Service, asked: str) -> tuple[float, float]:
    """Longest of as many searches without and with the list going on."""
    going = Thread(target=_list, args=(service, asked))
    beside: list[float] = []
    going.start()
    while going.is_alive():
        beside += _searches(service, 10)
    going.join()
    return max(_searches(service, len(beside))), max(beside)


def _searches(service: Service, many: int) -> list[float]:
    return service.search([question(WARMING_USER, at) for at in range(many)]).latencies
