"""Marks the texts of a prompt that are out of date, and those that a finding of a judge names.

"I live in Oslo" beside a home in Bergen becomes "I live in Oslo (home since 2026-11-01: Bergen)". The mark states the
present fact, so it is true beside any text. A text gets it if a value was learned from it that has since been replaced
(`app/facts/outdated.py`), or if whom the fact is about said it before the present value began, and it has an earlier
value word for word. Marks are made when a prompt is, so a prompt of another time has those of that time.
"""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, tzinfo

from app.context.gathering import Gathered
from app.context.rendering import one_line
from app.context.source import Candidate, JudgedStatement, SourceRequest
from app.core.clock import day_of
from app.core.language import Letters, place_of, sentences, words
from app.core.work import in_parts, off_loop
from app.errors import RecalldError
from app.facts.outdated import MOST_GROUPS, ReplacedValue, Utterance, outdated, values_behind
from app.facts.repository import FactRepository, View, of_partitions
from app.facts.schemas import FactRecord
from app.memories.schemas import MemoryRecord
from app.profiles.agents import NamedUser
from app.retrieval.retriever import SearchWarning
from app.storage.schema import Eq, Or, both

SHOWN_CHARS = 60
"""The maximum length of a value in a mark."""


def judged_in(sections: Sequence[Gathered]) -> list[JudgedStatement]:
    """Returns the statements of findings that the sections name."""
    return [statement for section in sections for statement in section.result.judged]


async def mark_sections(
    sections: Sequence[Gathered], request: SourceRequest, judged: Sequence[JudgedStatement]
) -> tuple[list[Gathered], list[SearchWarning]]:
    """Returns the sections with marked texts, and warnings.

    Marked is what states a value of a fact that was replaced as of the request's time, and what repeats a judged
    statement. If the facts cannot be read, no value is marked, and a warning says so.
    """
    items = [item for section in sections if section.source.marked for item in section.items]
    if not items:
        return list(sections), []
    facts = [fact for section in sections for fact in section.result.facts]
    values, warnings = list[ReplacedValue](), list[SearchWarning]()
    try:
        async with asyncio.timeout(request.resources.tuning.section_seconds):
            values = await values_of(request, facts, items)
    except (RecalldError, TimeoutError):
        warnings.append({"code": "values_unmarked", "detail": "Earlier values of facts are not marked."})
    if not values and not judged:
        return list(sections), warnings
    names = [name for section in sections for name in section.result.names]
    names += [] if request.body.user_id is None else [request.body.user_id]

    def mark(item: Candidate) -> Candidate:
        return mark_judged(mark_values(item, values, names, request.zone), judged, request.zone)

    return [
        section.with_items(await in_parts(section.items, mark, lambda item: len(item.text)))
        if section.source.marked
        else section
        for section in sections
    ], warnings


# --- Values that were replaced ----------------------------------------------------------------------------------------


def marked(
    text: str,
    memory_id: str | None,
    utterance: Utterance | None,
    values: Iterable[ReplacedValue],
    names: Sequence[str],
    zone: tzinfo = UTC,
) -> str:
    """Returns the text with a mark for each replaced value that it states. `zone`: whose days the marks name."""
    stated = outdated(Letters.of(text), memory_id, utterance, values, names)
    marks = (f"({value.stated(one_line(str(value.present['object']), SHOWN_CHARS), zone)})" for value in stated)
    return " ".join([text, *dict.fromkeys(marks)])


def mark_values(
    item: Candidate, values: Sequence[ReplacedValue], names: Sequence[str], zone: tzinfo = UTC
) -> Candidate:
    """Returns the candidate and its partner with marks behind the texts that state replaced values. `names`: of the
    user."""
    if not values:
        return item
    partner = None if item.partner is None else mark_values(item.partner, values, names, zone)
    return item.marked(marked(item.text, item.memory_id, item.utterance, values, names, zone), partner)


async def values_of(
    request: SourceRequest, facts: Sequence[FactRecord], items: Sequence[Candidate] = ()
) -> list[ReplacedValue]:
    """Returns the replaced values that a prompt may show: of the profile, of `facts`, and those that were learned in
    the sessions of `items`."""
    body, repository = request.body, FactRepository(request.resources.store, request.scope)
    single_valued = [fact["group_id"] for fact in facts if fact["cardinality"] == "one"]
    utterances = (item.utterance for item in items)
    return await values_behind(repository, body.user_id, utterances, request.as_of, body.known_at, single_valued)


async def marked_memories(
    facts: FactRepository, agent_id: str, profile: NamedUser, memories: Sequence[MemoryRecord], now: str, zone: tzinfo
) -> list[MemoryRecord]:
    """Returns memories with marks behind the texts that state replaced values. `profile`: the user's id and name."""
    if not memories:
        return []
    user_id = profile["user_id"]
    partitions = facts.scope.partitions(agent_id, user_id, include_shared=True)
    single = both(View(now).believed(), Eq("cardinality", "one"), Or(tuple(of_partitions(partitions))))
    single_valued = await facts.find(single, limit=MOST_GROUPS) if partitions else []
    utterances = {memory["memory_id"]: Utterance.in_memory(memory) for memory in memories}
    groups = [fact["group_id"] for fact in single_valued]
    values = await values_behind(facts, user_id, utterances.values(), now, more=groups)
    names = [str(name) for name in (user_id, profile["name"]) if name]

    def with_marks(memory: MemoryRecord) -> MemoryRecord:
        memory_id = memory["memory_id"]
        return memory | {"content": marked(memory["content"], memory_id, utterances[memory_id], values, names, zone)}

    return await off_loop(sum(len(memory["content"]) for memory in memories), lambda: list(map(with_marks, memories)))


# --- What findings of a judge name ------------------------------------------------------------------------------------

SHOWN_OTHER = 80
"""Characters of a sentence that a mark shows."""
LEAST_WORDS = 4
"""A shorter sentence, such as "How are you?", is no repetition."""


def mark_judged(item: Candidate, judged: Sequence[JudgedStatement], zone: tzinfo = UTC) -> Candidate:
    """Returns the candidate and its partner with a mark behind each text that says what a finding doubts or has
    replaced."""
    if not judged:
        return item
    partner = None if item.partner is None else mark_judged(item.partner, judged, zone)
    marks = [judged_mark(statement, item.text, zone) for statement in judged if _says(item, statement)]
    return item.marked(" ".join([item.text, *dict.fromkeys(marks)]), partner)


def _says(item: Candidate, statement: JudgedStatement) -> bool:
    """Returns whether a candidate is the record that a finding names, or repeats its sentence word for word, as a
    summary may. Who reads both sentences in the order in which they were said needs no mark."""
    if item.id == statement.id:
        return True
    if len(words(statement.text)) < LEAST_WORDS or place_of(statement.text, item.text) is None:
        return False
    return statement.settled or not statement.later or place_of(statement.other, item.text) is None


def judged_mark(statement: JudgedStatement, text: str, zone: tzinfo = UTC) -> str:
    """Returns the mark of a text that says what a finding doubts or has replaced, such as "(uncertain; later,
    2026-05-05: I now live in Oslo.)". If the text says other things, too, the mark names the sentence."""
    alone = len(sentences(text)) <= len(sentences(statement.text))
    named = "" if alone else f", \u201c{one_line(statement.text, SHOWN_OTHER)}\u201d"
    day, other = day_of(statement.other_at, zone), one_line(statement.other, SHOWN_OTHER)
    if statement.settled:
        return f"(earlier{named}; since {day}: {other})"
    return f"(uncertain{named}; {'later' if statement.later else 'earlier'}, {day}: {other})"
