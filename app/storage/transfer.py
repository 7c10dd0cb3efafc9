"""Moves all data from one engine to another: records with their packed search rows, and checksums to verify the
copy."""

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

import orjson

from app.errors import RecalldError
from app.storage.changes import CommitConflict
from app.storage.index.record_codec import PackedRecord, at_version
from app.storage.protocol import Store
from app.storage.schema import Collection, Doc

PAGE = 200


class BackupRefused(RecalldError):
    """A backup or restore was refused. Nothing was overwritten."""


@dataclass(frozen=True, slots=True)
class Record:
    """A document and its packed record, if it has one. `place` is the position after which an export continues."""

    doc: Doc
    packed: PackedRecord | None
    place: str


@dataclass(frozen=True, slots=True)
class Counter:
    """The last value of a counter."""

    tenant: str
    name: str
    value: int


@dataclass
class Rescued:
    """What a salvage has written of one collection, and what it could not read."""

    collection: Collection
    records: int = 0
    lost: dict[int, str] = field(default_factory=dict)
    """The id of each row that cannot be read, by row number; "" if the id is not known, or if there was no such row."""
    unindexed: list[tuple[str, str]] = field(default_factory=list)
    """Tenant and id of records whose search rows cannot be read."""


@dataclass(frozen=True, slots=True)
class Salvaged:
    """The result of a salvage."""

    lost_pages: list[int]
    commits_missing: int
    """Number of acknowledged commits of which the files have nothing."""
    rescued: list[Rescued]
    all_counters: bool


class MovableStore(Store, Protocol):
    """A store that can export and load all its data. Every engine implements this."""

    async def export(self, collection: Collection, after: str | None, limit: int) -> list[Record]:
        """Returns up to `limit` records of all tenants after the position `after`, in the engine's own order.

        Records of one partition come in the order of their insertion.
        """

    async def load(self, collection: Collection, records: Sequence[Record]) -> int:
        """Inserts all of the records or none, skipping existing ids. Returns the number inserted."""

    async def backup(self, target: Path) -> int:
        """Writes a consistent copy of the store to one file. Returns its size in bytes. Raises BackupRefused."""

    async def counters(self) -> list[Counter]:
        """Returns all counters."""

    async def load_counters(self, counters: Sequence[Counter], *, only: bool = False) -> None:
        """Raises the counters to these values, and never lowers one. `only` makes them exactly these."""

    async def notes(self, new: Mapping[str, str] | None = None) -> dict[str, str]:
        """Keeps notes about the store itself under their names; an empty one goes. Returns all that it has."""


async def exported(store: MovableStore, collection: Collection) -> AsyncIterator[list[Record]]:
    """Yields all records of the collection, page by page."""
    place: str | None = None
    while page := await store.export(collection, place, PAGE):
        yield page
        place = page[-1].place


async def load_each(store: MovableStore, collection: Collection, records: Sequence[Record]) -> tuple[int, list[Record]]:
    """Loads records, one by one if some contradict others in the store. Returns how many are new, and the
    contradictory ones."""
    try:
        return await store.load(collection, records), []
    except CommitConflict:
        new, refused = 0, list[Record]()
    for record in records:
        try:
            new += await store.load(collection, [record])
        except CommitConflict:
            refused.append(record)
    return new, refused


def digest(collection: Collection, record: Record) -> bytes:
    """Returns a digest of the record, which is the same in every engine."""
    whole = blake2b(orjson.dumps(record.doc, option=orjson.OPT_SORT_KEYS), digest_size=16)
    if record.packed is not None and collection.searched is not None:
        packed = at_version(collection.searched, record.packed, 0)
        for part in (packed.head, packed.vector or b"", packed.terms, packed.facets):
            whole.update(len(part).to_bytes(4, "little"))
            whole.update(part)
    return whole.digest()


@dataclass(slots=True)
class Total:
    """The number of a tenant's records and vectors in a collection, and a checksum that does not depend on their
    order."""

    records: int = 0
    vectors: int = 0
    checksum: int = 0

    def add(self, record: Record, fingerprint: bytes) -> None:
        self.records += 1
        self.vectors += record.packed is not None and record.packed.vector is not None
        self.checksum = (self.checksum + int.from_bytes(fingerprint, "little")) % (1 << 128)


async def totals(store: MovableStore, collection: Collection) -> dict[str, Total]:
    totals_of: dict[str, Total] = defaultdict(Total)
    async for page in exported(store, collection):
        for record in page:
            totals_of[record.doc["tenant_id"]].add(record, digest(collection, record))
    return dict(totals_of)
