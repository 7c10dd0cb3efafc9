"""`recalld keys …`, `backup`, `restore`, `rekey`, `doctor` and `salvage`; `migrate` and `reembed`."""

import asyncio
import re
import secrets
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from app.audit.tombstones import FILE_NAME as ERASURE_KEY
from app.auth.dependencies import FILE_NAME as KEYS_MADE
from app.auth.keys import ApiKey, Keys, NewKey
from app.cli import _common as cli
from app.core.clock import SystemClock, rfc3339
from app.core.schemas import Json
from app.embedding.embedder import Embedder
from app.embedding.factory import AUTO
from app.embedding.onnx_reranker import open_reranker
from app.embedding.reranking import RerankerInvalid, RerankingFailed, SecondStage
from app.errors import EmbeddingUnavailable, StoreUnavailable, invalid
from app.lifespan import COLLECTIONS, EMBEDDABLE, keys_made, with_model
from app.memories.reembed import Reembed, whole
from app.memories.repository import Embeddable, pending_note
from app.memories.schemas import NOT_EMBEDDED, EmbeddingInfo
from app.retention.user_export import unfit
from app.settings import Settings
from app.storage import factory, transfer
from app.storage.changes import Delete, IndexEntry, Update
from app.storage.protocol import Finding, Store, Told
from app.storage.schema import Collection

app = typer.Typer(no_args_is_help=True, help="API keys: make, list, revoke, rotate.")

_LIFETIME = re.compile(r"(\d{1,6})([dhm])")
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}


@app.command()
def create(
    tenant: Annotated[str, typer.Option(help="Whose data the key opens.")],
    name: Annotated[str, typer.Option(help="What it is for.")],
    verbs: Annotated[str, typer.Option(help="Some of read,write,admin.")] = "read,write",
    agent: Annotated[list[str] | None, typer.Option(help="Bind it to this agent; may be repeated.")] = None,
    user: Annotated[list[str] | None, typer.Option(help="Bind it to this user; may be repeated.")] = None,
    expires: Annotated[str | None, typer.Option(help="Lifetime, such as 90d, 12h or 30m.")] = None,
    rate: Annotated[float | None, typer.Option(min=0, help="Requests a second; default: as the setting says.")] = None,
    no_admin: Annotated[
        bool, typer.Option("--no-admin", help="The first key need not administer: no key makes others over HTTP then.")
    ] = False,
    as_json_: cli.AsJson = False,
) -> None:
    """Make a key. It is shown this once. The first one must administer (--verbs read,write,admin), since every request
    needs a key from then on."""
    named = [verb.strip() for verb in verbs.split(",") if verb.strip()]
    new = NewKey(tenant, name, named, agent or (), user or (), _lifetime(expires), rate).checked()

    async def work(store: Store) -> tuple[str, ApiKey]:
        keys = Keys(store, SystemClock())
        if not no_admin:
            await keys.refuse_lockout(new)
        made = await keys.create(new)
        for unopened, records in (await keys.unopened()).items():
            typer.echo(
                f"recalld: tenant {unopened} holds {records} records and has no key: this one does not see them. Make "
                f"one for --tenant {unopened}, or copy them: recalld export {unopened}.jsonl --tenant {unopened}, then "
                f"recalld import {unopened}.jsonl --tenant {tenant}.",
                err=True,
            )
        return made

    result = cli.on_store(work)
    keys_made(Settings()).note()
    _show(result, as_json_=as_json_)


def _show(result: tuple[str, ApiKey], *, as_json_: bool) -> None:
    key, record = result
    if as_json_:
        cli.as_json({"key": key, **record})
    else:
        print(key)
        typer.echo("Keep it: it is not shown again.", err=True)


@app.command("list")
def list_keys(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None, as_json_: cli.AsJson = False
) -> None:
    """Every key ever made, without its secret."""
    records = cli.on_store(lambda store: Keys(store, SystemClock()).list(tenant), existing=True)
    if as_json_:
        cli.as_json({"items": records})
        return
    rows = []
    for record in records:
        bound = [f"agent {agent}" for agent in record["agents"]] + [f"user {user}" for user in record["users"]]
        rows.append(
            (
                record["id"],
                record["tenant"],
                record["name"],
                ",".join(record["verbs"]),
                ", ".join(bound) or "-",
                record["expires_at"] or "never",
                record["revoked_at"] or "-",
            )
        )
    cli.table(("id", "tenant", "name", "verbs", "bound to", "expires", "revoked"), rows)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The id, as listed.")],
    force: Annotated[bool, typer.Option("--force", help="Also the last admin key of its tenant.")] = False,
    as_json_: cli.AsJson = False,
) -> None:
    """Take a key back; the next request with it is refused."""
    record = cli.on_store(lambda store: Keys(store, SystemClock()).revoke(key_id, force=force), existing=True)
    if as_json_:
        cli.as_json(record)
    else:
        print(f"{record['id']} is revoked.")


@app.command()
def rotate(
    key_id: Annotated[str, typer.Argument(help="The id, as listed.")],
    overlap: Annotated[str, typer.Option(help="How long the old key goes on, such as 7d, 12h or 0m.")] = "24h",
    expires: Annotated[
        str | None, typer.Option(help="Lifetime of the new key; default: as long as the old one's.")
    ] = None,
    as_json_: cli.AsJson = False,
) -> None:
    """Make a key of the same rights in place of this one, which goes on for a while. It is shown this once."""
    going_on = _lifetime(overlap)
    assert going_on is not None
    lifetime = _lifetime(expires)
    result = cli.on_store(lambda store: Keys(store, SystemClock()).rotate(key_id, going_on, lifetime), existing=True)
    keys_made(Settings()).note()
    _show(result, as_json_=as_json_)


def _lifetime(text: str | None) -> timedelta | None:
    if text is None:
        return None
    match = _LIFETIME.fullmatch(text)
    if match is None:
        raise invalid("/expires", "must be a number of days, hours or minutes, such as 90d, 12h or 30m")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


BESIDE_A_STORE = frozenset({KEYS_MADE, ERASURE_KEY})
"""Files of the data directory that outlive a lost store and are not a store themselves."""


def backup(
    target: Annotated[
        Path,
        typer.Argument(
            parser=cli.file_or_folder, help="The file to write, which must not be there yet; with --keep a folder."
        ),
    ],
    keep: Annotated[
        int | None,
        typer.Option(min=1, help="Write a dated file into the folder, and keep the newest so many backups there."),
    ] = None,
    as_json_: cli.AsJson = False,
) -> None:
    """Write the whole store into one file, as it is at one moment. Services may go on writing. With --keep, older
    backups of the folder go once the new one was read back; other files stay."""
    file = target if keep is None else factory.next_file(target, SystemClock().now())
    size = cli.on_store(lambda store: store.backup(file), existing=True)
    gone = [] if keep is None else factory.prune(file, keep)
    if as_json_:
        deleted = {} if keep is None else {"deleted": [str(older) for older in gone]}
        cli.as_json({"file": str(file), "bytes": size, **deleted})
    else:
        print(f"{file}: {size:,} bytes")
        for older in gone:
            print(f"{older}: deleted")


def restore(
    source: Annotated[
        Path,
        typer.Argument(
            parser=cli.file_or_folder,
            help="What `recalld backup` wrote: a file, or the folder of `--keep`, for its newest.",
        ),
    ],
    at: Annotated[
        str | None,
        typer.Option(help="From a folder: the newest backup from this time or before, such as 2026-06-01T12:00:00Z."),
    ] = None,
    as_json_: cli.AsJson = False,
) -> None:
    """Put a backup into RECALLD_DATA_DIR, in which there may be no store. A damaged file is refused."""
    settings, moment = Settings(), None if at is None else _moment(at)
    if moment is not None and not source.is_dir():
        raise invalid("/at", "needs a folder of dated backups, as `recalld backup --keep` makes it")
    file = factory.chosen(source, moment) if source.is_dir() else source
    size = factory.restore_store(factory.where_of(settings), file, beside=BESIDE_A_STORE)
    if as_json_:
        cli.as_json({"directory": str(settings.data_dir), "file": str(file), "bytes": size})
    else:
        print(
            f"{settings.data_dir}: {size:,} bytes of {file.name}. What was written after this backup is not in it, and "
            "users erased since are: erase them again."
        )


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise invalid("/at", "must be a date and time with an offset, such as 2026-06-01T12:00:00Z")
    return moment


def rekey(
    file: Annotated[
        Path, typer.Argument(parser=cli.file_or_folder, help="File with the new key, 64 hexadecimal digits.")
    ],
    as_json_: cli.AsJson = False,
) -> None:
    """Encrypt the embedded store with the key in FILE, or give an encrypted store this key in place of the one in the
    settings. Stop every service of the store first; there must be room for a second copy of the database."""
    settings = Settings()
    factory.rekey_store(factory.where_of(settings), file)
    if as_json_:
        cli.as_json({"directory": str(settings.data_dir), "key_file": str(file)})
    else:
        print(f"{settings.data_dir}: encrypted with the key in {file}. Start with RECALLD_STORE_KEY_FILE={file}")


MODEL_CHECK = "embedding model"
PROBE_SECONDS = 10.0
"""In seconds. A reranker's first answer may take longer than a search waits for one."""


def doctor(
    all_: Annotated[bool, typer.Option("--all", help="Show every check, not the faults alone.")] = False,
    recount: Annotated[
        bool, typer.Option("--recount", help="First count the records of every tenant, and correct what is stored.")
    ] = False,
    as_json_: cli.AsJson = False,
) -> None:
    """Check the store: the database, every document, that search and the counts of each tenant's records agree with
    them, and that their vectors are of the model that the settings name; and ask the reranker, where one is set, for
    two harmless words. Faults are shown first, all else in a line. Exit code 1 for a fault."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate()
    times = TimeElapsedColumn(), TimeRemainingColumn()
    with Progress(*columns, *times, console=console, transient=True, disable=not console.is_terminal) as progress:
        check, bar = "", progress.add_task("opening the store", total=None)

        def told(name: str, done: int, total: int | None) -> None:
            nonlocal check, bar
            if name != check or not done:  # the rate and the time are those of this check
                progress.remove_task(bar)
                check, bar = name, progress.add_task(name, total=total)
            progress.update(bar, completed=done)

        findings = _findings(Settings(), told, recount=recount)
    faults = [finding for finding in findings if not finding.ok]
    if as_json_:
        cli.as_json({"ok": not faults, "findings": [asdict(finding) for finding in findings]})
    else:
        shown = sorted(findings, key=lambda finding: finding.ok) if all_ else faults
        rows = [(finding.name, "ok" if finding.ok else "FAULT", finding.detail) for finding in shown]
        cli.table_of(("check", "", "detail"), rows)
        passed = len(findings) - len(faults)
        if faults:
            print(f"{len(faults)} of {len(findings)} checks found a fault; {passed} passed.")
        else:
            print(f"All {passed} checks passed." + ("" if all_ else " --all lists them."))
    if faults:
        raise typer.Exit(1)


class _Rate(ProgressColumn):
    """How many a second: "12,345/s"."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "")


def _findings(settings: Settings, told: Told, *, recount: bool) -> list[Finding]:
    findings = list(factory.file_findings(factory.where_of(settings), told))
    try:
        if recount:
            told("recount", 0, None)
            corrected = cli.on_store(lambda store: store.accounting.recount(), existing=True)
            detail = "; ".join(corrected) or "nothing to correct"
            findings.append(Finding("recount", ok=True, detail=detail))
        findings += cli.on_store(partial(_checked, told=told), existing=True)
    except StoreUnavailable as error:  # a store that cannot be opened: its files still tell something
        if not findings:
            raise
        findings.append(Finding("store", ok=False, detail=error.detail))
    return findings + asyncio.run(_reranker(settings))


async def _reranker(settings: Settings) -> list[Finding]:
    """Tests the reranker. Returns no finding if none is configured."""
    try:
        reranker = await open_reranker(settings)
    except RerankerInvalid as error:
        return [Finding("reranker", ok=False, detail=str(error))]
    if reranker is None:
        return []
    stage = SecondStage(reranker, seconds=PROBE_SECONDS, hits=2)
    started = time.perf_counter()
    try:
        await stage.scores("word", ["word", "another word"])
    except RerankingFailed as error:
        return [Finding("reranker", ok=False, detail=f"{stage.name}: {error}")]
    finally:
        await stage.close()
    took, waits = (time.perf_counter() - started) * 1000, settings.rerank.seconds * 1000
    detail = f"{stage.name}: {took:.0f} ms for two words; searches wait {waits:g} ms"
    return [Finding("reranker", ok=True, detail=detail)]


async def _checked(store: Store, told: Told) -> list[Finding]:
    findings = [*await store.check(deep=True, told=told), *await unfit(store, COLLECTIONS, told)]
    told(MODEL_CHECK, 0, None)
    try:
        return [*findings, await _model(store, Settings())]
    except StoreUnavailable as error:
        return [*findings, Finding("store", ok=False, detail=error.detail)]


async def _model(store: Store, settings: Settings) -> Finding:
    """Checks that every vector is of the configured model. Search by meaning does not find records with vectors of
    another."""
    try:
        async with cli.opened_embedder(settings) as embedder:
            counts = await Reembed(store, embedder, EMBEDDABLE).counts()
    except EmbeddingUnavailable as error:
        return Finding(MODEL_CHECK, ok=False, detail=str(error))
    others = sum(count.others for count in counts.values())
    if not others:
        return Finding(MODEL_CHECK, ok=True, detail=embedder.name)
    detail = (
        f"{others} records have a vector of another model than {embedder.name}: they are found by their words alone "
        "until `recalld reembed` has been run"
    )
    return Finding(MODEL_CHECK, ok=False, detail=detail)


# --- Salvage: what can be read of a damaged store goes into a new one, and what cannot is listed ----------------------

SHOWN = 20


def salvage(
    to: Annotated[Path, typer.Option(parser=cli.file_or_folder, help="A new directory for the store that is written.")],
    as_json_: cli.AsJson = False,
) -> None:
    """Write what can be read of the damaged store in RECALLD_DATA_DIR into a new store, and list what cannot. Stop
    every service of the store first; its files are not changed. Exit code 1 if something cannot be read."""
    settings = Settings()
    result = asyncio.run(_salvage(settings, to))
    lost_some = result.commits_missing or any(rescue.lost for rescue in result.rescued) or not result.all_counters
    if as_json_:
        collections = [
            {
                "collection": rescue.collection.name,
                "records": rescue.records,
                "lost": sorted(filter(None, rescue.lost.values())),
                "lost_rows": len(rescue.lost),
                "to_embed": len(rescue.unindexed),
            }
            for rescue in result.rescued
        ]
        files = {"lost_pages": result.lost_pages, "commits_missing": result.commits_missing}
        counters = {"counters_whole": result.all_counters}
        cli.as_json({"ok": not lost_some, **files, **counters, "collections": collections})
    else:
        rows = []
        for rescue in result.rescued:
            if rescue.records or rescue.lost:
                lost = sorted(filter(None, rescue.lost.values()))
                first = ", ".join(lost[:SHOWN]) + (", …" if len(lost) > SHOWN else "")
                numbers = (rescue.records, len(rescue.lost), len(rescue.unindexed))
                rows.append((rescue.collection.name, *map(str, numbers), first))
        cli.table(("collection", "written", "rows lost, at most", "to embed again", "lost"), rows)
        if result.commits_missing:
            print(
                f"{result.commits_missing} acknowledged commits are missing: what they wrote is not in the files, and "
                "users whom they erased are back. Erase these users again."
            )
        if not result.all_counters:
            print("Some counters are lost: sessions whose counter is lost cannot take more messages.")
        print(f"{len(result.lost_pages)} pages cannot be read. The new store is in {to}.")
    if lost_some:
        raise typer.Exit(1)


async def _salvage(settings: Settings, to: Path) -> transfer.Salvaged:
    if to.exists() and any(to.iterdir()):  # noqa: ASYNC240
        raise cli.CommandFailed(f"{to} is not empty: salvage into a new directory.")
    where = factory.where_of(settings)
    where.require_existing()
    factory.require_unused(where)
    async with cli.opened_store(settings.model_copy(update={"data_dir": to})) as target:
        result = await factory.salvage_store(where, COLLECTIONS, to, target)
        for kind in EMBEDDABLE:
            for rescue in result.rescued:
                if rescue.collection is kind.collection:
                    await _index(target, kind, rescue)
    for name in BESIDE_A_STORE:
        if (settings.data_dir / name).exists():
            shutil.copy2(settings.data_dir / name, to / name)
    return result


async def _index(store: Store, kind: Embeddable, rescue: transfer.Rescued) -> None:
    """Makes search entries for records that have lost theirs. The service embeds them after its start."""
    now = rfc3339(SystemClock().now())
    for tenant, doc_id in rescue.unindexed:
        record = await store.get(kind.collection, tenant, doc_id)
        if record is None:
            continue
        stored: EmbeddingInfo | None = record.get("embedding")
        embedding: EmbeddingInfo = {**(stored or NOT_EMBEDDED), "status": "pending"}
        entry = IndexEntry(kind.text_to_index(record).indexed(), None, embedding["model"])
        update = Update(kind.collection, tenant, doc_id, set=kind.fields(embedding), entry=entry)
        await store.commit([update, pending_note(kind.collection, tenant, doc_id, now)])


# --- Moving a whole store: `migrate` to MongoDB, `reembed` to another embedding model ---------------------------------

ORIGIN_NOTE, COPY_NOTE = "migration origin", "migration copy"
"""Notes of a store: the id by which its copies know it; of which store it is a copy, and a digest of what the last run
left in it."""
EMPTY_ONE = "Choose an empty database (RECALLD_MONGODB_DATABASE) or another directory."


def migrate(
    to: Annotated[
        str,
        typer.Option(envvar="RECALLD_MIGRATE_TO", help="Where to: a mongodb:// or mongodb+srv:// URI, or `embedded`."),
    ],
    as_json_: cli.AsJson = False,
) -> None:
    """Copy everything to another store, vectors included, and prove it. Stop the service first; or run it once while
    the service writes, and again after it is stopped: the second run brings what was added, changed and deleted since.
    The records of the source are left as they are."""
    settings = Settings()
    if to == settings.store.get_secret_value():
        raise cli.CommandFailed("Source and target are the same store.")

    async def work() -> list[Json]:
        async with (
            cli.opened_store(settings, existing=True) as source,
            cli.opened_store(settings, elsewhere=to) as target,
        ):
            return await migrate_store(source, target)

    report = asyncio.run(work())
    whole = all(row["same"] for row in report)
    if as_json_:
        cli.as_json({"ok": whole, "collections": report})
    else:
        rows = [
            (r["collection"], r["tenant"] or "(the service's own)", str(r["records"]), str(r["vectors"]), r["checksum"])
            for r in report
        ]
        cli.table(("collection", "tenant", "records", "vectors", "checksum"), rows)
    if not whole:
        wrong = ", ".join(sorted({row["collection"] for row in report if not row["same"]}))
        raise cli.CommandFailed(f"The copies differ in {wrong}: was the service stopped? Stop it, and run this again.")


async def migrate_store(source: transfer.MovableStore, target: transfer.MovableStore) -> list[Json]:
    """Makes the target the same as the source and compares them: of each collection and tenant, what was copied, and
    whether the source had the same. Raises CommandFailed if the target contains other
    data, or was used since it was copied.

    The source may be written to meanwhile: the report then says what differs, and the next run brings it.
    """
    # the id under which copies remember the source; it is made at its first migration
    origin = (await source.notes()).get(ORIGIN_NOTE)
    if origin is None:
        origin = secrets.token_hex(16)
        await source.notes({ORIGIN_NOTE: origin})
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
            async for page in transfer.exported(source, collection):
                # what conflicts with a record that changed meanwhile is left to the next run
                await transfer.load_each(target, collection, page)
                progress.advance(bar, len(page))
        await target.load_counters(await source.counters(), only=True)
        progress.update(bar, description="comparing", completed=0)
        report: list[Json] = []
        copied: dict[str, dict[str, transfer.Total]] = {}
        for collection in COLLECTIONS:
            copied[collection.name] = await transfer.totals(target, collection)
            report += _compared(collection, await transfer.totals(source, collection), copied[collection.name])
            progress.advance(bar, sizes[collection.name])
    await target.notes({COPY_NOTE: f"{origin} {_fingerprint(copied)}"})
    before = {(counter.tenant, counter.name): counter.value for counter in await source.counters()}
    after = {(counter.tenant, counter.name): counter.value for counter in await target.counters()}
    counters = {
        "collection": "counters",
        "tenant": "",
        "records": len(after),
        "vectors": 0,
        "checksum": "-",
        "same": before == after,
    }
    return [*report, counters]


def _fingerprint(copied: dict[str, dict[str, transfer.Total]]) -> str:
    """Returns a digest of what a store holds. It changes with every record."""
    described = [
        (name, sorted((tenant, total.records, total.vectors, total.checksum) for tenant, total in tenants.items()))
        for name, tenants in sorted(copied.items())
    ]
    return blake2b(repr(described).encode(), digest_size=16).hexdigest()


async def _refuse_used(
    source: transfer.MovableStore, target: transfer.MovableStore, begun: Sequence[Collection], origin: str
) -> None:
    """Raises CommandFailed unless the target is as an earlier run from this source left it.

    A run that was cut short left no note: then every record must be one of the source's.
    """
    noted = (await target.notes()).get(COPY_NOTE)
    if noted is None:
        for collection in begun:
            # all records in the target must be copies of records in the source
            ours = {
                transfer.digest(collection, record)
                async for page in transfer.exported(source, collection)
                for record in page
            }
            async for page in transfer.exported(target, collection):
                if any(transfer.digest(collection, record) not in ours for record in page):
                    raise cli.CommandFailed(
                        f"The target holds other data ({collection.name}), or an earlier run was cut short and "
                        f"the source has changed since. {EMPTY_ONE}"
                    )
        return
    of, _, left = noted.partition(" ")
    if of != origin:
        raise cli.CommandFailed(f"The target holds a copy of another store. {EMPTY_ONE}")
    copied = {collection.name: await transfer.totals(target, collection) for collection in COLLECTIONS}
    if _fingerprint(copied) != left:
        raise cli.CommandFailed(
            "The target holds other data: it was written to since it was copied, and those writes would be lost. "
            f"{EMPTY_ONE}"
        )


async def _remove_changed(source: transfer.MovableStore, target: transfer.MovableStore, collection: Collection) -> None:
    """Deletes copies that differ from their record in the source, or have none there any more. The changed ones are
    copied anew; all are deleted first, because a new record may have the unique key of an old one."""
    there = {
        _key(collection, record): transfer.digest(collection, record)
        async for page in transfer.exported(target, collection)
        for record in page
    }
    async for page in transfer.exported(source, collection):
        for record in page:
            if there.get(_key(collection, record)) == transfer.digest(collection, record):
                del there[_key(collection, record)]
    gone = iter(there)
    while group := list(islice(gone, transfer.PAGE)):
        await target.commit([Delete(collection, tenant, doc_id) for tenant, doc_id in group])


def _key(collection: Collection, record: transfer.Record) -> tuple[str, str]:
    return record.doc["tenant_id"], str(record.doc[collection.id_field])


def _compared(
    collection: Collection, before: dict[str, transfer.Total], after: dict[str, transfer.Total]
) -> list[Json]:
    return [
        {
            "collection": collection.name,
            "tenant": tenant,
            "records": after.get(tenant, transfer.Total()).records,
            "vectors": after.get(tenant, transfer.Total()).vectors,
            "checksum": f"{after.get(tenant, transfer.Total()).checksum:032x}",
            "same": before.get(tenant) == after.get(tenant),
        }
        for tenant in sorted({*before, *after})
    ]


PATIENCE_SECONDS = 90.0
"""Longer than MongoDB keeps the records of a transaction whose process was killed."""


def reembed(
    model: Annotated[
        str | None,
        typer.Option(help="Model to move to, spelled as RECALLD_EMBEDDING_MODEL, which is the default."),
    ] = None,
    drop_old: Annotated[
        bool,
        typer.Option("--drop-old", help="Then forget the vectors of other models: once no process searches by them."),
    ] = False,
    as_json_: cli.AsJson = False,
) -> None:
    """Embed everything with another model, and count it. Services may run meanwhile, with the old model, whose vectors
    stay until they are dropped. Run it again to go on after an interruption; then start the services with the new
    model."""
    settings = Settings()
    wanted = model or settings.embedding.model

    async def work() -> Json:
        # the store's dimension stays 1: nothing is searched here, and no search index is made yet
        of_model = with_model(settings, wanted)
        async with cli.opened_embedder(of_model) as embedder, cli.opened_store(of_model, existing=True) as store:
            return await reembed_store(store, embedder, drop_old=drop_old)

    report = asyncio.run(work())
    if as_json_:
        cli.as_json(report)
    else:
        rows = [[str(value) for value in row.values()] for row in report["collections"]]
        cli.table(("collection", "records", "in the new model", "without", "in another", "old ones kept"), rows)
        print(f"{report['embedded']} records embedded with {report['model']} in {report['seconds']} s")
    if not report["ok"]:
        missing = sum(row["pending"] + row["left"] for row in report["collections"])
        raise cli.CommandFailed(
            f"{missing} records have no vector of {report['model']}: written meanwhile, or refused by the model. "
            "Run this again."
        )
    if wanted != settings.embedding.model:
        Console(stderr=True).print(f"Now start every process with RECALLD_EMBEDDING_MODEL={wanted}", soft_wrap=True)
    elif wanted == AUTO:
        Console(stderr=True).print("Now start every process again.", soft_wrap=True)


async def reembed_store(store: Store, embedder: Embedder, *, drop_old: bool = False) -> Json:
    """Embeds all records with the embedder's model. Returns the report, for each collection with the numbers of vectors
    of the new model, of none yet, of another model, and of old ones that stay. Raises EmbeddingUnavailable."""
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
