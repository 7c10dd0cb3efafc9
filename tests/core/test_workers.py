"""What workers tell each other, and how many there are."""

import multiprocessing

import pytest
from prometheus_client import Gauge

from app import metrics
from app.core import workers
from app.core.workers import Workers
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
