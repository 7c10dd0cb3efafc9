"""Folding, words, sentences and numbers of texts in any language."""

import re
from collections.abc import Callable
from functools import partial

import pytest

from app.core.language import (
    fold,
    has_word_of,
    is_unspaced,
    numbers,
    place_of,
    sentence_ends,
    sentence_spans,
    sentences,
    spelled_numbers,
    values,
    whole,
    wording,
    words,
)
from app.documents.extract import html_sections
from app.findings.service import shortened
from app.retrieval.query import leading_part
from app.storage.text import index_text, notations
from tests.support.processor_time import processor_time


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Zürich\u2019s", "zurich's"),
        ("GROẞ", "gross"),
        ("Ａｂｃ", "abc"),
        ("Άλφα", "αλφα"),
        ("й", "й"),
        ("Пу\u0301шкин", "пушкин"),
        ("Qur\u02bean", "qur'an"),
        ("ガ", "ガ"),
        ("한국", "한국"),
    ],
)
def test_folding_drops_case_width_and_accents_and_no_letter(text: str, folded: str) -> None:
    assert fold(text) == folded
    assert fold(folded) == folded


def test_long_words_are_folded() -> None:
    for number in range(20):
        assert fold("\u00c9" * 10_000 + str(number)) == "e" * 10_000 + str(number)


def test_words_of_any_script() -> None:
    assert words("L\u2019été, I'm well-known a_b") == ["l'ete", "i'm", "well-known", "a", "b"]
    assert words("हिन्दी भाषा") == ["हिन्दी", "भाषा"]
    assert words("東京に住む") == ["東", "京", "に", "住", "む"]
    assert is_unspaced("in 東京")
    assert not is_unspaced("in Tōkyō")


def test_sentences_end_where_they_end() -> None:
    assert sentences("I met Dr. Smith at 5 p.m. on the 3. Mai.  Then? \u201cYes!\u201d Done\nnext") == [
        "I met Dr. Smith at 5 p.m. on the 3. Mai.",
        "Then?",
        "\u201cYes!\u201d",
        "Done",
        "next",
    ]
    assert sentences("Ask Tom. I was born in 1990. Hm... ok.") == ["Ask Tom.", "I was born in 1990.", "Hm...", "ok."]
    assert sentences("你好。再见！") == ["你好。", "再见！"]
    assert sentences(" \n ") == []


def test_spans_are_places_in_the_text() -> None:
    text = "  One. \n\n Two? "
    assert [text[start:end] for start, end in sentence_spans(text)] == ["One.", "Two?"]


def test_a_phrase_is_found_whatever_its_case_accents_and_punctuation() -> None:
    text = "She lives in \u00abMünchen\u00bb."
    assert place_of("LIVES in Munchen", text) == (4, 21)
    assert place_of("lives Munchen", text) is None
    assert place_of("…", text) is None
    assert place_of("école", "à l\u2019école") == (4, 9)
    assert place_of("cole", "à l\u2019école") is None
    assert place_of("10km", "just 10 km") == (5, 10)
    assert place_of("京に", "東京に住む") == (1, 3)


def test_a_word_of_a_name_is_found_in_any_script() -> None:
    assert has_word_of("Jean-Luc Bó", "Ask JEAN first")
    assert has_word_of("王伟", "提醒王伟先生带伞")
    assert not has_word_of("王伟", "王先生")
    assert not has_word_of("Jan", "Janine")


def test_a_phrase_is_matched_as_whole_words_where_words_have_bounds() -> None:
    assert re.search(whole("new york"), "in new  york.")
    assert not re.search(whole("york"), "yorkshire")
    assert re.search(whole("東京"), "在東京都")


def test_sentence_ends_are_read_within_a_part_of_a_text() -> None:
    text = "It is 3.5 off. Dr. Smith ran. Twice."
    assert [*sentence_ends(text, 0, len(text))] == [15, 30, 36]
    assert [*sentence_ends(text, 16, 31)] == [30]
    assert [*sentence_ends(text, 0, text.index(".5") + 1)] == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.200 m", "1200"),
        ("1.200 m", "1.2"),
        ("1,234,567.5", "1234567.5"),
        ("12\u2019000 Fr.", "12000"),
        ("3,5 kg", "3.5"),
        ("at 08:30", "8"),
        ("1.5.2024", "2024"),
        ("٣", "3"),
        ("三百二十人", "320"),
        ("二〇二四年", "2024"),
        ("一万二千", "12000"),
        ("十二月", "12"),
        ("两个孩子", "2"),
    ],
)
def test_a_number_has_its_value_in_any_writing(text: str, value: str) -> None:
    assert value in values(text)


def test_chinese_numerals_are_no_numbers_that_somebody_must_have_said() -> None:
    assert not numbers("我们一起去")
    assert numbers("3 of 1.200") == {"3": frozenset({"3"}), "1.200": frozenset({"1200", "1.2", "1", "200"})}


@pytest.mark.parametrize(
    "read",
    [
        sentences,
        notations,
        index_text,
        wording,
        leading_part,
        lambda text: spelled_numbers(text, words(text)),
        lambda text: shortened({"cut": [len(text), len(text)]}, text),
    ],
)
@pytest.mark.parametrize(
    "run", [".", "?!", ".!", "\n", " ", "\t ", "1", "١", "十", "a", "\u0301", "a\u0301\u0301", "The ", "x. A be "]
)
def test_a_run_of_one_character_takes_time_in_proportion_to_its_length(read: Callable[[str], object], run: str) -> None:
    """An expression that begins anew at each character of the run takes 64 times as long for eight times the text, and
    keeps all others waiting for 20 s."""

    texts = [f"é{(run * length)[:length]}b" for length in (4_000, 32_000)]
    short, long = (processor_time(partial(read, text)) for text in texts)
    assert long < 30 * max(short, 0.002)


@pytest.mark.parametrize(
    ("read", "begin", "run", "end"),
    [
        (index_text, "two ", "1", ",111"),
        (index_text, "", "111 ", "111x"),
        (lambda text: [*html_sections(text)], "<pre>", " ", "x"),
    ],
)
def test_a_run_that_is_no_number_and_no_gap_takes_time_in_proportion_to_its_length(
    read: Callable[[str], object], begin: str, run: str, end: str
) -> None:
    """What stands behind the run says what it is: 30,000 digits before ",111" held all others for half a minute."""

    texts = [f"{begin}{run * (length // len(run))}{end}" for length in (2_000, 16_000)]
    short, long = (processor_time(partial(read, text)) for text in texts)
    assert long < 30 * max(short, 0.002)


def test_one_word_of_2000_letters_takes_as_long_as_a_thousand_words() -> None:
    """As a picture in base64 has: an expression that begins anew at each letter takes 30 times as long."""
    word, words_of_one = (processor_time(partial(index_text, text)) for text in ("a" * 2_000, "a " * 1_000))
    assert word < 12 * max(words_of_one, 0.002)


def test_a_sentence_end_is_the_same_from_the_middle_of_its_run() -> None:
    text = "One...  \n  Two"
    assert [[*sentence_ends(text, low, len(text))] for low in (0, 4, 5, 7, 8, 10, 11)] == [[11]] * 6 + [[]]
