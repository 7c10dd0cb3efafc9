"""Small talk: messages without content, such as "thanks" or "good morning"."""

import re
import tomllib
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Phrases:
    """Phrases of one language as rows of words, and their words."""

    rows: frozenset[tuple[str, ...]]
    words: frozenset[str]


def is_small_talk(text: str) -> bool:
    """Returns whether a message says nothing that is worth keeping.

    It is small talk if it consists of phrases of one language (`data/small_talk.toml`), emoji and punctuation. A
    question, a number or one unknown word make it none, so "Thanks, Ada" is kept. An empty text is none, too.
    """
    return _ASKS.isdisjoint(text) and _says_nothing(text, _phrases())


def is_idle(text: str) -> bool:
    """Returns whether a text has nothing from which a record can be learned: small talk, the mood or the weather of the
    moment, "another one", "what's up?".

    It is idle if it has no number, no name and no other word than those of small talk and the `idle` ones of one
    language. Unlike small talk it may ask, and it may say something in its conversation.
    """
    return _says_nothing(text, _idle_phrases())


def _says_nothing(text: str, phrases: Mapping[str, Phrases]) -> bool:
    if not text.strip() or len(text) > MOST_CHARS:
        return False
    folded = _fold(visible(text).translate(_APOSTROPHES))
    if any(char.isnumeric() or unicodedata.category(char) in ("Sc", "Sm") for char in folded):
        return False
    words = _WORD.findall(folded)
    return not words or any(_consists(words, language, known) for language, known in phrases.items())


def _consists(words: Sequence[str], language: str, phrases: Phrases) -> bool:
    """Returns whether the words are a row of the language's phrases."""
    if language in UNSPACED:
        words = list("".join(words))
    if any(word not in phrases.words for word in words):
        return False
    longest = max(map(len, phrases.rows))
    reached = [True] + [False] * len(words)
    for end in range(1, len(words) + 1):
        begins = range(max(0, end - longest), end)
        reached[end] = any(reached[begin] and tuple(words[begin:end]) in phrases.rows for begin in begins)
    return reached[-1]


@cache
def _phrases() -> Mapping[str, Phrases]:
    """Returns the phrases of small talk of each language."""
    said, _ = _file()
    return {language: _read(phrases, language) for language, phrases in said.items()}


@cache
def _idle_phrases() -> Mapping[str, Phrases]:
    """Returns the phrases of small talk and the idle words of each language that has idle words."""
    said, idle = _file()
    shared = idle["any"]
    return {
        language: _read([*said[language], *shared, *idle[language]], language) for language in idle if language in said
    }


@cache
def _file() -> tuple[Mapping[str, list[str]], Mapping[str, list[str]]]:
    """Returns the phrases of small talk, and the idle words, by language."""
    read = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    shared, idle = read.pop("any"), read.pop("idle")
    return {language: [*shared, *phrases] for language, phrases in read.items()}, idle


def _read(phrases: Sequence[str], language: str) -> Phrases:
    """Returns phrases as words, or as characters where no spaces separate words."""
    split = (_WORD.findall(_fold(each)) for each in phrases)
    rows = frozenset(tuple("".join(words)) if language in UNSPACED else tuple(words) for words in split)
    return Phrases(rows, frozenset(word for row in rows for word in row))


def _fold(text: str) -> str:
    """Returns the text in lower case, without accents."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in plain if not unicodedata.combining(char))
