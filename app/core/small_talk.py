"""Small talk: messages without content, such as "thanks" or "good morning"."""

import re
import tomllib
import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from app.core.characters import visible

MOST_CHARS = 160
"""A longer message is no small talk."""
UNSPACED = ("zh", "ja")
"""Languages whose phrases are not separated by spaces."""
_FILE = Path(__file__).parent / "data" / "small_talk.toml"
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_APOSTROPHES = str.maketrans("\u2019\u02bc\u2018\u00b4`\uff07", "''''''")
_ASKS = frozenset("?\u061f\uff1f")


def is_small_talk(text: str) -> bool:
    """Returns whether a message says nothing that is worth keeping.

    It is small talk if it consists of phrases of one language (`data/small_talk.toml`), emoji and punctuation. A
    question, a number or one unknown word make it none, so "Thanks, Ada" is kept. An empty text is none, too.
    """
    if not text.strip() or len(text) > MOST_CHARS or not _ASKS.isdisjoint(text):
        return False
    folded = _fold(visible(text).translate(_APOSTROPHES))
    if any(char.isnumeric() or unicodedata.category(char) in ("Sc", "Sm") for char in folded):
        return False
    words = _WORD.findall(folded)
    return not words or any(_consists(words, language) for language in _phrases())


def _consists(words: Sequence[str], language: str) -> bool:
    """Returns whether the words are a row of the language's phrases."""
    phrases = _phrases()[language]
    if language in UNSPACED:
        words = list("".join(words))
    if not _vocabulary(language).issuperset(words):
        return False
    longest = max(map(len, phrases))
    reached = [True] + [False] * len(words)
    for end in range(1, len(words) + 1):
        begins = range(max(0, end - longest), end)
        reached[end] = any(reached[begin] and tuple(words[begin:end]) in phrases for begin in begins)
    return reached[-1]


@cache
def _phrases() -> dict[str, frozenset[tuple[str, ...]]]:
    """Returns each language's phrases as words, or as characters where no spaces separate words."""
    said: dict[str, list[str]] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    shared = said.pop("any")
    return {
        language: frozenset(
            tuple("".join(_WORD.findall(_fold(each)))) if language in UNSPACED else tuple(_WORD.findall(_fold(each)))
            for each in [*shared, *phrases]
        )
        for language, phrases in said.items()
    }


@cache
def _vocabulary(language: str) -> frozenset[str]:
    return frozenset(word for phrase in _phrases()[language] for word in phrase)


def _fold(text: str) -> str:
    """Returns the text in lower case, without accents."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in plain if not unicodedata.combining(char))
