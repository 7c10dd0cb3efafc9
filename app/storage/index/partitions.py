"""Partitions: their bookkeeping, which both engines do alike inside `commit`, and the cache of their segments.

Each list of changes moves the version of the partitions that it touches by one. A row of the search index carries the
version that it was written in, and a deleted row leaves a tombstone. So a process brings its copy of a partition up to
date by reading what is newer than its own version.

A record contains one vector. A migration to another model replaces it and keeps the old one beside it, so that searches
by the old model see rows as they were: an alternate vector.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np

from app.storage.index.record_codec import PackedRecord, Row, head_dtype, norms_of
from app.storage.index.segment import Segment
from app.storage.schema import Collection, Doc, SearchSchema, value_at
from app.storage.search import ScopeOverview
from app.storage.text import LONG

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


NONE = bytes(4)
AT_ONCE = 4096


@cache
def model_at(spec: SearchSchema) -> int:
    """Returns the position of the model's code in a head: four bytes."""
    return _place(spec, "model")


@cache
def flags_at(spec: SearchSchema) -> int:
    """Returns the position of the flags in a head: one byte."""
    return _place(spec, "flags")


def is_long(spec: SearchSchema, head: bytes) -> bool:
    """Returns whether the record's `vector` has several windows."""
    return bool(head[flags_at(spec)] & LONG)


def code(model: int) -> bytes:
    """Returns a model's code in the form that a head contains."""
    return model.to_bytes(4, "little")


def model_of(spec: SearchSchema, head: bytes) -> int:
    """Returns the code of the model of a head's vector."""
    at = model_at(spec)
    return int.from_bytes(head[at : at + 4], "little")


def overlaid(
    spec: SearchSchema, rows: Sequence[Row], model: int, dim: int, find: Callable[[list[int]], Mapping[int, bytes]]
) -> list[Row]:
    """Returns the rows with their alternate vectors of `model` (dimension `dim`) in place of their own, where they have
    one.

    `find` takes the ids of rows that may have an alternate vector, and returns the vectors by row.
    """
    start, fine = model_at(spec), (code(model), NONE)
    end = start + len(NONE)
    others = [row.id for row in rows if row.packed is not None and row.packed.head[start:end] not in fine]
    if not others:
        return list(rows)
    vectors = find(others)
    replaced = [row_id for row_id in others if row_id in vectors]
    norms: dict[int, bytes] = {}  # in int8 units, in the form that a head contains
    for first in range(0, len(replaced), AT_ONCE):
        part = replaced[first : first + AT_ONCE]
        windows = np.frombuffer(b"".join([vectors[row_id][:dim] for row_id in part]), np.int8)
        lengths = norms_of(windows.reshape(len(part), -1))
        norms.update(zip(part, (length.tobytes() for length in lengths), strict=True))
    length_at, mark_at = _place(spec, "norm"), flags_at(spec)

    def restored(row: Row) -> Row:
        assert row.packed is not None
        head = bytearray(row.packed.head)
        head[start:end], head[length_at : length_at + 4] = code(model), norms[row.id]
        head[mark_at] = head[mark_at] & ~LONG | LONG * (len(vectors[row.id]) > dim)
        return Row(row.id, PackedRecord(bytes(head), vectors[row.id], row.packed.terms, row.packed.facets))

    return [restored(row) if row.id in norms else row for row in rows]


@cache
def _place(spec: SearchSchema, name: str) -> int:
    fields = head_dtype(len(spec.ranges)).fields
    assert fields is not None
    return int(fields[name][1])


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
