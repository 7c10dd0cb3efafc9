"""Postings: the rows that contain a key. A sorted base and a short unsorted tail avoid a full sort at each append."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

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
            self._merge()

    def spread(self, keys: NDArray[np.unsignedinteger], width: int) -> tuple[NDArray[np.float32], list[int]]:
        """Returns a (keys, width) table with the count of each key in each row, and the number of rows of each key."""
        table = np.zeros((len(keys), width), np.float32)
        starts, stops = self._keys.searchsorted(keys).tolist(), self._keys.searchsorted(keys, "right").tolist()
        found = [stop - start for start, stop in zip(starts, stops, strict=True)]
        for at, (start, stop) in enumerate(zip(starts, stops, strict=True)):
            if start < stop:
                table[at][self._rows[start:stop]] = self._counts[start:stop]
        if self._tail:
            tail_keys, tail_rows, tail_counts = self._unsorted()
            for at, key in enumerate(keys):
                hit = np.flatnonzero(tail_keys == key)
                table[at, tail_rows[hit]] = tail_counts[hit]
                found[at] += len(hit)
        return table, found

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

    def _unsorted(self) -> _Entries:
        if len(self._tail) > 1:
            keys, rows, counts = zip(*self._tail, strict=True)
            self._tail = [(np.concatenate(keys), np.concatenate(rows), np.concatenate(counts))]
        return self._tail[0]

    def _merge(self) -> None:
        keys, rows, counts = self._unsorted()
        if len(self._keys):
            keys = np.concatenate((self._keys, keys))
            rows, counts = np.concatenate((self._rows, rows)), np.concatenate((self._counts, counts))
        self._keys, self._rows, self._counts = _sorted(keys, rows, counts)
        self._tail, self._tail_size = [], 0


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
