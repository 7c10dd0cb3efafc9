"""The queue of durable jobs, and operations, which are the jobs that callers asked for.

One worker at a time holds a job, and a fence keeps a late worker from committing anything. The status of an
operation is `queued → running → succeeded|partial|failed`, then possibly `undone`.
"""

import heapq
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast

from pydantic import Field
from typing_extensions import TypeAliasType, TypedDict

from app.core.clock import Clock, new_id, rfc3339
from app.core.schemas import Count, Json, shown
from app.errors import Invalid, RecalldError, RecordDamaged
from app.storage.changes import Change, CommitConflict, Committed, Delete, Insert, Update
from app.storage.protocol import Store
from app.storage.records import left_out
from app.storage.repository import pages
from app.storage.schema import Absent, BaseRecord, Collection, Eq, Filter, Not, Or, OwnedRecord, R, Range, Unique, both
from app.storage.scope import SYSTEM, Scope

# --- Jobs and operations, as stored and as the API returns them -------------------------------------------------------

POST_CONVERSATION = "post_conversation"
SUMMARIZE = "summarize"
EXTRACT = "extract"
REDERIVE = "rederive"
CONSOLIDATION = "consolidation"
REFLECTION = "reflection"
REVIEW_PROCEDURE = "review_procedure"
RETENTION = "retention"
EMBED_PENDING = "embed_pending"
MERGE_FACT = "merge_fact"
DECAY = "decay"
EXPIRY = "expiry"
FORGET = "forget"
UNDO = "undo"
ERASE_USER = "erase_user"
DOCUMENT = "document"
ALIAS = "alias"
RESOLVE = "resolve"
"""Operations without a job: the request itself changes the aliases, and settles the dispute."""

Lane = str | None
"""The lane as a job stores it."""

LANGUAGE_MODEL: Lane = "language_model"
EMBEDDING_MODEL: Lane = "embedding_model"
ORDINARY: Lane = None
"""Jobs that wait for no model."""
ORDINARY_LANE = "ordinary"
"""The name of that lane in metrics and traces."""
LANES: tuple[Lane, ...] = (LANGUAGE_MODEL, EMBEDDING_MODEL, ORDINARY)

_LANE_OF: Mapping[str, Lane] = {
    POST_CONVERSATION: LANGUAGE_MODEL,
    SUMMARIZE: LANGUAGE_MODEL,
    EXTRACT: LANGUAGE_MODEL,
    MERGE_FACT: LANGUAGE_MODEL,
    CONSOLIDATION: LANGUAGE_MODEL,
    REFLECTION: LANGUAGE_MODEL,
    REVIEW_PROCEDURE: LANGUAGE_MODEL,
    RETENTION: LANGUAGE_MODEL,  # summarizes days
    REDERIVE: ORDINARY,
    EMBED_PENDING: EMBEDDING_MODEL,
    DOCUMENT: EMBEDDING_MODEL,
    DECAY: ORDINARY,
    EXPIRY: ORDINARY,
    FORGET: ORDINARY,
    UNDO: ORDINARY,
    ERASE_USER: ORDINARY,
}


FREES_SPACE = frozenset({ERASE_USER, EXPIRY})
"""Kinds of jobs that delete. They run on a full disk, too."""


def lane_of(kind: str) -> Lane:
    """Returns the lane of a kind of job."""
    return _LANE_OF.get(kind, ORDINARY)


Payload: TypeAlias = dict[str, Any]
"""The arguments of a job, as JSON. Each kind has its own."""


class JobRecord(BaseRecord, total=False):
    """A document of the collection `jobs`. `for_tenant` owns the data that the job works on."""

    job_id: str
    kind: str
    lane: Lane
    for_tenant: str
    payload: Payload
    operation_id: str | None
    slot: str | None
    status: Literal["queued", "running", "failed"]
    run_at: str
    leased_until: str | None
    token: int
    attempts: int
    error: str | None


JOBS: Collection[JobRecord] = Collection(
    name="jobs",
    id_field="job_id",
    fields={
        "status": "text",
        "kind": "text",
        "lane": "text",
        "for_tenant": "text",
        "run_at": "time",
        "leased_until": "time",
        "slot": "text",
    },
    order="run_at",
    unique=(Unique("slot", ("slot",), Not(Absent("slot"))),),
    indexes=(("status",), ("lane", "status", "for_tenant")),
    opaque=("payload",),
    audited=False,
)
"""The queue, under the tenant `SYSTEM`. A finished job is deleted; a job that failed for good keeps its error for a
while. Only one job of a `slot` waits or runs at a time, so scheduled jobs never pile up."""


@shown
class JobInfo(TypedDict):
    name: str
    schedule: str
    last_run: str | None
    next_run: str | None
    outcome: str | None


class ScheduleRecord(BaseRecord, total=False):
    """A document of the collection `schedules`. `looked_at` is the time from which the next run looks for news."""

    name: str
    next_run: str
    last_run: str | None
    outcome: str | None
    looked_at: str


SCHEDULES: Collection[ScheduleRecord] = Collection(name="schedules", id_field="name", fields={})
"""The schedules, under the tenant `SYSTEM`."""
OperationStatus = TypeAliasType(
    "OperationStatus", Literal["queued", "running", "succeeded", "partial", "failed", "undone"]
)
OperationResult = TypeAliasType("OperationResult", dict[str, Any])


@shown
class SkippedRecord(TypedDict):
    kind: str
    id: str
    error: Annotated[str, Field(description="The class of the error.")]


@shown
class SkippedRecords(TypedDict):
    """Records that a job left as they are, because their content cannot be handled. Its operation is then partial."""

    count: Count
    items: Annotated[list[SkippedRecord], Field(description="The first 100.")]


@shown
class Progress(TypedDict):
    done: Count
    total: Count | None


@shown
class Operation(TypedDict, total=False):
    operation_id: str
    agent_id: str | None
    user_id: str | None
    session_id: Annotated[str | None, Field(default=None, description="The session that it learns from or summarizes.")]
    kind: str
    status: OperationStatus
    progress: Progress
    result: OperationResult | None
    error: str | None
    can_undo: bool
    created_at: str
    updated_at: str


class OperationUndo(TypedDict, total=False):
    """What an undo of an operation needs. `by` is what the records that it changed are marked with; an operation on
    aliases has their earlier states instead."""

    until: str
    by: str
    aliases: Sequence[Mapping[str, Any]]


class OperationRecord(Operation, OwnedRecord, total=False):
    """A document of the collection `operations`. `undoing` is the operation that undoes it."""

    undo: OperationUndo | None
    undoing: str | None


OPERATIONS: Collection[OperationRecord] = Collection(
    name="operations",
    id_field="operation_id",
    fields={
        "agent_id": "text",
        "user_id": "text",
        "session_id": "text",
        "kind": "text",
        "status": "text",
        "created_at": "time",
        "updated_at": "time",
    },
    indexes=(("user_id",), ("session_id",)),
    global_indexes=("updated_at",),
    opaque=("result", "undo"),
    internal=frozenset({"undo", "undoing"}),
)
"""Operations that callers asked for, in their tenant: progress, result, and the data that an undo needs."""


ENDED = ("succeeded", "partial", "failed", "undone")


def new_operation(
    scope: Scope, kind: str, now: datetime, **owner: str | None
) -> tuple[OperationRecord, Insert[OperationRecord]]:
    """Returns a queued operation and the change that inserts it."""
    operation: OperationRecord = {
        "tenant_id": scope.tenant,
        "operation_id": new_id("op"),
        "agent_id": owner.get("agent_id"),
        "user_id": owner.get("user_id"),
        "session_id": owner.get("session_id"),
        "kind": kind,
        "status": "queued",
        "progress": {"done": 0, "total": None},
        "result": None,
        "error": None,
        "undo": None,
        "undoing": None,
        "created_at": rfc3339(now),
        "updated_at": rfc3339(now),
    }
    return operation, Insert(OPERATIONS, operation)


def start(
    scope: Scope, kind: str, payload: Payload, now: datetime, **owner: str | None
) -> tuple[Operation, list[Change]]:
    """Returns an operation as callers see it, and the changes that queue it together with its job."""
    operation, noted = new_operation(scope, kind, now, **owner)
    job = Job(kind, scope.tenant, payload, operation["operation_id"])
    return render(operation, now), [noted, job.enqueue(now)]


def carried_out(
    operation: OperationRecord, result: Json, undo: OperationUndo, number: int = 1
) -> Insert[OperationRecord]:
    """Returns the change that inserts an operation without a job: the request itself has carried it out, in `number`
    steps."""
    done: OperationRecord = {
        **operation,
        "status": "succeeded",
        "progress": {"done": number, "total": number},
        "result": result,
        "undo": undo,
    }
    return Insert(OPERATIONS, done)


def report(tenant: str, operation_id: str, now: datetime, fields: OperationRecord) -> Update[OperationRecord]:
    """Returns an update of the operation's status, progress or result."""
    return Update(OPERATIONS, tenant, operation_id, set={**fields, "updated_at": rfc3339(now)})


def render(operation: OperationRecord, now: datetime) -> Operation:
    """Returns an operation as callers see it."""
    undoable = can_undo(operation, now) and operation.get("undoing") is None
    return cast(Operation, {**OPERATIONS.public(operation), "can_undo": undoable})


def can_undo(operation: OperationRecord, now: datetime) -> bool:
    """Returns True if the operation succeeded at least partly and can still be undone. `undo["until"]` is the end of
    that time."""
    undo = operation["undo"]
    return undo is not None and operation["status"] in ("succeeded", "partial") and undo["until"] > rfc3339(now)


BATCH = 200


CommitFenced = Callable[[list[Change], int], Awaitable[None]]
"""Commits changes that delete the given number of jobs. Raises CommitConflict."""


async def fence(store: Store, tenant: str, drop: Callable[[JobRecord], bool], commit: CommitFenced) -> None:
    """Restarts every job that works on the tenant's data, and deletes the jobs for which `drop` is true, queued or
    running."""
    async for jobs in pages(partial(store.find, JOBS, SYSTEM), JOBS, BATCH):
        for job in jobs:
            if job["for_tenant"] in (tenant, SYSTEM):
                await _drop_or_restart(store, job, drop, commit)


async def _drop_or_restart(
    store: Store, listed: JobRecord, drop: Callable[[JobRecord], bool], commit: CommitFenced
) -> None:
    job: JobRecord | None = listed
    while job is not None:
        change: Change
        if drop(job):
            change = Delete(JOBS, SYSTEM, job["job_id"])
        elif job["status"] == "running" and job["kind"] != ERASE_USER:
            ours = {"status": "running", "token": job["token"]}
            again: JobRecord = {"status": "queued", "leased_until": None}
            change = Update(JOBS, SYSTEM, job["job_id"], set=again, inc={"token": 1}, expect=ours)
        else:
            return
        try:
            await commit([change], int(isinstance(change, Delete)))
        except CommitConflict:
            # the job was taken, renewed or finished in the meantime
            job = await store.get(JOBS, SYSTEM, listed["job_id"])
            continue
        return


LEASE = timedelta(seconds=30)
"""How long a lease is valid. A running worker renews it after each third of this time."""
MAX_ATTEMPTS = 6
FIRST_BACKOFF = timedelta(seconds=2)
CANDIDATES = 8
"""The number of due jobs that `take` reads for each query, and how often it looks again where others take them."""


class LeaseLost(RecalldError):
    """Another worker has taken over the job. Nothing that this worker tried to commit was written."""


@dataclass(frozen=True, slots=True)
class Job:
    """A unit of background work. `tenant` owns the data that it works on; `operation_id` is the operation that waits
    for it. Only one job of a `slot` waits or runs at a time."""

    kind: str
    tenant: str
    payload: Payload = field(default_factory=dict)
    operation_id: str | None = None
    slot: str | None = None

    def enqueue(self, run_at: datetime) -> Insert[JobRecord]:
        """Returns the change that queues the job, as made when it is to run. Commit it with the changes that the job
        follows from."""
        return Insert(
            JOBS,
            {
                "tenant_id": SYSTEM,
                "job_id": new_id("job"),
                "kind": self.kind,
                "lane": lane_of(self.kind),
                "for_tenant": self.tenant,
                "payload": self.payload,
                "operation_id": self.operation_id,
                "slot": self.slot,
                "status": "queued",
                "run_at": rfc3339(run_at),
                "leased_until": None,
                "token": 0,
                "attempts": 0,
                "error": None,
                "created_at": rfc3339(run_at),
            },
        )


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run a job until `leased_until`, valid as long as the job's token is unchanged."""

    store: Store
    clock: Clock
    doc: JobRecord
    length: timedelta = LEASE

    @property
    def job(self) -> Job:
        """The leased job."""
        return Job(self.doc["kind"], self.doc["for_tenant"], self.doc["payload"], self.doc["operation_id"])

    @property
    def lane(self) -> Lane:
        """The lane of the job."""
        return self.doc.get("lane")

    @property
    def last_attempt(self) -> bool:
        """True if a failure of this attempt is final."""
        return self.doc["attempts"] + 1 >= MAX_ATTEMPTS

    @property
    def abandoned(self) -> bool:
        """True if the worker of the last allowed attempt stopped in the middle of it. The job must not run again."""
        return self.doc["attempts"] >= MAX_ATTEMPTS

    async def commit(self, changes: list[Change]) -> Committed:
        """Commits changes of the job while the lease is valid. Raises LeaseLost, or CommitConflict for a conflict in
        `changes`."""
        return await self._commit([*changes, self._touch()])

    async def renew(self) -> None:
        """Extends the lease. Raises LeaseLost."""
        await self._commit([self._touch({"leased_until": rfc3339(self.clock.now() + self.length)})])

    async def done(self, changes: list[Change]) -> None:
        """Commits the last changes of the job and deletes it from the queue. Raises LeaseLost, or CommitConflict for a
        conflict in `changes`."""
        await self._commit([*changes, Delete(JOBS, SYSTEM, self.doc["job_id"], self._ours())])

    async def failed(self, error: str, changes: list[Change], until: datetime | None = None) -> bool:
        """Queues the job again with growing delays. After the last attempt marks it as failed and returns True.
        `changes` are part of the same commit. With `until`, queues it for that time; that run is no attempt."""
        attempts = self.doc["attempts"] + 1
        fields: JobRecord
        if until is not None:
            fields = {"status": "queued", "error": error, "run_at": rfc3339(until), "leased_until": None}
        elif self.last_attempt:
            fields = {"status": "failed", "attempts": attempts, "error": error, "leased_until": None, "slot": None}
        else:
            later = rfc3339(self.clock.now() + FIRST_BACKOFF * 2 ** (2 * attempts - 2))
            fields = {"status": "queued", "attempts": attempts, "error": error, "run_at": later, "leased_until": None}
        await self._commit([*changes, self._touch(fields)])
        return fields["status"] == "failed"

    async def release(self) -> None:
        """Returns the job to the queue at once, when the worker stops."""
        await self._commit([self._touch({"status": "queued", "leased_until": None})])

    def _ours(self) -> JobRecord:
        return {"status": "running", "token": self.doc["token"]}

    def _touch(self, fields: JobRecord | None = None) -> Update[JobRecord]:
        return Update(JOBS, SYSTEM, self.doc["job_id"], set=fields or {}, expect=self._ours())

    async def _commit(self, changes: list[Change]) -> Committed:
        try:
            return await self.store.commit(changes)
        except CommitConflict as conflict:
            if conflict.collection == JOBS.name and conflict.doc_id == self.doc["job_id"]:
                raise LeaseLost(f"job {self.doc['job_id']} was taken over") from conflict
            raise


class Queue:
    """Leases jobs to workers."""

    def __init__(self, store: Store, clock: Clock, lease: timedelta = LEASE) -> None:
        self._store, self._clock, self._length = store, clock, lease
        self._had_turn: dict[Lane, str] = {}
        """Of each lane, the tenant whose job was the last one."""

    async def take(self, queued: Sequence[Lane] = LANES, lapsed: Sequence[Lane] = LANES) -> Lease | None:
        """Leases a running job in one of the lanes `lapsed` whose lease has lapsed, else a job queued in a lane of
        `queued`. In a lane the tenants take turns, and each has those first that were due first: a hundred documents of
        one do not hold up one of another. Returns None if there is none."""
        now = rfc3339(self._clock.now())
        due = both(Eq("status", "queued"), Range("run_at", le=now))
        left = both(Eq("status", "running"), Range("leased_until", le=now))
        in_lanes = None if len(lapsed) == len(LANES) else Or(tuple(map(_in_lane, lapsed)))
        for _ in range(CANDIDATES):  # other workers may win what was found
            # running jobs are few: one query for their lanes
            candidates = [await self._first(both(left, in_lanes))] if lapsed else []
            if queued and await self._first(due):
                candidates += [await self._in_turn(lane, both(_in_lane(lane), due)) for lane in queued]
            if not any(candidates):
                break
            for job in heapq.merge(*candidates, key=_urgency):
                lease = await self._lease(job)
                if lease is not None:
                    self._had_turn[lease.lane] = job["for_tenant"]
                    return lease
        return None

    async def _in_turn(self, lane: Lane, due: Filter) -> list[JobRecord]:
        """Returns due jobs of the next tenant after the one that had its turn, in the order of their names."""
        for after in (Range("for_tenant", gt=self._had_turn.get(lane, SYSTEM)), None):
            next_ = await self._store.values(JOBS, SYSTEM, "for_tenant", both(due, after), order="asc", limit=1)
            if next_:
                return await self._first(both(due, Eq("for_tenant", next_[0])))
        return []

    async def _first(self, where: Filter) -> list[JobRecord]:
        return await self._store.find(JOBS, SYSTEM, where, order="asc", limit=CANDIDATES)

    async def take_job(self, job_id: str) -> Lease | None:
        """Leases that job if it is queued, even before it is due. Returns None if it is not queued, or if another
        worker took it."""
        job = await self._store.get(JOBS, SYSTEM, job_id)
        return await self._lease(job) if job is not None and job["status"] == "queued" else None

    async def is_running(self, job_id: str) -> bool:
        """Returns True if a worker is running the job, or stopped while it was running it."""
        job = await self._store.get(JOBS, SYSTEM, job_id)
        return job is not None and job["status"] == "running"

    async def _lease(self, job: JobRecord) -> Lease | None:
        """Leases a job. A lapsed lease counts as an attempt, so that a job that crashes its workers is given up
        eventually."""
        until = rfc3339(self._clock.now() + self._length)
        attempts = job["attempts"] + (job["status"] == "running")
        taken: JobRecord = {
            "status": "running",
            "leased_until": until,
            "token": job["token"] + 1,
            "attempts": attempts,
        }
        expect = {"status": job["status"], "token": job["token"], "leased_until": job["leased_until"]}
        try:
            await self._store.commit([Update(JOBS, SYSTEM, job["job_id"], set=taken, expect=expect)])
        except CommitConflict:
            return None  # another worker was faster
        return Lease(self._store, self._clock, {**job, **taken}, self._length)

    async def waiting(self) -> int:
        """Returns the number of queued jobs."""
        return await self._store.count(JOBS, SYSTEM, Eq("status", "queued"))

    async def oldest_due(self, lane: Lane) -> JobRecord | None:
        """Returns the queued job of a lane that was due first, or None if none is due."""
        due = both(Eq("status", "queued"), Range("run_at", le=rfc3339(self._clock.now())))
        jobs = await self._store.find(JOBS, SYSTEM, both(_in_lane(lane), due), order="asc", limit=1)
        return jobs[0] if jobs else None

    async def failed(self, limit: int = 100) -> list[JobRecord]:
        """Returns jobs that failed for good."""
        return await self._store.find(JOBS, SYSTEM, Eq("status", "failed"), limit=limit)


def _urgency(job: JobRecord) -> tuple[bool, str, str]:
    """Returns the place of a job among those that may be taken: first the jobs whose worker died."""
    return job["status"] != "running", job["run_at"], job["job_id"]


def _in_lane(lane: Lane) -> Filter:
    return Absent("lane") if lane is None else Eq("lane", lane)


# --- Records that a job cannot handle ---------------------------------------------------------------------------------
# `with skipping(MEMORIES, doc["memory_id"]): read(doc)` leaves the block where the content is at fault; the operation
# then ends `partial` and names the record. An error of the store, a model, the lease or the machine is not about the
# record: it is raised, and the job is tried again.

T = TypeVar("T")

SkippedById: TypeAlias = dict[tuple[str, str], str]
"""The class of the error, by kind and id of each record that a run has skipped."""
SHOWN = 100
"""The number of skipped records that a result names."""

_OF_RUN: ContextVar[SkippedById | None] = ContextVar("skipped", default=None)


@contextmanager
def collecting() -> Iterator[SkippedById]:
    """Collects what is skipped inside the block, also in the tasks and threads that are started there."""
    skipped: SkippedById = {}
    token = _OF_RUN.set(skipped)
    try:
        yield skipped
    finally:
        _OF_RUN.reset(token)


@contextmanager
def skipping(collection: Collection, doc_id: object) -> Iterator[None]:
    """Ends the block where the content of a record cannot be handled, and notes the record. Outside a job the error is
    raised."""
    try:
        yield
    except Exception as error:
        if _OF_RUN.get() is None or not of_content(error):
            raise
        note_skipped(collection, doc_id, type(error).__name__)  # the error's text may hold what the record says


def note_skipped(collection: Collection, doc_id: object, error: str) -> None:
    """Notes a record that the job skips. `error`: the class of the error."""
    skipped, named_as = _OF_RUN.get(), (collection.noun, str(doc_id))
    if skipped is not None and named_as not in skipped:
        skipped[named_as] = error
        left_out(collection, doc_id, error)


def handled(collection: Collection[R], records: Iterable[R], handle: Callable[[R], T]) -> list[tuple[R, T]]:
    """Returns each record with what `handle` makes of it. Those that it cannot handle are skipped."""
    result: list[tuple[R, T]] = []
    for record in records:
        with skipping(collection, record.get(collection.id_field)):
            result.append((record, handle(record)))
    return result


def of_content(error: Exception) -> bool:
    """Returns whether an error may be about the content of a record: errors of the service (`app/errors.py`), of files
    and the network, and a lack of memory are not, but a value that is refused is."""
    return isinstance(error, Invalid | RecordDamaged) or not isinstance(error, RecalldError | OSError | MemoryError)


def skipped_records(skipped: SkippedById) -> SkippedRecords:
    """Returns the number and the first names of skipped records, as an operation's result has them."""
    items: list[SkippedRecord] = [
        {"kind": kind, "id": record_id, "error": error} for (kind, record_id), error in skipped.items()
    ]
    return {"count": len(items), "items": items[:SHOWN]}
