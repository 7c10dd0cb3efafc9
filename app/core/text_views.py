"""Reads a text through encodings: escaped as HTML, JSON or Markdown, percent-encoded, or several of these in a row.

What is found in a decoded text can be taken out of the original, since each of its characters has a place there.
"""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias
from urllib.parse import unquote

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
