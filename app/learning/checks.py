"""What code checks of an item that a model learned from a conversation, in any language. Pure functions.

An item cites a quote that stands word for word in a message of the right role; the model's own fields say that it is
stated and of a kind that its part keeps; its numbers, dates, and the values of facts and profile stand in that message
or follow from its date. Nothing here knows what a sentence means: that is for the model, when it writes the item and
when it looks a second time (`prompts/second_look.md`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import SequenceMatcher
from sys import getsizeof
from typing import NamedTuple

from app.core.caches import kept_by_digest
from app.core.clock import parse_rfc3339, rfc3339
from app.core.language import (
    STOP_WORDS,
    Letters,
    is_unspaced,
    numbers,
    place_of,
    sentence_spans,
    sentences,
    values,
    words,
)
from app.learning.prompts import CitedItem, TranscriptLine
from app.retrieval.time_expressions import read_interval
from app.storage.text import terms

KEPT_BYTES = 4 << 20
"""The limit of the words of messages that are kept at hand: about those of one stretch."""
QUOTE_CHARS = 300
"""The limit of a quote that is stored, in characters."""


# --- The quote stands in a message ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quote:
    """Words of a message. `sentence` holds the whole sentences that they stand in; `before` is the message before,
    which the quote may answer."""

    line: TranscriptLine
    text: str
    sentence: str
    before: TranscriptLine | None

    @property
    def lines(self) -> list[TranscriptLine]:
        """The message of the quote and the one that it answers."""
        return [self.line] if self.before is None else [self.before, self.line]


LEFT_OUT = " \u2026 "
"""Stands in a quote for what was left out between two of its parts."""
_LEFT_OUT = re.compile(r"[\[(]?(?:\.{2,}|\u2026+)[\])]?")
LEAST_WORDS = 2
"""A part of a quote from which something was left out has so many words, or characters of a script without spaces."""


def find_quote(text: str, lines: Sequence[TranscriptLine], role: str | None = None) -> Quote | None:
    """Returns the place of a quote, or None if it stands nowhere. White space, case, accents and punctuation do not
    count. Sentences of one message may be left out between its parts: "I moved to Bergen … on 1 May". If several
    messages have it, one of `role` goes first, then the earliest."""
    parts = [part for piece in _LEFT_OUT.split(text) for part in sentences(piece)]
    for at in sorted(range(len(lines)), key=lambda at: (lines[at].role != role, at)):
        message = lines[at].text
        if spans := _place(text, message) or (_places(parts, message) if len(parts) > 1 else None):
            quoted = LEFT_OUT.join(message[start:end] for start, end in spans)[:QUOTE_CHARS]
            return Quote(lines[at], quoted, _sentences_at(spans, message), lines[at - 1] if at else None)
    return None


def _place(part: str, message: str, start: int = 0) -> list[tuple[int, int]] | None:
    span = _letters(message).place_of(_letters(part), start)
    return None if span is None else [span]


def _places(parts: Sequence[str], message: str) -> list[tuple[int, int]] | None:
    """Returns where the parts of a quote stand in a message, one behind the other, or None."""
    spans: list[tuple[int, int]] = []
    for part in parts:
        place = _place(part, message, spans[-1][1] if spans else 0)
        if place is None or len(words(part)) < LEAST_WORDS:
            return None
        spans += place
    return spans


def _sentences_at(spans: Sequence[tuple[int, int]], message: str) -> str:
    """Returns the whole sentences that spans of a message touch, as they stand there where they follow one another."""
    runs: list[tuple[int, int]] = []
    before = -1
    for at, (start, end) in enumerate(sentence_spans(message)):
        if any(start < last and end > first for first, last in spans):
            runs[-1:] = [(runs[-1][0], end)] if runs and before == at - 1 else [*runs[-1:], (start, end)]
            before = at
    return LEFT_OUT.join(message[start:end] for start, end in runs)


@kept_by_digest(KEPT_BYTES, lambda text: getsizeof(text.letters) + 100 * (len(text.begins) + len(text.ends)))
def _letters(text: str) -> Letters:
    return Letters.of(text)


# --- What each part keeps ---------------------------------------------------------------------------------------------


class Admitted(NamedTuple):
    """About whom and of what time an item of a part may be."""

    about: frozenset[str]
    holds: frozenset[str]


ANYBODY = frozenset({"user", "other", "nobody"})
ADMITTED: Mapping[str, Admitted] = {
    "memory": Admitted(ANYBODY, frozenset({"now", "past", "planned"})),  # a plan is worth remembering, as a plan
    "fact": Admitted(ANYBODY, frozenset({"now", "past"})),  # what is over has ended by the time of its message
    "profile": Admitted(frozenset({"user"}), frozenset({"now"})),
    "lesson": Admitted(frozenset({"nobody"}), frozenset({"now"})),
}
"""What is stated and of these is kept. What is guessed, asked or corrected is kept nowhere. A fact or an item of the
profile that is stated, but of somebody else or still to come, is kept as a memory: its quoted sentence."""
OF_WORK = frozenset({"issue", "solution", "learned"})
"""Memories of the agent's work, which the assistant's words show, too: "The cache key holds only the branch." They have
the trust of its messages."""


def refusal(part: str, item: CitedItem, lines: Sequence[TranscriptLine]) -> str | None:
    """Returns why an item may not be stored, or None: `not_stated`, `not_of_this_part` or `not_quoted`.

    The user's words show an item; a lesson may be shown by anybody's, and by what a tool gave back. Of the assistant's
    words a memory keeps promises ("I'll send you the list on Monday.") and what it found out in its work, if these are
    not about the user.
    """
    admitted = ADMITTED[part]
    if item.certainty != "stated" or item.holds == "corrected":
        return "not_stated"
    quote = find_quote(item.quote, lines, "user")
    if quote is None:
        return "not_quoted"
    if quote.line.role != "user" and part != "lesson":
        promise = item.about != "user" and item.holds == "planned"
        of_work = item.about == "nobody" and getattr(item, "memory_type", None) in OF_WORK
        if part != "memory" or quote.line.role != "assistant" or not (promise or of_work):
            return "not_quoted"
    return None if item.about in admitted.about and item.holds in admitted.holds else "not_of_this_part"


# --- Numbers, dates and values stand in the message -------------------------------------------------------------------

IN_WORDS, MORE_IN_WORDS = 12, 100
"""A number up to the first may be said in a word ("two kids"), which code cannot read; up to the second one in a
sentence that has no digits ("I turn forty"), where round numbers count by their first digits: "two thousand"."""
ROUND = 100
MAGNITUDES = (3, 4, 6, 8, 9)
"""Powers of ten that are said as a word or a letter behind a number: 15k, 3万, 18 millones, 2億, 1.5 billion."""
YEARS = 150
"""A number up to it may count years: "I'm 36" is a birth in 1989 or 1990."""
MOST_DAYS = 31
"""Of a longer time only the first and the last day may be named."""
MOST_TIMES = 4
"""So many times of one sentence are read: "from the 3rd to the 9th, or in May"."""


class Support(NamedTuple):
    """How a text stands to its message: `stands` is False if it says what the message does not. `worded`: in words of
    its own, so that it needs the second look."""

    stands: bool
    worded: bool

    def enough(self, *, looked: bool) -> bool:
        """Returns whether the text may be stored as it is, after the second look or without one."""
        return self.stands and (looked or not self.worded)


def numbers_said(text: str, lines: Sequence[TranscriptLine], sentence: str | None = None) -> Support:
    """Returns whether the numbers of a text stand in messages, follow from what they say and from their dates, or may
    be said there in words. `sentence`: the one that would have those words; None if any may have them."""
    wanted = numbers(text)
    if not wanted:
        return Support(stands=True, worded=False)
    spoken = values("\n".join(line.text for line in lines))
    following = frozenset[str]().union(*(_numbers_of_dates(line.text, line.at) for line in lines))
    missing = [meant for meant in wanted.values() if not meant & spoken and not meant <= following]
    in_digits = any(numbers(line.text) for line in lines) if sentence is None else bool(numbers(sentence))
    may_be_word = _is_small if in_digits else _is_said_in_words
    years = {int(line.at[:4]) for line in lines if line.at}
    worded = all(
        any(_said_otherwise(value, spoken, years) for value in meant) or all(map(may_be_word, meant))
        for meant in missing
    )
    return Support(stands=worded, worded=bool(missing))


def _is_small(value: str) -> bool:
    return value.isdecimal() and int(value) <= IN_WORDS


def _is_said_in_words(value: str) -> bool:
    """Returns whether a number has a short name: 15 and 15,000, but not 1,512."""
    return value.isdecimal() and int(value.rstrip("0") if int(value) >= ROUND else value) <= MORE_IN_WORDS


def _said_otherwise(value: str, spoken: frozenset[str], years: set[int]) -> bool:
    """Returns whether a number is another way to write one that was said: "8 pm" is 20:00, "2.5k" is 2,500, "36" is a
    birth in 1989 or 1990 and "since 1988" is 38 years."""
    if not value.isdecimal() or len(value) > len(str(10**12)):
        return False
    number = int(value)
    half_day = {number - 12} if 12 < number <= 24 else {number + 12} if number <= 12 else set()
    ages = {year - number - more for year in years for more in (0, 1)} if number <= max(years, default=0) else set()
    spans = {age for age in ages if age <= YEARS or number <= YEARS}
    if any(str(other) in spoken for other in half_day | spans):
        return True
    return any(_divided(value, power) in spoken for power in MAGNITUDES)


def _divided(value: str, power: int) -> str:
    """Returns a whole number divided by a power of ten, as `values` writes it: `_divided("2500", 3) == "2.5"`."""
    padded = value.zfill(power + 1)
    return f"{padded[:-power]}.{padded[-power:].rstrip('0')}".rstrip(".")


@kept_by_digest(KEPT_BYTES, lambda numbers: 100 * len(numbers))
def _numbers_of_dates(text: str, at: str) -> frozenset[str]:
    """Returns the numbers of the dates that a message names, such as "next Thursday", and of its own: years, months
    and days. A month or weekday may be of the year or week before or after."""
    sent = parse_rfc3339(at) if at else None
    if sent is None:
        return frozenset()
    days = {sent}
    for start, end in (times for sentence in sentences(text) for times in _times(sentence, sent)):
        length = (end - start).days + 1
        span = [start + timedelta(days=day) for day in range(length)] if length <= MOST_DAYS else [start, end]
        week = timedelta(days=7)
        days |= {*span} | ({span[0] - week, span[0] + week} if length == 1 else set())
    dates = {number for day in days for number in (day.year, day.month, day.day)}
    return frozenset(map(str, dates | {sent.year - 1, sent.year + 1}))


def _times(sentence: str, sent: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yields the first and last moment of the times that a sentence names, one after the other."""
    for _ in range(MOST_TIMES):
        interval = read_interval(sentence, sent)
        if interval is None:
            return
        yield datetime.fromtimestamp(interval.start / 1000, UTC), datetime.fromtimestamp((interval.end - 1) / 1000, UTC)
        if not interval.words or interval.words not in sentence:
            return
        sentence = sentence.replace(interval.words, " ", 1)


def time_said(given: str, lines: Sequence[TranscriptLine], sentence: str | None = None, *, looked: bool) -> str | None:
    """Returns a time that a model gives (RFC 3339) if the numbers of its day were said, else None. `sentence`: as for
    `numbers_said`."""
    try:
        at = parse_rfc3339(given)
    except ValueError:
        return None
    day = f"{at.year} {at.month} {at.day}"
    return rfc3339(at) if numbers_said(day, lines, sentence).enough(looked=looked) else None


ALIKE = 0.75
"""Words of at least `LEAST_LETTERS` letters with so much in common are forms of one: "vegetariano" and "vegetarian"."""
LEAST_LETTERS = 4


def stands(value: str, text: str) -> bool:
    """Returns whether every word of a value stands in a text, in one of its forms: "hiking" in "I hike". English stop
    words do not count, numbers do by value."""
    spelled = words(value)
    wanted = dict.fromkeys([word for word in spelled if word not in STOP_WORDS] or spelled)
    if is_unspaced(value):  # by pairs of characters: those of 青城山 stand in many a text
        return {*terms(value)} <= _words_and_stems(text)[1]
    return bool(wanted) and all(_word_stands(word, text) for word in wanted)


def _word_stands(word: str, text: str) -> bool:
    spoken, stems = _words_and_stems(text)
    if word in spoken or (word.isdecimal() and values(word) & values(text)):
        return True
    if {*terms(word)} <= stems:
        return True
    return not any(character.isdigit() for character in word) and any(_alike(word, other) for other in spoken)


@kept_by_digest(KEPT_BYTES, lambda sets: sum(100 + getsizeof(word) for words in sets for word in words))
def _words_and_stems(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Returns the words of a text and their stems."""
    return frozenset(words(text)), frozenset(terms(text))


def _alike(word: str, other: str) -> bool:
    if is_unspaced(word) or min(len(word), len(other)) < LEAST_LETTERS or word[0] != other[0]:
        return False
    return SequenceMatcher(None, word, other, autojunk=False).ratio() >= ALIKE


def value_shown(value: str, quote: Quote) -> Support:
    """Returns whether a fact's object or a profile's value stands in the quote's message or the one before. In other
    words, or in another language, it needs the second look; its numbers stand there or follow, whatever its words."""
    if stands(value, "\n".join(line.text for line in quote.lines)):
        return Support(stands=True, worded=False)
    return Support(numbers_said(value, quote.lines, quote.sentence).stands, worded=True)


def verbatim(text: str, quote: Quote) -> bool:
    """Returns whether a text stands in the quote's message word for word."""
    return place_of(text, quote.line.text) is not None
