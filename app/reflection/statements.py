"""Statements: what a sentence says as a whole, so that two that differ in a denial, a liking, a number or a date can be
compared. Pure functions."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from app.learning.words import number_words
from app.reflection.claims import USER, subject_of
from app.reflection.sentences import Sentence, sentences, stems, table

_TASTED = frozenset(
    "eat eating drink drinking esse isst essen trinke trinkt trinken comer como beber bebo can stand soporto aguanto "
    "kann leiden".split()
)
"""Verbs that say nothing beside a liking."""
_MOVED = frozenset("moved rescheduled postponed pushed verschoben verlegt aplazado aplazo pospuesto changed".split())
_ONE = frozenset("one ein eine einen un una uno a".split())
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
    def changed(self) -> bool:
        """Whether the sentence itself says that it was otherwise before."""
        return self.sentence.has("changed")


def statements_of(text: str) -> list[PlainStatement]:
    """Returns the plain statements of a text."""
    return [one for sentence in sentences(text) if (one := _statement(sentence)) is not None]


def _statement(sentence: Sentence) -> PlainStatement | None:
    words = [token.word for token in sentence.tokens]
    moved = any(
        word
        in {
            "moved",
            "rescheduled",
            "postponed",
            "pushed",
            "verschoben",
            "verlegt",
            "aplazado",
            "aplazo",
            "pospuesto",
            "changed",
        }
        for word in words
    )
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
