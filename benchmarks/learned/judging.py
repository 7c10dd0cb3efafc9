"""Judges what was learned from a conversation by the rules of its set.

A record is `right` if it says what must or may be learned. It is `invented` if it says what must not be learned, or a
number, a name or a value that nobody said. Else it is `unlisted`: the set does not say whether it is worth keeping.
Precision counts right records alone, so unlisted ones lower it. Junk is what is not right of memories, facts and
profile.
"""

import re
from calendar import day_name, month_name
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from app.core.language import fold, tokens, values
from benchmarks.learned.sets import PARTS, Conversation, Expected, says

JUDGED = ("memory", "fact", "profile")
_SENTENCE = re.compile(
    r"(?<=[.!?\u2026])\s+|(?<=[.!?\u2026][\"\u201d\u00bb])\s+|(?<=[\u3002\uff01\uff1f])|\n+|\s(?=(?:user|assistant): )"
)
"""Where a sentence ends: behind its full stop, with the quotation marks around it, or where an extract goes on with the
other speaker."""
_SPEAKER = re.compile(r"^(?:\(extract\) )?(?:user|assistant): ")
_NUMBER = re.compile(r"\d+")
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{2,}")
"""A name inside a sentence of a language that writes only names with a capital."""
NAMED_BY_CAPITALS = ("en", "es", "fr", "it", "pt")
MOST_SPAN = timedelta(days=400)
ALLOWED = {fold(name) for name in (*day_name, *month_name) if name} | {"user", "assistant", "the"}


@dataclass(frozen=True, slots=True)
class Derived:
    """A record that was learned. `value` is what must have been said: the object of a fact, the value of a field."""

    part: str
    text: str
    quote: str | None = None
    value: str = ""


@dataclass(slots=True)
class Tally:
    """Counts of one part, over conversations."""

    must: int = 0
    found: int = 0
    found_anywhere: int = 0
    stored: int = 0
    right: int = 0
    misquoted: int = 0
    """Right records whose quote is not in the message that says it."""
    invented: int = 0

    @property
    def recall(self) -> float | None:
        return self.found / self.must if self.must else None

    @property
    def precision(self) -> float | None:
        return self.right / self.stored if self.stored else None


@dataclass(slots=True)
class Judgement:
    """The counts by part, and what was wrong, in words."""

    parts: dict[str, Tally] = field(default_factory=lambda: {part: Tally() for part in PARTS})
    faults: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def invented(self) -> int:
        return sum(tally.invented for tally in self.parts.values())

    @property
    def junk(self) -> float | None:
        """The share of memories, facts and profile entries that is not right."""
        stored = sum(self.parts[part].stored for part in JUDGED)
        right = sum(self.parts[part].right for part in JUDGED)
        return (stored - right) / stored if stored else None


def judge(talk: Conversation, derived: Sequence[Derived], into: Judgement) -> None:
    """Adds the counts of one conversation to `into`."""
    for one in derived:
        _judge_record(talk, one, into)
    for must in talk.must:
        tally = into.parts[must.part]
        tally.must += 1
        found = any(must.met_by(one.text) for one in derived if one.part == must.part)
        tally.found += found
        tally.found_anywhere += any(must.met_by(one.text) for one in derived)
        if not found:
            into.faults.append(f"{talk.id}: missing {must.part}: {must.any_of[0]}")


def _judge_record(talk: Conversation, one: Derived, into: Judgement) -> None:
    tally = into.parts[one.part]
    tally.stored += 1
    why = invented(talk, one)
    if why is not None:
        tally.invented += 1
        into.faults.append(f"{talk.id}: invented {one.part} ({why}): {one.text[:300]}{_by(one)}")
        return
    entries = [each for each in (*talk.must, *talk.may) if each.met_by(one.text)]
    if one.part == "summary":
        tally.right += bool(entries) or not any(each.part == "summary" for each in talk.must)
    elif entries:
        tally.right += 1
        tally.misquoted += one.quote is not None and not any(_cites(talk, each, one.quote) for each in entries)
    else:
        into.faults.append(f"{talk.id}: unlisted {one.part}: {one.text[:300]}{_by(one)}")


def _by(one: Derived) -> str:
    return f" [{one.quote}]" if one.quote else ""


def _cites(talk: Conversation, entry: Expected, quote: str) -> bool:
    if entry.quote_from is None:
        return True
    return _plain(quote) in _plain(talk.messages[entry.quote_from]["content"])


def invented(talk: Conversation, one: Derived) -> str | None:
    """Returns why a record says what must not be learned or what nobody said, or None."""
    said = _plain(talk.text)
    for sentence in sentences(one.text) if one.part == "summary" else (one.text,):
        if one.part == "summary" and quoted(sentence, said):
            continue
        for each in talk.must_not:
            if each.met_by(sentence):
                return f"must not: {' '.join(each.words)}"
    return _unsaid(talk, one)


def _unsaid(talk: Conversation, one: Derived) -> str | None:
    said = f"{talk.text}\n{talk.user_id}"
    numbers = {*_NUMBER.findall(said), *_days(talk), *values(said)}
    if number := next((each for each in _NUMBER.findall(one.text) if not {each, each.lstrip("0")} & numbers), None):
        return f"number {number}"
    if talk.language in NAMED_BY_CAPITALS:
        plain = fold(said)
        for name in _NAME.findall(one.text):
            if fold(name) not in plain and fold(name) not in ALLOWED:
                return f"name {name}"
    if one.value and not any(says(said, (token.word,)) for token in tokens(one.value)):
        return f"value {one.value}"
    return None


def _days(talk: Conversation) -> set[str]:
    """Returns the numbers of dates near the conversation, which relative times may be reckoned to."""
    years = {str((talk.started_at + span).year) for span in (-MOST_SPAN, timedelta(), MOST_SPAN)}
    return {str(number) for number in range(1, 32)} | years


def sentences(text: str) -> Iterable[str]:
    return [part for part in _SENTENCE.split(text) if part.strip()]


def quoted(sentence: str, said: str) -> bool:
    """Returns whether a sentence stands word for word in the text of a conversation, behind its speaker at most."""
    return _plain(_SPEAKER.sub("", sentence)) in said


def unquoted(text: str, talk: Conversation) -> str:
    """Returns a text without the sentences of a conversation that it repeats word for word: they were said."""
    left = f" {_plain(text)} "
    said = {_plain(part) for message in talk.messages for part in sentences(message["content"])}
    for sentence in sorted(said, key=len, reverse=True):
        if sentence:
            left = left.replace(f" {sentence} ", " ")
    return left.strip()


def _plain(text: str) -> str:
    return " ".join(token.word for token in tokens(text))
