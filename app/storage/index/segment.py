"""A segment: the searchable documents of one partition in memory, with exact search. Every exact engine uses it.

Arrays grow by doubling. If only the head of a document changed, it is overwritten in place; otherwise its entry dies
and a new one is appended. The entry of a deleted document dies. Answers leave out dead entries; a segment with many of
them is `worn`.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.storage.index.record_codec import FACET, TERM, Block, FurtherWindows, Row, head_dtype
from app.storage.index.segment_view import FADING, Masks, Postings, SegmentView, fading
from app.storage.schema import SearchSchema
from app.storage.search import Columns, Floats, Ints, Memo, SearchQuery
from app.storage.text import LONG, close_ids, name_id

JoinedParts: TypeAlias = tuple[bytes, Sequence[int]]
"""Joined parts of packed records, and the length in bytes of each."""

MIN_DEAD = 32
OWN_BYTES, ENTRY_BYTES = 8_192, 284
"""Bytes that Python uses for a segment and for each entry (its index and the arrays of its view), as measured by
tracemalloc with segments of 100 and of 20,000 entries."""
MAX_CORRECTED = 8
"""Unknown words of a query to which close ones are looked for. Each takes up to 0.3 ms."""
SLACK = 8
"""A segment just loaded has room for an eighth more, so that the next write does not copy all of it."""


class Segment:
    """The packed records of one partition for vectors of dimension `dim`, and the exact search over them."""

    def __init__(self, spec: SearchSchema, dim: int, agent: str | None = None) -> None:
        self._spec, self.dim = spec, dim
        self._agent = name_id(agent) if agent else 0
        self._size = 0
        self._dead = 0
        self._heads = np.empty(0, head_dtype(len(self._spec.ranges)))
        self._vectors = np.empty((0, self.dim), np.int8)
        self._further = FurtherWindows(self.dim)
        self._ids = np.empty(0, np.int64)
        self._alive = np.empty(0, np.bool_)
        self._links = np.empty((2, 0), np.int64)
        self._sessions = np.empty(0, np.int64)
        self._index: dict[int, int] = {}
        self._session_codes: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._terms = Postings(np.dtype("<u4"))
        self._facets = Postings(FACET)
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

    def apply(self, rows: Sequence[Row]) -> None:
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
            self._append(fresh)
        self._view = None

    def fill(self, blocks: Iterable[Block], count: int) -> None:
        """Adds all documents of an empty segment at once, which costs a fraction of `apply`.

        `count` is their approximate number.
        """
        self._grow(count)
        terms, facets = list[JoinedParts](), list[JoinedParts]()
        for block in blocks:
            self._place_all(block)
            terms.append((block.terms, block.term_lengths))
            facets.append((block.facets, block.facet_lengths))
        self._post(_join_parts(terms), _join_parts(facets), 0)
        self._link(0, self._size)
        self._view = None

    @property
    def worn(self) -> bool:
        """True if so many entries are dead that reloading the segment is better."""
        return self._dead > max(MIN_DEAD, self._size // 4)

    def _amend(self, rows: Sequence[Row]) -> list[Row]:
        """Overwrites records whose text, vector, facets and session stayed. Returns the remaining rows."""
        known = [(row, at) for row in rows if row.packed is not None and (at := self._index.get(row.id)) is not None]
        if not known:
            return list(rows)
        heads = np.frombuffer(b"".join(row.packed.head for row, _ in known if row.packed), self._heads.dtype)
        places = np.array([at for _, at in known], np.int64)
        stayed = heads["rev"] == self._heads["rev"][places]
        heads, places = heads[stayed], places[stayed]
        before = self._heads[places]
        self._heads[places] = heads
        self._note_ranges(heads["ranges"])
        if self._view is not None:
            for name in FADING:
                before[name] = heads[name]
            # an access changes only these, after each search; compared as bytes because NaN is not equal to itself
            others_stayed = before.tobytes() == heads.tobytes()
            faded = fading(self._heads[: self._size], self._view.live)
            self._view = self._view.with_columns(faded) if others_stayed else None
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

    def _append(self, rows: Sequence[Row]) -> None:
        packed = [row.packed for row in rows if row.packed is not None]
        vectors = [p.vector or b"" for p in packed]
        block = Block(
            ids=[row.id for row in rows],
            heads=b"".join([p.head for p in packed]),
            vectors=b"".join(vectors),
            terms=b"".join([p.terms for p in packed]),
            facets=b"".join([p.facets for p in packed]),
            vector_lengths=[len(vector) for vector in vectors],
            term_lengths=[len(p.terms) for p in packed],
            facet_lengths=[len(p.facets) for p in packed],
        )
        start = self._size
        self._place_all(block)
        self._post((block.terms, block.term_lengths), (block.facets, block.facet_lengths), start)
        self._link(start, self._size)

    def _place_all(self, block: Block) -> None:
        """Appends the records and vectors of the block."""
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

    def _take_vectors(self, block: Block, start: int, stop: int) -> None:
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
        words, values = np.frombuffer(terms[0], TERM), np.frombuffer(facets[0], FACET)
        rows = np.arange(start, self._size, dtype=np.int32)
        row_of = np.repeat(rows, np.asarray(terms[1], np.int64) // TERM.itemsize)
        self._terms.append(np.ascontiguousarray(words["id"]), row_of, np.ascontiguousarray(words["count"]))
        row_of = np.repeat(rows, np.asarray(facets[1], np.int64) // FACET.itemsize)
        self._facets.append(values, row_of, np.ones(len(values), np.uint8))

    def _link(self, start: int, stop: int) -> None:
        """Links neighbours in a session by ordinal: extends the session's end, or else links all anew."""
        if not start:
            self._link_first()
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
                in_order &= self._place(last) < self._place(at)
        if not in_order:
            live = np.flatnonzero(self._alive[: self._size] & (self._sessions[: self._size] >= 0))
            self._link_in(live[np.lexsort((self._ids[live], self._heads["ordinal"][live], self._sessions[live]))])

    def _link_first(self) -> None:
        """Links the entries of a segment that was empty, without a loop."""
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

    def _place(self, at: int) -> tuple[int, int]:
        """Returns the sort key in a session: the ordinal, then the order of insertion."""
        return int(self._heads[at]["ordinal"]), int(self._ids[at])

    def _link_in(self, order: Ints) -> None:
        """Rebuilds all links.

        `order` are the entries that have a session, with those of one session in consecutive positions.
        """
        self._links[:, : self._size] = -1
        same = self._sessions[order[:-1]] == self._sessions[order[1:]]
        self._links[1, order[:-1][same]] = order[1:][same]
        self._links[0, order[1:][same]] = order[:-1][same]
        self._last = dict(zip(self._sessions[order].tolist(), order.tolist(), strict=True))

    # --- Searching ----------------------------------------------------------------------------------------------------

    def columns(self, query: SearchQuery) -> Columns:
        """Returns the columns of the live entries for the query."""
        view = self._view = self._view or self._new_view()
        term_counts, frequencies = self._terms.spread(query.terms, self._size)
        df = np.array(frequencies, np.float32)
        cosine, has_vector = view.cosine(query, self._vectors[: self._size])
        matched = view.masks.matched(query.where)
        vectors = view.own_vectors(query, self._vectors[: self._size]) if query.vectors else None
        if view.live is not None:
            term_counts, cosine, has_vector, matched = (
                term_counts[:, view.live],
                cosine[view.live],
                has_vector[view.live],
                matched[view.live],
            )
            df = np.add.reduce(term_counts != 0, axis=1, dtype=np.float32)
        return Columns(
            **view.columns,
            matched=matched,
            cosine=cosine,
            has_vector=has_vector,
            term_counts=term_counts,
            df=df,
            vectors=vectors,
            close=self._close_terms(query, df) if query.spelled else {},
        )

    def _close_terms(self, query: SearchQuery, df: Floats) -> dict[int, dict[int, int]]:
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
        links, at = self._links[:, :n], slice(None) if live is None else live
        if live is not None:
            place = np.full(n + 1, -1, np.int64)
            place[live] = np.arange(len(live))
            links = place[links[:, live]]
        length = heads["length"][at].astype(np.float32)
        norm = heads["norm"].copy()
        return SegmentView(
            live=live,
            model=heads["model"].copy(),
            per_norm=np.divide(1, norm, out=np.zeros_like(norm), where=norm > 0),
            masks=Masks(self._spec, self._facets, heads["ranges"], self._empty),
            further=self._further.result,
            columns={
                "rows": self._ids[:n][at].copy(),
                "length": length,
                "count": len(length),
                "mean_length": float(length.sum(dtype=np.float64)) / max(1, len(length)),
                "previous": links[0].copy(),
                "following": links[1].copy(),
                "session": self._sessions[:n][at].copy(),
                "speaker": heads["speaker"][at].astype(np.int64),
                "time": heads["time"][at].copy(),
                "flags": heads["flags"][at].astype(np.int64),
                **fading(heads, live),
                "agent": np.full(len(length), self._agent, np.int64),
                "content": heads["content"][at].copy(),
                "derived": Memo(),
            },
        )


def _join_parts(parts: list[JoinedParts]) -> JoinedParts:
    """Joins the parts of several blocks into one."""
    return b"".join([joined for joined, _ in parts]), [length for _, lengths in parts for length in lengths]
