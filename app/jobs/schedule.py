"""What runs by the clock. A tick and the job that it makes are one commit: one tick, one job, however many look.

A service that was away catches up with one run, not with one for each that it missed; a job that takes longer than its
period is followed by the next, never joined by it.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from app.clock import Clock, parse_rfc3339, rfc3339
from app.jobs.kinds import CONSOLIDATION, DECAY, EMBED_PENDING, EXPIRY, RETENTION
from app.jobs.models import SCHEDULES
from app.jobs.queue import Job
from app.settings import JobSettings
from app.storage.collection import CommitConflict, Doc, Insert, Store, Update
from app.storage.scope import SYSTEM


class Schedules:
    """`every` gives each scheduled kind its period."""

    def __init__(self, store: Store, clock: Clock, every: Mapping[str, timedelta]) -> None:
        self._store, self._clock, self._every = store, clock, every

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(self._every)

    async def tick(self) -> int:
        """Queues what is due; how many."""
        return sum([await self._tick(kind, period) for kind, period in self._every.items()])

    async def _tick(self, kind: str, period: timedelta) -> int:
        now = self._clock.now()
        doc = await self._store.get(SCHEDULES, SYSTEM, kind)
        if doc is not None and parse_rfc3339(doc["next_run"]) > now:
            return 0
        following = rfc3339(_after(now, period, doc))
        job = Job(kind, SYSTEM, slot=kind).enqueue(now)
        if doc is None:
            first = {"tenant_id": SYSTEM, "name": kind, "next_run": following, "last_run": None, "outcome": None}
            change: Insert | Update = Insert(SCHEDULES, first | {"created_at": rfc3339(now)})
        else:
            expect = {"next_run": doc["next_run"]}
            change = Update(SCHEDULES, SYSTEM, kind, set={"next_run": following}, expect=expect)
        try:
            await self._store.commit([change, job])
        except CommitConflict:
            return 0  # another worker's tick, or the last one's job is still on its way
        return 1

    def ran(self, kind: str, outcome: str) -> Update | None:
        """The change that notes a scheduled run."""
        if kind not in self._every:
            return None
        return Update(SCHEDULES, SYSTEM, kind, set={"last_run": rfc3339(self._clock.now()), "outcome": outcome})

    async def all(self) -> list[Doc]:
        docs = await self._store.find(SCHEDULES, SYSTEM, order="asc")
        by_name = {doc["name"]: doc for doc in docs}
        return [_shown(kind, period, by_name.get(kind)) for kind, period in self._every.items()]


def periods(settings: JobSettings) -> dict[str, timedelta]:
    """Each scheduled kind and its period."""
    return {
        DECAY: timedelta(seconds=settings.decay_seconds),
        EXPIRY: timedelta(seconds=settings.expiry_seconds),
        RETENTION: timedelta(seconds=settings.retention_seconds),
        CONSOLIDATION: timedelta(seconds=settings.consolidation_seconds),
        EMBED_PENDING: timedelta(seconds=settings.embed_seconds),
    }


def _after(now: datetime, period: timedelta, doc: Doc | None) -> datetime:
    """The next time on the schedule's own beat that lies ahead."""
    last = now if doc is None else parse_rfc3339(doc["next_run"])
    return last + period * ((now - last) // period + 1)


def _shown(kind: str, period: timedelta, doc: Doc | None) -> Doc:
    told = {name: doc[name] if doc else None for name in ("last_run", "next_run", "outcome")}
    return {"name": kind, "schedule": f"every {int(period.total_seconds())} s", **told}
