"""Statistics of a search, of its score and of both over many questions: pure functions.

Intervals are 95 % percentile bootstraps over questions: RESAMPLES draws with replacement, the same draws each time, so
that the same values give the same interval.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESAMPLES = 2000
BINS = 10
DEPTH = 20
METRICS = ("recall@1", "recall@5", "recall@10", "recall@20", "hit@10", "MRR")

Floats: TypeAlias = NDArray[np.float64]


def retrieval(ranks: Sequence[int], evidence: int) -> tuple[float, ...]:
    """METRICS of one question: `ranks` are the places, from 0 on, at which its `evidence` pieces were found.

    Recall is the part of the evidence that was found. Places from DEPTH on count as not found."""
    known = [rank for rank in ranks if rank < DEPTH]
    recall = [sum(rank < depth for rank in known) / evidence for depth in (1, 5, 10, 20)]
    return (*recall, float(any(rank < 10 for rank in known)), 1 / (min(known) + 1) if known else 0.0)


def interval(values: ArrayLike) -> tuple[float, float]:
    """Of the mean."""
    known = np.asarray(values, np.float64)
    return _bounds(known[_draws(len(known))].mean(axis=1))


def calibration_error(scores: ArrayLike, outcomes: ArrayLike, bins: int = BINS) -> float:
    """Expected calibration error: the mean over all answers of |mean score − share that came true| of an answer's bin.

    Bins have equal mass (sizes differ by one at most). Answers of equal score share their outcomes evenly, so that
    their order makes no difference. Raises ValueError where there is no answer."""
    order, known, starts = _bins(scores, bins)
    return float(_errors(known, np.asarray(outcomes, np.float64)[order][None], starts)[0])


def calibration_bins(scores: ArrayLike, outcomes: ArrayLike, bins: int = BINS) -> list[tuple[int, float, float]]:
    """Size, mean score and share that came true of each bin, by rising score."""
    order, known, starts = _bins(scores, bins)
    true = _evened(known, np.asarray(outcomes, np.float64)[order][None])[0]
    sizes = np.diff([*starts, len(known)])
    means = zip(np.add.reduceat(known, starts) / sizes, np.add.reduceat(true, starts) / sizes, strict=True)
    return [(int(size), float(score), float(share)) for size, (score, share) in zip(sizes, means, strict=True)]


def chance_error(scores: ArrayLike, bins: int = BINS) -> tuple[float, float]:
    """Mean and 95th percentile of the calibration error that a perfectly calibrated score of these values would show.

    Outcomes are drawn with the scores, clipped to 0..1, as their probabilities: few answers to a bin alone make an
    error."""
    _, known, starts = _bins(np.clip(scores, 0, 1), bins)
    drawn = np.random.default_rng(0).random((RESAMPLES, len(known))) < known
    errors = _errors(known, drawn.astype(np.float64), starts)
    return float(errors.mean()), float(np.percentile(errors, 95))


def brier(scores: ArrayLike, outcomes: ArrayLike) -> float:
    """Mean squared difference of score and outcome (0 or 1); a score of ½ for all has ¼."""
    return float(np.mean((np.asarray(scores, np.float64) - np.asarray(outcomes, np.float64)) ** 2))


def auc(positive: ArrayLike, negative: ArrayLike) -> float:
    """How often a positive's value is above a negative's, over all pairs; equal values count half (Mann & Whitney)."""
    return float(_wins(positive, negative).mean())


def auc_interval(positive: ArrayLike, negative: ArrayLike) -> tuple[float, float]:
    """Positives and negatives are drawn apart, each as many as there are."""
    wins = _wins(positive, negative)
    rows, columns = (_weights(size, seed) for seed, size in enumerate(wins.shape))
    return _bounds(np.minimum(((rows @ wins) * columns).sum(axis=1), 1))  # sums of shares may round to more than 1


def percentiles(values: ArrayLike) -> tuple[float, float]:
    """Median and 95th percentile."""
    p50, p95 = np.percentile(np.asarray(values, np.float64), (50, 95))
    return float(p50), float(p95)


def _draws(size: int, seed: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, size, (RESAMPLES, size))


def _weights(size: int, seed: int) -> Floats:
    """What each value weighs in the mean of each draw."""
    places = _draws(size, seed) + size * np.arange(RESAMPLES)[:, None]
    return np.bincount(places.ravel(), minlength=RESAMPLES * size).reshape(RESAMPLES, size) / size


def _bounds(means: Floats) -> tuple[float, float]:
    low, high = np.percentile(means, (2.5, 97.5))
    return float(low), float(high)


def _wins(positive: ArrayLike, negative: ArrayLike) -> Floats:
    above: Floats = np.sign(np.asarray(positive, np.float64)[:, None] - np.asarray(negative, np.float64)[None])
    return above / 2 + 0.5


def _bins(scores: ArrayLike, bins: int) -> tuple[NDArray[np.int64], Floats, NDArray[np.int64]]:
    """The order by score, the scores in it, and where each bin begins."""
    known = np.asarray(scores, np.float64)
    if not known.size:
        raise ValueError("A calibration needs at least one answer.")
    order = np.argsort(known, kind="stable")
    count = min(bins, len(known))
    return order, known[order], np.arange(count) * len(known) // count


def _evened(scores: Floats, outcomes: Floats) -> Floats:
    """Outcomes (rows, answers) by rising score; of equal scores, each their mean."""
    first = np.flatnonzero(np.diff(scores, prepend=np.nan) != 0)
    sizes = np.diff([*first, len(scores)])
    evened: Floats = np.repeat(np.add.reduceat(outcomes, first, axis=1) / sizes, sizes, axis=1)
    return evened


def _errors(scores: Floats, outcomes: Floats, starts: NDArray[np.int64]) -> Floats:
    gap = np.add.reduceat(scores - _evened(scores, outcomes), starts, axis=1)
    errors: Floats = np.abs(gap).sum(axis=1) / len(scores)
    return errors
