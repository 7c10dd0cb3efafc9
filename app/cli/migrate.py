"""Commands that move a whole store: `migrate` to MongoDB, `reembed` to another embedding model."""

import asyncio
import secrets
import time
from collections.abc import Sequence
from hashlib import blake2b
from itertools import islice
from typing import Annotated, TypedDict

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from app.cli._common import AsJson, as_json, opened_embedder, opened_store, table
from app.core.clock import SystemClock, rfc3339
from app.embedding.embedder import Embedder
from app.embedding.factory import AUTO
from app.errors import RecalldError
from app.lifespan import COLLECTIONS, EMBEDDABLE, with_model
from app.memories.reembed import Reembed, whole
from app.settings import Settings
from app.storage.changes import Delete
from app.storage.protocol import Store
from app.storage.schema import Collection
from app.storage.transfer import PAGE, MovableStore, Record, Total, digest, exported, load_each, totals

ORIGIN_NOTE, COPY_NOTE = "migration origin", "migration copy"
"""Notes of a store: the id by which its copies know it; of which store it is a copy, and a digest of what the last run
left in it."""
EMPTY_ONE = "Choose an empty database (RECALLD_MONGODB_DATABASE) or another directory."


class MigratedRow(TypedDict):
    """What was copied of a collection and a tenant, and whether the source had the same."""

    collection: str
    tenant: str
    records: int
    vectors: int
    checksum: str
    same: bool


class MigrationRefused(RecalldError):
    """The migration was refused or failed. Nothing was overwritten, and the source is unchanged."""


def migrate(
    to: Annotated[
        str,
        typer.Option(envvar="RECALLD_MIGRATE_TO", help="Where to: a mongodb:// or mongodb+srv:// URI, or `embedded`."),
    ],
    as_json_: AsJson = False,
) -> None:
    """Copy everything to another store, vectors included, and prove it. Stop the service first; or run it once while
    the service writes, and again after it is stopped: the second run brings what was added, changed and deleted since.
    The records of the source are left as they are."""
    report = asyncio.run(_migrate(to))
    whole = all(row["same"] for row in report)
    if as_json_:
        as_json({"ok": whole, "collections": report})
    else:
        rows = [
            (r["collection"], r["tenant"] or "(the service's own)", str(r["records"]), str(r["vectors"]), r["checksum"])
            for r in report
        ]
        table(("collection", "tenant", "records", "vectors", "checksum"), rows)
    if not whole:
        wrong = ", ".join(sorted({row["collection"] for row in report if not row["same"]}))
        raise MigrationRefused(f"The copies differ in {wrong}: was the service stopped? Stop it, and run this again.")


async def _migrate(to: str) -> list[MigratedRow]:
    settings = Settings()
    if to == settings.store.get_secret_value():
        raise MigrationRefused("Source and target are the same store.")
    async with opened_store(settings, existing=True) as source, opened_store(settings, elsewhere=to) as target:
        return await migrate_store(source, target)


async def migrate_store(source: MovableStore, target: MovableStore) -> list[MigratedRow]:
    """Makes the target the same as the source and compares them. Raises MigrationRefused if the target contains other
    data, or was used since it was copied.

    The source may be written to meanwhile: the report then says what differs, and the next run brings it.
    """
    origin = await _origin(source)
    sizes = {collection.name: await source.count(collection, None) for collection in COLLECTIONS}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("looking at the target", total=None)
        begun = [collection for collection in COLLECTIONS if await target.count(collection, None)]
        if begun:
            await _refuse_used(source, target, begun, origin)
        await target.notes({COPY_NOTE: ""})
        progress.update(bar, description="copying", total=sum(sizes.values()), completed=0)
        for collection in begun:
            await _remove_changed(source, target, collection)
        for collection in COLLECTIONS:
            async for page in exported(source, collection):
                # what conflicts with a record that changed meanwhile is left to the next run
                await load_each(target, collection, page)
                progress.advance(bar, len(page))
        await target.load_counters(await source.counters(), only=True)
        progress.update(bar, description="comparing", completed=0)
        report: list[MigratedRow] = []
        copied: dict[str, dict[str, Total]] = {}
        for collection in COLLECTIONS:
            copied[collection.name] = await totals(target, collection)
            report += _compared(collection, await totals(source, collection), copied[collection.name])
            progress.advance(bar, sizes[collection.name])
    await target.notes({COPY_NOTE: f"{origin} {_fingerprint(copied)}"})
    before = {(counter.tenant, counter.name): counter.value for counter in await source.counters()}
    after = {(counter.tenant, counter.name): counter.value for counter in await target.counters()}
    counters: MigratedRow = {
        "collection": "counters",
        "tenant": "",
        "records": len(after),
        "vectors": 0,
        "checksum": "-",
        "same": before == after,
    }
    return [*report, counters]


async def _origin(source: MovableStore) -> str:
    """Returns the id under which copies remember the source; it is made at its first migration."""
    known = (await source.notes()).get(ORIGIN_NOTE)
    if known is None:
        known = secrets.token_hex(16)
        await source.notes({ORIGIN_NOTE: known})
    return known


def _fingerprint(copied: dict[str, dict[str, Total]]) -> str:
    """Returns a digest of what a store holds. It changes with every record."""
    described = [
        (name, sorted((tenant, total.records, total.vectors, total.checksum) for tenant, total in tenants.items()))
        for name, tenants in sorted(copied.items())
    ]
    return blake2b(repr(described).encode(), digest_size=16).hexdigest()


async def _refuse_used(source: MovableStore, target: MovableStore, begun: Sequence[Collection], origin: str) -> None:
    """Raises MigrationRefused unless the target is as an earlier run from this source left it.

    A run that was cut short left no note: then every record must be one of the source's.
    """
    noted = (await target.notes()).get(COPY_NOTE)
    if noted is None:
        for collection in begun:
            await _refuse_others(source, target, collection)
        return
    of, _, left = noted.partition(" ")
    if of != origin:
        raise MigrationRefused(f"The target holds a copy of another store. {EMPTY_ONE}")
    copied = {collection.name: await totals(target, collection) for collection in COLLECTIONS}
    if _fingerprint(copied) != left:
        raise MigrationRefused(
            "The target holds other data: it was written to since it was copied, and those writes would be lost. "
            f"{EMPTY_ONE}"
        )


async def _refuse_others(source: MovableStore, target: MovableStore, collection: Collection) -> None:
    """Raises MigrationRefused unless all records in the target are copies of records in the source."""
    ours = {digest(collection, record) async for page in exported(source, collection) for record in page}
    async for page in exported(target, collection):
        if any(digest(collection, record) not in ours for record in page):
            raise MigrationRefused(
                f"The target holds other data ({collection.name}), or an earlier run was cut short and the source has "
                f"changed since. {EMPTY_ONE}"
            )


async def _remove_changed(source: MovableStore, target: MovableStore, collection: Collection) -> None:
    """Deletes copies that differ from their record in the source, or have none there any more. The changed ones are
    copied anew; all are deleted first, because a new record may have the unique key of an old one."""
    there = {
        _key(collection, record): digest(collection, record)
        async for page in exported(target, collection)
        for record in page
    }
    async for page in exported(source, collection):
        for record in page:
            if there.get(_key(collection, record)) == digest(collection, record):
                del there[_key(collection, record)]
    gone = iter(there)
    while group := list(islice(gone, PAGE)):
        await target.commit([Delete(collection, tenant, doc_id) for tenant, doc_id in group])


def _key(collection: Collection, record: Record) -> tuple[str, str]:
    return record.doc["tenant_id"], str(record.doc[collection.id_field])


def _compared(collection: Collection, before: dict[str, Total], after: dict[str, Total]) -> list[MigratedRow]:
    return [
        {
            "collection": collection.name,
            "tenant": tenant,
            "records": after.get(tenant, Total()).records,
            "vectors": after.get(tenant, Total()).vectors,
            "checksum": f"{after.get(tenant, Total()).checksum:032x}",
            "same": before.get(tenant) == after.get(tenant),
        }
        for tenant in sorted({*before, *after})
    ]


class ReembeddedRow(TypedDict):
    """The vectors of a collection: of the new model, none yet, of another model, and old ones that stay."""

    collection: str
    records: int
    vectors: int
    pending: int
    left: int
    kept: int


class ReembedReport(TypedDict):
    """What came of `reembed`."""

    ok: bool
    model: str
    dim: int
    embedded: int
    seconds: float
    dropped: int
    collections: list[ReembeddedRow]


PATIENCE_SECONDS = 90.0
"""Longer than MongoDB keeps the records of a transaction whose process was killed."""


class ReembeddingIncomplete(RecalldError):
    """Some records have no vector of the new model. Finished work stays, and all records can still be
    found as before."""


def reembed(
    model: Annotated[
        str | None,
        typer.Option(help="Model to move to, spelled as RECALLD_EMBEDDING_MODEL, which is the default."),
    ] = None,
    drop_old: Annotated[
        bool,
        typer.Option("--drop-old", help="Then forget the vectors of other models: once no process searches by them."),
    ] = False,
    as_json_: AsJson = False,
) -> None:
    """Embed everything with another model, and count it. Services may run meanwhile, with the old model, whose vectors
    stay until they are dropped. Run it again to go on after an interruption; then start the services with the new
    model."""
    settings = Settings()
    wanted = model or settings.embedding.model
    report = asyncio.run(_reembed(with_model(settings, wanted), drop_old=drop_old))
    if as_json_:
        as_json(report)
    else:
        rows = [[str(value) for value in row.values()] for row in report["collections"]]
        table(("collection", "records", "in the new model", "without", "in another", "old ones kept"), rows)
        print(f"{report['embedded']} records embedded with {report['model']} in {report['seconds']} s")
    if not report["ok"]:
        missing = sum(row["pending"] + row["left"] for row in report["collections"])
        raise ReembeddingIncomplete(
            f"{missing} records have no vector of {report['model']}: written meanwhile, or refused by the model. "
            "Run this again."
        )
    if wanted != settings.embedding.model:
        Console(stderr=True).print(f"Now start every process with RECALLD_EMBEDDING_MODEL={wanted}", soft_wrap=True)
    elif wanted == AUTO:
        Console(stderr=True).print("Now start every process again.", soft_wrap=True)


async def _reembed(settings: Settings, *, drop_old: bool) -> ReembedReport:
    # the store's dimension stays 1: nothing is searched here, and no search index is made yet
    async with opened_embedder(settings) as embedder, opened_store(settings, existing=True) as store:
        return await reembed_store(store, embedder, drop_old=drop_old)


async def reembed_store(store: Store, embedder: Embedder, *, drop_old: bool = False) -> ReembedReport:
    """Embeds all records with the embedder's model and returns the report. Raises EmbeddingUnavailable."""
    work = Reembed(store, embedder, EMBEDDABLE, patience=PATIENCE_SECONDS)
    await work.begin(rfc3339(SystemClock().now()))
    before = await work.counts()
    started, done = time.perf_counter(), 0
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        total = sum(count.records for count in before.values())
        bar = progress.add_task("embedding", total=total, completed=sum(count.of_model for count in before.values()))

        def seen(number: int) -> None:
            nonlocal done
            done += number
            progress.advance(bar, number)

        counts = await work.run(seen)
    seconds = time.perf_counter() - started
    dropped = await work.drop_previous_vectors() if drop_old and whole(counts) else 0
    return {
        "ok": whole(counts),
        "model": embedder.name,
        "dim": embedder.dim,
        "embedded": done,
        "seconds": round(seconds, 3),
        "dropped": dropped,
        "collections": [
            {
                "collection": name,
                "records": count.records,
                "vectors": count.of_model,
                "pending": count.without,
                "left": count.others,
                "kept": 0 if dropped else count.alternates,
            }
            for name, count in counts.items()
        ],
    }
