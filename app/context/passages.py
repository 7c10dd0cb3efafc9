"""The passage of a long text that answers a query: the run of its sentences with most of the query's words."""

from collections.abc import Iterator, Mapping, Sequence

from app.core import prompt_text
from app.core.language import sentence_spans
from app.storage.text import text_ids

LONGEST_PASSAGE = 120
"""Maximum tokens of a text that is shown whole, and of a passage."""
CUT = "…"
CUT_TOKENS = 2
"""Tokens of the sign at each end where a text is cut."""
PIECE_TOKENS = 60
"""Maximum tokens of a piece. A longer sentence is cut, at white space if it has some."""

CHUNK = 1_000
"""Characters of a long text that are looked at together. A passage has some 500."""
FULLY_READ_CHARACTERS = 4 * CHUNK
"""Characters up to which every sentence of a text is looked at. Of a longer one it is those around the best chunk: to
cut 32,000 characters into sentences, count their tokens and read their terms takes 20 ms, and to read the terms of
chunks 3 ms."""

CharRange = tuple[int, int]


def best_passage(text: str, weights: Mapping[int, float], limit: int = LONGEST_PASSAGE) -> str:
    """Returns `text`, or the run of its sentences that contains most of the query within `limit` tokens, with a sign
    where it is cut.

    `weights`: weight of each query term, by term id. If the text contains no term of the query, its beginning is
    returned.
    """
    if len(text.encode()) <= limit or prompt_text.count(text) <= limit:  # no token is shorter than a byte
        return text
    start, end = _best_part(text, weights)
    most = min(PIECE_TOKENS, max(1, (limit - CUT_TOKENS) // 2))
    pieces = [
        piece
        for first, last in sentence_spans(text[start:end])
        for piece in _halves(text, (start + first, start + last), most)
    ]
    # without the first and the last piece where the part cuts them: True counts as 1
    whole = pieces[start > 0 : len(pieces) - (end < len(text))]
    pieces = whole or pieces or [(start, end)]
    terms = [_query_terms(text[first:last], weights) for first, last in pieces]
    # + 1: the seam between two pieces takes a token at most
    sizes = [prompt_text.count(text[first:last]) + 1 for first, last in pieces]
    first, last = _best_run(terms, sizes, limit - CUT_TOKENS, weights)
    return _with_cuts(text, (pieces[first][0], pieces[last - 1][1]), limit)


def _with_cuts(text: str, span: CharRange, limit: int) -> str:
    """Returns the text of the span within `limit` tokens, with a sign at each end where the text continues."""
    start, end = span
    before = f"{CUT} " if text[:start].strip() else ""
    for room in range(limit, 0, -1):  # the first nearly always fits: a seam changes the sum by one token at most
        shown = prompt_text.truncate(text[start:end].strip(), room)
        after = f" {CUT}" if text[end:].strip() or len(shown) < len(text[start:end].strip()) else ""
        if prompt_text.count(cut := f"{before}{shown.strip()}{after}") <= limit:
            return cut
    return ""


def _best_part(text: str, weights: Mapping[int, float]) -> CharRange:
    """Returns (start, end) of the chunk that contains most of the query, the first of equal ones, with the chunk before
    it and the one behind; the whole of a text that is not long. Without weights a long text is not read."""
    if len(text) <= FULLY_READ_CHARACTERS:
        return 0, len(text)
    if not weights:
        return 0, 2 * CHUNK
    best, heaviest, start = 0, 0.0, 0
    while start < len(text):
        end = start + CHUNK
        if end < len(text):  # between words, if there are spaces: half a word is another one
            space = text.rfind(" ", start + CHUNK // 2, end)
            end = end if space < 0 else space
        weight = sum(weights[term] for term in _query_terms(text[start:end], weights))
        if weight > heaviest + 1e-9:
            best, heaviest = start, weight
        start = end
    return max(0, best - CHUNK), min(len(text), best + 2 * CHUNK)


def _halves(text: str, span: CharRange, most: int) -> Iterator[CharRange]:
    """Yields the span, or the halves of one with more than `most` tokens, cut at white space near the middle."""
    start, end = span
    if end - start < 2 or prompt_text.count(text[start:end]) <= most:
        yield span
        return
    middle = (start + end) // 2
    space = text.rfind(" ", start + 1, middle)
    at = space if space > start + (end - start) // 4 else middle
    yield from _halves(text, (start, at), most)
    yield from _halves(text, (at, end), most)


def _query_terms(piece: str, weights: Mapping[int, float]) -> frozenset[int]:
    return frozenset(text_ids(piece).tolist()) & weights.keys()


def _best_run(
    terms: Sequence[frozenset[int]], sizes: Sequence[int], limit: int, weights: Mapping[int, float]
) -> tuple[int, int]:
    """Returns (start, end) of the run within `limit` tokens whose distinct terms weigh most.

    Of equal runs the shortest is taken, then the first. The run is extended while there is room: first to what follows,
    then to what comes before.
    """
    best, best_size, run = -1.0, 0, (0, 1)
    for start in range(len(sizes)):
        size, covered, end = 0, set[int](), start
        while end < len(sizes) and size + sizes[end] <= limit:
            size += sizes[end]
            covered |= terms[end]
            end += 1
            weight = sum(weights[term] for term in covered)
            if weight > best + 1e-9 or (weight > best - 1e-9 and size < best_size):
                best, best_size, run = weight, size, (start, end)
    start, end = run
    size = sum(sizes[start:end])
    while end < len(sizes) and size + sizes[end] <= limit:
        size += sizes[end]
        end += 1
    while start > 0 and size + sizes[start - 1] <= limit:
        start -= 1
        size += sizes[start]
    return start, end
