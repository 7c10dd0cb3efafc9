"""Imports a user's export line by line, into the same tenant or another one, on any engine.

Existing records stay unchanged. A line that cannot be imported is reported by its number and does not stop the others.
Texts are embedded again; if the model fails, the service embeds them later.
"""

import unicodedata
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from app.audit import trail
from app.audit.tombstones import Tombstones
from app.audit.trail import Actor, owned
from app.core.clock import Clock, rfc3339
from app.embedding.embedder import Embedder
from app.errors import RecalldError
from app.jobs.models import OPERATIONS
from app.jobs.queue import ENDED
from app.memories.embedding import Embeddings
from app.memories.pending import Embeddable, pending_note
from app.memories.schemas import MEMORIES
from app.retention.rebuilding import rebuild
from app.retention.service import FORMAT
from app.retention.shapes import fault_in
from app.sessions import schemas as sessions
from app.storage.changes import Change, CommitConflict, Insert
from app.storage.records import DAMAGED
from app.storage.schema import Collection, Doc, In, value_at
from app.storage.transfer import Counter as StoredCounter
from app.storage.transfer import MovableStore
from app.tasks import schemas as tasks
from app.views import PARENTS

BATCH = 100
KINDS: Mapping[str, tuple[type, ...]] = {
    "text": (str,),
    "time": (str,),
    "number": (int, float),
    "flag": (bool,),
    "list": (list,),
}
CALLERS_IDS = ("agent_id", "user_id", "session_id", "task_id")


class NoUserExport(RecalldError):
    """The file does not begin like a user's export."""


class BadLine(Exception):
    """The reason why a line cannot be imported."""


@dataclass(slots=True)
class UserReport:
    """The result of an import. `there` counts records of the user that existed already, `taken` those whose ids other
    records have, `left` operations under way, `erased` the records of an erased user. None of these is imported."""

    tenant: str
    user_id: str = ""
    lines: int = 0
    new: int = 0
    there: int = 0
    taken: int = 0
    left: int = 0
    erased: int = 0
    pending: int = 0
    bad: list[tuple[int, str]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True if no line was invalid and no record was refused."""
        return not self.bad and not self.erased


def begins_user_export(line: bytes) -> bool:
    """Returns True if the line is the header of a user's export."""
    try:
        return bool(orjson.loads(line.removeprefix(BOM_UTF8))["type"] == "export")
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return False


def check_fields(collection: Collection, doc: Doc) -> None:
    """Checks the fields that an engine relies on: the id, the order, and the types of declared fields.
    Raises BadLine."""
    if not isinstance(doc.get(collection.id_field), str) or not doc[collection.id_field]:
        raise BadLine(f"holds no {collection.id_field}")
    if doc.get(collection.order) is None:
        raise BadLine(f"holds no {collection.order}")
    for name, kind in collection.fields.items():
        value = value_at(doc, name)
        if value is not None and (not isinstance(value, KINDS[kind]) or (kind == "number" and value is True)):
            raise BadLine(f"{name} is no {kind}")
    if (fault := fault_in(collection, doc)) is not None:
        raise BadLine(fault)


def _with_composed_ids(record: Doc) -> Doc:
    """Returns the record with its callers' ids in one spelling. An editor may have decomposed those of the file."""
    return record | {name: _composed(record[name]) for name in CALLERS_IDS if name in record}


def _composed(name: Any) -> Any:
    return unicodedata.normalize("NFC", name) if isinstance(name, str) else name


class UserImport:
    """Imports an export: call `take` for each line in order, then `end`. `restore_erased` also imports a user with a
    tombstone."""

    def __init__(
        self,
        store: MovableStore,
        embedder: Embedder,
        clock: Clock,
        tombstones: Tombstones,
        collections: Sequence[Collection],
        kinds: Sequence[Embeddable],
        report: UserReport,
        *,
        restore_erased: bool = False,
    ) -> None:
        self._store, self._embedder, self._clock, self._tombstones = store, embedder, clock, tombstones
        self._collections = {collection.name: collection for collection in owned(collections)}
        self._kinds = {kind.collection.name: kind for kind in kinds}
        self._report, self._tenant, self._restore = report, report.tenant, restore_erased
        self._refused = False
        self._seen: Counter[str] = Counter()
        self._ended = False
        self._waiting: list[tuple[int, Doc]] = []
        self._collection: Collection | None = None
        self._others: set[tuple[str, str]] = set()
        """Ids that records of other owners have."""
        self._counters: Counter[str] = Counter()

    async def take(self, line: bytes) -> None:
        """Imports a line. Raises NoUserExport if the first line is not that of an export, ErasureKeyUnavailable, and
        StoreUnavailable."""
        self._report.lines += 1
        if self._report.lines == 1:
            await self._begin(line)
            return
        try:
            await self._take(orjson.loads(line))
        except (BadLine, orjson.JSONDecodeError) as error:
            self._bad(self._report.lines, str(error))

    async def _begin(self, line: bytes) -> None:
        header = orjson.loads(line.removeprefix(BOM_UTF8)) if begins_user_export(line) else {}
        user = _composed(header.get("user_id"))
        if header.get("format") != FORMAT or not isinstance(user, str) or not user:
            raise NoUserExport("The file does not begin as a user's export of this version does.")
        self._report.user_id = user
        self._refused = not self._restore and await self._tombstones.find(user) is not None

    async def _take(self, line: Any) -> None:
        if not isinstance(line, dict) or self._ended:
            raise BadLine("comes after the end" if self._ended else "is no JSON object")
        if line.get("type") == "end":
            self._ended = True
            if line.get("counts") != dict(self._seen):
                raise BadLine("counts other records than the file has")
            return
        collection = self._collections.get(str(line.get("collection")))
        if line.get("type") != "record" or collection is None or not isinstance(line.get("record"), dict):
            raise BadLine("is no record of a user")
        self._seen[collection.name] += 1
        if self._refused:
            self._report.erased += 1
            return
        if collection is not self._collection or len(self._waiting) == BATCH:
            await self._flush()
        self._collection = collection
        self._waiting.append((self._report.lines, self._document(collection, line)))

    def _document(self, collection: Collection, line: Doc) -> Doc:
        record, kept = line["record"], line.get("kept", {})
        if not isinstance(kept, dict):
            raise BadLine("its part `kept` is no object")
        record, kept = _with_composed_ids(record), _with_composed_ids(kept)
        if {part["user_id"] for part in (record, kept) if "user_id" in part} != {self._report.user_id}:
            raise BadLine("belongs to another user than the file")
        try:
            doc = rebuild(collection, record, kept, self._tenant)
        except DAMAGED as error:
            raise BadLine(f"is no record of {collection.name}: {type(error).__name__}") from error
        check_fields(collection, doc)
        return doc

    # --- Inserting ----------------------------------------------------------------------------------------------------

    async def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        collection = self._collection
        if not waiting or collection is None:
            return
        for _, doc in waiting:
            self._count(collection, doc)
        new = await self._new(collection, waiting)
        changes = await self._changes(collection, [doc for _, doc in new])
        try:
            await self._store.commit([change for of_record in changes for change in of_record])
        except CommitConflict:
            for (number, _), of_record in zip(new, changes, strict=True):
                await self._alone(number, of_record)
        else:
            self._report.new += len(new)

    async def _alone(self, number: int, changes: list[Change]) -> None:
        try:
            await self._store.commit(changes)
        except CommitConflict as conflict:
            self._bad(number, f"another record has its {conflict.reason}")
        else:
            self._report.new += 1

    async def _new(self, collection: Collection, waiting: Sequence[tuple[int, Doc]]) -> list[tuple[int, Doc]]:
        """Returns the documents to insert. A child of another owner's record is skipped like its parent."""
        name = collection.id_field
        ids = tuple(dict.fromkeys(str(doc[name]) for _, doc in waiting))
        there = await self._store.find(collection, self._tenant, In(name, ids), limit=len(ids))
        user = self._report.user_id
        self._others |= {(collection.name, str(doc[name])) for doc in there if doc.get("user_id") != user}
        known = {str(doc[name]): doc.get("user_id") == user for doc in there}
        parent = PARENTS.get(
            collection.name
        )  # the collection of what a document belongs to, and the field that names it
        new = []
        for number, doc in waiting:
            if collection is OPERATIONS and doc["status"] not in ENDED:
                self._report.left += 1
            elif parent is not None and (parent[0].name, str(doc.get(parent[1]))) in self._others:
                self._report.taken += 1
            elif str(doc[name]) in known:
                self._report.there += known[str(doc[name])]
                self._report.taken += not known[str(doc[name])]
            else:
                known[str(doc[name])] = True
                new.append((number, doc))
        return new

    async def _changes(self, collection: Collection, docs: Sequence[Doc]) -> list[list[Change]]:
        """Returns for each document the changes that insert it, with a note if its vector is pending."""
        kind = self._kinds.get(collection.name)
        if kind is None:
            return [[Insert(collection, doc)] for doc in docs]
        embeddings, result = Embeddings(self._embedder), list[list[Change]]()
        entries = await embeddings.entries([kind.passage(doc) for doc in docs])
        for doc, entry in zip(docs, entries, strict=True):
            pending = entry.vector is None
            fields = kind.fields(embeddings.info(entry))
            if "pending" in fields:
                fields = {**fields, "pending": pending}
            changes: list[Change] = [Insert(collection, doc | fields, entry)]
            if pending:
                self._report.pending += 1
                changes.append(
                    pending_note(collection, self._tenant, doc[collection.id_field], rfc3339(self._clock.now()))
                )
            result.append(changes)
        return result

    def _count(self, collection: Collection, doc: Doc) -> None:
        """Records the highest number of each session and task, so that the next append continues after it."""
        numbers: list[tuple[str, Any]] = []
        if collection is sessions.MESSAGES:
            numbers.append((sessions.counter(doc["session_id"]), doc["seq"]))
        elif collection is sessions.SESSIONS:
            numbers.append((sessions.counter(doc["session_id"]), doc.get("learned_seq")))
        elif collection is tasks.CHECKPOINTS:
            numbers.append((tasks.counter(doc["task_id"]), doc["seq"]))
        elif collection is MEMORIES and doc["source"].get("session_id") and doc["source"].get("speaker"):
            numbers.append((sessions.counter(doc["source"]["session_id"]), doc["source"].get("message_seq")))
        for name, number in numbers:
            if type(number) is int:
                self._counters[name] = max(self._counters[name], number)

    def _bad(self, number: int, detail: str) -> None:
        self._report.bad.append((number, detail))

    async def end(self, actor: Actor) -> UserReport:
        """Imports the remaining lines and the counters. `actor` is named in the audit trail. Raises NoUserExport for an
        empty file."""
        if not self._report.lines:
            raise NoUserExport("The file is empty.")
        await self._flush()
        await self._store.load_counters(
            [StoredCounter(self._tenant, name, value) for name, value in self._counters.items() if value]
        )
        if not self._ended:
            self._bad(self._report.lines + 1, "the line `end` is missing: the file was cut short")
        if self._report.new:
            now, user = rfc3339(self._clock.now()), self._report.user_id
            changes = {"users": {"import": 1}}
            await self._store.commit([trail.entry(actor, now, user, [], changes)])
        self._report.bad.sort()
        return self._report
