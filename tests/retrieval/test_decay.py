from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.retrieval.decay import DAY_MS, DEFAULT_DECAY, DecayCurve, importance, importances

NOW = 1_750_000_000_000
bases = st.floats(0, 1)
days = st.floats(0, 5000)
decays = st.builds(DecayCurve, st.floats(0, 1), st.floats(0, 365), st.floats(0, 1))


def after(base: float, idle_days: float, decay: DecayCurve = DEFAULT_DECAY, pinned: bool = False) -> float:
    return importance(base, NOW, NOW + int(idle_days * DAY_MS), pinned, decay)


def test_nothing_fades_in_the_grace_time() -> None:
    assert after(0.8, 0) == after(0.8, 30) == 0.8


def test_a_month_past_the_grace_time_takes_the_factor() -> None:
    assert after(0.8, 60) == pytest.approx(0.8 * 0.95)
    assert after(0.8, 75) == pytest.approx(0.8 * 0.95**1.5)


def test_the_floor_holds_and_a_base_under_it_stays() -> None:
    assert after(0.8, 100_000) == 0.1
    assert after(0.05, 100_000) == 0.05


def test_an_anchor_in_the_future_is_one_of_now() -> None:
    assert importance(0.8, NOW + DAY_MS, NOW) == 0.8


@given(bases, days, decays)
def test_it_stays_between_floor_and_base(base: float, idle: float, decay: DecayCurve) -> None:
    assert min(base, decay.floor) <= after(base, idle, decay) <= base


@given(bases, days, days, decays)
def test_it_never_rises_without_an_access(base: float, idle: float, more: float, decay: DecayCurve) -> None:
    assert after(base, idle + more, decay) <= after(base, idle, decay)


@given(bases, days, decays)
def test_pinned_never_fades(base: float, idle: float, decay: DecayCurve) -> None:
    assert after(base, idle, decay, pinned=True) == base


@given(bases, days, decays)
def test_an_access_goes_on_from_the_value_of_that_moment(base: float, idle: float, decay: DecayCurve) -> None:
    value = after(base, idle, decay)
    assert after(value, 0, decay) == value
    assert after(value, float(decay.grace_days), decay) == value


@given(bases, days, days)
def test_without_grace_two_steps_are_one(base: float, idle: float, more: float) -> None:
    decay = replace(DEFAULT_DECAY, grace_days=0.0)
    assert after(after(base, idle, decay), more, decay) == pytest.approx(after(base, idle + more, decay), rel=1e-6)


@given(st.lists(st.tuples(bases, days, st.booleans()), max_size=8), decays)
def test_arrays_give_what_single_memories_give(each: list[tuple[float, float, bool]], decay: DecayCurve) -> None:
    anchors = np.array([NOW - int(idle * DAY_MS) for _, idle, _ in each], np.int64)
    pinned = np.array([fixed for *_, fixed in each], np.bool_)
    many = importances(np.array([base for base, *_ in each]), anchors, NOW, pinned, decay)
    one = [importance(b, int(a), NOW, f, decay) for (b, _, f), a in zip(each, anchors.tolist(), strict=True)]
    assert many == pytest.approx(one)
