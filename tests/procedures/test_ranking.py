"""How procedures stand: what the formula promises, for any counts, outcomes and times."""

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.procedures.schemas import ProcedureRecord
from app.procedures.service import (
    LEAST_FRESH,
    RECENT_SHARE,
    STALE_DAYS,
    TrackRecord,
    order,
    record_sentence,
    score,
    smoothed,
    track_record,
    warnings,
)

OUTCOMES = st.lists(st.booleans(), max_size=40)
IDLE = st.floats(-10, 1e6)
RELEVANCE = st.floats(0, 1)


def of(outcomes: list[bool], idle_days: float = 0.0) -> TrackRecord:
    return track_record(outcomes.count(True), outcomes.count(False), outcomes, idle_days)


@settings(max_examples=50)
@given(OUTCOMES, IDLE, RELEVANCE)
def test_everything_lies_between_0_and_1(outcomes: list[bool], idle: float, relevance: float) -> None:
    it = of(outcomes, idle)
    assert 0 < it.success_rate < 1
    assert 0 < it.recent < 1
    assert 0 < it.works < 1
    assert LEAST_FRESH <= it.freshness <= 1
    assert 0 <= score(relevance, it) <= relevance


@settings(max_examples=50)
@given(OUTCOMES, IDLE)
def test_one_more_success_never_ranks_lower_and_one_more_failure_never_higher(
    outcomes: list[bool], idle: float
) -> None:
    before = of(outcomes, idle)
    better, worse = of([*outcomes, True], idle), of([*outcomes, False], idle)
    assert better.works >= before.works - 1e-12
    assert worse.works <= before.works + 1e-12


@settings(max_examples=50)
@given(OUTCOMES, st.integers(0, 39))
def test_a_success_in_place_of_a_failure_ranks_higher(outcomes: list[bool], at: int) -> None:
    if at < len(outcomes):
        worse, better = ([*outcomes[:at], success, *outcomes[at + 1 :]] for success in (False, True))
        assert of(better).works > of(worse).works


@settings(max_examples=50)
@given(OUTCOMES)
def test_the_same_outcomes_rank_lowest_with_the_failures_last(outcomes: list[bool]) -> None:
    failed_lately, failed_long_ago = sorted(outcomes, reverse=True), sorted(outcomes)
    assert of(failed_lately).works <= of(outcomes).works + 1e-12
    assert of(outcomes).works <= of(failed_long_ago).works + 1e-12


def test_what_was_never_tried_stands_in_the_middle() -> None:
    untried = of([])
    assert (untried.success_rate, untried.recent, untried.works) == (0.5, 0.5, 0.5)
    for many in range(1, 30):
        assert of([False] * many).works < 0.5 < of([True] * many).works
    assert not untried.failing_lately


@settings(max_examples=50)
@given(st.floats(0, 1e5), st.floats(0, 1e5))
def test_what_lies_unused_for_longer_is_never_fresher(one: float, other: float) -> None:
    least, most = sorted((one, other))
    assert of([True], most).freshness <= of([True], least).freshness


def test_a_time_before_the_last_use_is_no_time() -> None:
    assert of([True], -5.0) == of([True], 0.0)


def test_one_outcome_more_moves_what_many_have_shown_little() -> None:
    """What happened once is no proof: 9 of 10 stands above 1 of 1."""
    assert of([True]).works < of([True] * 9 + [False]).success_rate
    assert of([True] * 3).works < of([True] * 30).works


def test_what_begins_to_fail_ranks_down_at_once_and_under_the_untried_in_the_end() -> None:
    """The numbers of docs/concepts/procedures.md."""
    seen = [of([True] * 7 + [False] * failed).works for failed in range(6)]
    assert seen == sorted(seen, reverse=True)
    assert [round(works, 2) for works in seen] == [0.86, 0.74, 0.64, 0.56, 0.5, 0.46]
    mended = [of([False] * 7 + [True] * worked).works for worked in range(8)]
    assert next(at for at, works in enumerate(mended) if works > 0.5) == 5


@pytest.mark.parametrize(
    ("outcomes", "idle", "told", "codes"),
    [
        ("", 0, "not tried yet", []),
        ("s", 0, "worked 1 of 1 time", []),
        ("f", 0, "worked 0 of 1 time", []),
        ("sssssssff", 0, "worked 7 of 9 times, failed the last 2", ["failing_lately"]),
        ("ff", 0, "worked 0 of 2 times", ["failing_lately"]),
        ("sssssffsfs", 0, "worked 7 of 10 times, failed 3 of the last 5", ["failing_lately"]),
        ("fffs", 0, "worked 1 of 4 times, failed 3 of the last 4", ["failing_lately"]),
        ("sfsfs", 0, "worked 3 of 5 times", []),
        ("s", STALE_DAYS, "worked 1 of 1 time", ["stale"]),
        ("ff", STALE_DAYS + 1, "worked 0 of 2 times", ["failing_lately", "stale"]),
    ],
)
def test_what_is_said(outcomes: str, idle: float, told: str, codes: list[str]) -> None:
    it = of([one == "s" for one in outcomes], idle)
    assert record_sentence(outcomes.count("s"), outcomes.count("f"), it) == told
    assert [one["code"] for one in warnings(it)] == codes


def test_the_order_does_not_depend_on_how_they_came() -> None:
    procedures: list[tuple[ProcedureRecord, float]] = [
        ({"procedure_id": f"proc_{at}", "created_at": "2026-06-01"}, value)
        for at, value in enumerate((0.5, 0.7, 0.5, 0.1))
    ]
    orders = set()
    for shuffled in permutations(procedures):
        orders.add(tuple(shuffled[at][0]["procedure_id"] for at in order(list(shuffled))))
    assert orders == {("proc_1", "proc_2", "proc_0", "proc_3")}


def test_the_two_parts_of_works() -> None:
    it = of([True, True, False])
    assert it.success_rate == smoothed(2, 1) == 3 / 5
    half, quarter = 0.5 ** (1 / 3), 0.5 ** (2 / 3)
    assert it.recent == pytest.approx(smoothed(half + quarter, 1))
    assert it.works == pytest.approx((1 - RECENT_SHARE) * it.success_rate + RECENT_SHARE * it.recent)
