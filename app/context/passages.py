"""Extracts the passage of a long text that answers a query, because long texts do not fit into a prompt.

Pure functions.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from app.core import tokens
from app.storage.text import term_ids, terms

LONGEST = 120
"""Maximum tokens of a text that is shown whole, and of a passage."""
CUT = "…"
MARKS = 2
"""Tokens of a mark at each end."""
PIECE_TOKENS = 60
"""Maximum tokens of a piece. A longer sentence is cut, at white space if it has some."""
_ENDS = re.compile(r"(?<=[.!?])\s+|\n+|(?<=[。！？])")

CharRange = tuple[int, int]


def passage(text: str, weights: Mapping[int, float], limit: int = LONGEST) -> str:
    """Returns `text`, or the run of its sentences that contains most of the query within `limit` tokens, marked as cut.

    `weights`: weight of each query term, by term id. If the text contains no term of the query, its beginning is
    returned.
    """
    if len(text.encode()) <= limit or tokens.count(text) <= limit:  # no token is shorter than a byte
        return text
    spans = list(_spans(text, min(PIECE_TOKENS, max(1, (limit - MARKS) // 2)))) or [(0, len(text))]
    found = [_found(text[start:end], weights) for start, end in spans]
    sizes = [tokens.count(text[start:end]) + 1 for start, end in spans]
    first, last = _best_run(found, sizes, limit - MARKS, weights)
    return _marked(text, (spans[first][0], spans[last - 1][1]), limit)


def _marked(text: str, span: CharRange, limit: int) -> str:
    """Returns the text of the span within `limit` tokens, with a mark at each end where the text continues."""
    start, end = span
    before = f"{CUT} " if text[:start].strip() else ""
    for room in range(limit, 0, -1):  # the first nearly always fits: a seam changes the sum by one token at most
        shown = tokens.truncate(text[start:end].strip(), room)
        after = f" {CUT}" if text[end:].strip() or len(shown) < len(text[start:end].strip()) else ""
        if tokens.count(marked := f"{before}{shown.strip()}{after}") <= limit:
            return marked
    return ""


def _spans(text: str, limit: int) -> Iterator[CharRange]:
    """Yields (start, end) of sentences and lines that are not empty; longer ones are split into halves."""
    start = 0
    for match in (*_ENDS.finditer(text), None):
        end = len(text) if match is None else match.start()
        if text[start:end].strip():
            yield from _halves(text, (start, end), limit)
        start = end if match is None else match.end()


def _halves(text: str, span: CharRange, limit: int) -> Iterator[CharRange]:
    start, end = span
    if end - start < 2 or tokens.count(text[start:end]) <= limit:
        yield span
        return
    middle = (start + end) // 2
    space = text.rfind(" ", start + 1, middle)
    at = space if space > start + (end - start) // 4 else middle
    yield from _halves(text, (start, at), limit)
    yield from _halves(text, (at, end), limit)


def _found(piece: str, weights: Mapping[int, float]) -> frozenset[int]:
    return frozenset(term_ids(terms(piece)).tolist()) & weights.keys()


def _best_run(
    found: Sequence[frozenset[int]], sizes: Sequence[int], limit: int, weights: Mapping[int, float]
) -> tuple[int, int]:
    """Returns (start, end) of the run within `limit` tokens whose distinct terms weigh most.

    Of equal runs the shortest is taken, then the first. The run is extended while there is room: first to what follows,
    then to what comes before.
    """
    best, least, run = -1.0, 0, (0, 1)
    for start in range(len(sizes)):
        size, covered, end = 0, set[int](), start
        while end < len(sizes) and size + sizes[end] <= limit:
            size += sizes[end]
            covered |= found[end]
            end += 1
            weight = sum(weights[term] for term in covered)
            if weight > best + 1e-9 or (weight > best - 1e-9 and size < least):
                best, least, run = weight, size, (start, end)
    start, end = run
    size = sum(sizes[start:end])
    while end < len(sizes) and size + sizes[end] <= limit:
        size += sizes[end]
        end += 1
    while start > 0 and size + sizes[start - 1] <= limit:
        start -= 1
        size += sizes[start]
    return start, end
