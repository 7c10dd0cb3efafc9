"""What a search asks of an engine, and what the ranking gets back.

An engine answers with columns, never with scores: the exact engines return the whole scope, an approximate one
returns candidates and their neighbours. The ranking (`memories/ranking.py`) never knows which it was.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.storage.filters import Filter
from app.storage.memo import Memo
from app.storage.scope import Partition

Floats: TypeAlias = NDArray[np.float32]
Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ScopeFacts:
    """What is known of a scope before the query is embedded."""

    count: int
    """Documents in the scope."""
    speakers: tuple[str, ...]
    """Names of those who speak in it, as they were given."""
    agents: tuple[str | None, ...]
    """Whose documents they are."""


@dataclass(slots=True)  # not frozen, as `Columns`: both are made at each search, and that would take five times as long
class SearchQuery:
    """One search over `pairs` of one tenant. `vector` is unit length; None: no cosine is asked for."""

    tenant: str
    pairs: tuple[Partition, ...]
    where: Filter
    vector: Floats | None
    model: str
    terms: NDArray[np.uint32]
    first_windows: bool = False
    """Of long documents only the first window counts, not the best: a part of a text does not make it a duplicate."""


@dataclass(slots=True)
class Columns:
    """The documents of a scope, one entry each, n in all; `hits` and `df` have one row for each query term."""

    rows: Ints
    """Engine handles, for `Store.fetch`."""
    matched: Bools
    """Passed the filter. The others are neighbours: features of those that matched, never results."""
    cosine: Floats
    """-1..1; 0 where `has_vector` is false. Equal documents have equal cosines wherever they stand."""
    has_vector: Bools
    """A vector of the query's model is there."""
    hits: Floats
    """(terms, n): how often each query term occurs in each document."""
    df: Floats
    """(terms,): documents of the scope that hold the term."""
    length: Floats
    """Terms in each document, counted with repetition."""
    count: int
    """Documents of the scope: n, or more where the engine returned candidates only."""
    mean_length: float
    previous: Ints
    """Index, among these entries, of the document before this one in its session; -1 where there is none."""
    following: Ints
    session: Ints
    """Code of the session, 0, 1, 2 …, without large gaps; -1 for none."""
    speaker: Ints
    """crc32 of the casefolded speaker's name, 0 for none."""
    time: Ints
    """Milliseconds since 1970: when it happened (`event_at`), else when it was stored."""
    flags: Ints
    """Bits of `storage/text.py`: about the text (a number or time word, a question mark at its end) and about the
    document (who said it, whether it is derived or a summary)."""
    base_importance: Floats
    anchor: Ints
    """Milliseconds since 1970, where fading starts. With `base_importance` and `pinned` it gives the importance."""
    pinned: Bools
    agent: Ints
    """crc32 of the agent's id, 0 for none."""
    content: Ints
    """64-bit hash of the normalised content: equal contents are shown once."""
    derived: Memo = field(default_factory=Memo, compare=False)
    """The same object for as long as the engine's own columns are the same."""


def concatenate(parts: Sequence[Columns]) -> Columns:
    """Columns of several pairs, at least one, as one scope: codes and neighbours are shifted, statistics are added."""
    if len(parts) == 1:
        return parts[0]
    kept = parts[0].derived
    fixed = kept.get("joined", _sources(parts, _FIXED), lambda: _joined(parts))
    fading = kept.get("fading", _sources(parts, _FADING), lambda: _in_a_row(parts, _FADING))
    return Columns(
        **fixed,
        **fading,
        matched=np.concatenate([p.matched for p in parts]),
        cosine=np.concatenate([p.cosine for p in parts]),
        has_vector=np.concatenate([p.has_vector for p in parts]),
        hits=np.concatenate([p.hits for p in parts], axis=1),
        df=np.sum([p.df for p in parts], axis=0, dtype=np.float32),
    )


_PLAIN = ("rows", "length", "speaker", "time", "flags", "agent", "content")
_FIXED = (*_PLAIN, "count", "mean_length", "previous", "following", "session")
_FADING = ("base_importance", "anchor", "pinned")
"""Apart from the others, which an access leaves alone."""


def _sources(parts: Sequence[Columns], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(getattr(part, name) for part in parts for name in names)


def _in_a_row(parts: Sequence[Columns], names: Sequence[str]) -> dict[str, Any]:
    return {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}


def _joined(parts: Sequence[Columns]) -> dict[str, Any]:
    """What no query changes."""
    shifts = np.cumsum([0, *(len(p.rows) for p in parts)])
    codes = np.cumsum([0, *(int(p.session.max(initial=-1)) + 1 for p in parts)])
    count = sum(p.count for p in parts)
    return {
        **_in_a_row(parts, _PLAIN),
        "count": count,
        "mean_length": sum(p.mean_length * p.count for p in parts) / max(1, count),
        "previous": np.concatenate([_shifted(p.previous, by) for p, by in zip(parts, shifts, strict=False)]),
        "following": np.concatenate([_shifted(p.following, by) for p, by in zip(parts, shifts, strict=False)]),
        "session": np.concatenate([_shifted(p.session, by) for p, by in zip(parts, codes, strict=False)]),
        "derived": Memo(),
    }


def _shifted(values: Ints, by: int) -> Ints:
    return np.where(values < 0, values, values + by)
