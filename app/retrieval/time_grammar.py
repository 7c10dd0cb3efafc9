"""Finds time expressions in one language: tables of words and templates (`data/time_words.toml`) become patterns, and
what they match becomes a span of the calendar in local time: days, weeks (from Monday), months, seasons, years,
holidays."""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from app.core.language import FUNCTION_WORDS, number_of

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
FEW_UNITS = 4
"""Number of units in "the last few weeks"."""
OPEN_YEARS = 10
"""Number of years that "before 2020" reaches back."""

_CLOCK = {"hour": HOUR, "minute": MINUTE}
_AROUND = {"hour": 30, "minute": 5}
"""How many minutes "2 hours ago" reaches to both sides of that moment."""
_FINER = {"hour": "minute", "month": "week", "quarter": "month", "year": "month", "decade": "year"}
"""What "half an hour ago" and "1.5 years ago" are precise to."""
_MONTHS = {"month": 1, "quarter": 3, "year": 12, "decade": 120}
_DAYS = {"day": 1, "week": 7, "weekend": 7, "fortnight": 14}
_DAY_PARTS = {"morning": (5, 12), "afternoon": (12, 18), "evening": (18, 24), "night": (18, 30)}
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "winter": 12}
"""First month of each season, as meteorologists count them in the north."""


class Span(NamedTuple):
    """A span of time; the start is included, the end is excluded."""

    start: datetime
    end: datetime

    def moved(self, years: int) -> "Span":
        """Returns the span moved by whole years."""
        return Span(add_months(self.start, 12 * years), add_months(self.end, 12 * years))


def midnight(moment: datetime) -> datetime:
    """Returns the start of the day."""
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def add_months(moment: datetime, months: int) -> datetime:
    """Returns the same day of another month, or the month's last day if it is shorter."""
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    first = moment.replace(year=year, month=month + 1, day=1)
    last = (first.replace(day=28) + 4 * DAY).replace(day=1) - DAY
    return first.replace(day=min(moment.day, last.day))


def day_span(now: datetime, offset: int = 0) -> Span:
    """Returns the day that lies `offset` days after today."""
    start = midnight(now) + offset * DAY
    return Span(start, start + DAY)


def day_part(day: Span, part: str | None) -> Span:
    """Returns the day's morning, afternoon, evening or night, which ends at six; the whole day for None."""
    if part is None:
        return day
    first, last = _DAY_PARTS[part]
    return Span(day.start + first * HOUR, day.start + last * HOUR)


def unit_span(unit: str, now: datetime, offset: int = 0) -> Span:
    """Returns the calendar's day, week, weekend, month and so on that contains `now`, or the one `offset` units
    later."""
    if unit == "hour":
        start = now.replace(minute=0, second=0, microsecond=0) + offset * HOUR
        return Span(start, start + HOUR)
    today = midnight(now)
    if unit == "day":
        return day_span(now, offset)
    if unit in _DAYS:
        start = today - today.weekday() * DAY + offset * _DAYS[unit] * DAY
        return Span(start + 5 * DAY, start + 7 * DAY) if unit == "weekend" else Span(start, start + _DAYS[unit] * DAY)
    months = _MONTHS[unit]
    index = (today.year * 12 + today.month - 1) // months * months
    start = add_months(datetime(index // 12, index % 12 + 1, 1), offset * months)  # noqa: DTZ001 (local time)
    return Span(start, add_months(start, months))


def latest_weekend(now: datetime) -> Span:
    """Returns the weekend that began last."""
    this = unit_span("weekend", now)
    return this if this.start <= now else unit_span("weekend", now, -1)


Amounts = Sequence[tuple[str, float]]
"""Units with their counts, the smallest last: `[("hour", 2), ("minute", 30)]`. A count of 0 means a few."""


def back(amounts: Amounts, now: datetime) -> datetime:
    """Returns the moment so long before `now`: hours and minutes that passed, other units of the calendar."""
    for unit, count in amounts:
        if unit in _CLOCK:
            zone, passed = now.tzinfo, count * _CLOCK[unit]
            now = now - passed if zone is None else (now.astimezone(UTC) - passed).astimezone(zone)
        elif unit in _DAYS:
            now -= count * _DAYS[unit] * DAY
        else:
            months = count * _MONTHS[unit]
            now = add_months(now, -int(months)) - (months - int(months)) * 30 * DAY
    return now


def ago(amounts: Amounts, now: datetime) -> Span:
    """Returns the calendar's unit that contains the moment so long ago, in local time; for hours and minutes, some time
    around that moment. The smallest unit of the amounts counts, of "1.5 years" the month."""
    unit, count = amounts[-1]
    if count == 0:
        return Span(ago([(unit, 6)], now).start, ago([(unit, 2)], now).end)
    unit = unit if count == int(count) else _FINER.get(unit, unit)
    point = back(amounts, now)
    if unit in _CLOCK:
        around = [back([("minute", sign * _AROUND[unit])], point).replace(tzinfo=None) for sign in (1, -1)]
        return Span(*around)
    return unit_span({"fortnight": "week", "decade": "year"}.get(unit, unit), point.replace(tzinfo=None))


def ahead(amounts: Amounts, now: datetime) -> Span:
    """Returns the calendar's unit that lies so far in the future."""
    unit, count = amounts[-1]
    if count == 0:
        return Span(ago([(unit, -2)], now).start, ago([(unit, -6)], now).end)
    return ago([(unit, -count) for unit, count in amounts], now)


def rolling(amounts: Amounts, now: datetime) -> Span:
    """Returns the time from so long ago up to now, in whole days unless hours or minutes are counted."""
    start = back([(unit, count or FEW_UNITS) for unit, count in amounts], now).replace(tzinfo=None)
    now = now.replace(tzinfo=None)
    return Span(start, now) if amounts[-1][0] in _CLOCK else Span(midnight(start), midnight(now) + DAY)


def until_back(amounts: Amounts, now: datetime) -> Span:
    """Returns the time that ended so long ago: "more than two weeks ago"."""
    stop = rolling(amounts, now).start
    return Span(add_months(stop, -12 * OPEN_YEARS), stop)


def weekday_span(now: datetime, weekday: int, shift: int | None, *, of_week: bool = False) -> Span:
    """Returns a weekday (0 is Monday) relative to `now`.

    `shift`: None and -1 mean the last one before today, -2 the one before that, 1 the next one after today, 0 that of
    this week. With `of_week` the shift counts weeks.
    """
    today = midnight(now)
    if of_week or shift == 0:
        return day_span(today - today.weekday() * DAY + weekday * DAY, 7 * (shift or 0))
    gone = (today.weekday() - weekday) % 7 or 7
    if shift == 1:
        return day_span(today, (weekday - today.weekday()) % 7 or 7)
    return day_span(today, -gone - (7 if shift == -2 else 0))


def months_span(now: datetime, month: int, months: int, shift: int | None, year: int | None) -> Span | None:
    """Returns a month, a quarter or a season of `year`: so many `months` from `month` on, of a winter from December.
    Without a year it follows the rules of `yearly`."""

    def of(year: int) -> Span:
        start = midnight(now).replace(year=year, month=month, day=1)
        return Span(start, add_months(start, months))

    return of(year) if year is not None else yearly(of, now, shift)


def yearly(of: Callable[[int], Span | None], now: datetime, shift: int | None) -> Span | None:
    """Returns one occurrence of a yearly span.

    `shift`: None means the last one that has begun, -1 the last one that is over, -2 the one before, 1 the first one to
    come, 0 the nearest. `of` returns the span of a year, or None if it is unknown.
    """
    around = [span for year in range(now.year - 3, now.year + 3) if (span := of(year)) is not None]
    if shift == 0:
        return min(around, key=lambda span: max(span.start - now, now - span.end), default=None)
    if shift == 1:
        return next((span for span in around if span.start > now), None)
    gone = [span for span in around if (span.start if shift is None else span.end) <= now]
    place = -2 if shift == -2 else -1
    return gone[place] if len(gone) >= -place else None


def week_of_year(now: datetime, week: int, shift: int | None, year: int | None) -> Span | None:
    """Returns a week by its number in ISO 8601. `shift` is that of `yearly`. None if that year has no week 53."""

    def of(year: int) -> Span | None:
        try:
            start = datetime.fromisocalendar(year, week, 1)
        except ValueError:
            return None
        return Span(start, start + 7 * DAY)

    return of(year) if year is not None else yearly(of, now, shift)


def nth_unit(span: Span, unit: str, nth: int) -> Span | None:
    """Returns the nth unit of a span, counted from 1, or from -1 at its end; None if the span has fewer.

    Units lie one after the other from the edge of the span: the first week of May is 1 to 7 May, the last one 25 to 31
    May. A weekend is a Saturday and the day after it.
    """
    if unit == "weekend":
        saturday = nth_weekday(span, 5, nth)
        return None if saturday is None else Span(saturday.start, saturday.end + DAY)

    def edge(count: int) -> datetime:
        start = span.start if nth > 0 else span.end
        return start + count * _DAYS[unit] * DAY if unit in _DAYS else add_months(start, count * _MONTHS[unit])

    nth_span = Span(edge(nth - 1), edge(nth)) if nth > 0 else Span(edge(nth), edge(nth + 1))
    return nth_span if span.start <= nth_span.start and nth_span.end <= span.end else None


def nth_weekday(span: Span, weekday: int, nth: int) -> Span | None:
    """Returns the nth such weekday of a span, counted from 1, or from -1 at its end; None if the span has fewer."""
    if nth > 0:
        first = span.start + (weekday - span.start.weekday()) % 7 * DAY
        day = day_span(first, 7 * (nth - 1))
    else:
        last = span.end - DAY
        day = day_span(last, 7 * (nth + 1) - (last.weekday() - weekday) % 7)
    return day if span.start <= day.start and day.end <= span.end else None


def half(span: Span, nth: int) -> Span:
    """Returns the first half of a span for 1, else the second one: in whole months, or in whole days of one month."""
    months = (span.end.year - span.start.year) * 12 + span.end.month - span.start.month
    middle = add_months(span.start, months // 2) if months > 1 else span.start + (span.end - span.start).days // 2 * DAY
    return Span(span.start, middle) if nth == 1 else Span(middle, span.end)


PARTS = ("early", "mid", "late")


def part(span: Span, which: str) -> Span:
    """Returns the first, middle or last third of a span, in whole days. A span of less than three days stays whole."""
    third = (span.end - span.start) // 3
    if third < DAY:
        return span
    marks = span.start, midnight(span.start + third), midnight(span.start + 2 * third), span.end
    at = PARTS.index(which)
    return Span(marks[at], marks[at + 1])


def open_span(span: Span, which: str, now: datetime) -> Span | None:
    """Returns the span of `since`, `after`, `until` or `before` a span; None if it makes no sense, as "since
    tomorrow"."""
    end = midnight(now) + DAY
    start = span.end if which == "after" else span.start
    if which in ("since", "after"):
        return Span(start, end) if start < end else None
    stop = span.start if which == "before" else span.end
    return Span(add_months(stop, -12 * OPEN_YEARS), stop)


class Holidays:
    """Holidays by rule, and by table for those of lunar calendars."""

    def __init__(self, rules: Mapping[str, str], lunar: Mapping[str, str]) -> None:
        self._rules = rules
        self._lunar = {
            name: {int(date[:4]): datetime.fromisoformat(date) for date in dates.split()}
            for name, dates in lunar.items()
        }

    def span(self, name: str, year: int) -> Span | None:
        """Returns the holiday of that year; None if the table does not include the year."""
        kind, *rest = self._rules[name].split()
        if kind == "nth":
            month, weekday, nth = map(int, rest)
            return nth_weekday(unit_span("month", datetime(year, month, 1)), weekday, nth)  # noqa: DTZ001 (local time)
        if kind in ("easter", "lunar"):
            first, days = map(int, rest[-2:])
            feast = easter(year) if kind == "easter" else self._lunar[rest[0]].get(year)
            return None if feast is None else Span(feast + first * DAY, feast + (first + days) * DAY)
        start = datetime.fromisoformat(f"{year:04}-{kind}")
        return Span(start, start + int(rest[0]) * DAY)


def long_weekend(span: Span) -> Span:
    """Returns the span extended by the weekend that it touches or bridges to."""
    first, last = span.start.weekday(), (span.end - DAY).weekday()
    start = span.start - (first + 2) * DAY if first < 2 else span.start
    if first == 6:
        start -= DAY
    end = span.end + (6 - last) * DAY if last >= 3 else span.end
    return Span(start, end)


def easter(year: int) -> datetime:
    """Returns Easter Sunday of the Gregorian calendar (Meeus, Astronomical Algorithms, 1991)."""
    a, (b, c) = year % 19, divmod(year, 100)
    d, e = divmod(b, 4)
    g = (8 * b + 13) // 25
    h = (19 * a + b - d - g + 15) % 30
    i, k = divmod(c, 4)
    length = (32 + 2 * e + 2 * i - h - k) % 7
    m = (a + 11 * h + 22 * length) // 451
    month, day = divmod(h + length - 7 * m + 114, 31)
    return datetime(year, month, day + 1)  # noqa: DTZ001 (local time)


# --- Patterns of a language -------------------------------------------------------------------------------------------

_TABLES = Path(__file__).parent / "data" / "time_words.toml"
WORD = re.compile(r"[^\W\d_]+")
_YEAR = r"(?P<year>(?:19|20)\d\d)(?!\d)"
_DAY_OF_MONTH = r"(?:0?[1-9]|[12]\d|3[01])(?!\d)"
_HAN_DAY = "(?:[二三]?十[一二三四五六七八九]?|[一二三四五六七八九])"
_HAN_NUMBER = "[二三四五六七八九]?十[一二三四五六七八九]?|[一二两三四五六七八九]"
_DIGITS = r"[1-9]\d{0,2}(?:[.,]\d{3})+|\d{1,4}[.,]\d{1,2}|\d/\d|\d{0,3}[½¼¾]|\d{1,4}"
"""1,000 and 1.000 are a thousand; 1.5, 1,5, 1½ and 3/2 are one and a half."""
_PARTS_OF_ONE = {"½": 0.5, "¼": 0.25, "¾": 0.75}
_AND = "and|und|y|e|et|和|零|と"
_OR = "-|–|—|~|～|to|or|bis|oder|a|o|ou|u|到|至|或|から|か"
_SHIFTS = {"before": -2, "last": -1, "this": 0, "next": 1}
_RECURS: Mapping[str, Literal["year", "week"]] = {
    "month": "year",
    "bare_month": "year",
    "season": "year",
    "weekday": "week",
    "bare_weekday": "week",
    "nth": "year",
}
K = TypeVar("K")
TimeOrder: TypeAlias = Literal["present", "latest", "earliest"]
TIME_ORDERS: tuple[TimeOrder, ...] = ("present", "latest", "earliest")

ReadDate = Callable[[str, str, datetime], Span | None]
"""Reads a date as it is written in a language. Takes the text, the language and the current local time."""


WordTable: TypeAlias = Mapping[str, Any]
"""The table of a language in `data/time_words.toml`, whose head explains the entries. Words are separated by spaces;
what stands for "no words" is an empty text."""


@dataclass(frozen=True, slots=True)
class Reading:
    """An expression at text[start:end].

    `every`: the period in which it recurs, if the occurrence was guessed. `certain`: False for a word that may mean
    something else; such a word counts only as part of a range. Words that do not say which occurrence they mean have
    two readings: "on Friday" has the Friday before now as `span` and the one to come as `coming`. `gone` is the
    occurrence before now, if `span` is not: "this weekend" on a Monday.
    """

    start: int
    end: int
    span: Span
    every: Literal["year", "week"] | None = None
    certain: bool = True
    coming: Span | None = None
    gone: Span | None = None
    vague: bool = False
    """True for "upcoming" and the like, which count only where no other time is named."""


class Grammar:
    """The time expressions of one language. Texts are folded first (`time_expressions.fold_in_place`)."""

    def __init__(self, code: str, table: WordTable, holidays: Holidays, read_date: ReadDate) -> None:
        self.code, self._table, self._feasts, self._read_date = code, table, holidays, read_date
        self.spaced: bool = table.get("spaced", True)
        self.function_words = FUNCTION_WORDS.get(code, frozenset())
        self.doubtful = frozenset(table["doubtful"].split())
        self._days: dict[str, tuple[int, str | None]] = _by_word(table["days"], _day_and_part)
        self._parts: dict[str, str] = _by_word(table["parts"], str)
        self._units: dict[str, str] = _by_word(table["one"], str) | _by_word(table["many"], str)
        self._numbers: dict[str, float] = _by_word(table["numbers"], float)
        self._months: dict[str, int] = _by_word(table["months"], int)
        self._weekdays: dict[str, int] = _by_word(table["weekdays"], int)
        self._seasons: dict[str, str] = _by_word(table["seasons"], str)
        self._holidays: dict[str, str] = _by_word(table["holidays"], str)
        self._years: dict[str, int] = _by_word(table["years"], int)
        self._nths: dict[str, int] = _by_word(table["nth"], int)
        self._doubtful_months = frozenset(table["doubtful_months"].split())
        self._kinds: dict[str, Callable[[re.Match[str], datetime], Span | None]] = {
            "day": self._day,
            "recent": lambda match, now: Span(midnight(now) - 7 * DAY, midnight(now)),
            "soon": lambda match, now: Span(midnight(now), midnight(now) + 30 * DAY),
            "shift": self._shifted,
            "year": self._year,
            "bare_year": self._year,
            "halves": self._half_year,
            "decade": _decade,
        }
        self._recurring: dict[str, Callable[[re.Match[str], datetime, int | None], Span | None]] = {
            "weekday": self._weekday,
            "bare_weekday": self._weekday,
            "month": self._month,
            "bare_month": self._month,
            "season": self._season,
            "holiday": self._holiday,
            "quarter": self._quarter,
            "monthday": _day_of_month,
            "daymonth": _day_and_month,
            "week": self._week,
            "nth": self._nth,
        }
        """Times that come again. The number is the shift if the words name none: None is the last one that has begun,
        1 the first one to come."""

    @cached_property
    def time_words(self) -> frozenset[str]:
        """Words of which every expression without digits contains one: the longest word of each phrase."""
        tables = (self._days, self._units, self._months, self._weekdays, self._seasons, self._holidays, self._years)
        phrases = [phrase for table in tables for phrase in table]
        if not self.spaced:
            return frozenset(phrases)
        longest = (max(re.findall(r"[^\W\d_]+", phrase)[::-1], key=len) for phrase in phrases)
        evenings = (weekday + part for weekday in self._weekdays for part in self._parts)  # Montagabend
        return frozenset(longest).union(evenings, self._table["time_words"].split())

    @cached_property
    def words(self) -> dict[str, re.Pattern[str]]:
        """Patterns of words: those of `TIME_ORDERS` ask for the one or the other end of the time of what answers, with
        "formerly" a statement says that it no longer holds, "coming" and "gone" tell of what a text speaks."""
        words = {**self._table, "earliest": f"{self._table['earliest']}|{self._table['formerly']}"}
        return {name: self._compiled(f"(?:{words[name]})") for name in (*TIME_ORDERS, "formerly", "coming", "gone")}

    def names_no_subject(self, text: str) -> bool:
        """Returns whether a folded text holds only words such as "what", "did", "happen", "recently", or none."""
        for order in TIME_ORDERS:
            text = self.words[order].sub(lambda match: match.groupdict().get("rest") or " ", text)
        if self.spaced:
            return self._general.issuperset(WORD.findall(text))
        longest = sorted(map(re.escape, self._general), key=len, reverse=True)
        return re.fullmatch(rf"(?:[\W_]|{'|'.join(longest)})*", text) is not None

    @cached_property
    def _general(self) -> frozenset[str]:
        return self.function_words.union(self._table["general"].split())

    def tense(self, text: str) -> Literal["gone", "coming"] | None:
        """Returns whether a text speaks of the past or of what is to come; None if of neither or of both."""
        coming, gone = (self.words[name].search(text) is not None for name in ("coming", "gone"))
        return None if coming == gone else "coming" if coming else "gone"

    @cached_property
    def rejected_after(self) -> re.Pattern[str]:
        """Matches words before an expression that make it something other than a time."""
        return self._ending(self._table["rejected_after"])

    @cached_property
    def _rejected_before(self) -> re.Pattern[str]:
        return re.compile(self._table["rejected_before"] or "(?!)")

    @cached_property
    def ahead_of(self) -> dict[str, re.Pattern[str]]:
        """Patterns of words before an expression that change it, such as "since", by the kind of change."""
        articles = self._table["articles"]
        gap = r"[\s\-]+" if self.spaced else ""
        return {
            name: self._ending(rf"(?:{words})(?:{gap}(?:{articles}))?{gap}")
            for name, words in self._table["ahead_of"].items()
        }

    @cached_property
    def behind(self) -> dict[str, re.Pattern[str]]:
        """Patterns of words after an expression that change it, by the kind of change."""
        return {name: re.compile(rf"的?(?:{words})") for name, words in self._table["behind"].items()}

    @cached_property
    def between(self) -> re.Pattern[str]:
        articles = self._table["articles"]
        return self._ending(rf"(?:{self._table['between'] or '(?!)'})(?:\s+(?:{articles}))?\s*")

    @cached_property
    def joins(self) -> re.Pattern[str]:
        """Matches all the text between two expressions that form a range, the second one's leading words included."""
        lead, articles = self._table["lead"] or "(?!)", self._table["articles"]
        return re.compile(rf"\s*(?:(?:{self._table['joins']}|-|–|—|~)(?:\s*(?:{articles}|{lead}))*)\s*")

    @cached_property
    def _patterns(self) -> list[tuple[str, re.Pattern[str]]]:
        return [
            (kind, self._compiled(self._filled(template)))
            for kind, templates in self._table["templates"].items()
            for template in templates
        ]

    @cached_property
    def _number_pattern(self) -> str:
        words = _any(self._numbers)
        if not self.spaced:
            return rf"(?:{_DIGITS}|{_HAN_NUMBER}|{words}) ?"
        return rf"(?:{words}|{_DIGITS})"

    @cached_property
    def _amount_part(self) -> re.Pattern[str]:
        """Matches "2 hours" of "2 hours and 30 minutes", "10-15 minutes", "an hour and a half", 两个半小时."""
        number, half = self._number_pattern, self._table["half"]
        if self.spaced:
            until, gap, and_half = rf"(?:\s*[-–—~]\s*|\s+(?:{_OR})\s+)", r"(?:[\s\-]+|(?<='))", rf"\s+(?:{half})"
        else:
            until, gap, and_half = rf"(?:{_OR})?", "", half
        return re.compile(
            rf"(?P<low>{number})(?:{until}(?P<high>{number}))?{'' if self.spaced else '个?多?'}(?P<half>{and_half})?"
            rf"{gap}{_group('unit', self._units)}(?P<more>{and_half})?"
        )

    @cached_property
    def _amount_pattern(self) -> str:
        """Matches an amount from its beginning on: no part of "1.5 hours", "10-15 minutes" or 二十五分钟."""
        part = re.sub(r"\?P<\w+>", "?:", self._amount_part.pattern)
        if self.spaced:
            return rf"(?<!\d[.,/:])(?<![-–])(?P<amount>(?:{part}(?:,?\s+(?:(?:{_AND})\s+)?)?){{1,4}})"
        return rf"(?<!\d[.,/:~–-])(?<![\d一二两三四五六七八九十百千万])(?P<amount>(?:{part}(?:{_AND})?){{1,4}})"

    @cached_property
    def _amount_before(self) -> re.Pattern[str]:
        """Matches a text that ends in another amount, or in digits: "1" of "1 000 days ago"."""
        if not self.spaced:
            return re.compile(rf"{self._number_pattern}个?(?:{_any(self._units)})\w?\Z")
        many = _any(_by_word(self._table["many"], str))
        return re.compile(rf"(?:(?:{many})(?:\s*,)?|(?<!\w)\d+)(?:\s+(?:{_AND}))?\s+\Z")

    def read(self, query: str, text: str, now: datetime) -> list[Reading]:
        """Returns all expressions in `text`, which is `query` folded, in no order; some may overlap.

        `now`: local time, with its zone where hours are counted that passed.
        """
        readings = []
        for kind, pattern in self._patterns:
            for match in pattern.finditer(text):
                try:
                    local = now.replace(tzinfo=None)
                    if kind in ("ago", "ahead", "rolling", "before_day", "after_day"):
                        counted = self._counted(kind, match, now)
                        reading = None if counted is None else Reading(match.start(), match.end(), counted)
                    elif kind == "date":
                        reading = self._date(query, match, local)
                    else:
                        reading = self._reading(kind, match, local)
                except (OverflowError, ValueError):  # 31 February, or a date outside of the years 1 to 9999
                    continue
                if reading is not None:
                    readings.append(reading)
        return readings

    def rejects(self, text: str, reading: Reading) -> bool:
        """Returns whether the words beside the reading show that it is no point in time."""
        if self.rejected_after.search(text, 0, reading.start):
            return True
        return self._rejected_before.match(text, reading.end) is not None

    def _filled(self, template: str) -> str:
        lead = self._table["lead"] or "(?!)"
        gap = r"\s+" if self.spaced else ""
        shifts = self._table["shifts"].items()
        slots = {
            "day": _group("day", self._days),
            "part": _group("part", self._parts),
            "one": _group("one", _without_minutes(self._table["one"])),
            "many": _group("many", _without_minutes(self._table["many"])),
            "unit": _group("unit", self._units),
            "n": rf"(?P<n>{self._number_pattern})",
            "amount": self._amount_pattern,
            "bound": rf"(?:(?:(?P<less>{self._table['less']})|(?P<more>{self._table['more']}))\s*)?",
            "month": _group("month", self._months),
            "weekday": _group("weekday", self._weekdays),
            "season": _group("season", self._seasons),
            "holiday": _group("holiday", self._holidays),
            "years": _group("years", self._years),
            "nth": _group("nth", self._nths),
            "year": _YEAR,
            "on": r"(?P<on>[12]\d|3[01]|0?[1-9])(?!\d)",
            "m": r"(?P<m>1[0-2]|0?[1-9])",
            "dd": _DAY_OF_MONTH if self.spaced else rf"(?:{_DAY_OF_MONTH}|{_HAN_DAY})",
            "lead": rf"(?P<head>(?:{lead})(?:{gap}(?:{self._table['articles']}))?)",
            "shift": "(?:" + "|".join(f"(?P<{name}>{words})" for name, words in shifts) + ")",
        }
        spaced = template.replace(" ", r"[\s\-]+" if self.spaced else r"\s*")
        return re.sub(r"\{([a-z]+)\}", lambda slot: slots[slot[1]], spaced)

    def _compiled(self, pattern: str) -> re.Pattern[str]:
        return re.compile(rf"(?<!\w)(?:{pattern})(?!\w)" if self.spaced else rf"(?<!\d)(?:{pattern})")

    def _ending(self, pattern: str) -> re.Pattern[str]:
        """Returns a pattern that matches at the end of a text."""
        return re.compile(rf"(?<!\w)(?:{pattern or '(?!)'})[\s\-]*\Z" if self.spaced else rf"(?:{pattern or '(?!)'})\Z")

    def _reading(self, kind: str, match: re.Match[str], now: datetime) -> Reading | None:
        groups = match.groupdict()
        start = match.start()
        if groups.get("head") is not None:
            start = match.end("head")
            start += len(match.string[start : match.end()]) - len(match.string[start : match.end()].lstrip(" -"))
        recurs = self._recurring.get(kind)
        span = self._kinds[kind](match, now) if recurs is None else recurs(match, now, None)
        if span is None:
            return None
        certain = kind not in ("bare_year", "bare_weekday") and (
            kind != "bare_month" or groups["month"] not in self._doubtful_months
        )
        if any(groups.get(name) for name in ("year", "years", "of", *_SHIFTS)):
            this_weekend = groups.get("this") is not None and kind == "shift" and self._unit(match) == "weekend"
            gone = latest_weekend(now) if this_weekend else None
            return Reading(start, match.end(), span, None, certain, gone=gone)
        coming = None if recurs is None else span if span.end > now else recurs(match, now, 1)
        if kind == "shift" and self._unit(match) == "weekend":
            coming = unit_span("weekend", now)
        return Reading(start, match.end(), span, _RECURS.get(kind), certain, coming, vague=kind == "soon")

    def _date(self, query: str, match: re.Match[str], now: datetime) -> Reading | None:
        span = self._read_date(query[match.start() : match.end()], self.code, now)
        if span is None:
            return None
        named = any(match.groupdict().get(name) for name in ("year", "years"))
        return Reading(
            match.start(), match.end(), span, coming=None if named else span if span.end > now else span.moved(1)
        )

    def _unit(self, match: re.Match[str]) -> str:
        groups = match.groupdict()
        return self._units[_phrase(next(groups[name] for name in ("unit", "one", "many") if groups.get(name)))]

    def _day(self, match: re.Match[str], now: datetime) -> Span:
        offset, part = self._days[_phrase(match["day"])]
        return day_part(day_span(now, offset), self._part(match) or part)

    def _part(self, match: re.Match[str]) -> str | None:
        part = match.groupdict().get("part")
        return None if part is None else self._parts[_phrase(part)]

    def _counted(self, kind: str, match: re.Match[str], now: datetime) -> Span | None:
        """Reads what counts units from now: "2 hours and 30 minutes ago", "in 3 to 5 days", "the last few weeks".

        `now` has its zone where clocks may have been changed since.
        """
        groups = match.groupdict()
        least, most = list[tuple[str, float]](), list[tuple[str, float]]()
        if groups.get("amount"):
            if self._amount_before.search(match.string, 0, match.start("amount")):
                return None  # "umpteen hours and 30 minutes ago" has a number that is not known
            for part in self._amount_part.finditer(match["amount"]):
                unit, half = self._units[_phrase(part["unit"])], 0.5 if part["half"] or part["more"] else 0.0
                low = self._number(part["low"]) + half
                high = low if part["high"] is None else self._number(part["high"]) + half
                if low > high:
                    return None  # "2026-5 days"
                least.append((unit, low))
                most.append((unit, high))
        else:
            least = most = [
                (self._unit(match), self._number(match["n"]) if groups.get("n") else not groups.get("many"))
            ]
        if kind in ("before_day", "after_day"):  # "heute vor einer Woche", "a week from Tuesday"
            named, sign = groups.get("weekday"), 1 if kind == "before_day" else -1
            local = now.replace(tzinfo=None)
            day = (
                weekday_span(local, self._weekdays[_phrase(named)], 1)
                if named
                else day_span(local, self._days[_phrase(match["day"])][0])
            )
            return day_span(back([(unit, sign * count) for unit, count in least], day.start))
        if groups.get("more") or groups.get("over"):
            return until_back(least, now)
        if groups.get("less") or kind == "rolling":
            return rolling(most, now)
        if kind == "ago":
            return Span(ago(most, now).start, ago(least, now).end)
        return Span(ahead(least, now).start, ahead(most, now).end)

    def _number(self, text: str) -> float:
        """Returns the number that digits, Chinese numerals or words of the table state: 25 for 二十五, 1000 for
        "1,000", and 1.5 for "1,5", "1½" and "3/2"."""
        text = _phrase(text.strip())
        if text in self._numbers:
            return self._numbers[text]
        if text[-1] in _PARTS_OF_ONE:
            return float(text[:-1] or 0) + _PARTS_OF_ONE[text[-1]]
        if "/" in text:
            return int(text[0]) / int(text[2])
        if text[0].isdecimal():
            is_whole = re.fullmatch(r"\d+(?:[.,]\d{3})*", text) is not None
            return float(re.sub("[.,]", "" if is_whole else ".", text))
        return number_of(text)

    def _shifted(self, match: re.Match[str], now: datetime) -> Span:
        unit, shift = self._unit(match), _shift(match)
        if shift is None and unit == "weekend":
            return latest_weekend(now)
        return unit_span(unit, now, shift or 0)

    def _weekday(self, match: re.Match[str], now: datetime, shift: int | None) -> Span:
        of_week = match.groupdict().get("week") is not None
        day = weekday_span(now, self._weekdays[_phrase(match["weekday"])], _shift(match, shift), of_week=of_week)
        return day_part(day, self._part(match))

    def _month(self, match: re.Match[str], now: datetime, shift: int | None) -> Span | None:
        month = self._months[_phrase(match["month"])]
        return months_span(now, month, 1, _shift(match, shift), self._named_year(match, now))

    def _season(self, match: re.Match[str], now: datetime, shift: int | None) -> Span | None:
        month = _SEASONS[self._seasons[_phrase(match["season"])]]
        return months_span(now, month, 3, _shift(match, shift), self._named_year(match, now))

    def _week(self, match: re.Match[str], now: datetime, shift: int | None) -> Span | None:
        return week_of_year(now, int(match["number"]), shift, self._named_year(match, now))

    def _nth(self, match: re.Match[str], now: datetime, shift: int | None) -> Span | None:
        """Reads a unit of a period: "the last week of October", "the second half of 2025"."""
        groups, nth = match.groupdict(), self._nths[_phrase(match["nth"])]
        if groups.get("of"):
            period: Span | None = unit_span(self._units[_phrase(match["of"])], now, _shift(match) or 0)
        else:
            period = self._month(match, now, shift) if groups.get("month") else self._year(match, now)
        if period is None:
            return None
        if groups.get("half"):
            return half(period, nth)
        if groups.get("weekday"):
            return nth_weekday(period, self._weekdays[_phrase(match["weekday"])], nth)
        return nth_unit(period, self._unit(match), nth)

    def _holiday(self, match: re.Match[str], now: datetime, shift: int | None) -> Span | None:
        holiday, year = self._holidays[_phrase(match["holiday"])], self._named_year(match, now)
        if year is not None:
            span = self._feasts.span(holiday, year)
        else:
            span = yearly(lambda of_year: self._feasts.span(holiday, of_year), now, _shift(match, shift))
        return long_weekend(span) if span is not None and match.groupdict().get("long") else span

    def _named_year(self, match: re.Match[str], now: datetime) -> int | None:
        groups = match.groupdict()
        if groups.get("year"):
            return int(match["year"])
        return now.year + self._years[_phrase(match["years"])] if groups.get("years") else None

    def _year(self, match: re.Match[str], now: datetime) -> Span | None:
        year = self._named_year(match, now)
        return None if year is None else unit_span("year", now.replace(year=year, month=1, day=1))

    def _half_year(self, match: re.Match[str], now: datetime) -> Span:
        year = self._named_year(match, now)
        whole = unit_span("year", now if year is None else now.replace(year=year, month=1, day=1))
        return half(whole, 1 if match.groupdict().get("first") else 2)

    def _quarter(self, match: re.Match[str], now: datetime, shift: int | None) -> Span | None:
        quarter = match["q"]
        month = (
            3 * (int(quarter) if quarter.isdecimal() else self._nths.get(quarter) or int(self._numbers[quarter])) - 2
        )
        return months_span(now, month, 3, shift, self._named_year(match, now))


def _day_of_month(match: re.Match[str], now: datetime, shift: int | None) -> Span | None:
    """Returns "the 19th of last month", or the last or, for a shift of 1, the next 19th."""
    day, months = int(match["on"]), _shift(match)
    if months is not None:
        return day_span(unit_span("month", now, months).start.replace(day=day))
    for offset in (0, 1, 2) if shift == 1 else (0, -1, -2):
        month = unit_span("month", now, offset)
        date = day_span(month.start + (day - 1) * DAY)
        if date.end <= month.end and (date.start > now if shift == 1 else date.start <= now):
            return date
    return None


def _day_and_month(match: re.Match[str], now: datetime, shift: int | None) -> Span | None:
    """Returns a day that is written as 11/19, or as 19.11., in the order of the language."""

    def of(year: int) -> Span | None:
        try:
            return day_span(datetime(year, int(match["m"]), int(match["on"])))  # noqa: DTZ001 (local time)
        except ValueError:  # 29 February
            return None

    return yearly(of, now, shift)


def _decade(match: re.Match[str], now: datetime) -> Span:
    decade = int(match["decade"])
    if decade < 100:
        decade += now.year // 100 * 100
        decade -= 100 if decade > now.year else 0
    return unit_span("decade", now.replace(year=decade, month=1, day=1))


def _shift(match: re.Match[str], otherwise: int | None = None) -> int | None:
    groups = match.groupdict()
    return next((shift for name, shift in _SHIFTS.items() if groups.get(name) is not None), otherwise)


def _without_minutes(table: Mapping[str, str]) -> dict[str, str]:
    """Returns the words of units but minutes, which count only behind a number: a "last minute" booking."""
    return _by_word({unit: words for unit, words in table.items() if unit != "minute"}, str)


def _day_and_part(key: str) -> tuple[int, str | None]:
    """Splits a key such as `-1` or `-1 night` into days and part of the day."""
    offset, _, part = key.partition(" ")
    return int(offset), part or None


def _by_word(table: Mapping[str, str], key: Callable[[str], K]) -> dict[str, K]:
    """Returns the keys of a table by the words that stand for them: `{"mon": 0, "monday": 0}` of `0 = "mon monday"`."""
    return {word.replace("_", " "): key(name) for name, words in table.items() for word in words.split()}


def _phrase(text: str) -> str:
    """Returns the text as tables write it: with one space between words."""
    return re.sub(r"[\s\-]+", " ", text)


def _group(name: str, words: Iterable[str]) -> str:
    """Returns a named group that matches one of the words, or phrases, of a table."""
    return f"(?P<{name}>{_any(words)})"


def _any(words: Iterable[str]) -> str:
    longest = sorted(words, key=len, reverse=True)
    return "|".join(re.escape(word).replace(r"\ ", r"[\s\-]+") for word in longest) or "(?!)"


def grammars(read_date: ReadDate) -> list[Grammar]:
    """Returns the grammars of all languages that have a table."""
    with _TABLES.open("rb") as file:
        tables = tomllib.load(file)
    holidays = Holidays(tables.pop("holidays"), tables.pop("lunar"))
    return [Grammar(code, table, holidays, read_date) for code, table in tables.items()]
