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

from app.retrieval.features import ASKED, ONE, TINY, equal_contents, everything_or, largest
from app.retrieval.model_weights import Calibration, Terms
from app.retrieval.query_analysis import QueryText, plain_memories, questions
from app.storage.search import Bools, Columns, Floats
from app.storage.text import HAS_EVENT_TIME

COVERAGE = ASKED.index("coverage")
_TERMS = attrgetter("base", "share", "tail", "nearest", "coverage", "foreign", "foreign_coverage")
KNEE = -2.0
"""Log of a share of 0.14."""
CROWD = 3.0
"""As many of the best take from each other. Eight answers to "Which plants did I order?" are each as probable as three.
Chosen by calibration: without a bound, KnowMeBench's scores are half as high as they should be."""
REPEATED = 0.25
"""What repeats the best statement in other words or at other times takes from it, all together, as a share of its odds.
"Bought a lamp" of eight days, the only memories there are, does not answer for a blood type; "Went running by the
river" of sixteen days answers where somebody runs."""
UNKNOWN = -1.5
"""Log-odds of a query for an identifier of which the scope has no part: "What is QX-9907 about?" beside a ticket
PAY-4312."""
AT_ANOTHER_TIME = -5.0
"""Log-odds of a query that names a time, where all that is likely happened at another one. It is the weight `when` of a
memory inside that time, with the other sign."""
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
    elsewhen: Floats | None = None,
) -> Floats:
    """Returns probabilities, shape (n,), between 0 and 1 in the order of `odds`, the log-odds of the ranking.

    `plain`: the mask of documents that belong to no conversation; 1.0 or 0.0 if all or none do. `among`:
    `everything_or` of what matched. `elsewhen`: see `at_another_time`.
    """
    if not len(odds):
        return odds
    against, on_plain = log_shares(columns, odds, plain, among)
    terms = _mixed(calibration, on_plain)
    nearest, coverage, foreign, foreign_coverage = describe(columns, query, known, among)
    base = terms.base + terms.nearest * nearest + terms.coverage * coverage
    base += terms.foreign * foreign + terms.foreign_coverage * foreign_coverage
    if query.unknown:
        base += UNKNOWN
    if elsewhen is not None:
        within = ... if among is None else among
        shares = np.exp(against[within])
        base += AT_ANOTHER_TIME * float(np.add.reduce(shares * elsewhen[within]) / max(np.add.reduce(shares), TINY))
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


def at_another_time(columns: Columns, fits: Floats) -> Floats:
    """Returns how surely each document is not of the time that a query names, shape (n,). `fits`: `when` of that time.

    Only a memory of no conversation that says when it happened (`event_at`) can be: a message of May may tell what
    happened in March.
    """
    says_when = plain_memories(columns) & (columns.flags & HAS_EVENT_TIME != 0)
    return np.where(says_when, ONE - fits, np.float32(0))


def log_shares(
    columns: Columns, odds: Floats, plain: Bools | float, among: Bools | EllipsisType | None = None
) -> tuple[Floats, float]:
    """Returns the log of each document's share of the odds of all that matched, of `CROWD` times the best one's at the
    most, and the part of the odds of `plain` memories.

    The logs have shape (n,) and are at most 0. What is there several times counts once: of documents of one content,
    and of all questions of a conversation, the best alone takes from the others. "I live in Oslo", told four times, is
    as probable as told once.
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
    whole = _sum_of_contents(columns, parts, among)
    on_plain = plain if isinstance(plain, float) else _sum_of_contents(columns, parts * plain[among], among) / whole
    if len(columns.repeated):
        whole += REPEATED * float(np.exp(largest(against[columns.repeated])))
    against -= np.float32(math.log(min(whole, CROWD)))
    return np.minimum(against, 0, out=against), on_plain


def _sum_of_contents(columns: Columns, parts: Floats, among: Bools | EllipsisType) -> float:
    """Returns the sum over contents of the largest part of each."""
    groups = equal_contents(columns)
    if groups is None:
        return float(np.add.reduce(parts))
    every = np.zeros(len(columns.content), np.float32)
    every[among] = parts
    return float(np.add.reduce(groups.most(every)))


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
