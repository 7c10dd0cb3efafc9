"""Gauges of what is stored and what waits, counted when metrics are asked for: a service that nobody watches counts
nothing. An answer is kept for `KEEP_SECONDS`, so that many who ask cost no more than one.

The numbers come from the counts that each commit keeps up and from the first entry of an index, so they cost the same
however much is stored; with many tenants the sum over them is what takes time.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from app import VERSION, metrics
from app.core import tracing, work
from app.core.clock import Clock, parse_rfc3339
from app.errors import RecalldError
from app.jobs.models import LANES, ORDINARY_LANE
from app.jobs.queue import Queue
from app.memories.embedding import PENDING
from app.storage.changes import Usage
from app.storage.protocol import Store
from app.storage.schema import Collection
from app.storage.scope import SYSTEM

KEEP_SECONDS = 15
MOST_SHARE = 0.01
"""Of the time, at most this share is spent on counting: what takes 2 s is kept for 200 s."""
LONGEST_SECONDS = 60.0
"""A count that takes longer is given up."""
WAIT_SECONDS = 2.0
"""How long somebody who asks for metrics waits for a count. It goes on, and the earlier numbers stay until its end."""

log = logging.getLogger(__name__)


class StoreGauges:
    """Keeps the gauges up."""

    def __init__(self, store: Store, clock: Clock, collections: Sequence[Collection]) -> None:
        self._store, self._clock = store, clock
        self._counted = [collection.name for collection in collections if collection.counted]
        self._queue = Queue(store, clock)
        self._counting: asyncio.Task[None] | None = None
        self._fresh_until: datetime | None = None

    async def refresh(self) -> None:
        """Counts anew, unless the last count still stands. Raises nothing: if the store does not answer, the numbers of
        before stay."""
        is_outdated = self._fresh_until is None or self._clock.now() >= self._fresh_until
        if self._counting is None or (self._counting.done() and is_outdated):
            self._counting = work.begin(self._safely(), "gauges")
        await asyncio.wait([self._counting], timeout=WAIT_SECONDS)

    async def run(self) -> None:
        """Counts again and again, for metrics that are sent and not asked for."""
        while True:
            await self.refresh()
            await asyncio.sleep(KEEP_SECONDS)

    async def close(self) -> None:
        """Ends a count under way."""
        await work.end(self._counting)

    async def _safely(self) -> None:
        started = time.perf_counter()
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                await self._count()
        except (RecalldError, TimeoutError) as error:
            log.warning("what is stored was not counted", extra={"error": getattr(error, "detail", "it took too long")})
        except Exception:
            log.exception("what is stored was not counted")
        seconds = max(KEEP_SECONDS, (time.perf_counter() - started) / MOST_SHARE)
        self._fresh_until = self._clock.now() + timedelta(seconds=seconds)

    async def _count(self) -> None:
        totals = await self._store.accounting.totals()
        metrics.TENANTS.set(totals.tenants)
        for name in self._counted:
            usage = totals.collections.get(name, Usage())
            metrics.STORED_RECORDS.labels(name).set(usage.records)
            metrics.STORED_BYTES.labels(name).set(usage.bytes)
        metrics.JOBS_QUEUED.set(await self._queue.waiting())
        for lane in LANES:
            job = await self._queue.oldest_due(lane)
            metrics.JOB_AGE.labels(lane or ORDINARY_LANE).set(self._age(None if job is None else job["run_at"]))
        metrics.PENDING.set(await self._store.count(PENDING, SYSTEM))
        oldest = await self._store.find(PENDING, SYSTEM, order="asc", limit=1)
        metrics.PENDING_AGE.set(self._age(oldest[0]["created_at"] if oldest else None))

    def _age(self, time: str | None) -> float:
        """Returns how many seconds ago a stored time was; 0 if there is none."""
        return 0.0 if time is None else max(0.0, (self._clock.now() - parse_rfc3339(time)).total_seconds())


@asynccontextmanager
async def gauging(
    store: Store, model: str, clock: Clock, collections: Sequence[Collection]
) -> AsyncIterator[StoreGauges]:
    """Yields the gauges of a store, and says in the metrics what runs. Where metrics are sent, they count unasked."""
    metrics.tell_build(VERSION, store.name, model)
    gauges = StoreGauges(store, clock, collections)
    try:
        if tracing.tracing():
            async with work.running("gauges", gauges.run):
                yield gauges
        else:
            yield gauges
    finally:
        await gauges.close()
