"""Made-up columns of a scope, for what ranks them."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.retrieval.calibration import probabilities
from app.retrieval.decay import DAY_MS, DEFAULT_DECAY, DecayCurve
from app.retrieval.first_hits import first_hits, order_first_hits
from app.retrieval.model_weights import DEFAULT, Calibration, Weights
from app.retrieval.query import SettledQuery
from app.retrieval.ranking import Ranked, SearchMode, by_features
from app.storage.search import Columns, Ints
from app.storage.text import IndexedTerms, TermIds, index_text

NOW = 1_750_000_000_000
NOBODY = SettledQuery(np.arange(2, dtype=np.uint32))
SPOKEN = replace(NOBODY, speaker=7)


def columns_of(n: int, session: NDArray[np.int64] | None = None, terms: int = 2) -> Columns:
    """n documents with nothing to tell them apart but their handles; sessions of consecutive documents are linked."""
    session = np.full(n, -1) if session is None else session
    previous, following = np.full(n, -1), np.full(n, -1)
    joined = np.flatnonzero((session[1:] == session[:-1]) & (session[1:] >= 0))
    following[joined], previous[joined + 1] = joined + 1, joined
    return Columns(
        rows=np.arange(n),
        matched=np.ones(n, np.bool_),
        cosine=np.zeros(n, np.float32),
        has_vector=np.ones(n, np.bool_),
        term_counts=np.zeros((terms, n), np.float32),
        df=np.zeros(terms, np.float32),
        length=np.full(n, 10, np.float32),
        count=n,
        mean_length=10.0 if n else 0.0,
        previous=previous,
        following=following,
        session=session,
        speaker=np.where(session < 0, 0, 7),
        time=np.full(n, NOW),
        flags=np.zeros(n, np.int64),
        base_importance=np.full(n, 0.5, np.float32),
        anchor=np.full(n, NOW),
        pinned=np.zeros(n, np.bool_),
        agent=np.zeros(n, np.int64),
        content=np.arange(n),
    )


def scope_of(terms: TermIds, *texts: str) -> Columns:
    """The columns of a search for the terms in plain memories of these texts."""
    counts = [dict(zip(text.ids.tolist(), text.counts.tolist(), strict=True)) for text in map(indexed, texts)]
    found = np.array([[count.get(term, 0) for count in counts] for term in terms.tolist()], np.float32)
    df = np.count_nonzero(found, axis=1).astype(np.float32)
    return replace(columns_of(len(texts), terms=len(terms)), term_counts=found, df=df)


def indexed(text: str) -> IndexedTerms:
    return index_text(text, None, None)


@st.composite
def scopes(draw: st.DrawFn, most: int = 12) -> Columns:
    """Up to `most` documents, of few distinct values, so that ties of every kind come up."""
    n = draw(st.integers(0, most))

    def some(*values: float) -> list[float]:
        return draw(st.lists(st.sampled_from(values), min_size=n, max_size=n))

    session = np.sort(np.array(some(-1, 0, 1), np.int64))
    hits = np.array([some(0, 0, 1, 3), some(0, 0, 0, 1)], np.float32).reshape(2, n)
    return replace(
        columns_of(n, session),
        matched=np.array(some(0, 1, 1), np.bool_),
        cosine=np.array(some(-1, 0, 0.5, 0.7, 1), np.float32),
        has_vector=np.array(some(0, 1, 1), np.bool_),
        term_counts=hits,
        df=np.count_nonzero(hits, axis=1).astype(np.float32),
        length=np.array(some(0, 1, 20), np.float32),
        speaker=np.array(some(0, 7, 8), np.int64),
        time=np.array(some(0, NOW, NOW + DAY_MS), np.int64),
        flags=np.array(some(0, 1, 2, 3), np.int64),
        base_importance=np.array(some(0, 0.5, 1), np.float32),
        anchor=np.array(some(0, NOW, NOW + DAY_MS), np.int64),
        pinned=np.array(some(0, 1), np.bool_),
        content=np.array(some(1, 2, 3, 4), np.int64),
    )


def rearranged(columns: Columns, order: Ints) -> Columns:
    place = np.full(len(order) + 1, -1)
    place[order] = np.arange(len(order))
    changed: dict[str, Any] = {}
    for field in fields(columns):
        value = getattr(columns, field.name)
        if isinstance(value, np.ndarray) and field.name != "df":
            changed[field.name] = value[..., order]
    for name in ("previous", "following"):
        changed[name] = place[changed[name]]
    return replace(columns, **changed)


def with_one_more(columns: Columns, other: Columns) -> Columns:
    """Of both, one after the other, with the terms' statistics of the first."""
    both: dict[str, Any] = {
        field.name: np.concatenate((getattr(columns, field.name), getattr(other, field.name)), axis=-1)
        for field in fields(columns)
        if isinstance(getattr(columns, field.name), np.ndarray) and field.name != "df"
    }
    return replace(columns, **both)


def unmatched_elsewhere() -> Columns:
    """One document that is as near as can be, in a session of its own, and was filtered out."""
    strong = replace(columns_of(1), cosine=np.ones(1, np.float32), term_counts=np.full((2, 1), 9, np.float32))
    return replace(strong, matched=np.zeros(1, np.bool_), session=np.array([5]), rows=np.array([99]))


def rank(
    columns: Columns,
    query: SettledQuery,
    mode: SearchMode,
    now_ms: int,
    weights: Weights = DEFAULT.weights,
    decay: DecayCurve = DEFAULT_DECAY,
    *,
    readings: Sequence[tuple[int, int]] = (),
    calibration: Calibration = DEFAULT.calibration,
) -> Ranked:
    """A whole ranking, as a search makes it, of documents whose texts tell nothing."""
    ranked = by_features(columns, query, mode, now_ms, weights, decay, readings)
    if ranked.query_features is not None:
        first = first_hits(ranked, columns, query, weights)
        order_first_hits(ranked, columns, first, weights, first.may_replace)
        when = ranked.other_parts["when"] if readings and readings[0][1] <= now_ms else None
        ranked.score = probabilities(columns, query, ranked.score, ranked.query_features, calibration, when)
    return ranked
