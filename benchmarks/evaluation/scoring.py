"""How much of the memories that a question needs stands in a prompt: pure functions, the rules of `benchmark prompts`.

Prompt and memory are compared as `normalise` leaves them. Then

- a memory of at most WINDOW tokens counts 1 when its whole content stands in the prompt, and else 0;
- of a longer one, the WINDOW consecutive tokens nearest to the question count. Nearest is the window with the highest
  sum of the idf of the question's distinct terms that occur in it; of equal windows the first. Terms are those of text
  search (stemmed, without stop words), idf is ln(1 + n / df) over the n items of the conversation, and a term that no
  item has counts nothing. The share is the part of the window's words that stand in the prompt in the window's order,
  in runs of at least RUN words: shorter runs meet by chance.

Windows begin and end at words. A word's tokens are those of the text from the one character before it, if that is no
word's, to the next word's: that is how the tokenizer divides most texts.
"""

import html
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

from app.core import prompt_text
from app.storage.text import terms

WINDOW = 120
"""Tokens (o200k)."""
RUN = 5
"""Words."""

_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+(?:['’][^\W{_UNSPACED}]+)*")
"""A character of an unspaced script is a word."""


def normalise(text: str) -> str:
    """Character references (`&lt;`) undone, format characters (zero width, bidi) left out, white space as one space."""
    plain = "".join(c for c in html.unescape(text) if unicodedata.category(c) != "Cf")
    return " ".join(plain.split())


@dataclass(frozen=True)
class Passage:
    """A normalised text, its words, and the tokens of each word with what follows it."""

    text: str

    @cached_property
    def starts(self) -> tuple[int, ...]:
        return tuple(found.start() for found in _WORD.finditer(self.text))

    @cached_property
    def words(self) -> tuple[str, ...]:
        return tuple(_WORD.findall(self.text))

    @cached_property
    def word_tokens(self) -> tuple[int, ...]:
        cuts = [start - (start > 0 and not self.text[start - 1].isalnum()) for start in self.starts]
        return tuple(prompt_text.count(self.text[a:b]) for a, b in pairwise((*cuts, len(self.text))))

    @cached_property
    def tokens(self) -> int:
        return prompt_text.count(self.text)

    @cached_property
    def runs(self) -> frozenset[tuple[str, ...]]:
        return frozenset(_runs(self.words))

    def part(self, first: int, last: int) -> "Passage":
        """The words `first` to `last`, the last one included."""
        end = self.starts[last + 1] if last + 1 < len(self.starts) else len(self.text)
        return Passage(self.text[self.starts[first] : end].rstrip())


def passage(text: str) -> Passage:
    return Passage(normalise(text))


def inverse_frequencies(contents: Iterable[str]) -> dict[str, float]:
    """idf of each term of a conversation's items."""
    counted: Counter[str] = Counter()
    items = 0
    for content in contents:
        counted.update(set(terms(content)))
        items += 1
    return {term: math.log(1 + items / found) for term, found in counted.items()}


def nearest_window(memory: Passage, question: str, idf: Mapping[str, float]) -> Passage:
    """The WINDOW tokens of `memory` that are nearest to the question; all of a memory that is no longer."""
    if memory.tokens <= WINDOW or not memory.words:
        return memory
    wanted = {term: idf[term] for term in terms(question) if term in idf}
    best, best_worth = memory, -1.0
    for first, last in _windows(memory.word_tokens):
        window = memory.part(first, last)
        worth = math.fsum(wanted[term] for term in wanted.keys() & set(terms(window.text)))
        if worth > best_worth:
            best, best_worth = window, worth
    return best


def stands_whole(memory: Passage, prompt: Passage) -> bool:
    """A content that begins or ends inside a longer word of the prompt does not stand there."""
    at = prompt.text.find(memory.text)
    while at >= 0:
        end = at + len(memory.text)
        if not _inside_word(prompt.text, at) and not _inside_word(prompt.text, end):
            return True
        at = prompt.text.find(memory.text, at + 1)
    return False


def evidence_share(memory: Passage, window: Passage, prompt: Passage) -> float:
    """What counts of one memory, 0 to 1; `window` is its `nearest_window`."""
    if stands_whole(memory, prompt):
        return 1.0
    if memory.tokens <= WINDOW or not window.words:
        return 0.0
    return sum(_shown(window, prompt)) / len(window.words)


def shown_tokens(memory: Passage, prompt: Passage) -> int:
    """Tokens of a memory's own words in the prompt: all of them when it stands there whole, else those of its runs."""
    if stands_whole(memory, prompt):
        return memory.tokens
    return sum(size for size, shown in zip(memory.word_tokens, _shown(memory, prompt), strict=True) if shown)


def overhead(section_tokens: int, memories: Sequence[Passage], prompt: Passage) -> float:
    """Tokens a memory that a section spends beyond the memories' own words."""
    return (section_tokens - sum(shown_tokens(memory, prompt) for memory in memories)) / len(memories)


def _windows(sizes: Sequence[int]) -> Iterable[tuple[int, int]]:
    """First and last word of each longest run of at most WINDOW tokens; a longer word is a window of its own."""
    totals = [0, *accumulate(sizes)]
    last = 0
    for first in range(len(sizes)):
        last = max(last, first)
        while last + 1 < len(sizes) and totals[last + 2] - totals[first] <= WINDOW:
            last += 1
        yield first, last
        if last + 1 == len(sizes):
            return


def _shown(part: Passage, prompt: Passage) -> list[bool]:
    """Which words of `part` belong to a run that the prompt has."""
    if len(part.words) < RUN:
        return [stands_whole(part, prompt)] * len(part.words)
    shown = [False] * len(part.words)
    for at, run in enumerate(_runs(part.words)):
        if run in prompt.runs:
            shown[at : at + RUN] = [True] * RUN
    return shown


def _runs(words: Sequence[str]) -> Iterable[tuple[str, ...]]:
    return (tuple(words[at : at + RUN]) for at in range(len(words) - RUN + 1))


def _inside_word(text: str, at: int) -> bool:
    """Whether a word goes on over this place; in an unspaced script none does."""
    if not 0 < at < len(text):
        return False
    found = _WORD.match(text, at - 1)
    return found is not None and found.end() > at
