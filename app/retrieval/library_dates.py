"""Dates and relative times that dateparser reads.

It reads full dates in all supported languages, and whole expressions in languages without a table of their own. The
library returns a point in time and its precision; the span follows from both.
"""

import re
import threading
from datetime import datetime
from functools import cache, lru_cache

from dateparser.date import DateDataParser
from dateparser.languages.loader import default_loader

from app.retrieval import calendar_spans
from app.retrieval.calendar_spans import Span

OTHER_LANGUAGES = (
    "nl",
    "sv",
    "da",
    "nb",
    "fi",
    "pl",
    "cs",
    "ro",
    "tr",
    "id",
    "vi",
    "ru",
    "uk",
    "el",
    "ar",
    "he",
    "hi",
    "ko",
    "th",
)
"""Languages that only the library reads, with the library's words of time."""

_UNITS = {"day": "day", "week": "week", "month": "month", "year": "year"}
_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_UNSPACED = {"ko", "th"}
_UNCLEAR = {"कल", "morgen", "huom", "eilen", "seminggu", "sebulan", "setahun", "sehari", "minggu", "अगला", "يومين"}
"""Words of the library that also mean something else, or both the past and the future."""
_HAN_DATE = re.compile(r"(?:(\d{4})年)?(0?[1-9]|1[0-2])月(\d{1,2})[日号號]")
_HAN_DIGITS = str.maketrans("一二三四五六七八九", "123456789")
_LOCK = threading.Lock()
"""Guards the library's caches, which threads share."""


def read_date(text: str, language: str, now: datetime) -> Span | None:
    """Returns the span of a whole text, or None if the library cannot read it. `now` is local.

    It takes about a millisecond, and 50 to 400 ms for the first text of a language.
    """
    if (han := _HAN_DATE.fullmatch(_digits(text))) is not None:  # without a year the library reads the month as one
        year, month, day = han.groups("")
        text, language = f"{day} {_MONTHS[int(month) - 1]} {year}", "en"
    with _LOCK:
        found = _parser(language, calendar_spans.midnight(now)).get_date_data(text)
    if found.date_obj is None:
        return None
    return calendar_spans.unit_span(_UNITS.get(found.period, "day"), found.date_obj.replace(tzinfo=None))


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


def _digits(text: str) -> str:
    """Converts Chinese numbers below 100 to digits: 十二 is 12, 三十 is 30."""
    text = re.sub(r"([一二三四五六七八九]?)十([一二三四五六七八九]?)", lambda m: f"{m[1] or '一'}{m[2] or '0'}", text)
    return text.translate(_HAN_DIGITS)


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
    return re.compile(rf"(?<!\w)(?:{'|'.join(alternatives)}){end}")


def library_words(language: str) -> set[str]:
    """Returns words in lower case; every text that the language's pattern matches contains one of them."""
    words = (re.findall(r"[^\W\d_]+", re.sub(r"\\.", " ", phrase)) for phrase in _phrases(language))
    return {max(found, key=len) for found in words} | _month_names(language)


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
        re.sub(r"\(\\d\+\+.*?\)", r"\\d{1,4}", pattern.lower())
        for when, patterns in info["relative-type-regex"].items()
        for pattern in patterns
        if not re.search("minute|second", when) and _tells(re.sub(r"\(.*?\)|\W", "", pattern))
    }
    return frozenset(fixed | counted)


@cache
def _month_names(language: str) -> frozenset[str]:
    info = default_loader.get_locale(language).info
    return frozenset(word.lower() for month in _MONTHS for word in info[month] if _tells(word))


def _tells(phrase: str) -> bool:
    return phrase.lower() not in _UNCLEAR and len(phrase) > (4 if phrase.isascii() else 1)
