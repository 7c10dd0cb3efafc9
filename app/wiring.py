"""Lifespan: one AsyncExitStack builds every resource and takes it down again in reverse."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol

from app import tokens
from app.actions.models import ACTIONS
from app.actions.service import ACTION
from app.auth.keys import Keys
from app.auth.models import API_KEYS
from app.auth.rate_limit import RateLimiter
from app.clock import Clock, SystemClock
from app.embedding.embedder import Embedder
from app.embedding.opening import open_embedder
from app.embedding.options import Options
from app.errors import RecalldError
from app.forgetting.decay import DecayJob
from app.forgetting.jobs import ForgettingJobs
from app.idempotency.models import IDEMPOTENCY
from app.jobs.models import JOBS, OPERATIONS, SCHEDULES
from app.jobs.runner import Done, Handler, Run, Runner
from app.jobs.schedule import Schedules, periods
from app.memories.access import AccessRecorder
from app.memories.models import HISTORY, MEMORIES, PENDING
from app.memories.pending import MEMORY, PendingEmbeddings
from app.metrics import parts
from app.profiles.models import AGENTS, USERS
from app.profiles.settings import StoredAgentSettings
from app.sessions.models import MESSAGES, SESSIONS
from app.settings import Settings
from app.state import Resources, State
from app.storage.collection import Collection, Store
from app.storage.opening import Where
from app.storage.opening import open_store as open_engine
from app.storage.scope import SYSTEM
from app.storage.transfer import MovableStore
from app.tasks.models import CHECKPOINTS, TASKS

COLLECTIONS: tuple[Collection, ...] = (
    API_KEYS,
    IDEMPOTENCY,
    SESSIONS,
    MESSAGES,
    MEMORIES,
    HISTORY,
    PENDING,
    TASKS,
    CHECKPOINTS,
    ACTIONS,
    USERS,
    AGENTS,
    JOBS,
    SCHEDULES,
    OPERATIONS,
)

WARM_AFTER_SECONDS = 0.5
RESTART_SECONDS = 1.0
MAX_RESTART_SECONDS = 60.0

log = logging.getLogger(__name__)


class StartRefused(RecalldError):
    """The service will not start like this."""


class Openers(Protocol):
    """The seams at which tests put other parts."""

    async def store(self, settings: Settings, dim: int) -> Store: ...

    async def embedder(self, settings: Settings) -> Embedder: ...

    def clock(self) -> Clock: ...


class RealParts:
    """What the service runs on."""

    async def store(self, settings: Settings, dim: int) -> Store:
        return await open_store(settings, dim)

    async def embedder(self, settings: Settings) -> Embedder:
        chosen = settings.embedding
        return await open_embedder(
            chosen.model,
            threads=chosen.threads,
            batch_tokens=chosen.batch_tokens,
            query_cache=chosen.query_cache,
            observe_batch=_observe_batch,
            options=Options.of(chosen),
        )

    def clock(self) -> Clock:
        return SystemClock()


async def open_store(settings: Settings, dim: int, *, elsewhere: str | None = None) -> MovableStore:
    """The store of the settings; or the one `elsewhere` names, in place of RECALLD_STORE."""
    return await open_engine(where(settings, elsewhere), COLLECTIONS, dim=dim, observe_commit=_observe_commit)


def where(settings: Settings, elsewhere: str | None = None) -> Where:
    return Where(
        store=elsewhere or settings.store.get_secret_value(),
        directory=settings.data_dir,
        database=settings.mongodb.database,
        exact_up_to=settings.mongodb.exact_up_to,
        deadline_seconds=settings.mongodb.deadline_seconds,
        busy_timeout_ms=settings.busy_timeout_ms,
        cache_bytes=settings.cache_bytes,
    )


@asynccontextmanager
async def lifespan(settings: Settings, openers: Openers) -> AsyncIterator[State]:
    """Raises StartRefused, or what a part says that cannot be opened."""
    async with AsyncExitStack() as stack:
        try:
            resources = await _build(stack, settings, openers)
        except RecalldError as fault:
            log.critical(fault.detail)
            raise
        warming = asyncio.create_task(_warm())
        yield {"resources": resources}
        warming.cancel()


async def _warm() -> None:
    """Once the service is ready; who counts tokens before, waits for the vocabulary."""
    await asyncio.sleep(WARM_AFTER_SECONDS)
    await asyncio.to_thread(tokens.warm)


async def _build(stack: AsyncExitStack, settings: Settings, openers: Openers) -> Resources:
    embedder = await openers.embedder(settings)
    stack.push_async_callback(embedder.close)
    store = await openers.store(settings, embedder.dim)
    stack.push_async_callback(store.close)
    clock = openers.clock()
    await _refuse_open_door(settings, Keys(store, clock))
    agents = StoredAgentSettings(store)
    accesses = AccessRecorder(store, agents, clock)
    stack.push_async_callback(accesses.flush)
    await stack.enter_async_context(_running("accesses", accesses.run))
    if settings.jobs.enabled:
        await stack.enter_async_context(_running("jobs", job_runner(settings, store, embedder, clock).run))
    return Resources(
        settings, store, embedder, clock, accesses, RateLimiter(settings.limits.requests_per_second), agents
    )


def job_runner(settings: Settings, store: Store, embedder: Embedder, clock: Clock) -> Runner:
    """Every kind of job and what runs it."""
    forgetting = ForgettingJobs(store, embedder, clock, settings.retention)
    pending = PendingEmbeddings(store, embedder, (MEMORY, ACTION))

    async def embed_pending(run: Run) -> Done:
        if run.payload.get("dry_run"):
            return Done({"pending": await store.count(PENDING, SYSTEM)})
        return Done({"embedded": await pending.embed_all()})

    handlers: dict[str, Handler] = {
        "decay": DecayJob(store, clock).handle,
        "expiry": forgetting.expire,
        "retention": forgetting.retain,
        "forget": forgetting.forget,
        "undo": forgetting.undo,
        "embed_pending": embed_pending,
    }
    return Runner(store, clock, handlers, Schedules(store, clock, periods(settings.jobs)))


async def _refuse_open_door(settings: Settings, keys: Keys) -> None:
    if settings.auth == "off":
        log.warning("authentication is off: everybody who reaches this address is tenant default")
        return
    if await keys.any_made():
        return
    if not settings.loopback:
        raise StartRefused(
            f"No API key was ever made, so {settings.host} is not served: make one with `recalld keys create`, "
            "serve a loopback address, or set RECALLD_AUTH=off on purpose."
        )
    log.warning("no API key was ever made: this machine is served as tenant default, without authentication")


@asynccontextmanager
async def _running(name: str, run: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    task = asyncio.create_task(_supervised(name, run), name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _supervised(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """A background task that fails is started again, ever more slowly."""
    pause = RESTART_SECONDS
    while True:
        try:
            await run()
        except Exception:
            log.exception("background task failed", extra={"task": name})
        await asyncio.sleep(pause)
        pause = min(2 * pause, MAX_RESTART_SECONDS)


def _observe_batch(texts: int, seconds: float) -> None:
    parts.EMBEDDING_BATCH.observe(texts)
    parts.EMBEDDING_SECONDS.observe(seconds)


def _observe_commit(writes: int, seconds: float) -> None:
    parts.COMMIT_WRITES.observe(writes)
    parts.COMMIT_SECONDS.observe(seconds)
