"""What a tenant holds and how the service does: counts, growth, what was recalled lately, operations, latency; and the
gauges of the whole store.

Counting reads every record's columns, so an answer is kept for `KEEP_SECONDS`.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Annotated, TypeVar, cast

from pydantic import Field
from typing_extensions import TypedDict

from app import VERSION, metrics
from app.actions.schemas import ACTIONS
from app.core import tracing, work
from app.core.clock import Clock, parse_rfc3339, rfc3339
from app.core.schemas import Count, shown
from app.errors import RecalldError
from app.facts.profile import USERS
from app.facts.schemas import FACTS
from app.jobs.queue import LANES, OPERATIONS, ORDINARY_LANE, Queue
from app.memories.agents import AGENTS
from app.memories.repository import PENDING
from app.memories.schemas import MEMORIES, MemoryType
from app.procedures.schemas import PROCEDURES
from app.resources import AccessLog
from app.sessions.schemas import MESSAGES, SESSIONS
from app.storage.changes import Usage
from app.storage.protocol import Store, Tallied
from app.storage.repository import Repository
from app.storage.schema import EVERYTHING, Absent, Collection, R, Range
from app.storage.scope import SYSTEM, Scope
from app.tasks.schemas import TASKS

T = TypeVar("T")

KEEP_SECONDS = 10
DAYS = 30
RECALLED = 10
ROUTES = 12
KINDS: Mapping[str, Collection] = {
    "sessions": SESSIONS,
    "facts": FACTS,
    "actions": ACTIONS,
    "tasks": TASKS,
    "procedures": PROCEDURES,
}
GROWING: Mapping[str, Collection] = {"memories": MEMORIES, "sessions": SESSIONS, "facts": FACTS, "actions": ACTIONS}


@shown
class RecordCounts(TypedDict):
    """How many records there are that the key sees, those included that have expired and are not purged yet."""

    memories: Count
    messages: Count
    sessions: Count
    facts: Annotated[Count, Field(description="Statements of all times, those that hold no longer included.")]
    actions: Count
    tasks: Count
    procedures: Count
    users: Annotated[Count, Field(description="People who own a record or have a profile.")]
    agents: Annotated[Count, Field(description="Agents that own a record or are registered.")]


@shown
class DayCounts(TypedDict):
    """Records that were created on a UTC day and are still there."""

    day: Annotated[str, Field(examples=["2026-06-01"])]
    memories: Count
    sessions: Count
    facts: Count
    actions: Count


@shown
class RecalledMemory(TypedDict):
    """A memory that a search or a context returned lately."""

    memory_id: str
    memory_type: MemoryType
    content: Annotated[str, Field(description="The first 200 characters.")]
    agent_id: str | None
    user_id: str | None
    recalled_at: str


@shown
class RouteLatency(TypedDict):
    """How fast a route answers, since the process started. Quantiles are estimated from a histogram."""

    method: str
    route: str
    requests: Count
    p50_ms: float
    p95_ms: float


@shown
class StoreStats(TypedDict, total=False):
    """What a tenant holds and how the service does."""

    counts: RecordCounts
    memories_by_type: dict[str, Count]
    memories_by_status: dict[str, Count]
    operations_by_status: dict[str, Count]
    growth: Annotated[
        list[DayCounts], Field(description=f"The last {DAYS} days, the oldest first; days without any included.")
    ]
    recalled: Annotated[
        list[RecalledMemory],
        Field(
            description=f"At most {RECALLED}, the latest first, of those that this process recalled since it started."
        ),
    ]
    latency: Annotated[
        list[RouteLatency] | None,
        Field(
            description="Of the routes with the most requests since the service started, of all tenants. Null for a "
            "key that may not read `/metrics`."
        ),
    ]
    counted_at: Annotated[str, Field(description=f"An answer is kept for {KEEP_SECONDS} seconds.")]


class StatsService:
    """Counts within a caller's scope. `counts` holds those of all scopes for as long as they may be shown."""

    def __init__(
        self,
        store: Store,
        scope: Scope,
        clock: Clock,
        accesses: AccessLog,
        counts: dict[Scope, "asyncio.Task[StoreStats]"],
    ) -> None:
        self._store, self._scope, self._clock, self._accesses, self._counts = store, scope, clock, accesses, counts

    async def stats(self, *, with_latency: bool) -> StoreStats:
        """Returns the figures. Raises StoreUnavailable."""
        latency = request_latency() if with_latency else None
        recent = self._accesses.recent(self._scope.tenant)
        memories = await self._records(MEMORIES).get_many([memory_id for memory_id, _ in recent])
        recalled = [(memories[memory_id], at) for memory_id, at in recent if memory_id in memories]
        return await self._counted() | {
            "recalled": [
                {
                    "memory_id": memory["memory_id"],
                    "memory_type": memory["memory_type"],
                    "agent_id": memory["agent_id"],
                    "user_id": memory["user_id"],
                    "content": memory["content"][:200],
                    "recalled_at": rfc3339(at),
                }
                for memory, at in recalled[:RECALLED]
            ],
            "latency": latency,
        }

    async def _counted(self) -> StoreStats:
        """Returns the counts, made now or by an earlier call. Calls at the same time share one count."""
        key = Scope(self._scope.tenant, self._scope.agents, self._scope.users)
        task = self._counts.get(key)
        if task is None or (task.done() and self._outdated(task)):
            task = self._counts[key] = asyncio.create_task(self._count())
            for old in [scope for scope, count in self._counts.items() if count.done() and self._outdated(count)]:
                del self._counts[old]
        return await asyncio.shield(task)

    def _outdated(self, task: "asyncio.Task[StoreStats]") -> bool:
        if task.cancelled() or task.exception() is not None:
            return True
        return bool(task.result()["counted_at"] <= rfc3339(self._clock.now() - timedelta(seconds=KEEP_SECONDS)))

    async def _count(self) -> StoreStats:
        now = self._clock.now()
        memories, operations = self._records(MEMORIES), self._records(OPERATIONS)
        days = [(now - timedelta(days=back)).date().isoformat() for back in reversed(range(DAYS))]
        since = Range("created_at", ge=f"{days[0]}T00:00:00.000Z")
        # {"facts": {("support", "ada"): 7, (None, "ben"): 1}, …}, and those who have only a profile or are registered
        owning = {"memories": MEMORIES, **KINDS, "users": USERS, "agents": AGENTS}
        by_type_and_status, by_status, messages, owned, grown = await asyncio.gather(
            memories.tally(("memory_type", "status"), EVERYTHING),
            operations.tally(("status",), EVERYTHING),
            self._records(MESSAGES).count(Absent("deleted_at")),
            self._ask_each(owning, lambda records: records.tally(("agent_id", "user_id"), EVERYTHING)),
            self._ask_each(GROWING, lambda records: records.tally(("created_at",), since, first=10)),
        )
        counts = {
            "memories": sum(by_type_and_status.values()),
            "messages": messages,
            **{kind: sum(owned[kind].values()) for kind in KINDS},
            "users": len({user for tallied in owned.values() for _, user in tallied} - {None}),
            "agents": len({agent for tallied in owned.values() for agent, _ in tallied} - {None}),
        }
        growth = [{"day": day} | {kind: grown[kind].get((day,), 0) for kind in GROWING} for day in days]
        return {
            "counts": cast(RecordCounts, counts),
            "memories_by_type": by_value(by_type_and_status, 0),
            "memories_by_status": by_value(by_type_and_status, 1),
            "operations_by_status": by_value(by_status, 0),
            "growth": cast(list[DayCounts], growth),
            "counted_at": rfc3339(now),
        }

    def _records(self, collection: Collection[R]) -> Repository[R]:
        return Repository(self._store, self._scope, collection)

    async def _ask_each(
        self, kinds: Mapping[str, Collection], ask: Callable[[Repository], Awaitable[T]]
    ) -> dict[str, T]:
        answers = await asyncio.gather(*(ask(self._records(collection)) for collection in kinds.values()))
        return dict(zip(kinds, answers, strict=True))


def by_value(tallied: Tallied, place: int) -> dict[str, int]:
    """Returns the numbers by the values of one of the fields, in order of the values: `{"fact": 2}` of
    `{("fact", "active"): 1, ("fact", "archived"): 1}` at place 0. Absent values are left out."""
    numbers: Counter[str] = Counter()
    for values, number in tallied.items():
        if values[place] is not None:
            numbers[str(values[place])] += number
    return dict(sorted(numbers.items()))


def request_latency() -> list[RouteLatency]:
    """Returns the latency of the routes under `/v1` with the most requests."""
    buckets: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for metric in metrics.collected(metrics.REQUEST_SECONDS):
        for sample in metric.samples:
            route = sample.labels.get("route", "")
            if sample.name.endswith("_bucket") and route.startswith("/v1"):
                bound = float(sample.labels["le"])
                buckets.setdefault((sample.labels["method"], route), []).append((bound, sample.value))
    rows = list[RouteLatency]()
    for (method, route), bounds in buckets.items():
        bounds.sort()
        p50, p95 = quantile(bounds, 0.5), quantile(bounds, 0.95)
        requests = int(bounds[-1][1])
        rows.append({"method": method, "route": route, "requests": requests, "p50_ms": p50, "p95_ms": p95})
    return sorted(rows, key=lambda row: -row["requests"])[:ROUTES]


def quantile(buckets: list[tuple[float, float]], share: float) -> float:
    """Returns a quantile in milliseconds. `buckets`: upper bounds in seconds, ascending and the last one infinite, each
    with the number of observations up to it.

    Inside a bucket observations count as evenly spread, as in Prometheus; beyond the last bound it is that bound.
    """
    wanted, low, below = share * buckets[-1][1], 0.0, 0.0
    for bound, count in buckets:
        if count >= wanted and count > below:
            high = low if bound == float("inf") else bound
            return round(1000 * (low + (high - low) * (wanted - below) / (count - below)), 2)
        low, below = bound, count
    return 0.0


# --- Gauges of what is stored and what waits, of all tenants ----------------------------------------------------------
# They are counted when metrics are asked for, and an answer is kept for `GAUGE_SECONDS`, so that many who ask cost no
# more than one. The numbers come from the counts that each commit keeps up and from the first entry of an index: they
# cost the same however much is stored.

GAUGE_SECONDS = 15
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
            await asyncio.sleep(GAUGE_SECONDS)

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
        seconds = max(GAUGE_SECONDS, (time.perf_counter() - started) / MOST_SHARE)
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
