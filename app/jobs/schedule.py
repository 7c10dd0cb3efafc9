"""Queues periodic jobs. A tick and the job that it queues are one commit: one tick queues one job, however many
processes check the schedule.

After downtime a schedule runs once, not once for each missed period. A job that takes longer than its period is
followed by the next one and never overlaps with it.

A job is queued only if a check of the store finds work for it. Checks write nothing, so an idle service writes nothing.
Between checks each process remembers when the next one is due.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta

from app.core.clock import Clock, parse_rfc3339, rfc3339
from app.core.tuning import Tuning
from app.errors import StoreUnavailable
from app.jobs.queue import (
    CONSOLIDATION,
    DECAY,
    EMBED_PENDING,
    EXPIRY,
    REFLECTION,
    RETENTION,
    SCHEDULES,
    Job,
    JobInfo,
    ScheduleRecord,
)
from app.storage.changes import CommitConflict, Insert, Update
from app.storage.protocol import Store
from app.storage.schema import EVERYTHING, Filter, Range
from app.storage.scope import SYSTEM

log = logging.getLogger(__name__)

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
        schedule = await self._store.get(SCHEDULES, SYSTEM, kind)
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

    async def _queue(self, kind: str, schedule: ScheduleRecord | None, now: datetime, following: str) -> int:
        job = Job(kind, SYSTEM, slot=kind).enqueue(now)
        if schedule is None:
            first: ScheduleRecord = {
                "tenant_id": SYSTEM,
                "name": kind,
                "next_run": following,
                "last_run": None,
                "outcome": None,
                "created_at": rfc3339(now),
            }
            change: Insert[ScheduleRecord] | Update[ScheduleRecord] = Insert(SCHEDULES, first)
        else:
            expect = {"next_run": schedule["next_run"]}
            change = Update(SCHEDULES, SYSTEM, kind, set={"next_run": following}, expect=expect)
        try:
            await self._store.commit([change, job])
        except CommitConflict:
            return 0  # another worker's tick was first, or the previous job has not ended
        return 1

    def ran(self, kind: str, outcome: str) -> Update[ScheduleRecord] | None:
        """Returns the change that records the outcome of a scheduled run, or None for a job without a schedule."""
        if kind not in self._every:
            return None
        return Update(SCHEDULES, SYSTEM, kind, set={"last_run": rfc3339(self._clock.now()), "outcome": outcome})

    async def all(self) -> list[JobInfo]:
        """Returns all schedules as the API shows them."""
        schedules, now = await self._store.find(SCHEDULES, SYSTEM, order="asc"), self._clock.now()
        by_name = {schedule["name"]: schedule for schedule in schedules}
        return [_render(kind, period, by_name.get(kind), now) for kind, period in self._every.items()]


PERIODS: Mapping[str, float] = {
    DECAY: 3600,  # reads compute faded importance themselves, so writing it down can wait
    EXPIRY: 600,  # reads hide what has expired at once; the disk can wait
    RETENTION: 3600,
    CONSOLIDATION: 86_400,
    REFLECTION: 86_400,
    EMBED_PENDING: 5,  # what was written while the model failed is found by its words alone until then
}
"""Seconds between two runs of each scheduled kind."""


def periods(tuning: Tuning) -> dict[str, timedelta]:
    """Returns the period of each scheduled kind."""
    return {kind: timedelta(seconds=seconds) for kind, seconds in {**PERIODS, **tuning.job_seconds}.items()}


OVERLAP = timedelta(minutes=10)
"""The overlap of what two scheduled runs look at, since the clocks of several machines differ."""


def news(schedule: ScheduleRecord | None) -> Filter:
    """Filters records created since the previous scheduled run looked for news."""
    since = None if schedule is None else schedule.get("looked_at")
    return EVERYTHING if since is None else Range("created_at", ge=since)


def has_looked(kind: str, begun: datetime) -> Update[ScheduleRecord]:
    """Returns the change that notes until when a scheduled run has looked for news. It conflicts if the schedule was
    deleted, which then starts anew."""
    looked: ScheduleRecord = {"looked_at": rfc3339(begun - OVERLAP)}
    return Update(SCHEDULES, SYSTEM, kind, set=looked)


def _lies_ahead(moment: datetime | None, now: datetime, period: timedelta) -> bool:
    """Returns True if the moment is at most one period ahead. One further ahead is invalid: the clock was set back, or
    the period shortened."""
    return moment is not None and now < moment <= now + period


def _after(now: datetime, period: timedelta, noted: datetime | None) -> datetime:
    """Returns the next future time of the schedule."""
    last = now if noted is None else noted
    return last + period * ((now - last) // period + 1)


def _render(kind: str, period: timedelta, schedule: ScheduleRecord | None, now: datetime) -> JobInfo:
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
