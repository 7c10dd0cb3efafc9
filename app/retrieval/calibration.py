"""The score of hybrid search: the probability that a document helps to answer the query. Pure functions.

The ranking tells how the documents compare, not whether any of them answers. Calibration adds what the query as a whole
shows: how near the nearest document is, how much of the query's words the best one holds, and how far the best stands
out. Every number is the same for all documents of a query, so that the order stays. Fitted by scripts/fit_ranking.py on
questions that have an answer and on questions that have none; formula and figures: docs/concepts/retrieval.md.
"""

import math
from dataclasses import dataclass
from operator import attrgetter
from types import EllipsisType

import numpy as np

from app.retrieval.features import ASKED, ONE, everything_or, largest
from app.retrieval.kinds import questions
from app.retrieval.query_analysis import QueryText
from app.storage.search import Bools, Columns, Floats

COVERAGE = ASKED.index("coverage")
_TERMS = attrgetter("base", "share", "tail", "nearest", "coverage", "foreign", "foreign_coverage")
KNEE = -2.0
"""Log of a share of 0.14."""
LARGEST, SMALLEST = 14.0, 80.0
"""Log-odds within which a float32 is neither 0 nor 1."""
_SMALLEST, _KNEE = np.array(SMALLEST, np.float32), np.array(KNEE, np.float32)


@dataclass(frozen=True, slots=True)
class Terms:
    """Log-odds for each unit of what a query as a whole shows.

    `share`: log of a document's share of the odds of all, down to `KNEE`; `tail`: what is below. `nearest`: the best
    cosine. `coverage`: the best share of the query's words. `foreign`: the share of the query in scripts that the model
    does not know.
    """

    base: float = 0.0
    share: float = 1.0
    tail: float = 1.0
    nearest: float = 0.0
    coverage: float = 0.0
    foreign: float = 0.0
    foreign_coverage: float = 0.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """`turn`: where the odds lie with turns of conversations. `plain`: where they lie with other memories. Between both
    the numbers are mixed by the part of the odds that each has."""

    turn: Terms
    plain: Terms


# Fitted by scripts/fit_ranking.py
DEFAULT_CALIBRATION = Calibration(
    turn=Terms(
        base=-0.714, share=1.002, tail=0.895, nearest=0.949, coverage=1.088, foreign=-0.56, foreign_coverage=5.936
    ),
    plain=Terms(
        base=-2.002, share=1.807, tail=0.891, nearest=7.505, coverage=-0.985, foreign=3.382, foreign_coverage=5.285
    ),
)


def probabilities(  # noqa: PLR0913 (what a probability depends on)
    columns: Columns,
    query: QueryText,
    odds: Floats,
    known: Floats,
    plain: Bools | float,
    calibration: Calibration,
    among: Bools | EllipsisType | None = None,
) -> Floats:
    """(n,) between 0 and 1, in the order of `odds`, the log-odds of the ranking. `plain`: the documents that
    belong to no conversation; 1.0 or 0.0 where all or none do. `among`: `everything_or` what matched."""
    if not len(odds):
        return odds
    against, on_plain = log_shares(columns, odds, plain, among)
    terms = _mixed(calibration, on_plain)
    nearest, coverage, foreign, foreign_coverage = describe(columns, query, known, among)
    base = terms.base + terms.nearest * nearest + terms.coverage * coverage
    base += terms.foreign * foreign + terms.foreign_coverage * foreign_coverage
    beyond = np.minimum(against - _KNEE, 0)
    beyond *= terms.share - terms.tail
    against *= -terms.share
    against += beyond
    against -= min(base, LARGEST)
    np.minimum(against, _SMALLEST, out=against)
    np.exp(against, out=against)
    against += ONE
    score: Floats = np.reciprocal(against, out=against)
    return score


def log_shares(
    columns: Columns, odds: Floats, plain: Bools | float, among: Bools | EllipsisType | None = None
) -> tuple[Floats, float]:
    """(n,) the log of each document's share of the odds of all that matched, at most 0; and the part of these odds that
    lies with `plain` memories.

    The questions of a conversation count together as much as the best of them: one that was asked ten times before
    takes no more away from the memory that answers it than one that was asked once.
    """
    among = everything_or(columns.matched) if among is None else among
    found = odds[among]
    if not len(found):
        return np.full(len(odds), -SMALLEST, np.float32), 0.0
    against: Floats = odds - found[found.argmax()]
    parts = np.exp(against[among])
    if not isinstance(plain, float) or not plain:
        asked = parts * questions(columns)[among]
        together = float(np.add.reduce(asked))
        if together:
            parts -= asked * np.float32(1 - largest(asked) / together)
    whole = float(np.add.reduce(parts))
    on_plain = plain if isinstance(plain, float) else float(np.add.reduce(parts * plain[among])) / whole
    against -= np.float32(math.log(whole))
    return np.minimum(against, 0, out=against), on_plain


def _mixed(calibration: Calibration, on_plain: float) -> Terms:
    """`on_plain`: the part of the odds that lies with plain memories."""
    if on_plain in {0.0, 1.0}:
        return calibration.plain if on_plain else calibration.turn
    turn, plain = _TERMS(calibration.turn), _TERMS(calibration.plain)
    return Terms(*(a + on_plain * (b - a) for a, b in zip(turn, plain, strict=True)))


def describe(
    columns: Columns, query: QueryText, known: Floats, among: Bools | EllipsisType | None = None
) -> tuple[float, float, float, float]:
    """What the query as a whole shows: the fields of `Terms` from `nearest` on."""
    among = everything_or(columns.matched) if among is None else among
    nearest = max(largest(columns.cosine[among]), 0.0)  # 0 where there is no vector
    coverage = largest(known[COVERAGE][among])
    return nearest * (1 - query.foreign), coverage, query.foreign, query.foreign * coverage
