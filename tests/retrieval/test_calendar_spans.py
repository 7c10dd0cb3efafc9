from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.retrieval import time_grammar

NOW = datetime.fromisoformat("2026-06-17T15:20")
moments = st.datetimes(datetime.fromisoformat("1950-01-01"), datetime.fromisoformat("2100-01-01"))
units = st.sampled_from(["hour", "day", "week", "weekend", "fortnight", "month", "quarter", "year", "decade"])


@given(moments, units, st.integers(-40, 40))
def test_units_follow_each_other_without_a_gap(now: datetime, unit: str, offset: int) -> None:
    one, other = time_grammar.unit_span(unit, now, offset), time_grammar.unit_span(unit, now, offset + 1)
    assert one.start < one.end <= other.start
    assert unit == "weekend" or one.end == other.start


@given(moments, units)
def test_the_unit_of_a_moment_holds_it(now: datetime, unit: str) -> None:
    span = time_grammar.unit_span(unit, now)
    assert unit == "weekend" or span.start <= now < span.end


@given(moments, st.integers(-500, 500))
def test_months_are_added_by_the_calendar(now: datetime, months: int) -> None:
    moved = time_grammar.add_months(now, months)
    assert (moved.year * 12 + moved.month) - (now.year * 12 + now.month) == months
    assert moved.day == now.day or (moved + timedelta(days=1)).day == 1


@pytest.mark.parametrize(
    ("shift", "start"),
    [(None, "2025-12-01"), (-1, "2025-12-01"), (-2, "2024-12-01"), (0, "2025-12-01"), (1, "2026-12-01")],
)
def test_a_winter_is_the_last_one_that_has_begun_unless_it_is_shifted(shift: int | None, start: str) -> None:
    span = time_grammar.months_span(NOW, 12, 3, shift, None)
    assert span is not None
    assert span.start.date().isoformat() == start


def test_within_a_season_the_last_one_is_a_year_ago() -> None:
    last, this = (time_grammar.months_span(NOW, 6, 3, shift, None) for shift in (-1, 0))
    assert last is not None
    assert this is not None
    assert (last.start.year, this.start.year) == (2025, 2026)


def test_since_tomorrow_has_no_sense() -> None:
    assert time_grammar.open_span(time_grammar.day_span(NOW, 1), "since", NOW) is None
    after = time_grammar.open_span(time_grammar.day_span(NOW, -3), "after", NOW)
    assert after == (datetime.fromisoformat("2026-06-15"), datetime.fromisoformat("2026-06-18"))
