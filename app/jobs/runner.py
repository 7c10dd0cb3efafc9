"""Runs queued jobs under a lease, and undoes what an operation did."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeAlias

from app.core import tracing
from app.core.clock import Clock
from app.core.work import begin, end, work_for
from app.errors import RecalldError, StoreUnavailable, Unavailable
from app.jobs import queue
from app.jobs.queue import (
    FREES_SPACE,
    JOBS,
    LANES,
    LEASE,
    OPERATIONS,
    ORDINARY_LANE,
    Lane,
    Lease,
    LeaseLost,
    OperationRecord,
    OperationResult,
    OperationStatus,
    OperationUndo,
    Payload,
    Queue,
    SkippedById,
    collecting,
    skipped_records,
    skipping,
)
from app.jobs.schedule import Schedules
from app.metrics import JOB_RUNS, JOB_SECONDS, JOBS_QUEUED
from app.storage.changes import Change, CommitConflict, using_reserve
from app.storage.protocol import Store
from app.storage.schema import Collection, R

POLL_SECONDS = 1.0
"""How often the queue is polled for jobs of other processes. A job queued by this process wakes the loop at once."""
LOOK_SECONDS = 0.1
"""How often `carry_out` checks whether another worker has ended the job."""
COUNT_SECONDS = 5.0
"""How often the metric of queued jobs is refreshed."""
ASLEEP = "jobs: waiting for news"
"""The name of the task that the loop awaits while it has no work."""
FAULT_PAUSE_SECONDS = 2.0
"""The pause after a failure."""
JOBS_IN_LANE = 1
LAPSED_BESIDE = 1
"""The number of jobs with a lapsed lease that a lane may run beside its own."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Run:
    """The argument of a job handler. All writes go through `commit`, which checks the lease."""

    store: Store
    clock: Clock
    lease: Lease

    @property
    def tenant(self) -> str:
        """The tenant whose data the job works on."""
        return self.lease.job.tenant

    @property
    def payload(self) -> Payload:
        """The arguments of the job."""
        return self.lease.job.payload

    async def commit(self, changes: list[Change]) -> None:
        """Commits changes of the job. Raises LeaseLost, or CommitConflict for a conflict in `changes`."""
        try:
            await self.lease.commit(changes)
        except RecalldError:
            raise
        except Exception as error:  # of the store, whatever its class: no record is skipped for it
            raise RecalldError(f"The commit failed: {type(error).__name__}.") from error

    async def commit_each(self, changes: list[Change]) -> None:
        """Commits changes in one go; if one of them conflicts, each by itself, without those that conflict."""
        try:
            await self.commit(changes)
        except CommitConflict:
            for change in changes:
                with suppress(CommitConflict):
                    await self.commit([change])

    async def progress(self, done: int, total: int | None) -> None:
        """Updates the progress of the operation that waits for this job."""
        operation_id = self.lease.job.operation_id
        if operation_id is not None:
            fields: OperationRecord = {"status": "running", "progress": {"done": done, "total": total}}
            report = queue.report(self.tenant, operation_id, self.clock.now(), fields)
            await _where_missing_without([report], self.commit)


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of a job. `undo` is the data that a later undo of its operation needs, `error` why it has failed."""

    result: OperationResult
    undo: OperationUndo | None = None
    status: OperationStatus = "succeeded"
    error: str | None = None


def _with_skipped(done: Done, skipped: SkippedById) -> Done:
    """Returns the outcome with the names of skipped records. What succeeded without them is partial."""
    if not skipped:
        return done
    status: OperationStatus = "partial" if done.status == "succeeded" else done.status
    return replace(done, result={**done.result, "skipped_records": skipped_records(skipped)}, status=status)


JobHandler = Callable[[Run], Awaitable[Done]]
"""Runs one kind of job."""


class Runner:
    """Leases and runs jobs until it is closed."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        handlers: Mapping[str, JobHandler],
        schedules: Schedules,
        lease: timedelta = LEASE,
    ) -> None:
        self._store, self._clock, self._handlers, self._schedules = store, clock, handlers, schedules
        self._queue = Queue(store, clock, lease)
        self._in_lanes: dict[asyncio.Task[None], Lane] = {}
        self._carried_out: set[asyncio.Task[bool]] = set()
        self._counted = -COUNT_SECONDS
        self._news = asyncio.Event()
        self._waits = False
        """Whether the log says that jobs wait for the store."""
        store.on_insert(JOBS, self._news.set)

    async def run(self) -> None:
        """Runs jobs until cancelled. Waits while the store is unavailable, and survives any other failure."""
        try:
            with using_reserve():
                while True:
                    if not await self._safely(self._start_next()):
                        await asyncio.sleep(FAULT_PAUSE_SECONDS)
        finally:
            await self.close()

    async def close(self) -> None:
        """Cancels the jobs that run here and returns them to the queue."""
        await asyncio.sleep(0)  # a task that is cancelled before it starts would return nothing to the queue
        await end(*self._in_lanes, *self._carried_out)

    async def step(self) -> bool:
        """Runs the job that was due first, in any lane. Returns False if none is due. Raises StoreUnavailable after
        returning the job to the queue."""
        lease = await self._take(self._queue.take())
        if lease is not None:
            await self._work(lease)
        return lease is not None

    async def carry_out(self, job_id: str, seconds: float) -> None:
        """Runs a queued job now, whatever its lane is doing and even before it is due. If another worker has the job,
        waits for that worker. Returns when the run has ended, well or not, or after `seconds`; the run then continues.
        Raises StoreUnavailable."""
        lease = await self._take(self._queue.take_job(job_id))
        if lease is None:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                if not await self._queue.is_running(job_id):
                    return
                await asyncio.sleep(LOOK_SECONDS)
            return
        task = begin(
            self._safely(self._work(lease)), f"job {job_id}"
        )  # the store may take longer than the waiting request
        self._carried_out.add(task)
        task.add_done_callback(self._carried_out.discard)
        await asyncio.wait([task], timeout=seconds)

    async def _start_next(self) -> None:
        """Starts the next job for which a lane has room. If there is none, waits until there may be one."""
        running = list(self._in_lanes)
        self._news.clear()
        await self._schedules.tick()
        if time.monotonic() - self._counted >= COUNT_SECONDS:
            JOBS_QUEUED.set(await self._queue.waiting())
            self._counted = time.monotonic()
        queued, lapsed = self._lanes_below(JOBS_IN_LANE), self._lanes_below(JOBS_IN_LANE + LAPSED_BESIDE)
        lease = await self._take(self._queue.take(queued, lapsed))
        if lease is None:
            # until a running task ends, a job is queued, or the next poll or schedule is due
            news = asyncio.create_task(self._news.wait(), name=ASLEEP)
            seconds = min(POLL_SECONDS, self._schedules.seconds_to_next())
            try:
                await asyncio.wait([*running, news], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            finally:
                news.cancel()
            return
        task = asyncio.create_task(self._in_lane(self._work(lease)))
        self._in_lanes[task] = lease.lane
        task.add_done_callback(self._in_lanes.pop)

    async def _in_lane(self, work: Awaitable[None]) -> None:
        """Runs a job of a lane. After a failure, keeps the lane occupied for a pause, or the job would be
        retried at once."""
        if not await self._safely(work):
            await asyncio.sleep(FAULT_PAUSE_SECONDS)

    async def _safely(self, work: Awaitable[None]) -> bool:
        """Returns False if the work failed. Logs the error; that the store is away, once until it is back."""
        try:
            await work
        except StoreUnavailable as error:
            if not self._waits:
                log.warning("jobs wait for the store", extra={"error": error.detail})
            self._waits = True
        except Exception:
            log.exception("jobs stumbled")
        else:
            if self._waits:
                log.info("jobs go on: the store is back")
            self._waits = False
            return True
        return False

    def _lanes_below(self, jobs: int) -> list[Lane]:
        """Returns the lanes in which fewer than `jobs` jobs run."""
        running = Counter(self._in_lanes.values())
        return [lane for lane in LANES if running[lane] < jobs]

    async def _work(self, lease: Lease) -> None:
        """Runs the job and records its outcome, on a full disk too: a lease takes no room. Raises StoreUnavailable."""
        kind = lease.doc["kind"]
        attributes = {"recalld.job.kind": kind, "recalld.job.lane": lease.lane or ORDINARY_LANE}
        with using_reserve():
            renewing = asyncio.create_task(_renew(lease))
            try:
                with tracing.root(f"job {kind}", attributes) as span, JOB_SECONDS.labels(kind).time():
                    outcome = await self._attempt(lease)
                    span.set({"recalld.job.outcome": outcome, "recalld.job.attempts": lease.doc["attempts"] + 1})
            except LeaseLost as error:
                outcome = "lease_lost"
                log.warning("lease lost", extra={"job": lease.doc["job_id"], "kind": kind, "error": error.detail})
            except (asyncio.CancelledError, StoreUnavailable):
                with suppress(RecalldError):
                    await asyncio.shield(lease.release())
                raise
            finally:
                renewing.cancel()
        JOB_RUNS.labels(kind, outcome).inc()

    async def _take(self, take: Coroutine[Any, Any, Lease | None]) -> Lease | None:
        """Leases a job. If cancelled meanwhile, releases it, so that no job stays leased without a worker."""
        claim = asyncio.create_task(take)
        try:
            return await asyncio.shield(claim)
        except asyncio.CancelledError:
            with suppress(RecalldError):
                lease = await claim
                if lease is not None:
                    await lease.release()
            raise

    async def _attempt(self, lease: Lease) -> str:
        work_for(lease.job.tenant)
        try:
            if lease.abandoned:
                raise RecalldError("every process that ran this job stopped before the job was done")
            handler = self._handlers.get(lease.doc["kind"])
            if handler is None:
                raise RecalldError(f"this process runs no jobs of the kind {lease.doc['kind']}")
            with using_reserve(allowed=lease.doc["kind"] in FREES_SPACE):
                # also without a report: on a full disk the job then ends before it has asked a model for anything
                await _where_missing_without(self._report(lease, {"status": "running"}), lease.commit)
                with collecting() as skipped:
                    done = await handler(Run(self._store, self._clock, lease))
                done = _with_skipped(done, skipped)
            outcome: OperationRecord = {
                "status": done.status,
                "result": done.result,
                "error": done.error,
                "undo": done.undo,
            }
            await _where_missing_without(self._noted(lease, outcome, done.status), lease.done)
        except (LeaseLost, StoreUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 (recorded and retried)
            return await self._failed(lease, error)
        return done.status

    async def _failed(self, lease: Lease, error: Exception) -> str:
        reason = error.detail if isinstance(error, RecalldError) else type(error).__name__
        until = error.until if isinstance(error, RecalldError) else None
        over = lease.last_attempt and until is None
        tracing.fail(error.code if isinstance(error, RecalldError) else type(error).__name__, fault=until is None)
        if not isinstance(error, CommitConflict) and until is None:
            # a model that is down is told by its reason: the place in our code says nothing of it
            why = {"reason": error.detail} if isinstance(error, Unavailable) else {}
            stack = None if why else error
            log.error(
                "job failed", exc_info=stack, extra={"job": lease.doc["job_id"], "kind": lease.doc["kind"], **why}
            )
        if over:
            noted = self._noted(lease, {"status": "failed", "error": reason}, "failed")
        else:
            noted = self._report(lease, {"status": "queued", "error": reason})

        async def failed(changes: list[Change]) -> None:
            await lease.failed(reason, changes, until)

        await _where_missing_without(noted, failed)
        return "failed" if over else "retried"

    def _report(self, lease: Lease, fields: OperationRecord) -> list[Change]:
        """Returns the update of the operation that waits for the job, if there is one."""
        job = lease.job
        if job.operation_id is None:
            return []
        return [queue.report(job.tenant, job.operation_id, self._clock.now(), fields)]

    def _noted(self, lease: Lease, outcome: OperationRecord, word: str) -> list[Change]:
        """Returns the updates that record the outcome: of the waiting operation, or of the schedule that queued the
        job."""
        ran = self._schedules.ran(lease.job.kind, word) if lease.job.operation_id is None else None
        return self._report(lease, outcome) if ran is None else [ran]


async def _where_missing_without(noted: list[Change], commit: Callable[[list[Change]], Awaitable[object]]) -> None:
    """Commits with the changes in `noted`, or without them if the operation or schedule that they update no longer
    exists."""
    try:
        await commit(noted)
    except CommitConflict as conflict:
        if conflict.reason != "missing":
            raise
        await commit([])


async def _renew(lease: Lease) -> None:
    """Renews the lease of a long job until cancelled. The next commit of the job detects a lost lease."""
    while True:
        await asyncio.sleep(lease.length.total_seconds() / 3)
        with suppress(RecalldError):
            await lease.renew()


Back: TypeAlias = Callable[[R], Awaitable[list[Change] | None]]
"""Returns the changes that restore a piece, or None if it can no longer be restored."""


async def undo_each(run: Run, collection: Collection, pieces: AsyncIterator[R], back: Back[R]) -> Done:
    """Undoes each piece of an operation: a record of `collection`, or a mapping with the id of one. A restored piece
    must not appear in `pieces` again. An interrupted run resumes its count, since count and restored piece are one
    commit. If nothing is restored, the undo has failed, and the operation stays as it is, so that it may be undone
    later."""
    operation = await run.store.get(OPERATIONS, run.tenant, str(run.lease.job.operation_id))
    done, left = operation["progress"]["done"] if operation else 0, 0
    async for piece in pieces:
        restored = False
        with skipping(collection, piece.get(collection.id_field)):
            restored = await _brought_back(run, await back(piece), done + 1)
        done, left = done + restored, left + (not restored)
    fields: OperationRecord = {"status": "undone", "undo": None} if done else {"undoing": None}
    await run.commit([queue.report(run.tenant, run.payload["operation_id"], run.clock.now(), fields)])
    result: OperationResult = {"restored": done, "not_restored": left}
    if not done:
        why = "what it changed was changed, replaced or deleted since" if left else "nothing is left of what it changed"
        return Done(result, status="failed", error=f"Nothing was restored: {why}.")
    return Done(result, status="partial" if left else "succeeded")


async def _brought_back(run: Run, changes: list[Change] | None, number: int) -> bool:
    """Commits the changes and the progress. Returns False if the piece can no longer be restored, or if it conflicts
    with another change."""
    if changes is None:
        return False
    fields: OperationRecord = {"progress": {"done": number, "total": None}}
    report = queue.report(run.tenant, str(run.lease.job.operation_id), run.clock.now(), fields)
    with suppress(CommitConflict):
        await run.commit([*changes, report])
        return True
    return False
