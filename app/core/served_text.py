"""Recognises text that we served in a prompt, in whatever shape it comes back, so that it is not learned again.

A block that we serve has an opening tag, a first line that only we write, lines in our format, and a closing tag. It
may come back cut at either end, without its tags, quoted, indented, in a code fence, or as a string of JSON. A tag, or
our first line in a sentence that talks of it, is no block.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeAlias

from app.core import prompt_text

_WORDS = ("recalld", "Recalld", "experience", "Remembered")
"""A quick test: each block has one of these words somewhere."""
SEAM = "\x00"
"""Stands in a decoded text, on a line of its own, for a quotation mark around a string of JSON. No text that is stored
contains it."""
_QUOTING = frozenset(" \t>#/|*")
"""Characters that stand before each line of a text that is quoted, indented or in comments."""
_AROUND = _QUOTING | frozenset("'\"()\r\n")
"""These, and what else stands around a text in code."""
_AROUND_A_LINE = "".join(_AROUND) + "."
_GAP = rf"[\s>#/|*'\"{SEAM}]*"
_FENCE = re.compile(r"[ \t>#/|*]*(`{3,}|~{3,})[\w-]*\s*")
_ROUNDS = 32
"""The limit of times that a text is searched: a round finds all blocks of one kind in one reading."""
_LEAST_CUT = 8
"""The least characters by which our first line is recognised once it is cut."""

_LESSON = r"(?:[a-z]+(?:_[a-z]+)+|heuristics): "
_ROLES = r"(?:tool|system|developer|assistant, calling tools)(?: \"[^\"\n]{1,300}\")?: "
_CITED = r"[-*+] \[(?:\d{1,3}|[a-z]{2,12}_[0-9a-f]{32}|[^\]\n]{1,300}:[^\]\n]{1,64})\] "
_ABOVE = re.escape(prompt_text.CONTEXT_UNSURE.strip())
"""A line that may stand above the sections."""


_Span: TypeAlias = tuple[int, int]
"""Where a block begins and ends."""


class _Format:
    """The format of a block that we serve.

    `begins` matches where its lines begin; `alone` does so with such certainty that our first line may lack. `line`
    matches each line. `sure` matches lines that hardly occur elsewhere: they belong to the block even after an empty
    line, and a block without its start has at least one. A block without its end contains one of `inside`.
    """

    def __init__(self, name: str, preamble: str, *, begins: str, alone: str, line: str, sure: str) -> None:
        words = r"[\s>#/|*]+".join(map(re.escape, preamble.split()))
        self.name, self.preamble, self.words = name, preamble, re.compile(words)
        self.opening, self.closing = re.compile(rf"<\s*{name}\s*>"), re.compile(rf"<\s*/\s*{name}\s*>")
        self.content = re.compile(rf"{_GAP}(?:(?P<words>{words})|(?P<alone>{alone}))")
        self.inside = (preamble[:_LEAST_CUT], ": ", "<user_profile>", "<memories>")
        self.begins, self.line, self.sure = re.compile(begins), re.compile(line), re.compile(sure)


_FORMATS = (
    _Format(
        prompt_text.CONTEXT,
        prompt_text.CONTEXT_PREAMBLE,
        begins=rf"\#\# |{_ABOVE}|{_ROLES}",
        alone=_ROLES,
        line=rf"\#{{2,3}} |[-*+] |  |{_ABOVE}|{_ROLES}",
        sure=rf"{_CITED}|\#\#\# \d{{4}}-\d\d-\d\d",
    ),
    _Format(
        prompt_text.EXPERIENCE, prompt_text.LEARNED, begins=_LESSON, alone=_LESSON, line=rf"{_LESSON}|  ", sure=_LESSON
    ),
    _Format(
        prompt_text.OF_USER,
        prompt_text.KNOWN_OF_USER,
        begins=r"<|\{",
        alone="<(?:user_profile|memories)>",
        line=r"</?(?:user_profile|memories)>|\{",
        sure=r'</?(?:user_profile|memories)>\s*$|\{"id":',
    ),
)


_TRACE = re.compile(
    "|".join(part.pattern for style in _FORMATS for part in (style.opening, style.closing, style.words))
)
"""What each block has at least one of, once it is decoded."""
_ESCAPED = re.compile(r"\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[\"'\\/nrt])|\"")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_NESTED = 2
"""How often a text is read as JSON: a string of JSON may stand in another one."""


def readings(text: str) -> Iterator[tuple[str, Sequence[int]]]:
    """Yields the text, and the text read as JSON once and twice, each with the place in the original of every one of
    its characters and of its end."""
    places: Sequence[int] = range(len(text) + 1)
    yield text, places
    for _ in range(_NESTED):
        decoded, at = list[str](), list[int]()
        start = 0
        for escape in _ESCAPED.finditer(text):
            written = escape[0]
            if written == '"':
                read = f"\n{SEAM}\n"
            elif code := written[2:]:  # "u00e9" or "x41"
                read = chr(int(code, 16))
            else:
                read = _ESCAPES.get(written[1], written[1])
            decoded += (text[start : escape.start()], read)
            at += [*places[start : escape.start()], *[places[escape.start()]] * len(read)]
            start = escape.end()
        if not start:
            return
        text, places = "".join(decoded) + text[start:], [*at, *places[start:]]
        yield text, places


def strip_served(text: str) -> str:
    """Returns the text without the blocks that we served. All other text stays as it is."""
    if not any(word in text for word in _WORDS):
        return text
    for _ in range(_ROUNDS):
        if (rest := _stripped(text)) is None:
            break
        text = rest
    return text


def _stripped(text: str) -> str | None:
    """Returns the text without the blocks of one kind in one reading, the surest first. None: there are none."""
    traced = [(decoded, places) for decoded, places in readings(text) if _TRACE.search(decoded)]
    for kind in (_Blocks.tagged, _Blocks.untagged, _Blocks.without_start):
        for decoded, at in traced:
            if spans := _spans(decoded, kind):
                starts, ends = [at[start] for start, _ in spans], [at[end] for _, end in spans]
                return "".join(text[end:start] for end, start in zip([0, *ends], [*starts, len(text)], strict=True))
    return None


def _spans(text: str, kind: "Callable[[_Blocks], Iterator[_Span]]") -> list[_Span]:
    """Returns where blocks of a kind stand, in order and without overlaps."""
    lines, result = _Lines(text), list[_Span]()
    for span in sorted(span for format_ in _FORMATS for span in kind(_Blocks(lines, format_))):
        start, end = lines.with_fence(*span)
        if not result or start >= result[-1][1]:
            result.append((start, end))
    return result


class _Lines:
    """A text by its lines. A place is an index into the text; a number counts lines."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def number(self, place: int) -> int:
        return bisect_right(self._starts, place) - 1

    def start(self, number: int) -> int:
        return self._starts[number]

    def end(self, number: int) -> int:
        """Returns the place behind a line and its line feed."""
        return self._starts[number + 1] if number + 1 < len(self._starts) else len(self.text)

    def before(self, place: int) -> str:
        """Returns what stands before a place on its line."""
        return self.text[self.start(self.number(place)) : place]

    def after(self, place: int) -> str:
        """Returns what stands behind a place on its line, with the line feed."""
        return self.text[place : self.end(self.number(place))]

    def content(self, number: int, quoting: str = "") -> str | None:
        """Returns a line without the characters that quote it. None: there is no such line, or it is not quoted so."""
        if not 0 <= number < len(self._starts):
            return None
        line = self.text[self.start(number) : self.end(number)].rstrip("\r\n")
        if line.startswith(quoting):
            return line[len(quoting) :]
        return "" if line.rstrip() == quoting.rstrip() else None

    def begins_text(self, number: int) -> bool:
        """Returns whether a text begins with this line: behind a seam or a code fence, or as the first of all."""
        above = self.content(number - 1)
        return above is None or above == SEAM or _FENCE.fullmatch(above) is not None

    def with_marks(self, start: int, end: int) -> _Span:
        """Returns the span with the characters that quote its first line, and with the line feed behind its last."""
        first, rest = self.before(start), self.after(end) if self.before(end) else ""
        return start - len(first) * _QUOTING.issuperset(first), end + len(rest) * (not rest.strip())

    def with_fence(self, start: int, end: int) -> _Span:
        """Returns the span with the code fence around it, if nothing else is inside."""
        first, last = self.number(start), self.number(end)
        opened, closed = _FENCE.fullmatch(self.content(first - 1) or ""), _FENCE.fullmatch(self.content(last) or "")
        if self.before(start) or self.before(end) or opened is None or closed is None or opened[1] != closed[1]:
            return start, end
        return self.start(first - 1), self.end(last)


@dataclass(frozen=True, slots=True)
class _Start:
    """Where a block may begin, and where its content does.

    `worded`: our first line is there, and the content follows it. `known`: it is, or the content begins as only ours
    does.
    """

    place: int
    content: int
    worded: bool = False
    known: bool = True


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The blocks of one format in a text."""

    lines: _Lines
    format: _Format

    def tagged(self) -> Iterator[_Span]:
        """Yields the spans of blocks that begin with our tag."""
        return self._with_start(is_tagged=True)

    def untagged(self) -> Iterator[_Span]:
        """Yields the spans of blocks that begin with our first line."""
        return self._with_start(is_tagged=False)

    def _with_start(self, *, is_tagged: bool) -> Iterator[_Span]:
        closings = [match.span() for match in self.format.closing.finditer(self.lines.text)]
        if not closings and not any(part in self.lines.text for part in self.format.inside):
            return
        starts = sorted(self._starts(), key=lambda start: start.place)
        limits = [*(start.place for start in starts[1:]), len(self.lines.text)]
        last = 0  # where the last block ends: one that begins within it would be read to its end again
        for start, limit in zip(starts, limits, strict=False):
            if (self.lines.text[start.place] == "<") != is_tagged or start.place < last:
                continue
            inside = closings[bisect_left(closings, (start.content, 0)) : bisect_left(closings, (limit, 0))]
            closing = next((span for span in inside if self._may_end(start, span[0])), None)
            end = self._cut(start) if closing is None else self._closed(start, *closing)
            if end is not None:
                last = end
                yield self.lines.with_marks(start.place, end)

    def without_start(self) -> Iterator[_Span]:
        """Yields the spans of blocks of which only the end is there: our closing tag below lines in our format."""
        for tag in self.format.closing.finditer(self.lines.text):
            quoting, first, sure = self.lines.before(tag.start()), self.lines.number(tag.start()), False
            if not _AROUND.issuperset(quoting + self.lines.after(tag.end())):
                continue
            while (line := self.lines.content(first - 1, quoting)) is not None and (not line or self._fits(line)):
                first, sure = first - 1, sure or self._is_sure(line)
            if first > 0 and self.lines.begins_text(first - 1):  # the line in which it was cut
                first -= 1
                sure = sure or self._is_sure(self.lines.content(first) or "")
            if sure:
                yield self.lines.with_marks(self.lines.start(first), tag.end())

    def _fits(self, line: str) -> bool:
        return self.format.line.match(line) is not None

    def _is_sure(self, line: str) -> bool:
        return self.format.sure.match(line) is not None

    # --- Beginnings ---------------------------------------------------------------------------------------------------

    def _starts(self) -> Iterator[_Start]:
        text, worded = self.lines.text, set[int]()
        for tag in self.format.opening.finditer(text):
            content = self.format.content.match(text, tag.end())
            if content is not None and content["words"]:
                worded.add(content.start("words"))
                yield _Start(tag.start(), content.end(), worded=True)
            elif content is not None:
                yield _Start(tag.start(), content.start("alone"))
            elif self._is_cut_first_line(following := self.lines.number(tag.end()) + 1):
                yield _Start(
                    tag.start(), self.lines.start(following) + len(self.lines.content(following) or ""), worded=True
                )
            else:
                yield _Start(tag.start(), tag.end(), known=False)
        for words in self.format.words.finditer(text):
            before = self.lines.before(words.start())
            if words.start() not in worded and _AROUND.issuperset(before):
                yield _Start(self._cut_tag(words.start()), words.end(), worded=True)

    def _is_cut_first_line(self, number: int) -> bool:
        line = (self.lines.content(number) or "").strip(_AROUND_A_LINE)
        return len(line) >= _LEAST_CUT and self.format.preamble.startswith(line)

    def _cut_tag(self, place: int) -> int:
        """Returns the start of the line above, if a text begins there with the rest of an opening tag, or the place."""
        above = self.lines.number(place) - 1
        rest = (self.lines.content(above) or "").strip()
        if above >= 0 and f"<{self.format.name}>".endswith(rest) and self.lines.begins_text(above):
            return self.lines.start(above)
        return place

    # --- Ends ---------------------------------------------------------------------------------------------------------

    def _may_end(self, start: _Start, place: int) -> bool:
        """Returns whether a closing tag may end the block: it begins its line, or the whole block is on one line."""
        return _AROUND.issuperset(self.lines.before(place)) or self.lines.number(place) == self.lines.number(
            start.place
        )

    def _closed(self, start: _Start, closing: int, end: int) -> int | None:
        """Returns the end of a block with its closing tag. One that is not known by its start has only our lines."""
        if not start.known:
            numbers = range(self.lines.number(start.content) + 1, self.lines.number(closing))
            lines = [self.lines.content(number, self.lines.before(closing)) or "" for number in numbers]
            if not all(map(self._fits, lines)) or not any(map(self._is_sure, lines)):
                return None
        return end

    def _cut(self, start: _Start) -> int | None:
        """Returns the end of a block without its closing tag: where its lines are not in our format any more."""
        if not start.known:
            return None
        number, rest = self.lines.number(start.content), self.lines.after(start.content)
        quoting = "".join(takewhile(_QUOTING.__contains__, self.lines.before(start.content)))
        if not start.worded:
            return self._content_end(number, quoting)
        if not _AROUND.issuperset(rest.replace(".", "")):  # all on one line, or a mention
            return self.lines.end(number) if self.format.begins.match(rest.lstrip()) else None
        end = self._content_end(number + 1, quoting)
        is_tagged = self.lines.text[start.place] == "<"
        return self.lines.end(number) if end is None and is_tagged else end

    def _content_end(self, number: int, quoting: str) -> int | None:
        """Returns the end of the lines in our format from this one on, or None if none begins here."""
        end = None
        while True:
            following = number
            while self.lines.content(following, quoting) == "":
                following += 1
            line = self.lines.content(following, quoting)
            if line is None or not self._continues(line, first=end is None, apart=following > number):
                return end
            end, number = self.lines.end(following), following + 1

    def _continues(self, line: str, *, first: bool, apart: bool) -> bool:
        """Returns whether a line belongs to the block. `apart`: an empty line stands above, which ends most blocks."""
        if first:
            return self.format.begins.match(line) is not None
        if apart:
            return self._is_sure(line) or (line.startswith("  ") and line[2:3] != " ")
        return self._fits(line)
