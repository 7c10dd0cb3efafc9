"""One context: route, gather, pack, lay out."""

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from app import tokens
from app.clock import parse_rfc3339
from app.context import layout
from app.context.items import Arm, Asked, Item
from app.context.packing import Packed, Priced, Wanted, pack
from app.context.registry import ARMS
from app.context.router import route
from app.context.schemas import ContextRequest, Intent
from app.errors import RecalldError, Unavailable
from app.offload import off_loop
from app.profiles.models import AGENTS
from app.state import Resources
from app.storage.collection import Doc
from app.storage.scope import Scope

DEFAULT_BUDGET = 4000
BUDGET_SHARE = 0.25
"""Of a registered agent's `max_context_tokens`."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Gathered:
    """What came of one arm."""

    arm: Arm
    limit: int
    items: list[Item]
    faults: list[RecalldError]
    warnings: list[Doc]
    seconds: float
    failed: bool = False


class ContextService:
    def __init__(self, held: Resources, scope: Scope, arms: Sequence[Arm] = ARMS) -> None:
        self._held, self._scope, self._arms = held, scope, arms

    async def assemble(self, body: ContextRequest) -> Doc:
        """Raises Unavailable when nothing could be read."""
        started = time.perf_counter()
        intent = route(body.query, has_task=body.task_id is not None) if body.intent == "auto" else body.intent
        budget = body.token_budget or await self._budget(body.agent_id)
        gathered = await asyncio.gather(*(self._gather(arm, limit, body) for arm, limit in self._asked(body, intent)))
        if gathered and all(one.failed for one in gathered):
            raise _why(gathered)
        characters = sum(len(item.text) for one in gathered for item in one.items)
        packed = await off_loop(characters, self._pack, body, gathered, budget)
        if body.now is None:
            self._note_accesses(packed)
        answer = self._answer(body, packed, {one.arm.section: one.arm for one in gathered})
        took = {one.arm.section: one.seconds for one in gathered} | {"total": time.perf_counter() - started}
        return {
            "intent": intent,
            **answer,
            "budget": budget,
            "errors": [
                {"section": one.arm.section, "code": fault.code, "detail": fault.detail}
                for one in gathered
                for fault in one.faults
            ],
            "warnings": _once(warning for one in gathered for warning in one.warnings),
            "took_ms": {name: round(seconds * 1000, 3) for name, seconds in took.items()},
        }

    def _asked(self, body: ContextRequest, intent: Intent) -> list[tuple[Arm, int]]:
        """The arms to ask, by priority, and how many items each may bring in."""
        asked = []
        for arm in self._arms:
            bounds = body.sections.get(arm.section)
            wanted = intent in arm.limits or arm.section in body.include or bounds is not None
            limit = arm.limits.get(intent, max(arm.limits.values()))
            if bounds is not None and bounds.limit is not None:
                limit = bounds.limit
            if wanted and limit and arm.section not in body.exclude:
                asked.append((arm, limit))
        return asked

    async def _budget(self, agent_id: str) -> int:
        agent = await self._held.store.get(AGENTS, self._scope.tenant, agent_id)
        if agent is None or not self._scope.sees(agent):
            return DEFAULT_BUDGET
        return max(1, int(BUDGET_SHARE * agent["settings"]["max_context_tokens"]))

    async def _gather(self, arm: Arm, limit: int, body: ContextRequest) -> Gathered:
        started = time.perf_counter()
        now = self._held.clock.now() if body.now is None else parse_rfc3339(body.now)
        asked = Asked(body, self._scope, self._held, now, limit)
        result = Gathered(arm, limit, [], asked.faults, asked.warnings, 0.0)
        try:
            async with asyncio.timeout(self._held.settings.context.arm_seconds):
                result.items = await arm.gather(asked)
        except TimeoutError:
            result.failed = True
            asked.faults.append(Unavailable(f"Not read within {self._held.settings.context.arm_seconds:g} s."))
        except RecalldError as fault:
            result.failed = True
            asked.faults.append(fault)
        except Exception:
            log.exception("arm failed", extra={"section": arm.section})
            result.failed = True
            asked.faults.append(RecalldError())
        result.seconds = time.perf_counter() - started
        return result

    # --- Packing ------------------------------------------------------------------------------------------------------

    def _pack(self, body: ContextRequest, gathered: Sequence[Gathered], budget: int) -> Packed:
        frame = tokens.count(layout.OPENING) + tokens.count(layout.CLOSING)
        if body.format == "messages":
            frame += layout.MESSAGE_TOKENS
        shares = sum(one.arm.share for one in gathered) or 1
        recent = {key for one in gathered if one.arm.turns for item in one.items[: one.limit] for key in item.same}
        numbers = count(1)
        room = max(0, budget - frame)
        wanted = [self._wanted(body, one, budget, room / shares, recent, numbers) for one in gathered]
        return pack(wanted, budget, frame)

    def _wanted(
        self, body: ContextRequest, one: Gathered, budget: int, a_share: float, recent: set[str], numbers: Iterator[int]
    ) -> Wanted:
        bounds = body.sections.get(one.arm.section)
        most = None
        if bounds is not None:
            most = int(bounds.share * budget) if bounds.share is not None else bounds.tokens
        turns = one.arm.turns and body.format == "messages"

        def priced(item: Item) -> Priced:
            citation = item.id if body.citations == "ids" else str(next(numbers))
            line = layout.line(item, citation)
            size = layout.turn_tokens(item) if turns else tokens.count(line)
            return Priced(item, citation, line, size, yields=not one.arm.turns and bool(item.same & recent))

        return Wanted(
            one.arm.section,
            [priced(item) for item in one.items],
            0 if turns else tokens.count(layout.title(one.arm.title)),
            one.limit,
            int(a_share * one.arm.share),
            most,
            framed=not turns,
        )

    def _note_accesses(self, packed: Packed) -> None:
        packed_ids = [one.item.memory_id for section in packed.sections for one in section.items]
        accessed = [memory_id for memory_id in packed_ids if memory_id is not None]
        if accessed:
            self._held.accesses.note(self._scope.tenant, accessed)

    # --- Answering ----------------------------------------------------------------------------------------------------

    def _answer(self, body: ContextRequest, packed: Packed, arms: dict[str, Arm]) -> Doc:
        sections = [
            replace(one, items=one.items[::-1]) if arms[one.name].newest_first else one for one in packed.sections
        ]
        as_turns = [
            one.item
            for section in sections
            if body.format == "messages" and arms[section.name].turns
            for one in section.items
        ]
        shown = [
            (arms[section.name].title, [one.line for one in section.items])
            for section in sections
            if body.format == "markdown" or not arms[section.name].turns
        ]
        text = layout.block(shown)
        return {
            "messages": self._messages(body, text, as_turns) if body.format == "messages" else [],
            "text": text,
            "tokens": packed.tokens,
            "query_tokens": tokens.count(body.query),
            "system_prompt_tokens": tokens.count(body.system_prompt or ""),
            "sections": [
                {
                    "name": section.name,
                    "tokens": section.tokens,
                    "items": [
                        {
                            "id": one.item.id,
                            "type": one.item.type,
                            "citation": one.citation,
                            "score": one.item.score,
                            "tokens": one.tokens,
                        }
                        for one in section.items
                    ],
                }
                for section in sections
            ],
            "dropped": [{"id": item.id, "reason": reason} for item, reason in packed.dropped],
        }

    def _messages(self, body: ContextRequest, text: str, turns: Sequence[Item]) -> list[dict[str, Any]]:
        system = [{"role": "system", "content": body.system_prompt}] if body.system_prompt else []
        remembered = [{"role": body.memory_role, "content": text}] if text else []
        return [
            *system,
            *remembered,
            *(layout.turn(item) for item in turns),
            {"role": "user", "content": body.query},
        ]


def _once(warnings: Iterable[Doc]) -> list[Doc]:
    """Several sections may warn of the same."""
    return list({warning["code"]: warning for warning in warnings}.values())


def _why(gathered: Sequence[Gathered]) -> RecalldError:
    """Nothing could be read: the caller's fault where each of the arms says so, else ours."""
    fault = gathered[0].faults[0]
    if all(one.faults[0].status < Unavailable.status for one in gathered) and fault.status < RecalldError.status:
        return fault
    return Unavailable(f"No section could be read: {fault.detail}", retry_after=1)
