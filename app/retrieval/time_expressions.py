"""Time expressions: reads the interval that a query names, and rates how well a memory's time fits it.

    "What did we do last May?" -> may_hold_time (single words only, fast) -> languages -> Grammar.read -> one Reading
    -> TimeInterval(start, end, "last May") -> with_named_days (which memories say "4 December" of the coming Friday)
    -> settle_time (which reading counts: last Friday or the coming one) -> when(times, reading), for the ranking

dateparser reads full dates in all supported languages, and whole expressions in languages without a table of their own
(`time_words.toml`). It returns a point in time and its precision; the span follows from both.
"""

import asyncio
import re
import threading
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache, lru_cache
from itertools import pairwise
from typing import Literal

import numpy as np
from dateparser.date import DateDataParser
from dateparser.languages.loader import default_loader

from app.core.caches import CHARACTER_BYTES, ByteCache, kept
from app.core.clock import from_ms, to_ms, zone_named
from app.core.language import MONTHS, PLAIN_APOSTROPHES, number_of, sentences, spelled_numbers
from app.retrieval import time_grammar
from app.retrieval.decay import DAY_MS, MINUTE_MS
from app.retrieval.time_grammar import PARTS, TIME_ORDERS, WORD, Grammar, Reading, Span, TimeOrder, grammars
from app.storage.search import Bools, Columns, Floats, Ints
from app.storage.text import HAS_EVENT_TIME, TermIds, term_ids

HOUR_MS, YEAR_MS = 60 * MINUTE_MS, 366 * DAY_MS
MAX_CHARS = 1_000
"""Characters of a query that are read. A longer query is rather a text than a question."""

_DAY_BEFORE = re.compile(
    r"(?<![\w.])(\d{1,2})(?:st|nd|rd|th|er|\.|日|号)?\s*"
    r"(?:-|–|—|to|and|bis(?: zum)?|und|al|a|y|au|et|e|ao|到|至|から)\s*(?:the )?\Z"
)
_DAY_AFTER = re.compile(r"(?:the )?(\d{1,2})(?:[日号]|(?:st|nd|rd|th|\.)?(?![\w:/]|[.,-]\d))")
_QUESTION = re.compile(r"(?<![^.!?。！？؟\n])[^.!?。！？؟\n]+[?？؟]")
_SEVERAL = re.compile(r"[.!。！\n]\s*\w")
"""Matches in a text of more than one sentence."""
_SENTENCE_END = re.compile(r"(?<!\d)[.!?](?=\s)|[。！？\n]")
_PLAIN_AND = re.compile(r"\s*(?:and|und|y|e|et|和|与|跟|と)(?!\w)")


@dataclass(frozen=True, slots=True)
class TimeInterval:
    """An interval in milliseconds since 1970, end excluded, and the part of the query that names it (`words`).

    `coming`: the second reading of words that do not say whether they mean the time before or after now. In "What is
    on Friday?" the interval is the Friday before now and `coming` is the next one. `empty`: once it is settled, True if
    no memory is from this time. `other`: once it is settled, the earlier reading, if both have something
    of their own time: it counts by half (`OTHER_READING`).
    `offset`: milliseconds by which the clocks of the query's zone are ahead of UTC.
    """

    start: int
    end: int
    words: str
    coming: tuple[int, int] | None = None
    empty: bool = False
    other: tuple[int, int] | None = None
    offset: int = 0

    def settled(
        self, starts: Ints, ends: Ints, matched: Bools, happening: Bools, named: Ints | None = None
    ) -> "TimeInterval":
        """Returns the reading that counts for memories of these times (milliseconds, shape (n,)).

        `happening`: those that happen at their time and were not just told then. `named`: `Columns.named`.

        A plan for the coming Friday makes it that one, whatever was said on the last. If something happened on the
        last, too, that reading stays behind it. Without a plan it is the earlier one, unless nothing is from then.
        """

        def has(among: Bools, reading: tuple[int, int]) -> bool:
            found = among & (ends >= reading[0]) & (starts < reading[1])
            return bool(found.any() or (named is not None and (matched & when_named(named, reading)).any()))

        past = self.start, self.end
        if self.coming is None or not has(matched, self.coming):
            return replace(self, coming=None, empty=not has(matched, past))
        planned, happened = has(matched & happening, self.coming), has(matched & happening, past)
        if not planned and (happened or has(matched, past)):
            return replace(self, coming=None)
        start, end = self.coming
        return replace(self, start=start, end=end, coming=None, other=past if happened else None)

    @property
    def span(self) -> tuple[int, int]:
        """From the beginning of the first reading to the end of the last, in milliseconds."""
        coming = self.coming or (self.start, self.end)
        return min(self.start, coming[0]), max(self.end, coming[1])

    @property
    def readings(self) -> tuple[tuple[int, int], ...]:
        """The readings that count, the likeliest first, in milliseconds."""
        return ((self.start, self.end), *(() if self.other is None else (self.other,)))


LEAST_NAMED_MS, MOST_NAMED_MS = 6 * HOUR_MS, 14 * DAY_MS
"""An interval that is shorter or longer, such as "an hour ago" and "last month", is not looked for by its days."""
NEVER = -(1 << 62)


def named_days(interval: TimeInterval | None) -> list[tuple[bool, int, int]]:
    """Returns the days of the readings as texts may name them: whether with the year, a time of the day, and the id of
    the term. "tomorrow" is `@11-30` and `@2026-11-30`, as in "The interview is on 30 November". Those with a year are
    last."""
    if interval is None:
        return []
    days = list[tuple[bool, int, str]]()
    for start, end in ((interval.start, interval.end), interval.coming or (0, 0)):
        if LEAST_NAMED_MS <= end - start <= MOST_NAMED_MS:
            # by the clock of today a day beyond the change of the clocks may begin at 23:00 and is the next one; a
            # night, from 18:00 to 6:00, is of the day on which it begins: 6:00 - 7 hours is 23:00
            first, last = start + interval.offset + HOUR_MS, end + interval.offset - 7 * HOUR_MS
            for day in range(first // DAY_MS, last // DAY_MS + 1):
                at = min(max(day * DAY_MS - interval.offset, start), end - 1)
                date = from_ms(day * DAY_MS)[: len("2026-11-30")]
                days += [(False, at, f"@{date[5:]}"), (True, at, f"@{date}")]
    days.sort()
    ids = term_ids([name for _, _, name in days]).tolist()
    return [(with_year, at, term) for (with_year, at, _), term in zip(days, ids, strict=True)]


def with_named_days(columns: Columns, terms: TermIds, own: TermIds, days: Sequence[tuple[bool, int, int]]) -> Columns:
    """Returns the columns of a search for `terms`, the query's `own` and its `days`, with the times of the days that
    documents name. A day without a year is one within a year of the telling, of two the nearest."""
    if not days:
        return columns
    named, told = np.full(len(columns.rows), NEVER), columns.time if columns.told is None else columns.told
    for with_year, at, term in days:
        has = columns.term_counts[np.searchsorted(terms, term)] > 0
        named[has & (with_year | (np.abs(told - at) < np.minimum(np.abs(told - named), YEAR_MS)))] = at
    counting = np.isin(terms, own)
    return columns.having(term_counts=columns.term_counts[counting], df=columns.df[counting], named=named)


def settle_time(columns: Columns, now_ms: int, interval: TimeInterval | None) -> tuple[Columns, TimeInterval | None]:
    """Returns the columns in which what lies ahead has the time when it was told, so that no plan counts as the newest,
    and the reading of the interval that counts.

    What lasts begins and ends by the clock of the query's zone: 1 June, stored in UTC, at 22:00 of 31 May in Berlin.
    """
    told, starts, ends = columns.told, columns.time, columns.ends
    if told is None or ends is None:  # memories alone have them
        none_happen = np.zeros(len(starts), np.bool_)
        if interval is not None:
            interval = interval.settled(starts, starts, columns.matched, none_happen, columns.named)
        return columns, interval
    next_minute = now_ms - now_ms % MINUTE_MS + MINUTE_MS

    def known_since() -> Ints:
        ahead = starts > next_minute
        return np.where(ahead, told, starts) if ahead.any() else starts

    time = columns.memo.get("known since", (starts, told, next_minute), known_since)  # the same array for a minute
    if interval is not None:
        shift = np.where(ends > starts, interval.offset, 0)
        starts, ends = starts - shift, ends - shift
        happening = columns.plain & (columns.flags & HAS_EVENT_TIME != 0)
        interval = interval.settled(starts, ends, columns.matched, happening, columns.named)
    return columns.having(time=time, starts=starts, ends=ends), interval


def read_interval(query: str, now: datetime, zone: tzinfo = UTC) -> TimeInterval | None:
    """Returns the interval that `query` names, relative to `now` in `zone`; None if it names none within the years 1 to
    9999.

    The first date in a language takes up to 0.4 s, all others take at most a few milliseconds.
    """
    if not may_hold_time(fold_in_place(query[:MAX_CHARS])):
        return None
    try:
        key = _of_minute(query, now, zone)
        (interval,) = _read.get(key) or _read.keep(key, (_interval(*key),))
    except (OverflowError, ValueError):
        return None
    return interval


def _of_minute(query: str, now: datetime, zone: tzinfo) -> tuple[str, datetime, tzinfo]:
    """Returns what an interval depends on: what is read of the query, the minute in the zone, and the zone. Raises
    OverflowError."""
    return query[:MAX_CHARS], now.astimezone(zone).replace(second=0, microsecond=0), zone


_read = ByteCache[tuple[str, datetime, tzinfo], tuple["TimeInterval | None"]](
    8 << 20, lambda key, _: 2 * CHARACTER_BYTES * len(key[0])
)
"""What was read in a thread. The words of an interval are a part of the query."""


async def interval_of(query: str, now: datetime, timezone: str | None = None) -> TimeInterval | None:
    """Does the same as `read_interval` without blocking the event loop: queries that may name a time are read in a
    thread.

    `timezone`: an IANA name; None is UTC.
    """
    if not time_words.cache_info().currsize:
        await asyncio.to_thread(prepare)
    if not may_hold_time(fold_in_place(query[:MAX_CHARS])):
        return None
    zone = UTC if timezone is None else zone_named(timezone)
    with suppress(OverflowError):
        if (known := _read.get(_of_minute(query, now, zone))) is not None:
            return known[0]  # a change of threads takes longer than the rest of a search's analysis
    return await asyncio.to_thread(read_interval, query, now, zone)


def prepare() -> None:
    """Reads the tables and compiles their patterns, which takes about a second. Otherwise the first queries do so."""
    for grammar in known_grammars():
        grammar.read("", "", datetime.min)  # noqa: DTZ901 (local time)
    may_hold_time("")


@kept(8 << 20, longest=MAX_CHARS)
def asked_order(query: str) -> TimeOrder | None:
    """Returns which of contradicting or like statements the query asks for by their time; None if for none of them.

    `present`: what holds now, or what has changed ("now", "currently"). `latest`: the newest ("recently", "last").
    `earliest`: the oldest, or what held before a change ("Where did Mira live before?"). A query that asks for the
    newest and the oldest asks for neither. In a text of several sentences only questions count: "I'm back now. Where
    did we stop?" does not ask for the present.
    """
    text = fold_in_place(query[:MAX_CHARS])
    questions = _QUESTION.findall(text) or ([] if _SEVERAL.search(text) else [text])
    pairs = [(question, grammar) for question in questions for grammar in likeliest(question)]
    asked = {
        order for order in TIME_ORDERS if any(grammar.words[order].search(question) for question, grammar in pairs)
    }
    if "earliest" in asked:  # "What was the price before it changed?" has "changed", too
        return None if "latest" in asked else "earliest"
    return next((order for order in TIME_ORDERS if order in asked), None)


@kept(8 << 20, longest=MAX_CHARS)
def is_over(statement: str) -> bool:
    """Returns whether a statement of one sentence says that it no longer holds: "I used to live in Trier"."""
    if len(statement) > MAX_CHARS or len(sentences(statement)) > 1:
        return False
    text = fold_in_place(statement)
    grammars = likeliest(text)
    return any(grammar.words["formerly"].search(text) for grammar in grammars) and not any(
        grammar.words["present"].search(text) for grammar in grammars
    )


@kept(8 << 20, longest=MAX_CHARS)
def names_subject(query: str, words: str = "") -> bool:
    """Returns whether the query asks for more than a time: not "What happened yesterday?", "What did I do last?".

    `words`: the part of the query that names a time (`TimeInterval.words`). Without a time, and without a word that
    asks for the newest or the oldest, it is True.
    """
    if len(query) > MAX_CHARS or not (words or asked_order(query)):
        return True
    text = fold_in_place(query.replace(words, " ", 1) if words else query)
    return not any(grammar.names_no_subject(text) for grammar in likeliest(fold_in_place(query)))


def _interval(query: str, now: datetime, zone: tzinfo) -> TimeInterval | None:
    """Reads the interval. `now`: local time in the zone."""
    reading = _best(query, now)
    if reading is None:
        return None
    start, end = _milliseconds(reading.span, zone)
    coming = None if reading.coming in (None, reading.span) else _milliseconds(reading.coming, zone)
    offset = (zone.utcoffset(now) or timedelta()) // timedelta(milliseconds=1)
    return TimeInterval(start, end, query[reading.start : reading.end].strip(), coming, offset=offset)


def _milliseconds(span: Span, zone: tzinfo) -> tuple[int, int]:
    start, end = (to_ms(moment.replace(tzinfo=zone)) for moment in span)
    return start, max(end, start + 1)


# --- The language that a query may be in ------------------------------------------------------------------------------

_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_DECADE = re.compile(r"\d0(?:'?s|er)")
_QUARTER = re.compile(r"(?<![a-z0-9])[qt][1-4](?!\w)")
NUMERIC_DATE = re.compile(
    r"(?<![\w./-])(?:(?:19|20)\d\d([-./])\d{1,2}\1\d{1,2}|\d{1,2}([-./])\d{1,2}\2(?:19|20)\d\d|\d{1,2}/\d{1,2}/\d\d"
    r"|(?:19|20)\d\d-(?:0[1-9]|1[0-2]))(?![\d/-]|\.\d)"
)
_SHORT_DATE = re.compile(r"(?<![\w./-])\d{1,2}(?:/\d{1,2}|(?:st|nd|rd|th)|\.(?:\d{1,2}\.)?)(?![\w./])")
_SCRIPTS = {
    "ru": "Ѐ-ӿ", "uk": "Ѐ-ӿ", "el": "Ͱ-Ͽ", "ar": "؀-ۿ", "he": "֐-׿", "hi": "ऀ-ॿ", "ko": "가-힣", "th": "฀-๿",
}  # fmt: skip
_OTHER_SCRIPTS = re.compile(f"[{''.join(_SCRIPTS.values())}]")
_HAN, _KANA = re.compile("[㐀-鿿]"), re.compile("[ぁ-ヿ]")
_TRADITIONAL = "個週後間時這兩號禮現來從過開終變點鐘節聖誕"
_PLAIN = "个周后间时这两号礼现来从过开终变点钟节圣诞"


def fold_in_place(text: str) -> str:
    """Folds a text for comparison: lower case, Latin letters without accents, narrow forms, simplified Chinese.

    Each character stays at its place.
    """
    if text.isascii():
        return text.lower()
    return text.translate(_folding()).lower()


@cache
def _folding() -> dict[int, str]:
    table: dict[int, str] = PLAIN_APOSTROPHES | {
        0x3000: " ",
        **{ord(a): b for a, b in zip(_TRADITIONAL, _PLAIN, strict=True)},
    }
    for code in (*range(0xC0, 0x250), *range(0x1E00, 0x1F00)):
        base = unicodedata.normalize("NFKD", chr(code))[0]
        if base.isascii() and base.isalpha():
            table[code] = base
    table |= {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
    return table


@cache
def known_grammars() -> tuple[Grammar, ...]:
    """Returns the grammars of all languages that have a table."""
    return tuple(grammars(read_date))


@cache
def time_words() -> frozenset[str]:
    """Returns words of all languages with spaces; every expression without digits contains one of them."""
    words = {word for grammar in known_grammars() if grammar.spaced for word in grammar.time_words}
    for language in OTHER_LANGUAGES:
        if language not in _SCRIPTS:
            words |= {
                fold_in_place(word) for word in library_words(language) if len(word) > (3 if word.isascii() else 2)
            }
    return frozenset(words)


@cache
def _unspaced_time_words() -> re.Pattern[str]:
    words = {word for grammar in known_grammars() if not grammar.spaced for word in grammar.time_words} - {"日", "天"}
    longest = sorted(map(re.escape, words), key=len, reverse=True)
    return re.compile("|".join(longest) + r"|[\d½¼¾一二三四五六七八九十两几数今][日天]|先日|半年")


def may_hold_time(text: str) -> bool:
    """Returns False for most folded texts that name no time. It is fast."""
    if not time_words().isdisjoint(WORD.findall(text)):
        return True
    if not text.isascii() and (_unspaced_time_words().search(text) or _OTHER_SCRIPTS.search(text)):
        return True
    return bool(
        _SHORT_DATE.search(text)
        or _YEAR.search(text)
        or NUMERIC_DATE.search(text)
        or _QUARTER.search(text)
        or _DECADE.search(text)
    )


def languages(text: str) -> Iterator[tuple[Grammar, bool]]:
    """Yields the languages that the text may be written in, likeliest first, and whether no other one is likelier."""
    if _HAN.search(text) or _KANA.search(text):
        japanese = _KANA.search(text) is not None
        unspaced = [grammar for grammar in known_grammars() if not grammar.spaced]
        yield from (
            (grammar, True) for grammar in sorted(unspaced, key=lambda grammar: (grammar.code == "ja") != japanese)
        )
    words = frozenset(WORD.findall(text))
    evidence = _evidence(words)
    best = max(evidence.values())
    digits = re.search(r"\d", text) is not None
    hits = {grammar: len(words & grammar.time_words) for grammar in evidence}
    for grammar in sorted(evidence, key=lambda grammar: (-evidence[grammar], -hits[grammar])):
        if digits or hits[grammar]:
            yield grammar, evidence[grammar] == best


def likeliest(text: str) -> list[Grammar]:
    """Returns the languages that a folded text may be written in, judged by its function words."""
    if _HAN.search(text) or _KANA.search(text):
        return [grammar for grammar in known_grammars() if not grammar.spaced]
    evidence = _evidence(frozenset(WORD.findall(text)))
    best = max(evidence.values())
    return [grammar for grammar, count in evidence.items() if count == best]


def _evidence(words: frozenset[str]) -> dict[Grammar, int]:
    return {grammar: len(words & grammar.function_words) for grammar in known_grammars() if grammar.spaced}


# --- Readings ---------------------------------------------------------------------------------------------------------


def _best(query: str, now: datetime) -> Reading | None:
    folded, local = fold_in_place(query), now.replace(tzinfo=None)
    tried: list[Grammar] = []
    for grammar, likely in languages(folded):
        tried.append(grammar)
        text = _in_digits(folded, grammar.code)
        readings = [
            reading
            for reading in (*grammar.read(query, text, now), *_numeric(text, grammar.code, local))
            if (likely or grammar.doubtful.isdisjoint(WORD.findall(text[reading.start : reading.end])))
            and not any(other.rejects(text, reading) for other in tried)
        ]
        chosen = _chosen(_apart(readings), text, grammar, local)
        if chosen is not None:
            chosen = replace(chosen, start=len(text[: chosen.start].rstrip(" ")))
            return _meant(chosen, grammar.tense(_sentence(text, chosen)))
    return next(iter(_numeric(folded, "en", local)), None) or _by_library(query, now)


def _in_digits(folded: str, language: str) -> str:
    """Returns the text with its numbers in digits, each word at its place: "         25 days ago"."""
    text = folded
    for start, end, number in spelled_numbers(folded, WORD.findall(folded), language):
        if len(number) <= end - start:
            text = text[:start] + number.rjust(end - start) + text[end:]
    return text


def _sentence(text: str, reading: Reading) -> str:
    """Returns the sentence that the reading stands in."""
    before = max((match.end() for match in _SENTENCE_END.finditer(text, 0, reading.start)), default=0)
    after = _SENTENCE_END.search(text, reading.end)
    return text[before : after.end() if after else len(text)]


def _meant(reading: Reading, tense: Literal["gone", "coming"] | None) -> Reading:
    """Leaves one of two readings where the words around them say which."""
    if tense == "coming" and reading.coming is not None:
        return replace(reading, span=reading.coming, coming=None)
    if tense == "gone":
        return replace(reading, span=reading.gone or reading.span, coming=None)
    return reading


def _apart(readings: Sequence[Reading]) -> list[Reading]:
    """Returns the longest of overlapping readings, in the order of the text."""
    longest: list[Reading] = []
    for reading in sorted(readings, key=lambda reading: (reading.start - reading.end, not reading.certain)):
        if all(reading.end <= longer.start or longer.end <= reading.start for longer in longest):
            longest.append(reading)
    return sorted(longest, key=lambda reading: reading.start)


def _chosen(readings: Sequence[Reading], text: str, grammar: Grammar, now: datetime) -> Reading | None:
    """Returns a range if two readings form one; else the first reading whose time has begun, or the first one."""
    for earlier, later in pairwise(readings):
        joined = _range(earlier, later, text, grammar)
        if joined is not None:
            return joined
    for reading in readings:
        days = _days_of_month(reading, text, grammar) or _until_day(reading, text, grammar)
        if days is not None:
            return days
    clear = any(reading.certain and not reading.vague for reading in readings)
    certain = [
        _in_context(reading, text, grammar, now)
        for reading in readings
        if reading.certain and not (clear and reading.vague)
    ]
    return next((reading for reading in certain if reading.span.start <= now), certain[0] if certain else None)


def _range(earlier: Reading, later: Reading, text: str, grammar: Grammar) -> Reading | None:
    """Returns the range from the start of one reading to the end of the next: "between May and July", 五月到七月."""
    gap = text[earlier.end : later.start]
    opened = grammar.between.search(text, 0, earlier.start)
    if not grammar.joins.fullmatch(gap):
        return None
    if opened is None and _PLAIN_AND.match(gap) and not (earlier.certain and earlier.span.end == later.span.start):
        return None  # "in 2025 and 2026" is both
    span, coming = _joined(earlier.span, later.span, earlier.every), None
    if earlier.coming is not None and later.coming is not None:
        coming = _joined(earlier.coming, later.coming, earlier.every)
    if span is None:
        return None
    return Reading(opened.start() if opened else earlier.start, later.end, span, coming=coming)


def _joined(first: Span, last: Span, every: Literal["year", "week"] | None) -> Span | None:
    """Returns the span from `first`, or from an earlier occurrence of it, to the end of `last`. `every`: how often
    `first` occurs."""
    while every is not None and first.start > last.start:
        week = 7 * time_grammar.DAY
        first = first.moved(-1) if every == "year" else Span(first.start - week, first.end - week)
    return Span(first.start, last.end) if first.start < last.end else None


def _days_of_month(date: Reading, text: str, grammar: Grammar) -> Reading | None:
    """Returns the range from another day of the month to this date: "3 to 10 May"."""
    match = _DAY_BEFORE.search(text, 0, date.start)
    if match is None or date.span.end - date.span.start != time_grammar.DAY or int(match[1]) >= date.span.start.day:
        return None
    opened = grammar.between.search(text, 0, match.start())
    if opened is None and _PLAIN_AND.match(text, match.end(1)):
        return None
    day = int(match[1])
    coming = None if date.coming is None else Span(date.coming.start.replace(day=day), date.coming.end)
    span = Span(date.span.start.replace(day=day), date.span.end)
    return Reading(opened.start() if opened else match.start(), date.end, span, coming=coming)


def _until_day(date: Reading, text: str, grammar: Grammar) -> Reading | None:
    """Returns the range from this date to another day of the month: "November 3 to 10", 11月3日到10日."""
    join = grammar.joins.match(text, date.end)
    match = None if join is None else _DAY_AFTER.match(text, join.end())
    opened = grammar.between.search(text, 0, date.start)
    if match is None or (opened is None and _PLAIN_AND.match(text, date.end)):
        return None
    spans = [_until(span, int(match[1])) for span in (date.span, date.coming) if span is not None]
    if spans[0] is None:
        return None
    start = opened.start() if opened else date.start
    return Reading(start, match.end(), spans[0], coming=spans[1] if len(spans) > 1 else None)


def _until(date: Span, day: int) -> Span | None:
    """Returns the span from a date to a later day of its month; None if there is no such day."""
    if date.end - date.start != time_grammar.DAY or day <= date.start.day:
        return None
    last = time_grammar.day_span(date.start, day - date.start.day)
    return Span(date.start, last.end) if last.start.month == date.start.month else None


def _in_context(reading: Reading, text: str, grammar: Grammar, now: datetime) -> Reading:
    """Applies the words around the reading that change it: "since", "before", "early"."""
    for name in (*PARTS, "since", "until", "before", "after"):
        reading = _changed(reading, name, text, grammar, now)
    return reading


def _changed(reading: Reading, name: str, text: str, grammar: Grammar, now: datetime) -> Reading:
    start, end = reading.start, reading.end
    if name in grammar.ahead_of and (ahead := grammar.ahead_of[name].search(text, 0, start)):
        start = ahead.start()
    elif name in grammar.behind and (behind := grammar.behind[name].match(text, end)):
        end = behind.end()
    else:
        return reading

    def changed(span: Span | None) -> Span | None:
        if span is None:
            return None
        return time_grammar.part(span, name) if name in PARTS else time_grammar.open_span(span, name, now)

    span = changed(reading.span)
    if span is None:
        return reading
    return Reading(start, end, span, coming=changed(reading.coming), gone=changed(reading.gone))


def _numeric(text: str, language: str, now: datetime) -> Iterator[Reading]:
    """Yields dates in digits. The year comes first, or day and month stand in the order of the language."""
    for match in NUMERIC_DATE.finditer(text):
        span = read_date(match[0], "en" if match[0][:4].isdigit() else language, now)
        if span is not None:
            yield Reading(match.start(), match.end(), span)


# --- The library, for full dates and for languages without a table ----------------------------------------------------

OTHER_LANGUAGES = tuple("nl sv da nb fi pl cs ro tr id vi ru uk el ar he hi ko th".split())
"""Languages that only the library reads, with the library's words of time."""

_UNITS = {"day": "day", "week": "week", "month": "month", "year": "year"}
_UNSPACED = {"ko", "th"}
_UNCLEAR = {"कल", "morgen", "huom", "eilen", "seminggu", "sebulan", "setahun", "sehari", "minggu", "अगला", "يومين"}
"""Words of the library that also mean something else, or both the past and the future."""
_FURTHER = {
    "ar": {"أول أمس": -2, "أول من أمس": -2, "بعد غد": 2},
    "id": {"kemarin dulu": -2},
    "ko": {"내일 모레": 2},
    "th": {"เมื่อวานซืน": -2},
}
"""Phrases that hold a word of the library for yesterday or tomorrow and mean the day beside it, with their days."""
_HAN_DATE = re.compile(r"(?:(\d{4})年)?(0?[1-9]|1[0-2])月(\d{1,2})[日号號]")
_HAN_NUMERALS = re.compile("[一二三四五六七八九十]+")
_LOCK = threading.Lock()
"""Guards the library's caches, which threads share."""


def read_date(text: str, language: str, now: datetime) -> Span | None:
    """Returns the span of a whole text, or None if the library cannot read it. `now` is local, with its zone where
    hours are counted that passed.

    It takes about a millisecond, and 50 to 400 ms for the first text of a language.
    """
    if (days := _FURTHER.get(language, {}).get(text)) is not None:
        return time_grammar.day_span(now.replace(tzinfo=None), days)
    today = time_grammar.midnight(now.replace(tzinfo=None))
    in_digits = _HAN_NUMERALS.sub(lambda match: str(number_of(match[0])), text)
    if (han := _HAN_DATE.fullmatch(in_digits)) is not None:  # without a year the library reads the month as one
        year, month, day = han.groups("")
        text, language = f"{day} {MONTHS[int(month) - 1]} {year}", "en"
    with _LOCK:
        date = _parser(language, today).get_date_data(text)
    if date.date_obj is None:
        return None
    moment = date.date_obj.replace(tzinfo=None)
    if (passed := today - moment) % time_grammar.DAY:  # "2 uur geleden"
        counted = ("minute", time_grammar.MINUTE) if passed % time_grammar.HOUR else ("hour", time_grammar.HOUR)
        return time_grammar.ago([(counted[0], passed / counted[1])], now)
    return time_grammar.unit_span(_UNITS.get(date.period, "day"), moment)


@lru_cache(maxsize=64)
def _parser(language: str, today: datetime) -> DateDataParser:
    """Returns one parser for each day, since the library keeps the settings of each parser for ever."""
    return DateDataParser(
        languages=[language],
        settings={
            "RELATIVE_BASE": today,
            "PREFER_DATES_FROM": "past",
            "PARSERS": ["relative-time", "absolute-time"],
        },
    )


@cache
def library_pattern(language: str) -> re.Pattern[str]:
    """Returns a pattern of the expressions of one of `OTHER_LANGUAGES`, in lower case.

    It matches phrases ("gisteren"), counted units ("3 dagen geleden") and months with a year or a day, all from the
    library's own words. Words that are too short to be clear are left out.
    """
    months = "|".join(sorted(map(re.escape, _month_names(language)), key=len, reverse=True))
    dates = [rf"(?:\d{{1,2}}\.? )?(?:{months})\.? (?:19|20)\d\d", rf"\d{{1,2}}\.? (?:{months})"]
    if language == "ko":
        dates = [r"(?:(?:19|20)\d\d년 ?)?\d{1,2}월 ?\d{1,2}일", r"(?:19|20)\d\d년 ?\d{1,2}월"]
    alternatives = sorted(_phrases(language), key=len, reverse=True) + dates
    end = "" if language in _UNSPACED else r"(?!\w)"
    return re.compile(rf"(?<!\w)(?<!\d[.,/:])(?<![-–])(?:{'|'.join(alternatives)}){end}")


@cache
def counted_before(language: str) -> re.Pattern[str]:
    """Matches a text that ends in a unit, as before the last part of "2 uur en 30 minuten geleden"."""
    info = default_loader.get_locale(language).info
    units = sorted(
        (re.escape(word.lower()) for unit in ("hour", *_UNITS) for word in info[unit]), key=len, reverse=True
    )
    return re.compile(rf"\d\s*(?:{'|'.join(units)})\w*,?(?:\s+[^\W\d]{{1,3}})?\s+\Z")


def library_words(language: str) -> set[str]:
    """Returns words in lower case; every text that the language's pattern matches contains one of them."""
    words_of_phrases = (re.findall(r"[^\W\d_]+", re.sub(r"\\.", " ", phrase)) for phrase in _phrases(language))
    return {max(words, key=len) for words in words_of_phrases} | _month_names(language)


@cache
def _phrases(language: str) -> frozenset[str]:
    """Returns the language's phrases as regular expressions."""
    info = default_loader.get_locale(language).info
    fixed = {
        re.escape(phrase.lower())
        for when, phrases in info["relative-type"].items()
        for phrase in phrases
        if not re.search("hour|minute|second", when) and _tells(phrase)
    }
    counted = {
        re.sub(r"\(\\d\+\+.*?\)", r"\\d{1,4}(?:[.,]\\d{1,2})?", pattern.lower())
        for when, patterns in info["relative-type-regex"].items()
        for pattern in patterns
        if "second" not in when and _tells(re.sub(r"\(.*?\)|\W", "", pattern))
    }
    return frozenset(fixed | counted | set(map(re.escape, _FURTHER.get(language, ()))))


@cache
def _month_names(language: str) -> frozenset[str]:
    info = default_loader.get_locale(language).info
    return frozenset(word.lower() for month in MONTHS for word in info[month] if _tells(word))


def _tells(phrase: str) -> bool:
    return phrase.lower() not in _UNCLEAR and len(phrase) > (4 if phrase.isascii() else 1)


def _by_library(query: str, now: datetime) -> Reading | None:
    text = query.lower()
    for language in OTHER_LANGUAGES:
        if (script := _SCRIPTS.get(language)) is not None and not re.search(f"[{script}]", text):
            continue
        match = library_pattern(language).search(text)
        span = None if match is None else read_date(match[0], language, now)
        if match is None or span is None or len(text) != len(query):
            continue
        if counted_before(language).search(text, 0, match.start()):
            continue  # of "2 uur en 30 minuten geleden" the library reads the end
        return Reading(match.start(), match.end(), span)
    return None


# --- How well a time fits ---------------------------------------------------------------------------------------------

HALF_LIFE = 0.5
"""Half-life of the feature in lengths of the interval: the day next to "yesterday" gets a quarter."""
LEAST_HALF_LIFE_MS = 3_600_000
"""Minimum half-life, an hour: nobody remembers to the minute."""
MOST_HALF_LIFE_MS = 91 * 86_400_000
"""Maximum half-life, a quarter of a year: "before 2020" is long, but its end is meant precisely."""


def when_named(named: Ints, reading: tuple[int, int]) -> Bools:
    """Returns which documents name a day of a reading (`Columns.named`)."""
    return (named >= reading[0]) & (named < reading[1])


def when(time_ms: Ints, reading: tuple[int, int], ends_ms: Ints | None = None) -> Floats:
    """Returns how well each time fits a reading of the interval (milliseconds since 1970, end excluded), shape (n,).

    The value is 1 inside the interval and halves with each half-life of distance. `ends_ms`: the last moment of each,
    if some last longer: a plan for October fits October with 1, and each day of it with the root of 1/31, less than
    what is on that very day.
    """
    start, end = reading
    half_life = min(max(HALF_LIFE * (end - start), LEAST_HALF_LIFE_MS), MOST_HALF_LIFE_MS)
    last = time_ms if ends_ms is None else ends_ms
    gap = np.maximum(np.maximum(start - last, time_ms - (end - 1)), 0)
    distance = gap + (gap > 0) * np.minimum(last - time_ms, end - start)  # the day before is a day away
    fit: Floats = np.exp2(distance * (-1 / half_life)).astype(np.float32)
    if ends_ms is not None:
        fit *= np.sqrt(np.minimum((end - start) / (last - time_ms + 1), 1)).astype(np.float32)
    return fit
