"""How feedback changes importance: a pure function of anchors and the moment."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.memories.service import GAIN, LOSS, Strength, adjusted
from app.retrieval.decay import DAY_MS, DEFAULT_DECAY, DecayCurve, base_of, importance

NOW = 1_750_000_000_000
decays = st.builds(DecayCurve, st.floats(0.01, 1), st.floats(0, 365), st.floats(0, 1))
ages = st.integers(-DAY_MS, 5_000 * DAY_MS)
later = st.integers(0, 5_000 * DAY_MS)
strengths = st.builds(
    lambda base, age, pinned, decay: Strength(base, NOW - age, pinned, decay),
    st.floats(0, 1),
    ages,
    st.booleans(),
    decays,
)


def fresh(base: float) -> Strength:
    return Strength(base, NOW, False, DEFAULT_DECAY)


@pytest.mark.parametrize(
    ("base", "helpful", "wanted"),
    [
        *((0.5, True, 0.55), (0.55, True, 0.6), (0.97, True, 1.0), (1.0, True, 1.0)),
        *((0.5, False, 0.4), (0.1, False, 0.0), (0.07, False, 0.0), (0.0, False, 0.0)),
    ],
)
def test_a_fresh_memory_gains_a_twentieth_or_loses_a_tenth_of_its_base(
    base: float, helpful: bool, wanted: float
) -> None:
    assert adjusted(fresh(base), NOW, helpful=helpful)[0].base == wanted


def test_a_faded_memory_gains_and_loses_as_much_of_what_it_has_left() -> None:
    faded = Strength(0.8, NOW - 400 * DAY_MS, False, DEFAULT_DECAY)
    assert faded.at(NOW) == pytest.approx(0.425, abs=0.001)
    helped, misled = (adjusted(faded, NOW, helpful=helpful)[0] for helpful in (True, False))
    assert helped.at(NOW) == pytest.approx(faded.at(NOW) + 0.05)
    assert misled.at(NOW) == pytest.approx(faded.at(NOW) - 0.1)
    assert (helped.anchor_ms, misled.anchor_ms) == (NOW, faded.anchor_ms)


@given(strengths, st.booleans())
def test_the_importance_of_the_moment_moves_by_the_step_and_stays_a_share(before: Strength, helpful: bool) -> None:
    after, effect = adjusted(before, NOW, helpful=helpful)
    wanted = min(1.0, max(0.0, before.at(NOW) + (GAIN if helpful else -LOSS)))
    assert after.at(NOW) == pytest.approx(wanted, abs=1e-8)
    assert effect == pytest.approx(wanted - before.at(NOW), abs=1e-8)
    assert 0 <= after.base <= 1


@given(strengths, later)
def test_what_helped_is_at_no_later_moment_less_important_than_without(before: Strength, wait: int) -> None:
    after, _ = adjusted(before, NOW, helpful=True)
    assert after.at(NOW + wait) >= before.at(NOW + wait) - 1e-8


@given(strengths, later)
def test_what_misled_is_at_no_later_moment_more_important_than_without(before: Strength, wait: int) -> None:
    after, _ = adjusted(before, NOW, helpful=False)
    assert after.at(NOW + wait) <= before.at(NOW + wait) + 1e-8


@given(strengths, st.booleans(), later, later)
def test_it_fades_on_as_any_memory_does(before: Strength, helpful: bool, wait: int, more: int) -> None:
    after, _ = adjusted(before, NOW, helpful=helpful)
    assert after.at(NOW + wait + more) <= after.at(NOW + wait)


@given(strengths, st.booleans(), later)
def test_an_access_of_the_same_moment_may_be_written_before_or_after(
    before: Strength, helpful: bool, wait: int
) -> None:
    def accessed(one: Strength) -> Strength:
        return replace(one, base=one.at(NOW), anchor_ms=max(NOW, one.anchor_ms))

    access_first, _ = adjusted(accessed(before), NOW, helpful=helpful)
    access_last = accessed(adjusted(before, NOW, helpful=helpful)[0])
    assert access_first.at(NOW + wait) == pytest.approx(access_last.at(NOW + wait), abs=1e-8)


@given(strengths, st.booleans())
def test_the_opposite_leaves_what_it_alone_would_have_left(before: Strength, helpful: bool) -> None:
    first, effect = adjusted(before, NOW, helpful=not helpful)
    both, last = adjusted(first, NOW, helpful=helpful, undone=effect)
    alone, only = adjusted(before, NOW, helpful=helpful)
    assert both.at(NOW) == pytest.approx(alone.at(NOW), abs=1e-8)
    assert last == pytest.approx(only, abs=1e-8)


@given(st.floats(0, 1), ages, st.booleans(), decays)
def test_the_base_of_an_importance_is_the_one_that_gives_it(
    share: float, age: int, pinned: bool, decay: DecayCurve
) -> None:
    """For every importance up to the one of base 1."""
    wanted = share * importance(1.0, NOW - age, NOW, pinned, decay)
    base = base_of(wanted, NOW - age, NOW, pinned, decay)
    assert importance(base, NOW - age, NOW, pinned, decay) == pytest.approx(wanted, abs=1e-8)
