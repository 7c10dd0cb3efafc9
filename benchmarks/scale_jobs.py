"""The background jobs of `benchmark scale`, and the searches beside them.

Jobs are put into the queue of a store that a service has open, as the clock would: they work on every tenant.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from app.core.clock import rfc3339
from app.jobs.models import JOBS
from app.jobs.queue import Job
from app.lifespan import COLLECTIONS
from app.memories.models import MEMORIES
from app.memories.records import new_memory
from app.storage.protocol import DecayRule
from app.storage.schema import Eq, Not
from app.storage.search import SYSTEM
from app.storage.sqlite.store import EmbeddedStore
from benchmarks.data import DIM, owner
from benchmarks.harness import Row, percentile
from benchmarks.load import Client
from benchmarks.scale_data import Size, record
from benchmarks.scale_service import TEXTS, Service, ms, question, served

EXPIRED = 2_000
ALONE = 750
USERS = 16
"""Searches without a job beside them, before and after it."""


@dataclass(frozen=True, slots=True)
class Case:
    """A job, and what is done to the store before."""

    name: str
    kind: str
    before: Callable[[EmbeddedStore], Any] | None = None


async def _unfaded(store: EmbeddedStore) -> None:
    """Every importance as on the first day: the job has to write all that have faded since."""
    await store.apply(MEMORIES, None, DecayRule(rfc3339(datetime.now(UTC)), 1.0, 0.0, 0.0))


async def _expired(store: EmbeddedStore) -> None:
    """A few of each of many users."""
    now = datetime.now(UTC)
    made, past = rfc3339(now - timedelta(days=2)), rfc3339(now - timedelta(days=1))
    records = []
    for number in range(EXPIRED):
        fields = {
            **owner(number),
            "content": f"gone by now {number}",
            "memory_type": "fact",
            "importance": 0.5,
            "expires_at": past,
        }
        vector = np.zeros(DIM, np.float32)
        vector[number % DIM] = 1
        records.append(record(new_memory(fields, {}, made, unique=False), vector))
    await store.load(MEMORIES, records)


CASES = (
    Case("decay, all have faded", "decay", _unfaded),
    Case("decay, an hour's", "decay"),
    Case(f"expiry, {EXPIRED:,} have expired", "expiry", _expired),
    Case("expiry, none has", "expiry"),
    Case("retention", "retention"),
    Case("embed_pending", "embed_pending"),
)


class Beside:
    """A service whose jobs run, and a few of its users."""

    def __init__(self, service: Service, size: Size) -> None:
        self._service, self._random = service, random.Random(9)
        self._users = [self._random.randrange(1, size.users) for _ in range(USERS)]

    def search(self, many: int) -> list[float]:
        """Seconds of so many searches, one after another."""
        asked = [question(self._users[at % USERS], self._random.randrange(TEXTS)) for at in range(many)]
        return self._service.search(asked).latencies

    def job_seconds(self, kind: str) -> float:
        """Seconds that jobs of the kind have run so far."""
        return self._service.metric(f'recalld_job_seconds_sum{{kind="{kind}"}}')


def jobs(client: Client, directory: Path, size: Size) -> list[Row]:
    with served(client, directory, jobs=True) as service:
        return asyncio.run(_all(directory, Beside(service, size)))


async def _all(directory: Path, beside: Beside) -> list[Row]:
    store = await EmbeddedStore.open(directory, COLLECTIONS, dim=DIM)
    try:
        while await _waiting(store):  # those that the start has queued
            await asyncio.to_thread(beside.search, 20)
        return [await _one(store, case, beside) for case in CASES]
    finally:
        await store.close()


async def _one(store: EmbeddedStore, case: Case, service: Beside) -> Row:
    if case.before is not None:
        await case.before(store)
        service.search(ALONE // 5)  # copies of what was written are brought up to date
    alone, earlier = service.search(ALONE), service.job_seconds(case.kind)
    await store.commit([Job(case.kind, SYSTEM).enqueue(datetime.now(UTC))])
    beside: list[float] = []
    while await _waiting(store):
        beside += await asyncio.to_thread(service.search, 20)
    alone += service.search(ALONE)
    return {
        "job": case.name,
        "s": round(service.job_seconds(case.kind) - earlier, 2),
        "searches beside it": len(beside),
        "p95 alone, ms": ms(percentile(alone, 95)),
        "p95 beside it, ms": ms(percentile(beside, 95)),
        "longest, ms": ms(max(beside)),
    }


async def _waiting(store: EmbeddedStore) -> int:
    return await store.count(JOBS, SYSTEM, Not(Eq("status", "failed")))
