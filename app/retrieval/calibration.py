"""Calibration: computes the score of hybrid search, the probability that a document helps to answer the query.

The ranking compares documents with each other and does not say whether any of them answers. Calibration adds properties
of the whole query: how near the nearest document is, how many of the query's words the best document contains, and how
far the best one stands out. Each number is the same for all documents of a query, so the order stays. The numbers are
fitted by scripts/fit_ranking.py on questions that have an answer and on questions that have none; formula and figures:
docs/concepts/retrieval.md. All functions are pure.
"""

import math
from operator import attrgetter
from types import EllipsisType

import numpy as np

from app.retrieval.features import ASKED, ONE, everything_or, largest
from app.retrieval.model_weights import Calibration, Terms
from app.retrieval.query_analysis import QueryText, questions
from app.storage.search import Bools, Columns, Floats

COVERAGE = ASKED.index("coverage")
_TERMS = attrgetter("base", "share", "tail", "nearest", "coverage", "foreign", "foreign_coverage")
KNEE = -2.0
"""Log of a share of 0.14."""
LARGEST, SMALLEST = 14.0, 80.0
"""Limits of the log-odds within which a float32 is neither 0 nor 1."""
_SMALLEST, _KNEE = np.array(SMALLEST, np.float32), np.array(KNEE, np.float32)


def probabilities(  # noqa: PLR0913 (what a probability depends on)
    columns: Columns,
    query: QueryText,
    odds: Floats,
    known: Floats,
    plain: Bools | float,
    calibration: Calibration,
    among: Bools | EllipsisType | None = None,
) -> Floats:
    """Returns probabilities, shape (n,), between 0 and 1 in the order of `odds`, the log-odds of the ranking.

    `plain`: the mask of documents that belong to no conversation; 1.0 or 0.0 if all or none do. `among`:
    `everything_or` of what matched.
    """
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
    """Returns the log of each document's share of the odds of all that matched, and the part of the odds of `plain`
    memories.

    The logs have shape (n,) and are at most 0. All questions of a conversation together count as much as the best of
    them: a question that was asked ten times takes no more from the memory that answers it than one that was asked
    once.
    """
    among = everything_or(columns.matched) if among is None else among
    found = odds[among]
    if not len(found):
        return np.full(len(odds), -SMALLEST, np.float32), 0.0
    against: Floats = odds - found[found.argmax()]
    parts = np.exp(against[among])
    if not isinstance(plain, float) or not plain:
        of_questions = parts * questions(columns)[among]
        together = float(np.add.reduce(of_questions))
        if together:
            parts -= of_questions * np.float32(1 - largest(of_questions) / together)
    whole = float(np.add.reduce(parts))
    on_plain = plain if isinstance(plain, float) else float(np.add.reduce(parts * plain[among])) / whole
    against -= np.float32(math.log(whole))
    return np.minimum(against, 0, out=against), on_plain


def _mixed(calibration: Calibration, on_plain: float) -> Terms:
    """Mixes the terms. `on_plain`: the part of the odds of plain memories."""
    if on_plain in {0.0, 1.0}:
        return calibration.plain if on_plain else calibration.turn
    turn, plain = _TERMS(calibration.turn), _TERMS(calibration.plain)
    return Terms(*(a + on_plain * (b - a) for a, b in zip(turn, plain, strict=True)))


def describe(
    columns: Columns, query: QueryText, known: Floats, among: Bools | EllipsisType | None = None
) -> tuple[float, float, float, float]:
    """Returns the properties of the whole query: the fields of `Terms` from `nearest` on."""
    among = everything_or(columns.matched) if among is None else among
    nearest = max(largest(columns.cosine[among]), 0.0)  # 0 if no document has a vector
    coverage = largest(known[COVERAGE][among])
    return nearest * (1 - query.foreign), coverage, query.foreign, query.foreign * coverage
