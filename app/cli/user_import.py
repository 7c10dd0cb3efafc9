"""`recalld import` of a user's export."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from app.audit.tombstones import ErasureKey, Tombstones
from app.audit.trail import Actor
from app.auth.keys import COMMAND_LINE
from app.cli._common import as_json, table
from app.cli.archive import ArchiveRefused
from app.core.clock import SystemClock
from app.core.ids import IDENTIFIER
from app.embedding.embedder import Embedder
from app.lifespan import COLLECTIONS, EMBEDDABLE, RealParts, open_store
from app.retention.user_import import UserImport, UserReport, begins_user_export
from app.settings import Settings
from app.storage.transfer import MovableStore

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


async def _import(settings: Settings, file: Path, tenant: str, *, restore_erased: bool) -> UserReport:
    if not IDENTIFIER.fullmatch(tenant):
        raise ArchiveRefused("A tenant's name has 1 to 128 characters of A-Z a-z 0-9 . _ : @ -")
    async with AsyncExitStack() as stack:
        embedder = await RealParts().embedder(settings)
        stack.push_async_callback(embedder.close)
        store = await open_store(settings, dim=embedder.dim)
        stack.push_async_callback(store.close)
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
        numbers = {name: getattr(report, name) for name in ("lines", "new", "taken", "left", "pending")}
        erased: dict[str, Any] = {report.user_id: report.erased} if report.erased else {}
        bad = [{"line": number, "detail": detail} for number, detail in report.bad]
        as_json(
            {"ok": report.ok, "tenant": report.tenant, "user_id": report.user_id, **numbers}
            | {"erased": erased, "bad": bad}
        )
        return
    print(f"{report.new} new records of {report.user_id} in {report.tenant}, from {report.lines} lines")
    if report.taken:
        print(f"{report.taken} records were left out: their ids are taken.")
    if report.left:
        print(f"{report.left} operations that were under way were left out.")
    if report.pending:
        print(f"{report.pending} records wait for their vectors: the service embeds them.")
    table(("line", "what is wrong"), [(str(number), detail) for number, detail in report.bad[:SHOWN]])
