"""Composes a prompt: runs all sources at the same time, marks what no longer holds, packs within the budget."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from app.context.layout import GatheredSection, pack, plan_of
from app.context.marking import mark_sections
from app.context.response import answer_of
from app.context.schemas import Context, ContextRequest
from app.context.source import ContextSource, SourceRequest, SourceResult
from app.context.sources import SOURCES
from app.core.clock import parse_rfc3339
from app.core.tracing import span
from app.core.work import CONTEXT_UNITS, charge, off_loop
from app.errors import NotFound, RecalldError, Unavailable
from app.memories.agents import AGENTS
from app.resources import Resources
from app.retrieval.query import leading_part
from app.retrieval.time_expressions import interval_of
from app.storage.repository import Repository
from app.storage.scope import Scope

log = logging.getLogger(__name__)

DEFAULT_BUDGET = 4000
BUDGET_SHARE = 0.25
"""Default budget as a share of a registered agent's `max_context_tokens`."""


async def assemble(
    resources: Resources, scope: Scope, body: ContextRequest, sources: Sequence[ContextSource] = SOURCES
) -> Context:
    """Returns the response of `POST /v1/context`.

    Raises NotFound if the task does not exist. If no source could be read, raises Unavailable, or the client error
    that every source reports.
    """
    started = time.perf_counter()
    charge(CONTEXT_UNITS)
    request = await _request_of(resources, scope, body)
    unmarked = await gather_sections(sources, request)
    sections, warnings = await mark_sections(unmarked, request)
    plan = plan_of(request, sections)
    with span(
        "context packing", {"recalld.context.budget": plan.budget, "recalld.context.intent": plan.intent}
    ) as opened:
        characters = sum(len(item.text) for section in sections for item in section.items)
        packed = await off_loop(characters, pack, plan, sections)
        opened.set({"recalld.context.tokens": packed.packing.total})
    if body.now is None:  # a prompt of another time, such as a replay of May, does not use its memories now
        memory_ids = list(dict.fromkeys(item.memory_id for item in packed.items if item.memory_id is not None))
        resources.accesses.note(scope.tenant, memory_ids)
    if not body.explain:  # the answer has the text of what is packed alone
        characters = sum(len(item.text) for item in packed.items)
    return await off_loop(characters, answer_of, plan, packed, warnings, started)


async def _request_of(resources: Resources, scope: Scope, body: ContextRequest) -> SourceRequest:
    """Returns the request as sources read it, with its budget, its time and the time that the query names."""
    budget = body.token_budget
    if budget is None:
        agent = await Repository(resources.store, scope, AGENTS).find_one(body.agent_id)
        most = None if agent is None else agent["settings"]["max_context_tokens"]
        budget = DEFAULT_BUDGET if most is None else max(1, int(BUDGET_SHARE * most))
    now = resources.clock.now() if body.now is None else parse_rfc3339(body.now)
    interval = await interval_of(leading_part(body.query), now, body.timezone)
    return SourceRequest(body, scope, resources, now, budget, interval=interval)


async def gather_sections(sources: Sequence[ContextSource], request: SourceRequest) -> list[GatheredSection]:
    """Returns the sections that the request leaves room for, in the order of the sources.

    Raises NotFound if the task that the request names does not exist. If no section could be read, raises the first
    error if every source reports one of the client (4xx), else Unavailable.
    """
    wanted = [source for source in sources if source.is_wanted(request.body)]
    sections = list(await asyncio.gather(*(_gather_section(source, request) for source in wanted)))
    errors = [section.error for section in sections if section.error is not None]
    for error in errors:
        if isinstance(error, NotFound):  # of the section `working` alone: what others miss leaves them empty
            raise error
    if not errors or len(errors) < len(sections):
        return sections
    if all(error.status < RecalldError.status for error in errors):
        raise errors[0]
    raise Unavailable(f"No section could be read: {errors[0].detail}", retry_after=1)


async def _gather_section(source: ContextSource, request: SourceRequest) -> GatheredSection:
    """Returns what a source returns within its time, or why it did not: one that fails costs its own section."""
    request = replace(request, limit=source.limit_in(request.body))
    result = SourceResult()
    error: RecalldError | None = None
    seconds, started = request.resources.tuning.section_seconds, time.perf_counter()
    try:
        with span(f"context {source.section}") as opened:
            async with asyncio.timeout(seconds):
                result = await source.gather(request)
            opened.set({"recalld.context.candidates": len(result.items)})
    except TimeoutError:
        error = Unavailable(f"Not read within {seconds:g} s.")
    except RecalldError as raised:
        error = raised
    except Exception:
        log.exception("a section was not read", extra={"section": source.section})
        error = RecalldError()
    return GatheredSection(source, request, result, error, time.perf_counter() - started)
