"""What code checks of an item that a model learned from a conversation, in any language. Pure functions.

An item is a statement or a lesson, as the model writes it. It passes if

- its quote stands word for word in a message, of the user for most items, and the model's own fields say that it is
  stated (`quoted`),
- its numbers and dates stand in that message or follow from the message's date (`numbers_said`, `time_said`),
- the words of a fact's object or of a value of the profile stand there (`value_shown`).

No function here knows what a sentence means: the model judges that, when it writes the item and when it looks a second
time (`prompts/second_look.md`).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
from app.learning.prompts import CitedItem, LearnedLesson, LearnedStatement, TranscriptLine
from app.memories.repository import own_time
from app.memories.schemas import EventPrecision
from app.retrieval.time_expressions import read_interval
from app.storage.text import terms

KEPT_BYTES = 4 << 20
"""The most bytes of a cache of what was read in messages: about the messages of one prompt."""
QUOTE_CHARS = 300
"""The limit of a quote that is stored, in characters."""


# --- The quote stands in a message ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quote:
    """Words of a message.

    `line`: the message. `text`: the quoted words as they stand there. `sentence`: the whole sentences that these words
    are of. `before`: the message before, which may be the question that the quote answers.
    """

    line: TranscriptLine
    text: str
    sentence: str
    before: TranscriptLine | None

    @property
    def lines(self) -> list[TranscriptLine]:
        """The message before, if there is one, and the message of the quote."""
        return [self.line] if self.before is None else [self.before, self.line]


LEFT_OUT = " \u2026 "
"""Stands in a stored quote between two of its parts: "I moved to Bergen … on 1 May"."""
_LEFT_OUT = re.compile(r"[\[(]?(?:\.{2,}|\u2026+)[\])]?")
LEAST_WORDS = 2
"""Fewest words of each part of a quote from which something was left out; in scripts without spaces, characters."""


def find_quote(text: str, lines: Sequence[TranscriptLine], role: str | None = None) -> Quote | None:
    """Returns the message and the place of a quote, or None if no message has it.

    White space, case, accents and punctuation do not count. Sentences of one message may be left out between the parts
    of the quote: "I moved to Bergen … on 1 May". If several messages have the quote, a message of `role` is taken, and
    of these the earliest.
    """
    parts = [part for piece in _LEFT_OUT.split(text) for part in sentences(piece)]
    for at in sorted(range(len(lines)), key=lambda at: (lines[at].role != role, at)):
        message = lines[at].text
        if spans := _place(text, message) or (_places(parts, message) if len(parts) > 1 else None):
            quoted = LEFT_OUT.join(message[start:end] for start, end in spans)[:QUOTE_CHARS]
            return Quote(lines[at], quoted, _sentences_at(spans, message), lines[at - 1] if at else None)
    return None


def _place(part: str, message: str, start: int = 0) -> list[tuple[int, int]] | None:
    """Returns where a part of a quote first stands in a message from `start` on, as a list of one span, or None."""
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
    """Returns the whole sentences of a message that some spans touch. Sentences that follow one another stay together
    as they stand there; between others stands `LEFT_OUT`."""
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


OF_WORK = frozenset({"issue", "solution", "learned"})
"""Kinds of statements about the agent's work. The assistant's words show these, too: "The cache key holds only the
branch." Such a memory has the trust of the assistant's messages."""


def quoted(item: CitedItem, lines: Sequence[TranscriptLine], *, of_user: bool = False) -> Quote | str:
    """Returns the quote of an item, or why it may not be stored: `not_stated`, `not_quoted` or `not_of_this_part`.

    A statement must quote the user. What is not about the user (`of_user`) may quote the assistant, if that promises
    something ("I'll send you the list on Monday.") or tells what it has learned in its work. A lesson may quote
    anybody, also what a tool gave back, and is not about a person.
    """
    if item.certainty != "stated":
        return "not_stated"
    quote = find_quote(item.quote, lines, "user")
    if quote is None:
        return "not_quoted"
    if isinstance(item, LearnedStatement):
        may_quote = quote.line.role == "assistant" and not of_user
        said = quote.line.role == "user" or (may_quote and (item.holds == "planned" or item.kind in OF_WORK))
        return quote if said else "not_quoted"
    is_lesson = isinstance(item, LearnedLesson) and item.about == "work" and item.holds == "now"
    return quote if is_lesson else "not_of_this_part"


# --- Numbers, dates and values stand in the message -------------------------------------------------------------------

IN_WORDS, MORE_IN_WORDS = 12, 100
"""A number that code does not find may be said in a word, which code cannot read: one up to `IN_WORDS` anywhere ("two
kids"), one up to `MORE_IN_WORDS` in a sentence without digits ("I turn forty"). There a round number counts without its
zeros: 2,000 is "two thousand"."""
ROUND = 100
"""Numbers from here on may be round."""
MAGNITUDES = (3, 4, 6, 8, 9)
"""Powers of ten that are said as a word or a letter behind a number: 15k, 3万, 18 millones, 2億, 1.5 billion."""
YEARS = 150
"""A number up to it may count years: "I'm 36" is a birth in 1989 or 1990."""
MOST_DAYS = 31
"""Of a span of more days, only the first and the last day may be named."""
MOST_TIMES = 4
"""At most so many times are read in a sentence. "On Monday, and again in May" has two."""


class Support(NamedTuple):
    """Whether a message supports a text. `stands`: False if the text says what the message does not. `worded`: it says
    it in words of its own, so that it needs the second look."""

    stands: bool
    worded: bool

    def enough(self, *, looked: bool) -> bool:
        """Returns whether the text may be stored as it is, after the second look or without one."""
        return self.stands and (looked or not self.worded)


def numbers_said(text: str, lines: Sequence[TranscriptLine], sentence: str | None = None) -> Support:
    """Returns whether messages support the numbers of a text: the numbers stand there, follow from the messages' dates
    and what they say of time ("since 1988" is 38 years), or may be said there in words ("two kids").

    `sentence`: the sentence that would have those words; None if any sentence may.
    """
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


def sentence_said(sentence: str, lines: Sequence[TranscriptLine], earlier: str | None) -> bool:
    """Returns whether the numbers of a sentence stand in the lines, in their times or in the earlier text."""
    before = replace(lines[0], text=earlier) if earlier else None
    times = replace(lines[0], text=" ".join(line.at for line in lines))
    return numbers_said(sentence, [*lines, times, *([before] if before else [])]).enough(looked=False)


def _is_small(value: str) -> bool:
    """Returns whether a number may be a word among digits: "two" in "two kids, 7 and 9"."""
    return value.isdecimal() and int(value) <= IN_WORDS


def _is_said_in_words(value: str) -> bool:
    """Returns whether a number has a short name: 15 and 15,000, but not 1,512."""
    return value.isdecimal() and int(value.rstrip("0") if int(value) >= ROUND else value) <= MORE_IN_WORDS


def _said_otherwise(value: str, spoken: frozenset[str], years: set[int]) -> bool:
    """Returns whether a number is another way to write a number that was said: 20 of "8 pm", 2500 of "2.5k", 1989 or
    1990 of "I'm 36", 38 of "since 1988".

    `spoken`: the numbers of the messages. `years`: those of the messages' dates.
    """
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
    """Returns the years, months and days of the dates that a message names, such as "next Thursday", and of the day
    `at` on which it was sent. "Thursday" may be that of the week before or after, "May" that of the year before or
    after."""
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
    """Yields the first and the last moment of each time that a sentence names: "on Monday, and again in May" has two
    times."""
    for _ in range(MOST_TIMES):
        interval = read_interval(sentence, sent)
        if interval is None:
            return
        yield datetime.fromtimestamp(interval.start / 1000, UTC), datetime.fromtimestamp((interval.end - 1) / 1000, UTC)
        if not interval.words or interval.words not in sentence:
            return
        sentence = sentence.replace(interval.words, " ", 1)


class TimeSaid(NamedTuple):
    """A time that messages support: the beginning of its day, month or year, unless it is an instant."""

    at: str
    precision: EventPrecision

    @property
    def last(self) -> str:
        """The last moment of it: that of the day for a day."""
        return str(own_time(self.at, self.precision)["event_until"])


_TIME = re.compile(r"(\d{4})(?:-(\d\d))?(?:-(\d\d))?(?:T(\d\d):(\d\d)(:\d\d(?:\.\d+)?)?(Z|[+-]\d\d:\d\d)?)?")


def time_said(
    given: str | None, lines: Sequence[TranscriptLine], sentence: str | None = None, *, looked: bool
) -> TimeSaid | None:
    """Returns the time that a model gives if messages support the numbers of its date, else None: "2026-12" is a month,
    "2026-12-04T00:00:00Z" a day, and so is an instant whose hour nobody said. `sentence`: as for `numbers_said`."""
    match = _TIME.fullmatch((given or "").strip())
    if match is None:
        return None
    year, month, day, hour, minute, second, zone = match.groups()
    midnight = f"{year}-{month or '01'}-{day or '01'}T00:00:00Z"
    try:
        at = parse_rfc3339(f"{midnight[:10]}T{hour}:{minute}{second or ':00'}{zone or 'Z'}" if hour else midnight)
    except ValueError:
        return None
    numbers_of_date = " ".join(str(int(part)) for part in (year, month, day) if part)
    support = numbers_said(numbers_of_date, lines, sentence)
    if not support.enough(looked=looked) or (support.worded and _otherwise(at, lines, sentence)):
        return None
    is_instant = hour is not None and (hour, minute) != ("00", "00")
    # "half past four" has no 30
    clock = f"{int(hour)} {'' if minute in ('00', '15', '30', '45') else minute}" if is_instant else ""
    if is_instant and numbers_said(f"{numbers_of_date} {clock}", lines, sentence).enough(looked=looked):
        return TimeSaid(rfc3339(at), "instant")
    return TimeSaid(rfc3339(parse_rfc3339(midnight)), "day" if day else "month" if month else "year")


def _otherwise(at: datetime, lines: Sequence[TranscriptLine], sentence: str | None) -> bool:
    """Returns whether a sentence names times that code can read, and a day is none that they may mean: "on Saturday" is
    one of the next or last three, "on the 14th" that of any month, "in May" that of the year before or after, too."""
    if sentence is None or not lines or not lines[-1].at:
        return False
    spans = list(_times(sentence, parse_rfc3339(lines[-1].at)))

    def may_mean(start: datetime, end: datetime) -> bool:
        away = abs(at.date() - start.date())
        if end - start >= timedelta(days=1):
            return any(start <= at + timedelta(days=days) <= end for days in (0, 365, 366, -365, -366))
        same_weekday = at.weekday() == start.weekday() and away <= timedelta(days=21)
        return away <= timedelta(days=1) or same_weekday or (at.day == start.day and away <= timedelta(days=366))

    return bool(spans) and not any(may_mean(start, end) for start, end in spans)


ALIKE = 0.75
"""Two words of at least `LEAST_LETTERS` letters with so much in common are forms of the same word: "vegetariano" and
"vegetarian"."""
LEAST_LETTERS = 4


def stands(value: str, text: str) -> bool:
    """Returns whether every word of a value stands in a text, in one of its forms: "hiking" in "I hike". English stop
    words do not count, numbers do by value."""
    spelled = words(value)
    wanted = dict.fromkeys([word for word in spelled if word not in STOP_WORDS] or spelled)
    if is_unspaced(value):  # 青城山 has no spaces: its pairs of characters must stand in the text
        return {*terms(value)} <= _words_and_stems(text)[1]
    return bool(wanted) and all(_word_stands(word, text) for word in wanted)


def _word_stands(word: str, text: str) -> bool:
    """Returns whether a text has a word: as it is, with the same stem, as the same number, or in a similar form."""
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
    """Returns whether two words are forms of the same word by their letters: "vegetariano" and "vegetarian"."""
    if is_unspaced(word) or min(len(word), len(other)) < LEAST_LETTERS or word[0] != other[0]:
        return False
    return SequenceMatcher(None, word, other, autojunk=False).ratio() >= ALIKE


def value_shown(value: str, quote: Quote) -> Support:
    """Returns whether the quote's message, or the message before it, supports a fact's object or a value of the
    profile. A value in other words, or in another language, needs the second look; its numbers must be supported in
    any case."""
    if stands(value, "\n".join(line.text for line in quote.lines)):
        return Support(stands=True, worded=False)
    return Support(numbers_said(value, quote.lines, quote.sentence).stands, worded=True)


def verbatim(text: str, quote: Quote) -> bool:
    """Returns whether a text stands in the quote's message word for word."""
    return place_of(text, quote.line.text) is not None
