"""`recalld export` writes a tenant to a file of lines, from any engine; `recalld import` loads a user's export."""

import asyncio
from base64 import b64encode
from collections import defaultdict
from collections.abc import AsyncIterator, Container
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, TypeAlias

import orjson
import typer
from rich.console import Console
from rich.progress import Progress

from app.audit.tombstones import ErasureKey, Tombstones
from app.audit.trail import ERASED, Actor
from app.auth.keys import API_KEYS, COMMAND_LINE
from app.cli._common import SOME_LEFT_OUT, AsJson, as_json, on_store, opened_embedder, opened_store, table_of
from app.core.clock import SystemClock, rfc3339
from app.core.schemas import TENANT, TENANT_RULE, Json
from app.embedding.embedder import Embedder
from app.errors import RecalldError
from app.jobs.models import JOBS, OPERATIONS, SCHEDULES
from app.jobs.queue import ENDED
from app.lifespan import COLLECTIONS, EMBEDDABLE
from app.memories.embedding import PENDING
from app.memories.reembed import MOVES
from app.retention.erasure import ERASURE_NOTES
from app.retention.user_export import UserImport, UserReport, begins_user_export
from app.settings import Settings
from app.storage.index.record_codec import PackedRecord
from app.storage.schema import Collection, Doc
from app.storage.transfer import MovableStore, Record, Total, digest, exported
from app.writes.executor import IDEMPOTENCY

ArchiveLine: TypeAlias = Json

FORMAT = 1
"""The version of the format. The hash excludes tombstones, whose key is sealed again at the import."""
LEFT_OUT = {collection.name for collection in (API_KEYS, IDEMPOTENCY, JOBS, SCHEDULES, PENDING, MOVES, ERASURE_NOTES)}
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
            name: [total.records, total.vectors, f"{total.checksum:032x}"]
            for name, total in self.totals.items()
            if name != ERASED.name
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


async def summed(store: MovableStore, tenant: str, wanted: Container[str]) -> Sum:
    """Returns the totals of those records (`memories mem_01a2…`) and counters of a tenant that are wanted."""
    total = Sum()
    async for collection, record in _records(store, tenant):
        if f"{collection.name} {record.doc[collection.id_field]}" in wanted:
            total.add(collection, record)
    counters = [counter for counter in await store.counters() if counter.tenant == tenant]
    total.counters = {one.name: one.value for one in counters if one.name in wanted}
    return total


# --- Export -----------------------------------------------------------------------------------------------------------


def export(
    file: Annotated[Path, typer.Argument(help="Where to; it must not be there yet.")],
    tenant: Annotated[str, typer.Option(help="Whose data.")] = "default",
    as_json_: AsJson = False,
) -> None:
    """Write everything of a tenant, vectors included, as lines of JSON; without its keys. What is written meanwhile may
    be in it or not."""
    total = on_store(lambda store: write(store, file, tenant), existing=True)
    if as_json_:
        as_json({"file": str(file), "tenant": tenant, "records": total.records, "hash": total.hash()})
    else:
        print(f"{total.records} records of {tenant}, hash {total.hash()}")


async def write(store: MovableStore, file: Path, tenant: str) -> Sum:
    """Writes the archive. Raises ArchiveRefused if the file exists or cannot be written."""
    if file.exists():  # noqa: ASYNC240 (nothing else runs here)
        raise ArchiveRefused(f"{file} is there already: an export overwrites nothing.")
    part, total = file.with_name(f"{file.name}.part"), Sum()
    try:
        with part.open("wb") as out, Progress(console=Console(stderr=True), transient=True) as progress:
            part.chmod(0o600)
            bar = progress.add_task("exporting", total=None)
            now = rfc3339(SystemClock().now())
            out.write(_line({"recalld": "tenant", "format": FORMAT, "tenant": tenant, "exported_at": now}))
            async for collection, record in _records(store, tenant):
                total.add(collection, record)
                out.write(_line({"in": collection.name, "doc": record.doc, "row": _spelled(record.packed)}))
                progress.advance(bar)
            for counter in await store.counters():
                if counter.tenant == tenant:
                    total.counters[counter.name] = counter.value
                    out.write(_line({"counter": counter.name, "value": counter.value}))
            out.write(_line({"end": True, "records": total.records, "hash": total.hash()}))
        part.rename(file)
    except OSError as error:
        raise ArchiveRefused(f"{file} cannot be written: {error.strerror}.") from error
    finally:
        part.unlink(missing_ok=True)
    return total


def _line(value: ArchiveLine) -> bytes:
    return orjson.dumps(value) + b"\n"


def _spelled(packed: PackedRecord | None) -> list[str | None] | None:
    if packed is None:
        return None
    parts = (packed.head, packed.vector, packed.terms, packed.facets)
    return [None if part is None else b64encode(part).decode() for part in parts]


SHOWN = 20
DEFAULT_TENANT = "default"


def is_user_export(file: Path) -> bool:
    """Returns True if the file is a user's export. Raises ArchiveRefused if it cannot be read."""
    try:
        with file.open("rb") as lines:
            return begins_user_export(lines.readline())
    except OSError as error:
        raise ArchiveRefused(f"{file} cannot be read: {error.strerror}.") from error


def import_user(file: Path, tenant: str | None, *, restore_erased: bool, as_json_: bool) -> None:
    """Imports a user and prints a report. Raises ArchiveRefused if not every record was imported."""
    report = asyncio.run(_import(Settings(), file, tenant or DEFAULT_TENANT, restore_erased=restore_erased))
    _show(report, as_json_=as_json_)
    if report.erased:
        raise ArchiveRefused(
            f"{report.user_id} was erased from {report.tenant}: none of {report.erased} records came in. "
            "To bring this user back on purpose, give --restore-erased."
        )
    if report.bad:
        raise ArchiveRefused(f"{len(report.bad)} lines were not taken in: the first is line {report.bad[0][0]}.")
    if report.taken:
        raise typer.Exit(SOME_LEFT_OUT)


async def _import(settings: Settings, file: Path, tenant: str, *, restore_erased: bool) -> UserReport:
    if not TENANT.fullmatch(tenant):
        raise ArchiveRefused(f"A tenant's name {TENANT_RULE}.")
    async with (
        opened_embedder(settings) as embedder,
        opened_store(settings, embedder.dim) as store,
    ):
        return await read_user(store, embedder, file, tenant, ErasureKey.of(settings), restore_erased=restore_erased)


async def read_user(
    store: MovableStore, embedder: Embedder, file: Path, tenant: str, key: ErasureKey, *, restore_erased: bool = False
) -> UserReport:
    """Imports a user's export. Raises NoUserExport, ErasureKeyUnavailable, StoreUnavailable, and ArchiveRefused if the
    file cannot be read."""
    report, clock = UserReport(tenant), SystemClock()
    tombstones = Tombstones(store, tenant, key)
    taking = UserImport(
        store, embedder, clock, tombstones, COLLECTIONS, EMBEDDABLE, report, restore_erased=restore_erased
    )
    try:
        with file.open("rb") as lines, Progress(console=Console(stderr=True), transient=True) as progress:
            bar = progress.add_task("importing", total=file.stat().st_size)  # noqa: ASYNC240
            for line in lines:
                await taking.take(line)
                progress.advance(bar, len(line))
    except OSError as error:
        raise ArchiveRefused(f"{file} cannot be read: {error.strerror}.") from error
    return await taking.end(Actor(tenant, COMMAND_LINE, "import_user"))


def _show(report: UserReport, *, as_json_: bool) -> None:
    if as_json_:
        numbers = {name: getattr(report, name) for name in ("lines", "new", "there", "taken", "left", "pending")}
        erased = {report.user_id: report.erased} if report.erased else {}
        bad = [{"line": number, "detail": detail} for number, detail in report.bad]
        as_json(
            {"ok": report.ok, "tenant": report.tenant, "user_id": report.user_id, **numbers}
            | {"erased": erased, "bad": bad}
        )
        return
    print(f"{report.new} new records of {report.user_id} in {report.tenant}, from {report.lines} lines")
    if report.there:
        print(f"{report.there} records of {report.user_id} were there already.")
    if report.taken:
        print(f"{report.taken} records were left out: others have their ids.")
    if report.left:
        print(f"{report.left} operations that were under way were left out.")
    if report.pending:
        print(f"{report.pending} records wait for their vectors: the service embeds them.")
    table_of(("line", "what is wrong"), [(str(number), detail) for number, detail in report.bad[:SHOWN]])
