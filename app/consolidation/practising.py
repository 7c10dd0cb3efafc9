"""Learning from what was done by a pair: its episodes that were not learned from yet, batch by batch."""

import logging
from contextlib import suppress

from app.actions.models import ACTIONS
from app.clock import rfc3339
from app.consolidation import practice, prompts
from app.consolidation.deeds import commit_noted
from app.consolidation.episodes import Batch, chunks
from app.consolidation.models import DERIVATIONS
from app.consolidation.practice import Part
from app.consolidation.told import Told
from app.consolidation.tools import Tools
from app.errors import LLMBudgetSpent, LLMReplyInvalid, LLMUnavailable
from app.jobs.runner import Run
from app.llm.budget import Budget
from app.llm.llm import LLM
from app.memories.repository import of_pair
from app.storage.collection import Change, CommitConflict, Doc, Update
from app.storage.filters import Absent, Filter, both
from app.storage.scope import Scope

PAGE = 50
NEW = Absent("consolidated_at")

log = logging.getLogger(__name__)


class Practising:
    def __init__(self, tools: Tools, llm: LLM) -> None:
        self._tools, self._llm = tools, llm

    async def learn(self, run: Run, scope: Scope, agent: str, user: str | None, budget: Budget, told: Told) -> int:
        """How many episodes were learned from. What is done stays done when a part fails; the episodes wait then."""
        where, done = both(of_pair(agent, user), NEW, scope.visible()), 0
        while docs := await self._tools.store.find(ACTIONS, scope.tenant, where, order="asc", limit=PAGE):
            batch = next(chunks(Batch(scope, agent, user, docs)))
            for part in practice.PARTS:
                await self._learn(run, part, batch, budget, told)
            if told.failed:
                break
            await self._settle(run, batch)
            done += len(batch.docs)
        return done

    async def _learn(self, run: Run, part: Part, batch: Batch, budget: Budget, told: Told) -> None:
        prompt_id = prompts.load(part.prompt).id
        made_of = f"der_{batch.digest(part.name, prompt_id)}"
        if await self._tools.store.get(DERIVATIONS, run.tenant, made_of) is not None:
            told.skip(part.name, "learned before")
            return
        try:
            plan = await part.learn(self._tools, batch, self._llm, budget)
            of = {**batch.owner, "action_ids": [doc["action_id"] for doc in batch.docs]}
            told.add(part.name, await commit_noted(run, plan, made_of, of) or {})
        except (LLMUnavailable, LLMReplyInvalid, LLMBudgetSpent) as fault:
            log.warning("episodes were not learned from", extra={"part": part.name, "code": fault.code})
            told.fail(part.name, fault.detail)

    async def _settle(self, run: Run, batch: Batch) -> None:
        """They are learned from. One that has gone meanwhile keeps no other back."""
        fields = {"consolidated_at": rfc3339(self._tools.clock.now())}
        changes: list[Change] = [Update(ACTIONS, run.tenant, doc["action_id"], set=fields) for doc in batch.docs]
        try:
            await run.commit(changes)
        except CommitConflict:
            for change in changes:
                with suppress(CommitConflict):
                    await run.commit([change])


def waiting(docs_of: Filter) -> Filter:
    """Episodes that were not learned from, of `docs_of`."""
    return both(docs_of, NEW)


def skipped(waiting: int, why: str) -> Doc:
    return {part.name: {"status": "skipped", "reason": why} for part in practice.PARTS} if waiting else {}
