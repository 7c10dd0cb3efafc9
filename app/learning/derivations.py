"""Derivations: what a learning job did with which sources, and how to undo it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias, TypedDict, TypeVar

import orjson

from app.core.clock import Clock, parse_rfc3339, rfc3339
from app.embedding.embedder import Embedder
from app.facts.profile import USERS, UserRecord, is_raised_only
from app.facts.schemas import FACT_GROUPS, FACTS
from app.findings.schemas import FINDINGS
from app.jobs.queue import OperationUndo, skipping
from app.jobs.runner import Done, Run, undo_each
from app.learning.dependencies import Tools
from app.memories.agents import AGENTS
from app.memories.repository import Embeddings, MemoryRepository
from app.memories.schemas import MEMORIES, STATEMENTS
from app.procedures.schemas import PROCEDURES, TrialCounts
from app.procedures.service import COUNTED, ProcedureRepository, restored
from app.sessions.repository import expected
from app.sessions.schemas import SESSIONS, SessionRecord
from app.storage.changes import Change, CommitConflict, Delete, DeleteWhere, Insert, Update
from app.storage.protocol import Order, Store
from app.storage.repository import pages
from app.storage.schema import Collection, Doc, Eq, In, OwnedRecord, both, value_at
from app.storage.scope import Scope


class MergedIds(TypedDict):
    """A group of duplicate memories by their ids."""

    kept: str
    retired: list[str]


class ProfileQuote(TypedDict):
    """The words of a message that show a value of the profile."""

    field: str
    value: str
    quote: str


class DerivationResult(TypedDict, total=False):
    """What a plan did, for the report of its operation: ids of records, counts, reasons. Each extractor and each job
    fills in some: `{"fact_ids": ["fact_1"], "dropped": {"not_said": 2}}`."""

    # extractors of conversations and episodes
    memory_ids: list[str]
    created: int
    superseded: int
    disputed: int
    fact_ids: list[str]
    procedure_ids: list[str]
    refined_ids: list[str]
    learned: int
    changed: list[str]
    quotes: list[ProfileQuote]
    summary: str | None
    dropped: dict[str, int]
    # merges: of a group of memories, or whether the model merged a fact with its rivals
    merged: MergedIds | bool
    reason: str | None
    status: str
    facts: int
    # reflection and trials of procedures
    finding: str
    finding_id: str
    procedure_id: str
    trial_id: str
    verdict: str
    current: TrialCounts
    revised: TrialCounts
    skipped: str
    llm: dict[str, int]


class UndoStep(TypedDict, total=False):
    """One step of an undo: how a job left a record, and what the record was before.

    A derivation that can be undone has `expect`, what tells that nobody has changed the record since, and of a record
    that existed before also `was` (its version) and `before` (the old values of the changed fields):
    `{"collection": "agent_memories", "id": "mem_1", "expect": {"version": 3}, "was": 2, "before": {"trust": 0.5}}`. A
    statement, which nobody changes, has neither. Once it is undone, a step says what it restored: the version `was`, as
    version `now`. `raised` marks the step of a user's record that was changed for facts alone; such a record never
    prevents an undo.
    """

    collection: str
    id: str
    expect: Doc
    was: int
    before: Doc
    raised: bool
    now: int


class DerivationRecord(OwnedRecord, total=False):
    """A document of the collection `derivations`. One that a conversation was learned from has `session_id`, `from_seq`
    and `to_seq`; one of episodes has `action_ids`."""

    derivation_id: str
    session_id: str | None
    from_seq: int
    to_seq: int
    action_ids: list[str]
    operation_id: str | None
    result: DerivationResult
    undo: list[UndoStep]
    undone: bool


DERIVATIONS: Collection[DerivationRecord] = Collection(
    name="derivations",
    id_field="derivation_id",
    fields={
        "agent_id": "text",
        "user_id": "text",
        "session_id": "text",
        "operation_id": "text",
        "undone": "flag",
        "created_at": "time",
    },
    indexes=(("session_id",), ("operation_id",), ("user_id",)),
    global_indexes=("created_at",),
    opaque=("result", "undo"),
    audited=False,
)
"""If a job learned from sources, the id is a hash of the sources, the extractor and the version of the prompt, so that
no source is learned from twice, even after an undo. `undo` contains the steps to undo it, as long as `operation_id`
names an operation that can be undone."""


DerivationPlan: TypeAlias = Callable[[], Awaitable[tuple[DerivationResult, list[Change]]]]
"""Returns a result for the operation's report, and the changes that make it true."""

S = TypeVar("S")

REPLANS = 8
"""How often a plan runs before a conflict is raised."""
PAGE = 50
_UNDOABLE: tuple[Collection, ...] = (MEMORIES, FACTS, FACT_GROUPS, PROCEDURES, USERS, AGENTS, FINDINGS)
UNDOABLE: Mapping[str, Collection] = {collection.name: collection for collection in _UNDOABLE}
SUMMARY = ("summary", "summary_id", "summary_seq")
"""Fields of a session that an undo restores together with the memory of its summary."""
LEFT_ALONE = frozenset({"updated_at", "known", "rule", "operation_id"})
"""Fields that an undo never sets back. Of a group of facts `known` is the time of the last change, and `rule` keeps an
undone merge from being made again. The `operation_id` of a finding keeps it from being applied again by itself."""


async def steps_back(store: Store, changes: Sequence[Change]) -> list[UndoStep]:
    """Returns the steps that undo `changes`, read from the store before they are made."""
    steps: dict[tuple[str, str], UndoStep] = {}
    for change in changes:
        if isinstance(change, Update) and change.collection is SESSIONS and "summary" in change.set:
            steps[SESSIONS.name, change.id] = await _summary_step(store, change)
        if isinstance(change, Insert) and change.collection is STATEMENTS:
            said = str(change.doc["statement_id"])
            steps[STATEMENTS.name, said] = {"collection": STATEMENTS.name, "id": said}
        if not isinstance(change, Insert | Update) or change.collection.name not in UNDOABLE:
            continue
        collection = change.collection
        doc_id = change.id if isinstance(change, Update) else str(change.doc[collection.id_field])
        if is_raised_only(change):
            user = None if isinstance(change, Insert) else await store.get(USERS, change.tenant, doc_id)
            was = 0 if user is None else user["version"]
            raised: UndoStep = {"collection": collection.name, "id": doc_id, "was": was, "raised": True}
            steps.setdefault((collection.name, doc_id), raised)
            continue
        step = steps.get((collection.name, doc_id))
        old: Doc | None = (
            change.doc if isinstance(change, Insert) else await store.get(collection, change.tenant, doc_id)
        )
        if step is None and old is not None:
            step = {"collection": collection.name, "id": doc_id, "expect": _seen(change, old)}
            if isinstance(change, Update):
                step |= {"was": old["version"], "before": {}}
            steps[collection.name, doc_id] = step
        if step is None or isinstance(change, Insert):
            continue
        step["expect"]["version"] += change.inc.get("version", 0)
        if old is not None and "before" in step:
            changed = {field: old.get(field) for field in change.set if field not in LEFT_ALONE}
            step["before"] = changed | step["before"]
    return list(steps.values())


async def _summary_step(store: Store, change: Update[SessionRecord]) -> UndoStep:
    """Returns the step that restores the summary of a session. It applies only if nobody has written
    another one since."""
    old = await store.get(SESSIONS, change.tenant, change.id) or {}
    return {
        "collection": SESSIONS.name,
        "id": change.id,
        "expect": {name: value_at(change.set, name) for name in SUMMARY},
        "before": {name: value_at(old, name) for name in SUMMARY},
    }


def _seen(change: Insert | Update, doc: Doc) -> Doc:
    """Returns the fields that reveal whether a record was changed or used since. The end of a trial may be undone
    though the procedure was used since, because it is used all the time."""
    trial = isinstance(change, Update) and "trial" in change.set
    names = COUNTED if change.collection is PROCEDURES and not trial else ("version",)
    return {name: doc[name] for name in names}


def id_of(source: Sequence[Any], *more: str) -> str:
    """Returns the id of a derivation: a hash of its source as JSON and of the further texts."""
    return f"der_{blake2b(orjson.dumps([source, *more]), digest_size=16).hexdigest()}"


async def commit_noted(
    run: Run, plan: DerivationPlan, derivation_id: str, of: DerivationRecord, attempts: int = REPLANS
) -> DerivationResult | None:
    """Commits the plan's changes together with their derivation. Returns the result, or None if another worker has
    committed the same derivation.

    `of` are owner and sources. Raises CommitConflict if other writers win every attempt."""

    async def noted() -> tuple[DerivationResult, list[Change]]:
        result, changes = await plan()
        by, now = run.lease.job.operation_id, run.clock.now()
        return result, [*changes, await derivation(run.store, run.tenant, changes, derivation_id, of, by, now, result)]

    try:
        return await commit_planned(run, noted, attempts)
    except CommitConflict as conflict:
        if conflict.collection == DERIVATIONS.name:
            return None
        raise


async def derivation(
    store: Store,
    tenant: str,
    changes: Sequence[Change],
    derivation_id: str,
    of: DerivationRecord,
    operation_id: str | None,
    now: datetime,
    result: DerivationResult | None = None,
) -> Insert[DerivationRecord]:
    """Returns the insert of the derivation of `changes`, to be committed with them. `of` are owner and sources."""
    note: DerivationRecord = {
        "tenant_id": tenant,
        "derivation_id": derivation_id,
        "session_id": None,
        **of,
        "operation_id": operation_id,
        "result": result or {},
        "undo": await steps_back(store, changes) if operation_id else [],
        "undone": False,
        "created_at": rfc3339(now),
    }
    return Insert(DERIVATIONS, note)


async def commit_planned(run: Run, plan: Callable[[], Awaitable[tuple[S, list[Change]]]], attempts: int = REPLANS) -> S:
    """Commits the plan's changes, and returns its result. Without a derivation among them the work may be repeated.
    Raises CommitConflict if other writers win every attempt, or another worker has committed the same derivation."""
    for attempt in range(attempts):
        result, changes = await plan()
        try:
            await run.commit(changes)
        except CommitConflict as conflict:
            if attempt + 1 == attempts or conflict.collection == DERIVATIONS.name:
                raise
            continue
        return result
    raise AssertionError("the last attempt returns or raises")


async def undo_of(run: Run, tools: Tools) -> OperationUndo | None:
    """Returns the data for an undo of the run's operation, which is possible for some days from the request
    (RECALLD_RETENTION_ARCHIVE_DAYS). Returns None if no attempt changed anything."""
    by = run.lease.job.operation_id
    if not by:
        return None
    notes = await run.store.find(DERIVATIONS, run.tenant, Eq("operation_id", by))
    if not any(note["undo"] for note in notes):
        return None
    asked_at = parse_rfc3339(run.lease.doc["created_at"])
    return {"by": by, "until": rfc3339(asked_at + timedelta(days=tools.settings.retention.archive_days))}


class Restored(NamedTuple):
    """The version `was` of a record, which the undo of a later derivation restored as version `now`."""

    was: int
    now: int


def _as_left(record: Mapping[str, object], expect: Mapping[str, object], moved: Restored | None) -> bool:
    """Returns True if nobody else has changed the record since."""
    seen = record if moved is None or moved.now != record["version"] else {**record, "version": moved.was}
    return all(seen[name] == value for name, value in expect.items())


class DerivationUndo:
    """Undoes an operation that wrote derivations."""

    def __init__(self, store: Store, embedder: Embedder, clock: Clock) -> None:
        self._store, self._embeddings, self._clock = store, Embeddings(embedder), clock

    async def undo(self, run: Run) -> Done:
        """Undoes the derivations of an operation, the last one first. Derivations that cannot be undone are counted,
        not raised."""
        by = str(run.payload["undo"]["by"])
        moved: dict[tuple[str, str], Restored] = {}
        async for note in self._notes(run.tenant, by, undone=True):
            with skipping(DERIVATIONS, note["derivation_id"]):
                for step in note["undo"]:
                    moved.setdefault((step["collection"], step["id"]), Restored(step["was"], step["now"]))
        back = partial(self._back, moved=moved)
        return await undo_each(run, DERIVATIONS, self._notes(run.tenant, by, undone=False), back)

    async def _notes(self, tenant: str, operation_id: str, *, undone: bool) -> AsyncIterator[DerivationRecord]:
        """Yields derivations that changed something, the last one first; undone ones in the order of creation."""
        order: Order = "asc" if undone else "desc"
        where = both(Eq("operation_id", operation_id), Eq("undone", undone))
        async for notes in pages(partial(self._store.find, DERIVATIONS, tenant, where), DERIVATIONS, PAGE, order):
            for note in notes:
                if note.get("undo"):
                    yield note

    async def _back(self, note: DerivationRecord, moved: dict[tuple[str, str], Restored]) -> list[Change] | None:
        """Returns the changes that undo a derivation, or None if a record has changed since or nothing is left.
        Deletes created records first, and restores what was changed last before the rest: they may occupy the names of
        restored ones."""
        tenant, changes, steps = note["tenant_id"], list[Change](), list[UndoStep]()
        # statements change no record: `{"collection": "statements", "id": "stm_…"}`
        said = In("statement_id", tuple(step["id"] for step in note["undo"] if step["collection"] == STATEMENTS.name))
        if said.values and await self._store.count(STATEMENTS, tenant, said):
            changes.append(DeleteWhere(STATEMENTS, tenant, said))
        last_first = [step for step in note["undo"][::-1] if step["collection"] != STATEMENTS.name]
        for step in sorted(last_first, key=lambda step: "before" in step):
            place = (step["collection"], step["id"])
            if place[0] == SESSIONS.name:
                changes += await self._summary_back(tenant, step)
                continue
            if "raised" in step:
                back, restored = await self._raised_back(tenant, step, moved.get(place))
                changes, steps = [*changes, *back], [*steps, *restored]
                continue
            collection = UNDOABLE[place[0]]
            doc: Doc | None = await self._store.get(collection, tenant, step["id"])
            if doc is None or not _as_left(doc, step["expect"], moved.get(place)):
                return None
            if "before" not in step:
                changes += await self._removed(doc, collection)
                continue
            changes += await self._restored(doc, collection, step)
            steps.append({"collection": place[0], "id": place[1], "was": step["was"], "now": doc["version"] + 1})
        if not changes:  # a summary that another one has replaced is nothing to restore
            return None
        moved |= {(step["collection"], step["id"]): Restored(step["was"], step["now"]) for step in steps}
        undone: DerivationRecord = {"undone": True, "undo": steps}
        expect: DerivationRecord = {"undone": False}
        return [*changes, Update(DERIVATIONS, tenant, note["derivation_id"], set=undone, expect=expect)]

    async def _removed(self, doc: Doc, collection: Collection) -> list[Change]:
        scope = Scope(doc["tenant_id"])
        if collection is MEMORIES:
            memories, gone = MemoryRepository(self._store, scope), [MEMORIES.as_record(doc)]
            return [*memories.remove(gone), *await memories.disputes_over(gone, rfc3339(self._clock.now()))]
        if collection is PROCEDURES:
            return ProcedureRepository(self._store, scope).remove([PROCEDURES.as_record(doc)])
        return [Delete(collection, scope.tenant, doc[collection.id_field], {"version": doc["version"]})]

    async def _raised_back(
        self, tenant: str, step: UndoStep, moved: Restored | None
    ) -> tuple[list[Change], list[UndoStep]]:
        """Returns the changes of a user's record whose facts an undo changes, and what it restored: the version rises
        once more. A record that was made for these facts, and not changed since, is deleted."""
        user = await self._store.get(USERS, tenant, step["id"])
        if user is None:
            return [], []
        left = _as_left(user, {"version": step["was"] + 1}, moved)
        if left and not step["was"]:
            return [Delete(USERS, tenant, step["id"], {"version": user["version"]})], []
        fields: UserRecord = {"updated_at": rfc3339(self._clock.now())}
        update = Update(USERS, tenant, step["id"], fields, {"version": 1}, {"version": user["version"]})
        restored: UndoStep = {
            "collection": USERS.name,
            "id": step["id"],
            "was": step["was"],
            "now": user["version"] + 1,
        }
        return [update], [restored] if left else []

    async def _summary_back(self, tenant: str, step: UndoStep) -> list[Change]:
        """Returns the changes that restore a summary; none if the session is gone or has another summary."""
        session = await self._store.get(SESSIONS, tenant, step["id"])
        if session is None or any(session.get(name) != value for name, value in step["expect"].items()):
            return []
        fields = SESSIONS.as_record({**step["before"], "updated_at": rfc3339(self._clock.now())})
        return [Update(SESSIONS, tenant, step["id"], set=fields, expect=expected(session))]

    async def _restored(self, doc: Doc, collection: Collection, step: UndoStep) -> list[Change]:
        scope, now, before = Scope(doc["tenant_id"]), rfc3339(self._clock.now()), step["before"]
        if collection is MEMORIES:
            memory, earlier = MEMORIES.as_record(doc), MEMORIES.as_record(before)
            if memory["status"] == "superseded" and earlier.get("status") == "active":
                earlier["kept_apart"] = True  # a restored memory is not merged again
            # a restored text gets its own terms and vector again
            return (await MemoryRepository(self._store, scope).rewritten(memory, earlier, now, self._embeddings))[1]
        if collection is PROCEDURES:
            procedures = ProcedureRepository(self._store, scope)
            return procedures.revise(PROCEDURES.as_record(doc), restored(PROCEDURES.as_record(before)), now)
        expect, fields = {"version": doc["version"]}, {**before, "updated_at": now}
        return [Update(collection, scope.tenant, step["id"], fields, {"version": 1}, expect)]
