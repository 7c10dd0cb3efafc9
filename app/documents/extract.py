"""The passages of a file. It runs as a process of its own, because a file may be made to be slow or large to read:

    python -m app.documents.extract application/pdf manual.pdf
    python -m app.documents.extract text/plain notes.txt iso-8859-1

It prints one JSON object a line for each passage, `{"text": "Fill…", "headings": ["Care"], "page": 3, "start": 0,
"end": 980}`, and at the end `{"pages": 12, "empty_pages": 2}` or `{"error": "The file is…"}`. `start` and `end`
count characters of the whole text.
"""

import re
import resource
import sys
from codecs import BOM_UTF8, lookup
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import normalize

import orjson

MARKDOWN, TEXT, HTML, PDF = "text/markdown", "text/plain", "text/html", "application/pdf"
MEMORY_BYTES, SECONDS = 2 << 30, 60
"""What the process may take: memory that it reserves, and seconds of a processor."""
SECONDS_BY_MEGABYTE = {MARKDOWN: 5, TEXT: 1, HTML: 1}
"""Of a processor, besides five: twice what Markdown takes, ten times what a page does. A page of 200,000 nested `<div>`
takes minutes of the parser, and other files wait for it. How long a PDF takes does not follow from its size."""
MOST, OVERLAP = 1_000, 200
"""Characters of a passage (about 200 tokens, one window of the embedding model), and of the sentence that the next one
repeats."""
MOST_CHARACTERS = 20_000_000
"""Of all text. Ten megabytes of PDF can hold more."""

_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE = re.compile(r"[.!?…][\"')\]»”]?\s|[。！？]|\n")
_SPACE = re.compile(r"\s")
_UNDERLINED = re.compile(r"(?<![^\n]\n)^(\S.{0,119})\n([-=*~])\2{2,}[ \t]*$", re.MULTILINE)
_GAPS = re.compile(r"(?<! ) *\n[ \n]*\n")
_HEADING = re.compile(r"h[1-6]")
_HIDDEN = frozenset({"script", "style", "noscript", "template", "nav", "svg", "iframe", "-comment"})
_BESIDE = frozenset({"navigation", "search"})
"""Roles of what stands beside a page's text, as Sphinx and Javadoc write it: `<div role="navigation">`."""
_LIGATURES = str.maketrans({code: normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)})
"""`ﬁ` → `fi`: TeX sets them, and nobody writes them in a question."""
_IN_LINE = frozenset(
    "a abbr b bdi bdo cite code data del dfn em font i ins kbd mark q s samp small span strong sub sup time u var "
    "wbr".split()
)


class FileUnreadable(Exception):
    """A sentence for the caller that says why the file has no passages."""


class TextSection(NamedTuple):
    """A part of a file under one heading, or on one page: `TextSection("Water the fern…", ("Care", "Ferns"), 3)`."""

    text: str
    headings: tuple[str, ...] = ()
    page: int | None = None


_FRONT_MATTER = re.compile(r"---\n[\w-]+:.*?\n---\n", re.DOTALL)
"""YAML before the text, as of a skill: Markdown would read its last line as a heading."""


def markdown_sections(text: str) -> Iterator[TextSection]:
    """Yields the parts between headings, each with its heading's line, as they are written. A heading with nothing
    before the next deeper one begins that one's part."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 (only who needs it waits for it)

    front = _FRONT_MATTER.match(text)
    source = "\n" * front[0].count("\n") + text[front.end() :] if front else text
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)  # splitlines() ends lines at a form feed, too, and Markdown does not
    path, begun, body = list[tuple[int, str]](), 0, 0
    for token, inline in pairwise(MarkdownIt("commonmark").parse(source)):
        if token.type != "heading_open" or token.map is None or token.level:
            continue
        level, (first, last) = int(token.tag[1]), token.map
        if not path or level <= path[-1][0] or "".join(lines[body:first]).strip():
            yield TextSection("".join(lines[begun:first]), _names(path))
            begun = first
        path, body = _below(path, level, _title(inline.children or [])), last
    yield TextSection("".join(lines[begun:]), _names(path))


def _title(parts: Sequence[Any]) -> str:
    """Returns what a reader sees of a heading: ``## `run()` [![build](b.svg)](x)`` → `run()`."""
    words = "".join(part.content or " " for part in parts if part.type in ("text", "code_inline", "softbreak"))
    return words.strip() or " ".join(part.content for part in parts if part.type == "image")


def text_sections(text: str) -> Iterator[TextSection]:
    """Yields the parts between underlined headings ("2 Care" above "======"), each with its heading, as Markdown has
    them. The first kind of line is that of the highest headings."""
    marks, path, begun, body = list[str](), list[tuple[int, str]](), 0, 0
    for heading in _UNDERLINED.finditer(text):
        marks += [heading[2]] if heading[2] not in marks else []
        level = marks.index(heading[2])
        if not path or level <= path[-1][0] or text[body : heading.start()].strip():
            yield TextSection(text[begun : heading.start()], _names(path))
            begun = heading.start()
        path, body = _below(path, level, heading[1].strip()), heading.end()
    yield TextSection(text[begun:], _names(path))


def html_sections(text: str) -> Iterator[TextSection]:
    """Yields the visible text between headings. Navigation, scripts and styles are left out. A heading with nothing
    before the next deeper one begins that one's part."""
    from selectolax.lexbor import LexborHTMLParser  # noqa: PLC0415

    body = LexborHTMLParser(text).body
    path, parts, titles = list[tuple[int, str]](), list[str](), 0
    # an explicit stack: a page may be nested deeper than functions may call each other. True: lines are kept (<pre>)
    stack: list[tuple[Any, bool]] = [] if body is None else [(body, False)]
    while stack:
        node, keeps_lines = stack.pop()
        if isinstance(node, str):
            parts.append(node)
        elif node.tag == "-text":
            kept = (node.text_content or "").replace("\u00ad", "")  # a soft hyphen is not seen
            parts.append(kept if keeps_lines else re.sub(r"\s+", " ", kept))
        elif node.tag in _HIDDEN or _is_beside(node):
            continue
        elif _HEADING.fullmatch(node.tag or ""):
            for link in filter(_is_beside, node.css("a")):
                link.decompose()
            level, title = int(node.tag[1]), re.sub(r"\s+", " ", node.text().replace("\u00ad", "")).strip()
            if not path or level <= path[-1][0] or "".join(parts[titles:]).strip():
                yield TextSection(_GAPS.sub("\n", "".join(parts)), _names(path))
                parts = []
            path, parts = _below(path, level, title), [*parts, title, "\n\n"]
            titles = len(parts)
        else:
            gap = [] if node.tag in _IN_LINE else [" " if node.tag in ("td", "th") else "\n"]
            inner = [*gap, *reversed(list(node.iter(include_text=True))), *gap]
            stack += [(part, keeps_lines or node.tag == "pre") for part in inner]
    yield TextSection(_GAPS.sub("\n", "".join(parts)), _names(path))


def _is_beside(node: Any) -> bool:
    """Whether an element is not part of a page's text: hidden, navigation, or a link to its own heading (`¶`)."""
    has = node.attributes
    if has.get("role") in _BESIDE or has.get("hidden", "until-found") != "until-found":
        return True
    return node.tag == "a" and (has.get("href") or "")[:1] == "#" and not any(map(str.isalnum, node.text()))


def pdf_sections(path: str | BytesIO, figures: dict[str, Any]) -> Iterator[TextSection]:
    """Yields the pages with text, each below the last bookmarks that lead to it or before it. `figures` is told how
    many pages there are, and how many without text."""
    import pypdf  # noqa: PLC0415

    reader = pypdf.PdfReader(path)
    if reader.is_encrypted and not reader.decrypt(""):
        raise FileUnreadable("The PDF is protected with a password: send it without.")
    marks: dict[int, tuple[str, ...]] = {}  # {0: ("Care",), 4: ("Care", "Ferns")}: page of a bookmark → its path
    outline: list[tuple[Any, int, tuple[str, ...]]] = [(reader.outline, 1, ())]
    while outline:
        items, level, above = outline.pop()
        last = above
        for item in items:
            if isinstance(item, list):
                outline.append((item, level + 1, last))
                continue
            last = (*above, str(item.title))
            target = reader.get_destination_page_number(item)
            if target is not None and target >= 0:
                marks.setdefault(target, last)
    headings: tuple[str, ...] = ()
    for number, page in enumerate(reader.pages):
        headings = marks.get(number, headings)
        text = page.extract_text().strip().translate(_LIGATURES)
        figures["pages"] = number + 1
        figures["empty_pages"] = figures.get("empty_pages", 0) + (not text)
        yield TextSection(text, headings, number + 1)
    if figures.get("pages", 0) == figures.get("empty_pages", 0):
        raise FileUnreadable("The PDF has no text: its pages are pictures. Send it with recognised text (OCR).")


def _below(path: Sequence[tuple[int, str]], level: int, title: str) -> list[tuple[int, str]]:
    """Returns the path of a heading: `[(1, "Care"), (2, "Ferns")]` and a heading of level 2 give `[(1, "Care"), …]`."""
    return [*(above for above in path if above[0] < level), (level, title)]


def _names(path: Sequence[tuple[int, str]]) -> tuple[str, ...]:
    return tuple(title for _, title in path if title)


def passages(sections: Iterator[TextSection]) -> Iterator[dict[str, Any]]:
    """Yields the passages of each section: whole paragraphs where they fit, else whole sentences. Each one after the
    first begins with the last sentence of the one before, if that is short."""
    offset = 0
    for section in sections:
        text, begun = section.text, 0
        while begun < len(text):
            end = _end(text, begun)
            shown = text[begun:end].strip()
            if shown:
                first = offset + begun + len(text[begun:end]) - len(text[begun:end].lstrip())
                place = {"page": section.page, "start": first, "end": first + len(shown)}
                yield {"text": shown, "headings": list(section.headings), **place}
            if end == len(text):
                break
            repeated = [match.end() for match in _SENTENCE.finditer(text, max(begun + 1, end - OVERLAP), end - 1)]
            begun = repeated[-1] if repeated else end
        offset += len(text)
        if offset > MOST_CHARACTERS:
            raise FileUnreadable(f"The file has more than {MOST_CHARACTERS:,} characters of text.")


def _end(text: str, begun: int) -> int:
    """Returns where a passage ends that begins at `begun`: behind the last paragraph, sentence or word that fits."""
    limit = begun + MOST
    if limit >= len(text):
        return len(text)
    for pattern, least in ((_PARAGRAPH, MOST // 2), (_SENTENCE, MOST // 3), (_SPACE, 1)):
        ends = [match.end() for match in pattern.finditer(text, begun + least, limit)]
        if ends:
            return ends[-1]
    return limit


def sections_of(media_type: str, path: str, figures: dict[str, Any], charset: str = "") -> Iterator[TextSection]:
    """Yields the sections of a file. `charset`: its encoding, as the upload has it. Raises FileUnreadable."""
    if media_type == PDF:
        return pdf_sections(path, figures)
    decoded = _decoded(Path(path).read_bytes(), media_type == HTML, charset)
    decoded = decoded.encode(errors="replace").decode()  # some encodings, as utf-7, have halves of characters
    text = re.sub("\r\n?", "\n", decoded).replace("\0", "")
    if text.count("\ufffd") * 100 > len(text):  # a few broken characters are less than a file that is refused
        raise FileUnreadable("The file is not text in UTF-8: convert it, as with `iconv -t utf-8`.")
    return {MARKDOWN: markdown_sections, HTML: html_sections, TEXT: text_sections}[media_type](text)


_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)


def _decoded(file: bytes, is_page: bool, charset: str) -> str:
    """Returns the text of a file: in the encoding of its byte order mark, else of the upload, else that a page names at
    its beginning (`<meta charset="iso-8859-1">`), else UTF-8."""
    if file[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return file.decode("utf-16", "replace")
    named = _CHARSET.search(file[:1024]) if is_page and not charset else None
    try:
        name = lookup(charset or (named[1].decode() if named else "utf-8")).name
        if (
            name != "utf-8"
            and file[:3] != BOM_UTF8
            and (
                charset or b"<meta".decode(name) == "<meta"  # a page names one in which it can be read itself
            )
        ):
            return file.decode("cp1252" if name == "iso8859-1" else name, "replace")  # as browsers do
    except (LookupError, UnicodeError):
        pass
    return file.decode("utf-8-sig", "replace")


def main(media_type: str, path: str, charset: str = "") -> None:
    """Prints the passages of a file."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    by_size = SECONDS_BY_MEGABYTE.get(media_type, SECONDS) * (1 + (Path(path).stat().st_size >> 20))
    seconds = min(5 + by_size, SECONDS)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    figures: dict[str, Any] = {}
    try:
        for passage in passages(sections_of(media_type, path, figures, charset)):
            sys.stdout.buffer.write(orjson.dumps(passage, option=orjson.OPT_APPEND_NEWLINE))
    except FileUnreadable as error:
        figures = {"error": str(error)}
    except MemoryError:
        figures = {"error": "The file takes too much memory to read."}
    except Exception as error:  # noqa: BLE001 (of a library, about a file that somebody sent)
        figures = {"error": f"The file cannot be read as {media_type}: {type(error).__name__}."}
    sys.stdout.buffer.write(orjson.dumps(figures, option=orjson.OPT_APPEND_NEWLINE))


if __name__ == "__main__":
    main(*sys.argv[1:])
