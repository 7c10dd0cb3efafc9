from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.clock import (
    BELIEVED_AFTER_SECONDS,
    TOLERANCE_SECONDS,
    SteadyTime,
    SystemClock,
    from_ms,
    to_ms,
    zone_named,
)

DAY = 86_400.0


@dataclass
class Machine:
    """A machine whose system clock can be set. It was started `elapsed` seconds ago."""

    elapsed: float = 1_000.0
    system: float = 1_780_000_000.0
    time: SteadyTime = field(init=False)

    def __post_init__(self) -> None:
        self.time = SteadyTime(lambda: self.system, lambda: self.elapsed)

    def passes(self, seconds: float) -> None:
        self.elapsed += seconds
        self.system += seconds


@pytest.mark.parametrize("jump", [10 * DAY, -10 * DAY])
def test_a_jump_that_does_not_last_is_not_seen(jump: float) -> None:
    machine = Machine()
    before = machine.time.now()
    machine.system += jump
    for second in range(1, 9):
        machine.passes(1)
        assert machine.time.now() == pytest.approx(before + second)
    machine.system -= jump
    assert machine.time.now() == pytest.approx(before + 8)


@pytest.mark.parametrize("jump", [10 * DAY, -10 * DAY])
def test_a_jump_that_lasts_is_believed(jump: float) -> None:
    machine = Machine()
    machine.system += jump
    machine.time.now()
    machine.passes(BELIEVED_AFTER_SECONDS)
    assert machine.time.now() == machine.system


def test_a_clock_that_jumps_again_and_again_is_believed_only_when_it_stays() -> None:
    machine = Machine()
    before = machine.time.now()
    for number in range(10):
        machine.system += DAY * (number % 3 - 1)
        machine.passes(BELIEVED_AFTER_SECONDS / 2)
        machine.time.now()
    assert machine.time.now() == pytest.approx(before + 5 * BELIEVED_AFTER_SECONDS)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(-TOLERANCE_SECONDS / 2, TOLERANCE_SECONDS / 2)), max_size=50))
def test_small_steps_are_followed_and_the_time_never_falls(steps: list[tuple[float, float]]) -> None:
    machine, last = Machine(), 0.0
    for passed, step in steps:
        machine.passes(passed)
        machine.system += step
        now = machine.time.now()
        assert now >= last
        assert now >= machine.system or now == pytest.approx(machine.system)
        last = now


def test_the_system_clock_tells_the_time_of_the_machine() -> None:
    assert abs(SystemClock().now() - datetime.now(UTC)) < timedelta(seconds=TOLERANCE_SECONDS)


def test_milliseconds_are_the_moment_that_they_were_made_of() -> None:
    for moment in ("2026-06-17T23:30:00.123Z", "1969-12-31T23:59:59.999Z", "0001-01-01T00:00:00.000Z"):
        assert from_ms(to_ms(moment)) == moment


@pytest.mark.parametrize("name", ["Mars/Olympus", "../../etc/passwd", "Europe", "", "\ud800", "a\0b"])
def test_an_unknown_zone_is_a_value_error(name: str) -> None:
    with pytest.raises(ValueError, match="time zone"):
        zone_named(name)


def test_a_zone_is_known_by_its_name() -> None:
    assert zone_named("Europe/Berlin").key == "Europe/Berlin"
