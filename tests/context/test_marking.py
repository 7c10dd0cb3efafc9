"""Which texts of a prompt are marked: those from which a replaced value was learned, or in which its subject said it
before, and those that a finding of a judge names."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.context.marking import inserted, judged_mark, judged_marks, value_marks
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


def marked(
    text: str, memory_id: str, utterance: Utterance | None, values: list[ReplacedValue], names: Sequence[str]
) -> str:
    return inserted(text, value_marks(text, memory_id, utterance, values, names))


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
def test_what_the_user_said_before_with_an_earlier_value_is_marked_behind_the_value(text: str) -> None:
    start, value, rest = re.split("(oslo)", text, maxsplit=1, flags=re.IGNORECASE)
    marked_text = f"{text} {MARK}" if rest in ("", ".") else f"{start}{value} {MARK}{rest}"
    assert marked(text, "m", BEFORE, [HOME], ()) == marked_text
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
    assert marked("Ben is at Initech.", "m", BEFORE, [BEN], ()) != "Ben is at Initech.", "it names the subject"
    assert marked("Ben is at Initech.", "m", Utterance(BEFORE.at, None), [BEN], ()) == "Ben is at Initech."
    assert marked("I live in Oslo.", "m", Utterance(BEFORE.at, "ada"), [HOME], ["Ada Lovelace"]) != "I live in Oslo."
    assert marked("I live in Oslo.", "m", Utterance(BEFORE.at, "ben"), [HOME], ["Ada Lovelace"]) == "I live in Oslo."
    assert marked("I live in Oslo.", "m", Utterance(BEFORE.at, "🙂"), [HOME], ["Ada Lovelace"]) == "I live in Oslo."


def test_a_memory_that_was_learned_from_the_same_message_is_marked_whoever_it_is_about() -> None:
    text = "He is at Initech."
    learned = Utterance(BEFORE.at, USER, None, ("mem Initech",))
    assert marked(text, "m", learned, [BEN], ()) == f"{text} (since 2026-10-01: Ben works at Acme)"
    assert marked(text, "m", BEFORE, [BEN], ()) == text
    assert marked("He likes tea.", "m", learned, [BEN], ()) == "He likes tea."


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
    assert marked("Oslo, then Rome", "m", BEFORE, [HOME, replaced("Rome", "Bergen")], ()) == f"Oslo {MARK}, then Rome"


def test_a_value_that_was_learned_in_other_words_is_marked_behind_the_quote() -> None:
    home = row("Oslo", None, SINCE, source={"memory_ids": ["m"], "quote": "by the opera"})
    value = ReplacedValue.of(home, row("Bergen", SINCE))
    text = "I am allergic to nuts and live by the opera and ski."
    assert marked(text, "m", None, [value], ()) == f"I am allergic to nuts and live by the opera {MARK} and ski."


@given(st.text(max_size=80), st.sampled_from([HOME, BEN]), st.sampled_from([BEFORE, AFTER]))
def test_a_text_is_kept_whole(text: str, value: ReplacedValue, said: Utterance) -> None:
    found = marked(text, "mem Oslo", said, [value], ())
    assert (
        found.replace(" (home since 2026-10-01: Bergen)", "").replace(" (since 2026-10-01: Ben works at Acme)", "")
        == text
    )


# --- Findings of a judge ----------------------------------------------------------------------------------------------

DOUBT = JudgedStatement(
    "m1", "My lesson is on 7 March in the hall.", "It is on 19 March.", "2026-02-01T00:00:00Z", other_is_later=True
)
UNCERTAIN = "(uncertain; later, 2026-02-01: It is on 19 March.)"


def doubted(text: str, doubt: JudgedStatement = DOUBT, of: str = "other") -> str:
    return inserted(text, judged_marks(Candidate(of, "message", text), [doubt]))


def test_a_repetition_is_marked_and_a_shared_word_is_not() -> None:
    assert doubted("MY lesson is on 7 March, in the hall!").endswith(UNCERTAIN)
    assert doubted("My lesson was fun.") == "My lesson was fun."
    assert doubted("7 March is a Saturday.") == "7 March is a Saturday."


def test_in_the_record_itself_the_words_are_marked_and_no_others() -> None:
    assert doubted("My lesson …", of="m1") == f"My lesson … {UNCERTAIN}"
    more = "I love chess. My lesson is on 7 March in the hall. Bring cake."
    marked_text = f"I love chess. My lesson is on 7 March in the hall {UNCERTAIN}. Bring cake."
    assert doubted(more, replace(DOUBT, words="My lesson is on 7 March in the hall"), of="m1") == marked_text
    assert doubted("I love chess.", of="m1") == "I love chess."


def test_a_statement_has_one_mark_however_many_judge_it() -> None:
    said, later = (
        "my sister is vegetarian",
        replace(DOUBT, other_words="She eats meat.", other_at="2026-04-01", replaced=True),
    )
    several = [replace(DOUBT, words=said), replace(later, words=said), replace(later, words=f"and {said}")]
    item = Candidate("m1", "message", f"I have a peanut allergy and {said}.")
    assert inserted(item.text, judged_marks(item, several)) == (
        f"I have a peanut allergy and {said}. (until 2026-04-01: She eats meat.)"
    )


def test_who_reads_both_in_their_order_needs_no_mark() -> None:
    both = f"{DOUBT.words} {DOUBT.other_words}"
    assert doubted(both) == both


def test_what_was_replaced_is_marked_with_what_stands_in_its_place() -> None:
    settled = JudgedStatement("m", "a", "x" * 200, "2026-01-01", other_is_later=True, replaced=True)
    assert judged_mark(settled) == f"(until 2026-01-01: {'x' * 80}…)"
    earlier = JudgedStatement("m", "a", "b\nc", "2026-01-01", other_is_later=False)
    assert judged_mark(earlier) == "(uncertain; earlier, 2026-01-01: b c)"


@given(st.lists(st.text("ab .7", max_size=30), max_size=5), st.text("ab .7", max_size=30))
def test_a_mark_changes_no_word_and_marks_nothing_twice(texts: list[str], said: str) -> None:
    items = [Candidate(str(at), "message", text) for at, text in enumerate(texts)]
    doubt = JudgedStatement("x", said, "b", "2026-01-01", other_is_later=True)
    for before in items:
        after = inserted(before.text, judged_marks(before, [doubt, doubt]))
        mark = f" {judged_mark(doubt)}"
        assert after.count(mark) <= 1
        assert after.replace(mark, "") == before.text
