"""`recalld export`: writes a tenant to a file of lines, from any engine, for `recalld import` into any."""

from base64 import b64encode
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import orjson
import typer
from rich.console import Console
from rich.progress import Progress

from app.audit.trail import ERASED
from app.auth.keys import API_KEYS
from app.cli._common import AsJson, as_json, on_store
from app.core.clock import SystemClock, rfc3339
from app.errors import RecalldError
from app.jobs.models import JOBS, OPERATIONS, SCHEDULES
from app.jobs.operations import ENDED
from app.lifespan import COLLECTIONS
from app.memories.models import INDEXING, MOVES, PENDING
from app.retention.erasure import ERASURE_NOTES
from app.storage.index.record_codec import PackedRecord
from app.storage.schema import Collection, Doc
from app.storage.transfer import MovableStore, Record, Total, digest, exported
from app.writes.executor import IDEMPOTENCY

ArchiveLine: TypeAlias = dict[str, Any]

FORMAT = 2
"""The version of the format. Since version 2 the hash excludes tombstones, whose key is sealed again at the import."""
LEFT_OUT = {one.name for one in (API_KEYS, IDEMPOTENCY, JOBS, SCHEDULES, PENDING, MOVES, INDEXING, ERASURE_NOTES)}
"""Collections that are not exported: keys belong to one deployment, stored answers to keys and for a day, and the rest
to the service itself."""
BY_NAME = {collection.name: collection for collection in COLLECTIONS if collection.name not in LEFT_OUT}


class ArchiveRefused(RecalldError):
    """The request cannot be carried out, or not completely."""


@dataclass(slots=True)
class Sum:
    """Totals of a tenant with a hash that does not depend on the order of records, the engine or the tenant's name."""

    totals: defaultdict[str, Total] = field(default_factory=lambda: defaultdict(Total))
    counters: dict[str, int] = field(default_factory=dict)
    with_tombstones: bool = False
    """True if the hash includes tombstones, as in format 1."""

    def add(self, collection: Collection, record: Record) -> None:
        """Adds a record."""
        nameless = replace(record, doc=named(record.doc, ""))
        self.totals[collection.name].add(nameless, digest(collection, nameless))

    @property
    def records(self) -> int:
        """The number of records without tombstones."""
        return sum(total.records for name, total in self.totals.items() if name != ERASED.name)

    def hash(self) -> str:
        """Returns the hash."""
        totals = {
            name: [one.records, one.vectors, f"{one.checksum:032x}"]
            for name, one in self.totals.items()
            if name != ERASED.name or self.with_tombstones
        }
        whole = orjson.dumps([totals, self.counters], option=orjson.OPT_SORT_KEYS)
        return blake2b(whole, digest_size=16).hexdigest()


def named(doc: Doc, tenant: str) -> Doc:
    """Returns the document with another tenant."""
    return doc | {"tenant_id": tenant}


async def _records(store: MovableStore, tenant: str) -> AsyncIterator[tuple[Collection, Record]]:
    """Yields the records of a tenant without operations under way, since their queue is not exported."""
    for collection in BY_NAME.values():
        async for page in exported(store, collection):
            for record in page:
                under_way = collection is OPERATIONS and record.doc["status"] not in ENDED
                if record.doc["tenant_id"] == tenant and not under_way:
                    yield collection, record


async def summed(store: MovableStore, tenant: str) -> Sum:
    """Returns the totals of a tenant."""
    found = Sum()
    async for collection, record in _records(store, tenant):
        found.add(collection, record)
    found.counters = {one.name: one.value for one in await store.counters() if one.tenant == tenant}
    return found


# --- Export -----------------------------------------------------------------------------------------------------------


def export(
    file: Annotated[Path, typer.Argument(help="Where to; it must not be there yet.")],
    tenant: Annotated[str, typer.Option(help="Whose data.")] = "default",
    as_json_: AsJson = False,
) -> None:
    """Write everything of a tenant, vectors included, as lines of JSON; without its keys. What is written meanwhile may
    be in it or not."""
    found = on_store(lambda store: write(store, file, tenant), existing=True)
    if as_json_:
        as_json({"file": str(file), "tenant": tenant, "records": found.records, "hash": found.hash()})
    else:
        print(f"{found.records} records of {tenant}, hash {found.hash()}")


async def write(store: MovableStore, file: Path, tenant: str) -> Sum:
    """Writes the archive. Raises ArchiveRefused if the file exists or cannot be written."""
    if file.exists():  # noqa: ASYNC240 (nothing else runs here)
        raise ArchiveRefused(f"{file} is there already: an export overwrites nothing.")
    part, found = file.with_name(f"{file.name}.part"), Sum()
    try:
        with part.open("wb") as out, Progress(console=Console(stderr=True), transient=True) as progress:
            part.chmod(0o600)
            bar = progress.add_task("exporting", total=None)
            now = rfc3339(SystemClock().now())
            out.write(_line({"recalld": "tenant", "format": FORMAT, "tenant": tenant, "exported_at": now}))
            async for collection, record in _records(store, tenant):
                found.add(collection, record)
                out.write(_line({"in": collection.name, "doc": record.doc, "row": _spelled(record.packed)}))
                progress.advance(bar)
            for one in await store.counters():
                if one.tenant == tenant:
                    found.counters[one.name] = one.value
                    out.write(_line({"counter": one.name, "value": one.value}))
            out.write(_line({"end": True, "records": found.records, "hash": found.hash()}))
        part.rename(file)
    except OSError as error:
        raise ArchiveRefused(f"{file} cannot be written: {error.strerror}.") from error
    finally:
        part.unlink(missing_ok=True)
    return found


def _line(value: ArchiveLine) -> bytes:
    return orjson.dumps(value) + b"\n"


def _spelled(packed: PackedRecord | None) -> list[str | None] | None:
    if packed is None:
        return None
    parts = (packed.head, packed.vector, packed.terms, packed.facets)
    return [None if part is None else b64encode(part).decode() for part in parts]
