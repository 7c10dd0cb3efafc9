"""Erases a user: the request, the job that erases and verifies, and the receipt."""

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from functools import partial
from typing import Annotated, Any, Protocol, TypeAlias, cast

import numpy as np
from pydantic import Field, with_config
from typing_extensions import TypedDict

from app.actions.roll_ups import ROLL_UPS
from app.audit import trail
from app.audit.tombstones import ErasureKey, Tombstones, under_way
from app.core.clock import Clock, new_id, rfc3339
from app.core.schemas import Count, Identifier, example, shown
from app.errors import Conflict, Forbidden, StorageFull
from app.facts.schemas import FACT_GROUPS, FACTS
from app.jobs import queue
from app.jobs.runner import Done, Run, Runner
from app.memories.agents import AGENTS, AgentRecord
from app.memories.schemas import HISTORY, MEMORIES, HistoryRecord, Source
from app.procedures.schemas import PROCEDURE_HISTORY, PROCEDURES, ProcedureRecord
from app.procedures.service import COUNTED, without_notes_of
from app.profiles.agents import LESSONS
from app.sessions import schemas as sessions
from app.storage.changes import Change, CommitConflict, Delete, DeleteWhere, Insert, Update, fewer_at_once
from app.storage.protocol import Store
from app.storage.repository import pages
from app.storage.schema import EVERYTHING, Absent, BaseRecord, Collection, Doc, Eq, Filter, Has, In, R, value_at
from app.storage.scope import ANY_AGENT, SYSTEM, Partition, Scope
from app.storage.search import SearchQuery
from app.tasks import schemas as tasks
from app.writes.executor import IDEMPOTENCY


class ErasureNote(BaseRecord, total=False):
    """A document of the collection `erasure_notes`."""

    note_id: str
    tombstone: str
    of: str | None
    ids: list[str]
    counts: dict[str, int]


ERASURE_NOTES: Collection[ErasureNote] = Collection(
    name="erasure_notes",
    id_field="note_id",
    fields={"tombstone": "text"},
    indexes=(("tombstone",),),
    opaque=("counts",),
    audited=False,
)
"""Each commit of an erasure adds a note: erased ids (`of` names their collection) and counts by kind. A run that
continues after a crash reads the notes. They are deleted when the erasure is verified."""


@shown
class Verification(TypedDict):
    """What was looked for after all was gone."""

    records_found: Annotated[Count, Field(description="Records of the user in any collection: 0.")]
    search_found: Annotated[Count, Field(description="What searches of the user's scope have to look at: 0.")]


@shown
@with_config(
    example(
        {
            "user_id": "ada",
            "tombstone": "2b1f1d3b0d8e5f6a7c4e9d0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e",
            "erased_at": "2026-06-01T12:00:00.000Z",
            "erased": {"agent_memories": 12, "messages": 30, "conversation_sessions": 2},
            "verification": {"records_found": 0, "search_found": 0},
        }
    )
)
class Receipt(TypedDict):
    """What an erasure took away."""

    user_id: Identifier
    tombstone: Annotated[str, Field(description="Keyed hash of the user's id: all that remains of it.")]
    erased_at: Annotated[str, Field(description="When it was verified.")]
    erased: Annotated[dict[str, Count], Field(description="How many went, by collection.")]
    verification: Verification
    skipped_records: Annotated[
        queue.SkippedRecords | None,
        Field(
            default=None,
            description="Records of others that may come of the user's and could not be looked at; null: none.",
        ),
    ]


WAIT_SECONDS = 10.0
"""The time in seconds that a request waits for the receipt."""
ATTEMPTS = 64
"""The number of attempts to commit a request."""


class Erasure:
    """Starts erasures within a caller's scope."""

    def __init__(self, store: Store, scope: Scope, clock: Clock, tombstones: Tombstones, runner: Runner) -> None:
        self._store, self._scope, self._clock = store, scope, clock
        self._tombstones, self._runner = tombstones, runner

    async def erase(self, user_id: str, actor: trail.Actor, seconds: float = WAIT_SECONDS) -> Receipt | queue.Operation:
        """Erases a user and waits up to `seconds` for the job. Returns the receipt if the erasure is verified, else the
        operation.

        Raises Forbidden; ErasureKeyUnavailable, before anything was changed; Conflict if the job failed for good; and
        StoreUnavailable."""
        if self._scope.agents is not None:
            raise Forbidden("This key is bound to agents: it cannot erase what others know of a user.")
        self._scope.require_write(None, user_id)
        work = await self._begun(user_id, actor)
        await self._runner.carry_out(work["job_id"], seconds)
        operation = await self._store.get(queue.OPERATIONS, self._scope.tenant, work["operation_id"])
        if operation is None or operation["status"] == "failed":
            reason = "its operation is gone" if operation is None else operation["error"]
            raise Conflict(f"The erasure has failed: {reason} Ask for it again.", retry_after=1)
        receipt = operation["result"]
        if operation["status"] in ("succeeded", "partial") and receipt is not None:
            return cast(Receipt, {"user_id": user_id, **receipt})
        return queue.render(operation, self._clock.now())

    async def _begun(self, user_id: str, actor: trail.Actor) -> trail.TombstoneRecord:
        """Returns `operation_id` and `job_id` of the erasure under way, which this or an earlier request started."""
        erased_id = await self._tombstones.hashed(user_id)
        for _ in range(ATTEMPTS):
            tombstone = await self._tombstones.find(user_id)
            job_id = None if tombstone is None else tombstone.get("job_id")
            job = None if not job_id else await self._store.get(queue.JOBS, SYSTEM, job_id)
            failed = None if job is None or job["status"] != "failed" else job
            if tombstone is not None and under_way(tombstone) and job is not None and failed is None:
                work, changes = tombstone, [self._tombstones.join(tombstone)]
            else:
                work, changes = self._new(user_id, erased_id, tombstone, actor)
            if failed is not None:  # the erasure is started again, and its failed job names the user
                changes.append(Delete(queue.JOBS, SYSTEM, failed["job_id"], {"status": "failed"}))
            begun = trail.entry(actor, rfc3339(self._clock.now()), None, [], {"users": {"erase_begun": 1}}, erased_id)
            try:
                await self._store.commit([*changes, begun])
            except CommitConflict:
                continue  # another request for the same user, or the end of the job, was first
            return work
        raise Conflict("Others ask for this user's erasure all the time; please try again.", retry_after=1)

    def _new(
        self, user_id: str, erased_id: str, earlier: trail.TombstoneRecord | None, actor: trail.Actor
    ) -> tuple[trail.TombstoneRecord, list[Change]]:
        """Returns the ids and changes of a new erasure. Its operation is stored under the hash: it reveals nothing of
        the user to other keys, and outlives the job. The job names the user until the erasure is verified."""
        now = self._clock.now()
        operation, noted = queue.new_operation(self._scope, queue.ERASE_USER, now, user_id=erased_id)
        payload = {"user_id": user_id, "tombstone": erased_id, "key_id": actor.key_id, "action": actor.action}
        queued = queue.Job(queue.ERASE_USER, self._scope.tenant, payload, operation["operation_id"]).enqueue(now)
        work: trail.TombstoneRecord = {"operation_id": operation["operation_id"], "job_id": queued.doc["job_id"]}
        mark = self._tombstones.begin(earlier, erased_id, rfc3339(now), work)
        return work, [mark, noted, queued]


BATCH = 200
ROUNDS = 5
"""How often a step is repeated before the job gives up."""
OURS = re.compile(r"(?<![a-z])[a-z]+_[0-9a-f]{32}")
"""The form of our own ids, which reveal nothing of a user. An id that a caller chose may."""


class ErasureJobs:
    """Runs erasures. `model` is the name of the embedding model, for the search that must find nothing."""

    def __init__(
        self, store: Store, collections: Sequence[Collection], clock: Clock, key: ErasureKey, *, model: str
    ) -> None:
        self._store, self._clock, self._key, self._model = store, clock, key, model
        self._owned = trail.owned(collections)

    async def handle(self, run: Run) -> Done:
        """Runs the job. Raises Conflict if others keep writing about the user: the queue retries later."""
        if "user_id" in run.payload:
            tombstones = Tombstones(self._store, run.tenant, self._key)
            await _Erasing(run, tombstones, self._owned, self._model).until_verified()
        await self._store.scrub()
        operation = await self._store.get(queue.OPERATIONS, run.tenant, str(run.lease.job.operation_id))
        return Done({} if operation is None else operation["result"] or {})


class _Erasing:
    """One run of an erasure that is not verified yet."""

    def __init__(self, run: Run, tombstones: Tombstones, collections: Sequence[Collection], model: str) -> None:
        self._run, self._store, self._clock, self._tenant = run, run.store, run.clock, run.tenant
        self._tombstones, self._owned, self._model = tombstones, collections, model
        self._user, self._hash = str(run.payload["user_id"]), str(run.payload["tombstone"])
        self._gone: set[str] = set()
        self._counters: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._at_once = BATCH

    async def until_verified(self) -> None:
        """Erases until nothing is found. Raises Conflict after `ROUNDS` rounds."""
        find = partial(self._store.find, ERASURE_NOTES, self._tenant, Eq("tombstone", self._hash))
        async for notes in pages(find, ERASURE_NOTES, BATCH):
            for note in notes:
                self._learn(note)
        for _ in range(ROUNDS):
            await self._clear()
            # replaces the user's id in the audit trail by its hash, and ids that callers chose by theirs
            async for entries in self._batches(trail.AUDIT, Eq("user_id", self._user)):
                named = {entry["audit_id"]: _ids_named(entry) for entry in entries}
                chosen = [record_id for ids in named.values() for record_id in ids if not OURS.fullmatch(record_id)]
                hidden = {record_id: await self._tombstones.hashed(record_id) for record_id in dict.fromkeys(chosen)}
                changes: list[Change] = []
                for audit_id, ids in named.items():
                    records = [hidden.get(record_id, record_id) for record_id in ids]
                    fields: trail.AuditRecord = {"user_id": None, "user_hash": self._hash, "records": records}
                    changes.append(Update(trail.AUDIT, self._tenant, audit_id, set=fields))
                await self._commit(changes, len(changes), name="audit_anonymised", of=trail.AUDIT, ids=list(hidden))
            # raises if the lease is lost; the next step is not a commit and does not check it
            await self._run.commit([])
            await self._store.purge(self._tenant, self._user, sorted(self._counters))
            if await self._verified():
                return
        raise Conflict("Somebody keeps writing about this user: stop that first.", retry_after=1)

    # --- Deleting -----------------------------------------------------------------------------------------------------

    async def _clear(self) -> None:
        """Deletes records and jobs, and repeats as long as a round finds something: a job may write between the search
        and its own end."""
        for _ in range(ROUNDS):
            before = self._counts.total()
            for collection in self._owned:
                await self._delete(collection, Eq("user_id", self._user))
            await self._delete(IDEMPOTENCY, Has("users", self._user))
            derived = DerivedRecords(self._store, self._commit, self._tenant, self._user, self._gone)
            await derived.clear()
            await queue.fence(self._store, self._tenant, derived.concerns, partial(self._commit, name="jobs"))
            if self._counts.total() == before:
                break

    async def _delete(self, collection: Collection, where: Filter) -> None:
        async for docs in self._batches(collection, where):
            ids = [str(doc[collection.id_field]) for doc in docs]
            gone = DeleteWhere(collection, self._tenant, In(collection.id_field, tuple(ids)))
            # what was learned from actions that were rolled up is derived, too
            rolled_up = [action_ids for doc in docs if isinstance(action_ids := doc.get("action_ids"), list)]
            purged = [str(action_id) for action_ids in rolled_up for action_id in action_ids]
            known = [*ids, *purged] if collection is ROLL_UPS else ids
            try:
                await self._commit([gone], len(ids), name=collection.name, of=collection, ids=known)
            except StorageFull as error:
                self._at_once = fewer_at_once(error, len(docs))
                continue
            await self._run.progress(self._counts.total(), None)
        # what cannot be read is in no batch
        if unread := await self._store.count(collection, self._tenant, where):
            await self._commit([DeleteWhere(collection, self._tenant, where)], unread, name=collection.name)

    async def _batches(self, collection: Collection[R], where: Filter) -> AsyncIterator[list[R]]:
        """Yields batches until there are none. Each batch is deleted or no longer matches before the next query."""
        while records := await self._store.find(collection, self._tenant, where, order="asc", limit=self._at_once):
            yield records

    # --- Notes of what was erased -------------------------------------------------------------------------------------

    async def _commit(
        self,
        changes: list[Change],
        number: int = 0,
        *,
        name: str,
        of: Collection | None = None,
        ids: Sequence[str] = (),
    ) -> None:
        """Commits changes with a note that `number` records of kind `name` were erased."""
        if not number and not ids:
            await self._run.commit(changes)
            return
        notes: list[ErasureNote] = [
            {
                "tenant_id": self._tenant,
                "note_id": new_id("note"),
                "tombstone": self._hash,
                "of": None if of is None else of.name,
                "ids": list(ids[at : at + BATCH]),
                "counts": {} if at else {name: number},
                "created_at": rfc3339(self._clock.now()),
            }
            for at in range(0, max(len(ids), 1), BATCH)
        ]
        await self._run.commit([*changes, *(Insert(ERASURE_NOTES, note) for note in notes)])
        for note in notes:
            self._learn(note)

    def _learn(self, note: ErasureNote) -> None:
        self._counts.update(note["counts"])
        if note["of"] != trail.AUDIT.name:
            self._gone.update(note["ids"])
        if note["of"] in (sessions.SESSIONS.name, trail.AUDIT.name):
            self._counters.update(map(sessions.counter, note["ids"]))
        if note["of"] in (tasks.TASKS.name, trail.AUDIT.name):
            self._counters.update(map(tasks.counter, note["ids"]))

    # --- Verification -------------------------------------------------------------------------------------------------

    async def _verified(self) -> bool:
        """Searches for remaining records. If there are none, one commit ends the erasure: it writes tombstone, receipt
        and audit entry, and removes the user's id from job and notes. Returns False if something was found or another
        request arrived."""
        tombstone = await self._store.get(trail.ERASED, self._tenant, self._hash)
        operation_id = str(self._run.lease.job.operation_id)
        if tombstone is None or tombstone["operation_id"] != operation_id:
            raise Conflict("Another erasure of this user was begun since.")
        # what remains of the user, and what a search of the user's scope still reads
        records = searchable = 0
        for collection in self._owned:
            records += await self._store.count(collection, self._tenant, Eq("user_id", self._user))
            if collection.searched:
                query = SearchQuery(
                    self._tenant,
                    (Partition(ANY_AGENT, self._user),),
                    EVERYTHING,
                    None,
                    self._model,
                    np.empty(0, np.uint32),
                )
                searchable += len((await self._store.search(collection, query)).rows)
        if records or searchable or await self._store.count(trail.AUDIT, self._tenant, Eq("user_id", self._user)):
            return False
        if await self._store.change_log.names(self._tenant, self._user):
            return False
        now = self._clock.now()
        receipt = {
            "tombstone": self._hash,
            "erased_at": rfc3339(now),
            "erased": dict(sorted((+self._counts).items())),
            "verification": {"records_found": records, "search_found": searchable},
        }
        actor = trail.Actor(self._tenant, self._run.payload["key_id"], self._run.payload["action"])
        changes: list[Change] = [
            self._tombstones.end(tombstone, rfc3339(now)),
            trail.entry(actor, rfc3339(now), None, [], {"users": {"erase": 1}}, self._hash),
            DeleteWhere(ERASURE_NOTES, self._tenant, Eq("tombstone", self._hash)),
            queue.report(self._tenant, operation_id, now, {"result": receipt}),
            Update(queue.JOBS, SYSTEM, self._run.lease.doc["job_id"], set={"payload": {"tombstone": self._hash}}),
        ]
        try:
            await self._run.commit(changes)
        except CommitConflict:
            return False
        return True


def _ids_named(entry: Mapping[str, Any]) -> list[str]:
    """Returns the ids that an audit entry names. What else a damaged one has goes with the user's id: it may name the
    user."""
    records = entry.get("records")
    return [record_id for record_id in records if isinstance(record_id, str)] if isinstance(records, list) else []


# --- What was derived from the user's records without belonging to the user -------------------------------------------

SHARED: tuple[tuple[Collection, Collection | None], ...] = (
    (MEMORIES, HISTORY),
    (FACTS, None),
    (PROCEDURES, PROCEDURE_HISTORY),
)
"""Collections whose records may be derived, with their history."""


def mentions(tree: Any, wanted: Set[str]) -> bool:
    """Returns True if a text anywhere in the tree is one of these."""
    if isinstance(tree, str):
        return tree in wanted
    if isinstance(tree, dict):
        return any(key in wanted or mentions(value, wanted) for key, value in tree.items())
    return isinstance(tree, list) and any(mentions(part, wanted) for part in tree)


def comes_of(source: Source | None, gone: Set[str]) -> bool:
    """Returns True if all sources of a record are among the erased records."""
    if not source:
        return False
    if source.get("session_id") is not None:
        return source["session_id"] in gone
    named = [*(source.get("memory_ids") or ()), *(source.get("action_ids") or ())]
    return bool(named) and set(named) <= gone


ErasedPart: TypeAlias = tuple[int, list[Change]]
"""How many records or parts of one are erased, and the changes that do it; without changes nothing is."""


class CommitNumbered(Protocol):
    """Commits changes that erase `number` records of kind `name`. Raises CommitConflict."""

    async def __call__(self, changes: list[Change], number: int, *, name: str) -> None: ...


class DerivedRecords:
    """Erases derived records of a user. `gone` are the ids of the user's erased records."""

    def __init__(self, store: Store, commit: CommitNumbered, tenant: str, user: str, gone: Set[str]) -> None:
        self._store, self._commit, self._tenant, self._user, self._gone = store, commit, tenant, user, gone

    async def clear(self) -> None:
        """Erases lessons, undo data and shared records that come from the user's records."""
        await self._clear_each(AGENTS, EVERYTHING, self._unlearned, "lessons")
        await self._clear_each(queue.OPERATIONS, Absent("user_id"), self._emptied, "operations_emptied")
        for collection, history in SHARED:
            removed = partial(self._removed, collection=collection, history=history)
            await self._clear_each(collection, Absent("user_id"), removed, f"derived_{collection.name}")
        await self._clear_each(PROCEDURES, Absent("user_id"), self._unnoted, "outcome_notes")
        await self._clear_each(PROCEDURE_HISTORY, Absent("user_id"), self._unnoted_before, "outcome_notes_of_history")

    def concerns(self, job: queue.JobRecord) -> bool:
        """Returns True if a job is about the user. A job of a key that is bound to several users is not, and neither is
        the erasure itself."""
        if job["kind"] == queue.ERASE_USER:
            return False
        about = {self._user, *self._gone}
        payload = dict(job["payload"])
        bound = payload.pop("users", None) or []
        return (
            job["operation_id"] in about
            or mentions(payload, about)
            or bound == [self._user]
            or (job["status"] == "failed" and self._user in bound)
        )

    async def _clear_each(
        self, collection: Collection[R], where: Filter, plan: Callable[[R], ErasedPart], name: str
    ) -> None:
        """Commits what `plan` makes of each record that matches."""
        find = partial(self._store.find, collection, self._tenant, where)
        async for records in pages(find, collection, BATCH):
            for read in records:
                record: R | None = read
                while record is not None:  # it is read and planned again as long as others change it
                    number, changes = 0, list[Change]()
                    with queue.skipping(collection, record[collection.id_field]):
                        number, changes = plan(record)
                    if not changes:
                        break
                    try:
                        await self._commit(changes, number, name=name)
                        break
                    except CommitConflict:
                        record = await self._store.get(collection, self._tenant, record[collection.id_field])

    def _unlearned(self, agent: AgentRecord) -> ErasedPart:
        experience, number = agent["experience"].copy(), 0
        for name in LESSONS:
            left = [lesson for lesson in experience[name] if not comes_of(lesson["source"], self._gone)]
            number += len(experience[name]) - len(left)
            experience[name] = left
        if not number:
            return 0, []
        fields: AgentRecord = {"experience": experience}
        expect = {"version": agent["version"]}
        return number, [Update(AGENTS, self._tenant, agent["agent_id"], set=fields, inc={"version": 1}, expect=expect)]

    def _emptied(self, operation: queue.OperationRecord) -> ErasedPart:
        """Removes result and undo data of an operation that mentions the user. An operation for several users can then
        no longer be undone."""
        if not mentions([operation["result"], operation["undo"]], {self._user, *self._gone}):
            return 0, []
        same = {"status": operation["status"], "undo": operation["undo"], "result": operation["result"]}
        fields: queue.OperationRecord = {"undo": None, "result": None}
        return 1, [Update(queue.OPERATIONS, self._tenant, operation["operation_id"], set=fields, expect=same)]

    def _unnoted(self, procedure: ProcedureRecord) -> ErasedPart:
        """Removes what the user's actions and tasks noted in a procedure that serves others, too."""
        fields = without_notes_of(procedure, self._gone)
        if not fields:
            return 0, []
        expect = {name: value_at(procedure, name) for name in COUNTED}
        return 1, [Update(PROCEDURES, self._tenant, procedure["procedure_id"], set=fields, expect=expect)]

    def _unnoted_before(self, version: HistoryRecord[ProcedureRecord]) -> ErasedPart:
        fields = without_notes_of(version["record"], self._gone)
        if not fields:
            return 0, []
        changed: HistoryRecord[ProcedureRecord] = {"record": version["record"] | fields}
        return 1, [Update(PROCEDURE_HISTORY, self._tenant, version["history_id"], set=changed)]

    def _removed(self, doc: Doc, collection: Collection, history: Collection | None) -> ErasedPart:
        """Removes a document of one of the collections `SHARED`."""
        if not comes_of(doc.get("source"), self._gone):
            return 0, []
        doc_id, expect = doc[collection.id_field], {"version": doc["version"]}
        changes: list[Change] = [Delete(collection, self._tenant, doc_id, expect)]
        if history is not None:
            changes.append(DeleteWhere(history, self._tenant, Eq("record_id", doc_id)))
        if collection is FACTS:
            changes.append(Update(FACT_GROUPS, self._tenant, doc["group_id"], inc={"version": 1}))
        return 1, changes
