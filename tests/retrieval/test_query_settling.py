"""Which words of a query count in a scope, and how much."""

from dataclasses import replace

import numpy as np
import pytest

from app.retrieval.query import (
    CORRECTED,
    EXPANDED,
    FUNCTION_WORD,
    IDENTIFIER,
    NAME,
    PART_OF_IDENTIFIER,
    AnalysedQuery,
    analyse,
    find_corrections,
    looked_for,
    settle,
    with_names,
)
from app.storage.text import term_ids, text_ids
from tests.support.columns import scope_of


def emphasis(query: AnalysedQuery, *texts: str) -> dict[int, float]:
    columns, settled = settle(scope_of(query.terms, *texts), query, {})
    factors = np.ones(len(settled.terms)) if columns.emphasis is None else columns.emphasis
    return {int(term): round(float(factor), 2) for term, factor in zip(settled.terms, factors, strict=True)}


def ids(text: str) -> list[int]:
    return [int(term) for term in text_ids(text)]


def test_of_the_usual_query_only_its_words_count() -> None:
    query = analyse("where is the garden key", ())
    assert set(query.terms.tolist()) > set(ids("garden key"))
    assert emphasis(query, "the key is in the garden") == dict.fromkeys(ids("garden key"), 1.0)


def test_function_words_of_the_language_of_a_query_weigh_little() -> None:
    query = analyse("Qu'est-ce qui coûte 800 euros ?", ())
    found = emphasis(query, "Le vélo coûte huit cents euros", "Le lave-linge coûte 900 euros")
    assert [found[term] for word in ("qui", "coûte", "euros") for term in ids(word)] == [FUNCTION_WORD, 1.0, 1.0]
    assert set(emphasis(analyse("wer ist das", ()), "das ist es").values()) == {1.0}, "it has no other words"
    denied = analyse("Was mag Opa nicht?", ())
    assert emphasis(denied, "Opa mag Kohl nicht")[ids("nicht")[0]] == 1.0


def test_a_time_that_the_scope_has_is_all_that_its_parts_say() -> None:
    """Of 7:05 pm, 7:05 in the morning has two parts."""
    query = analyse("What waters itself at 7:05 pm?", ())
    columns, settled = settle(scope_of(query.terms, "The lawn at 19:05", "The garden at 7:05 am"), query, {})
    counted = np.isin(settled.terms, term_ids(["7", "5", "@1145"]))
    assert settled.terms[counted].tolist() == term_ids(["@1145"]).tolist()
    assert (columns.term_counts[counted] > 0).tolist() == [[True, False]]


def test_the_name_of_the_one_speaker_that_a_query_names_weighs_less() -> None:
    """ "Congratulations, Mira." is said to her, and tells nothing of her address."""
    query = analyse("What is Mira's address?", ("Mira", "Olaf"))
    found = emphasis(query, "Congratulations, Mira.", "My address is 12 Elm Road")
    assert [found[term] for term in (*ids("Mira"), *ids("address"))] == [NAME, 1.0]
    assert emphasis(analyse("Mira", ("Mira", "Olaf")), "Mira met Olaf") == {ids("Mira")[0]: 1.0}
    two = analyse("When did Mira meet Olaf?", ("Mira", "Olaf"))  # which of them said it, nobody knows
    assert set(emphasis(two, "Mira met Olaf").values()) == {1.0}


def test_parts_of_an_identifier_that_the_scope_has_weigh_less() -> None:
    found = emphasis(analyse("10.0.4.117", ()), "server 10.0.4.117", "server 10.0.4.71")
    assert set(found.values()) == {IDENTIFIER, PART_OF_IDENTIFIER}


def test_an_identifier_of_which_the_scope_has_nothing_is_unknown() -> None:
    query = analyse("What is QX-9907 about?", ())
    _, settled = settle(scope_of(query.terms, "Ticket PAY-4312 is open"), query, {})
    assert settled.unknown
    _, settled = settle(scope_of(query.terms, "QX-9907 is about money"), query, {})
    assert not settled.unknown


@pytest.mark.parametrize(
    ("texts", "word", "initials"),
    [
        (["the NDA was signed", "a non-disclosure agreement"], 1.0, 1 - EXPANDED),
        (["a non-disclosure agreement"], 1 - EXPANDED, EXPANDED),
    ],
)
def test_an_acronym_counts_as_word_or_as_initials(texts: list[str], word: float, initials: float) -> None:
    query = analyse("NDA", ())
    found = emphasis(query, *texts)
    assert found[query.acronyms[0].term] == pytest.approx(initials)
    assert found[ids("NDA")[0]] == pytest.approx(word)


def test_a_mistyped_word_counts_less_than_the_one_that_it_stands_for() -> None:
    query = analyse("birthdya", ())
    (mistyped,), (meant,) = ids("birthdya"), ids("birthday")
    columns = replace(scope_of(query.terms, "her birthday"), close={mistyped: {meant: 1}})
    corrections = find_corrections(columns, query)
    assert corrections == {mistyped: meant}
    columns, settled = settle(scope_of(looked_for(query, corrections), "her birthday"), query, corrections)
    assert columns.emphasis is not None
    factors = dict(zip(settled.terms.tolist(), columns.emphasis.tolist(), strict=True))
    assert factors == {meant: pytest.approx(CORRECTED), mistyped: pytest.approx(1 - CORRECTED)}


def test_a_document_with_another_name_has_that_of_the_query_and_the_columns_stay_as_they_were() -> None:
    query = with_names(analyse("Where does Bob live?", ()), "Where does Bob live?", [["Bob", "Robert"]])
    before = scope_of(query.terms, "Robert lives in Oslo", "Ann lives in Bergen")
    hits, df = before.term_counts.copy(), before.df.copy()
    columns, settled = settle(before, query, {})
    assert columns.term_counts[settled.terms.tolist().index(ids("Bob")[0])].tolist() == [1, 0]
    assert np.array_equal(before.term_counts, hits)
    assert np.array_equal(before.df, df)
