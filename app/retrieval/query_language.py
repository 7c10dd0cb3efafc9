"""Dates and relative times that dateparser reads, and the language that a query may be in.

dateparser reads full dates in all supported languages, and whole expressions in languages without a table of their own.
It returns a point in time and its precision; the span follows from both. The guess of a query's language, and of
whether it names a time at all, looks at single words only and is fast.
"""

import re
import threading
import unicodedata
from collections.abc import Iterator
from datetime import datetime
from functools import cache, lru_cache

from dateparser.date import DateDataParser
from dateparser.languages.loader import default_loader

from app.core.language import PLAIN_APOSTROPHES
from app.retrieval import calendar_spans
from app.retrieval.calendar_spans import Span
from app.retrieval.time_grammar import WORD, Grammar, grammars

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
_FURTHER = {
    "ar": {"أول أمس": -2, "أول من أمس": -2, "بعد غد": 2},
    "id": {"kemarin dulu": -2},
    "ko": {"내일 모레": 2},
    "th": {"เมื่อวานซืน": -2},
}
"""Phrases that hold a word of the library for yesterday or tomorrow and mean the day beside it, with their days."""
_HAN_DATE = re.compile(r"(?:(\d{4})年)?(0?[1-9]|1[0-2])月(\d{1,2})[日号號]")
_HAN_DIGITS = str.maketrans("一二三四五六七八九", "123456789")
_LOCK = threading.Lock()
"""Guards the library's caches, which threads share."""


def read_date(text: str, language: str, now: datetime) -> Span | None:
    """Returns the span of a whole text, or None if the library cannot read it. `now` is local, with its zone where
    hours are counted that passed.

    It takes about a millisecond, and 50 to 400 ms for the first text of a language.
    """
    if (days := _FURTHER.get(language, {}).get(text)) is not None:
        return calendar_spans.day_span(now.replace(tzinfo=None), days)
    today = calendar_spans.midnight(now.replace(tzinfo=None))
    if (han := _HAN_DATE.fullmatch(_digits(text))) is not None:  # without a year the library reads the month as one
        year, month, day = han.groups("")
        text, language = f"{day} {_MONTHS[int(month) - 1]} {year}", "en"
    with _LOCK:
        date = _parser(language, today).get_date_data(text)
    if date.date_obj is None:
        return None
    moment = date.date_obj.replace(tzinfo=None)
    if (passed := today - moment) % calendar_spans.DAY:  # "2 uur geleden"
        counted = ("minute", calendar_spans.MINUTE) if passed % calendar_spans.HOUR else ("hour", calendar_spans.HOUR)
        return calendar_spans.ago([(counted[0], passed / counted[1])], now)
    return calendar_spans.unit_span(_UNITS.get(date.period, "day"), moment)


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
    return re.compile(rf"(?<!\w)(?<!\d[.,/:])(?<![-–])(?:{'|'.join(alternatives)}){end}")


@cache
def counted_before(language: str) -> re.Pattern[str]:
    """Matches a text that ends in a unit, as before the last part of "2 uur en 30 minuten geleden"."""
    info = default_loader.get_locale(language).info
    units = sorted(
        (re.escape(word.lower()) for unit in ("hour", *_UNITS) for word in info[unit]), key=len, reverse=True
    )
    return re.compile(rf"\d\s*(?:{'|'.join(units)})\w*,?(?:\s+[^\W\d]{{1,3}})?\s+\Z")


def library_words(language: str) -> set[str]:
    """Returns words in lower case; every text that the language's pattern matches contains one of them."""
    words_of_phrases = (re.findall(r"[^\W\d_]+", re.sub(r"\\.", " ", phrase)) for phrase in _phrases(language))
    return {max(words, key=len) for words in words_of_phrases} | _month_names(language)


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
        re.sub(r"\(\\d\+\+.*?\)", r"\\d{1,4}(?:[.,]\\d{1,2})?", pattern.lower())
        for when, patterns in info["relative-type-regex"].items()
        for pattern in patterns
        if "second" not in when and _tells(re.sub(r"\(.*?\)|\W", "", pattern))
    }
    return frozenset(fixed | counted | set(map(re.escape, _FURTHER.get(language, ()))))


@cache
def _month_names(language: str) -> frozenset[str]:
    info = default_loader.get_locale(language).info
    return frozenset(word.lower() for month in _MONTHS for word in info[month] if _tells(word))


def _tells(phrase: str) -> bool:
    return phrase.lower() not in _UNCLEAR and len(phrase) > (4 if phrase.isascii() else 1)


_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_DECADE = re.compile(r"\d0(?:'?s|er)")
_QUARTER = re.compile(r"(?<![a-z0-9])[qt][1-4](?!\w)")
NUMERIC_DATE = re.compile(
    r"(?<![\w./-])(?:(?:19|20)\d\d([-./])\d{1,2}\1\d{1,2}|\d{1,2}([-./])\d{1,2}\2(?:19|20)\d\d|\d{1,2}/\d{1,2}/\d\d"
    r"|(?:19|20)\d\d-(?:0[1-9]|1[0-2]))(?![\d/-]|\.\d)"
)
_SHORT_DATE = re.compile(r"(?<![\w./-])\d{1,2}(?:/\d{1,2}|(?:st|nd|rd|th)|\.(?:\d{1,2}\.)?)(?![\w./])")
_SCRIPTS = {
    "ru": "Ѐ-ӿ", "uk": "Ѐ-ӿ", "el": "Ͱ-Ͽ", "ar": "؀-ۿ", "he": "֐-׿", "hi": "ऀ-ॿ", "ko": "가-힣", "th": "฀-๿",
}  # fmt: skip
_OTHER_SCRIPTS = re.compile(f"[{''.join(_SCRIPTS.values())}]")
_HAN, _KANA = re.compile("[㐀-鿿]"), re.compile("[ぁ-ヿ]")
_TRADITIONAL = "個週後間時這兩號禮現來從過開終變點鐘節聖誕"
_PLAIN = "个周后间时这两号礼现来从过开终变点钟节圣诞"


def fold(text: str) -> str:
    """Folds a text for comparison: lower case, Latin letters without accents, narrow forms, simplified Chinese.

    Each character stays at its place.
    """
    if text.isascii():
        return text.lower()
    return text.translate(_folding()).lower()


@cache
def _folding() -> dict[int, str]:
    table: dict[int, str] = PLAIN_APOSTROPHES | {
        0x3000: " ",
        **{ord(a): b for a, b in zip(_TRADITIONAL, _PLAIN, strict=True)},
    }
    for code in (*range(0xC0, 0x250), *range(0x1E00, 0x1F00)):
        base = unicodedata.normalize("NFKD", chr(code))[0]
        if base.isascii() and base.isalpha():
            table[code] = base
    table |= {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
    return table


@cache
def known_grammars() -> tuple[Grammar, ...]:
    """Returns the grammars of all languages that have a table."""
    return tuple(grammars(read_date))


@cache
def anchors() -> frozenset[str]:
    """Returns words of all languages with spaces; every expression without digits contains one of them."""
    words = {word for grammar in known_grammars() if grammar.spaced for word in grammar.anchors}
    for language in OTHER_LANGUAGES:
        if language not in _SCRIPTS:
            words |= {fold(word) for word in library_words(language) if len(word) > (3 if word.isascii() else 2)}
    return frozenset(words)


@cache
def _unspaced_anchors() -> re.Pattern[str]:
    words = {word for grammar in known_grammars() if not grammar.spaced for word in grammar.anchors} - {"日", "天"}
    longest = sorted(map(re.escape, words), key=len, reverse=True)
    return re.compile("|".join(longest) + r"|[\d½¼¾一二三四五六七八九十两几数今][日天]|先日|半年")


def may_hold_time(text: str) -> bool:
    """Returns False for most folded texts that name no time. It is fast."""
    if not anchors().isdisjoint(WORD.findall(text)):
        return True
    if not text.isascii() and (_unspaced_anchors().search(text) or _OTHER_SCRIPTS.search(text)):
        return True
    return bool(
        _SHORT_DATE.search(text)
        or _YEAR.search(text)
        or NUMERIC_DATE.search(text)
        or _QUARTER.search(text)
        or _DECADE.search(text)
    )


def languages(text: str) -> Iterator[tuple[Grammar, bool]]:
    """Yields the languages that the text may be written in, likeliest first, and whether no other one is likelier."""
    if _HAN.search(text) or _KANA.search(text):
        japanese = _KANA.search(text) is not None
        unspaced = [grammar for grammar in known_grammars() if not grammar.spaced]
        yield from (
            (grammar, True) for grammar in sorted(unspaced, key=lambda grammar: (grammar.code == "ja") != japanese)
        )
    words = frozenset(WORD.findall(text))
    evidence = _evidence(words)
    best = max(evidence.values())
    digits = re.search(r"\d", text) is not None
    hits = {grammar: len(words & grammar.anchors) for grammar in evidence}
    for grammar in sorted(evidence, key=lambda grammar: (-evidence[grammar], -hits[grammar])):
        if digits or hits[grammar]:
            yield grammar, evidence[grammar] == best


def likeliest(text: str) -> list[Grammar]:
    """Returns the languages that a folded text may be written in, judged by its function words."""
    if _HAN.search(text) or _KANA.search(text):
        return [grammar for grammar in known_grammars() if not grammar.spaced]
    evidence = _evidence(frozenset(WORD.findall(text)))
    best = max(evidence.values())
    return [grammar for grammar, count in evidence.items() if count == best]


def _evidence(words: frozenset[str]) -> dict[Grammar, int]:
    return {grammar: len(words & grammar.function_words) for grammar in known_grammars() if grammar.spaced}


def may_be_in(language: str, text: str) -> bool:
    """Returns whether the text contains the script of `language`, one of the library's languages."""
    script = _SCRIPTS.get(language)
    return script is None or re.search(f"[{script}]", text) is not None
