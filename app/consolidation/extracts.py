"""A summary without a language model: sentences of the conversation itself. Pure, for every script.

It begins with what the user said first and goes on with the sentences that carry the most, in the order in which they
were said. A sentence's worth is the mean weight of its terms. A term weighs more the oftener the conversation says it
and the fewer messages hold it (tf·idf over this conversation); once a chosen sentence has said it, it weighs a third,
so that the next sentence says something else (SumBasic: Nenkova & Vanderwende 2005).
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.consolidation.transcript import Line
from app.storage.text import UNSPACED, terms

VERSION = "extract.1"
"""Stands as the prompt's version in the source of what came of it."""
MAX_WORDS = 150
FIRST_WORDS = 50
"""Of the user's first message at most."""
SENTENCE_WORDS = 40
"""A longer sentence is cut: one log line or table must not take all of the room."""
SAID_AGAIN = 1 / 3
SHORT_TERMS = 4
"""A sentence of fewer terms counts as one of so many: "Yes, Berlin." alone tells little."""
CONSIDERED = 2_000
"""Sentences, the last ones: choosing goes over all of them for each sentence chosen."""

_END = re.compile(r"(?<=[.!?\u2026\u06d4\u061f\u0964])\s+|(?<=[\u3002\uff01\uff1f])\s*|\s*[\r\n]+\s*")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_WORD = re.compile(rf"[{UNSPACED}]{{1,2}}|[^\s{UNSPACED}]+")


@dataclass(frozen=True, slots=True)
class _Sentence:
    line: int
    """Index of its message."""
    text: str
    terms: tuple[str, ...]
    words: int


def extract(lines: Sequence[Line], words: int = MAX_WORDS) -> str:
    """At most `words` words, each run of sentences behind the name or role of its speaker. Two characters of a script
    written without spaces count as a word. Empty where the lines say nothing."""
    first = next((at for at, line in enumerate(lines) if line.role == "user"), 0)
    sentences = list(_sentences(lines, first))
    opening = list(_opening(sentences, first, min(FIRST_WORDS, words)))
    chosen = [*opening, *_choice(sentences, opening, lines, words - sum(one.words for one in opening))]
    return _joined(lines, sorted(chosen, key=sentences.index))


def _sentences(lines: Sequence[Line], first: int) -> Iterator[_Sentence]:
    """Those of the message `first`, and the last `CONSIDERED` of all."""
    found = [
        (at, text)
        for at, line in enumerate(lines)
        for part in _END.split(line.text)
        if (text := _cut(" ".join(part.split()), SENTENCE_WORDS))
    ]
    early = [(at, text) for at, text in found[:-CONSIDERED] if at == first][:CONSIDERED]
    for at, text in [*early, *found[-CONSIDERED:]]:
        yield _Sentence(at, text, tuple(dict.fromkeys(terms(text))), _count(text))


def _opening(sentences: Sequence[_Sentence], first: int, words: int) -> Iterator[_Sentence]:
    """The first sentences of the message `first`, as many as have room."""
    left = words
    for one in (one for one in sentences if one.line == first):
        if one.words > left:
            return
        left -= one.words
        yield one


def _choice(
    sentences: Sequence[_Sentence], opening: Sequence[_Sentence], lines: Sequence[Line], words: int
) -> Iterator[_Sentence]:
    """The best ones that fit, best first. An assistant's sentence counts as much less as its message is trusted less.
    Equal sentences are said once."""
    weights = _weights(sentences)
    said = {one.text for one in opening}
    for one in opening:
        _say(one, weights)
    waiting = [one for one in sentences if one.text not in said and one.terms]
    while waiting:
        waiting = [one for one in waiting if one.words <= words and one.text not in said]
        if not waiting:
            return
        best = max(waiting, key=lambda one: (_worth(one, weights) * lines[one.line].trust, -one.line))
        said.add(best.text)
        _say(best, weights)
        words -= best.words
        yield best


def _weights(sentences: Sequence[_Sentence]) -> dict[str, float]:
    often = Counter(term for one in sentences for term in one.terms)
    messages: dict[str, set[int]] = {}
    for one in sentences:
        for term in one.terms:
            messages.setdefault(term, set()).add(one.line)
    total = len({one.line for one in sentences})
    return {term: (1 + math.log(count)) * math.log(1 + total / len(messages[term])) for term, count in often.items()}


def _worth(one: _Sentence, weights: dict[str, float]) -> float:
    return sum(weights[term] for term in one.terms) / max(len(one.terms), SHORT_TERMS)


def _say(one: _Sentence, weights: dict[str, float]) -> None:
    for term in one.terms:
        weights[term] *= SAID_AGAIN


def _joined(lines: Sequence[Line], chosen: Sequence[_Sentence]) -> str:
    """One paragraph: no line of it can pass for a turn of the conversation."""
    parts: list[str] = []
    before: str | None = None
    for one in chosen:
        speaker = " ".join((lines[one.line].name or lines[one.line].role).split())
        parts.append(one.text if speaker == before else f"{speaker}: {one.text}")
        before = speaker
    return " ".join(parts)


def _count(text: str) -> int:
    return sum(1 for _ in _WORD.finditer(text))


def _cut(text: str, words: int) -> str:
    """Its first words; `…` says that something was cut."""
    for number, found in enumerate(_WORD.finditer(text)):
        if number == words:
            return text[: found.start()].rstrip() + " …"
    return text
