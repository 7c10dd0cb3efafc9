"""Composes a prompt: runs all sources at the same time, marks what no longer holds, packs within the budget."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from app.context.cached_layout import (
    mark_conversation,
    pack_cached,
    read_conversation,
    volatile_sources,
)
from app.context.dropped import explain
from app.context.gathering import Gathered, gather_sections, raise_if_unreadable
from app.context.intent import asks_for_something, asks_in, best_scores, infer, is_unsure
from app.context.layout import PackedParts, PromptPart, PromptPlan, pack_default
from app.context.marking import judged_in, mark_sections
from app.context.packing_weights import packing_weights_for
from app.context.response import ContextAnswer, answer_of
from app.context.schemas import ContextRequest
from app.context.source import ContextSource, SourceRequest
from app.context.sources import SOURCES
from app.context.sources.session import lines_for_interactions, without_lines
from app.context.sources.stable import LASTING
from app.core.clock import parse_rfc3339
from app.core.tracing import span
from app.core.work import CONTEXT_UNITS, charge, off_loop
from app.memories.agents import AGENTS
from app.resources import Resources
from app.retrieval.query_analysis import leading_part
from app.retrieval.retriever import SearchWarning
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
        lasting: Sequence[ContextSource] = LASTING,
    ) -> None:
        self._resources, self._scope, self._sources, self._lasting = resources, scope, sources, lasting

    async def assemble(self, body: ContextRequest) -> ContextAnswer:
        """Returns the response of `POST /v1/context`.

        Raises NotFound if the task does not exist. If no source could be read, raises Unavailable, or the client error
        that every source reports.
        """
        started = time.perf_counter()
        charge(CONTEXT_UNITS)
        request = await self._request(body)

        # what was found, with marks behind what no longer holds
        read = await (self._read_cached(request) if body.layout == "cached" else self._read_default(request))

        # what the query wants
        best, packing_weights = best_scores(read.sections), packing_weights_for(self._resources.embedder.name)
        unsure = is_unsure(read.sections, best, self._resources.tuning.unsure_below)
        intent = infer(best, has_task=body.task_id is not None) if body.intent == "auto" else body.intent
        is_answered = not unsure and asks_for_something(read.sections, packing_weights)
        sections = [_settle_last_sessions(section, is_answered=is_answered) for section in read.sections]

        plan = PromptPlan(body, request.budget, intent, unsure, packing_weights, asks_in(read.sections))
        with span(
            "context packing", {"recalld.context.budget": plan.budget, "recalld.context.intent": intent}
        ) as opened:
            characters = sum(len(item.text) for section in sections for item in section.items)
            parts = await off_loop(characters, self._pack, read, plan, sections)
            opened.set({"recalld.context.tokens": parts.total})
        if body.now is None:
            self._note_accesses(parts.volatile, None)
            self._note_accesses(parts.stable, read.began_at)
        every = [*read.of_conversation, *sections]
        explained = await off_loop(characters, explain, parts, every) if body.explain else {}
        return answer_of(plan, parts, every, read.warnings, started, explained)

    async def _read_default(self, request: SourceRequest) -> "_Read":
        sections = await gather_sections(self._sources, request)
        raise_if_unreadable(sections)
        marked, warnings = await mark_sections(sections, request, judged_in(sections))
        return _Read(marked, warnings, pack_default)

    async def _read_cached(self, request: SourceRequest) -> "_Read":
        """Reads what the query needs, and what was known when the conversation began."""
        unmarked, sections = await asyncio.gather(
            read_conversation(request, self._lasting), gather_sections(volatile_sources(self._sources), request)
        )
        raise_if_unreadable(sections)
        marked, warnings = await mark_sections(sections, request, judged_in(sections))
        conversation, more = await mark_conversation(unmarked, request, marked)
        return _Read(
            marked,
            [*warnings, *more],
            partial(pack_cached, conversation),
            of_conversation=conversation.readings,
            began_at=conversation.began_at,
        )

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

    def _pack(self, read: "_Read", plan: PromptPlan, sections: Sequence[Gathered]) -> PackedParts:
        """Packs what was read. scripts/fit_packing.py records it here."""
        return read.pack(plan, sections)

    def _note_accesses(self, part: PromptPart, since: str | None) -> None:
        """Counts the memories of a part as accessed; with `since`, once since then."""
        memory_ids = list(dict.fromkeys(item.memory_id for item in part.chosen if item.memory_id is not None))
        if memory_ids:
            self._resources.accesses.note(self._scope.tenant, memory_ids, since)


@dataclass(frozen=True, slots=True)
class _Read:
    """What a layout has read for a prompt, and how it packs it."""

    sections: Sequence[Gathered]
    """What was found for the query, with marks."""
    warnings: Sequence[SearchWarning]
    """Of the marks."""
    pack: Callable[[PromptPlan, Sequence[Gathered]], PackedParts]
    of_conversation: Sequence[Gathered] = ()
    """What was read for the part that stays the same."""
    began_at: str | None = None
    """When the conversation began (RFC 3339). None: the layout has no part that stays the same."""


def _settle_last_sessions(section: Gathered, *, is_answered: bool) -> Gathered:
    """Returns the section without the lines of the last sessions if the query asks for something that is found, else
    without the interactions that these lines stand for."""
    if not any(item.recalls for item in section.items):
        return section
    return section.with_items(without_lines(section.items) if is_answered else lines_for_interactions(section.items))
