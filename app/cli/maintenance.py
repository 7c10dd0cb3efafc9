"""`recalld keys …`, `backup`, `restore`, `rekey`, `doctor` and `salvage`."""

import asyncio
import re
import shutil
import time
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from app.audit.tombstones import FILE_NAME as ERASURE_KEY
from app.auth.dependencies import FILE_NAME as KEYS_MADE
from app.auth.keys import ApiKey, Keys, NewKey
from app.cli._common import AsJson, as_json, on_store, opened_embedder, opened_store, table, table_of
from app.core.clock import SystemClock, rfc3339
from app.embedding.onnx_reranker import open_reranker
from app.embedding.reranking import RerankerInvalid, RerankingFailed, SecondStage
from app.errors import EmbeddingUnavailable, RecalldError, StoreUnavailable, invalid
from app.lifespan import COLLECTIONS, EMBEDDABLE, keys_made
from app.memories.embedding import Embeddable, pending_note
from app.memories.reembed import Reembed
from app.memories.schemas import NOT_EMBEDDED, EmbeddingInfo
from app.retention.shapes import unfit
from app.settings import Settings
from app.storage.changes import IndexEntry, Update
from app.storage.factory import (
    chosen,
    file_findings,
    next_file,
    prune,
    rekey_store,
    require_unused,
    restore_store,
    salvage_store,
    where_of,
)
from app.storage.protocol import Finding, Store
from app.storage.transfer import Rescued, Salvaged

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
    as_json_: AsJson = False,
) -> None:
    """Make a key. It is shown this once. The first one must administer (--verbs read,write,admin), since every request
    needs a key from then on."""
    named = [verb.strip() for verb in verbs.split(",") if verb.strip()]
    new = NewKey(tenant, name, named, agent or (), user or (), _lifetime(expires), rate).checked()
    result = on_store(lambda store: _created(store, new, no_admin=no_admin))
    keys_made(Settings()).note()
    _show(result, as_json_=as_json_)


async def _created(store: Store, new: NewKey, *, no_admin: bool) -> tuple[str, ApiKey]:
    keys = Keys(store, SystemClock())
    if not no_admin:
        await keys.refuse_lockout(new)
    made = await keys.create(new)
    for tenant, records in (await keys.unopened()).items():
        typer.echo(
            f"recalld: tenant {tenant} holds {records} records and has no key: this one does not see them. Make one "
            f"for --tenant {tenant}, or copy them: recalld export {tenant}.jsonl --tenant {tenant}, then "
            f"recalld import {tenant}.jsonl --tenant {new.tenant}.",
            err=True,
        )
    return made


def _show(result: tuple[str, ApiKey], *, as_json_: bool) -> None:
    key, record = result
    if as_json_:
        as_json({"key": key, **record})
    else:
        print(key)
        typer.echo("Keep it: it is not shown again.", err=True)


@app.command("list")
def list_keys(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None, as_json_: AsJson = False
) -> None:
    """Every key ever made, without its secret."""
    records = on_store(lambda store: Keys(store, SystemClock()).list(tenant), existing=True)
    if as_json_:
        as_json({"items": records})
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
    table(("id", "tenant", "name", "verbs", "bound to", "expires", "revoked"), rows)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The id, as listed.")],
    force: Annotated[bool, typer.Option("--force", help="Also the last admin key of its tenant.")] = False,
    as_json_: AsJson = False,
) -> None:
    """Take a key back; the next request with it is refused."""
    record = on_store(lambda store: Keys(store, SystemClock()).revoke(key_id, force=force), existing=True)
    if as_json_:
        as_json(record)
    else:
        print(f"{record['id']} is revoked.")


@app.command()
def rotate(
    key_id: Annotated[str, typer.Argument(help="The id, as listed.")],
    overlap: Annotated[str, typer.Option(help="How long the old key goes on, such as 7d, 12h or 0m.")] = "24h",
    expires: Annotated[
        str | None, typer.Option(help="Lifetime of the new key; default: as long as the old one's.")
    ] = None,
    as_json_: AsJson = False,
) -> None:
    """Make a key of the same rights in place of this one, which goes on for a while. It is shown this once."""
    going_on = _lifetime(overlap)
    assert going_on is not None
    lifetime = _lifetime(expires)
    result = on_store(lambda store: Keys(store, SystemClock()).rotate(key_id, going_on, lifetime), existing=True)
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
        Path, typer.Argument(help="The file to write, which must not be there yet; with --keep a folder.")
    ],
    keep: Annotated[
        int | None,
        typer.Option(min=1, help="Write a dated file into the folder, and keep the newest so many backups there."),
    ] = None,
    as_json_: AsJson = False,
) -> None:
    """Write the whole store into one file, as it is at one moment. Services may go on writing. With --keep, older
    backups of the folder go once the new one was read back; other files stay."""
    file = target if keep is None else next_file(target, SystemClock().now())
    size = on_store(lambda store: store.backup(file), existing=True)
    gone = [] if keep is None else prune(file, keep)
    if as_json_:
        deleted = {} if keep is None else {"deleted": [str(older) for older in gone]}
        as_json({"file": str(file), "bytes": size, **deleted})
    else:
        print(f"{file}: {size:,} bytes")
        for older in gone:
            print(f"{older}: deleted")


def restore(
    source: Annotated[
        Path, typer.Argument(help="What `recalld backup` wrote: a file, or the folder of `--keep`, for its newest.")
    ],
    at: Annotated[
        str | None,
        typer.Option(help="From a folder: the newest backup from this time or before, such as 2026-06-01T12:00:00Z."),
    ] = None,
    as_json_: AsJson = False,
) -> None:
    """Put a backup into RECALLD_DATA_DIR, in which there may be no store. A damaged file is refused."""
    settings, moment = Settings(), None if at is None else _moment(at)
    if moment is not None and not source.is_dir():
        raise invalid("/at", "needs a folder of dated backups, as `recalld backup --keep` makes it")
    file = chosen(source, moment) if source.is_dir() else source
    size = restore_store(where_of(settings), file, beside=BESIDE_A_STORE)
    if as_json_:
        as_json({"directory": str(settings.data_dir), "file": str(file), "bytes": size})
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
    file: Annotated[Path, typer.Argument(help="File with the new key, 64 hexadecimal digits.")],
    as_json_: AsJson = False,
) -> None:
    """Encrypt the embedded store with the key in FILE, or give an encrypted store this key in place of the one in the
    settings. Stop every service of the store first; there must be room for a second copy of the database."""
    settings = Settings()
    rekey_store(where_of(settings), file)
    if as_json_:
        as_json({"directory": str(settings.data_dir), "key_file": str(file)})
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
    as_json_: AsJson = False,
) -> None:
    """Check the store: the database, every document, that search and the counts of each tenant's records agree with
    them, and that their vectors are of the model that the settings name; and ask the reranker, where one is set, for
    two harmless words. Faults are shown first, all else in a line. Exit code 1 for a fault."""
    with Console(stderr=True).status("Checking the store …"):
        findings = _findings(Settings(), recount=recount)
    faults = [finding for finding in findings if not finding.ok]
    if as_json_:
        as_json({"ok": not faults, "findings": [asdict(finding) for finding in findings]})
    else:
        shown = sorted(findings, key=lambda finding: finding.ok) if all_ else faults
        rows = [(finding.name, "ok" if finding.ok else "FAULT", finding.detail) for finding in shown]
        table_of(("check", "", "detail"), rows)
        passed = len(findings) - len(faults)
        if faults:
            print(f"{len(faults)} of {len(findings)} checks found a fault; {passed} passed.")
        else:
            print(f"All {passed} checks passed." + ("" if all_ else " --all lists them."))
    if faults:
        raise typer.Exit(1)


def _findings(settings: Settings, *, recount: bool) -> list[Finding]:
    findings = list(file_findings(where_of(settings)))
    try:
        if recount:
            findings.append(on_store(_recounted, existing=True))
        findings += on_store(_checked, existing=True)
    except StoreUnavailable as error:  # a store that cannot be opened: its files still tell something
        if not findings:
            raise
        findings.append(Finding("store", ok=False, detail=error.detail))
    return findings + asyncio.run(_reranker(settings))


async def _recounted(store: Store) -> Finding:
    corrected = await store.accounting.recount()
    return Finding("recount", ok=True, detail="; ".join(corrected) or "nothing to correct")


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


async def _checked(store: Store) -> list[Finding]:
    findings = [*await store.check(deep=True), *await unfit(store, COLLECTIONS)]
    try:
        return [*findings, await _model(store, Settings())]
    except StoreUnavailable as error:
        return [*findings, Finding("store", ok=False, detail=error.detail)]


async def _model(store: Store, settings: Settings) -> Finding:
    """Checks that every vector is of the configured model. Search by meaning does not find records with vectors of
    another."""
    try:
        async with opened_embedder(settings) as embedder:
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
        as_json(_salvage_report(result))
    else:
        _show_salvaged(result, to)
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


def _salvage_report(result: Salvaged) -> dict[str, object]:
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


def _show_salvaged(result: Salvaged, to: Path) -> None:
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
