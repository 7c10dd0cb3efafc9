"""The queue of jobs: claimed by one worker at a time, and fenced so that a late one commits nothing."""

import heapq
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from app.core.clock import Clock, rfc3339
from app.core.ids import new_id
from app.errors import RecalldError
from app.jobs.models import ERASE_USER, JOBS, LANES, Lane, lane_of
from app.storage.changes import Change, CommitConflict, Committed, Delete, Insert, Update
from app.storage.filters import Absent, Eq, Filter, Or, Range, both
from app.storage.protocol import Store
from app.storage.repository import pages
from app.storage.schema import Doc
from app.storage.scope import SYSTEM

BATCH = 200


CommitFenced = Callable[[list[Change], int], Awaitable[None]]
"""Commits changes with which so many jobs go. Raises CommitConflict."""


async def fence(store: Store, tenant: str, drop: Callable[[Doc], bool], commit: CommitFenced) -> None:
    """Every job that works on the tenant's data begins anew; those that `drop` picks go, queued or not."""
    async for docs in pages(partial(store.find, JOBS, SYSTEM), JOBS, BATCH):
        for doc in docs:
            if doc["tenant"] in (tenant, SYSTEM):
                await _take(store, doc, drop, commit)


async def _take(store: Store, found: Doc, drop: Callable[[Doc], bool], commit: CommitFenced) -> None:
    doc: Doc | None = found
    while doc is not None:
        change = _change(doc, drop)
        try:
            if change is not None:
                await commit([change], int(isinstance(change, Delete)))
        except CommitConflict:
            doc = await store.get(JOBS, SYSTEM, found["job_id"])  # it was taken, renewed or done meanwhile
            continue
        return


def _change(doc: Doc, drop: Callable[[Doc], bool]) -> Change | None:
    if drop(doc):
        return Delete(JOBS, SYSTEM, doc["job_id"])
    if doc["status"] != "running" or doc["kind"] == ERASE_USER:
        return None
    again = {"status": "queued", "leased_until": None}
    ours = {"status": "running", "token": doc["token"]}
    return Update(JOBS, SYSTEM, doc["job_id"], set=again, inc={"token": 1}, expect=ours)


LEASE = timedelta(seconds=30)
MAX_ATTEMPTS = 6
FIRST_BACKOFF = timedelta(seconds=2)
CANDIDATES = 8


class LeaseLost(RecalldError):
    """Another worker has the job now: nothing of this one's was written."""


@dataclass(frozen=True, slots=True)
class Job:
    """`tenant` is whose data it works on; `operation_id` the operation that waits for it."""

    kind: str
    tenant: str
    payload: Doc = field(default_factory=dict)
    operation_id: str | None = None
    slot: str | None = None

    def enqueue(self, run_at: datetime) -> Insert:
        """The change that puts it into the queue, to be committed with whatever it follows from."""
        doc = {
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
        }
        return Insert(JOBS, doc)


@dataclass(frozen=True, slots=True)
class Lease:
    """A job that is ours until `leased_until`, as long as its token stands."""

    store: Store
    clock: Clock
    doc: Doc
    length: timedelta = LEASE

    @property
    def job(self) -> Job:
        return Job(self.doc["kind"], self.doc["tenant"], self.doc["payload"], self.doc["operation_id"])

    @property
    def lane(self) -> Lane:
        return self.doc.get("lane")

    @property
    def last_attempt(self) -> bool:
        """Should this one fail, then for good."""
        return bool(self.doc["attempts"] + 1 >= MAX_ATTEMPTS)

    @property
    def abandoned(self) -> bool:
        """Worker after worker stopped in the middle of it: no other shall."""
        return bool(self.doc["attempts"] >= MAX_ATTEMPTS)

    async def commit(self, changes: list[Change]) -> Committed:
        """Changes of the job, made only while the lease is ours. Raises LeaseLost, or CommitConflict of `changes`."""
        return await self._commit([*changes, self._touch()])

    async def renew(self) -> None:
        await self._commit([self._touch({"leased_until": rfc3339(self.clock.now() + self.length)})])

    async def done(self, changes: list[Change]) -> None:
        """The job is over, and with it come its last changes."""
        await self._commit([*changes, Delete(JOBS, SYSTEM, self.doc["job_id"], self._ours())])

    async def failed(self, error: str, changes: list[Change]) -> bool:
        """Tried again later, ever more slowly, or over after the last attempt: True. `changes` are made with it."""
        attempts = self.doc["attempts"] + 1
        if self.last_attempt:
            over = {"status": "failed", "attempts": attempts, "error": error, "leased_until": None, "slot": None}
            await self._commit([*changes, self._touch(over)])
            return True
        later = rfc3339(self.clock.now() + FIRST_BACKOFF * 2 ** (2 * attempts - 2))
        back = {"status": "queued", "attempts": attempts, "error": error, "run_at": later, "leased_until": None}
        await self._commit([*changes, self._touch(back)])
        return False

    async def release(self) -> None:
        """Back into the queue at once: this worker stops."""
        await self._commit([self._touch({"status": "queued", "leased_until": None})])

    def _ours(self) -> Doc:
        return {"status": "running", "token": self.doc["token"]}

    def _touch(self, fields: Doc | None = None) -> Update:
        return Update(JOBS, SYSTEM, self.doc["job_id"], set=fields or {}, expect=self._ours())

    async def _commit(self, changes: list[Change]) -> Committed:
        try:
            return await self.store.commit(changes)
        except CommitConflict as conflict:
            if conflict.collection == JOBS.name and conflict.doc_id == self.doc["job_id"]:
                raise LeaseLost(f"job {self.doc['job_id']} was taken over") from conflict
            raise


class Queue:
    def __init__(self, store: Store, clock: Clock, lease: timedelta = LEASE) -> None:
        self._store, self._clock, self._length = store, clock, lease

    async def take(self, queued: Sequence[Lane] = LANES, lapsed: Sequence[Lane] = LANES) -> Lease | None:
        """The job that was due first: of those queued in the lanes `queued`, and those in the lanes `lapsed` whose
        worker let the lease lapse. None: there is nothing to do."""
        now = rfc3339(self._clock.now())
        due = both(Eq("status", "queued"), Range("run_at", le=now))
        left = both(Eq("status", "running"), Range("leased_until", le=now))
        # a lane's next job is found by an index; jobs that run are few
        wanted = [both(of_lane, due) for of_lane in _each(queued)] + ([both(left, _any(lapsed))] if lapsed else [])
        found = [await self._store.find(JOBS, SYSTEM, where, order="asc", limit=CANDIDATES) for where in wanted]
        for doc in heapq.merge(*found, key=lambda doc: (doc["run_at"], doc["job_id"])):
            lease = await self._lease(doc)
            if lease is not None:
                return lease
        return None

    async def take_job(self, job_id: str) -> Lease | None:
        """That job, now, if it is queued: whether it is due or not. None where it is not, or another took it."""
        doc = await self._store.get(JOBS, SYSTEM, job_id)
        return await self._lease(doc) if doc is not None and doc["status"] == "queued" else None

    async def is_running(self, job_id: str) -> bool:
        """A worker has it, or had it when it stopped."""
        doc = await self._store.get(JOBS, SYSTEM, job_id)
        return doc is not None and doc["status"] == "running"

    async def _lease(self, doc: Doc) -> Lease | None:
        """A lease that lapsed was an attempt: a job that ends its workers is given up as others are."""
        until = rfc3339(self._clock.now() + self._length)
        attempts = doc["attempts"] + (doc["status"] == "running")
        taken: dict[str, Any] = {
            "status": "running",
            "leased_until": until,
            "token": doc["token"] + 1,
            "attempts": attempts,
        }
        expect = {name: doc[name] for name in ("status", "token", "leased_until")}
        try:
            await self._store.commit([Update(JOBS, SYSTEM, doc["job_id"], set=taken, expect=expect)])
        except CommitConflict:
            return None  # another worker was quicker
        return Lease(self._store, self._clock, doc | taken, self._length)

    async def waiting(self) -> int:
        return await self._store.count(JOBS, SYSTEM, Eq("status", "queued"))

    async def failed(self, limit: int = 100) -> list[Doc]:
        return await self._store.find(JOBS, SYSTEM, Eq("status", "failed"), limit=limit)


def _in(lane: Lane) -> Filter:
    return Absent("lane") if lane is None else Eq("lane", lane)


def _any(lanes: Sequence[Lane]) -> Filter | None:
    return None if len(lanes) == len(LANES) else Or(tuple(map(_in, lanes)))


def _each(lanes: Sequence[Lane]) -> list[Filter | None]:
    """One filter for each lane. All of them need none: they are one queue."""
    return [None] if len(lanes) == len(LANES) else [_in(lane) for lane in lanes]
