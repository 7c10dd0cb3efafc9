"""Text of any language: folding, words, sentences, numbers. Nothing here knows what a sentence means.

What stored keys, hashes and index terms are made of keeps its bytes and stands in `storage/text.py`.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from dateparser.languages.loader import default_loader

from app.core.caches import kept

HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KANA_HANGUL = "\u3041-\u3096\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3"
THAI_LAO_MYANMAR_KHMER = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u1000-\u103f\u1050-\u109f\u1780-\u17d3"
UNSPACED = HAN + KANA_HANGUL + THAI_LAO_MYANMAR_KHMER
"""Scripts whose words are not told apart by spaces. Korean has spaces, but attaches particles to words."""

STOP_WORDS = frozenset(
    "a about am an and any are as at be been being but by can could d did do does doing don for from had has have "
    "having he her here hers him his how i if in into is it its just ll m me my of off on or our ours re s she so "
    "some such t than that the their theirs them then there these they this those to too up us ve very was we were "
    "what when where which who whom whose why will with would you your yours".split()
) | frozenset("的了是我你他她它们在和吗呢么这那与")
"""Words that searches pass over. A part of the index format, like the terms of `storage/text.py`."""


def marks() -> str:
    """Returns the combining marks outside `UNSPACED`, for a character class: Python's `\\w` omits them."""
    spans = (range(0x300, 0x0E00), range(0x0F00, 0x2000), range(0xA600, 0xAC00))
    return "".join(chr(c) for span in spans for c in span if unicodedata.category(chr(c)) in ("Mn", "Mc"))


PLAIN_APOSTROPHES = dict.fromkeys(map(ord, "\u2019\u02bc\u2018\u00b4`\uff07"), "'")
"""For `str.translate`: what is typed in the place of an apostrophe."""
_PART = rf"[^\W_{UNSPACED}][^\W_{UNSPACED}{marks()}]*(?:[{marks()}]+[^\W_{UNSPACED}]*)*"
_TOKEN = re.compile(rf"[{UNSPACED}]|{_PART}(?:['-]{_PART})*")
_PIECE = re.compile(rf"[{UNSPACED}]|{_PART}")
_RUN = re.compile(rf"[{UNSPACED}]+|{_PART}")
_WORD_OR_TWO = re.compile(rf"[{UNSPACED}]{{1,2}}|[^\W\d_{UNSPACED}]+")
_IN_UNSPACED = re.compile(f"[{UNSPACED}]")
_LAST_WITH_ACCENTS = "\u03ff"
"""Accents of Latin and Greek letters are left out in a hurry; other scripts' marks are letters (й, が)."""


@dataclass(frozen=True, slots=True)
class Token:
    """A folded word, or one character of a script without spaces, with its place in the text."""

    word: str
    start: int
    end: int


def words_and_english(text: str) -> tuple[int, int]:
    """Returns how many words a text has, and how many of them are small words of English: 40 in 100 of an English text,
    under 10 of one in another language. Of a script without spaces two characters count as a word."""
    words = _WORD_OR_TWO.findall(text)
    return len(words), sum(word.isascii() and word.lower() in STOP_WORDS for word in words)


@kept(16 << 20, longest=64)
def fold(word: str) -> str:
    """Returns a word or a short text without differences of case, width, accents and typographic apostrophes:
    `fold("Zürich\u2019s") == "zurich's"`."""
    if word.isascii():
        return word.lower().replace("`", "'")
    plain: list[str] = []
    for character in unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", word).casefold()):
        if not (unicodedata.combining(character) and plain and plain[-1] <= _LAST_WITH_ACCENTS):
            plain.append(character)
    return unicodedata.normalize("NFC", "".join(plain)).translate(PLAIN_APOSTROPHES)


def tokens(text: str) -> list[Token]:
    """Returns the words of a text in order, folded; each character of a script without spaces is one."""
    even = text.translate(PLAIN_APOSTROPHES)
    return [Token(fold(match[0]), match.start(), match.end()) for match in _TOKEN.finditer(even)]


def words(text: str) -> list[str]:
    """Returns the folded words of `tokens`."""
    return [token.word for token in tokens(text)]


_RUN_OF_TEXT = re.compile(rf"[{UNSPACED}]{{1,2}}|[^\s{UNSPACED}]+")


def word_count(text: str) -> int:
    """Returns how many words a text has for a reader: runs between spaces; in scripts without spaces two characters."""
    return sum(1 for _ in _RUN_OF_TEXT.finditer(text))


_CLOSING = re.compile(r"[.!\u2026\u3002\uff01]+(?=\s|$)")
_WORD_OR_MARK = re.compile(r"\w+(?:[.,:/'-]\w+)*|[^\w\s]")
_EVEN_HYPHENS = PLAIN_APOSTROPHES | dict.fromkeys(map(ord, "\u2010\u2011"), "-")


def wording(text: str) -> tuple[str, ...]:
    """Returns the words and marks of a text in order, so that texts of the same words compare equal. Case, width, space
    and closing marks make no difference, everything else does: `wording("Paid $5!") == wording("paid $5")`, which is
    not `wording("Paid 5")`."""
    plain = unicodedata.normalize("NFKC", text).casefold().translate(_EVEN_HYPHENS)
    return tuple(_WORD_OR_MARK.findall(_CLOSING.sub(" ", plain))) or (text,)


def has_word_of(name: str, text: str) -> bool:
    """Returns whether a word of a name stands in a text as a word: "Jean" of "Jean-Luc", 王伟 in 提醒王伟先生. Case and
    accents do not count."""
    letters = Letters.of(text)
    return any(letters.place_of(Letters.of(run)) for run in _RUN.findall(name))


def whole(phrase: str) -> str:
    """Returns a pattern that matches a phrase as whole words, whatever white space is between them. In scripts without
    spaces it may stand anywhere."""
    before = "" if is_unspaced(phrase[:1]) else r"(?<!\w)"
    after = "" if is_unspaced(phrase[-1:]) else r"(?!\w)"
    return before + r"\s+".join(map(re.escape, phrase.split(" "))) + after


def is_unspaced(text: str) -> bool:
    """Returns whether a text has characters of a script without spaces."""
    return not text.isascii() and _IN_UNSPACED.search(text) is not None


@dataclass(frozen=True, slots=True)
class Letters:
    """The letters and digits of a text, folded, without anything between them, in which phrases are looked up:
    `Letters.of("à l\u2019école, 10 km").letters == "alecole10km"`."""

    letters: str
    begins: Mapping[int, int]
    """Where the parts of words begin: their places in `letters`, and in the text. "l'école" has two parts."""
    ends: Mapping[int, int]

    @classmethod
    def of(cls, text: str) -> "Letters":
        """Reads a text."""
        parts: list[str] = []
        begins, ends, at = dict[int, int](), dict[int, int](), 0
        for match in _PIECE.finditer(text):
            parts.append(fold(match[0]))
            begins[at] = match.start()
            at += len(parts[-1])
            ends[at] = match.end()
        return cls("".join(parts), begins, ends)

    def place_of(self, phrase: "Letters", start: int = 0) -> tuple[int, int] | None:
        """Returns the first span of the text, in characters, at or behind `start`, that has the letters of a phrase
        and cuts no word, or None."""
        at = self.letters.find(phrase.letters) if phrase.letters else -1
        while at >= 0:
            begin, end = self.begins.get(at), self.ends.get(at + len(phrase.letters))
            if begin is not None and end is not None and begin >= start:
                return begin, end
            at = self.letters.find(phrase.letters, at + 1)
        return None


def place_of(phrase: str, text: str) -> tuple[int, int] | None:
    """Returns where a phrase stands in a text word for word, as a span of characters, or None. Case, accents, white
    space and everything else between letters do not count: "10km" stands in "10 km", "école" in "l'école"."""
    return Letters.of(text).place_of(Letters.of(phrase))


# --- Sentences --------------------------------------------------------------------------------------------------------

_SENTENCE_END = re.compile(
    r"[.!?\u2026\u061f\u06d4\u0964]+[\"'\u201d\u2019)\]\u00bb]*(?:\s+|$)"
    r"|[\u3002\uff01\uff1f]+[\u300d\u300f\u201d\uff09]*\s*|\s*[\r\n]\s*"
)
_BEFORE_STOP = re.compile(r"(?:^|[\s(\"'\u201e\u201c\u00ab-])([^\s(\"'\u201e\u201c\u00ab-]+)\.\s+$")
_VOWELS = frozenset("aeiouy")
_MOST_CONSONANTS = 4
_LONGEST_ABBREVIATION = 24
"""Characters, with the space behind it."""


def sentences(text: str) -> list[str]:
    """Returns the sentences and lines of a text that are not empty, in order."""
    return [text[start:end] for start, end in sentence_spans(text)]


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Returns the places of `sentences`, without the white space around them."""
    spans: list[tuple[int, int]] = []
    for start, end in pairwise([0, *sentence_ends(text, 0, len(text)), len(text)]):
        part = text[start:end]
        if stripped := part.strip():
            begin = start + len(part) - len(part.lstrip())
            spans.append((begin, begin + len(stripped)))
    return spans


def sentence_ends(text: str, low: int, high: int) -> Iterator[int]:
    """Yields the places in `low`..`high` behind which a sentence or a line may begin."""
    for match in _SENTENCE_END.finditer(text, low):
        if match.end() > high:
            return
        if not _goes_on(text[max(0, match.end() - _LONGEST_ABBREVIATION) : match.end()]):
            yield match.end()


def _goes_on(text: str) -> bool:
    """Returns whether a full stop at the end of a text belongs to a word: "z.B.", "p.m.", "J.", "Dr.", "am 3."."""
    before = _BEFORE_STOP.search(text)
    if before is None or "\n" in text[before.end(1) :] or before[1].endswith("."):
        return False
    word = fold(before[1])
    if word.isdecimal():
        return len(word) <= 2
    latin = word.isascii() and word.replace(".", "").isalpha()
    return latin and (len(word) == 1 or "." in word or (len(word) <= _MOST_CONSONANTS and not _VOWELS & set(word)))


# --- Numbers ----------------------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"\d+(?:[.,:'\u2019\u00a0\u202f]\d+)*")
_GROUPED = re.compile(r"(\d{1,3}(?:([.,'])\d{3})(?:\2\d{3})*)(?:[.,](\d+))?")
_HAN_NUMERALS = "〇零一二两兩三四五六七八九十百千万萬亿億"
_HAN_NUMBER = re.compile(f"[{_HAN_NUMERALS}]+")
_OTHERWISE = {"两": 2.0, "兩": 2.0, "零": 0.0}
_MYRIAD = 10_000


def numbers(text: str) -> dict[str, frozenset[str]]:
    """Returns the numbers that a text writes in digits of any script, as they stand there, each with the values that it
    may have: `{"1.200": {"1200", "1.2"}, "08:30": {"8", "30"}, "٣": {"3"}}`."""
    return {match[0]: _values(match[0]) for match in _NUMBER.finditer(text)}


def values(text: str) -> frozenset[str]:
    """Returns the values of all numbers of a text, Chinese and Japanese numerals included: `values("三百二十")` has
    "320". They are no `numbers`, since 一 stands in many words that count nothing."""
    written = frozenset().union(*numbers(text).values())
    return written | {value for match in _HAN_NUMBER.finditer(text) for value in _han_values(match[0])}


def _values(written: str) -> frozenset[str]:
    plain = "".join(_digit(character) for character in written)
    if plain.isdecimal():
        return frozenset({_even(plain)})
    values = set[str]()
    if grouped := _GROUPED.fullmatch(plain):
        values.add(_even(re.sub(r"[.,']", "", grouped[1])) + (f".{grouped[3]}" if grouped[3] else ""))
    if decimal := re.fullmatch(r"(\d+)[.,](\d+)", plain):
        values.add(f"{_even(decimal[1])}.{decimal[2].rstrip('0')}".rstrip("."))
    if not values or decimal:
        values |= {_even(part) for part in re.split(r"[.,:']", plain)}  # a date, or a time of day: 1.5.2024, 1.5., 8:30
    return frozenset(values)


def _digit(character: str) -> str:
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    return {"\u2019": "'", "\u00a0": "'", "\u202f": "'"}.get(character, character)


def _even(digits: str) -> str:
    return digits.lstrip("0") or "0"


def _han_values(numerals: str) -> Iterator[str]:
    """Yields the value of Chinese numerals, and that of each digit of a number that is read out: 二〇二四 is 2024."""
    digits = [int(_OTHERWISE.get(numeral, 0.0) or unicodedata.numeric(numeral, 0.0)) for numeral in numerals]
    if all(digit < 10 for digit in digits):
        yield _even("".join(map(str, digits)))
        return
    total, below, digit = 0, 0, 0
    for value in digits:
        if value >= _MYRIAD:
            total, below, digit = total + (below + digit or 1) * value, 0, 0
        elif value >= 10:
            below, digit = below + (digit or 1) * value, 0
        else:
            digit = value
    yield str(total + below + digit)


def number_of(written: str) -> int:
    """Returns the value of a whole number in digits or in Chinese numerals: `number_of("十二") == 12`."""
    return int(written if written.isdecimal() else next(_han_values(written)))


_NAMES_OF_MONTHS = "january february march april may june july august september october november december".split()
_LANGUAGES_OF_MONTHS = "en de es fr it pt nl ru uk pl cs sv da tr id".split()


@cache
def _month_numbers() -> Mapping[str, int]:
    """Returns the numbers of months by their folded names, those of the first languages before those of others."""
    return {
        fold(name): number
        for language in reversed(_LANGUAGES_OF_MONTHS)
        for number, month in enumerate(_NAMES_OF_MONTHS, 1)
        for name in default_loader.get_locale(language).info[month]
    }


def month_number(word: str) -> int | None:
    """Returns the number of a month by its name in one of fifteen languages: `month_number("avril") == 4`."""
    return _month_numbers().get(fold(word))
