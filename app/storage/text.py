"""Text indexing: the terms of a text in any script, and two facts about its form.

The functions are pure and the same for documents and queries. A word is treated by its script, never by a guessed
language, so that both always agree. Word boundaries follow Unicode's categories (a letter keeps its combining marks).
Scripts written without spaces become overlapping bigrams (Unicode UAX 29 leaves them to a dictionary; bigrams need
none). Each emoji is a term; so is each part of a joined one.
"""

import re
import sys
import threading
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from typing import TypeAlias
from zlib import crc32

import numpy as np
import Stemmer
from numpy.typing import NDArray

TermIds: TypeAlias = NDArray[np.uint32]

HAS_NUMBER_OR_TIME_WORD = 1
IS_QUESTION = 2
TEXT_FLAGS = HAS_NUMBER_OR_TIME_WORD | IS_QUESTION
"""Bits that `index_text` sets. The others come from the document (`SearchSchema.flags`)."""
SAID_BY_USER = 4
SAID_BY_ASSISTANT = 8
DERIVED = 16
"""The service made the record from other records: by extraction, consolidation or roll-up."""
SUMMARY = 32
LONG = 64
"""The text has more than one window, each with a vector of its own (`storage/index/record_codec.py`)."""
HAS_EVENT_TIME = 128
"""The record says when it happened. Without this bit, its time is when it was stored."""

LONG_TEXT = 64
"""Characters. Arrays pay from here on."""
MAX_MENTIONED = 1_000
MAX_WORD = 64
"""Longer tokens are data (base64, hashes) and are identified by their beginning."""

HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KANA_HANGUL = "\u3041-\u3096\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3"
THAI_LAO_MYANMAR_KHMER = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u1000-\u103f\u1050-\u109f\u1780-\u17d3"
UNSPACED = HAN + KANA_HANGUL + THAI_LAO_MYANMAR_KHMER
"""Scripts indexed as bigrams. Korean has spaces, but attaches particles to words, which bigrams handle."""


def _marks() -> str:
    """Returns the combining marks outside `UNSPACED`, for a character class: Python's `\\w` omits them."""
    spans = (range(0x300, 0x0E00), range(0x0F00, 0x2000), range(0xA600, 0xAC00))
    return "".join(chr(c) for span in spans for c in span if unicodedata.category(chr(c)) in ("Mn", "Mc"))


_LETTER = rf"[^\W_{UNSPACED}]"
_PICTURE = (
    "\u231a\u231b\u2328\u23cf\u23e9-\u23fa\u2600-\u2775\u2794-\u27bf\u2b05-\u2b55\u3030\u303d"
    "\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff"
)
_FLAG = "[\U0001f1e6-\U0001f1ff]{1,2}|\U0001f3f4[\U000e0020-\U000e007f]*"
_EMOJI = rf"{_FLAG}|[#*]\ufe0f?\u20e3|[{_PICTURE}]"
"""A flag (two letters, or a flag with its region), a key, or one picture. Skin tones and variation selectors belong to
none of them, so that a thumb of any colour is the same term."""
_HAS_EMOJI = re.compile(_EMOJI)
_PERSON = re.compile("\u200d[\u2640\u2642\U0001f9b0-\U0001f9b3]")
"""Sex and hair as they are joined to the picture of a person, which is the same term without them."""
_TOKEN = re.compile(rf"[{UNSPACED}]+|{_LETTER}+(?:[{_marks()}]+{_LETTER}*)*|{_EMOJI}")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_HAN = re.compile(f"[{HAN}]")
_JOINERS = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)")

STOP_WORDS = frozenset(
    "a about am an and any are as at be been being but by can could d did do does doing don for from had has have "
    "having he her here hers him his how i if in into is it its just ll m me my of off on or our ours re s she so "
    "some such t than that the their theirs them then there these they this those to too up us ve very was we were "
    "what when where which who whom whose why will with would you your yours".split()
) | frozenset("的了是我你他她它们们在和吗呢么这那与")

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

_ARABIC_MARKS = re.compile("[\u0640\u064b-\u065f\u0670]")
_ARABIC_LETTERS = str.maketrans("\u0623\u0625\u0622\u0649", "\u0627\u0627\u0627\u064a")
_ARABIC_WORD = re.compile(
    "(?:[\u0648\u0628\u0643\u0641]?\u0627\u0644(?=..)|\u0644\u0644(?=..)|\u0648(?=...))?(.{2,}?)"
    "(?:\u0647\u0627|\u0627\u0646|\u0627\u062a|\u0648\u0646|\u064a\u0646|\u064a\u0647|\u064a\u0629|\u0647|\u0629|\u064a)?"
)

_snowball = {name: Stemmer.Stemmer(name, 0) for _, name in _STEMMERS if name and name != "arabic light"}
_snowball_lock = threading.Lock()  # Stemmer objects are not re-entrant

_TIME_WORD = re.compile(
    r"\d|\b(?:(?:yester|to|mon|tues|wednes|thurs|fri|satur|sun|birth)day|tomorrow|tonight|weekend|ago|last|next|"
    r"(?:day|week|month|year|hour|minute|decade)s?|morning|evening|recently|since|jan(?:uary)?|feb(?:ruary)?|march|"
    r"april|may|june|july|aug(?:ust)?|sept(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?|"
    r"two|three|four|five|six|seven|eight|nine|ten|twice|couple|few|several|first|second|third)\b"
)
_MONTHS = "january february march april may june july august september october november december".split()
_QUESTION_MARKS = "?\u061f\u037e\u2047\u2048\uff1f"
_SENTENCE_ENDS = ".!\u2026\u3002\uff01\u06d4\u0964"


@dataclass(frozen=True, slots=True)
class IndexedText:
    """The indexed terms of one document: distinct term ids, ascending, and how often each occurs (at most 255)."""

    ids: TermIds
    counts: NDArray[np.uint8]
    length: int
    flags: int


def terms(text: str) -> list[str]:
    """Returns the index terms in order, with repetition. Stop words are removed unless there are no other words."""
    words = _words(_fold(text))
    return _kept(words) or _all(words)


def _kept(words: Sequence[str]) -> list[str]:
    return _all(word for word in words if word not in STOP_WORDS)


def _all(words: Iterable[str]) -> list[str]:
    return [term for word in words if (term := _term(word))]


def mentions(text: str) -> list[str]:
    """Returns the words of a text as they are written, without case and stop words, each once, and each pair of words
    that follow each other. A text has those of any phrase in it. At most `MAX_MENTIONED` words are read."""
    whole = _words(_fold(text))[:MAX_MENTIONED]
    words = [word for word in whole if word not in STOP_WORDS] or whole
    spaced = [None if _UNSPACED.match(word) else word for word in words]
    pairs = [f"{one} {other}" for one, other in pairwise(spaced) if one and other]
    return list(dict.fromkeys([*words, *pairs]))


def term_ids(words: Sequence[str]) -> TermIds:
    """Returns the crc32 of each term, in order."""
    return np.fromiter((crc32(word.encode("utf-8", "surrogatepass")) for word in words), np.uint32, len(words))


def text_ids(text: str) -> TermIds:
    """Returns the ids of the index terms of a text, with repetition, in any order: `term_ids(terms(text))`.

    Many characters of scripts without spaces are done with arrays, because each has two terms.
    """
    if text.isascii() or len(text) < LONG_TEXT:
        return term_ids(terms(text))
    words: list[str] = []
    runs: list[str] = []
    for token in _tokens(_fold(text)):
        unspaced = len(token) > 1 and _UNSPACED.match(token)
        (runs if unspaced else words).append(token)
    found = _kept(words) if runs else _kept(words) or _all(words)
    return np.concatenate([term_ids(found), _ids_of_runs(runs)])


def _ids_of_runs(runs: Sequence[str]) -> TermIds:
    """Returns the ids of the terms of runs (`_bigrams`) without stop words. They have no character below U+0800."""
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
    """Continues a crc32, without its last inversion, by the UTF-8 bytes of a character each: three, or four."""
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
"""The table of crc32 (ISO 3309), a byte at a time."""
_HAN_RANGES = [(ord(HAN[at]), ord(HAN[at + 2])) for at in range(0, len(HAN), 3)]
_STOP_CHARACTERS = np.array([ord(word) for word in STOP_WORDS if len(word) == 1], np.uint32)


def index_text(
    content: str, context: str | None = None, time: datetime | None = None, tags: Sequence[str] = ()
) -> IndexedText:
    """Indexes the terms of the content, its context, its tags and its date.

    The date becomes three terms ("8", "may", "2023"), so that a query's "May 2023" matches it.
    """
    parts = [text_ids(content), *([text_ids(context)] if context else []), *map(text_ids, tags)]
    parts += [term_ids(_date_terms(time))] if time else []
    found = np.concatenate(parts)
    ids, counts = np.unique(found, return_counts=True)
    return IndexedText(ids, np.minimum(counts, 255).astype(np.uint8), len(found), _flags(content))


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
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _words(folded: str) -> list[str]:
    return [word for token in _tokens(folded) for word in (_bigrams(token) if _UNSPACED.match(token) else [token])]


def _tokens(folded: str) -> list[str]:
    if folded.isascii():
        return _TOKEN.findall(folded)
    found = _TOKEN.findall(_JOINERS.sub("", _PERSON.sub("", folded)))
    return [token.replace("\ufe0f", "") for token in found]


def has_emoji(text: str) -> bool:
    """Returns whether some of the text's terms are emoji."""
    return not text.isascii() and _HAS_EMOJI.search(text) is not None


def _bigrams(run: str) -> list[str]:
    """Returns overlapping pairs of characters, and each Han character by itself, because it is often a whole word."""
    if len(run) == 1:
        return [run]
    return [run[i : i + 2] for i in range(len(run) - 1)] + _HAN.findall(run)


@lru_cache(maxsize=1 << 16)
def _term(word: str) -> str:
    """Returns the index form of a word: numbers by value, Latin letters without accents, stemmed by script."""
    word = word[:MAX_WORD]
    if word.isdecimal():
        return str(int(word))
    if ordinal := _ORDINAL.fullmatch(word):
        return str(int(ordinal[1]))
    if word[0] <= "\u024f" and not word.isascii():
        word = "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))
    return _stem(sys.intern(word))


def _stem(word: str) -> str:
    name = next((name for last, name in _STEMMERS if word[:1] <= last), None)
    if name is None:
        return word
    if name == "arabic light":
        word = _ARABIC_MARKS.sub("", word).translate(_ARABIC_LETTERS)
        found = _ARABIC_WORD.fullmatch(word)
        return found[1] if found else word
    with _snowball_lock:
        return str(_snowball[name].stemWord(word)) or word


DATE_TERMS = 3
"""Number of terms that a memory's date adds to its length."""


def _date_terms(time: datetime) -> list[str]:
    return [str(time.day), _term(_MONTHS[time.month - 1]), str(time.year)]


def _flags(content: str) -> int:
    folded = _fold(content)
    return HAS_NUMBER_OR_TIME_WORD * bool(_TIME_WORD.search(folded)) | IS_QUESTION * _ends_in_question(folded)


def _ends_in_question(text: str) -> bool:
    """Returns whether the last sentence with an end mark ends in a question mark. An emoji or a caption may follow
    it."""
    last_question = max(text.rfind(mark) for mark in _QUESTION_MARKS)
    return last_question > max(text.rfind(mark) for mark in _SENTENCE_ENDS)
