"""Guesses a query's language, and whether it may name a time. It looks at single words only and is fast."""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache

from app.retrieval.library_dates import OTHER_LANGUAGES, library_words, read_date
from app.retrieval.time_grammar import Grammar, grammars

WORD = re.compile(r"[^\W\d_]+")
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_DECADE = re.compile(r"\d0(?:'?s|er)")
_QUARTER = re.compile(r"(?<![a-z0-9])[qt][1-4](?!\w)")
NUMERIC_DATE = re.compile(
    r"(?<![\w./-])(?:(?:19|20)\d\d([-./])\d{1,2}\1\d{1,2}|\d{1,2}([-./])\d{1,2}\2(?:19|20)\d\d|\d{1,2}/\d{1,2}/\d\d"
    r"|(?:19|20)\d\d-(?:0[1-9]|1[0-2]))(?![\d/-]|\.\d)"
)
_SCRIPTS = {
    "ru": "Ѐ-ӿ", "uk": "Ѐ-ӿ", "el": "Ͱ-Ͽ", "ar": "؀-ۿ", "he": "֐-׿", "hi": "ऀ-ॿ", "ko": "가-힣", "th": "฀-๿",
}  # fmt: skip
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
    table = dict.fromkeys(map(ord, "’ʼ‘`´"), "'") | {
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
            words |= {fold(word) for word in library_words(language) if len(word) > 3}
    return frozenset(words)


@cache
def _unspaced_anchors() -> re.Pattern[str]:
    words = {word for grammar in known_grammars() if not grammar.spaced for word in grammar.anchors} - {"日", "天"}
    longest = sorted(map(re.escape, words), key=len, reverse=True)
    return re.compile("|".join(longest) + r"|[\d一二三四五六七八九十两几数今][日天]|先日|半年")


@cache
def _other_scripts() -> re.Pattern[str]:
    return re.compile("[" + "".join(set(_SCRIPTS.values())) + "]")


def may_hold_time(text: str) -> bool:
    """Returns False for most folded texts that name no time. It is fast."""
    if not anchors().isdisjoint(WORD.findall(text)):
        return True
    if not text.isascii() and (_unspaced_anchors().search(text) or _other_scripts().search(text)):
        return True
    return bool(_YEAR.search(text) or NUMERIC_DATE.search(text) or _QUARTER.search(text) or _DECADE.search(text))


def speaks_of_hours(text: str) -> bool:
    """Returns whether a folded text contains a word for hours."""
    words = set(WORD.findall(text))
    return any(
        not words.isdisjoint(hours) if grammar.spaced else any(hour in text for hour in hours)
        for grammar in known_grammars()
        if (hours := grammar.words_for("hour"))
    )


def languages(text: str) -> Iterator[tuple[Grammar, bool]]:
    """Yields the languages that the text may be written in, likeliest first, and whether no other one is likelier."""
    if _HAN.search(text) or _KANA.search(text):
        japanese = _KANA.search(text) is not None
        unspaced = [grammar for grammar in known_grammars() if not grammar.spaced]
        yield from ((grammar, True) for grammar in sorted(unspaced, key=lambda one: (one.code == "ja") != japanese))
    words = frozenset(WORD.findall(text))
    evidence = _evidence(words)
    best = max(evidence.values())
    digits = re.search(r"\d", text) is not None
    hits = {grammar: len(words & grammar.anchors) for grammar in evidence}
    for grammar in sorted(evidence, key=lambda one: (-evidence[one], -hits[one])):
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
