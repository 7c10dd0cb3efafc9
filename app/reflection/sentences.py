"""Sentences of records, and what their words say of their force: past, unreal, narrowed, additive, changed."""

import re
import threading
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import Stemmer

from app.learning.words import Token, tokens

_FILE = Path(__file__).parent / "data" / "reflection_words.toml"
_END = re.compile(r"(?<=[.!?;\u2026])\s+|\n+")
_ABBREVIATION = re.compile(r"\b(?:Dr|Mr|Mrs|Ms|St|Sra?|Prof|Fr|Nr|No|e\.g|z\.B|p\.m|a\.m)\.$")
_QUOTED = re.compile(r"[\"\u201c\u201e\u00ab][^\"\u201c\u201d\u00bb]*[\"\u201d\u201c\u00bb]")
_QUESTION = re.compile(r"\?\s*$|^\s*\u00bf")
_CONDITIONAL = re.compile(r"\bw\u00fcrde", re.IGNORECASE)
"""Folded it would be "wurde", which is no condition."""
LONGEST = 400
"""Characters. A longer sentence is no plain statement."""


@cache
def _file() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


@cache
def table(name: str) -> frozenset[str]:
    """Returns all words of a table, and its entries of several words."""
    return frozenset(word for words in _file()[name].values() for word in words)


@cache
def people() -> Mapping[str, str]:
    """Returns for each word for a person of the user its one name, such as `sister` for "hermana"."""
    return {word: name for name, words in _file()["people"].items() for word in words}


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence with its folded tokens."""

    text: str
    tokens: tuple[Token, ...]
    plain: str
    """The folded words with single spaces, and one at each end."""

    def has(self, name: str) -> bool:
        """Returns whether the sentence has a word or an expression of a table."""
        return any(f" {entry} " in self.plain for entry in table(name))

    @property
    def holds(self) -> bool:
        """Returns whether the sentence states something that holds at any time since: it asks, wishes, reports and
        restricts nothing."""
        return not (
            _QUESTION.search(self.text) or _CONDITIONAL.search(self.text) or self.has("unreal") or self.has("narrowed")
        )

    @property
    def past(self) -> bool:
        """Returns whether the sentence speaks of what was."""
        return self.has("past")

    @property
    def negative(self) -> bool:
        """Returns whether the sentence denies something or says that it has ended."""
        return any(token.word in table("negations") for token in self.tokens) or self.has("cessation")


def sentences(text: str) -> Iterator[Sentence]:
    """Yields the sentences of a text without what stands in quotation marks."""
    pieces: list[str] = []
    for piece in _END.split(_QUOTED.sub(" ", text)):
        if pieces and _ABBREVIATION.search(pieces[-1]):
            pieces[-1] = f"{pieces[-1]} {piece}"
        else:
            pieces.append(piece)
    for piece in pieces:
        if piece.strip() and len(piece) <= LONGEST:
            found = tuple(tokens(piece.strip()))
            yield Sentence(piece.strip(), found, f" {' '.join(one.word for one in found)} ")


_STEMMERS = [Stemmer.Stemmer(name) for name in ("english", "german", "spanish")]
_LOCK = threading.Lock()
"""Stemmers are not re-entrant."""


def stems(words: Iterable[str]) -> tuple[frozenset[str], ...]:
    """Returns the stems of the words that say what a sentence is about, once for each language. Sentences that are
    about the same have the same stems in one of them; so no language need be guessed."""
    left = [word for word in words if word not in _without()]
    with _LOCK:
        return tuple(frozenset(str(each.stemWord(word)) for word in left) for each in _STEMMERS)


@cache
def _without() -> frozenset[str]:
    return table("silent") | table("negations") | table("cessation")
