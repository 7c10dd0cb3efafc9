"""Runs queued jobs under a lease, undoes what an operation did, and queues periodic jobs."""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from app.core import tracing
from app.core.clock import Clock, parse_rfc3339, rfc3339
from app.core.tuning import Tuning
from app.core.work import begin, end, work_for
from app.errors import RecalldError, StoreUnavailable, Unavailable
from app.jobs import queue
from app.metrics import JOB_RUNS, JOB_SECONDS, JOBS_QUEUED
from app.storage.changes import Change, CommitConflict, Insert, Update, using_reserve
from app.storage.protocol import Store
from app.storage.schema import EVERYTHING, Collection, Filter, R, Range
from app.storage.scope import SYSTEM

# --- Periodic jobs ----------------------------------------------------------------------------------------------------
# A tick and the job that it queues are one commit: one tick queues one job, however many processes check the schedule.
# After downtime a schedule runs once, not once for each missed period. A job that takes longer than its period is
# followed by the next one and never overlaps with it. A job is queued only if a check of the store finds work for it.
# Checks write nothing, so an idle service writes nothing.

Look = Callable[[], Awaitable[bool]]
"""Returns True if a job would find work. Only reads."""


class Schedules:
    """The periodic jobs. `every` maps each kind to its period, `looks` to a check for work; without a check there
    always is some."""

    def __init__(
        self, store: Store, clock: Clock, every: Mapping[str, timedelta], looks: Mapping[str, Look] | None = None
    ) -> None:
        self._store, self._clock, self._every, self._looks = store, clock, every, looks or {}
        self._due: dict[str, datetime] = {}

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of the periodic jobs."""
        return frozenset(self._every)

    async def tick(self) -> int:
        """Queues the jobs that are due and have work. Returns their number."""
        return sum([await self._tick(kind, period) for kind, period in self._every.items()])

    def seconds_to_next(self) -> float:
        """Returns the seconds until the next check is due, or infinity if none is known. A tick that another process
        won does not count."""
        now = self._clock.now()
        return min(((due - now).total_seconds() for due in self._due.values() if due > now), default=math.inf)

    async def _tick(self, kind: str, period: timedelta) -> int:
        if _lies_ahead(self._due.get(kind), self._clock.now(), period):
            return 0
        schedule = await self._store.get(queue.SCHEDULES, SYSTEM, kind)
        now = self._clock.now()  # after reading: a process that stood still before it would take later ticks of others
        noted = None if schedule is None else parse_rfc3339(schedule["next_run"])
        if noted is not None and _lies_ahead(noted, now, period):
            self._due[kind] = noted  # another process was first
            return 0
        following = _after(now, period, noted)
        if not await self._has_work(kind):
            self._due[kind] = following
            return 0
        queued = await self._queue(kind, schedule, now, rfc3339(following))
        if queued:
            self._due[kind] = following
        return queued

    async def _has_work(self, kind: str) -> bool:
        """Returns True if there is work, or if the check fails: the job then reports the error. Raises
        StoreUnavailable."""
        try:
            return kind not in self._looks or await self._looks[kind]()
        except StoreUnavailable:
            raise
        except Exception:
            log.exception("a look for work failed", extra={"kind": kind})
            return True

    async def _queue(self, kind: str, schedule: queue.ScheduleRecord | None, now: datetime, following: str) -> int:
        job = queue.Job(kind, SYSTEM, slot=kind).enqueue(now)
        if schedule is None:
            first: queue.ScheduleRecord = {
                "tenant_id": SYSTEM,
                "name": kind,
                "next_run": following,
                "last_run": None,
                "outcome": None,
                "created_at": rfc3339(now),
            }
            change: Insert[queue.ScheduleRecord] | Update[queue.ScheduleRecord] = Insert(queue.SCHEDULES, first)
        else:
            expect = {"next_run": schedule["next_run"]}
            change = Update(queue.SCHEDULES, SYSTEM, kind, set={"next_run": following}, expect=expect)
        try:
            await self._store.commit([change, job])
        except CommitConflict:
            return 0  # another worker's tick was first, or the previous job has not ended
        return 1

    def ran(self, kind: str, outcome: str) -> Update[queue.ScheduleRecord] | None:
        """Returns the change that records the outcome of a scheduled run, or None for a job without a schedule."""
        if kind not in self._every:
            return None
        return Update(queue.SCHEDULES, SYSTEM, kind, set={"last_run": rfc3339(self._clock.now()), "outcome": outcome})

    async def all(self) -> list[queue.JobInfo]:
        """Returns all schedules as the API shows them."""
        schedules, now = await self._store.find(queue.SCHEDULES, SYSTEM, order="asc"), self._clock.now()
        by_name = {schedule["name"]: schedule for schedule in schedules}
        return [_render(kind, period, by_name.get(kind), now) for kind, period in self._every.items()]


PERIODS: Mapping[str, float] = {
    queue.DECAY: 3600,  # reads compute faded importance themselves, so writing it down can wait
    queue.EXPIRY: 600,  # reads hide what has expired at once; the disk can wait
    queue.RETENTION: 3600,
    queue.CONSOLIDATION: 86_400,
    queue.REFLECTION: 86_400,
    queue.EMBED_PENDING: 5,  # what was written while the model failed is found by its words alone until then
}
"""Seconds between two runs of each scheduled kind."""


def periods(tuning: Tuning) -> dict[str, timedelta]:
    """Returns the period of each scheduled kind."""
    return {kind: timedelta(seconds=seconds) for kind, seconds in {**PERIODS, **tuning.job_seconds}.items()}


OVERLAP = timedelta(minutes=10)
"""The overlap of what two scheduled runs look at, since the clocks of several machines differ."""


def news(schedule: queue.ScheduleRecord | None) -> Filter:
    """Filters records created since the previous scheduled run looked for news."""
    since = None if schedule is None else schedule.get("looked_at")
    return EVERYTHING if since is None else Range("created_at", ge=since)


def has_looked(kind: str, begun: datetime) -> Update[queue.ScheduleRecord]:
    """Returns the change that notes until when a scheduled run has looked for news. It conflicts if the schedule was
    deleted, which then starts anew."""
    looked: queue.ScheduleRecord = {"looked_at": rfc3339(begun - OVERLAP)}
    return Update(queue.SCHEDULES, SYSTEM, kind, set=looked)


def _lies_ahead(moment: datetime | None, now: datetime, period: timedelta) -> bool:
    """Returns True if the moment is at most one period ahead. One further ahead is invalid: the clock was set back, or
    the period shortened."""
    return moment is not None and now < moment <= now + period


def _after(now: datetime, period: timedelta, noted: datetime | None) -> datetime:
    """Returns the next future time of the schedule."""
    last = now if noted is None else noted
    return last + period * ((now - last) // period + 1)


def _render(kind: str, period: timedelta, schedule: queue.ScheduleRecord | None, now: datetime) -> queue.JobInfo:
    """Renders a schedule. `next_run` is always in the future: a past one found no work, and a schedule without one runs
    within a period."""
    noted = None if schedule is None else parse_rfc3339(schedule["next_run"])
    next_run = noted if noted is not None and noted > now else _after(now, period, noted)
    return {
        "name": kind,
        "schedule": f"every {int(period.total_seconds())} s",
        "last_run": None if schedule is None else schedule["last_run"],
        "next_run": rfc3339(next_run),
        "outcome": None if schedule is None else schedule["outcome"],
    }


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
    lease: queue.Lease

    @property
    def tenant(self) -> str:
        """The tenant whose data the job works on."""
        return self.lease.job.tenant

    @property
    def payload(self) -> queue.Payload:
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
            fields: queue.OperationRecord = {"status": "running", "progress": {"done": done, "total": total}}
            report = queue.report(self.tenant, operation_id, self.clock.now(), fields)
            await _where_missing_without([report], self.commit)


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of a job. `undo` is the data that a later undo of its operation needs, `error` why it has failed."""

    result: queue.OperationResult
    undo: queue.OperationUndo | None = None
    status: queue.OperationStatus = "succeeded"
    error: str | None = None


def _with_skipped(done: Done, skipped: queue.SkippedById) -> Done:
    """Returns the outcome with the names of skipped records. What succeeded without them is partial."""
    if not skipped:
        return done
    status: queue.OperationStatus = "partial" if done.status == "succeeded" else done.status
    return replace(done, result={**done.result, "skipped_records": queue.skipped_records(skipped)}, status=status)


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
        lease: timedelta = queue.LEASE,
    ) -> None:
        self._store, self._clock, self._handlers, self._schedules = store, clock, handlers, schedules
        self._queue = queue.Queue(store, clock, lease)
        self._in_lanes: dict[asyncio.Task[None], queue.Lane] = {}
        self._carried_out: set[asyncio.Task[bool]] = set()
        self._counted = -COUNT_SECONDS
        self._news = asyncio.Event()
        self._waits = False
        """Whether the log says that jobs wait for the store."""
        store.on_insert(queue.JOBS, self._news.set)

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

    def _lanes_below(self, jobs: int) -> list[queue.Lane]:
        """Returns the lanes in which fewer than `jobs` jobs run."""
        running = Counter(self._in_lanes.values())
        return [lane for lane in queue.LANES if running[lane] < jobs]

    async def _work(self, lease: queue.Lease) -> None:
        """Runs the job and records its outcome, on a full disk too: a lease takes no room. Raises StoreUnavailable."""
        kind = lease.doc["kind"]
        attributes = {"recalld.job.kind": kind, "recalld.job.lane": lease.lane or queue.ORDINARY_LANE}
        with using_reserve():
            renewing = asyncio.create_task(_renew(lease))
            try:
                with tracing.root(f"job {kind}", attributes) as span, JOB_SECONDS.labels(kind).time():
                    outcome = await self._attempt(lease)
                    span.set({"recalld.job.outcome": outcome, "recalld.job.attempts": lease.doc["attempts"] + 1})
            except queue.LeaseLost as error:
                outcome = "lease_lost"
                log.warning("lease lost", extra={"job": lease.doc["job_id"], "kind": kind, "error": error.detail})
            except (asyncio.CancelledError, StoreUnavailable):
                with suppress(RecalldError):
                    await asyncio.shield(lease.release())
                raise
            finally:
                renewing.cancel()
        JOB_RUNS.labels(kind, outcome).inc()

    async def _take(self, take: Coroutine[Any, Any, queue.Lease | None]) -> queue.Lease | None:
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

    async def _attempt(self, lease: queue.Lease) -> str:
        work_for(lease.job.tenant)
        try:
            if lease.abandoned:
                raise RecalldError("every process that ran this job stopped before the job was done")
            handler = self._handlers.get(lease.doc["kind"])
            if handler is None:
                raise RecalldError(f"this process runs no jobs of the kind {lease.doc['kind']}")
            with using_reserve(allowed=lease.doc["kind"] in queue.FREES_SPACE):
                # also without a report: on a full disk the job then ends before it has asked a model for anything
                await _where_missing_without(self._report(lease, {"status": "running"}), lease.commit)
                with queue.collecting() as skipped:
                    done = await handler(Run(self._store, self._clock, lease))
                done = _with_skipped(done, skipped)
            outcome: queue.OperationRecord = {
                "status": done.status,
                "result": done.result,
                "error": done.error,
                "undo": done.undo,
            }
            await _where_missing_without(self._noted(lease, outcome, done.status), lease.done)
        except (queue.LeaseLost, StoreUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 (recorded and retried)
            return await self._failed(lease, error)
        return done.status

    async def _failed(self, lease: queue.Lease, error: Exception) -> str:
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

    def _report(self, lease: queue.Lease, fields: queue.OperationRecord) -> list[Change]:
        """Returns the update of the operation that waits for the job, if there is one."""
        job = lease.job
        if job.operation_id is None:
            return []
        return [queue.report(job.tenant, job.operation_id, self._clock.now(), fields)]

    def _noted(self, lease: queue.Lease, outcome: queue.OperationRecord, word: str) -> list[Change]:
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


async def _renew(lease: queue.Lease) -> None:
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
    operation = await run.store.get(queue.OPERATIONS, run.tenant, str(run.lease.job.operation_id))
    done, left = operation["progress"]["done"] if operation else 0, 0
    async for piece in pieces:
        restored = False
        with queue.skipping(collection, piece.get(collection.id_field)):
            restored = await _brought_back(run, await back(piece), done + 1)
        done, left = done + restored, left + (not restored)
    fields: queue.OperationRecord = {"status": "undone", "undo": None} if done else {"undoing": None}
    await run.commit([queue.report(run.tenant, run.payload["operation_id"], run.clock.now(), fields)])
    result: queue.OperationResult = {"restored": done, "not_restored": left}
    if not done:
        why = "what it changed was changed, replaced or deleted since" if left else "nothing is left of what it changed"
        return Done(result, status="failed", error=f"Nothing was restored: {why}.")
    return Done(result, status="partial" if left else "succeeded")


async def _brought_back(run: Run, changes: list[Change] | None, number: int) -> bool:
    """Commits the changes and the progress. Returns False if the piece can no longer be restored, or if it conflicts
    with another change."""
    if changes is None:
        return False
    fields: queue.OperationRecord = {"progress": {"done": number, "total": None}}
    report = queue.report(run.tenant, str(run.lease.job.operation_id), run.clock.now(), fields)
    with suppress(CommitConflict):
        await run.commit([*changes, report])
        return True
    return False
