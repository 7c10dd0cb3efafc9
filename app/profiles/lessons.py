"""Ranks an agent's lessons for a query, by words alone, so that a request embeds nothing for them. Pure functions,
apart from a memo of terms."""

import math
from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b

from app.profiles.merge import LESSONS, paragraphs
from app.storage.schema import Doc
from app.storage.text import term_ids, terms

KNOWLEDGE = "procedural_knowledge"
LEAST, MOST = 0.02, 0.4
"""The score of a lesson that shares no word with the query, and of one that contains all of its words. They are
compared with the calibrated scores of other sections: a lesson is about no user and is seldom the answer itself."""

MEMO_SIZE = 10_000
"""The number of lessons whose terms are remembered: analysing the 350 lessons of a full experience takes tens of
milliseconds."""

_memo: dict[bytes, frozenset[int]] = {}
"""Term ids by a digest of the text, so that no text of a lesson stays in the process after it was erased."""


@dataclass(frozen=True, slots=True)
class RankedLesson:
    """One entry of the experience. `name` is the name of its list; `score` is 0 to 1."""

    name: str
    index: int
    text: str
    score: float


def ranked(query: str, experience: Doc) -> list[RankedLesson]:
    """Returns every lesson, best first. Of equal scores the most seen comes first, and hand-written knowledge before
    lessons.

    The score grows with the share of the query's terms that the lesson contains. A term weighs log(1 + n / lessons with
    it), so common terms weigh little.
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
    """Returns the paragraphs of the knowledge, which are ranked one by one."""
    return [(KNOWLEDGE, index, text, math.inf) for index, text in enumerate(paragraphs(experience[KNOWLEDGE]))]


def _lessons(experience: Doc) -> list[tuple[str, int, str, float]]:
    return [
        (name, index, lesson["text"], float(lesson["seen"]))
        for name in LESSONS
        for index, lesson in enumerate(experience[name])
    ]
