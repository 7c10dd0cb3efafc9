from datetime import datetime, timedelta

import pytest

from app.retrieval.time_grammar import Holidays, Span, easter, long_weekend

HOLIDAYS = Holidays(
    {"thanksgiving": "nth 11 3 4", "last": "nth 5 0 -1", "lunar": "lunar spring -1 8", "fixed": "12-24 3"},
    {"spring": "2025-01-29"},
)


@pytest.mark.parametrize("date", ["2000-04-23", "2019-04-21", "2024-03-31", "2025-04-20", "2038-04-25"])
def test_easter_is_where_the_calendar_has_it(date: str) -> None:
    assert easter(int(date[:4])) == datetime.fromisoformat(date)


def test_rules_are_read() -> None:
    def first(name: str, year: int) -> str:
        span = HOLIDAYS.span(name, year)
        assert span is not None
        return span.start.date().isoformat()

    assert first("thanksgiving", 2025) == "2025-11-27"
    assert [first("last", year) for year in (2025, 2026)] == ["2025-05-26", "2026-05-25"]
    assert first("fixed", 2025) == "2025-12-24"
    assert first("lunar", 2025) == "2025-01-28"


def test_where_the_table_ends_nobody_knows() -> None:
    assert HOLIDAYS.span("lunar", 2026) is None


@pytest.mark.parametrize(
    ("day", "first", "days"),
    [
        ("2025-07-04", "2025-07-04", 3),
        ("2026-07-04", "2026-07-04", 2),
        ("2027-07-04", "2027-07-03", 2),
        ("2025-09-01", "2025-08-30", 3),
    ],
)
def test_a_long_weekend_joins_the_holiday(day: str, first: str, days: int) -> None:
    start = datetime.fromisoformat(day)
    begin = datetime.fromisoformat(first)
    assert long_weekend(Span(start, start + timedelta(days=1))) == (begin, begin + timedelta(days=days))
