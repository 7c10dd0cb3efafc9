"""Finds time expressions in one language: tables of words and templates (`data/time_words.toml`) become patterns."""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Literal, NotRequired, TypeAlias, TypedDict, TypeVar

from app.retrieval import calendar_spans
from app.retrieval.calendar_spans import Holidays, Span, long_weekend

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


class WordTable(TypedDict):
    """The table of a language in `data/time_words.toml`, whose head explains the entries. Words are separated by
    spaces; what stands for "no words" is an empty text."""

    spaced: NotRequired[bool]
    """Whether words are separated by spaces, as in all languages but Chinese and Japanese. Default: True."""
    function_words: str
    lead: str
    articles: str
    between: str
    joins: str
    doubtful: str
    doubtful_months: str
    anchors: NotRequired[str]
    """In tables of languages with spaces."""
    rejected_after: str
    rejected_before: str
    present: str
    latest: str
    earliest: str
    general: str
    coming: str
    gone: str
    nth: dict[str, str]
    days: dict[str, str]
    one: dict[str, str]
    many: dict[str, str]
    numbers: dict[str, str]
    tens: NotRequired[str]
    """Words for 20, 30, 40, …, which may stand before a smaller number: "twenty five"."""
    half: str
    """What adds a half behind a number or a unit: "an hour and a half"."""
    less: str
    more: str
    """Words of "less than a week ago" and of "more than a week ago"."""
    months: dict[str, str]
    weekdays: dict[str, str]
    seasons: dict[str, str]
    holidays: dict[str, str]
    parts: dict[str, str]
    shifts: dict[str, str]
    years: dict[str, str]
    templates: dict[str, list[str]]
    """Patterns by the kind of expression that they match."""
    ahead_of: dict[str, str]
    behind: dict[str, str]


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
    """The time expressions of one language. Texts are folded first (`query_language.fold`)."""

    def __init__(self, code: str, table: WordTable, holidays: Holidays, read_date: ReadDate) -> None:
        self.code, self._table, self._feasts, self._read_date = code, table, holidays, read_date
        self.spaced: bool = table.get("spaced", True)
        self.function_words = frozenset(table["function_words"].split())
        self.doubtful = frozenset(table["doubtful"].split())
        self._days: dict[str, tuple[int, str | None]] = _by_word(table["days"], _day_and_part)
        self._parts: dict[str, str] = _by_word(table["parts"], str)
        self._units: dict[str, str] = _by_word(table["one"], str) | _by_word(table["many"], str)
        self._numbers: dict[str, float] = _by_word(table["numbers"], float)
        self._numbers |= {word: 10.0 * at for at, word in enumerate(table.get("tens", "").split(), 2)}
        self._months: dict[str, int] = _by_word(table["months"], int)
        self._weekdays: dict[str, int] = _by_word(table["weekdays"], int)
        self._seasons: dict[str, str] = _by_word(table["seasons"], str)
        self._holidays: dict[str, str] = _by_word(table["holidays"], str)
        self._years: dict[str, int] = _by_word(table["years"], int)
        self._nths: dict[str, int] = _by_word(table["nth"], int)
        self._doubtful_months = frozenset(table["doubtful_months"].split())
        self._kinds: dict[str, Callable[[re.Match[str], datetime], Span | None]] = {
            "day": self._day,
            "recent": lambda match, now: Span(
                calendar_spans.midnight(now) - 7 * calendar_spans.DAY, calendar_spans.midnight(now)
            ),
            "soon": lambda match, now: Span(
                calendar_spans.midnight(now), calendar_spans.midnight(now) + 30 * calendar_spans.DAY
            ),
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
    def anchors(self) -> frozenset[str]:
        """Words of which every expression without digits contains one: the longest word of each phrase."""
        tables = (self._days, self._units, self._months, self._weekdays, self._seasons, self._holidays, self._years)
        phrases = [phrase for table in tables for phrase in table]
        if not self.spaced:
            return frozenset(phrases)
        longest = (max(re.findall(r"[^\W\d_]+", phrase)[::-1], key=len) for phrase in phrases)
        evenings = (weekday + part for weekday in self._weekdays for part in self._parts)  # Montagabend
        return frozenset(longest).union(evenings, self._table["anchors"].split())

    @cached_property
    def orders(self) -> dict[TimeOrder, re.Pattern[str]]:
        """Patterns of words that ask for the one or the other end of the time of what answers."""
        return {order: self._compiled(f"(?:{self._table[order]})") for order in TIME_ORDERS}

    def names_no_subject(self, text: str) -> bool:
        """Returns whether a folded text holds only words such as "what", "did", "happen", "recently", or none."""
        for pattern in self.orders.values():
            text = pattern.sub(" ", text)
        if self.spaced:
            return self._general.issuperset(WORD.findall(text))
        longest = sorted(map(re.escape, self._general), key=len, reverse=True)
        return re.fullmatch(rf"(?:[\W_]|{'|'.join(longest)})*", text) is not None

    @cached_property
    def _general(self) -> frozenset[str]:
        return self.function_words.union(self._table["general"].split())

    @cached_property
    def _coming(self) -> re.Pattern[str]:
        return self._compiled(f"(?:{self._table['coming']})")

    @cached_property
    def _gone(self) -> re.Pattern[str]:
        return self._compiled(f"(?:{self._table['gone']})")

    def tense(self, text: str) -> Literal["gone", "coming"] | None:
        """Returns whether a text speaks of the past or of what is to come; None if of neither or of both."""
        coming, gone = self._coming.search(text) is not None, self._gone.search(text) is not None
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
        tens = rf"(?:{_any(self._table.get('tens', '').split())})[\s\-]+(?:(?:{_AND})\s+)?(?:{words})"
        return rf"(?:{_DIGITS}|{tens}|{words})"

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
        """Matches a text that ends in another amount."""
        if not self.spaced:
            return re.compile(rf"{self._number_pattern}个?(?:{_any(self._units)})\w?\Z")
        many = _any(_by_word(self._table["many"], str))
        return re.compile(rf"(?:{many})(?:\s*,)?(?:\s+(?:{_AND}))?\s+\Z")

    def read(self, query: str, text: str, now: datetime) -> list[Reading]:
        """Returns all expressions in `text`, which is `query` folded, in no order; some may overlap.

        `now`: local time, with its zone where hours are counted that passed.
        """
        readings = []
        for kind, pattern in self._patterns:
            for match in pattern.finditer(text):
                try:
                    local = now.replace(tzinfo=None)
                    if kind in ("ago", "ahead", "rolling"):
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
            gone = calendar_spans.latest_weekend(now) if this_weekend else None
            return Reading(start, match.end(), span, None, certain, gone=gone)
        coming = None if recurs is None else span if span.end > now else recurs(match, now, 1)
        if kind == "shift" and self._unit(match) == "weekend":
            coming = calendar_spans.unit_span("weekend", now)
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
        return calendar_spans.day_part(calendar_spans.day_span(now, offset), self._part(match) or part)

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
                return None  # "seventeen hours and 30 minutes ago", of which one number is not known
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
        if groups.get("more") or groups.get("over"):
            return calendar_spans.until_back(least, now)
        if groups.get("less") or kind == "rolling":
            return calendar_spans.rolling(most, now)
        if kind == "ago":
            return Span(calendar_spans.ago(most, now).start, calendar_spans.ago(least, now).end)
        return Span(calendar_spans.ahead(least, now).start, calendar_spans.ahead(most, now).end)

    def _number(self, text: str) -> float:
        """Returns the number that words or digits state: 25 for "twenty-five" and 二十五, 1000 for "1,000", and 1.5
        for "1,5", "1½" and "3/2"."""
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
        tens, ten, ones = text.partition("十")
        if ten:
            return 10 * self._numbers.get(tens, 1) + self._numbers.get(ones, 0)
        return sum(self._numbers.get(word, 0) for word in text.split())

    def _shifted(self, match: re.Match[str], now: datetime) -> Span:
        unit, shift = self._unit(match), _shift(match)
        if shift is None and unit == "weekend":
            return calendar_spans.latest_weekend(now)
        return calendar_spans.unit_span(unit, now, shift or 0)

    def _weekday(self, match: re.Match[str], now: datetime, shift: int | None) -> Span:
        of_week = match.groupdict().get("week") is not None
        day = calendar_spans.weekday_span(
            now, self._weekdays[_phrase(match["weekday"])], _shift(match, shift), of_week=of_week
        )
        return calendar_spans.day_part(day, self._part(match))

    def _month(self, match: re.Match[str], now: datetime, shift: int | None) -> Span | None:
        return calendar_spans.month_span(
            now, self._months[_phrase(match["month"])], _shift(match, shift), self._named_year(match, now)
        )

    def _season(self, match: re.Match[str], now: datetime, shift: int | None) -> Span | None:
        season = self._seasons[_phrase(match["season"])]
        return calendar_spans.season_span(now, season, _shift(match, shift), self._named_year(match, now))

    def _week(self, match: re.Match[str], now: datetime, shift: int | None) -> Span | None:
        return calendar_spans.week_of_year(now, int(match["number"]), shift, self._named_year(match, now))

    def _nth(self, match: re.Match[str], now: datetime, shift: int | None) -> Span | None:
        """Reads a unit of a period: "the last week of October", "the second half of 2025"."""
        groups, nth = match.groupdict(), self._nths[_phrase(match["nth"])]
        if groups.get("of"):
            period: Span | None = calendar_spans.unit_span(self._units[_phrase(match["of"])], now, _shift(match) or 0)
        else:
            period = self._month(match, now, shift) if groups.get("month") else self._year(match, now)
        if period is None:
            return None
        if groups.get("half"):
            return calendar_spans.half(period, nth)
        if groups.get("weekday"):
            return calendar_spans.nth_weekday(period, self._weekdays[_phrase(match["weekday"])], nth)
        return calendar_spans.nth_unit(period, self._unit(match), nth)

    def _holiday(self, match: re.Match[str], now: datetime, shift: int | None) -> Span | None:
        holiday, year = self._holidays[_phrase(match["holiday"])], self._named_year(match, now)
        if year is not None:
            span = self._feasts.span(holiday, year)
        else:
            span = calendar_spans.yearly(lambda of_year: self._feasts.span(holiday, of_year), now, _shift(match, shift))
        return long_weekend(span) if span is not None and match.groupdict().get("long") else span

    def _named_year(self, match: re.Match[str], now: datetime) -> int | None:
        groups = match.groupdict()
        if groups.get("year"):
            return int(match["year"])
        return now.year + self._years[_phrase(match["years"])] if groups.get("years") else None

    def _year(self, match: re.Match[str], now: datetime) -> Span | None:
        year = self._named_year(match, now)
        return None if year is None else calendar_spans.unit_span("year", now.replace(year=year, month=1, day=1))

    def _half_year(self, match: re.Match[str], now: datetime) -> Span:
        year = self._named_year(match, now)
        whole = calendar_spans.unit_span("year", now if year is None else now.replace(year=year, month=1, day=1))
        return calendar_spans.half(whole, 1 if match.groupdict().get("first") else 2)

    def _quarter(self, match: re.Match[str], now: datetime, shift: int | None) -> Span | None:
        quarter = match["q"]
        month = (
            3 * (int(quarter) if quarter.isdecimal() else self._nths.get(quarter) or int(self._numbers[quarter])) - 2
        )
        first = calendar_spans.month_span(now, month, shift, self._named_year(match, now))
        return None if first is None else Span(first.start, calendar_spans.add_months(first.start, 3))


def _day_of_month(match: re.Match[str], now: datetime, shift: int | None) -> Span | None:
    """Returns "the 19th of last month", or the last or, for a shift of 1, the next 19th."""
    day, months = int(match["on"]), _shift(match)
    if months is not None:
        return calendar_spans.day_span(calendar_spans.unit_span("month", now, months).start.replace(day=day))
    for offset in (0, 1, 2) if shift == 1 else (0, -1, -2):
        month = calendar_spans.unit_span("month", now, offset)
        date = calendar_spans.day_span(month.start + (day - 1) * calendar_spans.DAY)
        if date.end <= month.end and (date.start > now if shift == 1 else date.start <= now):
            return date
    return None


def _day_and_month(match: re.Match[str], now: datetime, shift: int | None) -> Span | None:
    """Returns a day that is written as 11/19, or as 19.11., in the order of the language."""

    def of(year: int) -> Span | None:
        try:
            return calendar_spans.day_span(datetime(year, int(match["m"]), int(match["on"])))  # noqa: DTZ001 (local time)
        except ValueError:  # 29 February
            return None

    return calendar_spans.yearly(of, now, shift)


def _decade(match: re.Match[str], now: datetime) -> Span:
    decade = int(match["decade"])
    if decade < 100:
        decade += now.year // 100 * 100
        decade -= 100 if decade > now.year else 0
    return calendar_spans.unit_span("decade", now.replace(year=decade, month=1, day=1))


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
