import time

import pytest

from app.core.openai_client import Fault
from app.embedding import openai
from app.embedding.openai import Retrying
from app.errors import EmbeddingUnavailable


class Clock:
    """Time that passes only in sleep, and in attempts that say so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    return clock


class Failing:
    def __init__(self, *faults: Fault) -> None:
        self.faults = list(faults)
        self.left: list[float] = []

    def __call__(self, seconds: float) -> str:
        self.left.append(seconds)
        if self.faults:
            raise self.faults.pop(0)
        return "done"


def test_it_waits_longer_each_time_and_never_the_same(clock: Clock) -> None:
    for _ in range(20):
        attempt = Failing(Fault("a"), Fault("b"), Fault("c"))
        assert Retrying(10, sleep=clock.sleep).call(attempt) == "done"
        assert attempt.left[0] == pytest.approx(10)
        assert attempt.left == sorted(attempt.left, reverse=True)
    for place, longest in enumerate((0.25, 0.5, 1.0)):
        waits = clock.slept[place::3]
        assert longest / 2 <= min(waits) < max(waits) <= longest
        assert len(set(waits)) == 20


def test_what_the_server_asks_for_is_the_least_it_waits(clock: Clock) -> None:
    for _ in range(20):
        Retrying(10, sleep=clock.sleep).call(Failing(Fault("busy", 2.0)))
    assert 2.0 <= min(clock.slept) < max(clock.slept) <= 2.25


def test_a_wait_past_the_deadline_is_not_waited_but_passed_on(clock: Clock) -> None:
    asking = Retrying(10, sleep=clock.sleep)
    attempt = Failing(Fault("busy", 30.0))
    with pytest.raises(EmbeddingUnavailable, match="busy") as caught:
        asking.call(attempt)
    assert (clock.slept, caught.value.retry_after) == ([], 30)
    with pytest.raises(EmbeddingUnavailable, match="busy"):
        asking.call(attempt)
    assert len(attempt.left) == 1
    clock.now += 30.1
    assert asking.call(attempt) == "done"


def test_a_dead_server_is_asked_ever_more_rarely_and_others_fail_at_once(clock: Clock) -> None:
    asking, asked = Retrying(10, sleep=clock.sleep), []

    def dead(seconds: float) -> None:
        asked.append(clock.now)
        raise Fault("down")

    for _ in range(3000):  # a caller every tenth of a second
        with pytest.raises(EmbeddingUnavailable, match="down"):
            asking.call(dead)
        clock.now += 0.1
    first = asked[:: openai.ATTEMPTS]
    last = asked[openai.ATTEMPTS - 1 :: openai.ATTEMPTS]
    assert all(0 < end - start < 2 for start, end in zip(first, last, strict=True))
    pauses = [start - end for start, end in zip(first[1:], last, strict=False)]
    assert 0.75 <= pauses[0] <= 1.2
    assert max(pauses) <= openai.LONGEST_PAUSE
    assert min(pauses[5:]) > 20


def test_a_server_that_hangs_is_waited_for_no_more_than_half_of_the_time(clock: Clock) -> None:
    asking, waited, called = Retrying(10, sleep=clock.sleep), 0.0, 0

    def hangs(seconds: float) -> None:
        nonlocal waited
        clock.now += seconds
        waited += seconds
        raise Fault("silent")

    began = clock.now
    for _ in range(10_000):
        with pytest.raises(EmbeddingUnavailable, match="silent"):
            asking.call(hangs)
        called += 1
        clock.now += 0.01
    assert called == 10_000
    assert 0 < waited <= (clock.now - began + 10) / 2


def test_a_success_ends_the_count(clock: Clock) -> None:
    asking = Retrying(10, sleep=clock.sleep)
    for _ in range(5):
        with pytest.raises(EmbeddingUnavailable) as caught:
            asking.call(Failing(*[Fault("down")] * 4))
        assert caught.value.retry_after == 1
        clock.now += 1.01
        asking.call(Failing())


def test_what_is_not_a_fault_goes_through_and_opens_no_pause(clock: Clock) -> None:
    asking = Retrying(10, sleep=clock.sleep)

    def refused(seconds: float) -> None:
        raise EmbeddingUnavailable("answered 400")

    with pytest.raises(EmbeddingUnavailable, match="400"):
        asking.call(refused)
    assert asking.call(Failing()) == "done"


@pytest.mark.parametrize("after", [None, 60.0])
@pytest.mark.parametrize("well", [True, False])
def test_a_server_that_is_well_otherwise_is_not_left_alone(clock: Clock, well: bool, after: float | None) -> None:
    asking = Retrying(10, sleep=clock.sleep)
    harmless = Failing(*[] if well else [Fault("down")])
    with pytest.raises(EmbeddingUnavailable, match="too long"):
        asking.call(Failing(*[Fault("too long", after)] * 4), harmless=harmless)
    assert len(harmless.left) == (after is None)
    if well and after is None:
        assert asking.call(Failing()) == "done"
    else:
        with pytest.raises(EmbeddingUnavailable):
            asking.call(Failing())
