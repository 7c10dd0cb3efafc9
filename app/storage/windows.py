"""Vectors of long texts: one for each window. The window nearest to the query counts.

A record stores the vectors one after the other, as int8, followed by one byte with their number. The byte exists only
if there are several vectors, which the record's flag `LONG` says; most records are just as long as their one vector.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import simsimd
from numpy.typing import NDArray

from app.storage.search import Bools, Floats, Ints


def joined(windows: Sequence[bytes]) -> bytes:
    """Returns the `vector` field of a record whose windows have these vectors (at least one, all of equal length)."""
    if len(windows) == 1:
        return windows[0]
    return b"".join(windows) + bytes((len(windows),))


def parted(vector: bytes, *, long: bool) -> tuple[bytes, bytes]:
    """Splits a record's `vector` field into the vector of the first window and those of the further ones."""
    if not long:
        return vector, b""
    dim = (len(vector) - 1) // vector[-1]
    return vector[:dim], vector[dim:-1]


def holds_windows(length: int, last: int) -> bool:
    """Returns whether a `vector` field of this length and last byte can contain several windows."""
    return last > 1 and length > last and not (length - 1) % last


def norms_of(vectors: NDArray[np.int8]) -> Floats:
    """Returns the lengths of the vectors (n, dim), in int8 units."""
    norms: Floats = np.linalg.norm(vectors.astype(np.float32), axis=1)
    return norms


@dataclass(frozen=True, slots=True)
class Further:
    """The windows after the first, of some entries.

    `vectors` (m, dim) has the windows of one entry in consecutive rows; `per_norm` (m,) is 1 / their lengths. `entries`
    (k,) are the entries, each once; `starts` (k,) is the first row of each.
    """

    vectors: NDArray[np.int8]
    per_norm: Floats
    entries: Ints
    starts: Ints

    def raise_to_best(self, cosine: Floats, wanted: NDArray[np.int8], scale: np.float32, has_vector: Bools) -> None:
        """Raises the cosine of each entry to that of its best window, in place.

        Entries without a vector of the query's model keep theirs, which is 0.
        """
        dots = simsimd.cdist(wanted, self.vectors, metric="dot", out_dtype="float32")
        each = np.asarray(dots)[0] * self.per_norm
        each *= scale
        best = np.maximum.reduceat(each, self.starts)
        best *= has_vector[self.entries]
        cosine[self.entries] = np.maximum(cosine[self.entries], best)


class FurtherWindows:
    """Collects further windows as entries are added. Nothing is removed."""

    def __init__(self, dim: int) -> None:
        self._vectors = np.empty((0, dim), np.int8)
        self._size = 0
        self._entries: list[int] = []
        self._starts: list[int] = []
        self._made: Further | None = None

    @property
    def nbytes(self) -> int:
        return int(self._vectors.nbytes) + 4 * len(self._vectors) + 80 * len(self._entries)

    def add(self, entry: int, vectors: NDArray[np.int8]) -> None:
        """Adds the further windows (at least one) of an entry that has none yet."""
        end = self._size + len(vectors)
        if end > len(self._vectors):
            old = self._vectors
            self._vectors = np.empty((max(end, 2 * len(old)), old.shape[1]), np.int8)
            self._vectors[: self._size] = old[: self._size]
        self._vectors[self._size : end] = vectors
        self._entries.append(entry)
        self._starts.append(self._size)
        self._size, self._made = end, None

    @property
    def result(self) -> Further | None:
        """The collected windows as a query needs them; None if there are none."""
        if self._made is None and self._size:
            vectors = self._vectors[: self._size]
            norms = norms_of(vectors)
            per_norm = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
            self._made = Further(vectors, per_norm, np.array(self._entries, np.int64), np.array(self._starts, np.int64))
        return self._made
