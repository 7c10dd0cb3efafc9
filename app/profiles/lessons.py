"""Which lessons of an agent answer a query: by words alone, so that a request embeds nothing for them. Pure."""

import math
import re
from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b

from app.profiles.merge import LESSONS
from app.storage.schema import Doc
from app.storage.text import term_ids, terms

KNOWLEDGE = "procedural_knowledge"
LEAST, MOST = 0.02, 0.4
"""Score of a lesson that shares no word with the query, and of one that holds all of its words. They stand beside the
calibrated scores of other sections: a lesson is about no user, so it seldom is the answer itself."""

MEMO_SIZE = 10_000
"""Lessons whose terms are kept: reading the 350 of a full experience anew takes tens of milliseconds."""

_memo: dict[bytes, frozenset[int]] = {}
"""Ids of terms by a digest of the text: no text of a lesson stays in the process after it was erased."""
_PARAGRAPHS = re.compile(r"\s*\n\s*\n\s*")


@dataclass(frozen=True, slots=True)
class RankedLesson:
    """One entry of the experience. `name` is its list's; `score` 0 to 1."""

    name: str
    index: int
    text: str
    score: float


def ranked(query: str, experience: Doc) -> list[RankedLesson]:
    """Every lesson, best first; of equal ones the most seen first, and knowledge that was written before lessons.

    The score grows with the share of the query's terms that the lesson holds. A term weighs log(1 + n / lessons with
    it): what most lessons say tells them apart little.
    """
    entries = [*_knowledge(experience), *_lessons(experience)]
    entry_words = [_terms(text) for _, _, text, _ in entries]
    query_terms = frozenset(term_ids(terms(query)).tolist())
    often = Counter(term for one in entry_words for term in one & query_terms)
    weights = {term: math.log(1 + len(entries) / max(often[term], 1)) for term in query_terms}
    whole = sum(weights.values()) or 1.0
    scored = []
    for (name, index, text, seen), words in zip(entries, entry_words, strict=True):
        share = sum(weights[term] for term in words & query_terms) / whole
        scored.append((seen, RankedLesson(name, index, text, LEAST + (MOST - LEAST) * share)))
    return [lesson for _, lesson in sorted(scored, key=lambda one: (-one[1].score, -one[0]))]


def _terms(text: str) -> frozenset[int]:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    found = _memo.get(digest)
    if found is None:
        if len(_memo) >= MEMO_SIZE:
            _memo.clear()
        found = _memo[digest] = frozenset(term_ids(terms(text)).tolist())
    return found


def _knowledge(experience: Doc) -> list[tuple[str, int, str, float]]:
    """Its paragraphs: a page of it competes piece by piece."""
    texts = [text for text in _PARAGRAPHS.split(experience[KNOWLEDGE].strip()) if text]
    return [(KNOWLEDGE, index, text, math.inf) for index, text in enumerate(texts)]


def _lessons(experience: Doc) -> list[tuple[str, int, str, float]]:
    return [
        (name, index, lesson["text"], float(lesson["seen"]))
        for name in LESSONS
        for index, lesson in enumerate(experience[name])
    ]
