"""Text of any language: folding, words, sentences, numbers. Nothing here knows what a sentence means.

What stored keys, hashes and index terms are made of keeps its bytes and stands in `storage/text.py`.
"""

import re
import tomllib
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

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


PLAIN_APOSTROPHES = dict.fromkeys(map(ord, "\u2019\u02bc\u2018\u00b4`\uff07\u02bb\u02bd\u02be\u02bf\ua78c"), "'")
"""For `str.translate`: what is typed in the place of an apostrophe."""
_PART = rf"[^\W_{UNSPACED}][^\W_{UNSPACED}{marks()}]*(?:[{marks()}]+[^\W_{UNSPACED}]+)*[{marks()}]*"
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


_PLAIN = PLAIN_APOSTROPHES | {
    ord(letter): plain for letter, plain in zip("đðħıłøŧæœþ", "d d h i l o t ae oe th".split(), strict=True)
}
"""Also letters that Unicode does not take apart: Łódź and Đà Nẵng are typed Lodz and Da Nang."""


@kept(16 << 20, longest=64)
def fold(word: str) -> str:
    """Returns a word or a short text without differences of case, width, accents, strokes and typographic apostrophes:
    `fold("Zürich\u2019s") == "zurich's"`, `fold("Łódź") == "lodz"`."""
    if word.isascii():
        return word.lower().replace("`", "'")
    plain: list[str] = []
    composed = unicodedata.normalize("NFKC", word).replace("\u0301", "")  # what is left of it shows a stress: Пу́шкин
    for character in unicodedata.normalize("NFKD", composed.casefold()):
        if not (unicodedata.combining(character) and plain and plain[-1] <= _LAST_WITH_ACCENTS):
            plain.append(character)
    return unicodedata.normalize("NFC", "".join(plain)).translate(_PLAIN)


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


_CLOSING = re.compile(r"(?<![.!\u2026\u3002\uff01])[.!\u2026\u3002\uff01]+(?=\s|$)")
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
    r"(?<![.!?\u2026\u061f\u06d4\u0964])[.!?\u2026\u061f\u06d4\u0964]+[\"'\u201d\u2019)\]\u00bb]*(?:\s+|$)"
    r"|[\u3002\uff01\uff1f]+[\u300d\u300f\u201d\uff09]*\s*|(?<!\s)\s*[\r\n]\s*"
)
"""Begins where a run of stops or of white space begins: from each of its 32,000 stops the rest would be read again."""
_IN_RUN = re.compile(r"[\s.!?\u2026\u061f\u06d4\u0964]")
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
    begin = low
    while begin and _IN_RUN.match(text, begin - 1):
        begin -= 1
    for match in _SENTENCE_END.finditer(text, begin):
        if match.end() > high:
            return
        if match.end() > low and not _goes_on(text[max(0, match.end() - _LONGEST_ABBREVIATION) : match.end()]):
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


NUMBER_WORDS = tomllib.loads((Path(__file__).parent / "data" / "number_words.toml").read_text("utf-8"))
"""The tables of `data/number_words.toml`, whose head explains them."""
FUNCTION_WORDS = {code: frozenset(table["function_words"].split()) for code, table in NUMBER_WORDS["words"].items()}
"""Words that tell the language of a text, without accents."""
_LONGEST_NUMBER = 64
"""Letters of a number that is one word."""
_HAN_AMOUNT = re.compile(
    f"(?<!\\d)\\d+(?:\\.\\d+)?[千万萬億亿]+|[{_HAN_NUMERALS}]{{0,9}}[十百千万萬億亿][{_HAN_NUMERALS}]{{0,12}}|[{_HAN_NUMERALS}]{{4}}(?=年)"
    f"|[{_HAN_NUMERALS}](?=[点點時时刻分月日号號度])"
)


class _NumberWords:
    """What the words of one language count."""

    def __init__(self, code: str, table: Mapping[str, str]) -> None:
        self.code, self.conjunction = code, table["and"]
        self.doubtful = frozenset(table.get("doubtful", "").split())
        self.function_words = FUNCTION_WORDS[code]
        self.values, self._inside = dict[str, int](), dict[str, int]()
        for name, counted in (
            ("small", range(1, 20)),
            ("tens", range(20, 100, 10)),
            ("hundreds", range(100, 1000, 100)),
            ("thousands", (10**3, 10**6, 10**9)),
        ):
            for forms, value in zip(table[name].split(), counted, strict=False):  # "hundreds" may have 100 alone
                for form in forms.split("|"):
                    for spelling in {form.rstrip("-"), fold(form.rstrip("-"))}:
                        self._inside[spelling] = value
                        if not form.endswith("-"):
                            self.values[spelling] = value
        self._beginnings = {word[:3] for word in self._inside} if "joined" in table else set[str]()

    def value(self, word: str) -> int | None:
        """Returns what a folded word counts, also one that is joined from several: 22 for "zweiundzwanzig"."""
        if (known := self.values.get(word)) is not None or word[:3] not in self._beginnings:
            return known
        return self._joined(word, (0, 0)) if len(word) <= _LONGEST_NUMBER else None

    def _joined(self, rest: str, number: tuple[float, float], *, inverted: bool = False) -> int | None:
        if not rest:
            return int(sum(number))
        for end in range(len(rest), 1, -1):
            value = self._inside.get(rest[:end])
            longer = None if value is None else _extended(*number, value, inverted=inverted)
            if longer is not None and (whole := self._joined(rest[end:], longer)) is not None:
                return whole
        behind = rest.removeprefix(self.conjunction)
        return self._joined(behind, number, inverted=True) if behind != rest and not inverted else None


def _extended(total: float, below: float, value: float, *, inverted: bool = False) -> tuple[float, float] | None:
    """Returns a number to which a word is added, as what its thousands count and what is below them; None if the word
    begins another number: `_extended(2000, 50, 8)` is (2000, 58), 8 and 50 are two numbers.

    `inverted`: the ones came first, as in "acht-und-fünfzig".
    """
    tens = below % 100
    if value >= 1000:
        counted = total % value + below
        if value not in (10**3, 10**6, 10**9):  # a word that is joined from several
            return None if below or total % 10**6 else (total + value, 0)
        if total and (not counted or (total >= value and total % (1000 * value))):
            return None
        return total - total % value + (counted or 1) * value, 0
    if value == 100 and 0 < below < 100:
        return total, 100 * below
    fits = (
        not below
        or (value < 10 and tens % 10 == 0 and tens != 10)
        or (10 <= value < 20 and tens in (0, 60, 80))  # soixante-douze, quatre-vingt-dix
        or (20 <= value < 100 and (not tens or (inverted and tens < 10 and value % 10 == 0)))
    )
    return (total, below + value) if fits else None


def _counts(word: str) -> list[_NumberWords]:
    """Returns the languages in which a folded word is a number."""
    return [each for each in _OF_NUMBERS if each.value(word) is not None]


_OF_NUMBERS = [_NumberWords(code, table) for code, table in NUMBER_WORDS["words"].items()]
_KNOWN = {word: _counts(word) for each in _OF_NUMBERS for word in each.values}
_COUNTING = frozenset(word for each in _OF_NUMBERS for word, value in each.values.items() if value > 1)
_BEGINNINGS = frozenset(beginning for each in _OF_NUMBERS for beginning in each._beginnings)
_HYPHENED = sorted({word for word in _COUNTING if "-" in word}, key=len, reverse=True)
_NUMBER_PIECE = re.compile(rf"(?:{'|'.join(_HYPHENED)})(?!\w)|[^\W\d_]+|(?<!\d)\d++(?:[.,]\d{{1,2}})?(?![.,]?\d)")


@dataclass(slots=True)
class _Number:
    """A number, as far as it was read."""

    start: int
    end: int
    total: float
    below: float
    languages: list[_NumberWords]
    """Those that its words are of; all while it has digits alone."""
    word: str = ""
    """Its last word."""
    is_word: bool = True
    """It has no other word and no digits."""


def spelled_numbers(text: str, words: Collection[str], language: str | None = None) -> list[tuple[int, int, str]]:
    """Returns the numbers that a folded text with these `words` writes in words of one of eight languages, with their
    places, in digits: of "two pots and twenty-five tulips" `[(0, 3, "2"), (13, 24, "25")]`.

    Also those in words and digits ("2,5 millions") and in Chinese numerals. One alone is none: it is an article.
    `language`: only the words of this one count, whatever they mean in others; no Chinese numerals.
    """
    found: list[tuple[int, int, str]] = []
    if not _COUNTING.isdisjoint(words) or any(
        word[:3] in _BEGINNINGS and len(word) > 6 and _counts(word) for word in words
    ):
        found = [
            (number.start, number.end, f"{round(number.total + number.below, 2):.15g}")
            for number in _numbers_in_words(text)
            if number.word
            and number.total + number.below >= 2
            and not (number.is_word and language is None and _is_doubtful(number, words))
            and (language is None or any(each.code == language for each in number.languages))
        ]
    if language is None and not text.isascii():
        found += [(match.start(), match.end(), _han_amount(match[0])) for match in _HAN_AMOUNT.finditer(text)]
    return found


def _numbers_in_words(text: str) -> Iterator[_Number]:
    number: _Number | None = None
    last = 0  # where the last word of the number, or an "and" behind it, ends
    for piece in _NUMBER_PIECE.finditer(text):
        word = piece[0]
        if number is not None and text[last : piece.start()] not in (" ", "-", "\u00a0"):
            yield number
            number = None
        if number is not None and any(word == each.conjunction for each in number.languages):
            last = piece.end()
            continue
        digits = word[0].isdecimal()
        languages = _OF_NUMBERS if digits else _KNOWN.get(word) or (_counts(word) if word[:3] in _BEGINNINGS else [])
        value = float(word.replace(",", ".")) if digits else (languages and languages[0].value(word)) or 0
        last = piece.end()
        if number is not None and not digits:
            common = [each for each in languages if each in number.languages]
            longer = _extended(number.total, number.below, value) if common and (number.word or value >= 1000) else None
            if longer is not None:
                number.total, number.below = longer
                number.end, number.languages, number.word, number.is_word = last, common, word, False
                continue
        if number is not None:
            yield number
        whole = value if value >= 1000 and not digits else 0
        number = _Number(piece.start(), last, whole, value - whole, languages, "" if digits else word)
        number = number if value else None
    if number is not None:
        yield number


def _is_doubtful(number: _Number, words: Collection[str]) -> bool:
    """Returns whether a number of one word is rather a word of another language than that of the text."""
    if not any(number.word in each.doubtful for each in number.languages):
        return False
    known = [len(each.function_words.intersection(words)) for each in _OF_NUMBERS]
    own = max(len(each.function_words.intersection(words)) for each in number.languages)
    return not own or own < max(known)


def _han_amount(written: str) -> str:
    digits = re.match(r"[\d.]+", written)
    if digits is None:
        return next(_han_values(written))
    factor = 1
    for numeral in written[digits.end() :]:
        factor *= int(unicodedata.numeric(numeral))
    return f"{round(float(digits[0]) * factor, 2):.15g}"


MONTHS = "january february march april may june july august september october november december".split()
_LANGUAGES_OF_TIME = "en de es fr it pt nl ru uk pl cs sv da tr id zh ja".split()
_TIMES = (*MONTHS, *"monday tuesday wednesday thursday friday saturday sunday day week month year".split())
_RELATIVE = "0 day ago", "1 day ago", "in 1 day", "2 day ago", "in 2 day"


@cache
def _month_numbers() -> Mapping[str, int]:
    """Returns the numbers of months by their folded names, those of the first languages before those of others."""
    return {
        fold(name): number
        for language in reversed(_LANGUAGES_OF_TIME)
        for number, month in enumerate(MONTHS, 1)
        for name in default_loader.get_locale(language).info[month]
    }


def month_number(word: str) -> int | None:
    """Returns the number of a month by its name in one of seventeen languages: `month_number("avril") == 4`."""
    return _month_numbers().get(fold(word))


@cache
def _time_words() -> tuple[frozenset[str], re.Pattern[str]]:
    """Returns the words of `names_time`, and a pattern of those of scripts without spaces."""
    infos = [default_loader.get_locale(language).info for language in _LANGUAGES_OF_TIME]
    names = {name for info in infos for time in _TIMES for name in info[time]}
    names |= {name for info in infos for when in _RELATIVE for name in info["relative-type"].get(when, ())}
    unspaced = {name for name in names if len(name) > 1 and is_unspaced(name) and name[0] != "("}
    whole = {max(info[month], key=len) for info in infos for month in MONTHS}  # May, and not "mar"
    spaced = {
        name.lower()
        for name in names
        if not is_unspaced(name) and " " not in name and (name in whole or len(fold(name)) > _LONGEST_SHORT_NAME)
    }
    return frozenset({*spaced, *map(fold, spaced)}), re.compile("|".join(sorted(unspaced, key=len, reverse=True)))


_LONGEST_SHORT_NAME = 3
"""Letters of "mon" and "mar", which mean something else, too."""


def names_time(text: str, words: Collection[str]) -> bool:
    """Returns whether a folded text with these `words` names a month, a weekday, a day, week, month or year, or a day
    next to today, in one of seventeen languages."""
    spaced, unspaced = _time_words()
    return not spaced.isdisjoint(words) or (is_unspaced(text) and unspaced.search(text) is not None)
