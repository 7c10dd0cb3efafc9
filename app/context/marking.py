"""Marks what is out of date in the texts of a prompt, and what a finding of a judge names.

"I live in Oslo and have a dog" beside a home in Bergen becomes "I live in Oslo (home since 2026-11-01: Bergen) and have
a dog": a mark stands behind the words that it is about, and each statement gets one. It states the present fact, so it
is true beside any text. A text gets it if a value was learned from it that has since been replaced
(`app/facts/outdated.py`), or if whom the fact is about said it before the present value began, and it has an earlier
value word for word. Marks are made when a prompt is, so a prompt of another time has those of that time.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, tzinfo
from typing import NamedTuple

from app.context.layout import GatheredSection
from app.context.rendering import one_line
from app.context.source import Candidate, JudgedStatement, SourceRequest
from app.core.clock import day_of, rfc3339
from app.core.language import Letters, place_of, words
from app.core.work import in_parts, off_loop
from app.errors import RecalldError
from app.facts.outdated import MOST_GROUPS, ReplacedValue, Utterance, outdated, values_behind
from app.facts.repository import FactRepository, View, of_partitions
from app.findings.replacing import is_learned_from
from app.memories.schemas import MemoryRecord
from app.profiles.agents import NamedUser
from app.resources import Resources
from app.retrieval.retriever import SearchWarning
from app.storage.schema import Eq, both
from app.storage.scope import Scope, Viewpoint

SHOWN_CHARS = 60
"""The maximum length of a value in a mark."""


async def mark_sections(
    sections: Sequence[GatheredSection], request: SourceRequest
) -> tuple[list[GatheredSection], list[SearchWarning]]:
    """Returns the sections with marked texts, and warnings.

    Marked is what states a value of a fact that was replaced by `as_of`, and what repeats a judged
    statement, or is a fact that was learned from it. If the facts cannot be read, no value is marked, and a warning
    says so.
    """
    judged = [statement for section in sections for statement in section.result.judged]
    items = [item for section in sections if section.source.gets_marks for item in section.items]
    facts = [fact for section in sections for fact in section.result.facts]
    # nothing gets marks: neither texts, nor facts that were learned from judged words
    if not items and not (judged and facts):
        return list(sections), []
    values, warnings = list[ReplacedValue](), list[SearchWarning]()
    try:
        async with asyncio.timeout(request.resources.tuning.section_seconds):
            if items:  # values of the profile, of facts that were found, and learned in the sessions of these texts
                sessions = (item.utterance.session for item in items if item.utterance is not None)
                groups = [fact["group_id"] for fact in facts if fact["cardinality"] == "one"]
                repository = FactRepository(request.resources.store, request.scope)
                values = await values_behind(repository, request.viewpoint, sessions, groups)
    except (RecalldError, TimeoutError):
        warnings.append({"code": "values_unmarked", "detail": "Earlier values of facts are not marked."})
    if not values and not judged:
        return list(sections), warnings
    names = [name for section in sections for name in section.result.names]
    names += [] if request.body.user_id is None else [request.body.user_id]
    by_id = {fact["fact_id"]: fact for fact in facts}

    def with_marks(item: Candidate) -> Candidate:
        if item.fact_ids:
            # a fact has its time, but "The user lives in Rome", learned from replaced words, gets the mark of these
            marks = [
                Mark(place_of(fact["object"], item.text) or (0, len(item.text)), judged_mark(statement, request.zone))
                for fact in (by_id[fact_id] for fact_id in item.fact_ids if fact_id in by_id)
                for statement in judged
                if statement.replaced and is_learned_from(fact, statement.id, statement.words)
            ]
        else:
            marks = value_marks(item.text, item.memory_id, item.utterance, values, names, request.zone)
            marks += judged_marks(item, judged, request.zone)
        return replace(item, text=inserted(item.text, marks)) if marks else item

    marked_sections = list(sections)
    for at, section in enumerate(sections):
        if section.source.gets_marks or (judged and section.result.facts):  # `facts` gets no marks but of judged words
            marked_items = await in_parts(section.items, with_marks, lambda item: len(item.text))
            marked_sections[at] = replace(section, result=replace(section.result, items=marked_items))
    return marked_sections, warnings


class Mark(NamedTuple):
    """A mark and where the words stand that it is about: "Oslo" of "I live in Oslo" at (10, 14)."""

    span: tuple[int, int]
    text: str


def inserted(text: str, marks: Sequence[Mark]) -> str:
    """Returns the text with each mark behind its words. Of marks about the same words the one about fewer is taken."""
    taken: list[Mark] = []
    for mark in sorted(marks, key=lambda mark: mark.span[1] - mark.span[0]):
        if not any(mark.span[0] < other.span[1] and other.span[0] < mark.span[1] for other in taken):
            taken.append(mark)
    for (_, end), shown in sorted(taken, reverse=True):
        # at the end of the text it stands behind the full stop
        behind = end if any(map(str.isalnum, text[end:])) else len(text)
        text = f"{text[:behind]} {shown}{text[behind:]}"
    return text


# --- Values that were replaced ----------------------------------------------------------------------------------------


def value_marks(
    text: str,
    memory_id: str | None,
    utterance: Utterance | None,
    values: Iterable[ReplacedValue],
    names: Sequence[str],
    zone: tzinfo = UTC,
) -> list[Mark]:
    """Returns the marks of the replaced values that a text states: each is about the value, or else about the words
    that it was learned from, or about all of a text that says it in other words. `zone`: whose days the marks name."""
    letters, marks = Letters.of(text), list[Mark]()
    for value in outdated(letters, memory_id, utterance, values, names):
        quote = Letters.of(value.earlier["source"].get("quote") or "")
        span = letters.place_of(value.letters) or letters.place_of(quote) or (len(text), len(text))
        shown = one_line(str(value.present["object"]), SHOWN_CHARS)
        marks.append(Mark(span, f"({value.stated(shown, zone)})"))
    return marks


# --- What findings of a judge name ------------------------------------------------------------------------------------

SHOWN_OTHER = 80
"""Characters of a statement that a mark shows."""
LEAST_WORDS = 4
"""A shorter statement, such as "How are you?", is no repetition."""


def judged_marks(item: Candidate, judged: Sequence[JudgedStatement], zone: tzinfo = UTC) -> list[Mark]:
    """Returns the marks of what a finding doubts or has replaced, what was replaced first, by what was said last."""
    ordered = sorted(judged, key=lambda statement: (statement.replaced, statement.other_at), reverse=True)
    return [
        Mark(span, judged_mark(statement, zone))
        for statement in ordered
        if (span := _span_of(statement, item)) is not None
    ]


def _span_of(statement: JudgedStatement, item: Candidate) -> tuple[int, int] | None:
    """Returns where a candidate has a statement: it is the record that a finding names, or a part of it, or it repeats
    the statement word for word, as a summary may. Who reads both statements in the order in which they were said needs
    no mark."""
    span = place_of(statement.words, item.text)
    if item.id == statement.id:
        is_part = span is None and place_of(item.text, statement.words) is not None
        return (0, len(item.text)) if is_part else span
    if span is None or len(words(statement.words)) < LEAST_WORDS:
        return None
    is_read_in_order = (
        not statement.replaced and statement.other_is_later and place_of(statement.other_words, item.text) is not None
    )
    return None if is_read_in_order else span


def judged_mark(statement: JudgedStatement, zone: tzinfo = UTC) -> str:
    """Returns the mark of what a finding has replaced, such as "(until 2026-05-05: I now live in Oslo.)", or doubts:
    "(uncertain; later, 2026-05-05: I now live in Oslo.)"."""
    day, other = day_of(statement.other_at, zone), one_line(statement.other_words, SHOWN_OTHER)
    if statement.replaced:
        return f"(until {day}: {other})"
    return f"(uncertain; {'later' if statement.other_is_later else 'earlier'}, {day}: {other})"


# --- Memories of an experience prompt, which has no sections ----------------------------------------------------------


async def marked_memories(
    resources: Resources, scope: Scope, agent_id: str, zone: tzinfo, user: NamedUser, memories: list[MemoryRecord]
) -> list[MemoryRecord]:
    """Returns memories of a user with marks behind the texts that state replaced values."""
    if not memories:
        return []
    facts, user_id, now = FactRepository(resources.store, scope), user["user_id"], rfc3339(resources.clock.now())
    partitions = scope.partitions(agent_id, user_id, include_shared=True)
    single = both(View(now).believed(), Eq("cardinality", "one"))
    groups = [
        fact["group_id"]
        for of_user in of_partitions(partitions)
        for fact in await facts.find(both(of_user, single), limit=MOST_GROUPS)
    ]
    utterances = {memory["memory_id"]: Utterance.in_memory(memory) for memory in memories}
    sessions = (utterance.session for utterance in utterances.values())
    values = await values_behind(facts, Viewpoint(partitions, user_id, now, now), sessions, groups)
    names = [name for name in (user_id, user["name"]) if name]

    def with_marks(memory: MemoryRecord) -> MemoryRecord:
        memory_id, text = memory["memory_id"], memory["content"]
        marks = value_marks(text, memory_id, utterances[memory_id], values, names, zone)
        return memory | {"content": inserted(text, marks)}

    return await off_loop(sum(len(memory["content"]) for memory in memories), lambda: list(map(with_marks, memories)))
