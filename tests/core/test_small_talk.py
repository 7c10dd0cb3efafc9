"""What says nothing, in any language."""

import pytest

from app.core.characters import says_nothing

NOTHING = ("👍", "😂😂😂", "🇮🇹", "❤️ !", "…", " :-) ", "!!!", "👩\u200d💻", "。。。")
SOMETHING = ("thanks", "ok", "好", "ok?", "?", "？", "at 5", "½", "1️⃣", "$$", "+", "ё", "ね", "", "  ")


@pytest.mark.parametrize("text", NOTHING)
def test_emoji_and_punctuation_say_nothing(text: str) -> None:
    assert says_nothing(text)


@pytest.mark.parametrize("text", SOMETHING)
def test_a_letter_a_number_or_a_question_says_something_and_an_empty_text_is_no_message(text: str) -> None:
    assert not says_nothing(text)
