"""Time expressions: reads the interval that a query names, and rates how well a memory's time fits it."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from itertools import pairwise

import numpy as np

from app.core.clock import to_ms, zone_named
from app.retrieval import calendar_spans
from app.retrieval.calendar_spans import Span
from app.retrieval.query_language import (
    NUMERIC_DATE,
    OTHER_LANGUAGES,
    WORD,
    anchors,
    fold,
    known_grammars,
    languages,
    library_pattern,
    likeliest,
    may_be_in,
    may_hold_time,
    read_date,
    speaks_of_hours,
)
from app.retrieval.time_grammar import Grammar, Reading
from app.storage.search import Floats, Ints

MAX_CHARS = 1_000
"""Characters of a query that are read. A longer query is rather a text than a question."""

_DAY_BEFORE = re.compile(
    r"(?<![\w.])(\d{1,2})(?:st|nd|rd|th|er|\.|日|号)?\s*"
    r"(?:-|–|—|to|and|bis(?: zum)?|und|al|a|y|au|et|e|ao|到|至|から)\s*(?:the )?\Z"
)
_QUESTION = re.compile(r"[^.!?。！？؟\n]+[?？؟]")
_SEVERAL = re.compile(r"[.!。！\n]\s*\w")
"""Matches in a text of more than one sentence."""
_PLAIN_AND = re.compile(r"\s*(?:and|und|y|e|et|和|与|跟|と)(?!\w)")


@dataclass(frozen=True, slots=True)
class TimeInterval:
    """An interval in milliseconds since 1970, end excluded, and the part of the query that names it (`words`)."""

    start: int
    end: int
    words: str


_SOME_DAY = datetime(2026, 1, 1, tzinfo=UTC)


def names_time(text: str) -> bool:
    """Returns whether a text names a day or another time, such as "lunes" or "tomorrow"."""
    return read_interval(text, _SOME_DAY) is not None


def read_interval(query: str, now: datetime, zone: tzinfo = UTC) -> TimeInterval | None:
    """Returns the interval that `query` names, relative to `now` in `zone`; None if it names none within the years 1 to
    9999.

    The first date in a language takes up to 0.4 s, all others take at most a few milliseconds.
    """
    text = fold(query[:MAX_CHARS])
    if not may_hold_time(text):
        return None
    try:
        local = now.astimezone(zone).replace(tzinfo=None)
        exact = local.replace(second=0, microsecond=0) if speaks_of_hours(text) else calendar_spans.midnight(local)
        return _interval(query[:MAX_CHARS], exact, zone)
    except (OverflowError, ValueError):
        return None


async def interval_of(query: str, now: datetime, timezone: str | None = None) -> TimeInterval | None:
    """Does the same as `read_interval` without blocking the event loop: queries that may name a time are read in a
    thread.

    `timezone`: an IANA name; None is UTC.
    """
    if not anchors.cache_info().currsize:
        await asyncio.to_thread(prepare)
    if not may_hold_time(fold(query[:MAX_CHARS])):
        return None
    return await asyncio.to_thread(read_interval, query, now, UTC if timezone is None else zone_named(timezone))


def prepare() -> None:
    """Reads the tables and compiles their patterns, which takes about a second. Otherwise the first queries do so."""
    for grammar in known_grammars():
        grammar.read("", "", datetime.min)  # noqa: DTZ901 (local time)
    may_hold_time("")


@lru_cache(maxsize=2048)
def asks_for_latest(query: str) -> bool:
    """Returns whether the query asks for the present state, or for what has changed.

    The latest of contradicting statements is then meant. In a text of several sentences only questions count: "I'm back
    now. Where did we stop?" does not ask for the latest.
    """
    text = fold(query[:MAX_CHARS])
    questions = _QUESTION.findall(text) or ([] if _SEVERAL.search(text) else [text])
    return any(grammar.latest.search(one) for one in questions for grammar in likeliest(one))


@lru_cache(maxsize=2048)
def _interval(query: str, now: datetime, zone: tzinfo) -> TimeInterval | None:
    """Reads the interval. `now`: local time without a zone."""
    reading = _best(query, now)
    if reading is None:
        return None
    start, end = (to_ms(moment.replace(tzinfo=zone)) for moment in reading.span)
    return TimeInterval(start, max(end, start + 1), query[reading.start : reading.end].strip())


# --- Readings ---------------------------------------------------------------------------------------------------------


def _best(query: str, now: datetime) -> Reading | None:
    text = fold(query)
    tried: list[Grammar] = []
    for grammar, likely in languages(text):
        tried.append(grammar)
        readings = [
            one
            for one in grammar.read(query, text, now)
            if (likely or not _doubtful(text, one, grammar)) and not any(each.rejects(text, one) for each in tried)
        ]
        found = _one_of(_apart(readings), text, grammar, now)
        if found is not None:
            return found
    return _numeric(text, now) or _by_library(query, now)


def _doubtful(text: str, reading: Reading, grammar: Grammar) -> bool:
    return not grammar.doubtful.isdisjoint(WORD.findall(text[reading.start : reading.end]))


def _apart(readings: Sequence[Reading]) -> list[Reading]:
    """Returns the longest of overlapping readings, in the order of the text."""
    chosen: list[Reading] = []
    for one in sorted(readings, key=lambda each: (each.start - each.end, not each.certain)):
        if all(one.end <= other.start or other.end <= one.start for other in chosen):
            chosen.append(one)
    return sorted(chosen, key=lambda each: each.start)


def _one_of(readings: Sequence[Reading], text: str, grammar: Grammar, now: datetime) -> Reading | None:
    """Returns a range if two readings form one; else the first reading whose time has begun, or the first one."""
    for one, other in pairwise(readings):
        found = _range(one, other, text, grammar)
        if found is not None:
            return found
    for one in readings:
        found = _days_of_month(one, text, grammar)
        if found is not None:
            return found
    certain = [_in_context(one, text, grammar, now) for one in readings if one.certain]
    return next((one for one in certain if one.span.start <= now), certain[0] if certain else None)


def _range(one: Reading, other: Reading, text: str, grammar: Grammar) -> Reading | None:
    """Returns the range from the start of one reading to the end of the other: "between May and July", 五月到七月."""
    gap = text[one.end : other.start]
    opened = grammar.between.search(text, 0, one.start)
    if not grammar.joins.fullmatch(gap) or (opened is None and _PLAIN_AND.match(gap)):
        return None
    first = one.span
    while one.every is not None and first.start > other.span.start:
        first = (
            first.moved(-1)
            if one.every == "year"
            else Span(first.start - 7 * calendar_spans.DAY, first.end - 7 * calendar_spans.DAY)
        )
    if first.start >= other.span.end:
        return None
    return Reading(opened.start() if opened else one.start, other.end, Span(first.start, other.span.end))


def _days_of_month(date: Reading, text: str, grammar: Grammar) -> Reading | None:
    """Returns the range from another day of the month to this date: "3 to 10 May"."""
    match = _DAY_BEFORE.search(text, 0, date.start)
    if match is None or date.span.end - date.span.start != calendar_spans.DAY or int(match[1]) >= date.span.start.day:
        return None
    opened = grammar.between.search(text, 0, match.start())
    if opened is None and _PLAIN_AND.match(text, match.end(1)):
        return None
    first = date.span.start.replace(day=int(match[1]))
    return Reading(opened.start() if opened else match.start(), date.end, Span(first, date.span.end))


def _in_context(reading: Reading, text: str, grammar: Grammar, now: datetime) -> Reading:
    """Applies the words around the reading that change it: "since", "before", "early"."""
    for names in (("early", "mid", "late"), ("since", "until", "before", "after")):
        for name in names:
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
    parts = name in ("early", "mid", "late")
    span = calendar_spans.part(reading.span, name) if parts else calendar_spans.open_span(reading.span, name, now)
    return reading if span is None else Reading(start, end, span)


def _numeric(text: str, now: datetime) -> Reading | None:
    match = NUMERIC_DATE.search(text)
    if match is None:
        return None
    language = next((grammar.code for grammar, _ in languages(text)), "en")
    span = read_date(match[0], "en" if match[0][:4].isdigit() else language, now)
    return None if span is None else Reading(match.start(), match.end(), span)


def _by_library(query: str, now: datetime) -> Reading | None:
    text = query.lower()
    for language in OTHER_LANGUAGES:
        if not may_be_in(language, text):
            continue
        match = library_pattern(language).search(text)
        span = None if match is None else read_date(match[0], language, now)
        if match is not None and span is not None and len(text) == len(query):
            return Reading(match.start(), match.end(), span)
    return None


HALF_LIFE = 0.5
"""Half-life of the feature in lengths of the interval: the day next to "yesterday" gets a quarter."""
LEAST_HALF_LIFE_MS = 3_600_000
"""Minimum half-life, an hour: nobody remembers to the minute."""
MOST_HALF_LIFE_MS = 91 * 86_400_000
"""Maximum half-life, a quarter of a year: "before 2020" is long, but its end is meant precisely."""


def when(time_ms: Ints, interval: tuple[int, int] | None) -> Floats:
    """Returns how well each time fits the interval (milliseconds since 1970, end excluded), shape (n,).

    The value is 1 inside the interval and halves with each half-life of distance. It is 0 everywhere without an
    interval.
    """
    if interval is None:
        return np.zeros(len(time_ms), np.float32)
    start, end = interval
    half_life = min(max(HALF_LIFE * (end - start), LEAST_HALF_LIFE_MS), MOST_HALF_LIFE_MS)
    distance = np.maximum(np.maximum(start - time_ms, time_ms - (end - 1)), 0)
    fit: Floats = np.exp2(distance * (-1 / half_life)).astype(np.float32)
    return fit
