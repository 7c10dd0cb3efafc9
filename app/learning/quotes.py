"""Quotes of a conversation: where they stand, the sentence around them, and what can be seen of a text by its form."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from app.learning.prompts import TranscriptLine
from app.learning.words import Token, languages, tokens
from app.storage.text import UNSPACED

QUOTE_CHARS = 300
"""The limit of a quote that is stored, in characters."""
FRAGMENT = 4
"""The number of tokens of a sentence that has no room for a verb beside a subject, so that it may begin with a name."""
_UNSPACED = re.compile(f"[{UNSPACED}]")
_LATIN_WORDS = re.compile(r"[A-Za-z]+(?: [A-Za-z]+){2}")
_PARTS = re.compile(r"\s*(?:\.{3}|\u2026|\[\.{3}\]|\[\u2026\])\s*")
_SENTENCE_END = re.compile(r"(?<=[.!?\u2026\u061f\u06d4\u0964])\s+|(?<=[\u3002\uff01\uff1f])|[\r\n]+")
_NO_END = re.compile(
    r"\b(?:(?:am|im|der|den|dem|des|vom|zum|beim|bis|ab|seit)\s\d{1,2}|Dr|Mr|Mrs|Ms|St|Sr|Sra|Prof|Hr|bzw|ca)\.\s+$"
)
"""What ends in a full stop and does not end a sentence: a German ordinal, an abbreviation."""


@dataclass(frozen=True, slots=True)
class Quote:
    """Words of a message. `sentence` holds the whole sentences that they stand in; `before` is the message before."""

    line: TranscriptLine
    text: str
    sentence: str
    before: TranscriptLine | None


def find(text: str, lines: Sequence[TranscriptLine], role: str | None = None) -> Quote | None:
    """Returns the place of a quote, or None if nobody said it.

    Case, accents, punctuation and spaces do not count; words do, in their order. A quote may leave words out by "...".
    If several messages contain it, those of `role` go first, then the earliest.

    Args:
        text: The words as the model gives them.
        lines: The conversation.
        role: The role whose messages are preferred.
    """
    parts = [found for part in _PARTS.split(text) if (found := tokens(part))]
    if not parts:
        return None
    order = sorted(range(len(lines)), key=lambda at: (lines[at].role != role, at))
    for at in order:
        span = _span(parts, tokens(lines[at].text))
        if span is not None:
            said = lines[at].text
            before = lines[at - 1] if at else None
            return Quote(lines[at], said[span[0] : span[1]][:QUOTE_CHARS], _sentences(said, span), before)
    return None


def _span(parts: Sequence[Sequence[Token]], said: Sequence[Token]) -> tuple[int, int] | None:
    """Returns where the parts stand in this order, as a span of characters."""
    words, place, start = [token.word for token in said], 0, None
    for part in parts:
        wanted = [token.word for token in part]
        found = _index(words, wanted, place)
        if found is None:
            return None
        start = said[found].start if start is None else start
        place = found + len(wanted)
    assert start is not None
    return start, said[place - 1].end


def _index(words: Sequence[str], wanted: Sequence[str], start: int) -> int | None:
    for at in range(start, len(words) - len(wanted) + 1):
        if words[at] == wanted[0] and list(words[at : at + len(wanted)]) == list(wanted):
            return at
    return None


def _sentences(text: str, span: tuple[int, int]) -> str:
    """Returns the sentences that the span touches."""
    ends = _ends(text)
    touched = [(start, end) for start, end in pairwise(ends) if start < span[1] and end > span[0]]
    return text[touched[0][0] : touched[-1][1]].strip() if touched else text


def sentences(text: str) -> list[str]:
    """Returns the sentences of a text that are not empty."""
    return [part for start, end in pairwise(_ends(text)) if (part := text[start:end].strip())]


def _ends(text: str) -> list[int]:
    found = [each.end() for each in _SENTENCE_END.finditer(text)]
    return [0, *(end for end in found if not _NO_END.search(text[max(0, end - 12) : end])), len(text)]


def capitalised(text: str) -> list[str]:
    """Returns the words of a text that begin with a capital inside a sentence, and its numbers. In a fragment such as
    "Dresden, first of March." the first word counts, too."""
    found: list[str] = []
    for sentence in sentences(text):
        said = [sentence[token.start : token.end] for token in tokens(sentence)]
        found += [word for word in said[len(said) > FRAGMENT :] if word[:1].isupper() and len(word) > 1]
        found += [word for word in said if word[:1].isdigit()]
    return found


def other_language(text: str, sentence: str) -> bool:
    """Returns whether a text is in another language than a sentence, as far as their words tell. A few words tell
    nothing."""
    if len(tokens(text)) < FRAGMENT:
        return False
    if bool(_UNSPACED.search(text)) != bool(_UNSPACED.search(sentence)):
        return True
    if all(_UNSPACED.search(each) for each in (text, sentence)):
        return bool(_LATIN_WORDS.search(text)) and not _LATIN_WORDS.search(sentence)
    return not languages(text) & languages(sentence)
