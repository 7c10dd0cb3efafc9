"""Segments of the pairs in use, in memory, bounded in bytes, brought up to date by difference at each search."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from app.storage.index.segment import Row, Segment

PartitionId: TypeAlias = tuple[int, int]


class SegmentCache:
    """`PartitionId`, a pair and a model → (segment, version). Used from the event loop's thread only."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: OrderedDict[PartitionId, tuple[Segment, int, int]] = OrderedDict()
        self.nbytes = 0

    def get(self, pair: PartitionId, floor: int) -> tuple[Segment, int] | None:
        """The copy of a pair and its version, unless there is none that the difference could bring up to date."""
        cached = self._held.get(pair)
        if cached is None or cached[0].worn or cached[1] < floor:
            return None
        self._held.move_to_end(pair)
        return cached[0], cached[1]

    def put(self, pair: PartitionId, segment: Segment, version: int) -> None:
        old = self._held.pop(pair, None)
        size = segment.nbytes
        self.nbytes += size - (old[2] if old else 0)
        self._held[pair] = (segment, version, size)
        while self.nbytes > self._max_bytes and len(self._held) > 1:
            _, (_, _, freed) = self._held.popitem(last=False)
            self.nbytes -= freed

    def update(self, pair: PartitionId, segment: Segment, version: int, rows: Sequence[Row]) -> None:
        segment.apply(rows)
        self.put(pair, segment, version)

    def drop(self, pair: PartitionId) -> None:
        _, _, freed = self._held.pop(pair, (None, 0, 0))
        self.nbytes -= freed

    def drop_pairs(self, pairs: Iterable[int]) -> None:
        """Their copies, of whichever model."""
        gone = set(pairs)
        for key in [key for key in self._held if key[0] in gone]:
            self.drop(key)
