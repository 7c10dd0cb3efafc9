"""Settling a query: weighs its names, identifiers, acronyms and mistyped words by what the scope has of them.

    corrections = find_corrections(columns, query)  # mistyped words; if there are any, the scope is searched anew
    columns, settled = settle(columns, query, corrections)

What the text alone says is read before, by `query_analysis.py`. All functions are pure: columns come back as new ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from app.retrieval.query_analysis import Acronym, AnalysedQuery, NamedEntity
from app.retrieval.time_grammar import TimeOrder
from app.storage.search import Bools, Columns, Floats
from app.storage.text import TermIds

PART_OF_IDENTIFIER = 0.3
"""Factor of the weight of an identifier's part where documents have the whole, and of a joined word beside its
parts."""
CHARACTER = 0.4
"""Factor of the weight of a Han character beside its pairs: 天 of 天气 (weather) stands in 每天 (every day), too."""
IDENTIFIER = 1.5
"""Factor of the weight of an identifier: in a scope where all words are rare, "10.0.4.117" tells more than "uses"."""
CORRECTED = 0.7
"""Factor of the weight of a word at edit distance 1 from one that the scope does not have, which keeps the rest of its
own."""
EXPANDED = 0.7
"""Factor of the weight of the initials of an acronym whose word the scope does not have, which keeps the rest. Where
the scope has the word it is the other way round."""


@dataclass(slots=True)  # not frozen, for speed: each search creates one
class SettledQuery:
    """What the ranking reads of a query. The rows of `Columns.term_counts` and `Columns.df` are its terms."""

    terms: TermIds
    speaker: int = 0
    """Name id of the one speaker that the query names, or 0."""
    foreign: float = 0.0
    """Share of its letters that are not Latin."""
    order: TimeOrder | None = None
    """Which end of the time of what answers it the query asks for."""
    subject: bool = True
    """False for a query of a time alone, such as "What happened yesterday?", whose words and vector tell nothing."""
    identifiers: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """The identifiers that the scope has, with their parts."""
    exact: Bools | None = None
    """Mask of the terms that a document does not repeat but matches: identifiers, parts of one, numbers, corrected
    words. None: there are none."""
    dates: Bools | None = None
    """Mask of the terms that are days in another notation; None: there are none."""
    unknown: bool = False
    """True if it asks for an identifier of which the scope has neither the whole nor a part."""
    negation: float = 0.0
    """How surely it denies, 0 to 1 (`polarity.negation_of`)."""
    along: float | None = None
    """Where its vector lies along the direction in which queries ask (`asking.along`); None: nowhere that is known."""


def find_corrections(columns: Columns, query: AnalysedQuery) -> dict[int, int]:
    """Returns, for each word of the query that the scope does not have, the term that it stands for: of the words at
    edit distance 1 that the scope has, the one of most documents."""
    of_query = set(query.terms.tolist())
    corrections: dict[int, int] = {}
    for term in query.terms[columns.df == 0].tolist():
        close = {other: count for other, count in columns.close.get(term, {}).items() if other not in of_query}
        if close:
            corrections[term] = max(close, key=lambda other: (close[other], other))
    return corrections


def looked_for(query: AnalysedQuery, corrections: Mapping[int, int]) -> TermIds:
    """Returns the terms to search the scope for: the query's own, and those that mistyped ones stand for."""
    if not corrections:
        return query.terms
    return np.union1d(query.terms, np.array([*corrections.values()], np.uint32))


def settle(
    columns: Columns,
    query: AnalysedQuery,
    corrections: Mapping[int, int],
    *,
    subject: bool = True,
) -> tuple[Columns, SettledQuery]:
    """Returns the columns with the terms that count in this scope, each with its weight, and the query for the ranking.
    `columns`: of a search for `looked_for(query, corrections)`.

    An identifier that no document has whole is looked for by its parts alone. One that some have takes most of the
    weight of its parts: 10.0.4.71 shares three words with 10.0.4.17, and is another address. An acronym is looked for
    as a word and as the initials of others.
    """
    settled = SettledQuery(query.terms, query.speaker, query.foreign, query.order, subject)
    if not (
        query.identifiers
        or corrections
        or query.entities
        or query.acronyms
        or len(query.numbers)
        or len(query.characters)
    ):
        return columns, settled
    only_spaced = len(query.identifiers) == len(query.spaced) and not len(query.numbers) and not len(query.characters)
    if only_spaced and not (corrections or query.entities or query.acronyms or columns.df[query.spaced_rows].any()):
        # the usual query: no two of its words are an identifier that the scope has
        settled.terms = query.terms[query.other_rows]
        return replace(
            columns, term_counts=columns.term_counts[query.other_rows], df=columns.df[query.other_rows]
        ), settled

    terms, term_counts, df = looked_for(query, corrections), columns.term_counts.copy(), columns.df.copy()
    _count_other_names(query.entities, terms, term_counts, df)
    _count_initials(query.acronyms, terms, term_counts, df)

    present = set(terms[df > 0].tolist())
    identifiers = {term: parts for term, parts in query.identifiers.items() if term in present}
    expanded = [
        acronym
        for acronym in query.acronyms
        if acronym.term in present and not (acronym.lower and present.issuperset(acronym.word.tolist()))
    ]
    counting = ~np.isin(terms, _not_counting(query, present, identifiers, expanded))
    term_counts, df, settled.terms = term_counts[counting], df[counting], terms[counting]

    emphasis, settled.exact = _emphasis(settled.terms, df, identifiers, corrections, expanded)
    settled.exact |= np.isin(settled.terms, query.numbers)
    emphasis[np.isin(settled.terms, query.characters)] = CHARACTER
    settled.dates = np.isin(settled.terms, query.dates)
    settled.identifiers = identifiers
    settled.unknown = any(
        term not in present and term not in query.spaced and present.isdisjoint(parts)
        for term, parts in query.identifiers.items()
    )
    return replace(columns, term_counts=term_counts, df=df, emphasis=emphasis), settled


def _count_other_names(entities: Sequence[NamedEntity], terms: TermIds, term_counts: Floats, df: Floats) -> None:
    """Counts, in `term_counts` and `df`, the query's name of an entity for each document that has another name of it:
    asked for Bob, "Robert moved" has `bob`."""
    for entity in entities:
        has_other = np.zeros(term_counts.shape[1], np.bool_)
        for other in entity.others:
            rows = np.flatnonzero(np.isin(terms, other))
            if len(rows):
                has_other |= (term_counts[rows] > 0).all(axis=0)
        rows = np.flatnonzero(np.isin(terms, entity.name))
        term_counts[rows] = np.maximum(term_counts[rows], has_other)
        df[rows] = np.maximum(df[rows], np.count_nonzero(term_counts[rows], axis=1))


def _count_initials(acronyms: Sequence[Acronym], terms: TermIds, term_counts: Floats, df: Floats) -> None:
    """Counts, in `term_counts` and `df`, an acronym for each document that has all of its pairs of initials: asked for
    the NDA, "a non-disclosure agreement" has it."""
    for acronym in acronyms:
        has_pairs = (term_counts[np.isin(terms, acronym.pairs)] > 0).all(axis=0)
        row = np.flatnonzero(terms == acronym.term)
        term_counts[row], df[row] = has_pairs, np.count_nonzero(has_pairs)


def _not_counting(
    query: AnalysedQuery,
    present: set[int],
    identifiers: Mapping[int, tuple[int, ...]],
    expanded: Sequence[Acronym],
) -> list[int]:
    """Returns the terms that count for nothing themselves: identifiers and parts of them that the scope does not have,
    other names of an entity, pairs of initials, and acronyms that are looked for as words alone."""
    absent = [term for term in query.identifiers if term not in present]
    parts = [part for parts in identifiers.values() for part in parts if part not in present]
    added = [term for entity in query.entities for term in entity.added.tolist()]
    pairs = [term for acronym in query.acronyms for term in acronym.pairs.tolist()]
    words = [acronym.term for acronym in query.acronyms if acronym not in expanded]
    return [*absent, *parts, *added, *pairs, *words]


def _emphasis(
    terms: TermIds,
    df: Floats,
    identifiers: Mapping[int, tuple[int, ...]],
    corrections: Mapping[int, int],
    expanded: Sequence[Acronym],
) -> tuple[Floats, Bools]:
    """Returns the factor of each term's weight, and the mask of the terms that a document matches and does not repeat.
    `expanded`: the acronyms that are looked for as initials."""
    is_part = np.isin(terms, [part for parts in identifiers.values() for part in parts])
    is_joined = np.isin(terms, [term for term, parts in identifiers.items() if not parts])  # "e-mail"
    is_identifier = np.isin(terms, [term for term, parts in identifiers.items() if parts])
    is_correction = np.isin(terms, [*corrections.values()])
    emphasis = np.where((is_part & ~is_identifier) | is_joined, np.float32(PART_OF_IDENTIFIER), np.float32(1))
    emphasis[is_correction] = CORRECTED
    emphasis[np.isin(terms, [*corrections])] = 1 - CORRECTED
    exact = is_part | is_identifier | is_correction
    emphasis[is_identifier] = IDENTIFIER
    for acronym in expanded:
        is_word, is_acronym = np.isin(terms, acronym.word), terms == acronym.term
        word_is_known = bool(df[is_word].any())
        emphasis[is_word] = 1 if word_is_known else 1 - EXPANDED
        emphasis[is_acronym] = 1 - EXPANDED if word_is_known else EXPANDED
        exact |= is_acronym
    return emphasis, exact
