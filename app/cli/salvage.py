"""`recalld salvage`: writes what can be read of a damaged store into a new one, and lists what cannot."""

import asyncio
import shutil
from pathlib import Path
from typing import Annotated

import typer

from app.audit.tombstones import FILE_NAME as ERASURE_KEY
from app.auth.dependencies import FILE_NAME as KEYS_MADE
from app.cli._common import AsJson, as_json, opened_store, table
from app.core.clock import SystemClock, rfc3339
from app.errors import RecalldError
from app.lifespan import COLLECTIONS, EMBEDDABLE
from app.memories.embedding import Embeddable, pending_note
from app.memories.schemas import NOT_EMBEDDED, EmbeddingInfo
from app.settings import Settings
from app.storage.changes import IndexEntry, Update
from app.storage.factory import require_unused, salvage_store, where_of
from app.storage.protocol import Store
from app.storage.transfer import Rescued, Salvaged

KEPT_FILES = (ERASURE_KEY, KEYS_MADE)
SHOWN = 20


class SalvageRefused(RecalldError):
    """The salvage was refused. Nothing was written."""


def salvage(
    to: Annotated[Path, typer.Option(help="A new directory for the store that is written.")], as_json_: AsJson = False
) -> None:
    """Write what can be read of the damaged store in RECALLD_DATA_DIR into a new store, and list what cannot. Stop
    every service of the store first; its files are not changed. Exit code 1 if something cannot be read."""
    settings = Settings()
    result = asyncio.run(_salvage(settings, to))
    if as_json_:
        as_json(_report(result))
    else:
        _show(result, to)
    if _incomplete(result):
        raise typer.Exit(1)


async def _salvage(settings: Settings, to: Path) -> Salvaged:
    if to.exists() and any(to.iterdir()):  # noqa: ASYNC240
        raise SalvageRefused(f"{to} is not empty: salvage into a new directory.")
    where = where_of(settings)
    where.require_existing()
    require_unused(where)
    async with opened_store(settings.model_copy(update={"data_dir": to})) as target:
        result = await salvage_store(where, COLLECTIONS, to, target)
        for kind in EMBEDDABLE:
            for rescue in result.rescued:
                if rescue.collection is kind.collection:
                    await _index(target, kind, rescue)
    for name in KEPT_FILES:
        if (settings.data_dir / name).exists():
            shutil.copy2(settings.data_dir / name, to / name)
    return result


async def _index(store: Store, kind: Embeddable, rescue: Rescued) -> None:
    """Makes search entries for records that have lost theirs. The service embeds them after its start."""
    now = rfc3339(SystemClock().now())
    for tenant, doc_id in rescue.unindexed:
        record = await store.get(kind.collection, tenant, doc_id)
        if record is None:
            continue
        stored: EmbeddingInfo | None = record.get("embedding")
        embedding: EmbeddingInfo = {**(stored or NOT_EMBEDDED), "status": "pending"}
        entry = IndexEntry(kind.passage(record).indexed(), None, embedding["model"])
        update = Update(kind.collection, tenant, doc_id, set=kind.fields(embedding), entry=entry)
        await store.commit([update, pending_note(kind.collection, tenant, doc_id, now)])


def _incomplete(result: Salvaged) -> bool:
    return bool(result.commits_missing or any(rescue.lost for rescue in result.rescued) or not result.all_counters)


def _report(result: Salvaged) -> dict[str, object]:
    return {
        "ok": not _incomplete(result),
        "lost_pages": result.lost_pages,
        "commits_missing": result.commits_missing,
        "counters_whole": result.all_counters,
        "collections": [
            {
                "collection": rescue.collection.name,
                "records": rescue.records,
                "lost": sorted(filter(None, rescue.lost.values())),
                "lost_rows": len(rescue.lost),
                "to_embed": len(rescue.unindexed),
            }
            for rescue in result.rescued
        ],
    }


def _show(result: Salvaged, to: Path) -> None:
    rows = []
    for rescue in result.rescued:
        if rescue.records or rescue.lost:
            lost = sorted(filter(None, rescue.lost.values()))
            first = ", ".join(lost[:SHOWN]) + (", …" if len(lost) > SHOWN else "")
            numbers = (rescue.records, len(rescue.lost), len(rescue.unindexed))
            rows.append((rescue.collection.name, *map(str, numbers), first))
    table(("collection", "written", "rows lost, at most", "to embed again", "lost"), rows)
    if result.commits_missing:
        print(
            f"{result.commits_missing} acknowledged commits are missing: what they wrote is not in the files, and "
            "users whom they erased are back. Erase these users again."
        )
    if not result.all_counters:
        print("Some counters are lost: sessions whose counter is lost cannot take more messages.")
    print(f"{len(result.lost_pages)} pages cannot be read. The new store is in {to}.")
