"""Characters: what may stand in a text, and views of a text that ignore its form.

- Letters that look like ASCII ones, and characters that are invisible. The look-alikes are letters of Unicode's
  confusables (UTS 39) that can be mistaken for one ASCII character, in scripts that can imitate whole words. Wide, bold
  and other compatibility forms need no table.
- Messages of emoji and punctuation alone, which say nothing.
"""

import re
import unicodedata

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
        folded = "".join(map(_folded, unicodedata.normalize("NFKD", _ASCII.get(chr(code), chr(code)))))
        if code < _CACHED_BELOW:
            self[code] = folded
        return folded


def _folded(char: str) -> str:
    if char in _BLANK or is_hidden(char) or (unicodedata.category(char) in _UNSEEN and not char.isspace()):
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


def hidden_at(text: str) -> set[int]:
    """Returns the places of the invisible characters that `visible` removes."""
    places = set[int]()
    for run in () if text.isascii() else _HIDDEN_RUN.finditer(text):
        needed, at = _needed(run), 0
        for place in range(*run.span()):
            if at < len(needed) and needed[at] == text[place]:  # what is needed stands there in this order
                at += 1
            else:
                places.add(place)
    return places


def is_hidden(char: str) -> bool:
    """Returns whether a character is one of those that could hide text."""
    return _HIDDEN_RUN.fullmatch(char) is not None


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


def says_nothing(text: str) -> bool:
    """Returns whether a message says nothing that is worth keeping: emoji and punctuation alone, such as "👍" or "…". A
    letter, a number, a sign of a currency or a question mark makes it say something. An empty text is no message."""
    return bool(text.strip()) and not any(char in _ASKS or unicodedata.category(char) in _SAYING for char in text)


_ASKS = frozenset("?\u061f\uff1f")
_SAYING = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Nd", "Nl", "No", "Sc", "Sm"))
