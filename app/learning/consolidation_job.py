"""The consolidation job: for each agent and user it merges duplicate memories and learns from episodes.

A scheduled run looks for partitions with new records, in every tenant, and starts an operation for each that needs
work, so that each can be inspected and undone separately. A run that a caller asks for handles a whole tenant, agent or
user in one operation.
"""

from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import NamedTuple, NotRequired, TypedDict

from app.actions.schemas import ACTIONS
from app.core.clock import rfc3339
from app.jobs import queue
from app.jobs.models import CONSOLIDATION, SCHEDULES
from app.jobs.runner import Done, Run
from app.jobs.schedule import has_looked, news
from app.learning import deduplication
from app.learning.deduplication import Deduplicator, Merged
from app.learning.dependencies import NO_LLM, Report, Tools
from app.learning.derivations import DERIVATIONS, DerivationRecord, undo_of
from app.learning.episode_extractors import EpisodeLearning, skipped, waiting
from app.llm.base import LLM
from app.memories.repository import of_pair
from app.memories.schemas import MEMORIES
from app.storage.changes import CommitConflict, Update
from app.storage.repository import anything, having, pages
from app.storage.schema import EVERYTHING, Absent, Collection, Filter, Not, Range, both
from app.storage.scope import SYSTEM, Scope

PAGE = 500


class PartitionOwner(NamedTuple):
    """The owners of the records of a partition, with their tenant."""

    tenant: str
    agent: str | None
    user: str | None


class LearnedEpisodes(TypedDict):
    """What a run learned from episodes, as fields of its result: how many, how many wait, and what the model spent."""

    episodes: int
    waiting: int
    llm: NotRequired[dict[str, int]]


class TidyingJobs:
    """Runs consolidation jobs. Without a language model they only merge."""

    def __init__(self, tools: Tools, llm: LLM | None, undo_days: float) -> None:
        self._tools, self._llm, self._undo_days = tools, llm, undo_days
        self._merging = Deduplicator(tools)

    async def handle(self, run: Run) -> Done:
        """Runs a job for a tenant or a partition. Raises Unfinished if the model failed: the job is retried for the
        rest."""
        if run.tenant == SYSTEM:
            return await self._dispatch(run)
        scope = Scope.of_bindings(run.tenant, run.payload)
        # a scheduled run names the partition that it found, a request the owners
        pair = run.payload.get("pair")
        wanted = of_pair(pair["agent_id"], pair["user_id"]) if pair else having(run.payload, "agent_id", "user_id")
        request = both(wanted, scope.writable())
        dry_run = bool(run.payload.get("dry_run"))
        merged = await self._merge(run, scope, request, dry_run=dry_run)
        report = Report()
        if dry_run or self._llm is None:
            learned: LearnedEpisodes = {
                "episodes": 0,
                "waiting": await self._tools.store.count(ACTIONS, run.tenant, waiting(request)),
            }
            report.parts = skipped(learned["waiting"], "a dry run asks no model" if dry_run else NO_LLM)
        else:
            learned = await self._learn(run, scope, request, self._llm, report)
        if report.failed and (report.waits or not run.lease.last_attempt):
            raise report.unfinished()
        result = {"dry_run": dry_run, "memories": merged.report(), **learned, "parts": report.parts}
        left = learned["waiting"] and not dry_run and self._llm is not None  # without a model they are `skipped`
        whole = merged.whole and not report.failed and not left
        undo = None if dry_run else await undo_of(run, self._undo_days)
        return Done(result, undo, "succeeded" if whole else "partial")

    async def _merge(self, run: Run, scope: Scope, request: Filter, *, dry_run: bool) -> Merged:
        merged, pairs = await self._merging.merged_before(run), await self._with_memories(run.tenant, request)
        for number, pair in enumerate(pairs, start=1):
            groups = await self._merging.plan(scope, pair.agent, pair.user)
            if dry_run:
                merged.plan(groups)
            else:
                await self._merging.apply(run, scope, groups, merged)
            await run.progress(number, len(pairs))
        return merged

    async def _learn(self, run: Run, scope: Scope, request: Filter, llm: LLM, report: Report) -> LearnedEpisodes:
        """Learns from the episodes of one partition after the other, within the run's budget."""
        episode_learning, budget = EpisodeLearning(self._tools, llm), llm.budget(self._tools.allowance(run.tenant))
        done = 0
        for pair in await self._with_episodes(run.tenant, request):
            assert pair.agent is not None
            done += await episode_learning.learn(run, scope, pair.agent, pair.user, budget, report)
            if report.failed:
                break
        left = await self._tools.store.count(ACTIONS, run.tenant, waiting(request))
        return {"episodes": done, "waiting": left, "llm": budget.spent}

    # --- Scheduled runs -----------------------------------------------------------------------------------------------

    async def has_work(self) -> bool:
        """Returns True if a scheduled run may find work. Only reads."""
        schedule = await self._tools.store.get(SCHEDULES, SYSTEM, CONSOLIDATION)
        wanted: list[tuple[Collection, Filter]] = [
            (MEMORIES, self._may_have_duplicates(news(schedule))),
            (DERIVATIONS, self._past_undo()),
        ]
        if self._llm is not None:
            wanted.append((ACTIONS, waiting(EVERYTHING)))
        return await anything(self._tools.store, wanted)

    async def _dispatch(self, run: Run) -> Done:
        """Starts an operation for each partition that needs work since the previous run."""
        begun = self._tools.clock.now()
        created = news(await run.store.get(SCHEDULES, SYSTEM, CONSOLIDATION))
        pairs = {
            pair: None
            for pair in await self._with_memories(None, created)
            if await self._merging.plan(Scope(pair.tenant), pair.agent, pair.user)
        }
        if self._llm is not None:
            pairs |= dict.fromkeys(await self._with_episodes(None, EVERYTHING))
        for pair in pairs:
            owner = {"agent_id": pair.agent, "user_id": pair.user}
            payload = {"dry_run": False, "pair": owner}
            _, changes = queue.start(Scope(pair.tenant), CONSOLIDATION, payload, self._tools.clock.now(), **owner)
            await run.commit(changes)
        with suppress(CommitConflict):
            await run.commit([has_looked(CONSOLIDATION, begun)])
        return Done({"operations": len(pairs), "undo_ended": await self._end_undo(run)})

    async def _end_undo(self, run: Run) -> int:
        """Removes the undo data of derivations that can no longer be undone."""
        ended = 0
        find = partial(self._tools.store.find, DERIVATIONS, None, self._past_undo())
        async for notes in pages(find, DERIVATIONS, PAGE):
            for note in notes:
                fields: DerivationRecord = {"operation_id": None, "undo": []}
                with suppress(CommitConflict):  # the derivation was just erased with its user
                    await run.commit([Update(DERIVATIONS, note["tenant_id"], note["derivation_id"], set=fields)])
                    ended += 1
        return ended

    def _past_undo(self) -> Filter:
        last = self._tools.clock.now() - timedelta(days=self._undo_days + 1)
        return both(Range("created_at", lt=rfc3339(last)), Not(Absent("operation_id")))

    # --- Partitions with work -----------------------------------------------------------------------------------------

    async def _with_memories(self, tenant: str | None, where: Filter) -> list[PartitionOwner]:
        """Returns the partitions with memories that may be duplicates, ordered by their first memory."""
        return await self._pairs(MEMORIES, tenant, self._may_have_duplicates(where))

    def _may_have_duplicates(self, where: Filter) -> Filter:
        return both(where, deduplication.may_have_duplicates(rfc3339(self._tools.clock.now())))

    async def _with_episodes(self, tenant: str | None, where: Filter) -> list[PartitionOwner]:
        return await self._pairs(ACTIONS, tenant, waiting(where))

    async def _pairs(self, collection: Collection, tenant: str | None, where: Filter) -> list[PartitionOwner]:
        owned = pages(partial(self._tools.store.find, collection, tenant, where), collection, PAGE)
        pairs = {
            PartitionOwner(record["tenant_id"], record.get("agent_id"), record.get("user_id")): None
            async for page in owned
            for record in page
        }
        return list(pairs)
