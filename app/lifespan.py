"""The lifespan: one AsyncExitStack builds every resource and closes it again in reverse order."""

import asyncio
import importlib
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from urllib.parse import urlsplit

from app import metrics
from app.actions.roll_ups import ROLL_UPS
from app.actions.schemas import ACTION_DAYS, ACTIONS
from app.actions.service import ACTION
from app.audit.tombstones import ErasureKey
from app.audit.trail import AUDIT, ERASED
from app.auth.dependencies import KeylessAccess, KeysMade
from app.auth.keys import API_KEYS, Keys
from app.core import prompt_text, work, workers
from app.core.clock import Clock, SystemClock
from app.core.limits import CostLimiter, RateLimiter, WrongKeyLimiter
from app.core.tuning import USUAL, Tuning
from app.documents.jobs import DocumentJobs
from app.documents.schemas import DOCUMENTS, PARTS
from app.embedding.embedder import Embedder
from app.embedding.factory import open_embedder
from app.embedding.model import ExtraOptions
from app.embedding.onnx_reranker import open_reranker, second_stage
from app.embedding.reranking import Reranker, RerankerInvalid
from app.errors import RecalldError
from app.facts.alias_service import ALIAS_UNDO
from app.facts.aliases import FACT_COLLECTIONS, DeclaredNames
from app.facts.profile import USERS
from app.facts.service import FACT
from app.findings.replacing import what_holds_first
from app.findings.schemas import FINDINGS
from app.jobs import queue as kinds
from app.jobs.runner import JobHandler, Look, Runner, Schedules, periods
from app.learning.consolidation_job import TidyingJobs
from app.learning.dependencies import LLM_DAYS, Tools
from app.learning.derivations import DERIVATIONS, DerivationUndo
from app.learning.episodes import day_teller
from app.learning.fact_merge import FactMergeJob
from app.learning.jobs import ConversationJobs
from app.learning.rederivation import Rederivation
from app.learning.service import ExtractionJobs
from app.llm.base import LLM, open_llm
from app.memories.access_log import AccessRecorder
from app.memories.agents import AGENTS
from app.memories.reembed import MOVES, EmbeddingJob, warn_of_other_models
from app.memories.repository import MEMORY, PENDING, Embeddable
from app.memories.schemas import FEEDBACK, HISTORY, MEMORIES, STATEMENTS
from app.operations.stats import gauging
from app.procedures.schemas import PROCEDURE_HISTORY, PROCEDURES
from app.procedures.service import PROCEDURE
from app.reflection.judge import JUDGED_PAIRS
from app.reflection.procedure_review import ProcedureReviews
from app.reflection.reflection_job import ReflectionJobs
from app.resources import Resources, State, TokenReader
from app.retention.erasure import ERASURE_NOTES, ErasureJobs
from app.retention.service import WORTH_WRITING, DecayJob, ForgettingJobs
from app.sessions.schemas import MESSAGES, SESSIONS
from app.settings import LLMSettings, Settings
from app.storage.change_log import LogOptions
from app.storage.factory import open_store as open_engine
from app.storage.factory import where_of
from app.storage.protocol import Store
from app.storage.schema import Collection
from app.storage.transfer import MovableStore
from app.tasks.schemas import CHECKPOINTS, TASKS
from app.writes.executor import IDEMPOTENCY

COLLECTIONS: tuple[Collection, ...] = (
    API_KEYS,
    IDEMPOTENCY,
    SESSIONS,
    MESSAGES,
    MEMORIES,
    HISTORY,
    FEEDBACK,
    STATEMENTS,
    PENDING,
    DOCUMENTS,
    PARTS,
    MOVES,
    TASKS,
    CHECKPOINTS,
    ACTIONS,
    ROLL_UPS,
    ACTION_DAYS,
    *FACT_COLLECTIONS,
    PROCEDURES,
    PROCEDURE_HISTORY,
    USERS,
    AGENTS,
    kinds.JOBS,
    kinds.SCHEDULES,
    kinds.OPERATIONS,
    DERIVATIONS,
    FINDINGS,
    JUDGED_PAIRS,
    LLM_DAYS,
    AUDIT,
    ERASED,
    ERASURE_NOTES,
)

EMBEDDABLE: tuple[Embeddable, ...] = (MEMORY, ACTION, FACT, PROCEDURE)
"""All kinds of record that are found by meaning."""

WARM_AFTER_SECONDS = 0.5

log = logging.getLogger(__name__)


class StartRefused(RecalldError):
    """The configuration does not allow the service to start."""


class RealParts:
    """Opens the resources that the settings name. Tests replace some of its methods."""

    tuning = USUAL

    async def store(self, settings: Settings, dim: int) -> Store:
        """Opens the store for vectors of dimension `dim`."""
        return await open_store(settings, dim, clock=self.clock(), tuning=self.tuning)

    async def embedder(self, settings: Settings) -> Embedder:
        chosen = settings.embedding
        return await open_embedder(
            chosen.model,
            observe_batch=metrics.observe_batch,
            options=ExtraOptions.of(chosen, self.tuning.embedding_seconds),
        )

    async def reranker(self, settings: Settings) -> Reranker | None:
        """Opens the reranker, or returns None if none is configured."""
        try:
            return await open_reranker(settings)
        except RerankerInvalid as error:
            raise StartRefused(str(error)) from error

    def llm(self, settings: Settings) -> LLM | None:
        """Returns the language model's client, or None if none is configured."""
        return open_llm(settings.llm, metrics.observe_llm)

    def clock(self) -> Clock:
        return SystemClock()


async def open_store(
    settings: Settings,
    dim: int,
    *,
    elsewhere: str | None = None,
    existing: bool = False,
    clock: Clock | None = None,
    tuning: Tuning = USUAL,
) -> MovableStore:
    """Opens the store of the settings, or the one that `elsewhere` names in place of RECALLD_STORE.

    Raises StoreUnavailable, with `existing` also if the store does not exist.
    """
    where, observe = where_of(settings, elsewhere), metrics.observe_commit
    log = LogOptions(settings.changes.retention_hours, clock or SystemClock())
    return await open_engine(
        where,
        COLLECTIONS,
        dim=dim,
        existing=existing,
        observe_commit=observe,
        observe_fallback=metrics.observe_fallback,
        log=log,
        tuning=tuning,
    )


@asynccontextmanager
async def found_store(
    settings: Settings, parts: RealParts, dim: int, clock: Clock, *, existing: bool = False
) -> AsyncIterator[tuple[Store, KeylessAccess]]:
    """Opens the store and closes it at the end. Yields it with the rule for requests without a key.

    Raises StartRefused if API keys were made for this store and it contains none, unless authentication is off. With
    `existing` it makes no store and raises StoreUnavailable where there is none.
    """
    where = where_of(settings)
    marker, new = keys_made(settings), where.missing
    if settings.auth == "on" and new and marker.names_store():
        raise StartRefused(marker.way_out())  # before opening, which would create an empty store
    if existing:
        where.require_existing()
    store = await parts.store(settings, dim)
    if new:
        log.info("a new store was made", extra={"directory": str(settings.data_dir.absolute())})
    try:
        keyless = KeylessAccess(Keys(store, clock), marker)
        if await keyless.lost():
            if settings.auth == "on":
                raise StartRefused(marker.way_out())
            log.warning(marker.way_out())
        yield store, keyless
    finally:
        await store.close()


def keys_made(settings: Settings) -> KeysMade:
    """Returns the file that says whether API keys were made for the store of the settings."""
    return KeysMade(settings.data_dir, where_of(settings).name)


@asynccontextmanager
async def lifespan(settings: Settings, parts: RealParts) -> AsyncIterator[State]:
    """Yields the resources. Raises StartRefused, or the error of a resource that cannot be opened."""
    async with AsyncExitStack() as stack:
        resources = await _build(stack, settings, parts)
        beside = [asyncio.create_task(_warm()), asyncio.create_task(_warn_of_no_model(settings.llm))]
        yield {"resources": resources}
        for task in beside:
            task.cancel()


async def _warm() -> None:
    """Loads the vocabulary once the service is ready, then returns memory that loading freed."""
    await asyncio.sleep(WARM_AFTER_SECONDS)
    await asyncio.to_thread(prompt_text.warm)
    await asyncio.to_thread(work.trim)


async def _warn_of_no_model(asked: LLMSettings) -> None:
    """Warns once, of all workers, where a language model was meant and cannot be asked."""
    if (service := workers.current()) is not None and service.number != 1:
        return
    if not asked.base_url and "model" in asked.model_fields_set:
        log.warning("RECALLD_LLM_MODEL names a language model and RECALLD_LLM_BASE_URL no server: nothing is learned")
    if asked.base_url:
        from app.llm.client import silence  # noqa: PLC0415 (its client takes half a second to import)

        if (why := await silence(asked)) is not None:
            server = urlsplit(asked.base_url).hostname
            log.warning("the language model at %s %s: nothing is learned meanwhile", server, why)


async def _build(stack: AsyncExitStack, settings: Settings, parts: RealParts) -> Resources:
    embedder = await parts.embedder(settings)
    stack.push_async_callback(embedder.close)
    reranker = await parts.reranker(settings)
    stage = None if reranker is None else second_stage(reranker, settings, parts.tuning)
    if stage is not None:
        stack.push_async_callback(stage.close)
    clock = parts.clock()
    store, keyless = await stack.enter_async_context(found_store(settings, parts, embedder.dim, clock))
    llm = parts.llm(settings)
    if llm is not None:
        stack.push_async_callback(llm.close)
    _refuse_open_door(settings, keyless)
    tokens = _token_reader(settings, clock)
    if tokens is not None:
        stack.push_async_callback(tokens.close)
    await warn_of_other_models(store, embedder, EMBEDDABLE)
    accesses = AccessRecorder(store, clock)
    stack.push_async_callback(accesses.flush)
    await stack.enter_async_context(work.running("accesses", accesses.run))
    runner = job_runner(settings, store, embedder, clock, llm, parts.tuning)
    stack.push_async_callback(runner.close)
    if settings.jobs.enabled:
        await stack.enter_async_context(work.running("jobs", runner.run))
    limits = settings.limits
    limiter = RateLimiter(limits.requests_per_second)
    costs = CostLimiter(limits.cost_per_second, parts.tuning.cost_burst_seconds)
    wrong_keys = WrongKeyLimiter(limits.wrong_keys, parts.tuning.wrong_keys_seconds)
    gauges = await stack.enter_async_context(gauging(store, embedder.name, clock, COLLECTIONS))
    return Resources(
        settings=settings,
        store=store,
        embedder=embedder,
        clock=clock,
        accesses=accesses,
        limiter=limiter,
        costs=costs,
        wrong_keys=wrong_keys,
        jobs=runner,
        keyless=keyless,
        what_holds_first=what_holds_first,
        llm=llm,
        second_stage=stage,
        tokens=tokens,
        collections=COLLECTIONS,
        gauges=gauges,
        names=DeclaredNames(store),
        tuning=parts.tuning,
    )


def with_model(settings: Settings, model: str) -> Settings:
    return settings.model_copy(update={"embedding": settings.embedding.model_copy(update={"model": model})})


def _token_reader(settings: Settings, clock: Clock) -> TokenReader | None:
    """Returns the reader of the issuer's tokens, or None if there is no issuer. The libraries take a tenth of a second
    to import, so that only who needs them waits for them."""
    if not settings.oidc.issuer:
        return None
    reader: TokenReader = importlib.import_module("app.auth.tokens").open_tokens(settings.oidc, clock)
    return reader


def job_runner(
    settings: Settings,
    store: Store,
    embedder: Embedder,
    clock: Clock,
    llm: LLM | None = None,
    tuning: Tuning = USUAL,
) -> Runner:
    """Returns the runner with the handlers and schedules of every kind of job."""
    tools = Tools(store, embedder, clock, settings, tuning)
    teller = None if llm is None else partial(day_teller, llm, tools)
    forgetting = ForgettingJobs(store, embedder, clock, settings.retention, teller)
    conversations = ConversationJobs(tools, llm)
    derived = (
        kinds.CONSOLIDATION,
        kinds.POST_CONVERSATION,
        kinds.MERGE_FACT,
        kinds.REFLECTION,
        kinds.RESOLVE,
        kinds.REVIEW_PROCEDURE,
    )
    undo_derived = DerivationUndo(store, embedder, clock).undo
    undoing = ALIAS_UNDO | {kinds.FORGET: forgetting.undo} | dict.fromkeys(derived, undo_derived)
    embedding = EmbeddingJob(store, embedder, EMBEDDABLE, clock)
    decay = DecayJob(store, clock, WORTH_WRITING)
    tidying = TidyingJobs(tools, llm)
    reflection = ReflectionJobs(tools, llm)

    handlers: dict[str, JobHandler] = {
        kinds.DECAY: decay.handle,
        kinds.EXPIRY: forgetting.expire,
        kinds.RETENTION: forgetting.retain,
        kinds.FORGET: forgetting.forget,
        kinds.ERASE_USER: ErasureJobs(store, COLLECTIONS, clock, ErasureKey.of(settings), model=embedder.name).handle,
        kinds.UNDO: lambda run: undoing[run.payload["kind"]](run),
        kinds.EMBED_PENDING: embedding.handle,
        kinds.DOCUMENT: DocumentJobs(store, embedder, clock, settings).handle,
        kinds.POST_CONVERSATION: conversations.learn,
        kinds.SUMMARIZE: conversations.summarize,
        kinds.EXTRACT: ExtractionJobs(tools, llm).handle,
        kinds.REDERIVE: Rederivation(tools, learns=llm is not None).handle,
        kinds.CONSOLIDATION: tidying.handle,
        kinds.REFLECTION: reflection.handle,
        kinds.MERGE_FACT: FactMergeJob(tools, llm).handle,
        kinds.REVIEW_PROCEDURE: ProcedureReviews(tools, llm).handle,
    }
    looks: dict[str, Look] = {
        kinds.DECAY: decay.has_work,
        kinds.EXPIRY: forgetting.has_expired,
        kinds.RETENTION: forgetting.has_outlived,
        kinds.EMBED_PENDING: embedding.has_work,
        kinds.CONSOLIDATION: tidying.has_work,
        kinds.REFLECTION: reflection.has_work,
    }
    return Runner(store, clock, handlers, Schedules(store, clock, periods(tuning), looks))


def _refuse_open_door(settings: Settings, keyless: KeylessAccess) -> None:
    if settings.auth == "off":
        log.warning("authentication is off: everybody who reaches this address is tenant default")
        return
    if keyless.ended or settings.oidc.issuer:
        return
    if not settings.loopback:
        raise StartRefused(
            f"No API key was ever made, so {settings.host} is not served: make one with `recalld keys create`, "
            "serve a loopback address, or set RECALLD_AUTH=off on purpose."
        )
    log.warning("no API key was ever made: this machine is served as tenant default, without authentication")
