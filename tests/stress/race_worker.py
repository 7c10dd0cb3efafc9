"""A worker whose lease is a second, as a process of its own: `python -m tests.stress.race_worker DIRECTORY [stops]`.

One that `stops` does so by itself (SIGSTOP), in the middle of a job, past its lease.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from app.core.clock import SystemClock, rfc3339
from app.core.tuning import Tuning
from app.jobs import runner as running
from app.jobs.queue import JOBS, SCHEDULES
from app.jobs.runner import Done, Run, Runner, Schedules
from app.metrics import JOB_RUNS
from app.settings import Settings
from app.storage.changes import Change, Committed, Insert
from app.storage.factory import EMBEDDED, open_store, where_of
from app.storage.protocol import Store
from app.storage.schema import Collection, Eq
from app.storage.scope import SYSTEM
from tests.support.stores import Wrapped

EFFECTS = Collection("effects", "effect_id", {"job_id": "text"}, indexes=(("job_id",),))
KINDS, LEASE = [f"tick-{number}" for number in range(10)], timedelta(seconds=1)
PERIODS = {True: timedelta(seconds=0.2), False: timedelta(seconds=2)}
"""On the embedded store, and elsewhere. A job that lapsed is taken when no other is due: there must be such moments."""
STOPS_AT = 10
PATIENCE_SECONDS = 30
"""Of a store call: what waits here waits for its turn, and nobody is to be refused."""


def period() -> timedelta:
    return PERIODS[Settings().store.get_secret_value() == EMBEDDED]


class OneByOne(Wrapped):
    """A store that makes one commit at a time. Who holds `turn` knows that none is under way."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.turn = asyncio.Lock()

    async def commit(self, changes: Sequence[Change]) -> Committed:
        async with self.turn:
            return await self._store.commit(changes)


async def opened(directory: Path) -> Store:
    settings = Settings(data_dir=directory)
    mongodb = settings.mongodb.model_copy(update={"deadline_seconds": PATIENCE_SECONDS})
    patient = settings.model_copy(update={"mongodb": mongodb})
    return await open_store(
        where_of(patient), (JOBS, SCHEDULES, EFFECTS), dim=1, tuning=Tuning(busy_timeout_ms=1000 * PATIENCE_SECONDS)
    )


async def worker(directory: Path, *, stops: bool) -> None:
    """One process; prints how many leases it lost."""
    running.POLL_SECONDS = 0.01
    store = OneByOne(await opened(directory))
    ran = 0

    async def tick(run: Run) -> Done:
        nonlocal ran
        ran += 1
        job_id = run.lease.doc["job_id"]
        is_new = not await run.store.count(EFFECTS, SYSTEM, Eq("job_id", job_id))  # one that was cut short goes on
        if stops and ran == STOPS_AT:
            async with store.turn:  # a process that stands still in a commit holds SQLite's lock: all others wait, too
                os.kill(os.getpid(), signal.SIGSTOP)  # between looking and writing, where it hurts
        if is_new:
            await run.commit([Insert(EFFECTS, _effect(run, job_id))])
        return Done({})

    schedules = Schedules(store, SystemClock(), dict.fromkeys(KINDS, period()))
    task = asyncio.create_task(Runner(store, SystemClock(), dict.fromkeys(KINDS, tick), schedules, LEASE).run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with suppress(asyncio.CancelledError):
        await task
    await store.close()
    lost = sum(JOB_RUNS.labels(kind, "lease_lost")._value.get() for kind in KINDS)
    print(json.dumps({"ran": ran, "lease_lost": int(lost)}))


def _effect(run: Run, job_id: str) -> dict[str, Any]:
    return {
        "tenant_id": SYSTEM,
        "effect_id": uuid4().hex,
        "job_id": job_id,
        "kind": run.lease.doc["kind"],
        "ticked_at": run.lease.doc["created_at"],
        "pid": os.getpid(),
        "created_at": rfc3339(run.clock.now()),
    }


if __name__ == "__main__":
    asyncio.run(worker(Path(sys.argv[1]), stops=len(sys.argv) > 2))
