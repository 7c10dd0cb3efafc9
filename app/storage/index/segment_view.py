"""Arrays of a segment that do not depend on the query, and filters as masks over its entries."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import simsimd
from numpy.typing import NDArray

from app.storage.filters import Absent, And, Eq, Filter, Has, In, Not, Or, Range
from app.storage.index.postings import Postings
from app.storage.index.record_codec import facet_id, model_id, quantise, range_value
from app.storage.schema import SearchSchema
from app.storage.search import Bools, Floats, Ints, SearchQuery
from app.storage.windows import Further

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
    """Query-independent arrays of a segment.

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

    def with_columns(self, columns: dict[str, Any]) -> "SegmentView":
        """Returns a copy with these columns replaced. Results derived from the others stay."""
        return replace(self, columns=self.columns | columns)

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

    def _of(self, model: int) -> tuple[Bools, Floats]:
        """Returns which entries have a vector of the model, and 1 / its norm, 0 for the others. Cached."""
        if model not in self._of_model:
            has_vector: Bools = self.model == model
            self._of_model[model] = has_vector, self.per_norm * has_vector
        return self._of_model[model]


def fading(heads: NDArray[np.void], live: Ints | None) -> dict[str, Any]:
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
