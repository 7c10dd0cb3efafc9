from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.embedding.model import MAX_WINDOWS, by_characters, by_tokens, split

shapes = st.text(st.sampled_from("xxxx .\n。\u200d"), max_size=400)


@given(st.text(max_size=50), st.integers(50, 90))
def test_a_text_that_fits_into_one_window_is_itself(text: str, characters: int) -> None:
    assert split(text, by_characters(characters)) == [text]


@given(shapes, st.integers(1, 60))
def test_windows_follow_each_other_without_a_gap(shape: str, characters: int) -> None:
    text = "".join(chr(0x4E00 + at) if sign == "x" else sign for at, sign in enumerate(shape))  # each letter once
    letters = [sign for sign in text if sign >= "\u4e00"]
    windows = split(text, by_characters(characters))
    assert len(windows) <= MAX_WINDOWS
    covered = 0
    for window in windows:
        own = [letters.index(sign) for sign in window if sign >= "\u4e00"]
        assert own == list(range(own[0], own[-1] + 1)) if own else True
        if own:
            assert own[0] <= covered <= own[-1] + 1
            covered = own[-1] + 1
        assert len(window) <= characters or windows == [text]
    assert covered == len(letters) or len(text) > MAX_WINDOWS * characters * 3 // 4


def test_a_window_ends_after_a_sentence_near_its_end() -> None:
    windows = split("Rain. And more of it. " * 30, by_characters(200))
    assert len(windows) > 3
    assert all(window.endswith((". ", ".")) for window in windows)


def test_windows_of_words_without_sentences_end_and_begin_at_words() -> None:
    words = [f"word{number}" for number in range(100)]
    windows = split(" ".join(words), by_characters(120))
    assert all(set(window.split()) <= set(words) for window in windows)


def test_windows_overlap() -> None:
    windows = split(" ".join(f"w{number:03}" for number in range(200)), by_characters(120))
    assert len(windows) == MAX_WINDOWS
    for one, other in pairwise(windows):
        assert set(one.split()) & set(other.split())


@pytest.mark.parametrize("text", ["的" * 500, "的确如此。" * 100, "x" * 500])
def test_scripts_without_spaces_are_split_all_the_same(text: str) -> None:
    windows = split(text, by_characters(100))
    assert windows[0] == text[: len(windows[0])]
    assert all(len(window) > 80 for window in windows[:-1])


def test_blank_windows_are_left_out() -> None:
    assert [window.strip() for window in split(" " * 50 + "x", by_characters(10))] == ["x"]
    assert split(" " * 1_000 + "x", by_characters(10)) == [" " * 1_000 + "x"]


def test_a_window_holds_so_many_tokens() -> None:
    words = [f"{number:02}" for number in range(40)]
    text = " ".join(words)
    spans = [(start, start + 2) for start in range(0, len(text), 3)]
    assert split(text, by_tokens(spans, 40, len(text))) == [text]
    windows = [window.split() for window in split(text, by_tokens(spans, 16, len(text)))]
    assert windows == [words[:15], words[14:29], words[28:]]


@given(st.lists(st.integers(0, 5), max_size=60), st.integers(1, 20))
def test_spans_of_any_shape_come_to_an_end(lengths: list[int], room: int) -> None:
    """Tokens that share a character, or that have none, as byte-level tokenizers make them."""
    spans = [(at, min(at + length, 30)) for at, length in enumerate(lengths)]
    text = "abc de " * 5
    windows = split(text, by_tokens(spans, room, len(text)))
    assert 1 <= len(windows) <= MAX_WINDOWS
