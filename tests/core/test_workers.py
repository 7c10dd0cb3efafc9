"""What workers tell each other, and how many there are."""

import asyncio
import multiprocessing
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Gauge

from app import metrics
from app.core import workers
from app.core.workers import Workers
from app.lifespan import open_store
from app.settings import Settings, usable_cores


def serve(service: Workers, number: int, connections: int) -> None:
    workers.become(service, number)
    service.own.accepts = True
    service.own.connections = connections


def test_what_a_worker_says_the_others_read() -> None:
    service = Workers(4)
    assert (service.ready(), service.living(), service.fewest_connections()) == (0, [], float("inf"))
    started = [
        multiprocessing.get_context("fork").Process(target=serve, args=(service, number, connections))
        for number, connections in ((1, 7), (2, 3), (5, 9))
    ]
    for process in started:
        process.start()
        process.join(60)
    assert service.ready() == 3
    assert service.living() == [(number, started[at].pid, True) for at, number in enumerate((1, 2, 5))]
    assert service.fewest_connections() == 3
    service.clear(2)
    assert (service.ready(), service.fewest_connections()) == (2, 7)
    assert workers.current() is None


def opened_cache_bytes(service: Workers, folder: Path, found: "Queue[int]") -> None:
    async def opened() -> int:
        store: Any = await open_store(Settings(cache_bytes=8 << 20, data_dir=folder, _env_file=None), 8)
        await store.close()
        return int(store._cache._max_bytes)

    workers.become(service, 1)
    found.put(asyncio.run(opened()))


def test_the_workers_share_the_memory_for_copies_of_what_was_searched(tmp_path: Path) -> None:
    fork, service = multiprocessing.get_context("fork"), Workers(4)
    found: Queue[int] = fork.Queue()
    process = fork.Process(target=opened_cache_bytes, args=(service, tmp_path, found))
    process.start()
    assert found.get(timeout=60) == 2 << 20
    process.join(60)
    assert workers.part_of(8 << 20) == 8 << 20


def test_every_gauge_says_how_those_of_several_workers_become_one() -> None:
    gauges = [one for one in vars(metrics).values() if isinstance(one, Gauge)]
    assert gauges
    assert {one._multiprocess_mode for one in gauges} <= {"livesum", "mostrecent"}


@pytest.mark.parametrize(("given", "wanted"), [("1", 1), ("3", 3), ("auto", min(64, usable_cores()))])
def test_the_number_of_workers(given: str, wanted: int) -> None:
    assert Settings(workers=given, _env_file=None).worker_count == wanted


@pytest.mark.parametrize("given", ["0", "65", "-1", "two", "", "1.5"])
def test_a_number_of_workers_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="It must be a number from 1 to 64, or `auto`"):
        Settings(workers=given, _env_file=None)
