"""Statistics of a search and of its score: examples computed by hand, and what holds for any values."""

from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.evaluation import measures
from benchmarks.evaluation.measures import Floats

SCORES = st.lists(st.floats(0, 1), min_size=1, max_size=60)
COUNTS = st.lists(st.integers(-20, 20), min_size=1, max_size=40)
SEEDS = st.integers(0, 2**32 - 1)
UNTIMED = settings(deadline=None)


def outcomes_of(scores: Floats, random: np.random.Generator) -> Floats:
    """What a perfectly calibrated score would see."""
    return (random.random(len(scores)) < scores).astype(float)


# ---------------------------------------------------------------- retrieval


@pytest.mark.parametrize(
    ("ranks", "evidence", "figures"),
    [
        ((0, 7, 12), 4, (0.25, 0.25, 0.5, 0.75, 1, 1)),
        ((4,), 1, (0, 1, 1, 1, 1, 0.2)),
        ((5,), 1, (0, 0, 1, 1, 1, 1 / 6)),
        ((9, 10), 2, (0, 0, 0.5, 1, 1, 0.1)),
        ((10, 19), 2, (0, 0, 0, 1, 0, 1 / 11)),
        ((20, 35), 2, (0, 0, 0, 0, 0, 0)),
        ((), 3, (0, 0, 0, 0, 0, 0)),
    ],
)
def test_the_figures_of_one_search(ranks: tuple[int, ...], evidence: int, figures: tuple[float, ...]) -> None:
    assert measures.METRICS == ("recall@1", "recall@5", "recall@10", "recall@20", "hit@10", "MRR")
    assert measures.retrieval(ranks, evidence) == pytest.approx(figures)


@UNTIMED
@given(st.sets(st.integers(0, 60)), st.integers(0, 5))
def test_more_evidence_that_is_not_found_lowers_recall_and_nothing_else(ranks: set[int], more: int) -> None:
    found = sorted(ranks)
    few, many = (measures.retrieval(found, max(len(found), 1) + extra) for extra in (0, more))
    assert all(lower <= higher for lower, higher in zip(many[:4], few[:4], strict=True))
    assert few[4:] == many[4:]
    assert few[:4] == tuple(sorted(few[:4])), "recall never falls with depth"


# ---------------------------------------------------------------- intervals


def test_the_interval_holds_the_mean_and_narrows_with_more_questions() -> None:
    few, many = measures.interval([0.0, 1.0] * 10), measures.interval([0.0, 1.0] * 1000)
    assert few[0] < many[0] < 0.5 < many[1] < few[1]
    assert measures.interval([1.0] * 5) == (1, 1)


def test_the_interval_of_a_share_is_as_wide_as_the_normal_distribution_says() -> None:
    low, high = measures.interval([0.0, 1.0] * 500)
    assert (low, high) == pytest.approx((0.5 - 0.031, 0.5 + 0.031), abs=0.003)


@UNTIMED
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30))
def test_the_interval_lies_within_the_values_and_turns_with_their_sign(values: list[float]) -> None:
    low, high = measures.interval(values)
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9
    assert measures.interval([-value for value in values]) == pytest.approx((-high, -low))


def test_percentiles_are_the_median_and_the_95th() -> None:
    assert measures.percentiles(range(101)) == (50, 95)
    assert measures.percentiles([7.0]) == (7, 7)


# ---------------------------------------------------------------- calibration


@pytest.mark.parametrize(
    ("scores", "outcomes", "error"),
    [
        ([0.2, 0.2, 0.4, 0.8], [0, 1, 1, 1], 0.35),
        ([0.8, 0.2, 0.4, 0.2], [1, 1, 1, 0], 0.35),
        ([0.1, 0.5, 0.9], [0, 0, 1], 0.5 / 3),
        ([0.5, 0.5, 0.5, 0.5], [1, 1, 0, 0], 0),
        ([0.0, 1.0], [1, 0], 1),
        ([0.3], [1], 0.7),
    ],
)
def test_the_calibration_error_in_two_bins(scores: list[float], outcomes: list[float], error: float) -> None:
    assert measures.calibration_error(scores, outcomes, bins=2) == pytest.approx(error)


def test_bins_have_equal_mass_and_say_what_is_in_them() -> None:
    scores = [0.9, 0.01, 0.02, 0.03, 0.04]
    low, high = measures.calibration_bins(scores, [1, 0, 0, 1, 0], bins=2)
    assert low == pytest.approx((2, 0.015, 0))
    assert high == pytest.approx((3, 0.97 / 3, 2 / 3))
    assert [size for size, *_ in measures.calibration_bins(np.linspace(0, 1, 25), np.zeros(25))] == [2, 3] * 5


def test_there_are_ten_bins() -> None:
    scores = np.linspace(0.05, 0.95, 100)
    halves = np.tile([0.0, 1.0], 50)
    bins = measures.calibration_bins(scores, halves)
    assert [size for size, *_ in bins] == [10] * 10
    assert measures.calibration_error(scores, halves) == pytest.approx(fmean(abs(score - 0.5) for _, score, _ in bins))


def test_no_answer_has_no_calibration() -> None:
    with pytest.raises(ValueError, match="at least one answer"):
        measures.calibration_error([], [])


@UNTIMED
@given(SCORES)
def test_outcomes_that_come_true_as_often_as_the_scores_say_leave_no_error(scores: list[float]) -> None:
    assert measures.calibration_error(scores, scores) == pytest.approx(0)


@UNTIMED
@given(SCORES, st.floats(0, 1))
def test_a_score_that_is_too_high_by_the_same_everywhere_errs_by_that(scores: list[float], shift: float) -> None:
    assert measures.calibration_error(np.array(scores) + shift, scores) == pytest.approx(shift, abs=1e-9)


@UNTIMED
@given(SCORES, SEEDS, st.integers(1, 12))
def test_the_order_of_the_answers_makes_no_difference(scores: list[float], seed: int, bins: int) -> None:
    random = np.random.default_rng(seed)
    known = np.round(scores, 1)
    outcomes, order = outcomes_of(known, random), random.permutation(len(known))
    error = measures.calibration_error(known, outcomes, bins)
    assert measures.calibration_error(known[order], outcomes[order], bins) == pytest.approx(error)
    assert abs(known.mean() - outcomes.mean()) - 1e-9 <= error <= 1


@UNTIMED
@given(SEEDS)
def test_a_calibrated_score_has_a_small_error_and_a_squared_one_a_large(seed: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.random(5000)
    outcomes = outcomes_of(scores, random)
    assert measures.calibration_error(scores, outcomes) < 0.04
    assert measures.calibration_error(scores**2, outcomes) > 0.12


def test_chance_alone_makes_the_error_that_is_known_of_coins() -> None:
    mean, _ = measures.chance_error([0.5] * 10)
    assert mean == pytest.approx(0.1230, abs=0.005), "the mean deviation of ten coins from five heads, a tenth"
    assert measures.chance_error([0.0, 1.0, 1.0]) == (0, 0)
    assert measures.chance_error(np.linspace(0, 1, 50))[0] > 2 * measures.chance_error(np.linspace(0, 1, 500))[0]


def test_chance_stays_below_its_95th_percentile_in_95_of_100_runs() -> None:
    random = np.random.default_rng(7)
    scores = random.random(150)
    mean, most = measures.chance_error(scores)
    errors = [measures.calibration_error(scores, outcomes_of(scores, random)) for _ in range(500)]
    assert fmean(errors) == pytest.approx(mean, rel=0.05)
    assert fmean(error <= most for error in errors) == pytest.approx(0.95, abs=0.03)


def test_the_brier_score_is_the_mean_squared_difference() -> None:
    assert measures.brier([0.8, 0.3], [1, 0]) == pytest.approx(0.065)
    assert measures.brier([0.5] * 8, [0, 1] * 4) == 0.25
    assert measures.brier([0.0, 1.0], [0, 1]) == 0


# ---------------------------------------------------------------- AUC


def test_auc_counts_pairs_and_halves_those_that_are_equal() -> None:
    assert measures.auc([0.9, 0.4], [0.5, 0.4]) == 0.625
    assert measures.auc([0.9, 0.8], [0.1]) == 1
    assert measures.auc([0.5], [0.5, 0.5]) == 0.5


@UNTIMED
@given(COUNTS, COUNTS)
def test_auc_is_symmetric_and_knows_only_the_order(positive: list[int], negative: list[int]) -> None:
    value = measures.auc(positive, negative)
    assert measures.auc(negative, positive) == pytest.approx(1 - value)
    assert measures.auc([v**3 for v in positive], [v**3 for v in negative]) == value
    won = [1.0 if p > n else 0.5 if p == n else 0.0 for p in positive for n in negative]
    assert value == pytest.approx(fmean(won))


@UNTIMED
@given(st.lists(st.integers(0, 3), min_size=2, max_size=15), st.lists(st.integers(0, 3), min_size=2, max_size=15))
def test_the_interval_of_an_auc_turns_around_with_its_sides(positive: list[int], negative: list[int]) -> None:
    low, high = measures.auc_interval(positive, negative)
    assert 0 <= low <= high <= 1
    assert measures.auc_interval([-v for v in positive], [-v for v in negative]) == pytest.approx((1 - high, 1 - low))


def test_the_interval_of_an_auc_is_as_wide_as_hanley_and_mcneil_say() -> None:
    random = np.random.default_rng(3)
    positive, negative = random.normal(1, 1, 200), random.normal(0, 1, 150)
    value = measures.auc(positive, negative)
    first, second = value / (2 - value), 2 * value**2 / (1 + value)
    known = value * (1 - value) + 199 * (first - value**2) + 149 * (second - value**2)
    error = (known / (200 * 150)) ** 0.5
    low, high = measures.auc_interval(positive, negative)
    assert low < value < high
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.15)
    assert measures.auc_interval([2.0, 3.0], [0.0, 1.0]) == (1, 1)
