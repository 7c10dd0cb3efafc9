"""Which texts of a prompt are marked: those from which a replaced value was learned, or in which its subject said it
before, and those that a finding of a judge names."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.context.marking import judged_mark, mark_judged, mark_values, marked
from app.context.source import Candidate, JudgedStatement
from app.facts.outdated import ReplacedValue, Utterance, telling
from app.facts.schemas import USER
from tests.facts.test_replaced import row

SINCE = "2026-10-01T00:00:00.000Z"
BEFORE, AFTER = Utterance("2026-05-01T00:00:00.000Z", USER), Utterance("2026-11-01T00:00:00.000Z", USER)


def replaced(earlier: str, present: str, **of: Any) -> ReplacedValue:
    return ReplacedValue.of(row(earlier, None, SINCE, **of), row(present, SINCE, **of))


HOME = replaced("Oslo", "Bergen")
BEN = replaced("Initech", "Acme", subject="Ben", subject_key="ben", predicate="works_at", group_id="b")
MARK = "(home since 2026-10-01: Bergen)"


@pytest.mark.parametrize(
    "text",
    [
        "I live in Oslo.",
        "The user lives in Oslo and has a dog",
        "The user lives in Oslo with her husband",
        "Ich wohne mit meiner Katze in OSLO.",
        "我住在Oslo",
    ],
)
def test_what_the_user_said_before_with_an_earlier_value_is_marked(text: str) -> None:
    assert marked(text, "m", BEFORE, [HOME], ()) == f"{text} {MARK}"
    assert marked(text, "m", AFTER, [HOME], ()) == text
    assert marked(text, "m", Utterance(BEFORE.at, None), [HOME], ()) == text, "the assistant said it"
    assert marked(text, "m", None, [HOME], ()) == text


@pytest.mark.parametrize("text", ["I moved from Oslo to Bergen.", "Oslofjord was cold.", "I like tea.", ""])
def test_what_states_no_earlier_value_or_names_the_present_one_is_not_marked(text: str) -> None:
    assert marked(text, "m", BEFORE, [HOME], ()) == text


def test_what_the_earlier_value_was_learned_from_is_marked_whatever_its_words_are() -> None:
    assert marked("Yes, I do.", "mem Oslo", Utterance(AFTER.at, None), [HOME], ()) == f"Yes, I do. {MARK}"
    assert marked("Ben is at Initech", "mem Initech", None, [BEN], ()).endswith("(since 2026-10-01: Ben works at Acme)")


def test_only_the_word_of_whom_the_fact_is_about_counts() -> None:
    text = "I work at Initech."
    assert marked(text, "m", Utterance(BEFORE.at, "ben"), [BEN], ()) != text
    assert marked(text, "m", BEFORE, [BEN], ()) == text
    assert marked("I live in Oslo.", "m", Utterance(BEFORE.at, "ada"), [HOME], ["Ada Lovelace"]) != "I live in Oslo."
    assert marked("I live in Oslo.", "m", Utterance(BEFORE.at, "ben"), [HOME], ["Ada Lovelace"]) == "I live in Oslo."
    assert marked("I live in Oslo.", "m", Utterance(BEFORE.at, "🙂"), [HOME], ["Ada Lovelace"]) == "I live in Oslo."


@pytest.mark.parametrize(
    "value",
    ["42", "12:30", "Wednesday", "mittwoch", "9. Oktober", "周三", "it", "no", "vet", "the", "一", "2026-05-01", ""],
)
def test_a_number_or_a_short_common_word_may_be_any_word_of_a_text(value: str) -> None:
    assert not telling(value)
    assert marked(f"So: {value}", "m", BEFORE, [replaced(value, "Bergen")], ()) == f"So: {value}"


@pytest.mark.parametrize("value", ["Oslo", "vegan", "book shop", "Grüner Weg 4", "青城", "Ulm an der Donau"])
def test_other_values_are_told_by_their_words(value: str) -> None:
    assert telling(value)


def test_a_text_with_two_earlier_values_of_one_fact_gets_one_mark() -> None:
    assert marked("Oslo, then Rome", "m", BEFORE, [HOME, replaced("Rome", "Bergen")], ()) == f"Oslo, then Rome {MARK}"


@given(st.text(max_size=80), st.sampled_from([HOME, BEN]), st.sampled_from([BEFORE, AFTER]))
def test_a_text_is_kept_whole(text: str, value: ReplacedValue, said: Utterance) -> None:
    found = marked(text, "mem Oslo", said, [value], ())
    assert found.startswith(text)


def test_a_partner_is_marked_too() -> None:
    partner = Candidate("p", "message", "In Oslo.", utterance=BEFORE)
    found = mark_values(Candidate("m", "message", "Where?", partner=partner), [HOME], ())
    assert found.partner is not None
    assert found.partner.text == f"In Oslo. {MARK}"


# --- Findings of a judge ----------------------------------------------------------------------------------------------

FOUND = "2026-03-01T00:00:00Z"
DOUBT = JudgedStatement(
    "m1", "My lesson is on 7 March in the hall.", "It is on 19 March.", "2026-02-01T00:00:00Z", FOUND, later=True
)
UNCERTAIN = "(uncertain; later, 2026-02-01: It is on 19 March.)"


def doubted(text: str, doubt: JudgedStatement = DOUBT, of: str = "other") -> str:
    return mark_judged(Candidate(of, "message", text), [doubt]).text


def test_a_repetition_is_marked_and_a_shared_word_is_not() -> None:
    assert doubted("MY lesson is on 7 March, in the hall!").endswith(UNCERTAIN)
    assert doubted("My lesson was fun.") == "My lesson was fun."
    assert doubted("7 March is a Saturday.") == "7 March is a Saturday."


def test_the_record_itself_is_marked_and_the_sentence_named_if_it_says_more() -> None:
    assert doubted("My lesson …", of="m1") == f"My lesson … {UNCERTAIN}"
    more = "I love chess. My lesson is on 7 March in the hall. Bring cake."
    named = "(uncertain, “My lesson is on 7 March in the hall.”; later, 2026-02-01: It is on 19 March.)"
    assert doubted(more, of="m1") == f"{more} {named}"


def test_who_reads_both_in_their_order_needs_no_mark() -> None:
    both = f"{DOUBT.text} {DOUBT.other}"
    assert doubted(both) == both


def test_what_was_replaced_is_marked_with_what_stands_in_its_place() -> None:
    settled = JudgedStatement("m", "a", "x" * 200, "2026-01-01", FOUND, later=True, settled=True)
    assert judged_mark(settled, "a") == f"(earlier; since 2026-01-01: {'x' * 80}…)"
    earlier = JudgedStatement("m", "a", "b\nc", "2026-01-01", FOUND, later=False)
    assert judged_mark(earlier, "a") == "(uncertain; earlier, 2026-01-01: b c)"


@given(st.lists(st.text("ab .7", max_size=30), max_size=5), st.text("ab .7", max_size=30))
def test_a_mark_stands_behind_the_text_and_marks_nothing_twice(texts: list[str], said: str) -> None:
    items = [Candidate(str(at), "message", text) for at, text in enumerate(texts)]
    doubt = JudgedStatement("x", said, "b", "2026-01-01", FOUND, later=True)
    for before in items:
        after = mark_judged(before, [doubt, doubt])
        assert after.text in (before.text, f"{before.text} {judged_mark(doubt, before.text)}")
