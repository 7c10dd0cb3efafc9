"""The answer of `POST /v1/context`: the rendered prompt, with what was put in, left out and not read."""

import time
from collections.abc import Mapping, Sequence
from typing import TypeVar

from app.context import rendering
from app.context.gathering import GatheredSection
from app.context.layout import PackedContext, PromptPlan
from app.context.passages import best_passage
from app.context.schemas import (
    Context,
    ContextRequest,
    Dropped,
    DroppedEntry,
    DropReason,
    PackedSection,
    PromptMessage,
    SectionError,
)
from app.context.source import Candidate
from app.context.sources.searched import memory_item
from app.core import prompt_text
from app.retrieval.retriever import SearchWarning
from app.storage.records import damage_warnings

# --- What was left out ------------------------------------------------------------------------------------------------


def dropped_of(packed: PackedContext, explained: Mapping[str, DroppedEntry]) -> list[Dropped]:
    """Returns the dropped items: memories below the least importance first, those below the minimum score last. An item
    that two sections found is listed once."""
    chosen = list(packed.items)
    packed_ids = {item.id for item in chosen}
    left_out = [one for section in packed.sections for one in section.result.left_out]
    reasons: dict[str, DropReason] = {
        memory["memory_id"]: reason for memory, _, reason in left_out if reason == "importance"
    }
    items = dict[str, Candidate]()
    said = {key for shown in chosen for key in shown.keys}
    for item, reason in packed.packing.dropped:
        # a reminder of little importance that is due and has no room: it keeps its place in the list, and the reason
        # is `section_budget`
        reasons[item.id], items[item.id] = reason, item
    for memory, _, reason in left_out:
        reasons.setdefault(memory["memory_id"], reason)
    dropped: list[Dropped] = [
        {"id": item_id, "reason": reason} for item_id, reason in reasons.items() if item_id not in packed_ids
    ]
    for answer in dropped:
        if (found := items.get(answer["id"])) is not None:
            if len(found.fact_ids) > 1:
                answer["links"] = list(found.fact_ids)
            if answer["reason"] == "duplicate" or not said.isdisjoint(found.keys):
                answer["repeats"] = [shown.id for shown in chosen if shown.keys & found.keys]
        if explained:
            answer["entry"] = explained[answer["id"]]
    return dropped


def explain(packed: PackedContext) -> dict[str, DroppedEntry]:
    """Returns what each dropped item is, by id. Its tokens are counted here, also where packing ended before it."""
    explained = dict[str, DroppedEntry]()
    for section in packed.sections:
        for memory, score, _ in section.result.left_out:
            item = memory_item(memory, best_passage(memory["content"], {}), score, section.request)
            explained[item.id] = _entry_answer(item, section)
    # of an item that two sections found, the first section is the one for which packing tried it first
    sections = {item.id: section for section in reversed(packed.sections) for item in section.items}
    for item, _ in packed.packing.dropped:
        answer = explained[item.id] = _entry_answer(item, sections[item.id])
        if (misfit := packed.packing.misfits.get(item.id)) is not None:
            answer["needed"], answer["left"] = misfit.needed, misfit.left
    return explained


def _entry_answer(item: Candidate, section: GatheredSection) -> DroppedEntry:
    return {
        "type": item.type,
        "section": section.name,
        "text": prompt_text.entry("", f"{item.prefix}{item.text}").strip(),
        "score": item.score,
        "tokens": section.tokens(item),
        "needed": None,
        "left": None,
    }


def answer_of(
    plan: PromptPlan,
    packed: PackedContext,
    warnings: Sequence[SearchWarning],
    started: float,
    explained: Mapping[str, DroppedEntry],
) -> Context:
    """Returns the answer.

    Args:
        plan: What was to be packed.
        packed: What was packed.
        warnings: Of what was done with the sections, beside their own.
        started: When the work began, by `time.perf_counter`.
        explained: What each dropped item is, by id, if the request asks for it.
    """
    body = plan.body
    text, turns, sections = _rendered(body, packed)
    errors: list[SectionError] = [
        {"section": section.name, "code": error.code, "detail": error.detail}
        for section in packed.sections
        for error in section.faults
    ]
    gone_without = [warning for section in packed.sections for warning in section.result.warnings]
    return {
        "intent": plan.intent,
        "messages": _messages(body, text, turns) if body.format == "messages" else [],
        "text": text,
        "tokens": packed.packing.total,
        "query_tokens": prompt_text.count(body.query),
        "system_prompt_tokens": prompt_text.count(body.system_prompt or ""),
        "sections": sections,
        "dropped": dropped_of(packed, explained),
        "budget": plan.budget,
        "errors": _each_once(errors),
        "warnings": _each_once([*gone_without, *warnings, *_rules_left_out(packed), *damage_warnings()]),
        "took_ms": {
            **{section.name: round(section.seconds * 1000, 3) for section in packed.sections},
            "total": round((time.perf_counter() - started) * 1000, 3),
        },
    }


def _rendered(body: ContextRequest, packed: PackedContext) -> tuple[str, list[Candidate], list[PackedSection]]:
    """Returns the text of the prompt, the turns that become messages of their own, and what each section has."""
    sections = {section.name: section for section in packed.sections}
    shown = {
        name: rendering.in_reading_order(sections[name].source.order, items)
        for name, items in packed.packing.chosen.items()
    }
    numbers: dict[str, str] = {}
    for items in shown.values():
        for item in items:
            numbers.setdefault(item.id, str(len(numbers) + 1))
    citation = rendering.citing(body, numbers)
    texts, turns = list[str](), list[Candidate]()
    for name, items in shown.items():
        if body.format == "messages" and sections[name].source.holds_turns:
            turns += items
        else:
            texts.append(rendering.render_section(sections[name].source.title, items, citation))
    manifest: list[PackedSection] = [
        {
            "name": name,
            "tokens": packed.packing.tokens[name],
            "items": [
                {
                    "id": item.id,
                    "type": item.type,
                    "citation": citation(item),
                    "score": item.score,
                    "links": list(item.fact_ids),
                    "tokens": sections[name].tokens(item),
                }
                for item in items
            ],
        }
        for name, items in shown.items()
    ]
    return rendering.block(texts, packed.line_above), turns, manifest


def _messages(body: ContextRequest, text: str, turns: Sequence[Candidate]) -> list[PromptMessage]:
    """Returns the messages in order. What is remembered comes last, so that a model's prompt cache has all that stands
    before it: in the message of the query or, with another `memory_role`, in one of its own before it."""
    system: list[PromptMessage] = [{"role": "system", "content": body.system_prompt}] if body.system_prompt else []
    conversation = [message for item in turns for message in rendering.messages_of(item)]
    if body.memory_role == "user":
        return [*system, *conversation, {"role": "user", "content": f"{text}{body.query}"}]
    remembered: list[PromptMessage] = [{"role": body.memory_role, "content": text}] if text else []
    return [*system, *conversation, *remembered, {"role": "user", "content": body.query}]


_WHY_LEFT_OUT: Mapping[DropReason, str] = {
    "budget": "does not fit: give a larger token_budget.",
    "section_budget": "does not fit: give a larger token_budget.",
    "limit": "is past the section's limit: give `instructions` a larger `limit`.",
}


def _rules_left_out(packed: PackedContext) -> list[SearchWarning]:
    """Returns a warning for each rule that stands nowhere in the prompt. A rule that repeats another one stands there
    in the words of that one."""
    packed_ids = {item.id for item in packed.items}
    rules = {item.id for section in packed.sections if section.name == "instructions" for item in section.items}
    return [
        {"code": "instruction_left_out", "detail": f"{item.id} {_WHY_LEFT_OUT[reason]}"}
        for item, reason in packed.packing.dropped
        if item.id in rules - packed_ids and reason in _WHY_LEFT_OUT
    ]


T = TypeVar("T")


def _each_once(messages: Sequence[T]) -> list[T]:
    return [message for at, message in enumerate(messages) if message not in messages[:at]]
