"""Calibration: computes the score of hybrid search, the probability that a document helps to answer the query.

The ranking compares documents with each other and does not say whether any of them answers. Calibration adds properties
of the whole query: how near the nearest document is, how many of the query's words the best document contains, and how
far the best one stands out. Each number is the same for all documents of a query, so the order stays.

    score = 1 / (1 + e^-z)
    z = base + share * max(s, -2) + tail * min(s + 2, 0)
        + nearest * n * (1 - f) + coverage * c + foreign * f + foreign_coverage * f * c + UNKNOWN + AT_ANOTHER_TIME * e

`s` is the log of the document's share of the odds (`log_shares`), `n` the largest cosine, `c` the largest coverage, `f`
the share of the query's letters that are not Latin. `UNKNOWN` is added if the query asks for an identifier that no
searched document has. `e` is the share of the odds that lies outside the time that the query names, 0 where it names
none. The terms that all documents have in common (all but those of `s`) count as `LARGEST_BASE` together at the most.
The other factors are `CalibrationFactors` (`model_weights.py`).

Of a record that is no memory the score is that of `base + slope * z`, fitted for its collection (`OfCollection`). This
is Platt scaling (Platt 1999, "Probabilistic Outputs for Support Vector Machines"): a logistic regression of "this
document is evidence" on the log share, with a knee, since one line is too steep for later hits. scripts/fit_ranking.py
fits it on questions that have an answer and on questions that have none; figures: docs/contributing/ranking.md.

`QueryEvidence` says something about the query itself: whether it asks for anything, and whether anything answers it.
"ok, thanks" has few rare words. All functions are pure.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from app.retrieval.model_weights import AsksWeights, Calibration, CalibrationFactors
from app.retrieval.query import SettledQuery
from app.retrieval.ranking import COVERAGE, ONE, TINY, largest, term_weights
from app.storage.search import BM25_K1, Columns, DocumentIndex, Floats
from app.storage.text import HAS_EVENT_TIME, PASSAGE

_FACTORS = attrgetter("base", "share", "tail", "nearest", "coverage", "foreign", "foreign_coverage")
KNEE = -2.0
"""Log of a share of 0.14."""
CROWD = 3.0
"""At most so many times the best hit's odds are shared. Eight equal answers to "Which plants did I order?" count as
three: each of them is as probable as one of three.
Chosen by calibration: without a bound, KnowMeBench's scores are half as high as they should be."""
REPEATED = 0.3
"""What repeats the best statement in other words or at other times takes from it, all together, as a share of its odds.
"Bought a lamp" of eight days, the only memories there are, does not answer for a blood type; "Went running by the
river" of sixteen days answers where somebody runs."""
UNKNOWN = -1.5
"""Log-odds of a query for an identifier of which no searched document has a part: "What is QX-9907 about?" beside a
ticket PAY-4312."""
AT_ANOTHER_TIME = -5.0
"""Log-odds of a query that names a time, where all that is likely happened at another one. It is near the
weights `when`, 4.7 to 5.6 by the model, which a memory inside that time gains."""
LARGEST_BASE, LARGEST_MINUS_Z = 14.0, 80.0
"""Limits within which a score is neither 1 nor 0 as a float32: `base` is at most 14 (1 - 8e-7), `-z` at most 80
(2e-35)."""
_LARGEST_MINUS_Z, _KNEE = np.array(LARGEST_MINUS_Z, np.float32), np.array(KNEE, np.float32)


class QueryProperties(NamedTuple):
    """Properties of the whole query, the same for all documents: each is multiplied by the field of its name of
    `CalibrationFactors`."""

    nearest: float
    coverage: float
    foreign: float
    foreign_coverage: float


def probabilities(
    columns: Columns,
    settled: SettledQuery,
    odds: Floats,
    query_features: Floats,
    calibration: Calibration,
    when: Floats | None = None,
) -> Floats:
    """Returns probabilities, shape (n,), between 0 and 1 in the order of `odds`, the log-odds of the ranking.

    `when`: how well each document fits the time that the query names (the part `when`), if that time is over: what
    is planned was said before its time, so that only a time that is over can be missed.
    """
    if not len(odds):
        return odds
    among = columns.matching
    logs, on_plain = log_shares(columns, odds, among)
    factors = calibration.plain if on_plain else calibration.turn
    if 0 < on_plain < 1:  # mixed by the part of the odds that each of the two kinds has
        turn, plain = _FACTORS(calibration.turn), _FACTORS(calibration.plain)
        factors = CalibrationFactors(*(a + on_plain * (b - a) for a, b in zip(turn, plain, strict=True)))
    of_query = describe(columns, settled, query_features, among)
    base = factors.base + factors.nearest * of_query.nearest + factors.coverage * of_query.coverage
    base += factors.foreign * of_query.foreign + factors.foreign_coverage * of_query.foreign_coverage
    if settled.unknown:
        base += UNKNOWN
    if when is not None:
        # only a memory of no conversation that says when it happened (`event_at`) is surely of another time: a message
        # of May may tell what happened in March
        elsewhen = np.where(columns.plain & (columns.flags & HAS_EVENT_TIME != 0), ONE - when, np.float32(0))
        relative_odds = np.exp(logs[among])
        total = max(np.add.reduce(relative_odds), TINY)
        base += AT_ANOTHER_TIME * float(np.add.reduce(relative_odds * elsewhen[among]) / total)
    # -z = -share * s + beyond * (min(s, -2) + 2) - min(base, 14), `beyond` is share - tail, `s` one of the logs; of a
    # record that is no memory `slope` times that, less its own base; written into the array of the logs
    slope, beyond = calibration.of_collection.slope, factors.share - factors.tail
    beyond_knee = np.minimum(logs, _KNEE)
    beyond_knee *= slope * beyond
    minus_z = np.multiply(logs, -slope * factors.share, out=logs)
    minus_z += beyond_knee
    minus_z -= slope * (min(base, LARGEST_BASE) + beyond * KNEE) + calibration.of_collection.base
    np.minimum(minus_z, _LARGEST_MINUS_Z, out=minus_z)
    score: Floats = np.exp(minus_z, out=minus_z)
    score += ONE
    return np.reciprocal(score, out=score)


def log_shares(columns: Columns, odds: Floats, among: DocumentIndex) -> tuple[Floats, float]:
    """Returns the log of each document's share of the odds of all that matched, and the part of the odds that plain
    memories have. `odds`: log-odds, as in `ranking.py`. Shared are `CROWD` times the best one's odds at the most.

    The logs have shape (n,) and are at most 0: log-odds of 2.0 and 1.3 are odds of 2 to 1, and the shares 2/3 and 1/3.
    What is there several times counts once: of documents of one content, and of all questions of a conversation, the
    best alone takes from the others. "I live in Oslo", told four times, is as probable as told once. `among`:
    `columns.matching`.
    """
    matched = odds[among]
    if not len(matched):
        return np.full(len(odds), -LARGEST_MINUS_Z, np.float32), 0.0
    logs: Floats = odds - matched[matched.argmax()]
    relative_odds = np.exp(logs[among])
    plain = columns.plain
    on_plain = columns.memo.get("all plain", (plain,), lambda: float(plain.mean()))  # 1.0: all, 0.0: none
    if on_plain < 1:
        of_questions = relative_odds * columns.questions[among]
        together = float(np.add.reduce(of_questions))
        if together:
            relative_odds -= of_questions * np.float32(1 - largest(of_questions) / together)
    total = _sum_of_contents(columns, relative_odds, among)
    if 0 < on_plain < 1:
        on_plain = _sum_of_contents(columns, relative_odds * plain[among], among) / total
    if len(columns.standing_for):
        total += REPEATED * float(np.exp(largest(logs[columns.standing_for])))
    logs -= np.float32(math.log(min(total, CROWD)))
    return np.minimum(logs, 0, out=logs), on_plain


def _sum_of_contents(columns: Columns, relative_odds: Floats, among: DocumentIndex) -> float:
    """Returns the sum over contents of the largest part of each."""
    groups = columns.contents
    if groups is None:
        return float(np.add.reduce(relative_odds))
    every = np.zeros(len(columns.content), np.float32)
    every[among] = relative_odds
    return float(np.add.reduce(groups.most(every)))


def describe(columns: Columns, settled: SettledQuery, query_features: Floats, among: DocumentIndex) -> QueryProperties:
    """Returns the properties of the whole query. `among`: `columns.matching`."""
    nearest = max(largest(columns.cosine[among]), 0.0)  # 0 if no document has a vector
    coverage = largest(query_features[COVERAGE][among])
    return QueryProperties(nearest * (1 - settled.foreign), coverage, settled.foreign, settled.foreign * coverage)


# --- What the documents have of a query -------------------------------------------------------------------------------

LEAST_ASKS = 0.7
"""A query whose probability is below this counts as asking for nothing. That shortens a prompt and never empties it."""
ALL_WORDS, RARE = 0.99, 0.5
"""The share of the query's words that is all of them, and the weight of one that is rare."""


@dataclass(frozen=True, slots=True)
class QueryEvidence:
    """What the documents that matched have of a query."""

    best: float
    """Share of the query's words, weighed by their rarity, that the document with most of them has."""
    words: float
    """The number of words, each weighed by its rarity: 1 is a word that no document has."""
    covered: float
    """The number of words of the document with most of them, weighed alike."""
    count: int
    """Searched documents, without the passages of files."""
    asks: float | None = None
    """The probability that the query asks for anything, by its vector and its words; None: it has no vector, or nothing
    is known of its model's."""
    subject: bool = True
    """False: it asks for a time alone, "What happened yesterday?", and something is from then."""


def asks_for_anything(evidence: Sequence[QueryEvidence]) -> bool:
    """Returns whether a query asks for anything that memory may have, as far as anybody knows.

    One collection that has it is enough, and so is an entry with every word of it, such as a name: "ok" may be in many
    entries and is not rare."""
    if any(of_collection.best >= ALL_WORDS and of_collection.covered >= RARE for of_collection in evidence):
        return True
    known = [of_collection.asks for of_collection in evidence if of_collection.asks is not None]
    return max(known, default=1.0) >= LEAST_ASKS


def evidence_of(columns: Columns, settled: SettledQuery, weights: AsksWeights | None) -> QueryEvidence:
    """Returns what the documents have of a query. `weights`: of the model of its vector."""
    (of_term, total), of_word = term_weights(columns), _weight_of_a_word(columns)
    most = largest(np.add.reduce((columns.term_counts > 0) * of_term, axis=0)[columns.matching])
    words, covered = total / of_word, most / of_word
    place = settled.asking_place
    asks = None if weights is None or place is None else likely_asks(place, covered, weights)
    without_passages = columns.count - int(np.count_nonzero(columns.flags & PASSAGE))
    return QueryEvidence(covered / max(words, TINY), words, covered, without_passages, asks, settled.subject)


def asks_of(
    columns: Columns, settled: SettledQuery, query_features: Floats | None, weights: AsksWeights | None
) -> float | None:
    """Returns the probability that the query asks for anything that memory may have; None: nothing is known of it.
    `weights`: of the model of its vector. It reads the coverage of the ranking, as the fit does. `evidence_of` works in
    every mode, also without features, and weighs the words alone: a negated query has less coverage than words."""
    if query_features is None or weights is None or settled.asking_place is None:
        return None
    words = term_weights(columns)[1] / _weight_of_a_word(columns)
    coverage = largest(query_features[COVERAGE][columns.matching])
    return likely_asks(settled.asking_place, coverage * words, weights)


def likely_asks(place: float, covered: float, weights: AsksWeights) -> float:
    """Returns the probability that a query asks for anything: 1 / (1 + e^-(place + weight * covered + base)).

    Args:
        place: `asking_place` of its vector.
        covered: How many of its words the document with most of them has, each weighed by its rarity
            (`QueryEvidence.covered`).
        weights: The numbers of the model.
    """
    log_odds = place + weights.covered * covered + weights.base
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, log_odds))))


def _weight_of_a_word(columns: Columns) -> float:
    """Returns the weight of a word that no document has."""
    return (BM25_K1 + 1) * math.log1p(2 * columns.count + 1)
