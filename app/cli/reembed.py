"""`recalld reembed`: embeds the whole store with another model while services run."""

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from app.cli._common import AsJson, as_json, table
from app.core.clock import SystemClock, rfc3339
from app.embedding.embedder import Embedder
from app.errors import RecalldError
from app.lifespan import EMBEDDABLE, RealParts, open_store
from app.memories.reembed import Reembed, whole
from app.settings import Settings
from app.storage.protocol import Store, VectorCounts

ReembedReport: TypeAlias = dict[str, Any]

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
    chosen = settings.embedding.model_copy(update={"model": wanted})
    report = asyncio.run(_reembed(settings.model_copy(update={"embedding": chosen}), drop_old=drop_old))
    _show(report, as_json_=as_json_)
    if not report["ok"]:
        missing = sum(row["pending"] + row["left"] for row in report["collections"])
        raise ReembeddingIncomplete(
            f"{missing} records have no vector of {report['model']}: written meanwhile, or refused by the model. "
            "Run this again."
        )
    if wanted != settings.embedding.model:
        Console(stderr=True).print(f"Now start every process with RECALLD_EMBEDDING_MODEL={wanted}", soft_wrap=True)


async def _reembed(settings: Settings, *, drop_old: bool) -> ReembedReport:
    async with AsyncExitStack() as stack:
        embedder = await RealParts().embedder(settings)
        stack.push_async_callback(embedder.close)
        store = await open_store(settings, dim=1)  # nothing is searched here, and no search index is made yet
        stack.push_async_callback(store.close)
        return await move(store, embedder, drop_old=drop_old)


async def move(store: Store, embedder: Embedder, *, drop_old: bool = False) -> ReembedReport:
    """Embeds all records with the embedder's model and returns the report. Raises EmbeddingUnavailable."""
    work = Reembed(store, embedder, EMBEDDABLE, patience=PATIENCE_SECONDS)
    await work.begin(rfc3339(SystemClock().now()))
    before = await work.counts()
    started, done = time.perf_counter(), 0
    with _progress() as progress:
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
        "collections": [_row(name, count, dropped=bool(dropped)) for name, count in counts.items()],
    }


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _row(name: str, count: VectorCounts, *, dropped: bool) -> ReembedReport:
    return {
        "collection": name,
        "records": count.records,
        "vectors": count.of_model,
        "pending": count.without,
        "left": count.others,
        "kept": 0 if dropped else count.kept,
    }


def _show(report: ReembedReport, *, as_json_: bool) -> None:
    if as_json_:
        as_json(report)
        return
    rows = [[str(value) for value in row.values()] for row in report["collections"]]
    table(("collection", "records", "in the new model", "without", "in another", "old ones kept"), rows)
    print(f"{report['embedded']} records embedded with {report['model']} in {report['seconds']} s")
