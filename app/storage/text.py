"""Text indexing: the terms of a text in any script, and two flags of its form.

    terms("The hikers met in Zürich") == ["hiker", "met", "zurich"]

The functions are pure and the same for documents and queries. A word is treated by its script, never by a guessed
language, so that the terms of a document and of a query always agree. Word boundaries follow Unicode's categories (a
letter keeps its combining marks). Text in scripts without spaces becomes overlapping bigrams (Unicode UAX 29 leaves
such scripts to a dictionary; bigrams need none). An emoji is a term; an emoji that is joined from several, such as a
family, has a term for each of these. An identifier of several words, such as 10.0.4.117 or LH 1234, is a term beside
its parts (`wholes`). So are values and names that words do not show, such as A+, 3 pm, a date or "client A"
(`notations`). The initials of neighbouring words are terms, too, and begin with ^ (`initials`).
"""

import re
import sys
import threading
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from hashlib import blake2b
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TypeAlias
from zlib import crc32

import numpy as np
import Stemmer
from numpy.typing import NDArray

from app.core import language
from app.core.caches import kept, kept_by_digest

TermIds: TypeAlias = NDArray[np.uint32]

HAS_NUMBER_OR_TIME_WORD = 1
IS_QUESTION = 2
TEXT_FLAGS = HAS_NUMBER_OR_TIME_WORD | IS_QUESTION
"""Bits that `index_text` sets. The bits that follow come from the document (`SearchSchema.flags`)."""
SAID_BY_USER = 4
SAID_BY_ASSISTANT = 8
PASSAGE = 16
SUMMARY = 32
LONG = 64
"""The text has more than one window, each with a vector of its own (`storage/index/record_codec.py`)."""
HAS_EVENT_TIME = 128
"""The record says when it happened or is due. Without this bit, its time is when it was told (`source.said_at`), else
when it was stored."""

_ARRAYS_FROM = 64
"""Characters of a text from which on arrays are faster than a loop (`text_ids`)."""
MAX_MENTIONED = 1_000
"""Words of a text that `mentions` reads."""
MAX_WORD = 64
"""Characters of a token that count. A longer token is data (base64, a hash), and its beginning identifies it."""
DATE_TERMS = 3
"""Terms that the date of a document adds to its length."""

_LETTER = rf"[^\W_{language.UNSPACED}\u02bb-\u02bf\ua78c]"
"""Not the apostrophes that Unicode calls letters, as in Ukrainian, Uzbek and Hawaiian."""
_PICTURE = (
    "\u231a\u231b\u2328\u23cf\u23e9-\u23fa\u2600-\u2775\u2794-\u27bf\u2b05-\u2b55\u3030\u303d"
    "\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff"
)
_FLAG = "[\U0001f1e6-\U0001f1ff]{1,2}|\U0001f3f4[\U000e0020-\U000e007f]*"
_EMOJI = rf"{_FLAG}|[#*]\ufe0f?\u20e3|[{_PICTURE}]"
"""A flag (two letters, or a flag with its region), a key, or a picture. Skin tones and variation selectors are no part
of it, so that a thumb of any colour is the same term."""
_PERSON = re.compile("\u200d[\u2640\u2642\U0001f9b0-\U0001f9b3]")
"""Sex and hair as they are joined to the picture of a person. They are removed: the person is the same term."""
_WORD = rf"{_LETTER}+(?:[{language.marks()}]+{_LETTER}+)*[{language.marks()}]*"
"""Each text has one way to match: of `(?:M+L*)*` a row of 50 marks has 2^49."""
_TOKEN = re.compile(rf"[{language.UNSPACED}]+|{_WORD}|{_EMOJI}")
_UNSPACED = re.compile(f"[{language.UNSPACED}]")
_HAN = re.compile(f"[{language.HAN}]")
_JOINERS = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)")
_JOINT = "[.:/_@+\u2010\u2011-]{1,3}"
_JOINED = re.compile(rf"{_WORD}(?:{_JOINT}{_WORD})*")
_MAY_BE_WHOLE = re.compile(rf"\d|{_LETTER}{_JOINT}{_LETTER}")
_ATOM = re.compile(_WORD)
_MIXED = re.compile(r"([^\W\d_]+)(\d+)|(\d+)([^\W\d_]+)")
_BETWEEN_NUMBERS = re.compile(r"(?<=\d) (?=\d)")
LONG_WORD = 5
"""Least letters of a word, and of its term, that may be mistyped: "cat" never becomes "car"."""
LONGEST_MISTYPED = 24
"""Most letters of a term that may be mistyped: 53 other terms are close to it for each of its letters."""
_ALPHABETS = tuple(
    tuple(chr(code).encode() for code in range(ord(first), ord(last) + 1))
    for first, last in ("az", "\u03b1\u03c9", "\u0430\u0451", "\u05d0\u05ea", "\u0621\u064a")
)
"""Latin, Greek, Cyrillic, Hebrew and Arabic letters, as UTF-8. In other scripts `close_ids` adds and replaces no
letters."""
SHORT_PREFIX = 4
"""Most letters of a word that forms an identifier with the number after it: LH 1234, but not "chapter 12"."""
MAX_INITIALS = 64
"""Most pairs of initials of a text that are terms. With more pairs a long text would match nearly every acronym."""
MOST_PARTS = 3
"""Most words of a query that are looked for as one identifier: "parse user id" as parse_user_id."""
SHORT_QUERY_TEXT = 100
"""Most characters of a query whose words are looked for as identifiers. A longer query is prose."""
MAX_ACRONYM = 4
"""Most letters of an acronym."""
LONG_QUERY_TEXT = 1_000
"""Most characters of a query in which acronyms are looked for."""
INITIALS_TEXT = 2_000
"""Characters of a text whose initials are read: more than enough for `MAX_INITIALS` pairs."""
LITTLE = 3
"""Most letters of a word that an acronym may leave out: MFA leaves out the "of" of "Ministry of Foreign Affairs"."""
_CLAUSE = re.compile(rf"(?<!{_LETTER}){_WORD}(?:[\s'\u2019\u2010\u2011-]+{_WORD})+")
_CASED = re.compile(r"[^\W\d_]{2,}")
FEWEST_CAPITALS = 2
"""Fewest capitals of an acronym, also before an ending: NDA in NDAs, МИД in МИДа."""
SQUASHED = 8
"""Least characters of an identifier that is a term without its points, too: an account may be written 4000.1234.5678 or
400012345678."""

_STEMMERS = (
    ("\u024f", "english"),
    ("\u03ff", "greek"),
    ("\u052f", "russian"),
    ("\u058f", "armenian"),
    ("\u05ff", None),
    ("\u06ff", "arabic light"),
    ("\u08ff", None),
    ("\u097f", "hindi"),
    ("\u0b7f", None),
    ("\u0bff", "tamil"),
)
"""The last character of each script's block, in order, and the stemmer for its words.

The stemmers are Snowball's (Latin: Porter2), except for Arabic: there Snowball keeps the article of short words, so
light10 is used (Larkey, Ballesteros & Connell 2007), with one suffix.
"""

_HEBREW_POINTS = re.compile("[\u0591-\u05bd\u05bf\u05c1-\u05c7]")
_HINDI_NASAL = re.compile("[\u0919\u091e\u0923\u0928\u092e]\u094d(?=[\u0915-\u0939])")
"""A nasal before a consonant, for which most write the dot: हिन्दी is हिंदी, सम्बन्ध is संबंध."""
_HINDI_MARKS = str.maketrans("\u0901", "\u0902", "\u093c")  # ँ is ं; ज़ is ज
_ARABIC_MARKS = re.compile("[\u0640\u064b-\u065f\u0670]")
_ARABIC_LETTERS = str.maketrans(  # أ إ آ ٱ ى; ک ی ہ of Persian and Urdu, which an Arabic keyboard does not have
    "\u0623\u0625\u0622\u0671\u0649\u06a9\u06cc\u06c1", "\u0627\u0627\u0627\u0627\u064a\u0643\u064a\u0647"
)
_ARABIC_WORD = re.compile(
    "(?:[\u0648\u0628\u0643\u0641]?\u0627\u0644(?=..)|\u0644\u0644(?=..)|\u0648(?=...))?(.{2,}?)"
    "(?:\u0647\u0627|\u0627\u0646|\u0627\u062a|\u0648\u0646|\u064a\u0646|\u064a\u0647|\u064a\u0629|\u0647|\u0629|\u064a)?"
)

_snowball = {name: Stemmer.Stemmer(name, 0) for _, name in _STEMMERS if name and name != "arabic light"}
_snowball_lock = threading.Lock()  # Stemmer objects are not re-entrant

_QUESTION_MARKS = "?\u061f\u037e\u2047\u2048\uff1f"
_SENTENCE_ENDS = ".!\u2026\u3002\uff01\u06d4\u0964"


@dataclass(frozen=True, slots=True)
class IndexedTerms:
    """The indexed terms of a document: distinct term ids, ascending, and how often each occurs (at most 255).

    `length`: the number of terms of its words and its date, without those that `wholes` and `initials` add. `flags`:
    `HAS_NUMBER_OR_TIME_WORD` and `IS_QUESTION`.
    """

    ids: TermIds
    counts: NDArray[np.uint8]
    length: int
    flags: int


def terms(text: str) -> list[str]:
    """Returns the index terms in order, with repetition. Stop words are removed unless there are no other words."""
    words = _words(_fold(text))
    return _terms_of(word for word in words if word not in language.STOP_WORDS) or _terms_of(words)


def _terms_of(words: Iterable[str]) -> list[str]:
    return [term for word in words if (term := _term(word))]


def words_in_order(text: str) -> list[str]:
    """Returns all words of a text as terms, stop words too, and single characters of scripts without spaces."""
    return [_term(part) for token in _tokens(_fold(text)) for part in (token if _UNSPACED.match(token) else [token])]


def parts_of_runs(text: str) -> list[str]:
    """Returns the distinct Han characters of a text that stand beside others, as terms: 天 of 今天."""
    runs = (token for token in _tokens(_fold(text)) if len(token) > 1 and _UNSPACED.match(token))
    return list(dict.fromkeys(character for run in runs for character in _HAN.findall(run)))


def mentions(text: str) -> list[str]:
    """Returns the distinct words of a text, in lower case and without stop words, and the pairs of neighbours among
    them: `mentions("Refund of Acme Ltd")` is `["refund", "acme", "ltd", "refund acme", "acme ltd"]`.

    A text that has a phrase has all that `mentions` returns of the phrase. At most `MAX_MENTIONED` words are read.
    """
    with_stop_words = _words(_fold(text))[:MAX_MENTIONED]
    words = [word for word in with_stop_words if word not in language.STOP_WORDS] or with_stop_words
    spaced = [None if _UNSPACED.match(word) else word for word in words]
    pairs = [f"{earlier} {later}" for earlier, later in pairwise(spaced) if earlier and later]
    return list(dict.fromkeys([*words, *pairs]))


@dataclass(frozen=True, slots=True)
class Whole:
    """An identifier or joined word as a term, with the terms of its parts: "lh1234" with "lh" and "1234".

    `one_word`: the text has it as a single word, as in LH1234, so that the parts are new to the text's terms. Of
    LH 1234 the whole is new.
    """

    term: str
    parts: tuple[str, ...]
    one_word: bool = False

    @property
    def added(self) -> tuple[str, ...]:
        """The terms that it adds to those of the text's words."""
        return self.parts if self.one_word else (self.term,)


def wholes(text: str) -> list[Whole]:
    """Returns the identifiers and joined words of a text: words joined by `. - : / _ @ +`, letters and digits with or
    without a space between them, and words with capitals inside (`_camel`).

    Whatever stands between two numbers becomes a point; whatever joins other words is left out. So different ways to
    write an identifier are the same term: `LH 1234` and `LH1234`, `B-XY 1234` and `BXY1234`, `e-mail` and `email`. But
    12.3 and 1.23 are two terms. An identifier with points that begins with letters is a term from its first number on,
    too: v3.12.1 has 3.12.1.
    """
    folded = _fold(text)
    may_be = _MAY_BE_WHOLE.search
    if not may_be(folded):
        return _camel(text)
    pieces = folded.split(" ")
    wanted = [bool(may_be(piece)) for piece in pieces]
    # only pieces with a number or a joint are read, and the piece before each: LH of "LH 1234"
    near = [here or after for here, after in pairwise([*wanted, False])]
    regions = (
        " ".join(piece for _, piece in group)
        for is_near, group in groupby(zip(near, pieces, strict=True), itemgetter(0))
        if is_near
    )
    return [
        whole
        for region in regions
        for atoms in _runs(region)
        for whole in (_of_word(*atoms) if len(atoms) == 1 else _of_joined(atoms))
    ] + _camel(text)


def _camel(text: str) -> list[Whole]:
    """Returns the words with capitals inside, with the parts that begin at these: "parseUserID" with "parse", "user"
    and "id"."""
    wholes: list[Whole] = []
    for word in _CASED.findall(text):
        if word.islower() or word.istitle() or word.isupper() or not MAX_ACRONYM < len(word) <= MAX_WORD:
            continue
        starts = [
            at
            for at, letter in enumerate(word)
            if letter.isupper() and (word[at - 1 : at].islower() or word[at + 1 : at + 4].islower())
        ]
        pieces = (word[start:end] for start, end in pairwise([*dict.fromkeys([0, *starts]), len(word)]))
        parts = [_fold(piece) for piece in pieces if len(piece) > 1]
        terms_of = dict.fromkeys(_term(part) for part in parts if part not in language.STOP_WORDS)
        if len(parts) > 1 and terms_of:
            wholes.append(Whole(_term(_fold(word)), tuple(terms_of), one_word=True))
    return wholes


def written_apart(query: str) -> list[Whole]:
    """Returns the identifiers that neighbouring words of a query may be. A query "parse user id function" has
    "parseuserid" among others, so that it finds parse_user_id. No stop word or number is a part."""
    if len(query) > SHORT_QUERY_TEXT:
        return []
    wholes: list[Whole] = []
    for clause in _CLAUSE.findall(_fold(query)):
        words = _ATOM.findall(clause)
        runs = (list(group) for may_be_part, group in groupby(words, _may_be_part) if may_be_part)
        wholes += [
            Whole(_term("".join(run[start:end])), tuple(map(_term, run[start:end])))
            for run in runs
            for start in range(len(run))
            for end in range(start + 2, min(start + MOST_PARTS, len(run)) + 1)
        ]
    return wholes


def _may_be_part(word: str) -> bool:
    return word.isalpha() and word not in language.STOP_WORDS and not _UNSPACED.match(word)


_DIGIT = re.compile(r"\d")


def notations(text: str, *, asked: bool = False) -> list[Whole]:
    """Returns the values and names of a text that its words do not show, each with the terms of its parts.

        notations("A+") == [Whole("a+", ("a",))]

    - signs: `a+`, `-18`, `c#`, `3%`; "minus eighteen", "seventy percent"
    - groups of digits: 1,250,000 and 1'250'000 have `1250000`, (415) 555-0187 has `4155550187`, 3,25 has `3.25`
    - numbers in words: "twenty-five" has `25`, "2,5 millions" has `2500000`
    - clock times by the minute of the day: 3 pm, 15:00 and "three in the afternoon" have `@900`; 3:00 has `@180`, too
    - dates: April 13, 2029 and 13.04.2029 have `@2029-04-13` and `@04-13`
    - letters that words pass over, with their neighbour: Client A has `client a`
    - words that are passed over, in capitals: the IT budget has `it`

    `asked`: the text is a query, in which "client a" may mean client A.
    """
    folded, found = _fold(text).replace("\u2212", "-"), _names(text, asked=asked)
    words, digits, numbers = _in_digits(folded)
    places = [((start, end), number) for start, end, number in numbers]
    if _DIGIT.search(digits):
        in_digits = [
            *((m, f"{m[1]}{_term(m[2].replace(',', '.'))}") for m in _SIGNED.finditer(digits)),
            *((m, f"{m[1].replace(',', '.')}%") for m in _PERCENT.finditer(digits)),
            *((m, term) for m in _CLOCK.finditer(digits) for term in _minutes(m)),
            *((m, term) for m, terms in _dates(digits) for term in terms),
            *((m, m[0]) for m in _HALF.finditer(digits) if m[0] not in words),
        ]
        places += [
            *((m.span(), re.sub(r"\D", "", m[0])) for m in _GROUPED.finditer(words)),
            *((m.span(), f"{m[1]}.{m[2]}") for m in _DECIMAL.finditer(words)),
            *((_with_spaces(m, digits), term) for m, term in in_digits),
        ]
    if any(sign in words for sign in "+#-"):
        places += [(m.span(), m[0]) for m in _MARKED.finditer(words)]
    numbers.sort(key=itemgetter(0))
    begins = [begin for begin, _, _ in numbers]
    for (start, end), term in places:
        near = numbers[bisect_left(begins, start) : bisect_left(begins, end)]  # of a text of numbers alone not all
        inside = [number for _, behind, number in near if behind <= end]
        parts = dict.fromkeys([*map(_term, _ATOM.findall(words[start:end])), *inside])
        found.append(Whole(term, tuple(part for part in parts if part != term) or (term,)))
    return found


def _with_spaces(match: re.Match[str], digits: str) -> tuple[int, int]:
    """Returns the place of a match with the spaces around it: "half past seven" is "           7:30" in digits."""
    return len(digits[: match.start()].rstrip(" ")), len(digits) - len(digits[match.end() :].lstrip(" "))


_HOURS = {word: int(hour) for hour, words in language.NUMBER_WORDS["hours"].items() for word in words.split()}
_NAMED_HOUR = re.compile(rf"(?<!\w)(?:{'|'.join(word for word, hour in _HOURS.items() if hour != 1)})(?!\w)")
_PERCENT_WORDS = re.compile(rf"(?:{language.NUMBER_WORDS['rewritten']['percent']})(?!\w)")
_FIRST = re.compile(rf"(?<!\w)(?:{language.NUMBER_WORDS['rewritten']['first']})(?= )")
_NEAR = frozenset(_ATOM.findall(" ".join([*_HOURS, language.NUMBER_WORDS["rewritten"]["first"]])))
_SLOTS = {
    "{h}": rf"(?<![\w.,:/-])(?P<h>\d{{1,2}}|{'|'.join(_HOURS)})(?![\w:]|[.,]\d)",
    "{m}": r"(?<![\w.,:/-])(?P<m>\d{1,2})(?![\w:]|[.,]\d)",
    "{n}": r"(?<![\w.,:/-])(?P<n>\d+(?:\.\d+)?)(?![\w:])",
    " ": " *",
}


def _rule(pattern: str) -> re.Pattern[str]:
    edges = ("", "") if _UNSPACED.search(pattern) else (r"(?<!\w)", r"(?!\w)")
    for slot, meaning in _SLOTS.items():
        pattern = pattern.replace(slot, meaning if edges[0] else meaning.replace(r"\w", "a-z0-9"))
    return re.compile(f"(?:{pattern})".join(edges))


_CLOCK_RULES, _SIGN_RULES = (
    [
        (
            frozenset(table["near"].split()),
            [(key, _rule(each)) for key, patterns in table.items() if key != "near" for each in patterns],
        )
        for table in tables
    ]
    for tables in (language.NUMBER_WORDS["clock"].values(), [language.NUMBER_WORDS["signs"]])
)
"""The rules of each language, and words of which a text has one where a rule matches."""
_OF_RULES = _NEAR.union(*(near for near, _ in _CLOCK_RULES + _SIGN_RULES))


def _in_digits(folded: str) -> tuple[str, str, list[tuple[int, int, str]]]:
    """Returns a folded text, the same in digits with each word at its place, and its numbers in words:

    _in_digits("half past seven") == ("half past seven", "           7:30", [(10, 15, "7")])
    """
    atoms = frozenset(_ATOM.findall(folded))
    plain = _PERCENT_WORDS.sub(lambda match: "%".ljust(len(match[0])), folded)
    words, digits, last, spans = "", "", 0, list[tuple[int, int, str]]()
    for start, end, number in language.spelled_numbers(plain, atoms):
        words, digits = words + folded[last:start], digits + plain[last:start]
        place, last = len(words), end
        words += folded[start:end].ljust(len(number))
        digits += number.rjust(len(words) - place)
        if end - start > 1:  # \u4e94 of \u4e94\u6708 is the number of a month, and no term
            spans.append((place, len(words), number))
    words, digits = words + folded[last:], digits + plain[last:]
    is_near, is_unspaced = not _NEAR.isdisjoint(atoms), not folded.isascii() and _UNSPACED.search(folded) is not None
    if not is_unspaced and (_OF_RULES.isdisjoint(atoms) or not (last or is_near or _DIGIT.search(folded))):
        return words, digits, spans

    def at_its_place(match: re.Match[str], text: str) -> str:
        return text.rjust(len(match[0])) if len(text) <= len(match[0]) else match[0]

    def clock(match: re.Match[str], key: str) -> str:
        hour = _HOURS[match["h"]] if match["h"] in _HOURS else int(match["h"])
        shift = int(match["m"]) * (-1 if key[0] == "-" else 1) if key[-1] == "m" else int(key)
        if hour > 24 or abs(shift) > 59 or (match[0][0].isdecimal() and match.end("h") == match.end() and shift % 5):
            return match[0]
        before, minute = divmod(60 * hour + shift, 60)
        return at_its_place(match, f"{before or (hour and 12)}:{minute:02}")

    def sign(match: re.Match[str], key: str) -> str:
        return at_its_place(match, key.replace("{n}", match["n"]))

    for rewrite, rules_by_language in ((clock, _CLOCK_RULES), (sign, _SIGN_RULES)):
        for near, rules in rules_by_language:
            if not near.isdisjoint(atoms) or (is_unspaced and (not near or rewrite is sign)):
                for key, rule in rules:
                    digits = rule.sub(partial(rewrite, key=key), digits)
    if is_near:
        digits = _FIRST.sub(lambda match: "1".rjust(len(match[0])), digits)
        spans += [(*m.span(), f"@{60 * _HOURS[m[0]]}") for m in _NAMED_HOUR.finditer(digits)]
    return words, digits, spans


_HALF = re.compile(r"(?<!\d)\d+\.5(?!\d)")
_SIGNED = re.compile(r"(?<![\w.,:/+#)-])([+-])(\d+(?:[.,]\d{1,2}(?![\d.,]))?)")
_MARKED = re.compile(rf"(?<!{_LETTER})[^\W\d_{language.UNSPACED}]{{1,2}}(?:\+\+?|#|-)(?![\w+#])")
_PERCENT = re.compile(r"(?<![\d.,])(\d+(?:[.,]\d+)?)\s?%")
_GROUPED = re.compile(
    r"(?<![\w.,'\u2019])(?:\d{1,3}([.,'\u2019 ])\d{3}(?:\1\d{3}){0,8}|\d{1,2}(?:,\d\d)+,\d{3}|"
    r"\(\d+\) ?\d[\d ./-]{4,}\d)(?!\w|[.,'\u2019 ]\d{3})"
)
_DECIMAL = re.compile(r"(?<![\w.,])(\d+),(\d{1,2})(?![\w,]|\.\d)")
_HALVES = {
    word: half for half, words in enumerate(language.NUMBER_WORDS["halves_of_day"].values()) for word in words.split()
}
"""0 for the morning, 1 for the afternoon, 2 for the night."""
_BEFORE_HOUR = "|".join(word for word in _HALVES if word[0] > "\u024f")
_BEHIND_HOUR = "|".join(re.escape(word) for word in _HALVES if word[0] <= "\u024f")
_CLOCK = re.compile(
    rf"(?<![a-z0-9.:,/+-])(?:({_BEFORE_HOUR}) ?)?(\d{{1,2}})"
    r"(?:([:.])(\d\d))?(?: ?(uhr|h|[\u70b9\u9ede\u6642\u65f6\uc2dc])(?: ?(\d\d)|(\u534a))?)?"
    rf"(?: ?(?:(?:de la|della|del|de l'|di|du|da|in the|at) ?)?({_BEHIND_HOUR})(?![a-z]))?(?![a-z0-9:])"
)
"""Half of the day, hour, point, minutes, unit, minutes behind the unit, half an hour, half of the day."""


def _minutes(clock: re.Match[str]) -> list[str]:
    """Returns the minutes of the day that a match of `_CLOCK` may mean; none if it is no clock time."""
    before, hour_text, point, minutes, unit, behind, half, after = clock.groups()
    if not (unit or after or point == ":"):
        return []
    hour, minute = int(hour_text), int(minutes or behind or (30 if half else 0))
    part = _HALVES.get(before or after)
    if hour > 24 or minute > 59 or (part is not None and hour > 12):
        return []
    if part is not None:
        after_midnight = part == 2 and hour % 12 <= 5
        hours = [hour % 12 + (12 if part and not after_midnight else 0)]
    elif 0 < hour < 12 and hour_text[0] != "0":
        hours = [hour, hour + 12]
    else:
        hours = [hour % 24]
    return [f"@{60 * hour + minute}" for hour in hours]


_YEAR_FIRST = re.compile(r"(?<![\w./-])(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?![\d/-]|\.\d)")
_YEAR_LAST = re.compile(r"(?<![\w./-])(\d{1,2})([-/.])(\d{1,2})\2(\d{4})(?![\d/-]|\.\d)")
_DAY_AND_MONTH = re.compile(r"(?<![\w./:-])(\d{1,2})(?:/(\d{1,2})|\.(\d{1,2})\.)(?![\w/]|\.\d)")
"""1/3 and 03.10., which have no year."""
_DAY_MONTH = re.compile(
    rf"(?<![\w.,:/-])(\d{{1,2}})(?:st|nd|rd|th|er|\.|\u00ba)? ?(?:de |of )?({_LETTER}{{3,}})\.?"
    r"(?:,? (?:de |del )?(\d{4})(?!\d))?"
)
_MONTH_DAY = re.compile(
    rf"(?<!{_LETTER})({_LETTER}{{3,}})\.? (\d{{1,2}})(?:st|nd|rd|th)?(?![\w:]|[.,/-]\d)(?:,? (\d{{4}})(?!\d))?"
)
_HAN_DATE = re.compile(r"(?:(\d{4})[\u5e74\ub144] *)?(\d{1,2})[\u6708\uc6d4] *(\d{1,2})[\u65e5\u53f7\u865f\uc77c]")


def _dates(folded: str) -> Iterator[tuple[re.Match[str], list[str]]]:
    """Yields the dates of a folded text in digits with their terms. 02/06/2031 is read with the day first, and in
    English text with the month first as well."""

    def in_english() -> bool:
        return any(len(word) > MAX_LITTLE and word in language.STOP_WORDS for word in _ATOM.findall(folded))

    for match in _YEAR_FIRST.finditer(folded):
        yield match, _date_terms(match[1], match[3], match[4])
    for match in _YEAR_LAST.finditer(folded):
        terms = _date_terms(match[4], match[3], match[1])
        yield match, terms + (_date_terms(match[4], match[1], match[3]) if match[2] == "/" and in_english() else [])
    for match in _DAY_AND_MONTH.finditer(folded):
        terms = _date_terms(None, match[2] or match[3], match[1])
        yield match, terms + (_date_terms(None, match[1], match[2]) if match[2] and in_english() else [])
    for match in _DAY_MONTH.finditer(folded):
        yield match, _date_terms(match[3], language.month_number(match[2]), match[1])
    for match in _MONTH_DAY.finditer(folded):
        yield match, _date_terms(match[3], language.month_number(match[1]), match[2])
    for match in _HAN_DATE.finditer(folded):
        yield match, _date_terms(match[1], match[2], match[3])


MAX_LITTLE = 2


def _date_terms(year: str | None, month: str | int | None, day: str) -> list[str]:
    """Returns the terms of a date: `@2029-04-13` and `@04-13`; none if there is no such day."""
    number, of_month = int(month or 0), int(day)
    if not (1 <= number <= len(language.MONTHS) and 1 <= of_month <= MOST_DAYS):
        return []
    of_year = f"@{number:02}-{of_month:02}"
    return [of_year] if year is None else [f"@{int(year)}-{of_year[1:]}", of_year]


MOST_DAYS = 31
_LETTER_ALONE = re.compile(rf"(?<![\w'\u2019.])({_LETTER})(?![\w'\u2019+#-])")
_WORD_BEFORE, _WORD_BEHIND = re.compile(rf"({_LETTER}{{2,}})[ \u00a0]\Z"), re.compile(rf"[ \u00a0]({_LETTER}{{2,}})")
_CAPITALISED = re.compile(r"(?<![^\W\d_])[A-Z][A-Za-z]+(?![^\W\d_])")
_BEGINS = re.compile(r"(?:\A|[.!?:\n\u3002])[\s\"'\u201c\u2018\u00ab\u00bf\u00a1(*-]*\Z")


def _names(text: str, *, asked: bool) -> list[Whole]:
    """Returns the letters and words that are passed over elsewhere and name something here: A in "client A", IT in "the
    IT budget". At the beginning of a sentence a capital tells nothing, nor in a text of capitals. I is a name only
    behind a word that is no stop word: "type I"."""
    found: list[Whole] = []
    if text.isupper():
        return found
    for match in _LETTER_ALONE.finditer(text):
        letter = match[0].lower()
        if letter not in language.STOP_WORDS or not (match[0].isupper() or asked):
            continue
        near = text[max(0, match.start() - MAX_WORD) : match.start()]
        before, behind = _WORD_BEFORE.search(near), _WORD_BEHIND.match(text, match.end())
        if before and (word := _fold(before[1])) not in language.STOP_WORDS:
            found.append(Whole(f"{_term(word)} {letter}", (_term(word),)))
        elif match[0].isupper() and match[0] != "I" and behind and not _BEGINS.search(near):
            word = _term(_fold(behind[1]))
            found.append(Whole(f"{letter} {word}", (word,)))
    for match in _CAPITALISED.finditer(text):
        word, near = match[0].lower(), text[max(0, match.start() - MAX_WORD) : match.start()]
        if word in language.STOP_WORDS and (match[0].isupper() or not _BEGINS.search(near)):
            found.append(Whole(word, (word,)))
    return found


def initials(text: str) -> list[str]:
    """Returns the distinct pairs of initials of neighbouring words: `^nd` and `^da` of "non-disclosure agreement".

    A text spells an acronym out if it has all pairs of the acronym (`acronyms`): NDA has `^nd` and `^da`. Pairs take a
    third of the room of the acronyms themselves. Little words may stand between the words of a pair: "Ministry of
    Foreign Affairs" has `^mf`, too. There is no pair across a punctuation mark, and none of two stop words.
    """
    pairs: dict[str, None] = {}
    for clause in _CLAUSE.findall(_fold(text[:INITIALS_TEXT])):
        words = [word for word in _ATOM.findall(clause) if not word[0].isdecimal()]
        last: str | None = None  # the last word before a row of little words: "Ministry" at "of Foreign"
        for earlier, later in pairwise(words):
            if earlier not in language.STOP_WORDS or later not in language.STOP_WORDS:
                pairs[_pair(earlier, later)] = None
            is_little = len(earlier) <= LITTLE or earlier in language.STOP_WORDS
            if is_little and last is not None and len(later) > LITTLE and later not in language.STOP_WORDS:
                pairs[_pair(last, later)] = None
            last = last if is_little else earlier
        if len(pairs) >= MAX_INITIALS:
            break
    return list(pairs)[:MAX_INITIALS]


def _pair(word: str, following: str) -> str:
    """Returns the term of two initials. No word begins with ^, so that it is never the term of a word."""
    return f"^{language.fold(word[0])}{language.fold(following[0])}"


def acronyms(query: str) -> dict[str, tuple[str, ...]]:
    """Returns the acronyms of a query with their pairs of initials: `acronyms("Which NDAs?")` is
    `{"NDAs": ("^nd", "^da")}`.

    An acronym has two to four letters, and two capitals unless it is the only word of the query. It may have an ending,
    as "NDAs" has. A query of several words in capitals has none: there capitals tell nothing.
    """
    words = _CASED.findall(query) if len(query) <= LONG_QUERY_TEXT else []
    alone = len(words) == 1 and words[0] == query.strip()
    spelled_out: dict[str, tuple[str, ...]] = {}
    if not alone and query.isupper():
        return spelled_out
    for word in words:
        first = next((at for at, letter in enumerate(word) if not letter.isupper()), len(word))
        has_ending = first >= FEWEST_CAPITALS and len(word) - first <= LITTLE
        form = word[:first] if has_ending else word
        is_acronym = sum(map(str.isupper, form)) >= FEWEST_CAPITALS or (alone and word.islower())
        if is_acronym and 2 <= len(form) <= MAX_ACRONYM and not _UNSPACED.search(form):
            folded = _fold(form)
            if folded not in language.STOP_WORDS:
                spelled_out[word] = tuple(dict.fromkeys(_pair(earlier, later) for earlier, later in pairwise(folded)))
    return spelled_out


def _runs(folded: str) -> Iterator[list[str]]:
    """Yields the words of each joined token: `["e", "mail"]` of "e-mail". A number after a space may continue a token
    (`_takes_number`): `["lh", "1234"]` of "lh 1234"."""
    run, end = list[str](), -1
    for match in _JOINED.finditer(folded):
        token, start = match[0], match.start()
        atoms = [token] if token.isalnum() else _ATOM.findall(token)
        if start == end + 1 and run and token[0].isdecimal() and folded[end] == " " and _takes_number(run, atoms):
            run += atoms
        else:
            if run:
                yield run
            run = atoms
        end = match.end()
    if run:
        yield run


def _takes_number(run: Sequence[str], number: Sequence[str]) -> bool:
    """Returns whether a number after some words belongs to their identifier.

    It does after another number ("4000 1234"). After letters it does if it has no joints, and if they are few and no
    stop word and no word of time: "LH 1234", but not "LH 12-34", "in 1234" or "May 8".
    """
    if any(map(str.isdecimal, run[-1])):
        return True
    short = len(number) == 1 and all(len(atom) <= SHORT_PREFIX for atom in run)
    return short and run[-1] not in language.STOP_WORDS and language.month_number(run[-1]) is None


def _of_word(atom: str) -> list[Whole]:
    """Returns a word of letters and then digits, or the reverse, with both as its parts: "lh1234" with "lh" and "1234".
    Other words, and ordinals such as "3rd", are no identifiers: the list is empty."""
    mixed = _MIXED.fullmatch(atom[:MAX_WORD])
    if mixed is None or _ORDINAL.fullmatch(atom):
        return []
    parts = (part for part in mixed.groups() if part and part not in language.STOP_WORDS)
    return [Whole(_term(atom), tuple(map(_term, parts)), one_word=True)]


def _of_joined(atoms: Sequence[str]) -> list[Whole]:
    """Returns the forms of an identifier of several words, with these as its parts: "v3.12.1" and "3.12.1" of "v3",
    "12" and "1"."""
    spaced = _BETWEEN_NUMBERS.sub(".", " ".join(atoms)).replace(" ", "")
    forms = [spaced]
    first = next((at for at, character in enumerate(spaced) if character.isdecimal()), 0)
    if first and "." in spaced:
        forms.append(spaced[first:])
    if "." in spaced and len(squashed := spaced.replace(".", "")) >= SQUASHED:
        forms.append(squashed)
    parts = tuple(dict.fromkeys(map(_term, atoms)))
    return [Whole(_term(form), parts) for form in forms]


def spelled(text: str) -> dict[int, str]:
    """Returns the terms that may be mistyped, by their ids: those of words with `LONG_WORD` letters or more."""
    long_words = (word for word in _tokens(_fold(text)) if len(word) >= LONG_WORD and word.isalpha())
    stems = dict.fromkeys(
        _term(word) for word in long_words if word not in language.STOP_WORDS and not _UNSPACED.match(word)
    )
    long = [stem for stem in stems if LONG_WORD <= len(stem) <= LONGEST_MISTYPED]
    return dict(zip(term_ids(long).tolist(), long, strict=True))


@kept_by_digest(4 << 20, lambda ids: ids.nbytes)
def close_ids(term: str) -> TermIds:
    """Returns the ids of the terms of `LONG_WORD` letters or more at edit distance 1 that begin with the same letter,
    ascending: a letter left out, added or replaced, or two letters exchanged (Damerau 1964)."""
    letters = [letter.encode() for letter in term]
    alphabet = next((known for known in _ALPHABETS if letters[0] in known), ())
    begin, rest = letters[0], letters[1:]
    ids: set[int] = set()
    for at in range(len(rest) + 1):
        before, after = b"".join([begin, *rest[:at]]), b"".join(rest[at:])
        ids |= {crc32(before + letter + after) for letter in alphabet}
        if at < len(rest):
            left = b"".join(rest[at + 1 :])
            if len(letters) > LONG_WORD:  # the shorter term has `LONG_WORD` letters, too: "give" is none for "given"
                ids.add(crc32(before + left))
            ids |= {crc32(before + letter + left) for letter in alphabet}
        if at + 1 < len(rest):
            ids.add(crc32(before + rest[at + 1] + rest[at] + b"".join(rest[at + 2 :])))
    ids.discard(crc32(term.encode()))
    return np.sort(np.fromiter(ids, np.uint32, len(ids)))


def term_ids(words: Sequence[str]) -> TermIds:
    """Returns the crc32 of each term, in order."""
    return np.fromiter((crc32(word.encode("utf-8", "surrogatepass")) for word in words), np.uint32, len(words))


def text_ids(text: str) -> TermIds:
    """Returns the ids of the index terms of a text, with repetition, in any order: `term_ids(terms(text))`.

    Scripts without spaces are done with arrays, because each of their characters has up to two terms.
    """
    if text.isascii() or len(text) < _ARRAYS_FROM:
        return term_ids(terms(text))
    words: list[str] = []
    runs: list[str] = []
    for token in _tokens(_fold(text)):
        unspaced = len(token) > 1 and _UNSPACED.match(token)
        (runs if unspaced else words).append(token)
    single_terms = _terms_of(word for word in words if word not in language.STOP_WORDS)
    if not (runs or single_terms):
        single_terms = _terms_of(words)
    ids = term_ids(single_terms)
    return np.concatenate([ids, _ids_of_runs(runs)]) if runs else ids


def _ids_of_runs(runs: Sequence[str]) -> TermIds:
    """Returns the ids of the terms of runs (`_bigrams`) without stop words, in any order. A run is text of a script
    without spaces, of two characters or more; none of these lies below U+0800."""
    characters = np.frombuffer("\0".join(runs).encode("utf-32-le", "surrogatepass"), np.uint32)
    single = _crc_on(np.full(len(characters), 0xFFFFFFFF, np.uint32), characters)
    paired = (characters[:-1] != 0) & (characters[1:] != 0)
    alone = np.zeros(len(characters), bool)
    for first, last in _HAN_RANGES:
        alone |= (characters >= first) & (characters <= last)
    alone &= ~np.isin(characters, _STOP_CHARACTERS)
    pairs = _crc_on(single[:-1], characters[1:])
    return np.concatenate([~pairs[paired], ~single[alone]])


def _crc_on(state: TermIds, characters: TermIds) -> TermIds:
    """Continues each crc32 in `state`, which is without its last inversion, by the three or four UTF-8 bytes of the
    character in its place."""
    top, high, middle, low = ((characters >> np.uint32(shift)) & np.uint32(0x3F) for shift in (18, 12, 6, 0))
    four = characters > np.uint32(0xFFFF)
    if four.any():
        state = np.where(four, _crc_step(state, top | np.uint32(0xF0)), state)
    lead = np.where(four, high | np.uint32(0x80), high | np.uint32(0xE0))
    return _crc_step(_crc_step(_crc_step(state, lead), middle | np.uint32(0x80)), low | np.uint32(0x80))


def _crc_step(state: TermIds, byte: TermIds) -> TermIds:
    following: TermIds = _CRC[(state ^ byte) & np.uint32(0xFF)] ^ (state >> np.uint32(8))
    return following


def _crc_table() -> TermIds:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ 0xEDB88320, table >> 1).astype(np.uint32)
    return table


_CRC = _crc_table()
"""The table of crc32 (ISO 3309) for steps of one byte."""
_HAN_RANGES = [(ord(language.HAN[at]), ord(language.HAN[at + 2])) for at in range(0, len(language.HAN), 3)]
_STOP_CHARACTERS = np.array([ord(word) for word in language.STOP_WORDS if len(word) == 1], np.uint32)


def index_text(
    content: str, context: str | None = None, time: datetime | None = None, tags: Sequence[str] = ()
) -> IndexedTerms:
    """Indexes the terms of the content, its context, its tags and its date.

    The date becomes three terms ("8", "may", "2023"), so that a query's "May 2023" matches it. Identifiers are terms
    beside their parts (`wholes`), and pairs of initials of the content are terms (`initials`).
    """
    texts = [content, *([context] if context else []), *tags]
    parts = [text_ids(text) for text in texts]
    if time:
        parts.append(term_ids([str(time.day), _term(language.MONTHS[time.month - 1]), str(time.year)]))
    length = sum(map(len, parts))
    added = [term for text in texts for whole in wholes(text) for term in whole.added]
    noted = [[notation.term for notation in notations(text)] for text in texts]
    added += dict.fromkeys(term for of_text in noted for term in of_text)
    all_ids = np.concatenate([*parts, term_ids(added), term_ids(initials(content))])
    ids, counts = np.unique(all_ids, return_counts=True)
    folded = _fold(content)
    has_number = any(map(_DIGIT.search, [folded, *noted[0]])) or language.names_time(folded, _ATOM.findall(folded))
    flags = HAS_NUMBER_OR_TIME_WORD * has_number | IS_QUESTION * is_question(folded)
    return IndexedTerms(ids, np.minimum(counts, 255).astype(np.uint8), length, flags)


def normalise_content(text: str) -> str:
    """Normalises a text: texts that differ only in case, width or white space have equal content."""
    return " ".join(_fold(text).split())


def content_hash(text: str) -> int:
    """Returns a signed 64-bit hash of the normalised content."""
    digest = blake2b(normalise_content(text).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def name_id(name: str) -> int:
    """Returns a speaker's code in `Columns.speaker`; 0 means none."""
    folded = normalise_content(name)
    return crc32(folded.encode("utf-8", "surrogatepass")) if folded else 0


def _fold(text: str) -> str:
    """Returns the text without differences of case and width. Accents stay, unlike with `fold`: `_term` decides by
    script whether they count."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _words(folded: str) -> list[str]:
    """Returns the words of a folded text, with bigrams in place of what is written without spaces."""
    return [word for token in _tokens(folded) for word in (_bigrams(token) if _UNSPACED.match(token) else [token])]


def _tokens(folded: str) -> list[str]:
    """Returns the words, emoji, and runs of characters of scripts without spaces, in the order of the text."""
    if folded.isascii():
        return _TOKEN.findall(folded)
    tokens = _TOKEN.findall(_JOINERS.sub("", _PERSON.sub("", folded)))
    return [token.replace("\ufe0f", "") for token in tokens]


def _bigrams(run: str) -> list[str]:
    """Returns overlapping pairs of characters, and Han characters by themselves, because many are whole words:
    `_bigrams("城山里")` is `["城山", "山里", "城", "山", "里"]`."""
    if len(run) == 1:
        return [run]
    return [run[i : i + 2] for i in range(len(run) - 1)] + _HAN.findall(run)


@kept(32 << 20, longest=MAX_WORD)
def _term(word: str) -> str:
    """Returns the index form of a word: numbers by value ("03" and "3rd" are "3"), Latin letters without accents,
    stemmed by script ("hiking" is "hike")."""
    word = word[:MAX_WORD]
    if word.isdecimal():
        return str(int(word))
    if ordinal := _ORDINAL.fullmatch(word):
        return str(int(ordinal[1]))
    if not word.isascii() and (word[0] <= "\u024f" or "\u1e00" <= word[0] <= "\u1fff"):  # also ảnh, Ḥasan, ἀγάπη
        word = language.fold(word)
    word = sys.intern(word)
    name = next((name for last, name in _STEMMERS if word[:1] <= last), None)
    if name is None:
        return _HEBREW_POINTS.sub("", word)
    if name == "russian":
        word = word.replace("\u0301", "")  # Пу́шкин, as encyclopedias show where the stress is
    if name == "hindi":
        word = _HINDI_NASAL.sub("\u0902", word).translate(_HINDI_MARKS)
    if name == "arabic light":
        word = _ARABIC_MARKS.sub("", word).translate(_ARABIC_LETTERS)
        prefixed = _ARABIC_WORD.fullmatch(word)
        return prefixed[1] if prefixed else word
    with _snowball_lock:
        return str(_snowball[name].stemWord(word)) or word


def is_question(text: str) -> bool:
    """Returns whether a text ends with a question: its last sentence with an end mark ends in a question mark. An emoji
    or a caption may follow it."""
    last_question = max(text.rfind(mark) for mark in _QUESTION_MARKS)
    return last_question > max(text.rfind(mark) for mark in _SENTENCE_ENDS)
