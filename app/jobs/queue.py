"""The queue of durable jobs, and operations, which are the jobs that callers asked for.

One worker at a time holds a job, and a fence keeps a late worker from committing anything. The status of an
operation is `queued → running → succeeded|partial|failed`, then possibly `undone`.
"""

import heapq
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import cast

from app.core.clock import Clock, new_id, rfc3339
from app.core.schemas import Json
from app.errors import RecalldError
from app.jobs.models import (
    ERASE_USER,
    JOBS,
    LANES,
    OPERATIONS,
    JobRecord,
    Lane,
    Operation,
    OperationRecord,
    OperationUndo,
    Payload,
    lane_of,
)
from app.storage.changes import Change, CommitConflict, Committed, Delete, Insert, Update
from app.storage.protocol import Store
from app.storage.repository import pages
from app.storage.schema import Absent, Eq, Filter, Or, Range, both
from app.storage.scope import SYSTEM, Scope

ENDED = ("succeeded", "partial", "failed", "undone")


def begin(
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
    operation, noted = begin(scope, kind, now, **owner)
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
            if job["tenant"] in (tenant, SYSTEM):
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
"""The number of due jobs that `take` reads for each query."""


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
        """Returns the change that queues the job. Commit it with the changes that the job follows from."""
        return Insert(
            JOBS,
            {
                "tenant_id": SYSTEM,
                "job_id": new_id("job"),
                "kind": self.kind,
                "lane": lane_of(self.kind),
                "tenant": self.tenant,
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
        return Job(self.doc["kind"], self.doc["tenant"], self.doc["payload"], self.doc["operation_id"])

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

    async def take(self, queued: Sequence[Lane] = LANES, lapsed: Sequence[Lane] = LANES) -> Lease | None:
        """Leases a running job in one of the lanes `lapsed` whose lease has lapsed, else a job queued in a lane of
        `queued`. Takes the one that was due first. Returns None if there is none."""
        now = rfc3339(self._clock.now())
        due = both(Eq("status", "queued"), Range("run_at", le=now))
        left = both(Eq("status", "running"), Range("leased_until", le=now))
        # an index finds the next job of a lane; all lanes together are one queue and need no filter
        lanes = [None] if len(queued) == len(LANES) else list(map(_in_lane, queued))
        wanted = [both(lane, due) for lane in lanes]
        if lapsed:  # running jobs are few: one query for their lanes
            in_lanes = None if len(lapsed) == len(LANES) else Or(tuple(map(_in_lane, lapsed)))
            wanted.append(both(left, in_lanes))
        candidates = [await self._store.find(JOBS, SYSTEM, where, order="asc", limit=CANDIDATES) for where in wanted]
        for job in heapq.merge(*candidates, key=_urgency):
            lease = await self._lease(job)
            if lease is not None:
                return lease
        return None

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
