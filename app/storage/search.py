"""What a search is given and what it returns: the query and the columns, one entry for each document of the searched
partitions. Columns have a bounded memo of values derived from them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import EllipsisType
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.storage.schema import Filter
from app.storage.scope import Partition, Scope
from app.storage.text import IS_QUESTION, SAID_BY_ASSISTANT, name_id

S = TypeVar("S")
T = TypeVar("T")


class Memo:
    """Results of pure functions, each kept for as long as the same inputs come in. It is stored with the columns or the
    document that they are computed from, and freed with these."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[str, tuple[tuple[Any, ...], Any]] = {}

    def get(self, name: str, sources: tuple[Any, ...], make: Callable[[], T]) -> T:
        """Returns `make()`, or its previous result for the same `sources`: arrays compare by identity, others by
        value."""
        cached = self._held.get(name)
        if cached is None or len(cached[0]) != len(sources) or not all(map(same_input, cached[0], sources)):
            cached = self._held[name] = (sources, make())
        value: T = cached[1]
        return value

    def __contains__(self, name: str) -> bool:
        return name in self._held

    def once(self, name: str, make: Callable[[S], T], source: S) -> T:
        """Returns `make(source)`, or its previous result. `source` is the object that owns this memo."""
        cached = self._held.get(name)
        if cached is None:
            cached = self._held[name] = ((), make(source))
        value: T = cached[1]
        return value


def same_input(value: Any, other: Any) -> bool:
    """Returns whether both are the same array, or equal values."""
    return value is other or (
        not isinstance(value, np.ndarray) and not isinstance(other, np.ndarray) and value == other
    )


Floats: TypeAlias = NDArray[np.float32]
Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]
Number = TypeVar("Number", np.float32, np.bool_)
DocumentIndex: TypeAlias = Bools | EllipsisType
"""An index of some documents in an array over all: their mask, or `...` for all of them."""
_ASSISTANT = name_id("assistant")
BM25_K1 = 0.9
BM25_B = 0.4


@dataclass(frozen=True, slots=True)
class Overview:
    """How many documents the searched partitions have, and whose: what is read of them before the query is embedded."""

    count: int
    """Number of documents in these partitions."""
    speakers: tuple[str, ...]
    """Names of the speakers there, as they were given."""
    agents: tuple[str | None, ...]
    """Agents that own the documents; None for documents without an agent."""
    states: Sequence[Any] = field(default=(), compare=False, repr=False)
    """What the engine read of the partitions, for a search of them (`SearchQuery.overview`). MongoDB alone fills it,
    since it pays for each reading."""


class NameSource(Protocol):
    """Provides names that stand for the same person or thing."""

    async def groups(
        self, scope: Scope, partitions: Sequence[Partition], known_at: str | None
    ) -> Sequence[Sequence[str]]:
        """Returns the names of each entity that has several in these partitions, as it was known then."""


@dataclass(slots=True)  # like `Columns`, not frozen: that takes five times as long to make, at each search
class SearchQuery:
    """One search over partitions of one tenant. `vector` has unit length; None means no cosine is computed."""

    tenant: str
    partitions: tuple[Partition, ...]
    where: Filter
    vector: Floats | None
    model: str
    terms: NDArray[np.uint32]
    candidates: bool = False
    """True if the best by vector, by words and by time suffice, each with its neighbours, as for a ranking. Of large
    partitions an engine may return only these. With False, it may leave out documents that do not match."""
    interval: tuple[int, int] | None = None
    """Milliseconds since 1970 that the query names: candidates are from then, too, or from the day before or after."""
    first_windows: bool = False
    """True compares only the first window of long documents, not the best one: sharing a part does not make two texts
    duplicates."""
    vectors: bool = False
    """True also returns the vectors of the documents."""
    spelled: Mapping[int, str] = field(default_factory=dict)
    """Some of the terms, by id. If no document has one, those close to it are returned (`Columns.close`)."""
    least_importance: float = 0.0
    """Documents of a lower importance before decay need not be returned. Decay only lowers it."""
    depth: int = 0
    """How often this search was made before and gave too few matches. An engine that returns candidates returns more
    each time, and says when there are no more (`Columns.complete`)."""
    overview: Overview | None = None
    """The overview of the same partitions, read for the same request: an engine may take the partitions as they were
    then."""


@dataclass(frozen=True, slots=True)
class EqualContents:
    """Documents in the order of their contents, and where each content starts there; at last, where all end."""

    order: Ints
    starts: Ints
    code: Ints
    """The place of each document's content among `starts`."""

    def most(self, values: NDArray[Number]) -> NDArray[Number]:
        """Returns the largest value of each content, shape (…, contents), of values of shape (…, n)."""
        largest_of_each: NDArray[Number] = np.maximum.reduceat(values[..., self.order], self.starts[:-1], axis=-1)
        return largest_of_each

    def like(self, indices: Sequence[int]) -> Ints:
        """Returns the documents with the contents of these."""
        codes = {*self.code[indices].tolist()}
        return np.concatenate([self.order[self.starts[code] : self.starts[code + 1]] for code in codes])


@dataclass
class Columns:
    """The documents of the searched partitions, n entries. `term_counts` and `df` have one row for each query term."""

    rows: Ints
    """Handles of the documents, for `Store.fetch`."""
    matched: Bools
    """True if the document passed the filter. Others are neighbours: they serve as features and are never results."""
    cosine: Floats
    """-1..1; 0 where `has_vector` is false. Equal documents have equal cosines in any position."""
    has_vector: Bools
    """True if the document has a vector of the query's model."""
    term_counts: Floats
    """(terms, n): how often each query term occurs in each document."""
    df: Floats
    """(terms,): number of documents in the searched partitions that contain the term."""
    length: Floats
    """Number of terms in each document, with repetition."""
    count: int
    """Number of documents in the searched partitions: n, or more if the engine returned only candidates."""
    mean_length: float
    previous: Ints
    """Index, among these entries, of the previous document of the session; -1 if there is none."""
    following: Ints
    session: Ints
    """Code of the session, 0, 1, 2 …, without large gaps; -1 for none."""
    speaker: Ints
    """crc32 of the casefolded speaker's name, 0 for none."""
    time: Ints
    """Milliseconds since 1970: when it happened (`event_at`), else when it was told. The retriever sets it to when it
    was told for what lies ahead, so that no plan is the newest (`settle_time`)."""
    flags: Ints
    """Bits of `storage/text.py`: about the text (a number or time word, a question mark at its end) and about the
    document (who said it, whether it is derived or a summary)."""
    base_importance: Floats
    anchor: Ints
    """Milliseconds since 1970: when decay starts. `base_importance`, `anchor` and `pinned` give the importance."""
    pinned: Bools
    agent: Ints
    """crc32 of the agent's id, 0 for none."""
    content: Ints
    """64-bit hash, the first present field of `SearchSchema.content`: of a fact that of its normalised content, of a
    memory `identity_hash`, which covers times, key and metadata, too. Of equal ones, results show one."""
    memo: Memo = field(default_factory=Memo, compare=False)
    """Memo of results computed from the columns. The same object as long as the engine's own columns are the same."""
    complete: bool = True
    """False if documents that match may be missing here, which a search with a greater `depth` returns."""
    degraded: str | None = None
    """What this search went without, as a sentence for the caller; None: nothing."""
    close: Mapping[int, Mapping[int, int]] = field(default_factory=dict, compare=False)
    """The terms of documents that are close to an unknown one of `SearchQuery.spelled`, by its id, each with the number
    of documents. A partition that has the term itself returns none for it."""
    emphasis: Floats | None = None
    """(terms,): factor of each query term's weight; None: 1 for all. `settle` sets it, no engine does."""
    standing_for: Sequence[int] = ()
    """Indices of the documents that stand for others that say the same. The retriever sets it, no engine does."""
    starts: Ints | None = None
    """When it happens, where `time` is when it was told. The retriever sets it; None: as `time`."""
    ends: Ints | None = None
    """The last moment of what lasts, such as the day that `event_at` stands for; None: nothing lasts."""
    told: Ints | None = None
    """When it was told (`SearchSchema.told`; of a memory `told_at` without its rule on `event_at`); None: as `time`."""
    named: Ints | None = None
    """A time of the day of the query's interval that its text names, "30 November" where tomorrow is asked for; long
    ago if it names none. The retriever sets it."""
    vectors: NDArray[np.int8] | None = field(default=None, compare=False)
    """(n, dim): the vector of each document's first window, quantised; zeros without one of the query's model. None if
    the query did not ask for vectors."""

    def having(self, **fields: Any) -> "Columns":
        """Returns a copy with other values of these fields, of which none of the properties below is made. It takes a
        tenth of the time of `dataclasses.replace`."""
        other = object.__new__(Columns)
        other.__dict__.update(self.__dict__, **fields)
        return other

    # What follows from the columns alone, computed once for the same ones.

    @cached_property
    def plain(self) -> Bools:
        """Mask of the documents that belong to no conversation: they have no session, or nobody says them."""
        sources = self.session, self.speaker
        return self.memo.get("plain", sources, lambda: (self.session < 0) | (self.speaker == 0))

    @cached_property
    def assistants(self) -> Bools:
        """Mask of the turns of an assistant that has no name of its own."""

        def compute() -> Bools:
            by_assistant: Bools = ~self.plain & (self.flags & SAID_BY_ASSISTANT != 0) & (self.speaker == _ASSISTANT)
            return by_assistant

        return self.memo.get("assistants", (self.session, self.speaker, self.flags), compute)

    @cached_property
    def questions(self) -> Bools:
        """Mask of the turns that are questions."""
        sources = self.session, self.speaker, self.flags
        return self.memo.get("questions", sources, lambda: ~self.plain & (self.flags & IS_QUESTION != 0))

    @cached_property
    def contents(self) -> EqualContents | None:
        """The documents by content; None if all contents differ, as they mostly do."""

        def group() -> EqualContents | None:
            order = np.argsort(self.content, kind="stable")
            ordered = self.content[order]
            begins = np.concatenate(([True], ordered[1:] != ordered[:-1]))
            starts = np.flatnonzero(begins)
            if len(starts) >= len(order):
                return None
            code = np.empty_like(order)
            code[order] = np.cumsum(begins) - 1
            return EqualContents(order, np.append(starts, len(order)), code)

        groups: EqualContents | None = self.memo.get("contents", (self.content,), group)
        return groups

    @property
    def matching(self) -> DocumentIndex:
        """`matched` as an index. It is `...` in the usual case that all matched, which avoids a copy."""
        return ... if np.count_nonzero(self.matched) == len(self.matched) else self.matched


def concatenate(parts: Sequence[Columns]) -> Columns:
    """Joins the columns of several partitions (at least one) into one.

    Session codes and neighbours are shifted, statistics are added.
    """
    if len(parts) == 1:
        return parts[0]
    memo = parts[0].memo
    given = [p.vectors for p in parts if p.vectors is not None]
    fixed = memo.get("joined", _sources(parts, _FIXED), lambda: _joined(parts))
    fading = memo.get("fading", _sources(parts, _FADING), lambda: _in_a_row(parts, _FADING))
    close: dict[int, Counter[int]] = {}
    for part in parts:
        for term, frequencies in part.close.items():
            close.setdefault(term, Counter()).update(frequencies)
    return Columns(
        **fixed,
        **fading,
        matched=np.concatenate([p.matched for p in parts]),
        cosine=np.concatenate([p.cosine for p in parts]),
        has_vector=np.concatenate([p.has_vector for p in parts]),
        term_counts=np.concatenate([p.term_counts for p in parts], axis=1),
        df=np.sum([p.df for p in parts], axis=0, dtype=np.float32),
        complete=all(p.complete for p in parts),
        vectors=np.concatenate(given) if given else None,
        close=close,
    )


_PLAIN = ("rows", "length", "speaker", "time", "flags", "agent", "content")
_FIXED = (*_PLAIN, "ends", "told", "count", "mean_length", "previous", "following", "session")
_FADING = ("base_importance", "anchor", "pinned")
"""Decay fields, joined separately: an access changes these and leaves the others unchanged."""


def _sources(parts: Sequence[Columns], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(getattr(part, name) for part in parts for name in names)


def _in_a_row(parts: Sequence[Columns], names: Sequence[str]) -> dict[str, Any]:
    return {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}


def _joined(parts: Sequence[Columns]) -> dict[str, Any]:
    """Joins the columns that do not depend on the query."""
    shifts = np.cumsum([0, *(len(p.rows) for p in parts)])
    codes = np.cumsum([0, *(int(p.session.max(initial=-1)) + 1 for p in parts)])
    count = sum(p.count for p in parts)
    given = [name for name in ("ends", "told") if getattr(parts[0], name) is not None]
    return {
        **_in_a_row(parts, (*_PLAIN, *given)),
        "count": count,
        "mean_length": sum(p.mean_length * p.count for p in parts) / max(1, count),
        "previous": np.concatenate([_shifted(p.previous, by) for p, by in zip(parts, shifts, strict=False)]),
        "following": np.concatenate([_shifted(p.following, by) for p, by in zip(parts, shifts, strict=False)]),
        "session": np.concatenate([_shifted(p.session, by) for p, by in zip(parts, codes, strict=False)]),
        "memo": Memo(),
    }


def _shifted(values: Ints, by: int) -> Ints:
    return np.where(values < 0, values, values + by)
