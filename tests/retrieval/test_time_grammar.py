"""Amounts of time, drawn from a grammar in every language that is read, beside what `timedelta` says."""

import re
import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from dateparser.languages.loader import default_loader
from hypothesis import given
from hypothesis import strategies as st

from app.retrieval import time_grammar
from app.retrieval.time_expressions import OTHER_LANGUAGES, TimeInterval, library_pattern, read_interval

NOW = datetime(2026, 6, 17, 12, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TABLES: dict[str, Any] = tomllib.loads(
    (Path(time_grammar.__file__).parent / "data" / "time_words.toml").read_text(encoding="utf-8")
)
PHRASES = {
    # language: what stands around an amount, between its parts, and between the two numbers of a range
    "en": ("{} ago", " and ", " to "),
    "de": ("vor {}", " und ", " bis "),
    "es": ("hace {}", " y ", " a "),
    "fr": ("il y a {}", " et ", " à "),
    "it": ("{} fa", " e ", "-"),
    "pt": ("há {}", " e ", " a "),
    "zh": ("{}前", "", "到"),
    "ja": ("{}前", "", "から"),
}
UNITS = {
    "week": timedelta(weeks=1),
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
}
AROUND = {"hour": timedelta(minutes=30), "minute": timedelta(minutes=5)}
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu")

moments = st.datetimes(datetime.fromisoformat("2015-01-01"), datetime.fromisoformat("2035-01-01")).map(
    lambda at: at.replace(second=0, microsecond=0, tzinfo=UTC)
)


def bounds(interval: TimeInterval) -> tuple[datetime, datetime]:
    return EPOCH + timedelta(milliseconds=interval.start), EPOCH + timedelta(milliseconds=interval.end)


def point(now: datetime, parts: Sequence[tuple[str, float]]) -> datetime:
    """So long before a local time: weeks and days of the calendar, hours and minutes that passed."""
    for unit, count in parts:
        if unit in AROUND:
            now = (now.astimezone(UTC) - count * UNITS[unit]).astimezone(now.tzinfo)
        else:
            now -= count * UNITS[unit]
    return now


@st.composite
def numbers(draw: st.DrawFn, language: str, *, whole: bool = False) -> tuple[str, float]:
    """A number as it is written, and its value."""
    table = TABLES[language]
    words: dict[str, float] = {
        word: float(value)
        for value, listed in table["numbers"].items()
        for word in listed.split()
        if value.isdecimal() and value != "0" and "_" not in word
    }
    tens = {word: 10.0 * at for at, word in enumerate(table.get("tens", "").split(), 2)}
    ways = ["digits", "word", "thousands"] + (["tens"] if tens else []) + ([] if whole else ["decimal", "fraction"])
    match draw(st.sampled_from(ways)):
        case "word":
            return draw(st.sampled_from(sorted(words.items())))
        case "thousands":
            return draw(st.sampled_from([("1,000", 1000), ("1.200", 1200), ("2,400", 2400)]))
        case "tens":
            (ten, value), (one, more) = (
                draw(st.sampled_from(sorted(tens.items()))),
                draw(st.sampled_from([pair for pair in sorted(words.items()) if pair[1] < 10 and "'" not in pair[0]])),
            )
            return (ten, value) if draw(st.booleans()) else (f"{ten}-{one}", value + more)
        case "decimal":
            count = draw(st.integers(0, 20)) + 0.5
            return draw(st.sampled_from([str(count), str(count).replace(".", ",")])), count
        case "fraction":
            return draw(st.sampled_from([("1/2", 0.5), ("½", 0.5), ("3/2", 1.5), ("2½", 2.5), ("1¼", 1.25)]))
    count = draw(st.integers(1, 999))
    return str(count), count


@st.composite
def unit_words(draw: st.DrawFn, language: str, unit: str) -> str:
    table = TABLES[language]
    words = " ".join(table[form].get(unit, "") for form in ("one", "many")).split()
    return draw(st.sampled_from(words))


def written(language: str, number: str, unit: str) -> str:
    return f"{number}{unit}" if language in ("zh", "ja") else f"{number} {unit}"


@st.composite
def amounts(draw: st.DrawFn) -> tuple[str, list[tuple[str, float]]]:
    """A phrase such as "2 hours and 30 minutes ago", and its parts."""
    language = draw(st.sampled_from(sorted(PHRASES)))
    frame, and_, _ = PHRASES[language]
    units = sorted(draw(st.sets(st.sampled_from(list(UNITS)), min_size=1, max_size=3)), key=list(UNITS).index)
    texts, parts = list[str](), list[tuple[str, float]]()
    for at, unit in enumerate(units):
        if len(units) > 1 and language in ("zh", "ja"):  # 一周一日 holds 周一, a Monday
            value = float(draw(st.integers(1, 999)))
            number = str(int(value))
        else:
            number, value = draw(numbers(language, whole=at < len(units) - 1))
        texts.append(written(language, number, draw(unit_words(language, unit))))
        parts.append((unit, value))
    return frame.format(and_.join(texts)), parts


@given(amounts(), moments, st.sampled_from(ZONES))
def test_an_amount_is_as_long_ago_as_it_says(
    amount: tuple[str, list[tuple[str, float]]], now: datetime, name: str
) -> None:
    phrase, parts = amount
    zone = ZoneInfo(name)
    at, interval = point(now.astimezone(zone), parts), read_interval(phrase, now, zone)
    assert interval is not None, phrase
    assert interval.words == phrase
    start, end = bounds(interval)
    unit, count = parts[-1]
    if unit in AROUND:
        around = AROUND["minute" if count % 1 else unit]
        assert (start, end) == (at - around, at + around) or (start, end) == (
            at.astimezone(UTC) - around,
            at.astimezone(UTC) + around,
        )
        return
    first = at.date() if unit == "day" else at.date() - timedelta(days=at.weekday())
    assert start.astimezone(zone).date() == first
    assert (end - timedelta(microseconds=1)).astimezone(zone).date() == first + UNITS[unit] - timedelta(days=1)


@given(st.sampled_from(sorted(PHRASES)), st.data(), st.sampled_from(["day", "hour", "minute"]), st.integers(2, 40))
def test_a_range_of_amounts_has_both_ends(language: str, data: st.DataObject, unit: str, low: int) -> None:
    high = low + data.draw(st.integers(1, 40))
    frame, _, to = PHRASES[language]
    word = data.draw(unit_words(language, unit))
    phrase = frame.format(written(language, f"{low}{data.draw(st.sampled_from([to, '-', '–']))}{high}", word))
    interval = read_interval(phrase, NOW)
    assert interval is not None, phrase
    around = timedelta(hours=12) if unit == "day" else AROUND[unit]  # of noon
    assert bounds(interval) == (NOW - high * UNITS[unit] - around, NOW - low * UNITS[unit] + around)


@given(st.sampled_from(sorted(set(PHRASES) - {"ja"})), st.data(), st.sampled_from(["day", "week"]))
def test_less_than_an_amount_ago_is_the_time_since_and_more_is_until_then(
    language: str, data: st.DataObject, unit: str
) -> None:
    frame, _, _ = PHRASES[language]
    number, value = data.draw(numbers(language, whole=True))
    amount = written(language, number, data.draw(unit_words(language, unit)))
    then = (NOW - value * UNITS[unit]).replace(hour=0)
    for name in ("less", "more"):
        bound = data.draw(
            st.sampled_from([word for word in TABLES[language][name].split("|") if not word.endswith("'")])
        )
        phrase = frame.format(f"{bound}{'' if language == 'zh' else ' '}{amount}")
        interval = read_interval(phrase, NOW)
        assert interval is not None, phrase
        assert interval.words == phrase
        start, end = bounds(interval)
        if name == "less":
            assert (start, end) == (then, NOW.replace(hour=0) + timedelta(days=1))
        else:
            assert end == then
            assert start < end - timedelta(days=3_000)


@pytest.mark.parametrize(
    ("query", "start", "end"),
    [
        ("2年多前", "2014-06-17T00:00", "2024-06-17T00:00"),
        ("2週間以上前", "2016-06-03T00:00", "2026-06-03T00:00"),
        ("1週間以内前", "2026-06-10T00:00", "2026-06-18T00:00"),
        ("an hour and a half ago", "2026-06-17T10:25", "2026-06-17T10:35"),
        ("two and a half hours ago", "2026-06-17T09:25", "2026-06-17T09:35"),
        ("three quarters of an hour ago", "2026-06-17T11:10", "2026-06-17T11:20"),
        ("vor anderthalb Stunden", "2026-06-17T10:25", "2026-06-17T10:35"),
        ("hace dos horas y media", "2026-06-17T09:25", "2026-06-17T09:35"),
        ("il y a une demi-heure", "2026-06-17T11:25", "2026-06-17T11:35"),
        ("un'ora e mezza fa", "2026-06-17T10:25", "2026-06-17T10:35"),
        ("两个半小时前", "2026-06-17T09:25", "2026-06-17T09:35"),
        ("二十五分钟前", "2026-06-17T11:30", "2026-06-17T11:40"),
        ("两三天前", "2026-06-14T00:00", "2026-06-16T00:00"),
        ("half a year ago", "2025-12-01T00:00", "2026-01-01T00:00"),
        ("1.5 years ago", "2024-12-01T00:00", "2025-01-01T00:00"),
        ("in the past 24-48 hours", "2026-06-15T12:00", "2026-06-17T12:00"),
        ("in 2025 and 2026", "2025-01-01T00:00", "2027-01-01T00:00"),
        ("en 2024 y 2025", "2024-01-01T00:00", "2026-01-01T00:00"),
        ("أول أمس", "2026-06-15T00:00", "2026-06-16T00:00"),
        ("ماذا فعلنا بعد غد", "2026-06-19T00:00", "2026-06-20T00:00"),
        ("เมื่อวานซืน", "2026-06-15T00:00", "2026-06-16T00:00"),
        ("wat zei ik 15 minuten geleden", "2026-06-17T11:40", "2026-06-17T11:50"),
        ("seventeen hours and thirty minutes ago", "2026-06-16T18:25", "2026-06-16T18:35"),
        ("vor fünfunddreißig Minuten", "2026-06-17T11:20", "2026-06-17T11:30"),
        ("il y a quatre-vingt-dix minutes", "2026-06-17T10:25", "2026-06-17T10:35"),
        ("hace veintidós días", "2026-05-26T00:00", "2026-05-27T00:00"),
        ("há dez dias", "2026-06-07T00:00", "2026-06-08T00:00"),
        ("What is on a week from Tuesday?", "2026-06-30T00:00", "2026-07-01T00:00"),
        ("two weeks from tomorrow", "2026-07-02T00:00", "2026-07-03T00:00"),
        ("a week ago today", "2026-06-10T00:00", "2026-06-11T00:00"),
        ("Was war heute vor einer Woche?", "2026-06-10T00:00", "2026-06-11T00:00"),
        ("Was ist Dienstag in zwei Wochen?", "2026-07-07T00:00", "2026-07-08T00:00"),
        ("il y a une semaine aujourd'hui", "2026-06-10T00:00", "2026-06-11T00:00"),
        ("quarantacinque minuti fa", "2026-06-17T11:10", "2026-06-17T11:20"),
    ],
)
def test_amounts_as_people_say_them(query: str, start: str, end: str) -> None:
    interval = read_interval(query, NOW)
    assert interval is not None
    assert [f"{at:%Y-%m-%dT%H:%M}" for at in bounds(interval)] == [start, end]


@pytest.mark.parametrize(
    "query",
    [
        "umpteen hours and 30 minutes ago",
        "2026-5 days ago",
        "0.125 days ago",
        "quatre-vingt-dix minutes ago",
        "三百二十天前",
        "10:30 days ago",
        "2 uur en 30 minuten geleden",
        "10-15 minuten geleden",
        "1.000 dagen geleden",
        "2시간 30분 전",
    ],
)
def test_no_part_of_an_amount_that_is_not_understood_is_read(query: str) -> None:
    assert read_interval(query, NOW) is None


LIBRARY = [
    (language, unit, phrase)
    for language in OTHER_LANGUAGES
    for unit in ("hour", "day")
    for pattern in default_loader.get_locale(language).info["relative-type-regex"].get(f"\\1 {unit} ago", ())
    if library_pattern(language).fullmatch(phrase := re.sub(r"\(.*?\)", "7", pattern).lower())
]


def test_the_library_counts_in_all_its_languages() -> None:
    assert {language for language, _, _ in LIBRARY} == set(OTHER_LANGUAGES)


@given(st.sampled_from(LIBRARY), st.integers(1, 23), moments, st.sampled_from(ZONES))
def test_amounts_in_other_languages(case: tuple[str, str, str], count: int, now: datetime, name: str) -> None:
    _, unit, phrase = case
    zone = ZoneInfo(name)
    interval = read_interval(phrase.replace("7", str(count)), now, zone)
    assert interval is not None, phrase
    at, (start, end) = point(now.astimezone(zone), [(unit, count)]), bounds(interval)
    if unit == "hour":
        assert start.timestamp() == at.timestamp() - 1800
        assert end.timestamp() == at.timestamp() + 1800
    else:
        assert start.astimezone(zone).date() == at.date()
        assert (end - timedelta(microseconds=1)).astimezone(zone).date() == at.date()


@pytest.mark.parametrize("query", ["1.5 days ago", "1,5 dagen geleden"])
def test_a_decimal_mark_begins_no_number(query: str) -> None:
    interval = read_interval(query, NOW)
    assert interval is not None
    assert interval.words == query
    start, end = bounds(interval)
    assert start <= NOW - timedelta(days=1.5) < end


@pytest.mark.parametrize(
    ("query", "now", "zone", "at"),
    [
        ("3 hours ago", "2026-11-01T08:00", "America/New_York", "2026-11-01T05:00"),
        ("90 minutes ago", "2026-11-01T07:00", "America/New_York", "2026-11-01T05:30"),
        ("vor 4 Stunden", "2026-10-25T03:00", "Europe/Berlin", "2026-10-24T23:00"),
        ("2 hours ago", "2026-03-08T08:00", "America/New_York", "2026-03-08T06:00"),
        ("in the last 3 hours", "2026-11-01T08:00", "America/New_York", "2026-11-01T05:00"),
    ],
)
def test_hours_that_passed_are_counted_over_a_change_of_the_clock(query: str, now: str, zone: str, at: str) -> None:
    interval = read_interval(query, datetime.fromisoformat(f"{now}Z"), ZoneInfo(zone))
    assert interval is not None
    start, end = bounds(interval)
    expected = datetime.fromisoformat(f"{at}Z")
    assert start == expected if "last" in query else start + (end - start) / 2 == expected
