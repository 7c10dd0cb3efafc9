"""Sentences of records: what their words say of their force (past, unreal, narrowed, additive, changed), whom they
speak of, and what they state as a whole. Statements that differ in a denial, a liking, a number or a date are compared.
"""

import re
import threading
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import Stemmer

from app.learning.words import Token, fold, number_words, tokens

_FILE = Path(__file__).parent / "data" / "reflection_words.toml"
_END = re.compile(r"(?<=[.!?;\u2026])\s+|\n+")
_ABBREVIATION = re.compile(r"\b(?:Dr|Mr|Mrs|Ms|St|Sra?|Prof|Fr|Nr|No|e\.g|z\.B|p\.m|a\.m|\d{1,2})\.$")
"""The full stop of an abbreviation or of a German ordinal, as in "am 3. Mai"."""
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
    return table("silent") | table("negations") | table("cessation") | table("changed")


# --- Whom a sentence speaks of ----------------------------------------------------------------------------------------

USER = "user"
_WORD = r"[^\W\d_][\w'\u2019.-]*"


def subject_of(before: str, verb: str, names: frozenset[str]) -> str | None:
    """Returns whom a sentence speaks of, from the words before its verb; None if it does not say.

    A person of the user is named by the relation, and by a name if there is one: `sister anna`.
    """
    clause = re.split(r"[,;:]|\b(?:and|but|und|aber|y|pero)\b", before)[-1] if before.strip(" ,;") else ""
    words = re.findall(rf"{_WORD}|\d+", clause)
    folded = [fold(word.replace("\u2019", "'")) for word in words]
    if verb.startswith("i'm") or any(word in table("self") for word in folded[-4:]):
        others = any(word in people() for word in folded)
        return None if others and folded[-1] not in table("self") else USER
    related = [(at, people()[word]) for at, word in enumerate(folded) if word in people()]
    if related:
        at, relation = related[-1]
        if "'s" in clause or (at + 1 < len(folded) and folded[at + 1] in ("of", "von", "de", "del")):
            return None
        following = list(takewhile(lambda word: word[0].isupper(), words[at + 1 :]))
        name = " ".join(fold(word) for word in following)
        return f"{relation} {name}".strip()
    if any(word in table("others") for word in folded):
        return None
    if all(word in table("silent") | table("changed") | table("negations") or not word[0].isalpha() for word in folded):
        return USER
    capital = [word for word in words if word[0].isupper() and fold(word) not in table("changed") | table("silent")]
    if capital and len(capital) >= len([word for word in folded if word not in table("silent") | table("changed")]):
        name = " ".join(fold(word) for word in capital)
        return USER if name in names else f"@{name}"
    return None


# --- What a sentence states as a whole --------------------------------------------------------------------------------

_TASTED = frozenset(
    "eat eating drink drinking esse isst essen trinke trinkt trinken comer como beber bebo can stand soporto aguanto "
    "kann leiden".split()
)
"""Verbs that say nothing beside a liking."""
_MOVED = frozenset("moved rescheduled postponed pushed verschoben verlegt aplazado aplazo pospuesto changed".split())
_HAVE = frozenset("have has habe hat tengo tiene".split())
_ONE = frozenset("ein eine einen un una uno a".split())
"""Number words that are articles, too."""
_VERB_OF_USER = re.compile(r"\w{3,}o|deje")
"""A Spanish verb in the first person."""


@dataclass(frozen=True, slots=True)
class PlainStatement:
    """What a sentence says without a value of its own: its stems, its sign, and the numbers and dates in it."""

    about: tuple[frozenset[str], ...]
    """The stems, once for each language."""
    negative: bool
    sentiment: int
    """1 for what is liked, -1 for what is disliked, else 0."""
    slots: tuple[tuple[str, frozenset[str]], ...]
    """Weekdays, dates and numbers by their type."""
    scheduled: bool
    by_user: bool
    sentence: Sentence

    @property
    def dated(self) -> bool:
        """Whether the sentence says when something is. One can have several on different days."""
        return any(token.word in table("scheduled") and token.word not in _HAVE for token in self.sentence.tokens)

    @property
    def ended(self) -> bool:
        """Whether the sentence says that something has ended, whenever it was done."""
        return self.sentence.has("cessation")

    @property
    def changed(self) -> bool:
        """Whether the sentence itself says that it was otherwise before."""
        return self.sentence.has("changed")


def statements_of(text: str) -> list[PlainStatement]:
    """Returns the plain statements of a text."""
    return [one for sentence in sentences(text) if (one := _statement(sentence)) is not None]


def _statement(sentence: Sentence) -> PlainStatement | None:
    words = [token.word for token in sentence.tokens]
    moved = not _MOVED.isdisjoint(words)
    ended = sentence.has("cessation")
    if not sentence.holds or sentence.has("additive") or (sentence.past and not moved and not ended):
        return None
    liked = any(f" {word} " in sentence.plain for word in table("likes"))
    disliked = any(f" {word} " in sentence.plain for word in table("dislikes"))
    slots: dict[str, set[str]] = {}
    for word in words:
        for name in ("weekdays", "months"):
            if word in table(name):
                slots.setdefault(name, set()).add(word)
        number = word if word[0].isdigit() else number_words().get(word)
        if number is not None and word not in _ONE:
            slots.setdefault("numbers", set()).add(number)
    without = {value for values in slots.values() for value in values} | number_words().keys()
    sentiment = -1 if disliked else 1 if liked else 0
    negative = sentence.negative
    if sentiment:
        without |= table("likes") | table("dislikes") | _TASTED
        sentiment, negative = (-sentiment if negative and not disliked else sentiment), False
    return PlainStatement(
        stems(word for word in words if word not in without and not word[0].isdigit()),
        negative,
        sentiment,
        tuple(sorted((name, frozenset(values)) for name, values in slots.items())),
        any(word in table("scheduled") for word in words),
        _first_person(words) or subject_of(sentence.text, "", frozenset()) == USER,
        sentence,
    )


def _first_person(words: Sequence[str]) -> bool:
    return any(word in table("self") for word in words) or any(_VERB_OF_USER.fullmatch(word) for word in words[:3])
