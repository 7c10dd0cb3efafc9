"""Figures over actions, as pure functions."""

from collections import Counter
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.actions.roll_ups import CountedCall, Tally, cells, group_of, percentile, wilson
from app.actions.schemas import ActionRecord, Outcome


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    [  # roots of (p - hits/total)² = z² p(1 - p)/total, computed with 40 digits
        (0, 1, 0.0, 0.793450685622763),
        (1, 1, 0.206549314377237, 1.0),
        (5, 10, 0.236593090512564, 0.763406909487436),
        (8, 10, 0.490162471536642, 0.943317848545625),
        (81, 263, 0.255288519878274, 0.366209576982800),
        (15, 148, 0.062386399530736, 0.160487241723308),
        (0, 20, 0.0, 0.161125158052819),
        (1, 29, 0.006113214292763, 0.171755218793203),
    ],
)
def test_intervals_are_wilsons(hits: int, total: int, low: float, high: float) -> None:
    assert wilson(hits, total) == pytest.approx((low, high), abs=1e-12)


@given(st.integers(1, 10_000).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total))))
def test_an_interval_holds_its_rate_and_stays_within_0_and_1(counts: tuple[int, int]) -> None:
    hits, total = counts
    low, high = wilson(hits, total)
    assert 0 <= low <= hits / total + 1e-12
    assert hits / total - 1e-12 <= high <= 1
    mirrored = wilson(total - hits, total)
    assert (1 - mirrored[1], 1 - mirrored[0]) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("values", "share", "found"),
    [
        ([], 0.95, None),
        ([7.0], 0.95, 7.0),
        ([2.0, 1.0], 0.95, 2.0),
        ([float(at) for at in range(20, 0, -1)], 0.95, 19.0),
        ([float(at) for at in range(1, 22)], 0.95, 20.0),
        ([float(at) for at in range(1, 101)], 0.95, 95.0),
        ([15.0, 20.0, 35.0, 40.0, 50.0], 0.3, 20.0),
        ([15.0, 20.0, 35.0, 40.0, 50.0], 1.0, 50.0),
    ],
)
def test_p95_is_the_nearest_rank(values: list[float], share: float, found: float | None) -> None:
    assert percentile(Counter(values), share) == found


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300))
def test_at_least_95_of_100_do_not_exceed_p95_and_no_smaller_value_will_do(values: list[float]) -> None:
    found = percentile(Counter(values), 0.95)
    assert found is not None
    assert found in values
    assert 100 * sum(value <= found for value in values) >= 95 * len(values)
    assert 100 * sum(value < found for value in values) < 95 * len(values)


def test_rates_are_of_the_actions_whose_outcome_is_known() -> None:
    tally = Tally()
    for outcome in ("success", "success", "failure", None, None):
        tally.add(CountedCall("work", None, outcome, None, None))
    figures = tally.figures()
    assert figures["counts"] == {"failure": 1, "success": 2, "unknown": 2}
    succeeded, partly = figures["success_rate"], figures["partial_rate"]
    assert succeeded is not None
    assert partly is not None
    assert succeeded["value"] == pytest.approx(2 / 3)
    assert partly["value"] == 0
    assert Tally().figures()["success_rate"] is None


@pytest.mark.parametrize(
    ("moment", "zone", "day"),
    [
        ("2026-03-28T23:30:00.000Z", "Europe/Berlin", "2026-03-29"),
        ("2026-03-29T22:30:00.000Z", "Europe/Berlin", "2026-03-30"),  # summer time has begun
        ("2026-03-29T21:30:00.000Z", "Europe/Berlin", "2026-03-29"),
        ("2026-06-01T03:59:59.999Z", "America/New_York", "2026-05-31"),
        ("2026-06-01T04:00:00.000Z", "America/New_York", "2026-06-01"),
        ("2026-06-01T12:00:00.000Z", "Pacific/Kiritimati", "2026-06-02"),
        ("9999-12-31T23:00:00.000Z", "Asia/Tokyo", "9999-12-31"),
    ],
)
def test_a_day_is_one_of_the_zone(moment: str, zone: str, day: str) -> None:
    assert group_of("day", CountedCall("work", None, None, None, None, moment), ZoneInfo(zone)) == day


durations = st.lists(st.none() | st.floats(0, 1e9) | st.just(0.0), max_size=60)


@given(durations, durations, st.data())
def test_a_rolled_up_day_has_the_figures_of_its_actions(
    first: list[float | None], second: list[float | None], data: st.DataObject
) -> None:
    def action(duration: float | None) -> ActionRecord:
        outcomes: list[Outcome | None] = ["success", "failure", None]
        rating = st.none() | st.integers(1, 5)
        return {
            "action_type": data.draw(st.sampled_from("ab")),
            "action": {"tool": data.draw(st.sampled_from(["x", "y", None])), "duration_ms": duration},
            "outcome": data.draw(st.sampled_from(outcomes)),
            "feedback": {"user_rating": data.draw(rating)},
            "timestamp": "2026-05-30T12:00:00.000Z",
        }

    early, late = [action(one) for one in first], [action(one) for one in second]
    exact, rolled = Tally(), Tally()
    for one in (*early, *late):
        exact.add(CountedCall.of(one))
    for cell in cells(late, cells(early)):
        rolled.add_cell(cell)
    wanted, got = dict[str, Any](exact.figures()), dict[str, Any](rolled.figures())
    p95 = wanted.pop("p95_duration_ms"), got.pop("p95_duration_ms")
    mean = wanted.pop("mean_duration_ms"), got.pop("mean_duration_ms")
    assert got == wanted
    assert p95[1] == (None if p95[0] is None else pytest.approx(p95[0], rel=0.02))
    assert mean[1] == (None if mean[0] is None else pytest.approx(mean[0]))
