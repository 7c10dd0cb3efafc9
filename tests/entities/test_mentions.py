"""Names in texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.entities.service import mentions, word_runs
from app.facts.schemas import key_of


@pytest.mark.parametrize(
    ("text", "name", "there"),
    [
        ("Ada's cat sleeps", "Ada", True),
        ("Canada is large", "Ada", False),
        ("met ADA  Lovelace, twice", "Ada Lovelace", True),
        ("Ada met Lovelace", "Ada Lovelace", False),
        ("uses C++ and (TCP/IP)", "C++", True),
        ("uses C++ and (TCP/IP)", "tcp/ip", True),
        ("田中さんは東京に住む", "東京", True),
        ("Frau Müller-Lüdenscheidt", "Müller", True),
        ("", "x", False),
        ("anything", "\u200b", False),
        ("Adamant Ada", "Ada", True),
    ],
)
def test_a_name_stands_as_whole_words(text: str, name: str, there: bool) -> None:
    assert mentions(text, key_of(name)) is there


WORDS = st.lists(st.text("abcdeü", min_size=1, max_size=6), min_size=1, max_size=12)


@given(WORDS, st.data())
def test_every_run_of_words_is_mentioned_and_found(words: list[str], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(words) - 1))
    name = key_of(" ".join(words[begin : begin + data.draw(st.integers(1, 4))]))
    text = " ".join(words)
    assert mentions(text, name)
    assert name in word_runs(text)


@given(st.text(max_size=80), st.text(min_size=1, max_size=10))
def test_any_text_can_be_asked(text: str, name: str) -> None:
    assert mentions(text, key_of(name)) in (True, False)
    word_runs(text)
