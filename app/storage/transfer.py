"""Moving everything from one engine to another: records with their packed search rows, and what proves it."""

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

import numpy as np
import orjson

from app.errors import RecalldError
from app.storage.index.record_codec import PackedRecord, head_dtype
from app.storage.protocol import Store
from app.storage.schema import Collection, Doc, SearchSchema

PAGE = 200


class BackupRefused(RecalldError):
    """Nothing was overwritten."""


@dataclass(frozen=True, slots=True)
class Record:
    """A document and its search row, if it has one; `place` is where an export goes on after it."""

    doc: Doc
    packed: PackedRecord | None
    place: str


@dataclass(frozen=True, slots=True)
class Counter:
    tenant: str
    name: str
    value: int


class MovableStore(Store, Protocol):
    """Every engine can hand out and take in everything."""

    async def export(self, collection: Collection, after: str | None, limit: int) -> list[Record]:
        """Records of every tenant, in an order of the engine's own; those of one pair as they were made."""
        ...

    async def load(self, collection: Collection, records: Sequence[Record]) -> int:
        """Takes in records, all or none; one whose id is there already is left alone. How many were new."""
        ...

    async def backup(self, target: Path) -> int:
        """All of it, as it was at one moment, as one file; bytes written. Raises BackupRefused."""
        ...

    async def counters(self) -> list[Counter]: ...

    async def load_counters(self, counters: Sequence[Counter]) -> None:
        """A counter never goes back."""
        ...


async def exported(store: MovableStore, collection: Collection) -> AsyncIterator[list[Record]]:
    """Everything, page by page."""
    place: str | None = None
    while page := await store.export(collection, place, PAGE):
        yield page
        place = page[-1].place


def at_version(spec: SearchSchema, packed: PackedRecord, rev: int) -> PackedRecord:
    """The row as the pair's version `rev` would have written it: versions belong to the store, not to the record."""
    head = np.frombuffer(packed.head, head_dtype(len(spec.ranges)))[0].copy()
    head["rev"] = rev
    return replace(packed, head=head.tobytes())


def digest(collection: Collection, record: Record) -> bytes:
    """The same for the same record in every engine."""
    whole = blake2b(orjson.dumps(record.doc, option=orjson.OPT_SORT_KEYS), digest_size=16)
    if record.packed is not None and collection.searched is not None:
        packed = at_version(collection.searched, record.packed, 0)
        for part in (packed.head, packed.vector or b"", packed.terms, packed.facets):
            whole.update(len(part).to_bytes(4, "little"))
            whole.update(part)
    return whole.digest()


@dataclass(slots=True)
class Total:
    """Of a tenant's records in a collection: how many, how many vectors, and a checksum that no order changes."""

    records: int = 0
    vectors: int = 0
    checksum: int = 0

    def add(self, record: Record, fingerprint: bytes) -> None:
        self.records += 1
        self.vectors += record.packed is not None and record.packed.vector is not None
        self.checksum = (self.checksum + int.from_bytes(fingerprint, "little")) % (1 << 128)


async def totals(store: MovableStore, collection: Collection) -> dict[str, Total]:
    """Tenant → total."""
    found: dict[str, Total] = defaultdict(Total)
    async for page in exported(store, collection):
        for record in page:
            found[record.doc["tenant_id"]].add(record, digest(collection, record))
    return dict(found)
