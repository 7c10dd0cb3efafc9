"""Partitions: their bookkeeping, which both engines do alike inside `commit`, and the cache of their segments.

Each list of changes moves the version of the partitions that it touches by one. A row of the search index carries the
version that it was written in, and a deleted row leaves a tombstone. So a process brings its copy of a partition up to
date by reading what is newer than its own version.

A record contains one vector. A migration to another model replaces it and keeps the old one beside it, so that searches
by the old model see rows as they were: an alternate vector.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from app.storage.index.record_codec import Row
from app.storage.index.segment import Segment
from app.storage.schema import Collection, Doc, value_at
from app.storage.search import ScopeOverview

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

    def written(self, collection: Collection, doc: Doc, model: int, *, new: bool) -> None:
        """Counts a row that was written with a vector of `model`."""
        self.count += new
        self.model = model if self.count == 1 or model == self.model else 0
        self.note_speaker(collection, doc)

    def note_speaker(self, collection: Collection, doc: Doc) -> None:
        speaker = value_at(doc, collection.spec.speaker)
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


def overview_of(states: Sequence[PartitionState]) -> ScopeOverview:
    """Returns the overview of a scope of these partitions."""
    speakers = dict.fromkeys(name for state in states for name in state.speakers)
    agents = dict.fromkeys(state.agent for state in states)
    return ScopeOverview(sum(state.count for state in states), tuple(speakers), tuple(agents))


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

    def update(self, key: SegmentKey, segment: Segment, version: int, rows: Sequence[Row]) -> None:
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
