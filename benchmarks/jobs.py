"""The background jobs over a large store, and the searches that go on beside them.

    scripts/benchmark jobs --memories 100000 --users 1000

A service that runs the jobs has the store open. Each job is put into its queue as the clock would do it, for every
tenant. Searches of 16 users run one after another: before the job, beside it until it is done, and after it. `CPU s` is
what the process computed beside them: other work on the machine changes it less than `s`.
"""

import argparse
import asyncio
import random
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from app.core.clock import rfc3339
from app.jobs.queue import JOBS, Job
from app.lifespan import COLLECTIONS
from app.memories.repository import new_memory
from app.memories.schemas import MEMORIES, MemoryRecord
from app.storage.protocol import DecayRule
from app.storage.schema import Eq, Not
from app.storage.scope import SYSTEM
from app.storage.sqlite.store import EmbeddedStore
from benchmarks.data import DIM, Shape, build, owner, record, unit
from benchmarks.harness import Row, Section, folder, percentile
from benchmarks.load import Client
from benchmarks.scale import TEXTS, Service, ms, question, served

EXPIRED = 2_000
ALONE = 750
"""Searches without a job beside them, before and after it."""
USERS = 16


async def _unfaded(store: EmbeddedStore) -> None:
    """Every importance as on the first day: the job has to write all that have faded since."""
    await store.apply(MEMORIES, None, DecayRule(rfc3339(datetime.now(UTC)), 1.0, 0.0, 0.0))


async def _expired(store: EmbeddedStore) -> None:
    """A few of each of many users."""
    now = datetime.now(UTC)
    made, past = rfc3339(now - timedelta(days=2)), rfc3339(now - timedelta(days=1))
    about: MemoryRecord = {"memory_type": "fact", "importance": 0.5, "expires_at": past}
    docs = [
        new_memory(
            MEMORIES.as_record({**owner(number), "content": f"gone by now {number}", **about}), {}, made, unique=False
        )
        for number in range(EXPIRED)
    ]
    vectors = np.random.default_rng(5).standard_normal((EXPIRED, DIM))
    await store.load(MEMORIES, [record(doc, unit(vector)) for doc, vector in zip(docs, vectors, strict=True)])


CASES: dict[str, tuple[str, Callable[[EmbeddedStore], Any] | None]] = {
    "decay, all have faded": ("decay", _unfaded),
    "decay, an hour's": ("decay", None),
    f"expiry, {EXPIRED:,} have expired": ("expiry", _expired),
    "expiry, none has": ("expiry", None),
    "retention": ("retention", None),
    "embed_pending": ("embed_pending", None),
    "reflection, no model": ("reflection", None),
}
"""The kind of job, and what is done to the store before."""


async def _measured(directory: Path, service: Service, users: int, kinds: Collection[str]) -> list[Row]:
    chosen = random.Random(9)
    asked = [chosen.randrange(1, users) for _ in range(USERS)]

    def search(many: int) -> list[float]:
        return service.search([question(asked[at % USERS], chosen.randrange(TEXTS)) for at in range(many)]).latencies

    async def beside_jobs() -> list[float]:
        taken = await asyncio.to_thread(search, 20)
        while await store.count(JOBS, SYSTEM, Not(Eq("status", "failed"))):
            taken += await asyncio.to_thread(search, 20)
        return taken

    store, rows = await EmbeddedStore.open(directory, COLLECTIONS, dim=DIM), list[Row]()
    try:
        await beside_jobs()  # those that the start has queued
        for name, (kind, prepare) in CASES.items():
            if kind not in kinds:
                continue
            if prepare is not None:
                await prepare(store)
                search(ALONE // 5)  # copies of what was written are brought up to date
            seconds = f'recalld_job_seconds_sum{{kind="{kind}"}}'
            idle = service.cpu
            alone, earlier, started = search(ALONE), service.metric(seconds), service.cpu
            await store.commit([Job(kind, SYSTEM).enqueue(datetime.now(UTC))])
            beside = await beside_jobs()
            computed = service.cpu - started - len(beside) * (started - idle) / ALONE
            alone += search(ALONE)
            without, with_job = percentile(alone, 95), percentile(beside, 95)
            rows.append(
                {
                    "job": name,
                    "s": round(service.metric(seconds) - earlier, 2),
                    "CPU s": round(computed, 2),
                    "RSS, MiB": service.rss_mib,
                    "searches beside it": len(beside),
                    "p95 alone, ms": ms(without),
                    "p95 beside it, ms": ms(with_job),
                    "×": round(with_job / without, 2),
                    "longest, ms": ms(max(beside)),
                }
            )
    finally:
        await store.close()
    return rows


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memories", type=int, default=100_000)
    parser.add_argument("--users", type=int, default=1_000)
    parser.add_argument("--big", type=int, default=0, help="memories of one more user, as in a store of `scale`")
    parser.add_argument("--kinds", nargs="+", default=[kind for kind, _ in CASES.values()], help="jobs to run")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="use its store, or leave one there")


def run(options: argparse.Namespace) -> Iterator[Section]:
    shape = Shape(options.memories, options.users, options.big)
    with folder() as made, Client() as client:
        directory = Path(options.keep or made) / shape.name
        build(directory, shape)
        with served(client, directory, jobs=True) as service:
            yield Section(f"jobs, {shape}", asyncio.run(_measured(directory, service, shape.users, options.kinds)))
