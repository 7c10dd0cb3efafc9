"""Words by which evidence is judged, and the tokens of a text that they are compared with."""

import re
import tomllib
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from app.storage.text import UNSPACED

_FILE = Path(__file__).parent / "data" / "evidence_words.toml"
_TOKEN = re.compile(rf"[{UNSPACED}]|(?:(?![{UNSPACED}])[\w\u0300-\u036f])+(?:['-](?:(?![{UNSPACED}])\w)+)*")
STATES = frozenset(("住", "定居", "工作", "喜欢", "讨厌", "好き", "大好", "嫌い", "苦手", "过敏", "アレルギー"))
"""Words without spaces for what somebody is or likes."""
_APOSTROPHES = str.maketrans("\u2019\u02bc\u2018\u00b4`\uff07", "''''''")
_DETECTED_BY = ("first_subject", "first_other", "first_verbs", "prepositions", "negations", "common")
"""Tables whose words tell the language of a text."""


@dataclass(frozen=True, slots=True)
class Token:
    """A folded word, or one character of a script without spaces, with its place in the text."""

    word: str
    start: int
    end: int


def fold(word: str) -> str:
    """Returns a word in lower case, without accents."""
    if word.isascii():
        return word.casefold()
    plain = unicodedata.normalize("NFKD", word.casefold())
    return "".join(character for character in plain if not unicodedata.combining(character))


def tokens(text: str) -> list[Token]:
    """Returns the tokens of a text in order."""
    even = text.translate(_APOSTROPHES)
    return [Token(fold(found[0]), found.start(), found.end()) for found in _TOKEN.finditer(even)]


@dataclass(frozen=True, slots=True)
class WordTable:
    """The words of one table, in some languages."""

    words: frozenset[str]
    unspaced: tuple[str, ...]

    def __contains__(self, word: object) -> bool:
        return word in self.words

    def found_in(self, text: str) -> bool:
        """Returns whether the text contains one of the words."""
        return any(token.word in self.words for token in tokens(text)) or any(word in text for word in self.unspaced)

    def phrases_in(self, text: str) -> list[str]:
        """Returns the entries of one or more words that stand in the text, word for word."""
        said = f" {' '.join(token.word for token in tokens(text))} "
        return [phrase for phrase in self.words if f" {phrase} " in said]

    def phrased_in(self, text: str) -> bool:
        """Returns whether the text contains an entry, of one or more words. `found_in` is for entries of one word."""
        return bool(self.phrases_in(text)) or any(word in text for word in self.unspaced)

    def place_in(self, text: str) -> int:
        """Returns the last place of a word without spaces in the text, or -1."""
        return max((text.rfind(word) for word in self.unspaced), default=-1)


def without_compounds(text: str) -> str:
    """Returns a text without compounds that contain a negation or a person and mean neither, such as 不过 ("but")."""
    for compound in table("compounds").unspaced:
        if compound in text:
            text = text.replace(compound, " " * len(compound))
    return text


@cache
def _file() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


@cache
def table(name: str, languages: frozenset[str] = frozenset()) -> WordTable:
    """Returns a table with its words of these languages; without languages, with all of its words."""
    found = _file()[name]
    kept = [words for language, words in found.items() if language != "unspaced"]
    if languages and "words" not in found:
        kept = [found[language] for language in sorted(languages) if language in found]
    words = frozenset(fold(word) for words in kept for word in words)
    return WordTable(words, tuple(found.get("unspaced", ())))


@cache
def _languages() -> Mapping[str, frozenset[str]]:
    """Returns the words that tell each language."""
    names = {name for each in _DETECTED_BY for name in _file()[each] if name != "unspaced"}
    return {
        name: frozenset(fold(word) for each in _DETECTED_BY for word in _file()[each].get(name, ())) for name in names
    }


@lru_cache(maxsize=1 << 12)
def languages(text: str, least: int = 0) -> frozenset[str]:
    """Returns the languages that a text may be written in: those with the most of their words in it; all of them if
    none has `least` words there."""
    said = {token.word for token in tokens(text)}
    counts = {name: len(said & words) for name, words in _languages().items()}
    best = max(counts.values())
    return frozenset(name for name, count in counts.items() if count == best or best < least)


@cache
def number_words() -> Mapping[str, str]:
    """Returns the digits of number words."""
    return {fold(word): str(number) for word, number in _file()["numbers"]["words"].items()}


def said_by(predicate: str) -> tuple[WordTable, ...]:
    """Returns the tables of words that say a predicate, such as those of "works_for"; none for an unknown predicate."""
    of = {fold(word) for word in re.split(r"[\W_]+", predicate) if word}
    return tuple(words for names, words in _predicates() if names & of)


def said_by_unspaced(text: str) -> list[WordTable]:
    """Returns the tables of predicates of which a text has a word without spaces that says what somebody is."""
    return [words for _, words in _predicates() if any(word in text for word in words.unspaced if word in STATES)]


@cache
def _predicates() -> tuple[tuple[frozenset[str], WordTable], ...]:
    return tuple(
        (
            frozenset(map(fold, each["of"])),
            WordTable(frozenset(map(fold, each["words"])), tuple(each.get("unspaced", ()))),
        )
        for each in _file()["said_by"].values()
    )


def no_value(text: str) -> bool:
    """Returns whether a text is what models write where there is nothing to say, such as "unknown"."""
    plain = " ".join(token.word for token in tokens(text))
    return not plain or plain in table("no_values")


def other_subject(said: Sequence[Token], at: int, text: str, spoken: frozenset[str]) -> bool:
    """Returns whether a token of a text is a pronoun for somebody else, in one of these languages. The Spanish article
    "el" is none."""
    if said[at].word not in table("other_subject", spoken):
        return False
    article = said[at].word == "el" and text[said[at].start : said[at].end].casefold() == "el"
    return not article or any(token.word in table("stating_verbs", spoken) for token in said[at + 1 : at + 2])


def active(text: str) -> bool:
    """Returns whether a sentence says what its speaker does as a hobby, as in "I play the cello"."""
    return table("activities").found_in(text)


def weight(word: str) -> float:
    """Returns how much a word counts. A character of a script without spaces is no whole word."""
    return 0.7 if len(word) == 1 and not word.isascii() else 1


def mentions(text: str, name: str) -> bool:
    """Returns whether a text has all words of a name."""
    words = {token.word for token in tokens(name)}
    return bool(words) and words <= {token.word for token in tokens(text)}
