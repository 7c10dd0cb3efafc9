"""What is small talk, and what is none."""

import pytest

from app.core.characters import is_small_talk

SMALL_TALK = (
    "thanks", "OK", "Good morning!", "haha nothing much", "You\u2019re welcome!", "Hi there, good morning :)",
    "Danke schön!", "Naja, nicht viel", "Ça va bien, merci.", "¡Muchas gracias!", "Grazie mille 😊", "Muito obrigada!",
    "Dank je wel", "Спасибо большое!", "谢谢你！", "好的，谢谢", "ありがとうございます。",
    "おはようございます！", "👍", "😂😂😂", "🇮🇹", "…",
)  # fmt: skip
SAYS_SOMETHING = (
    "Thanks, Ada", "How are you?", "ok?", "yes", "no", "I like tea", "good tea", "at 5", "½", "Tag der Arbeit", "$$",
    "", "  ", "call Bob", "谢谢妈妈", "I moved", "not good", "what", "why", "danke Ada",
    "thanks danke cheers merci beaucoup", "sure", "of course", "nada",
    "thanks " * 40, "ок, Маша", "grazie Roma", "明日東京", "I am allergic",
)  # fmt: skip


@pytest.mark.parametrize("text", SMALL_TALK)
def test_phrases_without_content_are_small_talk(text: str) -> None:
    assert is_small_talk(text)


@pytest.mark.parametrize("text", SAYS_SOMETHING)
def test_a_name_a_number_a_question_or_an_unknown_word_is_none(text: str) -> None:
    assert not is_small_talk(text)
