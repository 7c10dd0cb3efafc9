"""Which procedure fails, and what becomes of revised steps: rules that hold for all outcomes."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.procedures.schemas import PROCEDURES, ProcedureRecord, ProcedureTrial
from app.procedures.service import (
    FAILING_BELOW,
    TRIAL_MOST,
    TRIAL_OUTCOMES,
    Failing,
    counted,
    failing,
    interval,
    new_trial,
    served,
    to_review,
    verdict,
)

counts = st.integers(0, 200)
few = st.integers(0, 40)


def with_outcomes(successes: list[bool], version: int = 1, **more: Any) -> ProcedureRecord:
    """A procedure of version 1 whose outcomes are all of `version`."""
    outcomes = [{"success": one, "version": version, "variant": "current", **more} for one in successes]
    return PROCEDURES.as_record({"version": 1, "recent_outcomes": outcomes})


def on_trial(current: tuple[int, int], revised: tuple[int, int]) -> ProcedureTrial:
    """A trial with (successes, failures) of both."""
    trial = new_trial("trial_1", ["Ask"], [], "m", "p.1", "2026-01-01T00:00:00Z")
    trial["current"] = {"success_count": current[0], "failure_count": current[1]}
    trial["revised"] = {"success_count": revised[0], "failure_count": revised[1]}
    return trial


@given(counts, counts)
def test_an_interval_holds_the_rate_and_moves_with_each_outcome(successes: int, failures: int) -> None:
    lower, upper = interval(successes, failures)
    assert 0 <= lower <= upper <= 1
    if successes + failures:
        assert lower - 1e-12 <= successes / (successes + failures) <= upper + 1e-12
    better, worse = interval(successes + 1, failures), interval(successes, failures + 1)
    assert better[0] >= lower - 1e-12
    assert worse[1] <= upper + 1e-12


def test_the_interval_is_that_of_the_textbook() -> None:
    assert [round(bound, 3) for bound in interval(8, 2)] == [0.49, 0.943]
    assert interval(0, 0) == (0.0, 1.0)


@given(st.lists(st.booleans(), max_size=20))
def test_a_procedure_fails_by_two_in_a_row_or_by_its_interval(outcomes: list[bool]) -> None:
    found = failing(with_outcomes(outcomes))
    upper = interval(outcomes.count(True), outcomes.count(False))[1]
    assert (found is not None) == (outcomes[-2:] == [False, False] or upper < FAILING_BELOW)
    if found is not None:
        assert len(found.outcomes) == found.failures == outcomes.count(False)


@given(st.lists(st.booleans(), max_size=20))
def test_one_more_failure_never_cures_and_one_more_success_never_harms(outcomes: list[bool]) -> None:
    if failing(with_outcomes(outcomes)):
        assert failing(with_outcomes([*outcomes, False]))
    else:
        assert not failing(with_outcomes([*outcomes, True]))


@given(st.lists(st.booleans(), max_size=20))
def test_outcomes_of_other_steps_do_not_count(outcomes: list[bool]) -> None:
    assert failing(with_outcomes(outcomes, version=2)) is None
    assert failing(with_outcomes(outcomes, variant="revised")) is None


def test_what_fails_now_and_then_is_failing_by_its_interval() -> None:
    seldom = [True, False, False, True, False, True, False, False, True, False, False, True, False]
    assert failing(with_outcomes([True, False, True, False])) is None
    found = failing(with_outcomes([False, False, False, True] * 4))
    assert found == Failing(4, 12, 0, found.outcomes if found else ())
    assert found.reason == "It worked 4 of 16 times."
    assert failing(with_outcomes([*seldom, False])) is not None


@given(st.lists(st.booleans(), max_size=19), st.booleans())
def test_a_review_follows_when_it_begins_to_fail_and_at_each_second_failure(outcomes: list[bool], last: bool) -> None:
    before, after = with_outcomes(outcomes), with_outcomes([*outcomes, last])
    found = failing(after)
    begins = found is not None and failing(before) is None
    again = found is not None and found.in_a_row in range(2, 21, 2)
    assert to_review(before, after) == (begins or again)


@given(st.lists(st.booleans(), max_size=60))
def test_the_steps_of_a_trial_take_turns(outcomes: list[bool]) -> None:
    trial, shown = on_trial((0, 0), (0, 0)), []
    for success in outcomes:
        shown.append(served(trial))
        trial = counted(trial, shown[-1], success=success)
    assert shown == [("revised", "current")[at % 2] for at in range(len(outcomes))]
    tried = (trial["current"], trial["revised"])
    assert sum(variant["success_count"] + variant["failure_count"] for variant in tried) == len(outcomes)


def test_without_a_trial_the_current_steps_are_served() -> None:
    assert served(None) == "current"


@given(few, few, few, few)
def test_a_verdict_never_turns_against_a_success(a: int, b: int, c: int, d: int) -> None:
    found = verdict(on_trial((a, b), (c, d)))
    assert found != "adopt" or verdict(on_trial((a, b), (c + 1, d))) == "adopt"
    if min(a + b, c + d) < TRIAL_OUTCOMES:
        assert found != "adopt"
    if c + d >= TRIAL_MOST:
        assert found is not None


@given(few, few)
def test_a_trial_ends(successes: int, failures: int) -> None:
    trial = on_trial((successes, failures), (successes, failures))
    if successes + failures >= TRIAL_MOST:
        assert verdict(trial) == "drop"


def test_verdicts_of_some_trials() -> None:
    cases = {
        ((0, 5), (5, 0)): "adopt",
        ((1, 4), (4, 1)): "adopt",
        ((0, 4), (5, 0)): None,
        ((2, 3), (3, 2)): None,
        ((5, 0), (0, 5)): "drop",
        ((6, 14), (7, 13)): "drop",
    }
    assert {case: verdict(on_trial(*case)) for case in cases} == cases
