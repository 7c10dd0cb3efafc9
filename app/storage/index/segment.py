"""A segment: the searchable documents of one partition in memory, with exact search. Every exact engine uses it.

Arrays grow by doubling. If only the head of a document changed, it is overwritten in place; otherwise its entry dies
and a new one is appended. The entry of a deleted document dies. Answers leave out dead entries; a segment with many of
them is `worn`.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import simsimd
from numpy.typing import NDArray

from app.storage import schema, search
from app.storage.index import record_codec
from app.storage.text import LONG, close_ids, name_id

# --- What is made once for all queries --------------------------------------------------------------------------------

MIN_TAIL = 2048
KEY_BYTES, ENTRY_BITS, COUNT_BITS = 4, 24, 8

_Run: TypeAlias = tuple[NDArray[np.unsignedinteger], NDArray[np.int32], NDArray[np.uint8]]
"""Keys, the places of entries in the segment, and counts, of the same length."""


class Postings:
    """Maps keys (unsigned integers) to the places of entries and to counts: the term "oat" is once in entry 4, twice in
    entry 9. Dead entries stay; the caller masks them."""

    def __init__(self, dtype: np.dtype[np.unsignedinteger]) -> None:
        # both sorted by key: most postings, and those that came since
        self._main = self._tail = np.empty(0, dtype), np.empty(0, np.int32), np.empty(0, np.uint8)
        self._new: list[_Run] = []
        self._size = 0

    @property
    def nbytes(self) -> int:
        return 13 * self._size

    def append(self, keys: NDArray[np.unsignedinteger], entries: NDArray[np.int32], counts: NDArray[np.uint8]) -> None:
        """Adds one posting for each key, in any order: the key, the place of the entry, and the count there."""
        self._new.append((keys, entries, counts))
        self._size += len(keys)
        many = len(self._main[0])
        if self._size - many > (many and max(MIN_TAIL, many // 8)):
            empty = self._main[0][:0], self._main[1][:0], self._main[2][:0]
            self._main, self._tail, self._new = _sorted([self._main, self._tail, *self._new]), empty, []

    def spread(self, keys: NDArray[np.unsignedinteger], width: int) -> tuple[NDArray[np.float32], list[int]]:
        """Returns a (keys, width) table with the count of each key in each entry, and the number of entries of each
        key."""
        table, frequencies = np.zeros((len(keys), width), np.float32), [0] * len(keys)
        for sorted_keys, entries, counts in self._runs() if len(keys) else ():  # without keys nothing is sorted
            starts, stops = sorted_keys.searchsorted(keys).tolist(), sorted_keys.searchsorted(keys, "right").tolist()
            for at, (start, stop) in enumerate(zip(starts, stops, strict=True)):
                if start < stop:
                    table[at][entries[start:stop]] = counts[start:stop]
                    frequencies[at] += stop - start
        return table, frequencies

    def lookup(self, key: int) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Returns the entries that contain the key, and its count in each."""
        found = []
        for keys, entries, counts in self._runs():
            wanted = keys.dtype.type(key)
            start, stop = keys.searchsorted(wanted), keys.searchsorted(wanted, "right")
            found.append((entries[start:stop], counts[start:stop]))
        if len(found) == 1:
            return found[0]
        return np.concatenate([entries for entries, _ in found]), np.concatenate([counts for _, counts in found])

    def present(self, keys: NDArray[np.unsignedinteger]) -> list[int]:
        """Returns those of the sorted keys that some entry, perhaps a dead one, contains."""
        is_present = np.zeros(len(keys), np.bool_)
        for sorted_keys, *_ in self._runs() if self._size else ():
            is_present |= sorted_keys.take(sorted_keys.searchsorted(keys), mode="clip") == keys
        present: list[int] = keys[is_present].tolist()
        return present

    def _runs(self) -> Sequence[_Run]:
        """Returns the postings that are there, sorted by key."""
        if self._new:
            self._tail, self._new = _sorted([self._tail, *self._new]), []
        return (self._main, self._tail) if len(self._tail[0]) else (self._main,)


def _sorted(runs: Sequence[_Run]) -> _Run:
    """Joins postings and sorts them by key.

    If key, entry and count fit in 64 bits, they are packed and sorted together: sorting positions and gathering by them
    takes five times as long.
    """
    keys, entries, counts = (np.concatenate(parts) for parts in zip(*runs, strict=True))
    if keys.dtype.itemsize > KEY_BYTES or int(entries.max(initial=0)) >> ENTRY_BITS:
        order = np.argsort(keys)
        return keys[order], entries[order], counts[order]
    packed = keys.astype(np.uint64)
    packed <<= np.uint64(ENTRY_BITS)
    np.bitwise_or(packed, entries.view(np.uint32), out=packed)
    packed <<= np.uint64(COUNT_BITS)
    np.bitwise_or(packed, counts, out=packed)
    packed.sort()
    counts = packed.astype(np.uint8)
    packed >>= np.uint64(COUNT_BITS)
    low = packed.astype(np.uint32)
    low &= np.uint32((1 << ENTRY_BITS) - 1)
    packed >>= np.uint64(ENTRY_BITS)
    return packed.astype(keys.dtype), low.view(np.int32), counts


MAX_KEPT = 16

EntryMask: TypeAlias = search.Bools | bool
"""One boolean for all entries, or one for each. Never modify it, because some are cached."""


class Masks:
    """Filters over entries that do not change.

    `ranges` is (n, declared ranges), NaN where an entry has no value. `empty` says which ranges have no value in any
    entry.
    """

    def __init__(
        self, spec: schema.SearchSchema, facets: Postings, ranges: NDArray[np.float64], empty: Sequence[bool]
    ) -> None:
        self._spec, self._facets, self._ranges, self._empty = spec, facets, ranges, tuple(empty)
        self._number = {field: number for number, field in enumerate(spec.ranges)}
        self._columns: dict[int, NDArray[np.float64]] = {}
        self._kept: dict[tuple[str, tuple[Any, ...]], EntryMask] = {}

    def matched(self, where: schema.Filter) -> search.Bools:
        """Returns the mask of the entries that match, (n,), as a new array."""
        parts = where.parts if isinstance(where, schema.And) else (where,)
        mask = _all([self._mask(part) for part in parts])
        if isinstance(mask, bool):
            return (np.ones if mask else np.zeros)(len(self._ranges), np.bool_)
        return mask.copy()

    def _mask(self, where: schema.Filter) -> EntryMask:
        match where:
            case schema.And(parts):
                return _all([self._mask(part) for part in parts])
            case schema.Or(parts):
                return _any([self._mask(part) for part in parts])
            case schema.Not(part):
                mask = self._mask(part)
                return not mask if isinstance(mask, bool) else ~mask
            case schema.Eq(field, value) | schema.Has(field, value):
                return self._holding(field, (value,))
            case schema.In(field, values):
                return self._holding(field, values)
            case schema.Absent(field):
                number = self._number[field]
                return self._empty[number] or np.isnan(self._column(number))
            case schema.Range():
                number = self._number[where.field]
                return not self._empty[number] and self._between(where, self._column(number))

    def _column(self, number: int) -> NDArray[np.float64]:
        """Returns the values of a range, side by side: among the heads of a million entries each is a look of its
        own."""
        if number not in self._columns:
            self._columns[number] = self._ranges[:, number].copy()
        return self._columns[number]

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
            entries, _ = self._facets.lookup(record_codec.facet_id(field, value))
            if len(entries) == len(mask):  # an entry contains a value only once
                return True
            mask[entries] = True
        return mask

    def _between(self, where: schema.Range, column: NDArray[np.float64]) -> search.Bools:
        mask: search.Bools = ~np.isnan(column)
        for bound, holds in (
            (where.ge, np.greater_equal),
            (where.gt, np.greater),
            (where.le, np.less_equal),
            (where.lt, np.less),
        ):
            if bound is not None:
                mask &= holds(column, record_codec.range_value(bound))
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
"""Decay fields of a packed record, which an access may change. Its `importance` is the document's `base_importance`."""


@dataclass(frozen=True, slots=True)
class SegmentView:
    """Arrays of a segment for all queries until it changes, and the cosines of a query.

    `live` (m,) are the entries that are not dead, None for all. For all entries there are `model`, `per_norm` (1 /
    norm, 0 without a vector), `length` (terms), `time` and the filters' masks.
    """

    live: search.Ints | None
    model: NDArray[np.uint32]
    per_norm: search.Floats
    length: search.Floats
    mean_length: float
    time: search.Ints
    masks: Masks
    fixed: dict[str, Any] = field(default_factory=dict)
    """The fields of `Columns` that do not depend on the query, for the live entries; empty until they are asked for."""
    further: record_codec.Further | None = None
    """Windows after the first; None if every text has one window."""
    _of_model: dict[int, tuple[search.Bools, search.Floats]] = field(default_factory=dict)

    def cosine(self, query: search.SearchQuery, vectors: NDArray[np.int8]) -> tuple[search.Floats, search.Bools]:
        """Returns the cosine of each entry (n,), and whether it has a vector of the query's model (n,).

        `vectors` (n, dim) are those of the first windows.
        """
        n, dim = vectors.shape
        if query.vector is None or len(query.vector) != dim or not n:
            return np.zeros(n, np.float32), np.zeros(n, np.bool_)
        vector = record_codec.quantise(query.vector)[np.newaxis]
        as_floats = vector[0].astype(np.float32)
        scale = np.float32(1 / math.sqrt(as_floats.dot(as_floats)))
        has_vector, per_norm = self._of(record_codec.model_id(query.model, dim))
        # a product of int8 vectors is an integer that float32 represents exactly
        dots = simsimd.cdist(vector, vectors, metric="dot", out_dtype="float32")
        cosine = np.asarray(dots)[0] * per_norm
        cosine *= scale
        if self.further is not None and not query.first_windows:
            self.further.raise_to_best(cosine, vector, scale, has_vector)
        np.minimum(cosine, 1, out=cosine)  # together equal to `clip`, in half its time
        np.maximum(cosine, -1, out=cosine)
        return cosine, has_vector

    def own_vectors(
        self, query: search.SearchQuery, vectors: NDArray[np.int8], at: search.Ints | slice
    ) -> NDArray[np.int8]:
        """Returns a copy of the vectors of the entries `at`, with zeros for those that are not of the query's model."""
        has_vector, _ = self._of(record_codec.model_id(query.model, vectors.shape[1]))
        return np.where(has_vector[at, np.newaxis], vectors[at], np.int8(0))

    def _of(self, model: int) -> tuple[search.Bools, search.Floats]:
        """Returns which entries have a vector of the model, and 1 / its norm, 0 for the others. Cached."""
        if model not in self._of_model:
            has_vector: search.Bools = self.model == model
            self._of_model[model] = has_vector, self.per_norm * has_vector
        return self._of_model[model]


def fading(heads: NDArray[np.void], chosen: search.Ints | None) -> dict[str, NDArray[Any]]:
    """Returns the decay columns of the entries `chosen`; None: of all."""
    at = slice(None) if chosen is None else chosen
    return {
        "base_importance": heads["importance"][at].copy(),
        "anchor": heads["anchor"][at].copy(),
        "pinned": heads["pinned"][at].astype(np.bool_),
    }


# --- The segment ------------------------------------------------------------------------------------------------------

JoinedParts: TypeAlias = tuple[bytes, Sequence[int]]
"""Joined parts of packed records, and the length in bytes of each."""

MIN_DEAD = 32
OWN_BYTES, ENTRY_BYTES = 8_192, 284
"""Bytes that Python uses for a segment and for each entry (its index and the arrays of its view), as measured by
tracemalloc with segments of 100 and of 20,000 entries."""
MAX_CORRECTED = 8
"""Unknown words of a query to which close ones are looked for. Each takes up to 0.3 ms."""
LARGE = 50_000
"""Entries of a segment. Of a larger one a search for a ranking returns candidates (docs/contributing/scale.md)."""
LEADING = (1_000, 10_000)
"""So many of the best by vector, and by words, are candidates, by the depth of the search; then all are returned."""
EXTREMES = 200
"""So many of the newest and of the oldest are candidates: "What did I say last?" has no words."""
AROUND = 2
"""Neighbours of a candidate on each side."""
SAMPLE = 64
TINY = 1e-6
DAY_MS = 86_400_000
SLACK = 8
"""A segment just loaded has room for an eighth more, so that the next write does not copy all of it."""


class Segment:
    """The packed records of one partition for vectors of dimension `dim`, and the exact search over them.

    With more than `large` entries, a search returns a part of them: see `_part_of`.
    """

    def __init__(
        self,
        spec: schema.SearchSchema,
        dim: int,
        agent: str | None = None,
        *,
        large: int = LARGE,
        leading: Sequence[int] = LEADING,
    ) -> None:
        self._spec, self.dim, self._large, self._leading = spec, dim, large, leading
        self._agent = name_id(agent) if agent else 0
        self._size = 0
        self._dead = 0
        self._heads = np.empty(0, record_codec.head_dtype(len(self._spec.ranges)))
        self._vectors = np.empty((0, self.dim), np.int8)
        self._further = record_codec.FurtherWindows(self.dim)
        self._ids = np.empty(0, np.int64)
        self._alive = np.empty(0, np.bool_)
        self._links = np.empty((2, 0), np.int64)
        self._sessions = np.empty(0, np.int64)
        self._index: dict[int, int] = {}
        self._session_codes: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._terms = Postings(np.dtype("<u4"))
        self._facets = Postings(record_codec.FACET)
        self._empty = [True] * len(spec.ranges)
        self._view: SegmentView | None = None

    def __len__(self) -> int:
        return self._size - self._dead

    @property
    def nbytes(self) -> int:
        own = (self._heads, self._vectors, self._ids, self._alive, self._links, self._sessions)
        return (
            sum(a.nbytes for a in own)
            + self._further.nbytes
            + self._terms.nbytes
            + self._facets.nbytes
            + OWN_BYTES
            + ENTRY_BYTES * len(self._index)
        )

    # --- Updating -----------------------------------------------------------------------------------------------------

    def apply(self, rows: Sequence[record_codec.Row]) -> None:
        """Applies changed rows. Applying a row twice has no further effect."""
        others = self._amend(rows)
        if not others:
            return
        fresh = []
        for row in others:
            at = self._index.get(row.id)
            if at is not None:
                self._kill(row.id, at)
            if row.packed is not None:
                fresh.append(row)
        if fresh:
            packed = [row.packed for row in fresh if row.packed is not None]
            vectors = [p.vector or b"" for p in packed]
            block = record_codec.Block(
                ids=[row.id for row in fresh],
                heads=b"".join([p.head for p in packed]),
                vectors=b"".join(vectors),
                terms=b"".join([p.terms for p in packed]),
                facets=b"".join([p.facets for p in packed]),
                vector_lengths=[len(vector) for vector in vectors],
                term_lengths=[len(p.terms) for p in packed],
                facet_lengths=[len(p.facets) for p in packed],
            )
            start = self._size
            self._append_all(block)
            self._post((block.terms, block.term_lengths), (block.facets, block.facet_lengths), start)
            self._link(start, self._size)
        self._view = None

    def fill(self, blocks: Iterable[record_codec.Block], count: int) -> None:
        """Adds all documents of an empty segment at once, which costs a fraction of `apply`.

        `count` is their approximate number.
        """
        self._grow(count)
        terms, facets = list[JoinedParts](), list[JoinedParts]()
        for block in blocks:
            self._append_all(block)
            terms.append((block.terms, block.term_lengths))
            facets.append((block.facets, block.facet_lengths))
        self._post(_join_parts(terms), _join_parts(facets), 0)
        self._link(0, self._size)
        self._view = None

    @property
    def worn(self) -> bool:
        """True if so many entries are dead that reloading the segment is better."""
        return self._dead > max(MIN_DEAD, self._size // 4)

    def _amend(self, rows: Sequence[record_codec.Row]) -> list[record_codec.Row]:
        """Overwrites records whose text, vector, facets and session stayed. Returns the remaining rows."""
        known = [(row, at) for row in rows if row.packed is not None and (at := self._index.get(row.id)) is not None]
        if not known:
            return list(rows)
        heads = np.frombuffer(b"".join(row.packed.head for row, _ in known if row.packed), self._heads.dtype)
        places = np.array([at for _, at in known], np.int64)
        stayed = heads["text_rev"] == self._heads["text_rev"][places]
        heads, places = heads[stayed], places[stayed]
        before = self._heads[places]
        self._heads[places] = heads
        self._note_ranges(heads["ranges"])
        if self._view is not None:
            for name in FADING:
                before[name] = heads[name]
            # an access changes only these, after each search; compared as bytes because NaN is not equal to itself
            if before.tobytes() != heads.tobytes():
                self._view = None
            elif self._view.fixed:
                faded = fading(self._heads[: self._size], self._view.live)
                self._view = replace(self._view, fixed={**self._view.fixed, **faded})
        amended = {row.id for (row, _), same in zip(known, stayed.tolist(), strict=True) if same}
        return [row for row in rows if row.id not in amended]

    def _kill(self, row_id: int, at: int) -> None:
        """Marks an entry as dead, and links its neighbours in the session."""
        self._alive[at] = False
        self._dead += 1
        del self._index[row_id]
        before, after = self._links[:, at]
        if before >= 0:
            self._links[1, before] = after
        if after >= 0:
            self._links[0, after] = before
        code = int(self._sessions[at])
        if self._last.get(code) == at:
            self._last[code] = int(before)

    def _append_all(self, block: record_codec.Block) -> None:
        start, stop = self._size, self._size + len(block.ids)
        self._grow(stop)
        self._size = stop
        self._heads[start:stop] = np.frombuffer(block.heads, self._heads.dtype)
        self._note_ranges(self._heads["ranges"][start:stop])
        self._take_vectors(block, start, stop)
        self._ids[start:stop] = block.ids
        self._alive[start:stop] = True
        self._index.update(zip(block.ids, range(start, stop), strict=True))

    def _note_ranges(self, ranges: NDArray[np.float64]) -> None:
        """Updates which ranges have no value.

        A range that once had a value never counts as empty again: this is slower but correct.
        """
        missing: list[bool] = np.logical_and.reduce(np.isnan(ranges), axis=0).tolist()
        self._empty = [was and now for was, now in zip(self._empty, missing, strict=True)]

    def _grow(self, needed: int) -> None:
        capacity = len(self._ids)
        if needed <= capacity:
            return
        more = max(2 * capacity if capacity else needed + needed // SLACK, needed) - capacity
        for name in ("_heads", "_vectors", "_ids", "_alive", "_sessions"):
            old = getattr(self, name)
            longer = np.empty((capacity + more, *old.shape[1:]), old.dtype)
            longer[:capacity] = old
            setattr(self, name, longer)
        links, self._links = self._links, np.empty((2, capacity + more), np.int64)
        self._links[:, :capacity] = links

    def _take_vectors(self, block: record_codec.Block, start: int, stop: int) -> None:
        """Stores the vector of each first window and, separately, of the further ones.

        Vectors of another length (another model's) become zeros, which match no query of ours.
        """
        lengths = np.asarray(block.vector_lengths, np.int64)
        ours = lengths == self.dim
        whole = np.frombuffer(block.vectors, np.int8)
        if ours.all():
            self._vectors[start:stop] = whole.reshape(-1, self.dim)
            return
        self._vectors[start:stop] = 0
        places = [0, *np.cumsum(lengths).tolist()]
        others = np.flatnonzero(~ours).tolist()
        for before, after in pairwise([-1, *others, len(lengths)]):
            part = whole[places[before + 1] : places[after]]
            self._vectors[start + before + 1 : start + after] = part.reshape(-1, self.dim)
        long = self._heads["flags"][start:stop] & LONG != 0
        for at in np.flatnonzero(long).tolist():
            vector = whole[places[at] : places[at + 1]]
            if len(vector) and len(vector) == int(vector[-1]) * self.dim + 1:
                windows = vector[:-1].reshape(-1, self.dim)
                self._vectors[start + at] = windows[0]
                self._further.add(start + at, windows[1:])

    def _post(self, terms: JoinedParts, facets: JoinedParts, start: int) -> None:
        """Adds the terms and facets of the entries from `start` on."""
        words, values = np.frombuffer(terms[0], record_codec.TERM), np.frombuffer(facets[0], record_codec.FACET)
        entries = np.arange(start, self._size, dtype=np.int32)
        entry_of = np.repeat(entries, np.asarray(terms[1], np.int64) // record_codec.TERM.itemsize)
        self._terms.append(np.ascontiguousarray(words["id"]), entry_of, np.ascontiguousarray(words["count"]))
        entry_of = np.repeat(entries, np.asarray(facets[1], np.int64) // record_codec.FACET.itemsize)
        self._facets.append(values, entry_of, np.ones(len(values), np.uint8))

    def _link(self, start: int, stop: int) -> None:
        """Links neighbours in a session by ordinal: extends the session's end, or else links all anew."""
        if not start:
            # links the entries of a segment that was empty, without a loop
            n = self._size
            ids, keys = self._ids[:n], self._heads["session"][:n]
            placed = (self._heads["ordinal"][:n], keys)  # sorts are stable: ascending ids need no third key
            order = np.lexsort(placed if (ids[:-1] < ids[1:]).all() else (ids, *placed))
            keys = keys[order]
            first = np.concatenate((keys[:1] >= 0, keys[1:] != keys[:-1]))
            none = int(keys[:1].tolist() == [0])  # 0 sorts first, and stands for no session
            self._sessions[order] = np.cumsum(first) - 1 - none
            self._session_codes = {key: code for code, key in enumerate(keys[first][none:].tolist())}
            self._link_in(order[self._sessions[order] >= 0])
            return
        self._links[:, start:stop] = -1
        in_order = True
        for at in range(start, stop):
            key = int(self._heads[at]["session"])
            code = self._session_codes.setdefault(key, len(self._session_codes)) if key else -1
            self._sessions[at] = code
            if code < 0:
                continue
            last = self._last.get(code, -1)
            self._last[code] = at
            if last >= 0:
                self._links[1, last], self._links[0, at] = at, last
                in_order &= self._sort_key(last) < self._sort_key(at)
        if not in_order:
            live = np.flatnonzero(self._alive[: self._size] & (self._sessions[: self._size] >= 0))
            self._link_in(live[np.lexsort((self._ids[live], self._heads["ordinal"][live], self._sessions[live]))])

    def _sort_key(self, at: int) -> tuple[int, int]:
        """Returns the sort key in a session: the ordinal, then the order of insertion."""
        return int(self._heads[at]["ordinal"]), int(self._ids[at])

    def _link_in(self, order: search.Ints) -> None:
        """Rebuilds all links.

        `order` are the entries that have a session, with those of one session in consecutive positions.
        """
        self._links[:, : self._size] = -1
        same = self._sessions[order[:-1]] == self._sessions[order[1:]]
        self._links[1, order[:-1][same]] = order[1:][same]
        self._links[0, order[1:][same]] = order[:-1][same]
        self._last = dict(zip(self._sessions[order].tolist(), order.tolist(), strict=True))

    # --- Searching ----------------------------------------------------------------------------------------------------

    def columns(self, query: search.SearchQuery) -> search.Columns:
        """Returns the columns of the live entries for the query."""
        view = self._view = self._view or self._new_view()
        # of a large segment a part; all of it once the most candidates (`LEADING`) have held too few that match
        had_most_candidates = query.candidates and query.depth >= len(self._leading)
        if self._size > self._large and not had_most_candidates:
            return self._part_of(view, query)
        if not view.fixed:
            view.fixed.update(self._fixed_at(view, view.live))
        term_counts, frequencies = self._terms.spread(query.terms, self._size)
        df = np.array(frequencies, np.float32)
        cosine, has_vector = view.cosine(query, self._vectors[: self._size])
        matched = view.masks.matched(query.where)
        at = slice(None) if view.live is None else view.live
        vectors = view.own_vectors(query, self._vectors[: self._size], at) if query.vectors else None
        if view.live is not None:
            term_counts, cosine, has_vector, matched = (
                term_counts[:, view.live],
                cosine[view.live],
                has_vector[view.live],
                matched[view.live],
            )
            df = np.add.reduce(term_counts != 0, axis=1, dtype=np.float32)
        return search.Columns(
            **view.fixed,
            matched=matched,
            cosine=cosine,
            has_vector=has_vector,
            term_counts=term_counts,
            df=df,
            vectors=vectors,
            close=self._close_terms(query, df) if query.spelled else {},
        )

    def _part_of(self, view: SegmentView, query: search.SearchQuery) -> search.Columns:
        """Returns the columns of some entries of a large segment: of the candidates of a ranking and their neighbours,
        or else of the entries that match. How often a term occurs is counted in all."""
        n, alive = self._size, self._alive[: self._size]
        matched = view.masks.matched(query.where)
        matched &= alive
        if query.least_importance > 0:
            matched &= self._heads["importance"][:n] >= query.least_importance - 1e-6
        cosine, has_vector = view.cosine(query, self._vectors[:n])
        postings = [self._terms.lookup(term) for term in query.terms.tolist()]  # [(entries, counts), …]
        df = np.array([np.count_nonzero(alive[entries]) for entries, _ in postings], np.float32)
        if query.candidates:
            chosen = self._candidates(view, query, matched, np.where(has_vector, cosine, -2), postings, df)
        else:
            chosen = np.flatnonzero(matched)
        position_of = np.full(n, -1, np.int32)
        position_of[chosen] = np.arange(len(chosen), dtype=np.int32)
        term_counts = np.zeros((len(postings), len(chosen)), np.float32)
        for counts_of_term, (entries, counts) in zip(term_counts, postings, strict=True):
            positions = position_of[entries]
            counts_of_term[positions[positions >= 0]] = counts[positions >= 0]
        return search.Columns(
            **self._fixed_at(view, chosen),
            matched=matched[chosen],
            cosine=cosine[chosen],
            has_vector=has_vector[chosen],
            term_counts=term_counts,
            df=df,
            vectors=view.own_vectors(query, self._vectors[:n], chosen) if query.vectors else None,
            close=self._close_terms(query, df) if query.spelled else {},
            complete=np.count_nonzero(matched) == np.count_nonzero(matched[chosen]),
        )

    def _candidates(
        self,
        view: SegmentView,
        query: search.SearchQuery,
        matched: search.Bools,
        cosine: search.Floats,
        postings: Sequence[tuple[NDArray[np.int32], NDArray[np.uint8]]],
        df: search.Floats,
    ) -> search.Ints:
        """Returns the entries that may be among the first of a ranking, ascending: of those that match the best by
        vector, by words (BM25) and by both, the newest and the oldest, these from the time that the query names, and
        the farthest, which the cosines are scaled by; with the neighbours of each. `cosine`: -2 without a vector."""
        most, time = self._leading[query.depth], view.time
        bm25 = np.zeros(self._size, np.float32)
        for (entries, counts), with_term in zip(postings, df.tolist(), strict=True):
            norm = search.BM25_K1 * (
                1 - search.BM25_B + search.BM25_B / max(view.mean_length, 1) * view.length[entries]
            )
            idf = math.log1p((len(self) - with_term + 0.5) / (with_term + 0.5))
            bm25[entries] += np.float32(idf) * counts / (counts + norm)
        with_vector = matched & (cosine > -2)
        high, low = (float(cosine.max(initial=-1, where=with_vector)), float(cosine.min(initial=1, where=with_vector)))
        near = np.maximum(cosine - low, 0) * np.float32(1 / max(high - low, TINY))
        both = near + bm25 * np.float32(1 / max(float(bm25.max(initial=0, where=matched)), TINY))
        found = [_largest(-cosine, with_vector, 1), _largest(bm25, matched & (bm25 > 0), most)]
        found += [_largest(values, with_vector, most) for values in (cosine, both)]
        found += [_largest(values, matched, EXTREMES) for values in (time, -time)]
        if query.interval is not None:  # "What happened yesterday?" has no words: all of a day of 10,000 are candidates
            start, end = query.interval
            from_then = matched & (time >= start - DAY_MS) & (time < end + DAY_MS)
            found.append(_largest(both, from_then, self._leading[-1]))
            found += [_largest(values, from_then, EXTREMES) for values in (time, -time)]
        is_chosen = np.zeros(self._size + 1, np.bool_)  # the last one is that of no neighbour, -1
        is_chosen[np.concatenate(found)] = True
        for _ in range(AROUND):
            is_chosen[self._links[:, np.flatnonzero(is_chosen[:-1])]] = True
        return np.flatnonzero(is_chosen[:-1])

    def _close_terms(self, query: search.SearchQuery, df: search.Floats) -> dict[int, dict[int, int]]:
        """Returns the terms that live entries have and that are close to an unknown one, by its id."""
        unknown = [term for term in query.terms[df == 0].tolist() if term in query.spelled]
        close: dict[int, dict[int, int]] = {}
        for term in unknown[:MAX_CORRECTED]:
            near = self._terms.present(close_ids(query.spelled[term]))
            counts = {other: int(np.count_nonzero(self._alive[self._terms.lookup(other)[0]])) for other in near}
            close[term] = {other: count for other, count in counts.items() if count}
        return close

    def _new_view(self) -> SegmentView:
        """Builds the query-independent arrays. They are cached until the next change."""
        heads, n = self._heads[: self._size], self._size
        live = np.flatnonzero(self._alive[:n]) if self._dead else None
        norm, length = heads["norm"].copy(), heads["length"].astype(np.float32)
        return SegmentView(
            live=live,
            model=heads["model"].copy(),
            per_norm=np.divide(1, norm, out=np.zeros_like(norm), where=norm > 0),
            length=length,
            time=heads["time"].copy(),
            mean_length=float((length if live is None else length[live]).sum(dtype=np.float64)) / max(1, len(self)),
            masks=Masks(self._spec, self._facets, heads["ranges"], self._empty),
            further=self._further.result,
        )

    def _fixed_at(self, view: SegmentView, chosen: search.Ints | None) -> dict[str, Any]:
        """Returns the columns of these entries that do not depend on the query. None: of all, if none is dead."""
        heads, n = self._heads[: self._size], self._size
        links, at = self._links[:, :n], slice(None) if chosen is None else chosen
        if chosen is not None:
            place = np.full(n + 1, -1, np.int64)
            place[chosen] = np.arange(len(chosen))
            links = place[links[:, chosen]]
        length, time = view.length[at], view.time[at]
        return {
            "rows": self._ids[:n][at].copy(),
            "length": length,
            "count": len(self),
            "mean_length": view.mean_length,
            "previous": links[0].copy(),
            "following": links[1].copy(),
            "session": self._sessions[:n][at].copy(),
            "speaker": heads["speaker"][at].astype(np.int64),
            "time": time,
            "ends": self._first_present(self._spec.until, at, time),
            "told": self._first_present(self._spec.told, at, time),
            "flags": heads["flags"][at].astype(np.int64),
            **fading(heads, chosen),
            "agent": np.full(len(length), self._agent, np.int64),
            "content": heads["content"][at].copy(),
            "memo": search.Memo(),
        }

    def _first_present(self, fields: Sequence[str], at: Any, time: search.Ints) -> search.Ints | None:
        """Returns for each entry the first of these ranges that it has, in milliseconds, else its time."""
        if not fields:
            return None
        values = time.astype(np.float64)
        for name in reversed(fields):
            given = self._heads["ranges"][: self._size][at, self._spec.ranges.index(name)]
            np.copyto(values, given, where=~np.isnan(given))
        return values.astype(np.int64)


def _largest(values: NDArray[Any], among: search.Bools, most: int) -> search.Ints:
    """Returns the entries with the largest values of those `among`, so many or all of them. Of equal values at the end
    the last entries are taken."""
    if np.count_nonzero(among) <= most:
        return np.flatnonzero(among)
    # of a million values the 1,000 largest: the 35th largest of every 64th value has some 2,240 above it, and these
    # alone are compared, or all if they are fewer than 1,000
    sample = values[::SAMPLE][among[::SAMPLE]]
    rank = most // SAMPLE + 4 * math.isqrt(most // SAMPLE) + 8
    above = among
    if rank < len(sample):
        above = among & (values >= np.partition(sample, -rank)[-rank])
        if np.count_nonzero(above) < most:
            above = among
    entries = np.flatnonzero(above)
    pool = values[entries]
    limit = np.partition(pool, -most)[-most]
    larger, equal = entries[pool > limit], entries[pool == limit]
    return np.concatenate((larger, equal[len(equal) - most + len(larger) :]))


def _join_parts(parts: list[JoinedParts]) -> JoinedParts:
    """Joins the parts of several blocks into one."""
    return b"".join([joined for joined, _ in parts]), [length for _, lengths in parts for length in lengths]


# --- Partitions: their bookkeeping inside `commit`, the same in both engines, and the cache of their segments ---------
# Each list of changes moves the version of the partitions that it touches by one. A row of the search index carries the
# version that it was written in, and a deleted row leaves a tombstone: a process brings its copy up to date by reading
# what is newer. A record contains one vector. A migration to another model replaces it and keeps the old one, so that
# searches by the old model see rows as they were: an alternate vector.

MAX_SPEAKERS = 64
MIN_TOMBSTONES = 64


@dataclass(slots=True, kw_only=True)
class PartitionState:
    """The record of one partition of a searched collection. An engine adds the fields that it needs itself."""

    number: int
    """The partition's number."""
    agent: str | None = None
    version: int = 0
    floor: int = 0
    """Copies that are older than this version must be read anew: their tombstones are gone."""
    count: int = 0
    """Documents that live."""
    tombstones: int = 0
    speakers: list[str] = field(default_factory=list)
    model: int = 0
    """Code of the model of all its vectors; 0: they may differ, or a document has none."""

    def written(self, collection: schema.Collection, doc: schema.Doc, model: int, *, new: bool) -> None:
        """Counts a row that was written with a vector of `model`."""
        self.count += new
        self.model = model if self.count == 1 or model == self.model else 0
        self.note_speaker(collection, doc)

    def note_speaker(self, collection: schema.Collection, doc: schema.Doc) -> None:
        speaker = schema.value_at(doc, collection.spec.speaker)
        if speaker and speaker not in self.speakers and len(self.speakers) < MAX_SPEAKERS:
            self.speakers.append(speaker)

    def removed(self) -> None:
        """Counts a row that was deleted."""
        self.count -= 1
        self.tombstones += 1
        if not self.count:
            self.speakers = []

    @property
    def worn(self) -> bool:
        """Whether the tombstones are more than the documents, so that the engine drops them."""
        return self.tombstones > max(MIN_TOMBSTONES, self.count)

    def tombstones_dropped(self) -> None:
        self.floor, self.tombstones = self.version, 0


def overview_of(states: Sequence[PartitionState]) -> search.Overview:
    speakers = dict.fromkeys(name for state in states for name in state.speakers)
    agents = dict.fromkeys(state.agent for state in states)
    return search.Overview(sum(state.count for state in states), tuple(speakers), tuple(agents))


SegmentKey: TypeAlias = tuple[int, int]
"""The number of a partition and the code of a model."""


class VersionedSegment(NamedTuple):
    """A segment, and the version of its partition that it is at."""

    segment: Segment
    version: int


class SegmentCache:
    """Maps `SegmentKey` to `VersionedSegment`. Used only from the event loop's thread."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: OrderedDict[SegmentKey, tuple[Segment, int, int]] = OrderedDict()
        self.nbytes = 0

    def get(self, key: SegmentKey, floor: int) -> VersionedSegment | None:
        """Returns a segment and its version, or None if there is none that changed rows could update.

        A segment older than `floor` cannot be updated, because tombstones were dropped.
        """
        cached = self._held.get(key)
        if cached is None or cached[0].worn or cached[1] < floor:
            return None
        self._held.move_to_end(key)
        return VersionedSegment(cached[0], cached[1])

    def put(self, key: SegmentKey, segment: Segment, version: int) -> None:
        """Stores a segment at a version, and drops the least recently used ones beyond the limit."""
        old = self._held.pop(key, None)
        size = segment.nbytes
        self.nbytes += size - (old[2] if old else 0)
        self._held[key] = (segment, version, size)
        while self.nbytes > self._max_bytes and len(self._held) > 1:
            _, (_, _, freed) = self._held.popitem(last=False)
            self.nbytes -= freed

    def update(self, key: SegmentKey, segment: Segment, version: int, rows: Sequence[record_codec.Row]) -> None:
        """Applies changed rows to the segment and stores it at the new version."""
        segment.apply(rows)
        self.put(key, segment, version)

    def drop(self, key: SegmentKey) -> None:
        """Removes the segment, if it is cached."""
        _, _, freed = self._held.pop(key, (None, 0, 0))
        self.nbytes -= freed

    def drop_partitions(self, partitions: Iterable[int]) -> None:
        """Removes the segments of the partitions, for all models."""
        gone = set(partitions)
        for key in [key for key in self._held if key[0] in gone]:
            self.drop(key)
