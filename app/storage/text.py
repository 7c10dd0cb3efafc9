"""Text indexing: the terms of a text in any script, and two facts about its form.

The functions are pure and the same for documents and queries. A word is treated by its script, never by a guessed
language, so that both always agree. Word boundaries follow Unicode's categories (a letter keeps its combining marks).
Scripts written without spaces become overlapping bigrams (Unicode UAX 29 leaves them to a dictionary; bigrams need
none). Each emoji is a term; so is each part of a joined one. An identifier of several words, as 10.0.4.117 or LH 1234,
is a term beside its parts (`wholes`). The initials of neighbouring words are terms of a space of their own
(`initials`).
"""

import re
import sys
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TypeAlias
from zlib import crc32

import numpy as np
import Stemmer
from numpy.typing import NDArray

from app.core.caches import kept, kept_by_digest
from app.core.language import HAN, STOP_WORDS, UNSPACED, fold, marks

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
_WORD = rf"{_LETTER}+(?:[{marks()}]+{_LETTER}*)*"
_TOKEN = re.compile(rf"[{UNSPACED}]+|{_WORD}|{_EMOJI}")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_HAN = re.compile(f"[{HAN}]")
_JOINERS = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)")
_JOINT = "[.:/_@+\u2010\u2011-]{1,3}"
_JOINED = re.compile(rf"{_WORD}(?:{_JOINT}{_WORD})*")
_JOINED_ASCII = re.compile(rf"[a-z0-9]+(?:{_JOINT}[a-z0-9]+)*")
"""The same words in a text that is ASCII, found in a fifth of the time."""
_MAY_BE_WHOLE = re.compile(rf"\d|{_LETTER}{_JOINT}{_LETTER}")
_MAY_BE_WHOLE_ASCII = re.compile(rf"[0-9]|[a-z]{_JOINT}[a-z]")
_ATOM = re.compile(_WORD)
_MIXED = re.compile(r"([^\W\d_]+)(\d+)|(\d+)([^\W\d_]+)")
_BETWEEN_NUMBERS = re.compile(r"(?<=\d) (?=\d)")
LONG_WORD = 5
"""Least letters of a word, and of its term, that may be mistyped: "cat" never becomes "car"."""
LONGEST_MISTYPED = 24
"""Most letters of such a term: a term has 53 close ones for each of its letters."""
_ALPHABETS = tuple(
    tuple(chr(code).encode() for code in range(ord(first), ord(last) + 1))
    for first, last in ("az", "\u03b1\u03c9", "\u0430\u0451", "\u05d0\u05ea", "\u0621\u064a")
)
"""Latin, Greek, Cyrillic, Hebrew and Arabic letters. In other scripts letters are left out or exchanged, not added."""
SHORT_PREFIX = 4
"""Most letters of a word that is one identifier with the number after it: LH 1234, but not "chapter 12"."""
MAX_INITIALS = 64
"""Pairs of initials of a text that are terms. Of the pairs of a longer text nearly every acronym could be made."""
MOST_PARTS = 3
"""Most words of a query that are looked for as one identifier."""
SHORT_QUERY_TEXT = 100
"""Characters of a query whose words are looked for as identifiers. In a longer one nobody types an identifier."""
MAX_ACRONYM = 4
"""Most letters of an acronym."""
LONG_QUERY_TEXT = 1_000
"""Characters of a query in which acronyms are looked for."""
INITIALS_TEXT = 2_000
"""Characters of a text whose initials are read. They have more pairs than are kept."""
LITTLE = 3
"""Most letters of a word that an acronym may leave out: MFA of "Ministry of Foreign Affairs"."""
_CLAUSE = re.compile(rf"{_WORD}(?:[\s'\u2019\u2010\u2011-]+{_WORD})+")
_CASED = re.compile(r"[^\W\d_]{2,}")
FEWEST_CAPITALS = 2
"""Fewest capitals of an acronym, and of its beginning that takes an ending: NDA of NDAs, МИД of МИДа."""
SQUASHED = 8
"""Least characters of an identifier that is also a term without its inner marks, as the digits of an account are
written in groups or in a row."""

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
    """The indexed terms of one document: distinct term ids, ascending, and how often each occurs (at most 255).

    `length`: the number of terms of its words and its date. What `wholes` and `initials` add does not make a text
    longer.
    """

    ids: TermIds
    counts: NDArray[np.uint8]
    length: int
    flags: int


def terms(text: str) -> list[str]:
    """Returns the index terms in order, with repetition. Stop words are removed unless there are no other words."""
    words = _words(_fold(text))
    return _terms_of(word for word in words if word not in STOP_WORDS) or _terms_of(words)


def _terms_of(words: Iterable[str]) -> list[str]:
    return [term for word in words if (term := _term(word))]


def mentions(text: str) -> list[str]:
    """Returns the words of a text as they are written, without case and stop words, each once, and each pair of words
    that follow each other. A text has those of any phrase in it. At most `MAX_MENTIONED` words are read."""
    whole = _words(_fold(text))[:MAX_MENTIONED]
    words = [word for word in whole if word not in STOP_WORDS] or whole
    spaced = [None if _UNSPACED.match(word) else word for word in words]
    pairs = [f"{spaced_word} {following}" for spaced_word, following in pairwise(spaced) if spaced_word and following]
    return list(dict.fromkeys([*words, *pairs]))


@dataclass(frozen=True, slots=True)
class Whole:
    """An identifier or joined word as one term, and the terms of its parts: "lh1234" of "lh" and "1234".

    `one_word`: the text has the whole as a word, so that the parts are what it adds to the text's terms.
    """

    term: str
    parts: tuple[str, ...]
    one_word: bool = False

    @property
    def added(self) -> tuple[str, ...]:
        """The terms that a text has because of it, beside those of its words."""
        return self.parts if self.one_word else (self.term,)


def wholes(text: str) -> list[Whole]:
    """Returns what is one term beside its parts: words joined by one of `. - : / _ @ +`, and letters and digits with or
    without a space between them.

    What stands between two numbers is a point, and nothing elsewhere, so that other ways to write the same are the same
    term: `LH 1234` and `LH1234`, `B-XY 1234` and `BXY1234`, `e-mail` and `email`; but 12.3 and 1.23 are two terms.
    An identifier that begins with letters is a term from its first number on, too: v3.12.1 and 3.12.1.
    """
    folded = _fold(text)
    may_be = (_MAY_BE_WHOLE_ASCII if folded.isascii() else _MAY_BE_WHOLE).search
    if not may_be(folded):
        return _camel(text)
    pieces = folded.split(" ")
    wanted = [bool(may_be(piece)) for piece in pieces]
    near = [here or after for here, after in pairwise([*wanted, False])]  # with the word before: LH 1234
    regions = (
        " ".join(piece for _, piece in group)
        for is_near, group in groupby(zip(near, pieces, strict=True), itemgetter(0))
        if is_near
    )
    return [
        whole
        for region in regions
        for atoms in _runs(region)
        for whole in (_of_one(*atoms) if len(atoms) == 1 else _of_several(atoms))
    ] + _camel(text)


def _camel(text: str) -> list[Whole]:
    """Returns the words that have a capital behind a small letter, with the parts that begin there: "parseUserID" with
    "parse", "user" and "id"."""
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
        terms_of = dict.fromkeys(_term(part) for part in parts if part not in STOP_WORDS)
        if len(parts) > 1 and terms_of:
            wholes.append(Whole(_term(_fold(word)), tuple(terms_of), one_word=True))
    return wholes


def written_apart(query: str) -> list[Whole]:
    """Returns the identifiers that neighbouring words of a query may be: "parseuserid" of "parse user id function", as
    a document has parse_user_id. Stop words and numbers are in none."""
    if len(query) > SHORT_QUERY_TEXT:
        return []
    wholes: list[Whole] = []
    for clause in _CLAUSE.findall(_fold(query)):
        words = _ATOM.findall(clause)
        usual = (list(group) for is_usual, group in groupby(words, _may_be_part) if is_usual)
        wholes += [
            Whole(_term("".join(run[start:end])), tuple(map(_term, run[start:end])))
            for run in usual
            for start in range(len(run))
            for end in range(start + 2, min(start + MOST_PARTS, len(run)) + 1)
        ]
    return wholes


def _may_be_part(word: str) -> bool:
    return word.isalpha() and word not in STOP_WORDS and not _UNSPACED.match(word)


def initials(text: str) -> list[str]:
    """Returns the pairs of initials of neighbouring words, each once: `^nd` and `^da` of "non-disclosure agreement".

    A text has an acronym if it has all its pairs (`acronyms`), which takes a third of the room of the acronyms
    themselves. Between the words of a pair little ones may stand. No pair is made across a mark or of two stop words.
    """
    pairs: dict[str, None] = {}
    for clause in _CLAUSE.findall(_fold(text[:INITIALS_TEXT])):
        words = [word for word in _ATOM.findall(clause) if not word[0].isdecimal()]
        last: str | None = None  # the last word that is not little, if little ones follow it
        for earlier, later in pairwise(words):
            if earlier not in STOP_WORDS or later not in STOP_WORDS:
                pairs[_pair(earlier, later)] = None
            is_little = len(earlier) <= LITTLE or earlier in STOP_WORDS
            if is_little and last is not None and len(later) > LITTLE and later not in STOP_WORDS:
                pairs[_pair(last, later)] = None
            last = last if is_little else earlier
        if len(pairs) >= MAX_INITIALS:
            break
    return list(pairs)[:MAX_INITIALS]


def _pair(word: str, following: str) -> str:
    return f"^{fold(word[0])}{fold(following[0])}"


def acronyms(query: str) -> dict[str, tuple[str, ...]]:
    """Returns the pairs of initials of each acronym in a query, by its word: a word of two to four letters with two
    capitals, and the only word of a query. An acronym may have an ending: "NDAs"."""
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
            if folded not in STOP_WORDS:
                spelled_out[word] = tuple(dict.fromkeys(_pair(earlier, later) for earlier, later in pairwise(folded)))
    return spelled_out


def _runs(folded: str) -> Iterator[list[str]]:
    """Yields the words of each joined token. A number after a space continues a token (`_takes_number`)."""
    run, end = list[str](), -1
    for match in (_JOINED_ASCII if folded.isascii() else _JOINED).finditer(folded):
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
    """Returns whether a number after the words belongs to them: after another number, or one without joints after a few
    letters that are no stop word and no word of time ("May 8")."""
    if any(map(str.isdecimal, run[-1])):
        return True
    short = len(number) == 1 and all(len(atom) <= SHORT_PREFIX for atom in run)
    return short and run[-1] not in STOP_WORDS and not _TIME_WORD.fullmatch(run[-1])


def _of_one(atom: str) -> list[Whole]:
    """Returns a word of letters and then digits, or the reverse, with both as its parts."""
    mixed = _MIXED.fullmatch(atom[:MAX_WORD])
    if mixed is None or _ORDINAL.fullmatch(atom):
        return []
    parts = (part for part in mixed.groups() if part and part not in STOP_WORDS)
    return [Whole(_term(atom), tuple(map(_term, parts)), one_word=True)]


def _of_several(atoms: Sequence[str]) -> list[Whole]:
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
    """Returns the terms in which a typing error is looked for, by their ids: words of `LONG_WORD` letters or more."""
    long_words = (word for word in _tokens(_fold(text)) if len(word) >= LONG_WORD and word.isalpha())
    stems = dict.fromkeys(_term(word) for word in long_words if word not in STOP_WORDS and not _UNSPACED.match(word))
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
            if len(letters) > LONG_WORD:  # "given" is no mistyped "give"
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

    Many characters of scripts without spaces are done with arrays, because each has two terms.
    """
    if text.isascii() or len(text) < LONG_TEXT:
        return term_ids(terms(text))
    words: list[str] = []
    runs: list[str] = []
    for token in _tokens(_fold(text)):
        unspaced = len(token) > 1 and _UNSPACED.match(token)
        (runs if unspaced else words).append(token)
    single_terms = _terms_of(word for word in words if word not in STOP_WORDS)
    if not (runs or single_terms):
        single_terms = _terms_of(words)
    return np.concatenate([term_ids(single_terms), _ids_of_runs(runs)])


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

    The date becomes three terms ("8", "may", "2023"), so that a query's "May 2023" matches it. Identifiers are terms
    beside their parts (`wholes`), and pairs of initials of the content are terms (`initials`).
    """
    texts = [content, *([context] if context else []), *tags]
    parts = [text_ids(text) for text in texts]
    if time:
        parts.append(term_ids([str(time.day), _term(_MONTHS[time.month - 1]), str(time.year)]))
    length = sum(map(len, parts))
    added = [term for text in texts for whole in wholes(text) for term in whole.added]
    all_ids = np.concatenate([*parts, term_ids(added), term_ids(initials(content))])
    ids, counts = np.unique(all_ids, return_counts=True)
    return IndexedText(ids, np.minimum(counts, 255).astype(np.uint8), length, _flags(content))


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
    tokens = _TOKEN.findall(_JOINERS.sub("", _PERSON.sub("", folded)))
    return [token.replace("\ufe0f", "") for token in tokens]


def has_emoji(text: str) -> bool:
    """Returns whether some of the text's terms are emoji."""
    return not text.isascii() and _HAS_EMOJI.search(text) is not None


def _bigrams(run: str) -> list[str]:
    """Returns overlapping pairs of characters, and each Han character by itself, because it is often a whole word."""
    if len(run) == 1:
        return [run]
    return [run[i : i + 2] for i in range(len(run) - 1)] + _HAN.findall(run)


@kept(32 << 20, longest=MAX_WORD)
def _term(word: str) -> str:
    """Returns the index form of a word: numbers by value, Latin letters without accents, stemmed by script."""
    word = word[:MAX_WORD]
    if word.isdecimal():
        return str(int(word))
    if ordinal := _ORDINAL.fullmatch(word):
        return str(int(ordinal[1]))
    if word[0] <= "\u024f" and not word.isascii():
        word = "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))
    word = sys.intern(word)
    name = next((name for last, name in _STEMMERS if word[:1] <= last), None)
    if name is None:
        return word
    if name == "arabic light":
        word = _ARABIC_MARKS.sub("", word).translate(_ARABIC_LETTERS)
        prefixed = _ARABIC_WORD.fullmatch(word)
        return prefixed[1] if prefixed else word
    with _snowball_lock:
        return str(_snowball[name].stemWord(word)) or word


DATE_TERMS = 3
"""Number of terms that a memory's date adds to its length."""


def _flags(content: str) -> int:
    folded = _fold(content)
    return HAS_NUMBER_OR_TIME_WORD * bool(_TIME_WORD.search(folded)) | IS_QUESTION * _ends_in_question(folded)


def _ends_in_question(text: str) -> bool:
    """Returns whether the last sentence with an end mark ends in a question mark. An emoji or a caption may follow
    it."""
    last_question = max(text.rfind(mark) for mark in _QUESTION_MARKS)
    return last_question > max(text.rfind(mark) for mark in _SENTENCE_ENDS)
