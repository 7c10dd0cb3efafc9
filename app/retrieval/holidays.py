"""When holidays are: rules and tables from `data/time_words.toml`."""

from collections.abc import Mapping
from datetime import datetime

from app.retrieval.spans import DAY, Span, day_span


class Holidays:
    def __init__(self, rules: Mapping[str, str], lunar: Mapping[str, str]) -> None:
        self._rules = rules
        self._lunar = {
            name: {int(date[:4]): datetime.fromisoformat(date) for date in dates.split()}
            for name, dates in lunar.items()
        }

    def span(self, name: str, year: int) -> Span | None:
        """Of that year; None where the table does not reach so far."""
        kind, *rest = self._rules[name].split()
        if kind == "nth":
            return day_span(_nth_weekday(year, *map(int, rest)))
        if kind in ("easter", "lunar"):
            first, days = map(int, rest[-2:])
            feast = easter(year) if kind == "easter" else self._lunar[rest[0]].get(year)
            return None if feast is None else Span(feast + first * DAY, feast + (first + days) * DAY)
        start = datetime.fromisoformat(f"{year:04}-{kind}")
        return Span(start, start + int(rest[0]) * DAY)


def long_weekend(span: Span) -> Span:
    """With the weekend that it touches, or is a bridge to."""
    first, last = span.start.weekday(), (span.end - DAY).weekday()
    start = span.start - (first + 2) * DAY if first < 2 else span.start
    if first == 6:
        start -= DAY
    end = span.end + (6 - last) * DAY if last >= 3 else span.end
    return Span(start, end)


def easter(year: int) -> datetime:
    """Easter Sunday of the Gregorian calendar (Meeus, Astronomical Algorithms, 1991)."""
    a, (b, c) = year % 19, divmod(year, 100)
    d, e = divmod(b, 4)
    g = (8 * b + 13) // 25
    h = (19 * a + b - d - g + 15) % 30
    i, k = divmod(c, 4)
    length = (32 + 2 * e + 2 * i - h - k) % 7
    m = (a + 11 * h + 22 * length) // 451
    month, day = divmod(h + length - 7 * m + 114, 31)
    return datetime(year, month, day + 1)  # noqa: DTZ001 (local time)


def _nth_weekday(year: int, month: int, weekday: int, nth: int) -> datetime:
    """From 1 on; 5: the last of the month."""
    first = datetime(year, month, 1)  # noqa: DTZ001 (local time)
    found = first + ((weekday - first.weekday()) % 7 + 7 * (nth - 1)) * DAY
    return found if found.month == month else found - 7 * DAY
