"""Spans of the calendar in local time: days, weeks (from Monday), months, seasons, years, holidays."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

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


def month_span(now: datetime, month: int, shift: int | None, year: int | None) -> Span | None:
    """Returns `month` of `year`. Without a year it follows the rules of `yearly`."""
    return _months(now, month, 1, shift, year)


def season_span(now: datetime, season: str, shift: int | None, year: int | None) -> Span | None:
    """Returns a season by the rules of `month_span`. The winter of a year begins in its December."""
    return _months(now, _SEASONS[season], 3, shift, year)


def _months(now: datetime, month: int, months: int, shift: int | None, year: int | None) -> Span | None:
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
