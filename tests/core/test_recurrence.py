"""Recurrences: which are taken, and the next time of each."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from dateutil.rrule import rrulestr
from hypothesis import given
from hypothesis import strategies as st

from app.core import clock
from app.core.clock import next_occurrence, parse_rfc3339, recurrence, rfc3339

START = "2026-12-01T08:00:00.000Z"  # a Tuesday


@pytest.mark.parametrize(
    ("rule", "after", "expected"),
    [
        ("FREQ=DAILY", START, "2026-12-02"),
        ("FREQ=DAILY;INTERVAL=3", "2026-12-05T00:00:00Z", "2026-12-07"),
        ("FREQ=WEEKLY;BYDAY=SU", START, "2026-12-06"),
        ("FREQ=WEEKLY;INTERVAL=2", "2026-12-02T00:00:00Z", "2026-12-15"),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,TH", "2027-12-01T00:00:00Z", "2027-12-02"),
        ("FREQ=MONTHLY;BYMONTHDAY=31", START, "2026-12-31"),
        ("FREQ=MONTHLY;BYDAY=-1FR", START, "2026-12-25"),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29", START, "2028-02-29"),
        ("FREQ=DAILY;UNTIL=20261202T080000Z", START, "2026-12-02"),
        ("FREQ=DAILY;UNTIL=20261202T075959Z", START, None),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", START, None),
        ("FREQ=DAILY", "9999-12-31T23:59:59Z", None),
    ],
)
def test_the_next_time(rule: str, after: str, expected: str | None) -> None:
    found = next_occurrence(rule, START, after)
    assert found == (None if expected is None else f"{expected}T08:00:00.000Z")


def test_what_is_very_old_goes_on() -> None:
    assert next_occurrence("FREQ=DAILY", "0001-01-01T08:00:00Z", START) == "2026-12-02T08:00:00.000Z"
    assert next_occurrence("FREQ=WEEKLY;INTERVAL=2", "1970-01-01T08:00:00Z", START) == "2026-12-03T08:00:00.000Z"
    leap_day = "1996-02-29T08:00:00.000Z"  # 400-year cycles end four years later
    assert next_occurrence("FREQ=YEARLY", leap_day, leap_day) == "2000-02-29T08:00:00.000Z"


@given(st.integers(1, 999), st.sampled_from(["DAILY", "WEEKLY"]), st.integers(0, 4_000))
def test_steps_are_those_of_the_beginning(interval: int, unit: str, days: int) -> None:
    begun = datetime(2026, 1, 1, 8, tzinfo=UTC)
    after = begun + timedelta(days=days, hours=1)
    found = next_occurrence(f"FREQ={unit};INTERVAL={interval}", rfc3339(begun), rfc3339(after))
    step = timedelta(days=interval * (7 if unit == "WEEKLY" else 1))
    assert found is not None
    assert (parse_rfc3339(found) - begun) % step == timedelta()
    assert timedelta() < parse_rfc3339(found) - after <= step


@given(
    st.sampled_from(
        [
            *("FREQ=MONTHLY", "FREQ=MONTHLY;BYDAY=-1FR", "FREQ=MONTHLY;BYDAY=MO,TU", "FREQ=MONTHLY;BYMONTHDAY=-1,31"),
            *("FREQ=YEARLY", "FREQ=YEARLY;BYDAY=+2MO", "FREQ=YEARLY;BYMONTHDAY=31", "FREQ=YEARLY;BYMONTH=2"),
            *("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29", "FREQ=YEARLY;BYMONTH=3,12;BYDAY=1SU"),
        ]
    ),
    st.integers(1, 30),
    st.dates(date(2000, 1, 1), date(2010, 12, 31)),
    st.integers(0, 9_000),
)
def test_months_and_years_are_those_of_the_library(rule: str, interval: int, first: date, days: int) -> None:
    """Which walks from the first time on, and takes seconds for what began in the year 1."""
    begun = datetime(first.year, first.month, first.day, 8, tzinfo=UTC)
    after = begun + timedelta(days=days)
    expected = rrulestr(f"{rule};INTERVAL={interval}", dtstart=begun).after(after)
    found = next_occurrence(f"{rule};INTERVAL={interval}", rfc3339(begun), rfc3339(after))
    assert found == (None if expected is None else rfc3339(expected))


@pytest.mark.parametrize("unit", ["MONTHLY", "YEARLY"])
def test_what_began_in_the_year_1_is_not_walked_through(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = list[datetime]()

    def noted(rule: str, dtstart: datetime) -> Any:
        begun.append(dtstart)
        return rrulestr(rule, dtstart=dtstart)

    monkeypatch.setattr(clock, "rrulestr", noted)
    rule = f"FREQ={unit};BYDAY=MO,TU,WE,TH,FR,SA,SU"
    assert next_occurrence(rule, "0001-01-01T08:00:00Z", "9990-12-01T08:00:00Z") == "9990-12-02T08:00:00.000Z"
    assert [first.year for first in begun] == [9990]


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ("FREQ=SECONDLY;BYHOUR=1", "FREQ"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL"),
        ("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=31", "BYMONTH, BYMONTHDAY"),
        ("FREQ=MONTHLY;BYSETPOS=1", "BYSETPOS=1"),
        ("FREQ=DAILY;COUNT=3", "COUNT=3"),
        ("FREQ=DAILY;FREQ=WEEKLY", "FREQ=WEEKLY"),
        ("FREQ=DAILY;UNTIL=20271301T000000Z", "UNTIL"),
        ("FREQ=DAILY;UNTIL=20271201", "UNTIL"),
        ("INTERVAL=2", "FREQ"),
        ("RRULE:FREQ=DAILY", "RRULE:FREQ"),
        ("FREQ=WEEKLY;BYDAY=MO\nEXDATE:20261201T000000Z", "BYDAY"),
        ("", "FREQ"),
    ],
)
def test_what_cannot_be_is_named(rule: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        recurrence(rule)
