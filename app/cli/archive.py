"""`recalld export` writes a tenant to a file of lines, from any engine. `recalld import` takes such an archive, the
export of a user, or what another memory system wrote.

Of an archive, tombstones are imported first. Users who were erased in the target are not imported. The file's own
tombstones are imported if this machine's erasure key opens them.
"""

import asyncio
import importlib
import sys
from base64 import b64decode, b64encode
from codecs import BOM_UTF8
from collections import defaultdict
from collections.abc import AsyncIterator, Container, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import orjson
import typer
from rich.console import Console
from rich.progress import Progress

from app.audit.tombstones import KEY, ErasureKey, Tombstones, unseal
from app.audit.trail import ERASED, Actor, TombstoneRecord
from app.auth.keys import API_KEYS, COMMAND_LINE
from app.cli import _common as cli
from app.core.clock import SystemClock, rfc3339
from app.core.schemas import TENANT, TENANT_RULE, Json
from app.embedding.embedder import Embedder
from app.errors import RecalldError, StoreUnavailable, invalid
from app.importers.loader import RanImport
from app.jobs.queue import ENDED, JOBS, OPERATIONS, SCHEDULES
from app.lifespan import COLLECTIONS, EMBEDDABLE
from app.memories.reembed import MOVES
from app.memories.repository import PENDING, pending_note
from app.retention.erasure import ERASURE_NOTES
from app.retention.user_export import LARGEST, BadLine, UserImport, UserReport, begins_user_export, check_fields
from app.settings import Settings
from app.storage.changes import Change, CommitConflict
from app.storage.index.record_codec import FACET, TERM, PackedRecord, head_dtype, holds_windows, is_long
from app.storage.schema import Collection, Doc
from app.storage.transfer import Counter, MovableStore, Record, Total, digest, exported
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
        nameless = replace(record, doc=named(record.doc, ""))
        self.totals[collection.name].add(nameless, digest(collection, nameless))

    @property
    def records(self) -> int:
        """The number of records without tombstones."""
        return sum(total.records for name, total in self.totals.items() if name != ERASED.name)

    def hash(self) -> str:
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
    file: Annotated[Path, typer.Argument(parser=cli.file_or_folder, help="Where to; it must not be there yet.")],
    tenant: Annotated[str, typer.Option(help="Whose data.")] = "default",
    as_json_: cli.AsJson = False,
) -> None:
    """Write everything of a tenant, vectors included, as lines of JSON; without its keys. What is written meanwhile may
    be in it or not."""
    total = cli.on_store(lambda store: write(store, file, tenant), existing=True)
    if as_json_:
        cli.as_json({"file": str(file), "tenant": tenant, "records": total.records, "hash": total.hash()})
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


# --- Import: of an archive, of a user's export, and of what another system wrote --------------------------------------

SHOWN = 20
DEFAULT_TENANT = "default"
BATCH = 200


class System(StrEnum):
    """Memory systems whose exports can be imported, and assistants whose histories can."""

    MEM0 = "mem0"
    ZEP = "zep"
    LETTA = "letta"
    AGENT_MEMORY_SERVER = "agent-memory-server"
    CHATGPT = "chatgpt"
    CLAUDE = "claude"
    CLAUDE_CODE = "claude-code"
    CODEX = "codex"
    GEMINI_CLI = "gemini-cli"
    COPILOT = "copilot"


def import_(
    file: Annotated[
        Path,
        typer.Argument(
            parser=cli.file_or_folder,
            help="What `recalld export`, a user's export, or with --from another system wrote. A history may be a "
            "folder or a .zip.",
        ),
    ],
    from_: Annotated[
        System | None, typer.Option("--from", help="Another memory system, or the assistant whose history it is.")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(help="Whose it becomes; default: the tenant of the file, and `default` for a user's.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="With --from: whose are records that name no user.")] = None,
    agent: Annotated[str | None, typer.Option(help="With --from: whose are records that name no agent.")] = None,
    url: Annotated[
        str | None,
        typer.Option(envvar="RECALLD_URL", callback=cli.whole_address, help="With --from: into this running service."),
    ] = None,
    key: Annotated[str | None, typer.Option(envvar="RECALLD_KEY", help="With --from: API key of that service.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --from: only say what would be taken.")] = False,
    restore_erased: Annotated[
        bool, typer.Option("--restore-erased", help="Take in users whom the tenant has erased, too.")
    ] = False,
    as_json_: cli.AsJson = False,
) -> None:
    """Take in a tenant that `recalld export` wrote, or one user of `GET /v1/users/{id}/export`: what is there stays, so
    that an import that was cut short is simply run again, and lines that cannot be read are told by their numbers.
    Users whom the tenant has erased stay out. With --from: what another memory system exported, with a report of what
    was taken and what was left; run again, it updates. Exit code 3: some records were left out."""
    if from_ is None:
        if user or agent or dry_run:
            raise invalid("/--from", "must be given with --user, --agent and --dry-run")
        if begins_user_export(first_line(file)):
            import_user(file, tenant, restore_erased=restore_erased, as_json_=as_json_)
        else:
            import_tenant(file, tenant, restore_erased=restore_erased, as_json_=as_json_)
        return
    if tenant:
        raise invalid("/--tenant", "does not go with --from: the API key says whose tenant it is")
    service: Any = importlib.import_module("app.cli._service")  # imports the service, which takes a second
    into = None if dry_run else (url, key)
    report: RanImport = asyncio.run(
        service.bring_in(file, from_.value, (agent, user), into, restore_erased=restore_erased)
    )
    if as_json_:
        cli.as_json({"from": from_.value, **report})
    else:
        _show_taken(report, dry_run=dry_run)
    if report["erased"]:
        print(
            f"recalld: {len(report['erased'])} users were erased and stayed out: {', '.join(report['erased'])}. "
            "To bring them back on purpose, give --restore-erased.",
            file=sys.stderr,
        )
    if report["erased"] or report["left"]:
        raise typer.Exit(cli.SOME_LEFT_OUT)


def _show_taken(report: RanImport, *, dry_run: bool) -> None:
    names = {"memory": "memories", "fact": "facts", "message": "messages", "action": "actions"}
    print("Would take" if dry_run else "Taken", end=": ")
    taken = ", ".join(f"{count} {names[kind]}" for kind, count in report["taken"].items()) or "nothing"
    print(taken + (f" (agent {report['agent']})" if report["agent"] else ""))
    if report["there"]:
        print("Already there:", ", ".join(f"{count} {names[kind]}" for kind, count in report["there"].items()))
    for title, skipped in (("left out", report["left"]), ("not a memory", report["not_memory"])):
        rows = [(str(group["count"]), group["reason"], " ".join(group["such_as"])) for group in skipped]
        cli.table_of((title, "because", "such as"), rows)
    cli.table_of(("id of the source", "id here"), list(report["mapped"].items()))
    cli.table_of(
        ("erased user", "records left out"), [(user, str(number)) for user, number in report["erased"].items()]
    )
    if report["secrets"]:
        found = ", ".join(f"{count} {kind}" for kind, count in report["secrets"].items())
        print(f"Secrets in the texts: {found}. RECALLD_SECRETS_POLICY says what becomes of them.")
    if not report["erased_checked"]:
        print("Not checked: whether one of these users was erased.")


# --- Import of an archive, line by line -------------------------------------------------------------------------------


@dataclass(slots=True)
class ArchiveReport:
    """The result of an import."""

    tenant: str = ""
    lines: int = 0
    new: int = 0
    bad: list[tuple[int, str]] = field(default_factory=list)
    erased: dict[str, int] = field(default_factory=dict)
    """Users with a tombstone, and how many of their records were not imported."""
    tombstones_left: int = 0
    """The number of tombstones that this machine's erasure key cannot open."""
    expected: str | None = None
    found: str = ""

    @property
    def ok(self) -> bool:
        """True if all lines were imported and the hash is that of the file."""
        return not self.bad and not self.erased and self.expected == self.found


def lines_of(file: Path) -> Generator[bytes, None, None]:
    """Yields the lines of a file, and shows how far they are read. Raises ArchiveRefused if it cannot be read."""
    try:
        with file.open("rb") as lines, Progress(console=Console(stderr=True), transient=True) as progress:
            bar = progress.add_task("importing", total=file.stat().st_size)
            for line in lines:
                yield line
                progress.advance(bar, len(line))
    except OSError as error:
        raise ArchiveRefused(f"{file} cannot be read: {error.strerror}.") from error


def first_line(file: Path) -> bytes:
    """Returns the first line of a file. Raises ArchiveRefused if it cannot be read."""
    with closing(lines_of(file)) as lines:
        return next(lines, b"")


def import_tenant(file: Path, tenant: str | None, *, restore_erased: bool = False, as_json_: bool) -> None:
    """Imports a tenant and prints a report. Existing records stay, so an interrupted import can be repeated. Invalid
    lines are reported by number and do not stop the others. Raises ArchiveRefused if the result is not what was
    exported."""
    _header(first_line(file), tenant)  # before a store is made
    key = ErasureKey.of(Settings())
    report = cli.on_store(lambda store: read_tenant(store, file, tenant, key, restore_erased=restore_erased))
    if as_json_:
        bad = [{"line": number, "detail": detail} for number, detail in report.bad]
        names = ("tenant", "lines", "new", "expected", "found", "erased", "tombstones_left")
        cli.as_json({"ok": report.ok, **{name: getattr(report, name) for name in names}, "bad": bad})
    else:
        print(f"{report.new} new records of {report.tenant}, from {report.lines} lines; hash {report.found}")
        cli.table_of(
            ("erased user", "records left out"), [(user, str(number)) for user, number in report.erased.items()]
        )
        if report.tombstones_left:
            print(
                f"{report.tombstones_left} tombstones were left out: another erasure key sealed them, or "
                f"{report.tenant} has a key of its own. Whom they name cannot be told here."
            )
        cli.table_of(("line", "what is wrong"), [(str(number), detail) for number, detail in report.bad[:SHOWN]])
    if not report.ok:
        _explain(report)


def _explain(report: ArchiveReport) -> None:
    if report.bad:
        raise ArchiveRefused(f"{len(report.bad)} lines were not taken in: the first is line {report.bad[0][0]}.")
    if report.erased:
        raise ArchiveRefused(
            f"{len(report.erased)} users were erased from {report.tenant} and stayed out: {', '.join(report.erased)}. "
            "To bring them back on purpose, give --restore-erased."
        )
    raise ArchiveRefused(
        f"The records in {report.tenant} are not those that were exported (hash {report.expected}): some had changed "
        "there, or are written to."
    )


async def read_tenant(
    store: MovableStore, file: Path, tenant: str | None, key: ErasureKey, *, restore_erased: bool = False
) -> ArchiveReport:
    """Imports a file. Raises ArchiveRefused if it is not an export, and StoreUnavailable."""
    given = _header(first_line(file), tenant)
    taking = _Import(store, given, given if tenant is None else tenant, key, restore_erased=restore_erased)
    await taking.adopt_tombstones([*_tombstones_in(file)])
    for line in lines_of(file):
        await taking.take(line)
    return await taking.end()


def _header(line: bytes, tenant: str | None) -> str:
    """Returns the tenant that the first line of an archive names. Raises ArchiveRefused, also if the `tenant` that the
    records are for cannot be one."""
    try:
        header = orjson.loads(line.removeprefix(BOM_UTF8))
        given = str(header["tenant"]) if header["recalld"] == "tenant" and header["format"] == FORMAT else None
    except (orjson.JSONDecodeError, KeyError, TypeError):
        given = None
    if given is None:
        raise ArchiveRefused("The file does not begin as an export of this version does.")
    if not all(TENANT.fullmatch(name) for name in (given, given if tenant is None else tenant)):
        raise ArchiveRefused(f"A tenant's name {TENANT_RULE}.")
    return given


class _Import:
    """One import of a file: of the tenant `given` in it, as `tenant`."""

    def __init__(self, store: MovableStore, given: str, tenant: str, key: ErasureKey, *, restore_erased: bool) -> None:
        self._store, self._given, self._key, self._restore = store, given, key, restore_erased
        self._adopted: dict[str, TombstoneRecord] = {}
        """The tombstones of the file."""
        self._refused: dict[str, bool] = {}
        self._report = ArchiveReport(tenant)
        self._waiting: list[tuple[int, Record]] = []
        self._collection: Collection | None = None
        self._counters: list[Counter] = []
        self._unembedded: list[Change] = []
        self._named: set[str] = set()
        """Collection and id of each record of the file, and the names of its counters: others may be there, too."""
        self._now = rfc3339(SystemClock().now())

    async def adopt_tombstones(self, records: Sequence[TombstoneRecord]) -> None:
        """Stores the tombstones of the file under the tenant's key. Stores none if they were sealed with another
        erasure key, or if the tenant has a different key. `records`: with the key of the file's tenant."""
        sealed = next((record for record in records if record["erased_id"] == KEY), None)
        if sealed is None:
            return
        tombstones, tenant = [record for record in records if record["erased_id"] != KEY], self._report.tenant
        try:
            erasure_key = self._key.read()
            tenant_key = None if erasure_key is None else unseal(erasure_key, self._given, sealed)
        except (KeyError, TypeError, ValueError):
            tenant_key = None
        if tenant_key is None or not await Tombstones(self._store, tenant, self._key).adopt_key(tenant_key):
            self._report.tombstones_left = len(tombstones)
            return
        self._adopted = {tombstone["erased_id"]: tombstone for tombstone in tombstones}
        await self._store.load(ERASED, [Record({**one, "tenant_id": tenant}, None, "") for one in tombstones])

    async def take(self, line: bytes) -> None:
        self._report.lines += 1
        if self._report.lines == 1:  # the header
            return
        try:
            await self._take(orjson.loads(line))
        except (BadLine, ValueError) as error:
            self._report.bad.append((self._report.lines, str(error)))

    async def _take(self, line: Any) -> None:
        if not isinstance(line, dict):
            raise BadLine("is no JSON object")
        if self._report.expected is not None:
            raise BadLine("comes after the end")
        if "end" in line:
            self._report.expected = str(line.get("hash"))
        elif "counter" in line:
            counter, value = line["counter"], line.get("value")
            if not isinstance(counter, str) or type(value) is not int or not 0 <= value <= LARGEST:
                raise BadLine("is no counter")
            self._counters.append(Counter(self._report.tenant, counter, value))
            self._named.add(counter)
        else:
            name = line.get("in")
            if not isinstance(name, str) or name not in BY_NAME:
                raise BadLine(f"names no collection of a tenant: {str(name)[:60]!r}")
            collection = BY_NAME[name]
            if collection is ERASED or await self._stays_out(line.get("doc")):  # tombstones were imported first
                return
            if collection is not self._collection or len(self._waiting) == BATCH:
                await self._flush()
            self._collection = collection
            self._waiting.append((self._report.lines, self._record(collection, line)))

    async def _stays_out(self, doc: Any) -> bool:
        """Returns True if the record's user was erased from the target since the file was written."""
        user = doc.get("user_id") if isinstance(doc, dict) else None
        if self._restore or not isinstance(user, str):
            return False
        if user not in self._refused:
            tombstone = await Tombstones(self._store, self._report.tenant, self._key).find(user)
            ours = None if tombstone is None else self._adopted.get(tombstone["erased_id"])
            # where it came with the file, the user had returned before that was written
            is_ours = ours is not None and ours.get("erased_at") == (tombstone or {}).get("erased_at")
            self._refused[user] = tombstone is not None and not is_ours
        if self._refused[user]:
            self._report.erased[user] = self._report.erased.get(user, 0) + 1
        return self._refused[user]

    def _record(self, collection: Collection, line: ArchiveLine) -> Record:
        doc = line.get("doc")
        if not isinstance(doc, dict) or not isinstance(doc.get("tenant_id"), str):
            raise BadLine("holds no document with a tenant_id")
        check_fields(collection, doc)
        if doc["tenant_id"] != self._given:
            raise BadLine("belongs to another tenant than the file")
        packed = _packed(collection, line.get("row"))
        if packed is not None and packed.vector is None:
            self._unembedded.append(pending_note(collection, self._report.tenant, doc[collection.id_field], self._now))
        self._named.add(f"{collection.name} {doc[collection.id_field]}")
        return Record(named(doc, self._report.tenant), packed, "")

    async def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting or self._collection is None:
            return
        try:
            self._report.new += await self._store.load(self._collection, [record for _, record in waiting])
        except StoreUnavailable:
            raise
        except Exception:  # noqa: BLE001 (one record is at fault; the loop below finds it)
            for number, record in waiting:
                try:
                    self._report.new += await self._store.load(self._collection, [record])
                except StoreUnavailable:
                    raise
                except CommitConflict as conflict:
                    self._report.bad.append((number, f"another record has its {conflict.reason}"))
                except Exception as error:  # noqa: BLE001 (reported by line)
                    self._report.bad.append((number, f"cannot be stored: {type(error).__name__}"))

    async def end(self) -> ArchiveReport:
        """Imports the remaining records and the counters, and compares the hash."""
        await self._flush()
        await self._store.load_counters(self._counters)
        for at in range(0, len(self._unembedded), BATCH):
            await self._store.commit(self._unembedded[at : at + BATCH])  # a note that exists already is not changed
        if self._report.expected is None:
            cut_short = "the line `end` is missing: the file was cut short"
            self._report.bad.append((self._report.lines + 1, cut_short))
        imported = await summed(self._store, self._report.tenant, self._named)
        self._report.found = imported.hash()
        self._report.bad.sort()
        return self._report


def _packed(collection: Collection, row: Any) -> PackedRecord | None:
    if row is None:
        return None
    if collection.searched is None or not isinstance(row, list) or len(row) != len(PackedRecord.__match_args__):
        raise BadLine("its search row is none")
    head, vector, terms, facets = (None if part is None else b64decode(str(part), validate=True) for part in row)
    if head is None or terms is None or facets is None:
        raise BadLine("its search row lacks a part")
    if len(head) != head_dtype(len(collection.searched.ranges)).itemsize:
        raise BadLine("its search row is of another version")
    if len(terms) % TERM.itemsize or len(facets) % FACET.itemsize:
        raise BadLine("its search row is cut short")
    if is_long(collection.searched, head) and not (vector and holds_windows(len(vector), vector[-1])):
        raise BadLine("its search row has a vector that does not fit it")
    return PackedRecord(head, vector, terms, facets)


_TOMBSTONE = b'{"in":"' + ERASED.name.encode() + b'"'


def _tombstones_in(file: Path) -> Iterator[TombstoneRecord]:
    """Yields the tombstones of a file, wherever they are in it. Broken lines are reported later, in their turn."""
    for line in lines_of(file):
        if line.startswith(_TOMBSTONE):
            with suppress(orjson.JSONDecodeError, KeyError, TypeError):
                doc = orjson.loads(line)["doc"]
                if isinstance(doc["erased_id"], str) and isinstance(doc["created_at"], str):
                    yield ERASED.as_record(doc)


# --- Import of a user's export ----------------------------------------------------------------------------------------


def import_user(file: Path, tenant: str | None, *, restore_erased: bool, as_json_: bool) -> None:
    """Imports a user and prints a report. Raises ArchiveRefused if not every record was imported."""
    settings, tenant = Settings(), tenant or DEFAULT_TENANT
    if not TENANT.fullmatch(tenant):
        raise ArchiveRefused(f"A tenant's name {TENANT_RULE}.")

    async def taken() -> UserReport:
        key = ErasureKey.of(settings)
        async with cli.opened_embedder(settings) as embedder, cli.opened_store(settings, embedder.dim) as store:
            return await read_user(store, embedder, file, tenant, key, restore_erased=restore_erased)

    report = asyncio.run(taken())
    if as_json_:
        numbers = {name: getattr(report, name) for name in ("lines", "new", "there", "taken", "left", "pending")}
        erased = {report.user_id: report.erased} if report.erased else {}
        bad = [{"line": number, "detail": detail} for number, detail in report.bad]
        whose = {"tenant": report.tenant, "user_id": report.user_id}
        cli.as_json({"ok": report.ok, **whose, **numbers, "erased": erased, "bad": bad})
    else:
        print(f"{report.new} new records of {report.user_id} in {report.tenant}, from {report.lines} lines")
        if report.there:
            print(f"{report.there} records of {report.user_id} were there already.")
        if report.taken:
            print(f"{report.taken} records were left out: others have their ids.")
        if report.left:
            print(f"{report.left} operations that were under way were left out.")
        if report.pending:
            print(f"{report.pending} records wait for their vectors: the service embeds them.")
        cli.table_of(("line", "what is wrong"), [(str(number), detail) for number, detail in report.bad[:SHOWN]])
    if report.erased:
        raise ArchiveRefused(
            f"{report.user_id} was erased from {report.tenant}: none of {report.erased} records came in. "
            "To bring this user back on purpose, give --restore-erased."
        )
    if report.bad:
        raise ArchiveRefused(f"{len(report.bad)} lines were not taken in: the first is line {report.bad[0][0]}.")
    if report.taken:
        raise typer.Exit(cli.SOME_LEFT_OUT)


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
    lines = lines_of(file)
    await taking.take(next(lines, b""))
    for line in lines:
        await taking.take(line)
    return await taking.end(Actor(tenant, COMMAND_LINE, "import_user"))
