"""The bookkeeping of a partition, which both engines do in the same way inside `commit`.

Each list of changes moves the version of the partitions that it touches by one. A row of the search index carries the
version that it was written in, and a deleted row leaves a tombstone. So a process brings its copy of a partition up to
date by reading what is newer than its own version.
"""

from dataclasses import dataclass, field

from app.storage.alternate_vectors import model_of_pair
from app.storage.filters import value_at
from app.storage.schema import Collection, Doc

MAX_SPEAKERS = 64
MIN_TOMBSTONES = 64


@dataclass(slots=True, kw_only=True)
class PartitionState:
    """The record of one partition of a searched collection. An engine adds the fields that it needs itself."""

    pair: int
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
        self.model = model_of_pair(self.model, model, self.count)
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
