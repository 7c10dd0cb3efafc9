"""A user's export, and its import: line by line, into the same tenant or another one, on any engine.

    {"type": "export", "format": 1, "user_id": "ada", "exported_at": "2026-06-01T12:00:00.000Z"}
    {"type": "record", "collection": "agent_memories", "record": {"memory_id": …}, "kept": {"importance": 0.4}}
    {"type": "end", "counts": {"agent_memories": 1}, "total": 1}

Without the line `end` an export is incomplete. An import leaves existing records unchanged. A line that cannot be
imported is reported by its number and does not stop the others. Texts are embedded again; if the model fails, the
service embeds them later.
"""

import unicodedata
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Literal, NamedTuple, NotRequired

import orjson
from pydantic import ValidationError
from typing_extensions import TypedDict

from app.actions import schemas as actions
from app.actions.service import indexed, shown_once
from app.audit import trail
from app.audit.tombstones import Tombstones
from app.core.clock import Clock, parse_rfc3339, rfc3339
from app.core.schemas import BODY_LIMITS, identifier
from app.core.work import characters, off_loop
from app.documents.schemas import DOCUMENTS
from app.embedding.embedder import Embedder
from app.errors import RecalldError, RecordDamaged
from app.facts import schemas as facts
from app.facts.aliases import ENTITY_ALIASES, AliasRecord
from app.facts.profile import EMPTY_PROFILE, USERS
from app.facts.service import computed
from app.findings.schemas import FINDINGS
from app.jobs.queue import ENDED, OPERATIONS
from app.memories import repository
from app.memories import schemas as memories
from app.memories.agents import AGENTS
from app.procedures import schemas as procedures
from app.profiles.agents import Agent, render_agent
from app.sessions import schemas as sessions
from app.storage.changes import Change, CommitConflict, Insert
from app.storage.protocol import Finding, Store, Told, untold
from app.storage.record_filters import metadata_terms
from app.storage.records import DAMAGED, damage, left_out
from app.storage.repository import FORGIVEN, pages, require_fit
from app.storage.schema import Collection, Doc, Eq, In, R, both, value_at
from app.storage.scope import Scope
from app.storage.text import content_hash, normalise_content
from app.storage.transfer import Counter as StoredCounter
from app.storage.transfer import MovableStore
from app.tasks import schemas as tasks
from app.views import PARENTS, RecordReader

# --- Whether a stored document, or one that an import brings, is a record as callers see it ---------------------------

LARGEST = 2**63 - 2
"""The largest number of a message or checkpoint, version or count: the next one has to fit into 64 bits, too."""
PAGE = 500
_OTHER_IDS = ("agent_id", "user_id", "session_id", "task_id")


class RecordShape(NamedTuple, Generic[R]):
    """How a record of a kind is rendered for callers, and the model of what they see."""

    render: Callable[[R], Mapping[str, Any]]
    model: Any


_SHAPES: Mapping[str, RecordShape] = {
    memories.MEMORIES.name: RecordShape(lambda memory: memories.render(memory, memory["importance"]), memories.Memory),
    facts.FACTS.name: RecordShape(facts.render, facts.Fact),
    sessions.SESSIONS.name: RecordShape(sessions.render, sessions.Session),
    sessions.MESSAGES.name: RecordShape(sessions.render_message, sessions.Message),
    tasks.TASKS.name: RecordShape(tasks.render, tasks.Task),
    tasks.CHECKPOINTS.name: RecordShape(tasks.render_checkpoint, tasks.Checkpoint),
    actions.ACTIONS.name: RecordShape(actions.render, actions.Action),
    procedures.PROCEDURES.name: RecordShape(procedures.render, procedures.Procedure),
    AGENTS.name: RecordShape(lambda agent: render_agent(agent, Scope(agent["tenant_id"])), Agent),
}


def fault_in(collection: Collection, doc: Mapping[str, object]) -> str | None:
    """Returns why a document is no record of its kind, such as `created_at is no time`, or None."""
    if (fault := damage(collection, doc)) is not None:
        return fault
    place = doc.get(collection.order)
    if collection.place is int and not (type(place) is int and 0 <= place <= LARGEST):
        return f"{collection.order} is no number of a {collection.noun}"
    for name, value in (*doc.items(), ("source.message_seq", value_at(doc, "source.message_seq"))):
        if type(value) is int and not (1 if name == "version" else -LARGEST) <= value <= LARGEST:
            return f"{name} is too small or too large"
    if collection.name in _SHAPES:
        for name in (collection.id_field, *_OTHER_IDS):
            if doc.get(name) is not None and not _is_id(doc[name]):
                return f"{name} is no id"
        shape = _SHAPES[collection.name]
        try:
            require_fit(shape.render(doc), shape.model)
        except DAMAGED as error:
            return _fault_of(error) or f"is no {collection.noun}: {type(error).__name__}"
    return None


def _fault_of(error: Exception) -> str | None:
    """Returns the field that an error names, and what is wrong with it."""
    if isinstance(error, ValidationError):
        place = next(fault["loc"] for fault in error.errors() if fault["type"] not in FORGIVEN)
        return f"{'.'.join(map(str, place[:1]))} is of a wrong type"
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) and error.args else None


def fault_behind(error: Exception, read: Iterable[tuple[Collection, Mapping[str, Any]]]) -> RecordDamaged | None:
    """Returns the error for the caller of a request that has failed, if one of the documents that it had `read` is
    damaged. None: the fault is ours."""
    missing = error.args[0] if isinstance(error, KeyError) and error.args else None
    for collection, doc in read:
        fault = fault_in(collection, doc)
        if fault is None and missing not in doc and missing in _stored_fields(collection):
            fault = f"{missing} is missing"
        if fault is not None:
            record_id = doc.get(collection.id_field)
            left_out(collection, record_id, fault)
            detail = f"The stored {collection.noun} {record_id} is damaged: {fault}."
            return RecordDamaged(f"{detail} `recalld doctor` names all such records.", retry_after=60)
    return None


def _stored_fields(collection: Collection) -> set[str]:
    """Returns the names of fields that every document of a collection has."""
    model = _SHAPES[collection.name].model if collection.name in _SHAPES else None
    return {
        *getattr(model, "model_fields", getattr(model, "__annotations__", ())),
        *collection.fields,
        *collection.needs,
        "created_at",
        "updated_at",
        "version",
    }


def _is_id(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(identifier(value))
    except ValueError:
        return False


async def unfit(store: Store, collections: Sequence[Collection], told: Told = untold) -> list[Finding]:
    """Returns for each kind the finding of `recalld doctor` about records that cannot be read. Reads every record."""
    findings: list[Finding] = []
    for collection in collections:
        if collection.name not in _SHAPES:
            continue
        name, faults, done = f"{collection.name}: records", list[str](), 0
        total = await store.count(collection, None)
        async for docs in pages(partial(store.find, collection, None), collection, PAGE):
            told(name, done, total)
            done += len(docs)
            for doc in docs:
                fault = fault_in(collection, doc)
                if fault is None and collection is memories.MEMORIES and doc.get("status") == "disputed":
                    named = In("memory_id", tuple(doc.get("contradicts", ())))
                    if not await store.count(collection, doc["tenant_id"], named):
                        fault = "is disputed, and nothing that it contradicts is there: resolve it with keep: both"
                if fault is not None:
                    faults.append(f"{doc[collection.id_field]} {fault}")
        findings.append(Finding.of(name, faults))
    return findings


# --- Export -----------------------------------------------------------------------------------------------------------

EXPORT_BATCH = 100
FORMAT = 1
"""The version of the format."""
KEPT: Mapping[str, frozenset[str]] = {
    memories.MEMORIES.name: frozenset(  # `importance` as it is stored: shown is what is left of it
        "anchored_at archived_by archived_at dedupe_key kept_apart merged claimed_key disputes document_id "
        "importance".split()
    ),
    DOCUMENTS.name: frozenset({"upload_id", "charset"}),
    sessions.MESSAGES.name: frozenset({"agent_id", "user_id"}),
    sessions.SESSIONS.name: frozenset({"learned_seq", "revised", "summary_id", "summary_seq"}),
    tasks.TASKS.name: frozenset({"kept_after_end"}),
    tasks.CHECKPOINTS.name: frozenset({"checkpoint_id", "agent_id", "user_id"}),
    actions.ACTIONS.name: frozenset({"consolidated_at"}),
    USERS.name: frozenset({"profile", "interactions", "interacted"}),
    facts.FACTS.name: frozenset({"standing", "start_assumed"}),
    ENTITY_ALIASES.name: frozenset({"alias_id", "states", "version", "updated_at"}),
    FINDINGS.name: frozenset({"evidence"}),
    procedures.PROCEDURES.name: frozenset({"dropped_trials"}),
    procedures.PROCEDURE_HISTORY.name: frozenset({"dropped_trials"}),
}
"""Stored fields that an import cannot derive from what is shown of a record, such as the start of its decay."""


class ExportedRecord(TypedDict):
    """The line of a record. `kept`: the fields of `KEPT` that it has."""

    type: Literal["record"]
    collection: str
    record: Mapping[str, Any]
    kept: NotRequired[Mapping[str, Any]]


class UserExport:
    """Exports users within a caller's scope."""

    def __init__(
        self, store: Store, scope: Scope, collections: Sequence[Collection], clock: Clock, tombstones: Tombstones
    ) -> None:
        self._store, self._scope, self._clock, self._tombstones = store, scope, clock, tombstones
        self._collections, self._reader = trail.owned(collections), RecordReader(store, scope, clock)

    async def note(self, user_id: str, actor: trail.Actor) -> None:
        """Records the export in the audit trail, under the hash if the user was erased."""
        now, tombstone = rfc3339(self._clock.now()), await self._tombstones.find(user_id)
        named, hashed = (user_id, None) if tombstone is None else (None, tombstone["erased_id"])
        await self._store.commit([trail.entry(actor, now, named, [], {"users": {"export": 1}}, hashed)])

    async def lines(self, user_id: str) -> AsyncIterator[bytes]:
        """Yields the records of this user that the key may see, without shared ones, as their routes show them. Records
        written meanwhile may be missing."""
        now = rfc3339(self._clock.now())
        yield _line({"type": "export", "format": FORMAT, "user_id": user_id, "exported_at": now})
        counts: Counter[str] = Counter()
        where = both(Eq("user_id", user_id), self._scope.visible())
        for collection in self._collections:
            find = partial(self._store.find, collection, self._scope.tenant, where)
            async for docs in pages(find, collection, EXPORT_BATCH):
                records = await self._records(collection, docs)
                counts[collection.name] += len(records)
                yield await off_loop(characters(records), _lines, records)
        yield _line({"type": "end", "counts": dict(counts), "total": counts.total()})

    async def _records(self, collection: Collection, docs: Sequence[Doc]) -> list[ExportedRecord]:
        """Returns the lines of those of the documents that the key may read."""
        if collection.kind is not None:
            shown = await self._reader.of(collection.kind, docs)
            return [_record(collection, doc, record) for doc, record in shown]
        readable = await self._reader.readable(collection, docs)
        records = []
        for doc in readable:
            public = collection.public(doc)
            if isinstance(past := public.get("record"), dict):  # a history holds a version of its record
                public["record"] = collection.public(past)
            records.append(_record(collection, doc, public))
        return records


def _record(collection: Collection, doc: Doc, shown: Mapping[str, Any]) -> ExportedRecord:
    line: ExportedRecord = {"type": "record", "collection": collection.name, "record": shown}
    kept = {name: doc[name] for name in sorted(KEPT.get(collection.name, ())) if doc.get(name) is not None}
    if kept:
        line["kept"] = kept
    return line


def _lines(records: Sequence[ExportedRecord]) -> bytes:
    return b"".join(map(_line, records))


def _line(value: Mapping[str, Any]) -> bytes:
    return orjson.dumps(value) + b"\n"


# --- Import -----------------------------------------------------------------------------------------------------------


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
        kinds: Sequence[repository.Embeddable],
        report: UserReport,
        *,
        restore_erased: bool = False,
    ) -> None:
        self._store, self._embedder, self._clock, self._tombstones = store, embedder, clock, tombstones
        self._collections = {collection.name: collection for collection in trail.owned(collections)}
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
            header = orjson.loads(line.removeprefix(BOM_UTF8)) if begins_user_export(line) else {}
            user = _composed(header.get("user_id"))
            if header.get("format") != FORMAT or not isinstance(user, str) or not user:
                raise NoUserExport("The file does not begin as a user's export of this version does.")
            self._report.user_id = user
            self._refused = not self._restore and await self._tombstones.find(user) is not None
            return
        try:
            await self._take(orjson.loads(line))
        except (BadLine, orjson.JSONDecodeError) as error:
            self._bad(self._report.lines, str(error))

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
                try:
                    await self._store.commit(of_record)
                except CommitConflict as conflict:
                    self._bad(number, f"another record has its {conflict.reason}")
                else:
                    self._report.new += 1
        else:
            self._report.new += len(new)

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
        embeddings, result = repository.Embeddings(self._embedder), list[list[Change]]()
        entries = await embeddings.entries([kind.text_to_index(doc) for doc in docs])
        for doc, entry in zip(docs, entries, strict=True):
            pending = entry.vector is None
            fields = kind.fields(embeddings.info(entry))
            if "pending" in fields:
                fields = {**fields, "pending": pending}
            changes: list[Change] = [Insert(collection, doc | fields, entry)]
            if pending:
                self._report.pending += 1
                changes.append(
                    repository.pending_note(
                        collection, self._tenant, doc[collection.id_field], rfc3339(self._clock.now())
                    )
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
        elif collection is memories.MEMORIES and doc["source"].get("session_id") and doc["source"].get("speaker"):
            numbers.append((sessions.counter(doc["source"]["session_id"]), doc["source"].get("message_seq")))
        for name, number in numbers:
            if type(number) is int:
                self._counters[name] = max(self._counters[name], number)

    def _bad(self, number: int, detail: str) -> None:
        self._report.bad.append((number, detail))

    async def end(self, actor: trail.Actor) -> UserReport:
        """Imports the remaining lines and the counters. `actor` is named in the audit trail."""
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


# --- Documents from what an export shows: its other fields are derived by the code that makes new records -------------

SAID = ("role", "content", "tool_calls", "tool_call_id", "result", "refusal", "audio", "function_call")
SHOWN_ONLY: Mapping[str, frozenset[str]] = {
    USERS.name: frozenset(EMPTY_PROFILE),
    actions.ACTIONS.name: frozenset({"rolled_up_into"}),
}
"""What is shown of a record and not stored with it. Fields of a profile are facts, or stand in `profile`."""
IMPORTED = (memories.MEMORIES.name, facts.FACTS.name, procedures.PROCEDURES.name, actions.ACTIONS.name)
"""Collections whose records say in `source` that they were imported."""


def rebuild(collection: Collection, shown: Doc, kept: Mapping[str, Any], tenant: str) -> Doc:
    """Returns the document that a record was exported from, for `tenant`, with `source.origin` set to `import`.
    `shown`: the record as the export has it.

    `kept` has the fields of `KEPT`. Raises KeyError, TypeError or ValueError if the record lacks a required field.
    """
    given = {name: value for name, value in kept.items() if name in KEPT.get(collection.name, ())}
    owners = {name: None for name in ("agent_id", "user_id") if name in collection.fields}
    stored = {name: value for name, value in shown.items() if name not in SHOWN_ONLY.get(collection.name, ())}
    if collection is sessions.MESSAGES:
        extra = sessions.extra_of(shown)
        stored = {name: value for name, value in stored.items() if name not in extra} | {"extra": extra}
    doc = owners | stored | {"tenant_id": tenant} | given
    past = _PAST.get(collection.name)
    if past is not None:
        return doc | {"record": _rebuilt(past, shown["record"])}
    return _rebuilt(collection, doc)


def _rebuilt(collection: Collection, doc: Doc) -> Doc:
    make = _MAKERS.get(collection.name)
    whole = doc if make is None else doc | {**make(doc)}
    if collection.name in IMPORTED:
        whole = whole | {"source": {**whole["source"], "origin": "import"}}
    return whole


def _memory(memory: memories.MemoryRecord) -> memories.MemoryRecord:
    return {
        "content_hash": content_hash(memory["content"]),
        **repository.own_time(memory["event_at"], memory.get("event_at_precision")),
        **repository.when_due(memory),
        "identity_hash": repository.identity_hash(memory),
        "metadata_terms": metadata_terms(memory["metadata"]),
        "anchored_at": memory.get("anchored_at") or memory["last_accessed"] or memory["created_at"],
        "dedupe_key": memory.get("dedupe_key"),
        "archived_by": memory.get("archived_by"),
        "archived_at": memory.get("archived_at"),
        "claimed_key": memory.get("claimed_key"),
        "disputes": memory.get("disputes"),
        "merged": memory.get("merged", False),
        "standing": repository.standing(memory),
        "replaced_by": None,  # the run that made them, and could undo them, stays where it was
    }


def _action(action: actions.ActionRecord) -> actions.ActionRecord:
    source: memories.Source = {**repository.SOURCE, "session_id": action["session_id"], **(action.get("source") or {})}
    hashed = shown_once(action["content"], action["outcome"], action["entities"])
    return {"content_hash": hashed, "source": source, **indexed(action)}


def _alias(alias: AliasRecord) -> AliasRecord:
    """Returns the keys, and the fields that joining names needs. Raises ValueError for a status that no alias has, and
    for states that do not end with it."""
    states = alias["states"]
    if any(state["status"] not in ("active", "dismissed") or parse_rfc3339(state["from"]) is None for state in states):
        raise ValueError("states")
    if alias["status"] != states[-1]["status"]:
        raise ValueError(alias["status"])
    return {
        "alias_id": alias["alias_id"],
        "rule": alias["rule"],
        "version": alias["version"],
        "created_at": alias["created_at"],
        "name_key": facts.key_of(alias["name"]),
        "alias_key": facts.key_of(alias["alias"]),
    }


def _session(session: sessions.SessionRecord) -> sessions.SessionRecord:
    """Returns the summary fields, which an export omits for a session without a summary, and the terms of the
    metadata."""
    return {
        "summary_id": session.get("summary_id"),
        "summary_seq": session.get("summary_seq"),
        "metadata_terms": metadata_terms(session["metadata"]),
    }


def _message(message: sessions.MessageRecord) -> sessions.MessageRecord:
    if message.get("deleted_at") is not None:
        return {"text": "", "own_text": None}
    fields = {name: value_at(message, name) for name in SAID if value_at(message, name) is not None}
    said, limit = sessions.StoredMessage.model_validate(fields), BODY_LIMITS.text_chars
    text, own = sessions.shortened(said.text(), limit), sessions.shortened(said.text(own=True), limit)
    return {"text": text, "own_text": None if own == text else own}


_PAST: Mapping[str, Collection] = {
    memories.HISTORY.name: memories.MEMORIES,
    procedures.PROCEDURE_HISTORY.name: procedures.PROCEDURES,
}
_MAKERS: Mapping[str, Callable[[Any], Mapping[str, Any]]] = {
    memories.MEMORIES.name: _memory,
    facts.FACTS.name: computed,
    ENTITY_ALIASES.name: _alias,
    actions.ACTIONS.name: _action,
    procedures.PROCEDURES.name: lambda procedure: {
        "name_key": normalise_content(procedure["name"]),
        "content_hash": content_hash(procedure["procedure_id"]),
    },
    sessions.SESSIONS.name: _session,
    sessions.MESSAGES.name: _message,
    OPERATIONS.name: lambda _: {"undo": None, "undoing": None},  # an export omits the undo data
}
