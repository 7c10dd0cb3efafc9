"""Arrays of a segment that are made once for all queries (postings of terms, columns, filters as masks), and what
compares a query with them (`SegmentView.cosine`)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import simsimd
from numpy.typing import NDArray

from app.storage.index.record_codec import Further, facet_id, model_id, quantise, range_value
from app.storage.schema import Absent, And, Eq, Filter, Has, In, Not, Or, Range, SearchSchema
from app.storage.search import Bools, Floats, Ints, SearchQuery

MIN_TAIL = 2048
KEY_BYTES, ROW_BITS, COUNT_BITS = 4, 24, 8

_Entries: TypeAlias = tuple[NDArray[np.unsignedinteger], NDArray[np.int32], NDArray[np.uint8]]


class Postings:
    """Maps keys (unsigned integers) to rows and counts. Dead rows stay; the caller masks them."""

    def __init__(self, dtype: np.dtype[np.unsignedinteger]) -> None:
        self._keys = np.empty(0, dtype)
        self._rows = np.empty(0, np.int32)
        self._counts = np.empty(0, np.uint8)
        self._tail: list[_Entries] = []
        self._tail_size = 0

    @property
    def nbytes(self) -> int:
        return int(self._keys.nbytes + self._rows.nbytes + self._counts.nbytes) + 13 * self._tail_size

    def append(self, keys: NDArray[np.unsignedinteger], rows: NDArray[np.int32], counts: NDArray[np.uint8]) -> None:
        """Adds one entry for each key, in any order."""
        if not len(keys):
            return
        self._tail.append((keys, rows, counts))
        self._tail_size += len(keys)
        if not len(self._keys) or self._tail_size > max(MIN_TAIL, len(self._keys) // 8):
            keys, rows, counts = self._unsorted()
            if len(self._keys):
                keys = np.concatenate((self._keys, keys))
                rows, counts = np.concatenate((self._rows, rows)), np.concatenate((self._counts, counts))
            self._keys, self._rows, self._counts = _sorted(keys, rows, counts)
            self._tail, self._tail_size = [], 0

    def spread(self, keys: NDArray[np.unsignedinteger], width: int) -> tuple[NDArray[np.float32], list[int]]:
        """Returns a (keys, width) table with the count of each key in each row, and the number of rows of each key."""
        table = np.zeros((len(keys), width), np.float32)
        starts, stops = self._keys.searchsorted(keys).tolist(), self._keys.searchsorted(keys, "right").tolist()
        frequencies = [stop - start for start, stop in zip(starts, stops, strict=True)]
        for at, (start, stop) in enumerate(zip(starts, stops, strict=True)):
            if start < stop:
                table[at][self._rows[start:stop]] = self._counts[start:stop]
        if self._tail:
            tail_keys, tail_rows, tail_counts = self._unsorted()
            for at, key in enumerate(keys):
                hit = np.flatnonzero(tail_keys == key)
                table[at, tail_rows[hit]] = tail_counts[hit]
                frequencies[at] += len(hit)
        return table, frequencies

    def lookup(self, key: int) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Returns the rows that contain the key, and its count in each."""
        wanted = self._keys.dtype.type(key)
        start, stop = self._keys.searchsorted(wanted), self._keys.searchsorted(wanted, "right")
        rows, counts = self._rows[start:stop], self._counts[start:stop]
        if not self._tail:
            return rows, counts
        tail_keys, tail_rows, tail_counts = self._unsorted()
        hit = tail_keys == wanted
        return np.concatenate((rows, tail_rows[hit])), np.concatenate((counts, tail_counts[hit]))

    def present(self, keys: NDArray[np.unsignedinteger]) -> list[int]:
        """Returns those of the sorted keys that some row, perhaps a dead one, contains."""
        places = self._keys.searchsorted(keys)
        within = places < len(self._keys)
        is_present = np.zeros(len(keys), np.bool_)
        is_present[within] = self._keys[places[within]] == keys[within]
        if self._tail:
            is_present |= np.isin(keys, self._unsorted()[0])
        present: list[int] = keys[is_present].tolist()
        return present

    def _unsorted(self) -> _Entries:
        if len(self._tail) > 1:
            keys, rows, counts = zip(*self._tail, strict=True)
            self._tail = [(np.concatenate(keys), np.concatenate(rows), np.concatenate(counts))]
        return self._tail[0]


def _sorted(keys: NDArray[np.unsignedinteger], rows: NDArray[np.int32], counts: NDArray[np.uint8]) -> _Entries:
    """Sorts entries by key.

    If key, row and count fit in 64 bits, they are packed and sorted together: sorting positions and gathering by them
    takes five times as long.
    """
    if keys.dtype.itemsize > KEY_BYTES or int(rows.max()) >> ROW_BITS:
        order = np.argsort(keys)
        return keys[order], rows[order], counts[order]
    packed = keys.astype(np.uint64)
    packed <<= np.uint64(ROW_BITS)
    np.bitwise_or(packed, rows.view(np.uint32), out=packed)
    packed <<= np.uint64(COUNT_BITS)
    np.bitwise_or(packed, counts, out=packed)
    packed.sort()
    counts = packed.astype(np.uint8)
    packed >>= np.uint64(COUNT_BITS)
    low = packed.astype(np.uint32)
    low &= np.uint32((1 << ROW_BITS) - 1)
    packed >>= np.uint64(ROW_BITS)
    return packed.astype(keys.dtype), low.view(np.int32), counts


MAX_KEPT = 16

EntryMask: TypeAlias = Bools | bool
"""One boolean for all entries, or one for each. Never modify it, because some are cached."""


class Masks:
    """Filters over entries that do not change.

    `ranges` is (n, declared ranges), NaN where an entry has no value. `empty` says which ranges have no value in any
    entry.
    """

    def __init__(
        self, spec: SearchSchema, facets: Postings, ranges: NDArray[np.float64], empty: Sequence[bool]
    ) -> None:
        self._spec, self._facets, self._ranges, self._empty = spec, facets, ranges, tuple(empty)
        self._number = {field: number for number, field in enumerate(spec.ranges)}
        self._kept: dict[tuple[str, tuple[Any, ...]], EntryMask] = {}

    def matched(self, where: Filter) -> Bools:
        """Returns the mask of the entries that match, (n,), as a new array."""
        parts = where.parts if isinstance(where, And) else (where,)
        mask = _all([self._mask(part) for part in parts if not self._missing_everywhere(part)])
        if isinstance(mask, bool):
            return (np.ones if mask else np.zeros)(len(self._ranges), np.bool_)
        return mask.copy()

    def _missing_everywhere(self, where: Filter) -> bool:
        """Returns whether the filter accepts absent values or a range, and the value is absent everywhere.

        Most filters of searches contain this, because few records expire.
        """
        if where.__class__ is not Or or len(where.parts) != 2:
            return False
        absent, ranged = where.parts
        return (
            absent.__class__ is Absent
            and ranged.__class__ is Range
            and absent.field == ranged.field
            and self._empty[self._number[absent.field]]
        )

    def _mask(self, where: Filter) -> EntryMask:
        match where:
            case And(parts):
                return _all([self._mask(part) for part in parts])
            case Or(parts):
                return _any([self._mask(part) for part in parts])
            case Not(part):
                mask = self._mask(part)
                return not mask if isinstance(mask, bool) else ~mask
            case Eq(field, value) | Has(field, value):
                return self._holding(field, (value,))
            case In(field, values):
                return self._holding(field, values)
            case Absent(field):
                number = self._number[field]
                return self._empty[number] or np.isnan(self._ranges[:, number])
            case Range():
                number = self._number[where.field]
                return not self._empty[number] and self._between(where, self._ranges[:, number])

    def _holding(self, field: str, values: tuple[Any, ...]) -> EntryMask:
        """Returns the mask of the entries that contain one of the values.

        Cached for the first few sets of values, because most searches use the same ones.
        """
        if field not in self._spec.facets:
            raise KeyError(f"{field} is not declared as a facet")
        cached = self._kept.get((field, values))
        if cached is None:
            cached = self._look_up(field, values)
            if len(self._kept) < MAX_KEPT:
                self._kept[field, values] = cached
        return cached

    def _look_up(self, field: str, values: tuple[Any, ...]) -> EntryMask:
        mask = np.zeros(len(self._ranges), np.bool_)
        for value in values:
            rows, _ = self._facets.lookup(facet_id(field, value))
            if len(rows) == len(mask):  # an entry contains a value only once
                return True
            mask[rows] = True
        return mask

    def _between(self, where: Range, column: NDArray[np.float64]) -> Bools:
        mask: Bools = ~np.isnan(column)
        for bound, holds in (
            (where.ge, np.greater_equal),
            (where.gt, np.greater),
            (where.le, np.less_equal),
            (where.lt, np.less),
        ):
            if bound is not None:
                mask &= holds(column, range_value(bound))
        return mask


def _all(masks: Iterable[EntryMask]) -> EntryMask:
    every: EntryMask = True
    for mask in masks:
        every = mask if every is True else every if mask is True else every & mask
    return every


def _any(masks: Iterable[EntryMask]) -> EntryMask:
    some: EntryMask = False
    for mask in masks:
        some = mask if some is False else some if mask is False else some | mask
    return some


FADING = ("importance", "anchor", "pinned")
"""Decay fields of a record, which an access may change."""
MAX_QUERIES = 512
_QUERIES: dict[int, tuple[Floats, NDArray[np.int8], np.float32]] = {}
"""Quantised query vectors, by identity of the vector. Each vector is kept alive here, so that no other gets its id."""


@dataclass(frozen=True, slots=True)
class SegmentView:
    """Arrays of a segment for all queries until it changes, and the cosines of a query.

    `live` (m,) are the entries that are not dead, None for all. For all entries there are `model`, `per_norm` (1 /
    norm, 0 without a vector) and the filters' masks.
    """

    live: Ints | None
    model: NDArray[np.uint32]
    per_norm: Floats
    masks: Masks
    columns: dict[str, Any]
    """Fields of `Columns`, for the live entries."""
    further: Further | None = None
    """Windows after the first; None if every text has one window."""
    _of_model: dict[int, tuple[Bools, Floats]] = field(default_factory=dict)

    def with_columns(self, columns: Mapping[str, NDArray[Any]]) -> "SegmentView":
        """Returns a copy with these columns replaced. Results derived from the others stay."""
        return replace(self, columns={**self.columns, **columns})

    def cosine(self, query: SearchQuery, vectors: NDArray[np.int8]) -> tuple[Floats, Bools]:
        """Returns the cosine of each entry (n,), and whether it has a vector of the query's model (n,).

        `vectors` (n, dim) are those of the first windows.
        """
        n, dim = vectors.shape
        if query.vector is None or len(query.vector) != dim or not n:
            return np.zeros(n, np.float32), np.zeros(n, np.bool_)
        wanted, scale = _quantised(query.vector)
        has_vector, per_norm = self._of(model_id(query.model, dim))
        # a product of int8 vectors is an integer that float32 represents exactly
        dots = simsimd.cdist(wanted, vectors, metric="dot", out_dtype="float32")
        cosine = np.asarray(dots)[0] * per_norm
        cosine *= scale
        if self.further is not None and not query.first_windows:
            self.further.raise_to_best(cosine, wanted, scale, has_vector)
        np.minimum(cosine, 1, out=cosine)  # together equal to `clip`, in half its time
        np.maximum(cosine, -1, out=cosine)
        return cosine, has_vector

    def own_vectors(self, query: SearchQuery, vectors: NDArray[np.int8]) -> NDArray[np.int8]:
        """Returns a copy of the vectors of the live entries, with zeros for those that are not of the query's model."""
        mine, _ = self._of(model_id(query.model, vectors.shape[1]))
        own = np.where(mine[:, np.newaxis], vectors, np.int8(0))
        return own if self.live is None else own[self.live]

    def _of(self, model: int) -> tuple[Bools, Floats]:
        """Returns which entries have a vector of the model, and 1 / its norm, 0 for the others. Cached."""
        if model not in self._of_model:
            has_vector: Bools = self.model == model
            self._of_model[model] = has_vector, self.per_norm * has_vector
        return self._of_model[model]


def fading(heads: NDArray[np.void], live: Ints | None) -> dict[str, NDArray[Any]]:
    """Returns the decay columns of the entries `live`."""
    at = slice(None) if live is None else live
    return {
        "base_importance": heads["importance"][at].copy(),
        "anchor": heads["anchor"][at].copy(),
        "pinned": heads["pinned"][at].astype(np.bool_),
    }


def _quantised(vector: Floats) -> tuple[NDArray[np.int8], np.float32]:
    """Returns the vector as int8 (1, dim), and 1 / its length.

    Cached for read-only vectors, such as those in the embedder's cache.
    """
    cached = _QUERIES.get(id(vector))
    if cached is None:
        wanted = quantise(vector)
        whole = wanted.astype(np.float32)
        cached = vector, wanted[np.newaxis], np.float32(1 / math.sqrt(whole.dot(whole)))
        if not vector.flags.writeable:
            if len(_QUERIES) >= MAX_QUERIES:
                _QUERIES.clear()
            _QUERIES[id(vector)] = cached
    return cached[1:]
