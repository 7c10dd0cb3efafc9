"""`recalld migrate`: copies everything from the store of the settings to another one."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.progress import Progress

from app.cli._common import AsJson, as_json, table
from app.errors import RecalldError
from app.lifespan import COLLECTIONS, open_store
from app.settings import Settings
from app.storage.schema import Collection
from app.storage.transfer import MovableStore, Total, digest, exported, totals

MigrationReport: TypeAlias = list[dict[str, Any]]
ShowProgress: TypeAlias = Callable[[int], None]


class MigrationRefused(RecalldError):
    """The migration was refused or failed. Nothing was overwritten, and the source is unchanged."""


def migrate(
    to: Annotated[
        str,
        typer.Option(envvar="RECALLD_MIGRATE_TO", help="Where to: a mongodb:// or mongodb+srv:// URI, or `embedded`."),
    ],
    as_json_: AsJson = False,
) -> None:
    """Copy everything to another store, vectors included, and prove it. Stop the service first; run again to go on
    after an interruption. The source is left as it is."""
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
        raise MigrationRefused(f"The copies differ in {wrong}: was the service stopped? Run this again.")


async def _migrate(to: str) -> MigrationReport:
    settings = Settings()
    if to == settings.store.get_secret_value():
        raise MigrationRefused("Source and target are the same store.")
    source = await open_store(settings, dim=1)
    try:
        target = await open_store(settings, dim=1, elsewhere=to)
        try:
            return await move(source, target)
        finally:
            await target.close()
    finally:
        await source.close()


async def move(source: MovableStore, target: MovableStore) -> MigrationReport:
    """Copies all collections and compares the stores. Raises MigrationRefused if the target contains other data."""
    sizes = {collection.name: await source.count(collection, None) for collection in COLLECTIONS}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("looking at the target", total=None)
        begun = [collection for collection in COLLECTIONS if await target.count(collection, None)]
        for collection in begun:
            await _refuse_others(source, target, collection)
        progress.update(bar, description="copying", total=sum(sizes.values()), completed=0)
        for collection in COLLECTIONS:
            await _copy(source, target, collection, lambda number: progress.advance(bar, number))
        await target.load_counters(await source.counters())
        progress.update(bar, description="comparing", completed=0)
        report: MigrationReport = []
        for collection in COLLECTIONS:
            report += _compared(collection, await totals(source, collection), await totals(target, collection))
            progress.advance(bar, sizes[collection.name])
    return [*report, await _counters(source, target)]


async def _refuse_others(source: MovableStore, target: MovableStore, collection: Collection) -> None:
    """Raises MigrationRefused unless all records in the target are copies from an earlier run."""
    ours = {digest(collection, record) async for page in exported(source, collection) for record in page}
    async for page in exported(target, collection):
        for record in page:
            if digest(collection, record) not in ours:
                raise MigrationRefused(
                    f"The target holds other data ({collection.name}): choose an empty database "
                    "(RECALLD_MONGODB_DATABASE) or another directory."
                )


async def _copy(source: MovableStore, target: MovableStore, collection: Collection, seen: ShowProgress) -> None:
    async for page in exported(source, collection):
        await target.load(collection, page)
        seen(len(page))


def _compared(collection: Collection, before: dict[str, Total], after: dict[str, Total]) -> MigrationReport:
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


async def _counters(source: MovableStore, target: MovableStore) -> dict[str, Any]:
    before = {(one.tenant, one.name): one.value for one in await source.counters()}
    after = {(one.tenant, one.name): one.value for one in await target.counters()}
    same = before == after
    return {"collection": "counters", "tenant": "", "records": len(after), "vectors": 0, "checksum": "-", "same": same}
