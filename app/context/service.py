"""Composes a prompt: runs all sources at the same time, marks what no longer holds, packs within the budget."""

import time
from collections.abc import Sequence

from app.context.gathering import gather_sections, raise_if_unreadable
from app.context.layout import PromptPlan, best_scores, evidence_in, intent_of, is_small, is_unsure, pack
from app.context.marking import mark_sections
from app.context.response import answer_of, explain
from app.context.schemas import Context, ContextRequest
from app.context.source import ContextSource, SourceRequest
from app.context.sources import SOURCES
from app.core.clock import parse_rfc3339
from app.core.tracing import span
from app.core.work import CONTEXT_UNITS, charge, off_loop
from app.memories.agents import AGENTS
from app.resources import Resources
from app.retrieval.calibration import asks_for_anything
from app.retrieval.query import leading_part
from app.retrieval.time_expressions import interval_of
from app.storage.repository import Repository
from app.storage.scope import Scope

DEFAULT_BUDGET = 4000
BUDGET_SHARE = 0.25
"""Default budget as a share of a registered agent's `max_context_tokens`."""


class ContextService:
    """Assembles contexts for one caller."""

    def __init__(
        self,
        resources: Resources,
        scope: Scope,
        sources: Sequence[ContextSource] = SOURCES,
    ) -> None:
        self._resources, self._scope, self._sources = resources, scope, sources

    async def assemble(self, body: ContextRequest) -> Context:
        """Returns the response of `POST /v1/context`.

        Raises NotFound if the task does not exist. If no source could be read, raises Unavailable, or the client error
        that every source reports.
        """
        started = time.perf_counter()
        charge(CONTEXT_UNITS)
        request = await self._request(body)

        # what was found, with marks behind what no longer holds
        unmarked = await gather_sections(self._sources, request)
        raise_if_unreadable(unmarked)
        sections, warnings = await mark_sections(unmarked, request)

        # what the query wants
        asks_anything = asks_for_anything(evidence_in(sections))
        best = best_scores(sections, asks_anything=asks_anything)
        unsure = is_unsure(sections, best, self._resources.tuning.unsure_below)
        intent = intent_of(best, has_task=body.task_id is not None) if body.intent == "auto" else body.intent
        plan = PromptPlan(
            body, request.budget, intent, unsure=unsure, asks_anything=asks_anything, small=is_small(sections)
        )
        with span(
            "context packing", {"recalld.context.budget": plan.budget, "recalld.context.intent": intent}
        ) as opened:
            characters = sum(len(item.text) for section in sections for item in section.items)
            packed = await off_loop(characters, pack, plan, sections)
            opened.set({"recalld.context.tokens": packed.packing.total})
        if body.now is None:  # a prompt of another time, such as a replay of May, does not use its memories now
            memory_ids = list(dict.fromkeys(item.memory_id for item in packed.items if item.memory_id is not None))
            self._resources.accesses.note(self._scope.tenant, memory_ids)
        explained = await off_loop(characters, explain, packed) if body.explain else {}
        packed_characters = sum(len(item.text) for item in packed.items)
        return await off_loop(packed_characters, answer_of, plan, packed, warnings, started, explained)

    async def _request(self, body: ContextRequest) -> SourceRequest:
        """Returns the request as sources read it, with its budget, its time and the time that the query names."""
        budget = body.token_budget
        if budget is None:
            agent = await Repository(self._resources.store, self._scope, AGENTS).find_one(body.agent_id)
            if agent is None:
                budget = DEFAULT_BUDGET
            else:
                budget = max(1, int(BUDGET_SHARE * agent["settings"]["max_context_tokens"]))
        now = self._resources.clock.now() if body.now is None else parse_rfc3339(body.now)
        interval = await interval_of(leading_part(body.query), now, body.timezone)
        return SourceRequest(body, self._scope, self._resources, now, budget, interval=interval)
