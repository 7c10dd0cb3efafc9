"""The answer of `POST /v1/context`: the rendered parts of the prompt, with what was put in, left out and not read."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NotRequired, TypedDict, TypeVar

from app.context import rendering
from app.context.candidates import Candidate, PromptMessage
from app.context.dropped import DroppedAnswer, EntryAnswer, dropped_of
from app.context.gathering import Gathered, warnings_of
from app.context.layout import PackedParts, PromptPart, PromptPlan
from app.context.schemas import ContextRequest, DropReason, Intent
from app.core import prompt_text
from app.retrieval.retriever import SearchWarning
from app.storage.records import damage_warnings


class PackedItemAnswer(TypedDict):
    """An item of a section, as `schemas.PackedItem` describes it."""

    id: str
    type: str
    citation: str | None
    score: float | None
    links: list[str]
    tokens: int


class SectionAnswer(TypedDict):
    """A section of the prompt, as `schemas.PackedSection` describes it."""

    name: str
    tokens: int
    items: list[PackedItemAnswer]


class PromptPartAnswer(TypedDict):
    """A part of the cached layout. `etag`: of `stable` alone."""

    text: str | None
    tokens: int
    etag: NotRequired[str]
    sections: list[SectionAnswer]


class CachedAnswer(TypedDict, total=False):
    """What the cached layout has beside the whole."""

    stable: PromptPartAnswer
    volatile: PromptPartAnswer


class ContextAnswer(CachedAnswer):
    """The answer, as `schemas.Context` describes it."""

    intent: Intent
    messages: list[PromptMessage]
    text: str
    tokens: int
    query_tokens: int
    system_prompt_tokens: int
    sections: list[SectionAnswer]
    dropped: list[DroppedAnswer]
    budget: int
    errors: list[dict[str, str]]
    warnings: list[SearchWarning]
    took_ms: dict[str, float]


@dataclass(frozen=True, slots=True)
class RenderedPart:
    """A part of the prompt as text, the turns that become messages of their own, and its manifest."""

    text: str
    turns: list[Candidate]
    sections: list[SectionAnswer]


def answer_of(
    plan: PromptPlan,
    parts: PackedParts,
    read: Sequence[Gathered],
    warnings: Sequence[SearchWarning],
    started: float,
    explained: Mapping[str, EntryAnswer],
) -> ContextAnswer:
    """Returns the answer.

    Args:
        plan: What was to be packed.
        parts: What was packed.
        read: All sections that were read, some of them more than once.
        warnings: Of what was done with them, beside their own.
        started: When the work began, by `time.perf_counter`.
        explained: What was dropped is, by id, if the request asks for it.
    """
    body = plan.body
    stable, turns, volatile = (render_part(body, part) for part in parts)
    seconds: dict[str, float] = {}
    for section in read:  # the cached layout reads the profile as of the beginning, and as of now
        seconds[section.section] = seconds.get(section.section, 0.0) + section.seconds
    return {
        "intent": plan.intent,
        "messages": _messages(body, stable, turns, volatile) if body.format == "messages" else [],
        "text": stable.text + volatile.text,
        "tokens": parts.total,
        "query_tokens": prompt_text.count(body.query),
        "system_prompt_tokens": prompt_text.count(body.system_prompt or ""),
        "sections": [*stable.sections, *turns.sections, *volatile.sections],
        "dropped": dropped_of(parts, read, explained),
        **_cached_answer(body, parts, stable, volatile),
        "budget": plan.budget,
        "errors": _each_once(
            [
                {"section": section.section, "code": error.code, "detail": error.detail}
                for section in read
                for error in section.faults
            ]
        ),
        "warnings": _each_once([*warnings_of(read), *warnings, *_rules_left_out(parts), *damage_warnings()]),
        "took_ms": {
            **{name: round(of_section * 1000, 3) for name, of_section in seconds.items()},
            "total": round((time.perf_counter() - started) * 1000, 3),
        },
    }


def render_part(body: ContextRequest, part: PromptPart) -> RenderedPart:
    """Returns a part of the prompt as text, the turns that become messages, and the manifest."""
    sections = {section.section: section for section in part.sections}
    prefix = part.sections[0].citation_prefix if part.sections else ""
    shown = {
        name: rendering.in_reading_order(sections[name].source.order, items)
        for name, items in part.packed.chosen.items()
    }
    numbers: dict[str, str] = {}
    for items in shown.values():
        for item in items:
            numbers.setdefault(item.id, f"{prefix}{len(numbers) + 1}")
    citation = rendering.citing(body, numbers, prefix)
    texts, turns = list[str](), list[Candidate]()
    for name, items in shown.items():
        if body.format == "messages" and sections[name].source.holds_turns:
            turns += items
        else:
            texts.append(rendering.render_section(sections[name].source.title, items, citation))
    manifest: list[SectionAnswer] = [
        {
            "name": name,
            "tokens": part.packed.tokens[name],
            "items": [
                {
                    "id": item.id,
                    "type": item.type,
                    "citation": citation(item),
                    "score": item.score,
                    "links": list(item.links),
                    "tokens": sections[name].tokens(item),
                }
                for item in items
            ],
        }
        for name, items in shown.items()
    ]
    return RenderedPart(rendering.block(texts, part.line_above), turns, manifest)


def _messages(
    body: ContextRequest, stable: RenderedPart, turns: RenderedPart, volatile: RenderedPart
) -> list[PromptMessage]:
    """Returns the messages in order: in the default layout all that is remembered before the turns, in the cached one
    what the query needs behind them."""
    system: list[PromptMessage] = [{"role": "system", "content": body.system_prompt}] if body.system_prompt else []
    remembered, needed = _fenced(body, stable), _fenced(body, volatile)
    conversation = [message for item in (*turns.turns, *volatile.turns) for message in rendering.messages_of(item)]
    query: PromptMessage = {"role": "user", "content": body.query}
    if body.layout == "cached":
        return [*system, *remembered, *conversation, *needed, query]
    return [*system, *needed, *conversation, query]


def _fenced(body: ContextRequest, part: RenderedPart) -> list[PromptMessage]:
    """Returns the message of a part of the prompt, if the part has text."""
    return [{"role": body.memory_role, "content": part.text}] if part.text else []


def _cached_answer(
    body: ContextRequest, parts: PackedParts, stable: RenderedPart, volatile: RenderedPart
) -> CachedAnswer:
    if body.layout != "cached":
        return {}
    etag = blake2b(stable.text.encode(), digest_size=16).hexdigest()
    return {
        "stable": {
            "text": None if body.stable_etag == etag else stable.text,
            "tokens": parts.stable.packed.total,
            "etag": etag,
            "sections": stable.sections,
        },
        "volatile": {
            "text": volatile.text,
            "tokens": parts.volatile.packed.total,
            "sections": volatile.sections,
        },
    }


_WHY_LEFT_OUT: Mapping[DropReason, str] = {
    "budget": "does not fit: give a larger token_budget.",
    "section_budget": "does not fit: give a larger token_budget.",
    "limit": "is past the section's limit: give `instructions` a larger `limit`.",
}


def _rules_left_out(parts: PackedParts) -> list[SearchWarning]:
    """Returns a warning for each rule that stands nowhere in the prompt. A rule that repeats another one stands there
    in the words of that one."""
    packed_ids = {item.id for item in parts.chosen}
    warnings = list[SearchWarning]()
    for part in parts:
        rules = {item.id for section in part.sections if section.section == "instructions" for item in section.items}
        warnings += [
            {"code": "instruction_left_out", "detail": f"{item.id} {_WHY_LEFT_OUT[reason]}"}
            for item, reason in part.packed.dropped
            if item.id in rules - packed_ids and reason in _WHY_LEFT_OUT
        ]
    return warnings


T = TypeVar("T")


def _each_once(messages: Sequence[T]) -> list[T]:
    return [message for at, message in enumerate(messages) if message not in messages[:at]]
