"""Counts tokens of the o200k_base vocabulary, offline. All budgets and limits use this unit.

Special tokens inside a text count as plain characters. Runs of whitespace longer than `LONGEST_RUN` are cut, because
tiktoken's regex overflows its stack on them: such a text may count one token more for each cut.
"""

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from threading import Lock
from typing import TypeVar

from tiktoken import Encoding

T = TypeVar("T")

NAME = "o200k_base"
LONGEST_RUN = 16_384  # characters
SHORT_TEXT = 500  # characters
LONGEST_TOKEN = 128  # bytes; a text of more than 128 × n characters has more than n tokens

_VOCABULARY = Path(__file__).parent / "data" / "o200k_base.bin.zlib"
_VOCABULARY_SIZE = 199_998
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_PATTERN = "|".join(
    (
        rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]*[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]+{_CONTRACTION}",
        rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]+[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]*{_CONTRACTION}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
_LOADING = Lock()
_LONG_RUN = re.compile(r"\s{256,}+")  # possessive: each run is read once


def count(text: str) -> int:
    """Returns the number of tokens.

    Time is linear: about 0.1–1 s for a million characters, so keep huge texts off the event loop. Counts of short texts
    are cached, because the same lines go into many prompts.
    """
    return _count_short(text) if len(text) <= SHORT_TEXT else len(_encode(text))


def most_that_fit(parts: Sequence[str], render: Callable[[int], str], limit: int | None) -> tuple[str, int, int]:
    """Renders the longest prefix of `parts` that fits in `limit` tokens.

    Returns the text, its tokens and the number of parts, where the text is `render(number)`. Counts nearly add up
    except for a token at a seam, so their sum is an estimate, which is then checked.
    """
    taken = len(parts)
    if limit is not None:
        totals = accumulate(count(part) for part in parts)
        taken = next((at for at, total in enumerate(totals) if total > limit), len(parts))
    while True:
        text = render(taken)
        size = count(text)
        if limit is None or size <= limit or taken == 0:
            return text, size, taken
        taken -= 1


def in_chunks(
    items: Iterable[T], text: Callable[[T], str], limit: int, max_items: int | None = None
) -> Iterator[list[T]]:
    """Splits items into chunks of at most `limit` tokens of `text(item)`, and of at most `max_items`. An item with more
    tokens is a chunk of its own."""
    chunk: list[T] = []
    size = 0
    for item in items:
        cost = count(text(item))
        if chunk and (size + cost > limit or len(chunk) == max_items):
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += cost
    if chunk:
        yield chunk


def truncate(text: str, limit: int) -> str:
    """Returns the longest start of `text` with whole tokens and valid Unicode that has at most `limit` tokens."""
    head = text[: max(limit, 0) * LONGEST_TOKEN]
    tokens = _encode(head)
    if len(tokens) <= limit and len(head) == len(text):
        return text
    for kept in range(limit, 0, -1):  # the first nearly always fits; a prefix can tokenize differently
        cut = _encoding().decode_bytes(tokens[:kept]).decode("utf-8", errors="ignore")
        if count(cut) <= limit:
            return cut
    return ""


def warm() -> None:
    """Loads the vocabulary now (about 0.3 s, once; thread-safe) rather than in the first call."""
    _encoding()


def vocabulary() -> list[bytes]:
    """Returns the bytes of each token, by rank."""
    data = zlib.decompress(_VOCABULARY.read_bytes())
    ends = accumulate(data[:_VOCABULARY_SIZE], initial=_VOCABULARY_SIZE)
    return [data[start:end] for start, end in pairwise(ends)]


@lru_cache(maxsize=8192)
def _count_short(text: str) -> int:
    return len(_encode(text))


def _encoding() -> Encoding:
    with _LOADING:  # loading takes 0.3 s, and two loads at once take longer
        return _load()


@cache
def _load() -> Encoding:
    ranks = {token: rank for rank, token in enumerate(vocabulary())}
    encoding = Encoding(NAME, pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens={})
    ranks.clear()  # tiktoken has copied them, and keeps this dict of 22 MB only for pickling
    return encoding


def _encode(text: str) -> list[int]:
    encode = _encoding().encode_ordinary
    if len(text) <= LONGEST_RUN:
        return encode(text)
    return [token for piece in _pieces(text) for token in encode(piece)]


def _pieces(text: str) -> list[str]:
    """Cuts `text`, only inside whitespace runs of more than LONGEST_RUN characters."""
    runs = (match.span() for match in _LONG_RUN.finditer(text))
    cuts = [cut for start, end in runs for cut in range(start + LONGEST_RUN, end, LONGEST_RUN)]
    return [text[a:b] for a, b in pairwise([0, *cuts, len(text)])]
