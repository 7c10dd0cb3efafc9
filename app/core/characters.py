"""Characters: what may stand in a text, and views of a text that ignore its form.

- Letters that look like ASCII ones, and characters that are invisible. The look-alikes are letters of Unicode's
  confusables (UTS 39) that can be mistaken for one ASCII character, in scripts that can imitate whole words. Wide, bold
  and other compatibility forms need no table.
- Encodings: a text is read as escaped HTML, JSON or Markdown, as percent-encoded, or as several of these in a row. What
  is found in a decoded text can be taken out of the original, since each of its characters has a place there.
- Small talk: messages without content, such as "thanks" or "good morning".
"""

import html
import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote

LESS_THAN = "<\uff1c\ufe64\u226e\u02c2\u2039\u276e\u2770\u1438\u27e8\u2329\u3008\ufe3f\u29fc\u2991\U0001d236"
"""`<` and the characters that look like it."""
_LOOKALIKES = {
    "<": LESS_THAN,
    ">": "\u02c3\u203a\u276f\u2771\u1433\u27e9\u3009\u29fd\u2992\U0001d237",
    "|": "\u2223\u01c0\u2502\u2758\u05c0\u2d4f",
    "/": "\u2215\u2044\u29f8\u2571",
    "_": "\u203f\u2040\u02cd",
    "a": "аАαΑɑᴀᎪ",
    "b": "вВьЬβΒʙᏏ",
    "c": "сСϲϹᴄᏟᑕ",
    "d": "ԁԀᴅᎠժ",
    "e": "еЕεΕєЄҽᴇᎬ",
    "f": "ϝғҒƒꜰ",
    "g": "ɡցɢԍᏀ",
    "h": "һҺнНΗհʜᎻ",
    "i": "іІӏӀιΙıɩɪ",
    "j": "јЈϳᴊ",
    "k": "кКκΚᴋᏦ",
    "l": "ʟᏞ",
    "m": "мМΜᴍᎷ",
    "n": "пПηΝոɴ",
    "o": "оОοΟσօᴏ໐",
    "p": "рРρΡᴘᏢ",
    "q": "ԛԚզ",
    "r": "гГʀᎡᏒ",
    "s": "ѕЅꜱᏚՏ",
    "t": "тТτΤᴛᎢ",
    "u": "υսՍμᴜ",
    "v": "ѵѴνᴠᏙ",
    "w": "ԝԜωѡᴡᏔ",
    "x": "хХχΧ",
    "y": "уУүҮγΥʏყ",
    "z": "ζΖᴢᏃ",
}
_ASCII = {char: plain for plain, chars in _LOOKALIKES.items() for char in chars}
_UNSEEN = frozenset({"Cf", "Cc", "Mn", "Me"})
_BLANK = frozenset("\u115f\u1160\u3164\uffa0\u2800")
_CACHED_BELOW = 0x10000  # limits the table of folded characters to a few megabytes

HIDDEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb"
)
"""Unicode's Default_Ignorable_Code_Point below U+10000 and the marks of interlinear annotations, for a regex."""
_HIDDEN_RUN = re.compile(f"[{HIDDEN}\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+")
_ZWNJ, _ZWJ = "\u200c", "\u200d"
_EMOJI_SELECTORS = "\ufe0e\ufe0f"
_KEYCAP = "\u20e3"
_BLACK_FLAG = "\U0001f3f4"
_FLAGS = tuple(
    "".join(chr(0xE0000 + ord(letter)) for letter in region) + "\U000e007f" for region in ("gbeng", "gbsct", "gbwls")
)
"""England, Scotland, Wales: the only flags spelled with tag characters that Unicode recommends."""
_VIRAMA = 9  # canonical combining class
_JOINING = ((0x0590, 0x1CFF), (0xA800, 0xABFF), (0x10A00, 0x11FFF))
"""Blocks of the scripts in which a joiner between letters changes the writing: Arabic, Indic and related scripts."""
_SYMBOLS = ((0x2190, 0x21FF), (0x25A0, 0x25FF), (0x1F3FB, 0x1F3FF))
_OTHER_EMOJI = frozenset("\u203c\u2049\u2139\u3030")


class _Folded(dict[int, str]):
    """Maps each character to the ASCII text that it looks like, for `str.translate`."""

    def __missing__(self, code: int) -> str:
        found = "".join(map(_folded, unicodedata.normalize("NFKD", _ASCII.get(chr(code), chr(code)))))
        if code < _CACHED_BELOW:
            self[code] = found
        return found


def _folded(char: str) -> str:
    if char in _BLANK or (unicodedata.category(char) in _UNSEEN and not char.isspace()):
        return ""
    return _ASCII.get(char, char)


_FOLDED = _Folded()


def fold(text: str) -> str:
    """Returns the text as it looks: without invisible characters and accents, look-alikes as ASCII. Case is kept."""
    return text.translate(_FOLDED)


def visible(text: str) -> str:
    """Returns the text without invisible characters that could hide text: tags, bidi controls, zero-width characters.

    Joiners are kept between letters of scripts that need them and between emoji, as are an emoji's variation selector
    and the tags of the flags of England, Scotland and Wales. Variation selectors of letters are removed; the letter
    stays.
    """
    return text if text.isascii() else _HIDDEN_RUN.sub(_needed, text)


def _needed(run: re.Match[str]) -> str:
    """Returns the part of a run of invisible characters that the text needs."""
    hidden, text = run.group(), run.string
    before, after = text[max(run.start() - 1, 0) : run.start()], text[run.end() : run.end() + 1]
    if before == _BLACK_FLAG:
        return next((flag for flag in _FLAGS if hidden.startswith(flag)), "")
    selector = hidden[0] if hidden[0] in _EMOJI_SELECTORS and _selects(before, after) else ""
    joiner = hidden[len(selector) : len(selector) + 1]
    return selector + (joiner if _joins(joiner, before, after) else "")


def _selects(before: str, after: str) -> bool:
    return _pictures(before) or (after == _KEYCAP and before != "" and before in "0123456789#*")


def _joins(joiner: str, before: str, after: str) -> bool:
    if joiner == _ZWJ and _pictures(before) and _pictures(after):
        return True
    return (
        joiner in (_ZWNJ, _ZWJ) and _joining(before) and (_joining(after) or unicodedata.combining(before) == _VIRAMA)
    )


def _pictures(char: str) -> bool:
    return char != "" and (unicodedata.category(char) == "So" or char in _OTHER_EMOJI or _within(char, _SYMBOLS))


def _joining(char: str) -> bool:
    return char != "" and unicodedata.category(char)[0] in "LM" and _within(char, _JOINING)


def _within(char: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= ord(char) <= last for first, last in ranges)


MOST_CHARS = 160
"""A longer message is no small talk."""
UNSPACED = ("zh", "ja")
"""Languages whose phrases are not separated by spaces."""
_FILE = Path(__file__).parent / "data" / "small_talk.toml"
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_APOSTROPHES = str.maketrans("\u2019\u02bc\u2018\u00b4`\uff07", "''''''")
_ASKS = frozenset("?\u061f\uff1f")


@dataclass(frozen=True, slots=True)
class Phrases:
    """Phrases of one language as rows of words, and their words."""

    rows: frozenset[tuple[str, ...]]
    words: frozenset[str]


def is_small_talk(text: str) -> bool:
    """Returns whether a message says nothing that is worth keeping.

    It is small talk if it consists of phrases of one language (`data/small_talk.toml`), emoji and punctuation. A
    question, a number or one unknown word make it none, so "Thanks, Ada" is kept. An empty text is none, too.
    """
    return _ASKS.isdisjoint(text) and _says_nothing(text, _phrases())


def is_idle(text: str) -> bool:
    """Returns whether a text has nothing from which a record can be learned: small talk, the mood or the weather of the
    moment, "another one", "what's up?".

    It is idle if it has no number, no name and no other word than those of small talk and the `idle` ones of one
    language. Unlike small talk it may ask, and it may say something in its conversation.
    """
    return _says_nothing(text, _idle_phrases())


def _says_nothing(text: str, phrases: Mapping[str, Phrases]) -> bool:
    if not text.strip() or len(text) > MOST_CHARS:
        return False
    folded = _fold(visible(text).translate(_APOSTROPHES))
    if any(char.isnumeric() or unicodedata.category(char) in ("Sc", "Sm") for char in folded):
        return False
    words = _WORD.findall(folded)
    return not words or any(_consists(words, language, known) for language, known in phrases.items())


def _consists(words: Sequence[str], language: str, phrases: Phrases) -> bool:
    """Returns whether the words are a row of the language's phrases."""
    if language in UNSPACED:
        words = list("".join(words))
    if any(word not in phrases.words for word in words):
        return False
    longest = max(map(len, phrases.rows))
    reached = [True] + [False] * len(words)
    for end in range(1, len(words) + 1):
        begins = range(max(0, end - longest), end)
        reached[end] = any(reached[begin] and tuple(words[begin:end]) in phrases.rows for begin in begins)
    return reached[-1]


@cache
def _phrases() -> Mapping[str, Phrases]:
    """Returns the phrases of small talk of each language."""
    said, _ = _file()
    return {language: _read(phrases, language) for language, phrases in said.items()}


@cache
def _idle_phrases() -> Mapping[str, Phrases]:
    """Returns the phrases of small talk and the idle words of each language that has idle words."""
    said, idle = _file()
    shared = idle["any"]
    return {
        language: _read([*said[language], *shared, *idle[language]], language) for language in idle if language in said
    }


@cache
def _file() -> tuple[Mapping[str, list[str]], Mapping[str, list[str]]]:
    """Returns the phrases of small talk, and the idle words, by language."""
    read = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    shared, idle = read.pop("any"), read.pop("idle")
    return {language: [*shared, *phrases] for language, phrases in read.items()}, idle


def _read(phrases: Sequence[str], language: str) -> Phrases:
    """Returns phrases as words, or as characters where no spaces separate words."""
    split = (_WORD.findall(_fold(each)) for each in phrases)
    rows = frozenset(tuple("".join(words)) if language in UNSPACED else tuple(words) for words in split)
    return Phrases(rows, frozenset(word for row in rows for word in row))


def _fold(text: str) -> str:
    """Returns the text in lower case, without accents."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in plain if not unicodedata.combining(char))


SEAM = "\x00"
"""Stands in a decoded text, on a line of its own, for a quotation mark around a string of JSON. No text that is stored
contains it."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """An encoding: what it writes, and how that is read."""

    written: re.Pattern[str]
    read: Callable[[str], str]

    def decode(self, text: str) -> str | None:
        """Returns the decoded text, or None if nothing in it is encoded."""
        decoded, number = self.written.subn(lambda found: self.read(found.group()), text)
        return decoded if number else None

    def places(self, text: str, places: Sequence[int]) -> list[int]:
        """Returns the place of each character of the decoded text, and of its end; `places` has those of `text`."""
        result, at = list[int](), 0
        for found in self.written.finditer(text):
            result += places[at : found.start()]
            result += [places[found.start()]] * len(self.read(found.group()))
            at = found.end()
        return result + list(places[at:])


def _json(written: str) -> str:
    if written == '"':
        return f"\n{SEAM}\n"
    code = written[2:]
    return chr(int(code, 16)) if code else {"n": "\n", "r": "\r", "t": "\t"}.get(written[1], written[1])


def _html(written: str) -> str:
    return "\n" if written[0] == "<" else html.unescape(written)


_HTML = Encoding(re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z]{2,8});|<br\s*/?>(?:\r?\n)?"), _html)
_ENCODINGS = (
    _HTML,
    Encoding(re.compile(r"\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[\"'\\/nrt])|\""), _json),
    Encoding(re.compile(r"\\[!-/:-@\[-`{-~]"), lambda written: written[1]),  # Markdown
    Encoding(re.compile("%[0-7][0-9a-fA-F]"), unquote),
)

EncodingChain: TypeAlias = tuple[Encoding, ...]
"""The encodings of a text, the outermost first."""
CHAINS: Sequence[EncodingChain] = ((), *product(_ENCODINGS), *product(_ENCODINGS, repeat=2), (_HTML,) * 3)
"""How a text may be encoded, the simplest first: not at all, once, twice, or by three passes of a template."""


def readings(text: str) -> Iterator[tuple[EncodingChain, str]]:
    """Yields each reading that decodes something, with the decoded text."""
    decoded: dict[EncodingChain, str | None] = {(): text}
    for reading in CHAINS:
        if reading:
            outer = decoded.get(reading[:-1])
            decoded[reading] = None if outer is None else reading[-1].decode(outer)
        if (found := decoded[reading]) is not None:
            yield reading, found


def places(text: str, reading: EncodingChain) -> Sequence[int]:
    """Returns for each character of the decoded text, and for its end, where it stands in the original."""
    result: Sequence[int] = range(len(text) + 1)
    for encoding in reading:
        result, text = encoding.places(text, result), encoding.decode(text) or text
    return result
