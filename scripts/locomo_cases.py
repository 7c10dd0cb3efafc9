"""LoCoMo conversations as the ranking sees them, without a service: columns and features made by the service's code."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from app.embedding.onnx import load_minilm
from app.memories.features import base_score, bm25, features, scaled_text
from app.memories.query import QueryText, analyse
from app.storage.search import Columns, Floats
from app.storage.text import IndexedText, content_hash, index_text, name_id
from scripts.evaluate_locomo import Conversation, Question


@dataclass(frozen=True, slots=True)
class Scope:
    """One conversation as the documents of a scope. `loose` turns are plain facts: no session, no speaker."""

    conversation: Conversation
    loose: NDArray[np.bool_]
    blank: Columns
    """Columns without a query."""
    terms: list[dict[int, int]]
    vectors: Floats


@dataclass(frozen=True, slots=True)
class Case:
    """One question asked of one scope."""

    fold: int
    scope: Scope
    question: Question
    query: QueryText
    columns: Columns
    known: Floats
    """(FEATURES, n)"""
    base: Floats
    """Score of recipe A."""
    raw: Floats
    """Cosines of the query with its names left in."""
    is_evidence: NDArray[np.bool_]


class Embedder:
    """Vectors of texts, kept in a file between runs if one is named."""

    def __init__(self, cache: Path | None) -> None:
        self._cache, self._known = cache, dict[str, Floats]()
        if cache and cache.exists():
            with np.load(cache) as stored:
                self._known = dict(zip(stored["texts"].tolist(), stored["vectors"], strict=True))

    def __call__(self, texts: Sequence[str]) -> Floats:
        missing = sorted({text for text in texts if text not in self._known}, key=len)
        if missing:
            model = load_minilm()
            for start in range(0, len(missing), 8):
                batch = missing[start : start + 8]
                self._known.update(zip(batch, model.encode(batch), strict=True))
            if self._cache:
                np.savez(self._cache, texts=np.array(list(self._known)), vectors=np.stack(list(self._known.values())))
        return np.stack([self._known[text] for text in texts])


def build_scope(conversation: Conversation, loose: NDArray[np.bool_], embed: Embedder) -> Scope:
    turns, n = conversation.turns, len(conversation.turns)
    indexed = [index_text(turn.text, None, turn.time) for turn in turns]
    session = np.array([turn.place[0] for turn in turns])
    speaker = np.array([name_id(turn.speaker) for turn in turns])
    previous, following = links(np.where(loose, -1, session))
    said = np.array([int(turn.time.timestamp() * 1000) for turn in turns])
    blank = replace(
        blank_columns(indexed, [turn.text for turn in turns]),
        previous=previous,
        following=following,
        session=np.where(loose, -1, session),
        speaker=np.where(loose, 0, speaker),
        time=said,
        anchor=said,
        base_importance=np.full(n, 0.3, np.float32),
    )
    counts = [dict(zip(text.ids.tolist(), text.counts.tolist(), strict=True)) for text in indexed]
    return Scope(conversation, loose, blank, counts, embed([turn.text for turn in turns]))


def blank_columns(indexed: Sequence[IndexedText], contents: Sequence[str]) -> Columns:
    """Documents of a scope without a query: plain facts, of no session, speaker or time, and of importance 0.5."""
    n, length = len(indexed), np.array([text.length for text in indexed], np.float32)
    none, zero, alone = np.zeros(n, np.bool_), np.zeros(n, np.int64), np.full(n, -1)
    return Columns(
        rows=np.arange(n),
        matched=~none,
        cosine=np.zeros(n, np.float32),
        has_vector=~none,
        hits=np.zeros((0, n), np.float32),
        df=np.zeros(0, np.float32),
        length=length,
        count=n,
        mean_length=float(length.mean()),
        previous=alone,
        following=alone,
        session=alone,
        speaker=zero,
        time=zero,
        flags=np.array([text.flags for text in indexed]),
        base_importance=np.full(n, 0.5, np.float32),
        anchor=zero,
        pinned=none,
        agent=zero,
        content=np.array([content_hash(content) for content in contents]),
    )


def links(session: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    previous, following = np.full(len(session), -1), np.full(len(session), -1)
    last: dict[int, int] = {}
    for at, code in enumerate(session.tolist()):
        if code >= 0:
            if (before := last.get(code, -1)) >= 0:
                previous[at], following[before] = before, at
            last[code] = at
    return previous, following


def build_cases(conversations: Sequence[Conversation], embed: Embedder, loose: float) -> list[Case]:
    """All questions; this share of the turns, picked at random, are plain facts."""
    pick = np.random.default_rng(0)
    scopes = [build_scope(each, pick.random(len(each.turns)) < loose, embed) for each in conversations]
    asked = [
        (fold, scope, question, analyse(question.text, scope.conversation.speakers))
        for fold, scope in enumerate(scopes)
        for question in scope.conversation.questions
    ]
    stripped = embed([query.stripped for *_, query in asked])
    raw = embed([question.text for _, _, question, _ in asked])
    return [_case(*each, vector, other) for each, vector, other in zip(asked, stripped, raw, strict=True)]


def _case(fold: int, scope: Scope, question: Question, query: QueryText, vector: Floats, raw: Floats) -> Case:
    hits = np.array([[doc.get(term, 0) for doc in scope.terms] for term in query.terms.tolist()], np.float32)
    hits = hits.reshape(len(query.terms), len(scope.terms))
    df = np.count_nonzero(hits, axis=1).astype(np.float32)
    columns = replace(scope.blank, cosine=scope.vectors @ vector, hits=hits, df=df)
    text = bm25(columns)
    known = features(columns, query, text, int(columns.time.max()))
    base = base_score(known[0], scaled_text(text, float(text.max())), columns)
    is_evidence = np.array([turn.place in question.evidence for turn in scope.conversation.turns])
    return Case(fold, scope, question, query, columns, known, base, scope.vectors @ raw, is_evidence)
