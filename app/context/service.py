"""Composes a prompt: reads the intent, runs all sources at the same time, packs by worth within the budget."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import Any

from app.context import packing
from app.context.candidates import Candidate, ContextSource, SourceRequest
from app.context.marking import MARKED, SingleValue, mark, mark_doubts, values_of
from app.context.packing import PackedPrompt, Packer, Price, Section, TokenBound
from app.context.schemas import ContextRequest, Intent
from app.context.sources import SOURCES
from app.core import prompt_text
from app.core.clock import parse_rfc3339
from app.core.tracing import span
from app.core.work import CONTEXT_UNITS, charge, off_loop
from app.errors import NotFound, RecalldError, Unavailable
from app.memories.models import AGENTS
from app.resources import Resources
from app.retrieval.time_expressions import TimeInterval, interval_of
from app.storage.schema import Doc
from app.storage.search import Scope

ANSWERS = 0.2
"""Minimum score, a probability, of a section that answers a query."""
_BOOSTS: Mapping[Intent, Mapping[str, float]] = {
    "general": {},
    "recall": {"memories": 1.25, "facts": 1.25},
    "execute": {"procedures": 1.5, "experience": 1.25, "episodes": 1.25},
}


def infer(best: Mapping[str, float], *, has_task: bool) -> Intent:
    """Returns the intent. `best`: the highest score of each section.

    It is execute if a procedure answers best or a task is named, recall if another kind of memory answers, else
    general.
    """
    found = {name: score for name, score in best.items() if score >= ANSWERS}
    if has_task or (found and max(found, key=lambda name: found[name]) == "procedures"):
        return "execute"
    return "recall" if found else "general"


def boosts(intent: Intent) -> dict[str, float]:
    """Returns the factors of an intent by section."""
    return dict(_BOOSTS[intent])


DEFAULT_BUDGET = 4000
BUDGET_SHARE = 0.25
"""Default budget as a share of a registered agent's `max_context_tokens`."""
LINE_TOKENS = 8
"""Estimated tokens of a line beside its text."""
CHARS_PER_TOKEN = 4

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Gathered:
    """The candidates of one source."""

    source: ContextSource
    request: SourceRequest
    items: list[Candidate] = field(default_factory=list)
    seconds: float = 0.0
    failed: bool = False

    @property
    def faults(self) -> list[RecalldError]:
        """Errors of the source."""
        return self.request.faults


class ContextService:
    """Assembles contexts for one caller."""

    def __init__(self, resources: Resources, scope: Scope, sources: Sequence[ContextSource] = SOURCES) -> None:
        self._resources, self._scope, self._sources = resources, scope, sources

    async def assemble(self, body: ContextRequest) -> Doc:
        """Returns the response of `POST /v1/context`.

        Raises NotFound if the task does not exist, and Unavailable if no source could be read.
        """
        started = time.perf_counter()
        charge(CONTEXT_UNITS)
        budget = body.token_budget or await self._budget(body.agent_id)
        sources = [one for one in self._sources if one.section not in body.exclude and self._limit(one, body)]
        now = self._resources.clock.now() if body.now is None else parse_rfc3339(body.now)
        interval = await interval_of(body.query, now, body.timezone)
        gathered = await asyncio.gather(*(self._gather(source, body, now, interval) for source in sources))
        for one in gathered:
            if one.failed and isinstance(one.faults[0], NotFound):
                raise one.faults[0]
        if gathered and all(one.failed for one in gathered):
            raise _why(gathered)
        await self._mark(gathered)
        best: dict[str, float] = {
            one.source.section: max((item.score or 0.0 for item in one.items), default=0.0) for one in gathered
        }
        intent = infer(best, has_task=body.task_id is not None) if body.intent == "auto" else body.intent
        characters = sum(len(item.text) for one in gathered for item in one.items)
        unsure = self._unsure(gathered, best)
        with span("context packing", {"recalld.context.budget": budget, "recalld.context.intent": intent}) as opened:
            packed = await off_loop(characters, self._pack, body, gathered, budget, intent, unsure)
            opened.set({"recalld.context.tokens": packed.total})
        if body.now is None:
            self._note_accesses(packed)
        took = {one.source.section: one.seconds for one in gathered} | {"total": time.perf_counter() - started}
        return {
            "intent": intent,
            **self._answer(body, packed, gathered, unsure=unsure),
            "budget": budget,
            "errors": [
                {"section": one.source.section, "code": error.code, "detail": error.detail}
                for one in gathered
                for error in one.faults
            ],
            "warnings": _warnings(gathered, packed),
            "took_ms": {name: round(seconds * 1000, 3) for name, seconds in took.items()},
        }

    def _limit(self, source: ContextSource, body: ContextRequest) -> int:
        bounds = body.sections.get(source.section)
        return source.default_limit if bounds is None or bounds.limit is None else bounds.limit

    async def _budget(self, agent_id: str) -> int:
        agent = await self._resources.store.get(AGENTS, self._scope.tenant, agent_id)
        if agent is None or not self._scope.sees(agent):
            return DEFAULT_BUDGET
        return max(1, int(BUDGET_SHARE * agent["settings"]["max_context_tokens"]))

    async def _gather(
        self, source: ContextSource, body: ContextRequest, now: datetime, interval: TimeInterval | None
    ) -> Gathered:
        started = time.perf_counter()
        request = SourceRequest(body, self._scope, self._resources, now, self._limit(source, body), interval)
        result = Gathered(source, request)
        error: RecalldError | None = None
        try:
            with span(f"context {source.section}") as open_span:
                async with asyncio.timeout(self._resources.settings.context.arm_seconds):
                    result.items = await source.gather(result.request)
                open_span.set({"recalld.context.candidates": len(result.items)})
        except TimeoutError:
            error = Unavailable(f"Not read within {self._resources.settings.context.arm_seconds:g} s.")
        except RecalldError as raised:
            error = raised
        except Exception:
            log.exception("a section was not read", extra={"section": source.section})
            error = RecalldError()
        if error is not None:
            result.failed = True
            result.faults.insert(0, error)
        result.seconds = time.perf_counter() - started
        return result

    async def _mark(self, gathered: Sequence[Gathered]) -> None:
        """Marks the texts that state another value of a single-valued fact than the one that holds, and what findings
        doubt. If the facts cannot be read, no value is marked, and a warning says so."""
        if not any(one.items for one in gathered if one.source.section in MARKED):
            return
        doubts = [doubt for one in gathered for doubt in one.request.doubts]
        request = gathered[0].request
        facts = [fact for one in gathered for fact in one.request.facts]
        values: list[SingleValue] = []
        try:
            async with asyncio.timeout(self._resources.settings.context.arm_seconds):
                values = await values_of(request, facts)
        except (RecalldError, TimeoutError):
            request.warnings.append({"code": "values_unmarked", "detail": "Earlier values of facts are not marked."})
        names = [*(name for one in gathered for name in one.request.names), *filter(None, [request.body.user_id])]
        for one in gathered:
            if one.source.section in MARKED and (values or doubts):
                size = sum(len(item.text) for item in one.items)
                marked = await off_loop(size, mark, one.items, values, names)
                one.items = await off_loop(size, mark_doubts, marked, doubts)

    def _unsure(self, gathered: Sequence[Gathered], best: dict[str, float]) -> bool:
        """Returns whether all searched sections were read and none of their scores reaches `unsure_below`."""
        searched = [one for one in gathered if one.source.share is None]
        if any(one.failed for one in searched):
            return False
        scores = [best[one.source.section] for one in searched]
        return max(scores, default=1.0) < self._resources.settings.context.unsure_below

    # --- Packing ------------------------------------------------------------------------------------------------------

    def _pack(
        self, body: ContextRequest, gathered: Sequence[Gathered], budget: int, intent: Intent, unsure: bool
    ) -> PackedPrompt:
        frame = prompt_text.count(packing.OPENING) + prompt_text.count(packing.CLOSING)
        if unsure:
            frame += prompt_text.count(packing.UNSURE)
        if body.format == "messages":
            frame += packing.MESSAGE_TOKENS
        sections = [self._section(body, one, budget, boosts(intent)) for one in gathered]
        floor = self._resources.settings.context.min_score if body.min_score is None else body.min_score
        return Packer(sections, budget, frame, floor).pack(_about)

    def _section(self, body: ContextRequest, one: Gathered, budget: int, boost: dict[str, float]) -> Section:
        source, bounds = one.source, body.sections.get(one.source.section)
        limit: TokenBound | None = None if source.share is None else Fraction(source.share) * budget
        if bounds is not None and (bounds.share is not None or bounds.tokens is not None):
            limit = Fraction(bounds.share) * budget if bounds.share is not None else bounds.tokens
        turns = source.turns and body.format == "messages"
        return Section(
            source.section,
            one.items,
            price(body, source),
            lambda item: 0 if item.heading is None else packing.heading_tokens(item.heading),
            0 if turns else prompt_text.count(packing.title(source.title)),
            self._limit(source, body),
            limit,
            always=source.share is not None,
            framed=not turns,
            boost=boost.get(source.section, 1.0),
        )

    def _note_accesses(self, packed: PackedPrompt) -> None:
        accessed = [item.memory_id for items in packed.chosen.values() for item in items if item.memory_id is not None]
        if accessed:
            self._resources.accesses.note(self._scope.tenant, list(dict.fromkeys(accessed)))

    # --- The response -------------------------------------------------------------------------------------------------

    def _answer(self, body: ContextRequest, packed: PackedPrompt, gathered: Sequence[Gathered], *, unsure: bool) -> Doc:
        as_messages = body.format == "messages"
        sources: dict[str, ContextSource] = {one.source.section: one.source for one in gathered}
        chosen = {
            name: list(items)[::-1] if sources[name].newest_first else packing.ordered(items)
            for name, items in packed.chosen.items()
        }
        numbers: dict[str, str] = {}
        for items in chosen.values():
            for item in items:
                numbers.setdefault(item.id, str(len(numbers) + 1))
        citation = _citation(body, numbers)
        apart = {name for name in chosen if as_messages and sources[name].turns}
        parts = {
            name: packing.section(sources[name].title, items, citation)
            for name, items in chosen.items()
            if name not in apart
        }
        text = packing.block(list(parts.values()), packing.UNSURE if unsure else "")
        turns = [item for name in apart for item in chosen[name]]
        return {
            "messages": self._messages(body, text, turns) if as_messages else [],
            "text": text,
            "tokens": packed.total,
            "query_tokens": prompt_text.count(body.query),
            "system_prompt_tokens": prompt_text.count(body.system_prompt or ""),
            "sections": [
                {
                    "name": name,
                    "tokens": packed.tokens[name],
                    "items": [
                        {
                            "id": item.id,
                            "type": item.type,
                            "citation": citation(item),
                            "score": item.score,
                            "tokens": price(body, sources[name])(item),
                        }
                        for item in items
                    ],
                }
                for name, items in chosen.items()
            ],
            "dropped": _dropped(packed, gathered),
        }

    def _messages(self, body: ContextRequest, text: str, turns: Sequence[Candidate]) -> list[dict[str, Any]]:
        system = [{"role": "system", "content": body.system_prompt}] if body.system_prompt else []
        remembered = [{"role": body.memory_role, "content": text}] if text else []
        return [
            *system,
            *remembered,
            *(message for item in turns for message in packing.turns(item)),
            {"role": "user", "content": body.query},
        ]


def _about(item: Candidate) -> int:
    """Estimates the tokens of an item's line. The exact count follows when the item's turn comes."""
    return LINE_TOKENS + len(item.text) // CHARS_PER_TOKEN


def _citation(body: ContextRequest, numbers: dict[str, str]) -> packing.Citation:
    """Returns the function that cites items.

    Before packing every number is `1`, because each number takes one token.
    """
    if body.citations == "none":
        return lambda item: None
    if body.citations == "ids":
        return lambda item: prompt_text.as_label(item.id)
    return lambda item: numbers.get(item.id, "1")


def price(body: ContextRequest, source: ContextSource) -> Price:
    """Returns the function that counts the tokens of an item's line, or of its message.

    Lines are short and often the same, so counts are cached.
    """
    if source.turns and body.format == "messages":
        return packing.turn_tokens
    citation = _citation(body, {})
    return lambda item: prompt_text.count(packing.line(item, citation(item)))


def _dropped(packed: PackedPrompt, gathered: Sequence[Gathered]) -> list[Doc]:
    """Returns the dropped items, hidden ones last. An item that two sections found is listed once."""
    packed_ids = {item.id for items in packed.chosen.values() for item in items}
    found = {item.id: reason for item, reason in packed.dropped if item.id not in packed_ids}
    hidden = {each: "importance" for one in gathered for each in one.request.hidden if each not in packed_ids}
    return [{"id": each, "reason": reason} for each, reason in {**hidden, **found}.items()]


def _warnings(gathered: Sequence[Gathered], packed: PackedPrompt) -> list[Doc]:
    """Returns the warnings of all sections, without repetitions."""
    found = [warning for one in gathered for warning in one.request.warnings]
    packed_ids = {item.id for items in packed.chosen.values() for item in items}
    for one in gathered:
        if one.source.section == "instructions":
            found += [
                {"code": "instruction_left_out", "detail": f"{item.id} does not fit: give a larger token_budget."}
                for item in one.items
                if item.id not in packed_ids
            ]
    return [warning for at, warning in enumerate(found) if warning not in found[:at]]


def _why(gathered: Sequence[Gathered]) -> RecalldError:
    """Returns the error of a context without any section.

    It is a client error if every source reports one, else Unavailable.
    """
    error = gathered[0].faults[0]
    if all(one.faults[0].status < Unavailable.status for one in gathered) and error.status < RecalldError.status:
        return error
    return Unavailable(f"No section could be read: {error.detail}", retry_after=1)
