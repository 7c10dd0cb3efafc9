"""Tokens of the o200k_base vocabulary, offline: the one unit in which budgets and limits are given.

Special tokens inside a text count as the plain characters they are. Runs of whitespace longer than `LONGEST_RUN` are
cut, since tiktoken's regex overflows its stack on them: such a text may count a token more for each cut.
"""

import re
import zlib
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from threading import Lock

from tiktoken import Encoding

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
    """Tokens of any str. Linear in its length: about 0.1–1 s a million characters, so keep huge texts off the loop.
    Those of short texts are kept: the same lines go into one prompt after another."""
    return _count_short(text) if len(text) <= SHORT_TEXT else len(_encode(text))


def most_that_fit(parts: Sequence[str], render: Callable[[int], str], limit: int | None) -> tuple[str, int, int]:
    """Text, tokens and how many of `parts` are in: the most, from the first on, whose `render(count)` has at most
    `limit` tokens. Counts nearly add up but for a token at a seam, so their sum is a guess that is then checked."""
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


def truncate(text: str, limit: int) -> str:
    """The start of `text` that is whole tokens and valid Unicode, and `limit` of them or fewer when counted again."""
    head = text[: max(limit, 0) * LONGEST_TOKEN]
    tokens = _encode(head)
    if len(tokens) <= limit and len(head) == len(text):
        return text
    for kept in range(limit, 0, -1):  # the first is nearly always right: a prefix can tokenize otherwise than the whole
        cut = _encoding().decode_bytes(tokens[:kept]).decode("utf-8", errors="ignore")
        if count(cut) <= limit:
            return cut
    return ""


def warm() -> None:
    """Load the vocabulary now (about 0.3 s, once; safe in a thread) rather than in the first call."""
    _encoding()


def vocabulary() -> list[bytes]:
    """The tokens' bytes, by rank."""
    data = zlib.decompress(_VOCABULARY.read_bytes())
    ends = accumulate(data[:_VOCABULARY_SIZE], initial=_VOCABULARY_SIZE)
    return [data[start:end] for start, end in pairwise(ends)]


@lru_cache(maxsize=8192)
def _count_short(text: str) -> int:
    return len(_encode(text))


def _encoding() -> Encoding:
    with _LOADING:  # it takes 0.3 s, and two of them at once take longer
        return _load()


@cache
def _load() -> Encoding:
    ranks = {token: rank for rank, token in enumerate(vocabulary())}
    encoding = Encoding(NAME, pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens={})
    ranks.clear()  # tiktoken has copied them, and keeps this dict of 22 MB for pickling only
    return encoding


def _encode(text: str) -> list[int]:
    encode = _encoding().encode_ordinary
    if len(text) <= LONGEST_RUN:
        return encode(text)
    return [token for piece in _pieces(text) for token in encode(piece)]


def _pieces(text: str) -> list[str]:
    """`text`, cut inside its whitespace runs of more than LONGEST_RUN characters only."""
    runs = (match.span() for match in _LONG_RUN.finditer(text))
    cuts = [cut for start, end in runs for cut in range(start + LONGEST_RUN, end, LONGEST_RUN)]
    return [text[a:b] for a, b in pairwise([0, *cuts, len(text)])]
