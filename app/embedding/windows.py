"""Windows: the parts of a long text that a model reads in full, each with a vector of its own."""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TypeAlias

from app.core.language import sentence_ends

MAX_WINDOWS = 8
"""Maximum number of windows with a vector. All words of a longer text are still indexed."""
EIGHTH = 8
"""A window may end up to an eighth early, at a boundary. The next window repeats up to an eighth of it."""

Reach: TypeAlias = Callable[[int], int]
"""Maps the start of a window to its furthest end. Both are places in the text, and the end lies after the start."""

_SPACE = re.compile(r"\s+")


def split(text: str, reach: Reach) -> list[str]:
    """Splits a text into at most `MAX_WINDOWS` windows, in order. A text that fits into one window is returned whole.

    A window ends after a sentence if one ends in its last eighth, else after a word, else at its limit. The next window
    begins after the first space in that last eighth, or at its begin (scripts without spaces), so the two overlap.
    """
    windows: list[str] = []
    start = 0
    while len(windows) < MAX_WINDOWS:
        limit = reach(start)
        if limit >= len(text):
            windows.append(text[start:])
            break
        slack = (limit - start) // EIGHTH
        low = limit - slack
        ends = [*sentence_ends(text, low, limit)] or [space.end() for space in _SPACE.finditer(text, low, limit)]
        end = ends[-1] if ends else limit
        windows.append(text[start:end])
        space = _SPACE.search(text, end - slack, end)
        start = end - slack if space is None else space.end()
    return [window for window in windows if window.strip()] or [text]  # servers reject blank texts


def by_characters(characters: int) -> Reach:
    """Returns a reach in characters, for models without a local tokenizer."""
    return lambda start: start + characters


def by_tokens(spans: Sequence[tuple[int, int]], room: int, end: int) -> Reach:
    """Returns a reach of `room` tokens. `spans`: start and end of each token, in order; `end`: the end of the text."""
    starts = [begin for begin, _ in spans]

    def reach(start: int) -> int:
        last = bisect_left(starts, start) + room
        return end if last >= len(spans) else max(spans[last - 1][1], start + 1)

    return reach
