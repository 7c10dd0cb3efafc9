"""`recalld import`: imports an archive of `recalld export` line by line.

Tombstones are imported first. Users who were erased in the target are not imported. The file's own tombstones are
imported if this machine's erasure key opens them.
"""

from base64 import b64decode
from codecs import BOM_UTF8
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.progress import Progress

from app.audit.tombstones import ErasureKey, Tombstones
from app.audit.trail import ERASED
from app.cli._common import as_json, on_store, table_of
from app.cli.archive import BY_NAME, FORMAT, ArchiveLine, ArchiveRefused, Sum, named, summed
from app.cli.retention import ArchivedTombstones
from app.core.clock import SystemClock, rfc3339
from app.core.schemas import TENANT, TENANT_RULE
from app.errors import StoreUnavailable
from app.memories.embedding import pending_note
from app.retention.shapes import LARGEST
from app.retention.user_export import BadLine, check_fields
from app.settings import Settings
from app.storage.changes import Change, CommitConflict
from app.storage.index.record_codec import FACET, TERM, PackedRecord, head_dtype, holds_windows, is_long
from app.storage.schema import Collection
from app.storage.transfer import Counter, MovableStore, Record

BATCH = 200
SHOWN = 20


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


def import_(file: Path, tenant: str | None, *, restore_erased: bool = False, as_json_: bool) -> None:
    """Imports a tenant and prints a report. Existing records stay, so an interrupted import can be repeated. Invalid
    lines are reported by number and do not stop the others. Raises ArchiveRefused if the result is not what was
    exported."""
    try:
        with file.open("rb") as lines:
            _header(lines.readline(), tenant)  # before a store is made
    except OSError as error:
        raise ArchiveRefused(f"{file} cannot be read: {error.strerror}.") from error
    key = ErasureKey.of(Settings())
    report = on_store(lambda store: read(store, file, tenant, key, restore_erased=restore_erased))
    if as_json_:
        bad = [{"line": number, "detail": detail} for number, detail in report.bad]
        names = ("tenant", "lines", "new", "expected", "found", "erased", "tombstones_left")
        as_json({"ok": report.ok, **{name: getattr(report, name) for name in names}, "bad": bad})
    else:
        print(f"{report.new} new records of {report.tenant}, from {report.lines} lines; hash {report.found}")
        table_of(("erased user", "records left out"), [(user, str(number)) for user, number in report.erased.items()])
        if report.tombstones_left:
            print(
                f"{report.tombstones_left} tombstones were left out: another erasure key sealed them, or "
                f"{report.tenant} has a key of its own. Whom they name cannot be told here."
            )
        table_of(("line", "what is wrong"), [(str(number), detail) for number, detail in report.bad[:SHOWN]])
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


async def read(
    store: MovableStore, file: Path, tenant: str | None, key: ErasureKey, *, restore_erased: bool = False
) -> ArchiveReport:
    """Imports a file. Raises ArchiveRefused if it is not an export, and StoreUnavailable."""
    taking = _Import(store, tenant, key, restore_erased=restore_erased)
    try:
        archived = ArchivedTombstones.of_file(file)
        with file.open("rb") as lines, Progress(console=Console(stderr=True), transient=True) as progress:
            bar = progress.add_task("importing", total=file.stat().st_size)  # noqa: ASYNC240
            for line in lines:
                await taking.take(line, archived)
                progress.advance(bar, len(line))
    except OSError as error:
        raise ArchiveRefused(f"{file} cannot be read: {error.strerror}.") from error
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
    """One import of a file."""

    def __init__(self, store: MovableStore, tenant: str | None, key: ErasureKey, *, restore_erased: bool) -> None:
        self._store, self._tenant, self._key, self._restore = store, tenant, key, restore_erased
        self._archived = ArchivedTombstones([])
        self._refused: dict[str, bool] = {}
        self._of_file = Sum()
        self._report = ArchiveReport()
        self._waiting: list[tuple[int, Record]] = []
        self._collection: Collection | None = None
        self._counters: list[Counter] = []
        self._unembedded: list[Change] = []
        self._given = ""
        self._named: set[str] = set()
        """Collection and id of each record of the file, and the names of its counters: others may be there, too."""
        self._now = rfc3339(SystemClock().now())

    async def take(self, line: bytes, archived: ArchivedTombstones) -> None:
        """Imports a line. Raises ArchiveRefused if the first line is not that of an archive."""
        self._report.lines += 1
        if self._report.lines == 1:
            self._given = _header(line, self._tenant)
            self._report.tenant = self._given if self._tenant is None else self._tenant
            self._archived = archived
            left = await archived.adopt(self._store, self._given, self._report.tenant, self._key)
            self._report.tombstones_left = left
            return
        try:
            await self._take(orjson.loads(line))
        except (BadLine, ValueError) as error:
            self._bad(self._report.lines, str(error))

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
            if name not in BY_NAME:
                raise BadLine(f"names no collection of a tenant: {str(name)[:60]!r}")
            collection = BY_NAME[name]
            if collection is ERASED:  # tombstones were imported first
                self._of_file.add(ERASED, Record(line["doc"], None, ""))
                return
            if await self._stays_out(line.get("doc")):
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
            self._refused[user] = tombstone is not None and not self._archived.has(tombstone)
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
                await self._alone(number, record)

    async def _alone(self, number: int, record: Record) -> None:
        assert self._collection is not None
        try:
            self._report.new += await self._store.load(self._collection, [record])
        except StoreUnavailable:
            raise
        except CommitConflict as conflict:
            self._bad(number, f"another record has its {conflict.reason}")
        except Exception as error:  # noqa: BLE001 (reported by line)
            self._bad(number, f"cannot be stored: {type(error).__name__}")

    def _bad(self, number: int, detail: str) -> None:
        self._report.bad.append((number, detail))

    async def end(self) -> ArchiveReport:
        """Imports the remaining records and the counters, and compares the hash."""
        await self._flush()
        if self._report.lines == 0:
            raise ArchiveRefused("The file is empty.")
        await self._store.load_counters(self._counters)
        for at in range(0, len(self._unembedded), BATCH):
            await self._store.commit(self._unembedded[at : at + BATCH])  # a note that exists already is not changed
        if self._report.expected is None:
            self._bad(self._report.lines + 1, "the line `end` is missing: the file was cut short")
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
