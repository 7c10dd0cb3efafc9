"""A cache of the segments in use, bounded in bytes. Searches update its segments with the rows that changed."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from app.storage.index.rows import Row
from app.storage.index.segment import Segment

PartitionId: TypeAlias = tuple[int, int]
"""The number of a partition and the code of a model."""


class SegmentCache:
    """Maps `PartitionId` to a segment and its version. Used only from the event loop's thread."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: OrderedDict[PartitionId, tuple[Segment, int, int]] = OrderedDict()
        self.nbytes = 0

    def get(self, pair: PartitionId, floor: int) -> tuple[Segment, int] | None:
        """Returns a segment and its version, or None if there is none that changed rows could update.

        A segment older than `floor` cannot be updated, because tombstones were dropped.
        """
        cached = self._held.get(pair)
        if cached is None or cached[0].worn or cached[1] < floor:
            return None
        self._held.move_to_end(pair)
        return cached[0], cached[1]

    def put(self, pair: PartitionId, segment: Segment, version: int) -> None:
        """Stores a segment at a version, and drops the least recently used ones beyond the limit."""
        old = self._held.pop(pair, None)
        size = segment.nbytes
        self.nbytes += size - (old[2] if old else 0)
        self._held[pair] = (segment, version, size)
        while self.nbytes > self._max_bytes and len(self._held) > 1:
            _, (_, _, freed) = self._held.popitem(last=False)
            self.nbytes -= freed

    def update(self, pair: PartitionId, segment: Segment, version: int, rows: Sequence[Row]) -> None:
        """Applies changed rows to the segment and stores it at the new version."""
        segment.apply(rows)
        self.put(pair, segment, version)

    def drop(self, pair: PartitionId) -> None:
        """Removes the segment, if it is cached."""
        _, _, freed = self._held.pop(pair, (None, 0, 0))
        self.nbytes -= freed

    def drop_pairs(self, pairs: Iterable[int]) -> None:
        """Removes the segments of the partitions, for all models."""
        gone = set(pairs)
        for key in [key for key in self._held if key[0] in gone]:
            self.drop(key)
