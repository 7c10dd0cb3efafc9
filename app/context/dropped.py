"""What was found and left out of a prompt, and why: in every answer its id and what says it already, with `explain`
what it is."""

from collections.abc import Iterator, Mapping
from typing import NotRequired, TypedDict

from app.context.candidates import Candidate
from app.context.gathering import Gathered
from app.context.layout import PackedContext
from app.context.packing import with_partners
from app.context.passages import passage
from app.context.schemas import DropReason
from app.context.sources.searched import memory_item
from app.core import prompt_text


class EntryAnswer(TypedDict):
    """What a dropped entry is, as `schemas.DroppedEntry` describes it."""

    type: str
    section: str
    text: str
    score: float | None
    tokens: int
    needed: int | None
    left: int | None


class DroppedAnswer(TypedDict):
    """What was left out, as `schemas.Dropped` describes it."""

    id: str
    reason: DropReason
    links: NotRequired[list[str]]
    repeats: NotRequired[list[str]]
    entry: NotRequired[EntryAnswer]


def dropped_of(prompt: PackedContext, explained: Mapping[str, EntryAnswer]) -> list[DroppedAnswer]:
    """Returns the dropped items, hidden ones first. An item that two sections found is listed once."""
    chosen = list(prompt.chosen)
    packed_ids = {item.id for item in chosen}
    reasons: dict[str, DropReason] = {
        memory["memory_id"]: "importance" for section in prompt.sections for memory in section.result.hidden
    }
    chains, repetitions = dict[str, Candidate](), dict[str, Candidate]()
    for item, reason in prompt.packed.dropped:
        # hidden ones keep their place, but the reason why one was dropped as an item of another section counts
        reasons[item.id] = reason
        if reason == "duplicate" or item.id in prompt.packed.said:
            repetitions[item.id] = item
        if len(item.links) > 1:
            chains[item.id] = item
    dropped: list[DroppedAnswer] = [
        {"id": item_id, "reason": reason} for item_id, reason in reasons.items() if item_id not in packed_ids
    ]
    for answer in dropped:
        if answer["id"] in chains:
            answer["links"] = list(chains[answer["id"]].links)
        if answer["id"] in repetitions:
            answer["repeats"] = [entry.id for entry in chosen if entry.keys & repetitions[answer["id"]].keys]
        if explained:
            answer["entry"] = explained[answer["id"]]
    return dropped


def explain(prompt: PackedContext) -> dict[str, EntryAnswer]:
    """Returns what each dropped item is, by id. Its tokens are counted here, also where packing ended before it."""
    explained = dict[str, EntryAnswer]()
    for section in prompt.sections:
        for memory in section.result.hidden:
            item = memory_item(memory, passage(memory["content"], {}), None, section.request)
            explained[item.id] = _entry_answer(item, section)
    sections = dict(_sections_of_items(prompt))
    for item, _ in prompt.packed.dropped:
        answer = explained[item.id] = _entry_answer(item, sections[item.id])
        if (misfit := prompt.packed.misfits.get(item.id)) is not None:
            answer["needed"], answer["left"] = misfit.needed, misfit.left
    return explained


def _sections_of_items(prompt: PackedContext) -> Iterator[tuple[str, Gathered]]:
    """Yields (id, section) of each item, and of each fact that a chain states. Of an item that two sections found the
    first section comes last: it is where packing tried it first."""
    for section in reversed(prompt.sections):
        for item in with_partners(section.items):
            yield from ((fact_id, section) for fact_id in item.links)
            yield item.id, section


def _entry_answer(item: Candidate, section: Gathered) -> EntryAnswer:
    return {
        "type": item.type,
        "section": section.section,
        "text": prompt_text.entry("", f"{item.prefix}{item.text}").strip(),
        "score": item.score,
        "tokens": section.tokens(item),
        "needed": None,
        "left": None,
    }
