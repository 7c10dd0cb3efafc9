"""The answer of `POST /v1/context`: the rendered prompt, with what was put in, left out and not read."""

import time
from collections.abc import Mapping, Sequence
from typing import TypeVar

from app.context import rendering, schemas
from app.context.layout import GatheredSection, PackedContext, PromptPlan
from app.context.passages import best_passage
from app.context.source import Candidate
from app.context.sources.searched import memory_item
from app.core import prompt_text
from app.retrieval.retriever import SearchWarning
from app.storage.records import damage_warnings


def answer_of(
    plan: PromptPlan, packed: PackedContext, warnings: Sequence[SearchWarning], started: float
) -> schemas.Context:
    """Returns the answer. `warnings`: of what was done with the sections, beside their own. `started`: when the work
    began, by `time.perf_counter`."""
    body = plan.body
    text, turns, sections = _rendered(body, packed)
    errors: list[schemas.SectionError] = [
        {"section": section.name, "code": error.code, "detail": error.detail}
        for section in packed.sections
        for error in (section.error, *section.result.faults)
        if error is not None
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
        "dropped": _dropped(packed, _explained(packed) if body.explain else {}),
        "budget": plan.budget,
        "errors": _each_once(errors),
        "warnings": _each_once([*gone_without, *warnings, *_rules_dropped(packed), *damage_warnings()]),
        "took_ms": {
            **{section.name: round(section.seconds * 1000, 3) for section in packed.sections},
            "total": round((time.perf_counter() - started) * 1000, 3),
        },
    }


def _rendered(
    body: schemas.ContextRequest, packed: PackedContext
) -> tuple[str, list[Candidate], list[schemas.PackedSection]]:
    """Returns the text of the prompt, the turns that become messages of their own, and what each section has."""
    sections = {section.name: section for section in packed.sections}
    shown = {name: sections[name].source.order(items) for name, items in packed.packing.chosen.items()}
    citations: dict[str, str | None] = {}
    for item in (item for items in shown.values() for item in items):
        citations.setdefault(item.id, rendering.citation_of(body, item, len(citations) + 1))
    texts, turns = list[str](), list[Candidate]()
    for name, items in shown.items():
        if body.format == "messages" and sections[name].source.holds_turns:
            turns += items
        else:
            texts.append(rendering.render_section(sections[name].source.title, items, citations))
    manifest: list[schemas.PackedSection] = [
        {
            "name": name,
            "tokens": packed.packing.tokens[name],
            "items": [
                {
                    "id": item.id,
                    "type": item.type,
                    "citation": citations[item.id],
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


def _messages(body: schemas.ContextRequest, text: str, turns: Sequence[Candidate]) -> list[schemas.PromptMessage]:
    """Returns the messages in order. What is remembered comes last, so that a model's prompt cache has all that stands
    before it: in the message of the query or, with another `memory_role`, in one of its own before it."""
    system: list[schemas.PromptMessage] = (
        [{"role": "system", "content": body.system_prompt}] if body.system_prompt else []
    )
    conversation = [message for item in turns for message in rendering.messages_of(item)]
    if body.memory_role == "user":
        return [*system, *conversation, {"role": "user", "content": f"{text}{body.query}"}]
    remembered: list[schemas.PromptMessage] = [{"role": body.memory_role, "content": text}] if text else []
    return [*system, *conversation, *remembered, {"role": "user", "content": body.query}]


# --- What was dropped -------------------------------------------------------------------------------------------------


def _dropped(packed: PackedContext, explained: Mapping[str, schemas.DroppedEntry]) -> list[schemas.Dropped]:
    """Returns what was found and is not in the prompt, once each: memories below the least importance first, then what
    packing dropped, then memories below the least score. `explained`: what each is, if the request asks for it."""
    chosen = list(packed.items)
    packed_ids, said = {item.id for item in chosen}, {key for item in chosen for key in item.keys}
    left_out = [one for section in packed.sections for one in section.result.left_out]
    items = {item.id: item for item, _ in packed.packing.dropped}
    reasons: dict[str, schemas.DropReason] = {
        one.memory["memory_id"]: one.reason for one in left_out if one.reason == "importance"
    }
    # a reminder of little importance that is due and has no room keeps its place; the reason is `section_budget`
    reasons |= {item.id: reason for item, reason in packed.packing.dropped}
    for one in left_out:
        reasons.setdefault(one.memory["memory_id"], one.reason)
    dropped = list[schemas.Dropped]()
    for item_id, reason in reasons.items():
        if item_id in packed_ids:
            continue
        entry: schemas.Dropped = {"id": item_id, "reason": reason}
        if (item := items.get(item_id)) is not None:
            if len(item.fact_ids) > 1:
                entry["links"] = list(item.fact_ids)
            if reason == "duplicate" or not said.isdisjoint(item.keys):
                entry["repeats"] = [other.id for other in chosen if other.keys & item.keys]
        if explained:
            entry["entry"] = explained[item_id]
        dropped.append(entry)
    return dropped


def _explained(packed: PackedContext) -> dict[str, schemas.DroppedEntry]:
    """Returns what each dropped item is, by id. Its tokens are counted here, also where packing ended before it."""
    explained = dict[str, schemas.DroppedEntry]()
    for section in packed.sections:
        for memory, score, _ in section.result.left_out:
            item = memory_item(memory, best_passage(memory["content"], {}), score, section.request)
            explained[item.id] = _entry_of(item, section)
    # of an item that two sections found, the first section is the one for which packing tried it first
    sections = {item.id: section for section in reversed(packed.sections) for item in section.items}
    for item, _ in packed.packing.dropped:
        entry = explained[item.id] = _entry_of(item, sections[item.id])
        if (misfit := packed.packing.misfits.get(item.id)) is not None:
            entry["needed"], entry["left"] = misfit.needed, misfit.left
    return explained


def _entry_of(item: Candidate, section: GatheredSection) -> schemas.DroppedEntry:
    return {
        "type": item.type,
        "section": section.name,
        "text": prompt_text.entry("", f"{item.prefix}{item.text}").strip(),
        "score": item.score,
        "tokens": section.tokens(item),
        "needed": None,
        "left": None,
    }


_WHY_DROPPED: Mapping[schemas.DropReason, str] = {
    "budget": "does not fit: give a larger token_budget.",
    "section_budget": "does not fit: give a larger token_budget.",
    "limit": "is past the section's limit: give `instructions` a larger `limit`.",
}


def _rules_dropped(packed: PackedContext) -> list[SearchWarning]:
    """Returns a warning for each rule that stands nowhere in the prompt. A rule that repeats another one stands there
    in the words of that one."""
    packed_ids = {item.id for item in packed.items}
    rules = {item.id for section in packed.sections if section.name == "instructions" for item in section.items}
    return [
        {"code": "instruction_left_out", "detail": f"{item.id} {_WHY_DROPPED[reason]}"}
        for item, reason in packed.packing.dropped
        if item.id in rules - packed_ids and reason in _WHY_DROPPED
    ]


T = TypeVar("T")


def _each_once(messages: Sequence[T]) -> list[T]:
    return [message for at, message in enumerate(messages) if message not in messages[:at]]
