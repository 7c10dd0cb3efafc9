import base64
import hashlib
import time

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tiktoken_ext import openai_public  # type: ignore[import-untyped]

from app.core import prompt_text

SAMPLES = [
    "Hello, world! I've been TOLD it's 12345 km.\n\n  def f(x):\n\treturn x  ",
    "Über den Wolken muß die Freiheit wohl grenzenlos sein.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю",
    "我们昨天在上海吃了小笼包。非常好吃！",
    "昨日、東京でラーメンを食べました。ｶﾀｶﾅ",
    "ذهبت إلى السوق أمس واشتريت تفاحًا",
    "नमस्ते दुनिया, ฉันรักเธอ, 안녕하세요",
    "👩‍👩‍👧‍👦 e\u0301 \u200d \x00 \r\n<|endoftext|> <|endofprompt|>",
    "",
]


@pytest.fixture(scope="module")
def reference() -> tiktoken.Encoding:
    """tiktoken's own definition, with our file in the place of its download, once that is proved to be the same."""
    lines = [base64.b64encode(t) + b" %d\n" % rank for rank, t in enumerate(prompt_text.vocabulary())]
    ranks = {token: rank for rank, token in enumerate(prompt_text.vocabulary())}

    def load(_url: str, expected_hash: str) -> dict[bytes, int]:
        assert hashlib.sha256(b"".join(lines)).hexdigest() == expected_hash
        return ranks

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_public, "load_tiktoken_bpe", load)
        return tiktoken.Encoding(**openai_public.o200k_base())


@pytest.mark.parametrize("text", SAMPLES)
def test_the_count_is_tiktokens_own_in_every_script(reference: tiktoken.Encoding, text: str) -> None:
    assert prompt_text.count(text) == len(reference.encode(text, disallowed_special=()))


@given(st.text(max_size=300))
@settings(max_examples=200, deadline=None)
def test_the_count_is_tiktokens_own_for_any_text(reference: tiktoken.Encoding, text: str) -> None:
    assert prompt_text.count(text) == len(reference.encode(text, disallowed_special=()))


def test_known_counts() -> None:
    assert prompt_text.count("hello world") == 2
    assert prompt_text.count("a" * 32_000) == 4_000


@given(st.text(max_size=200), st.integers(-1, 60))
@settings(max_examples=200, deadline=None)
def test_truncate_gives_a_start_of_the_text_within_the_limit(text: str, limit: int) -> None:
    cut = prompt_text.truncate(text, limit)
    assert text.startswith(cut)
    assert prompt_text.count(cut) <= max(limit, 0)
    assert cut == text or prompt_text.count(text) > limit


def test_truncate_does_not_halve_a_character() -> None:
    family = "👩‍👩‍👧‍👦" * 20
    for limit in range(40):
        assert family.startswith(prompt_text.truncate(family, limit))


def test_truncate_keeps_as_many_tokens_as_are_allowed() -> None:
    text = "one two three four five six seven eight nine ten"
    assert prompt_text.truncate(text, 4) == "one two three four"
    assert prompt_text.truncate(text * 1000, 4) == "one two three four"


def test_truncate_counts_its_result_again() -> None:
    """The first token of this text ends inside a character; without that character's bytes it is several tokens."""
    text = " \u10db\u10d8\u10e3\u10ef\u10dd\u10d1\u10d4\u10e1iyaha"
    assert prompt_text.count(prompt_text.truncate(text, 1)) <= 1


def test_lone_surrogates_are_counted_not_refused() -> None:
    assert prompt_text.count("a\ud800b") == prompt_text.count("a\ufffdb")
    prompt_text.truncate("a\ud800b" * 100, 5).encode()


@pytest.mark.parametrize("unit", ["a", " ", "\n", "\u00a0", "!", "1", "中", "aB", "\u0301", " \t", "\u2003\n"])
def test_a_megabyte_without_a_break_takes_linear_time(unit: str) -> None:
    small, large = _seconds(unit * (100_000 // len(unit))), _seconds(unit * (1_000_000 // len(unit)))
    assert large < 10 * small * 4 + 0.2
    assert large < 5


def test_whitespace_runs_of_every_length_around_the_cut_are_close_to_exact(reference: tiktoken.Encoding) -> None:
    for length in (
        prompt_text.LONGEST_RUN - 1,
        prompt_text.LONGEST_RUN,
        prompt_text.LONGEST_RUN + 1,
        3 * prompt_text.LONGEST_RUN,
    ):
        text = "start" + " " * length + "end"
        exact = len(reference.encode_ordinary(text))
        assert exact <= prompt_text.count(text) <= exact + 3


def _seconds(text: str) -> float:
    """Of this thread's own work, whatever else the machine does."""
    start = time.thread_time()
    prompt_text.count(text)
    return time.thread_time() - start
