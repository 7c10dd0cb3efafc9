"""A filter's meaning over the entries of a segment, as one truth for each of them."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.storage.collection import Searched
from app.storage.filters import Absent, And, Eq, Filter, Has, In, Not, Or, Range
from app.storage.packed import facet_id, range_value
from app.storage.postings import Postings
from app.storage.search import Bools

MAX_KEPT = 16

Mask: TypeAlias = Bools | bool
"""One truth for all entries, or one for each; never written into, for some are kept."""


class Masks:
    """Of entries that do not change. `ranges` is (n, declared ranges), NaN where an entry has none; `empty` says of
    which ranges no entry has any."""

    def __init__(self, spec: Searched, facets: Postings, ranges: NDArray[np.float64], empty: Sequence[bool]) -> None:
        self._spec, self._facets, self._ranges, self._empty = spec, facets, ranges, tuple(empty)
        self._number = {field: number for number, field in enumerate(spec.ranges)}
        self._kept: dict[tuple[str, tuple[Any, ...]], Mask] = {}

    def matched(self, where: Filter) -> Bools:
        """The caller's own."""
        mask = self._mask(where)
        if isinstance(mask, bool):
            return (np.ones if mask else np.zeros)(len(self._ranges), np.bool_)
        return mask.copy()

    def _mask(self, where: Filter) -> Mask:
        match where:
            case Or((Absent(field), Range(field=same))) if field == same and self._empty[self._number[field]]:
                return True  # as with every search: few things expire
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

    def _holding(self, field: str, values: tuple[Any, ...]) -> Mask:
        """Kept for the first few sets of values: most searches ask for the same."""
        if field not in self._spec.facets:
            raise KeyError(f"{field} is not declared as a facet")
        held = self._kept.get((field, values))
        if held is None:
            held = self._look_up(field, values)
            if len(self._kept) < MAX_KEPT:
                self._kept[field, values] = held
        return held

    def _look_up(self, field: str, values: tuple[Any, ...]) -> Mask:
        mask = np.zeros(len(self._ranges), np.bool_)
        for value in values:
            rows, _ = self._facets.lookup(facet_id(field, value))
            if len(rows) == len(mask):  # an entry holds a value once
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


def _all(masks: Iterable[Mask]) -> Mask:
    every: Mask = True
    for mask in masks:
        every = mask if every is True else every if mask is True else every & mask
    return every


def _any(masks: Iterable[Mask]) -> Mask:
    some: Mask = False
    for mask in masks:
        some = mask if some is False else some if mask is False else some | mask
    return some
