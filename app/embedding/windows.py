"""Splitting a long text into windows that a model reads whole: each gets a vector of its own. Pure."""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TypeAlias

MAX_WINDOWS = 8
"""Of a longer text the first so many have a vector; all of its words are found all the same."""
EIGHTH = 8
"""A window may end up to an eighth earlier than it must, at a boundary; the next one repeats up to an eighth of it."""

Reach: TypeAlias = Callable[[int], int]
"""Start of a window → its furthest end, both as places in the text; always after the start."""

_SENTENCE_END = re.compile(r"[.!?\u2026\u061f\u06d4\u0964][\"'\u201d\u2019)\]]*\s+|[\u3002\uff01\uff1f]+\s*|\n\s*")
_SPACE = re.compile(r"\s+")


def split(text: str, reach: Reach) -> list[str]:
    """At most `MAX_WINDOWS` parts, in order; the text itself where it fits into one.

    A window ends after a sentence if one ends in its last eighth, else after a word, else where it must. The next one
    begins after a space in that last eighth where there is one, so the two overlap.
    """
    windows: list[str] = []
    start = 0
    while len(windows) < MAX_WINDOWS:
        most = reach(start)
        if most >= len(text):
            windows.append(text[start:])
            break
        slack = (most - start) // EIGHTH
        end = _end(text, most - slack, most)
        windows.append(text[start:end])
        start = _start(text, end - slack, end)
    return [window for window in windows if window.strip()] or [text]  # servers refuse blank texts


def by_characters(characters: int) -> Reach:
    """For models whose tokenizer is not here."""
    return lambda start: start + characters


def by_tokens(spans: Sequence[tuple[int, int]], room: int, end: int) -> Reach:
    """At most `room` tokens a window. `spans`: where each token of the text begins and ends, in order; `end`: of the
    text."""
    starts = [begin for begin, _ in spans]

    def reach(start: int) -> int:
        last = bisect_left(starts, start) + room
        return end if last >= len(spans) else max(spans[last - 1][1], start + 1)

    return reach


def _end(text: str, low: int, high: int) -> int:
    """In `low`..`high`, both included."""
    for boundary in (_SENTENCE_END, _SPACE):
        ends = [found.end() for found in boundary.finditer(text, low, high)]
        if ends:
            return ends[-1]
    return high


def _start(text: str, low: int, high: int) -> int:
    """After the first space in `low`..`high`, and `low` where there is none: scripts without spaces."""
    found = _SPACE.search(text, low, high)
    return low if found is None else found.end()
