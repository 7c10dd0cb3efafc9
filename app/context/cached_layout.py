"""The layout for a model's prompt cache (`layout: cached`): what was known when the conversation began, which stays the
same; the turns; and what this query needs.

What is known now is read, too. What of it was not known at the beginning, and what no longer holds, stands in a section
`newer` behind the turns: "home: Bergen", "no longer: home: Oslo".
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction

from app.context import rendering
from app.context.candidates import Candidate
from app.context.gathering import Gathered, gather_sections
from app.context.layout import PackedParts, PromptPart, PromptPlan, about_tokens, section_of, stop_rule_of
from app.context.marking import judged_in, mark_sections
from app.context.packing import Packer
from app.context.source import ContextSource, SourceRequest, SourceResult
from app.context.sources.findings import UNCERTAIN
from app.context.sources.session import WINDOW_SOURCE, session_of
from app.context.sources.stable import RULES
from app.core import prompt_text
from app.core.clock import parse_rfc3339, rfc3339
from app.retrieval.retriever import SearchWarning
from app.sessions.repository import SessionRepository

STABLE_PREFIX = "S"
STABLE_SHARE = Fraction(7, 20)
"""Most of the budget that what stays the same may take."""
VOLATILE_FIXED_SHARE = Fraction(4, 5)
"""Share of what changes for the task in hand and what is newer. More than in the default layout, where rules, profile
and turns are in that share, too."""
LATEST = "9999"
"""Later than any time."""


async def _follows_from_others(_: SourceRequest) -> SourceResult:
    return SourceResult()


NEWER = ContextSource(
    "newer", "Newer than the beginning of this conversation", _follows_from_others, default_limit=30, share=0.15
)


@dataclass(frozen=True, slots=True)
class CachedConversation:
    """What was known when the conversation began, with the rules of now, and what became known since."""

    start: SourceRequest
    """The request as of the beginning."""
    at_start: Sequence[Gathered]
    """The sections of the part that stays the same."""
    at_present: Sequence[Gathered]
    """The same sections as of now, as far as both were read. They have the entries that are new since."""
    ended: Sequence[Candidate]
    """Entries of the beginning that no longer hold."""
    readings: Sequence[Gathered]
    """All that was read for it, in both times, also what failed."""

    @property
    def began_at(self) -> str:
        """When the conversation began (RFC 3339)."""
        return rfc3339(self.start.now)


def volatile_sources(sources: Sequence[ContextSource]) -> list[ContextSource]:
    """Returns the sources of what may change with each query. Rules stand in what stays the same."""
    return [WINDOW_SOURCE if source.holds_turns else source for source in sources if source.section != "instructions"]


async def read_conversation(request: SourceRequest, lasting: Sequence[ContextSource]) -> CachedConversation:
    """Reads what was known when the conversation began, and what of it is known now. `lasting`: the sources of what
    stays the same, beside the rules."""
    began_at = await began(request)
    # what is shown does not depend on the query
    present = replace(request, body=request.body.model_copy(update={"query": ""}), interval=None)
    then = {"as_of": request.body.as_of or rfc3339(began_at), "known_at": _known_at_start(request, began_at)}
    start = replace(present, now=began_at, body=present.body.model_copy(update=then))
    at_start, at_present, rules = await asyncio.gather(
        gather_sections(lasting, start),
        gather_sections(lasting, present),
        gather_sections([RULES], replace(request, interval=None)),
    )
    stable = [replace(section, citation_prefix=STABLE_PREFIX) for section in (*rules, *at_start)]
    return CachedConversation(start, stable, *_compared(at_start, at_present), readings=[*stable, *at_present])


async def began(request: SourceRequest) -> datetime:
    """Returns when the conversation began. Without a session it is the beginning of the caller's day; a session that
    does not exist yet begins now. Asked for another time, a session begins with its first message."""
    if request.body.session_id is None:
        return request.now.astimezone(request.zone).replace(hour=0, minute=0, second=0, microsecond=0)
    sessions = SessionRepository(request.resources.store, request.scope)
    session = await session_of(request, sessions)
    if session is None:
        return request.now
    if request.body.now is None:
        return min(parse_rfc3339(session["created_at"]), request.now)
    first = await sessions.messages.find(sessions.said_in(session), order="asc", limit=1)
    return min(parse_rfc3339(first[0]["timestamp"]), request.now) if first else request.now


def _known_at_start(request: SourceRequest, began_at: datetime) -> str | None:
    """Returns as of which knowledge the beginning is read.

    In a conversation that goes on now it is what was known when it began, so that what is learned meanwhile does not
    change the text. Who gives `now` asks for a conversation of another time, for example one that was imported today:
    nothing was known then, so what is known of that time now is read, unless the caller says otherwise.
    """
    if request.body.now is not None:
        return request.body.known_at
    return min(rfc3339(began_at), request.body.known_at or LATEST)


def _compared(at_start: Sequence[Gathered], at_present: Sequence[Gathered]) -> tuple[list[Gathered], list[Candidate]]:
    """Returns the present sections with their new entries alone, and the entries of the beginning that have ended."""
    then = {section.section: section for section in at_start if section.error is None}
    newer, ended = list[Gathered](), list[Candidate]()
    for section in at_present:
        if section.error is not None or section.section not in then:
            continue
        lines_then = {item.unmarked_line for item in then[section.section].items}
        lines_now = {item.unmarked_line for item in section.items}
        newer.append(section.with_items([item for item in section.items if item.unmarked_line not in lines_then]))
        if section.source.tells_ended:
            ended += [item for item in then[section.section].items if item.unmarked_line not in lines_now]
    return newer, ended


async def mark_conversation(
    conversation: CachedConversation, request: SourceRequest, sections: Sequence[Gathered]
) -> tuple[CachedConversation, list[SearchWarning]]:
    """Returns the conversation with marked texts, and warnings: what stays the same as of the beginning, and what is
    newer as of now. `sections`: those of the query, of which one has read the findings."""
    # The source of what is uncertain reads the same findings whatever the query is; that of memories only those of its
    # hits. By the latter, marks would come and go in a text that a model caches.
    always_read = judged_in([section for section in sections if section.section == UNCERTAIN.section])
    known_at, as_of = conversation.start.body.known_at, conversation.start.as_of
    judged_then = [
        statement
        for statement in always_read
        if (known_at is None or statement.found_at <= known_at) and statement.other_at <= as_of
    ]
    (at_start, warnings), (at_present, more) = await asyncio.gather(
        mark_sections(conversation.at_start, conversation.start, judged_then),
        mark_sections(conversation.at_present, request, judged_in(sections)),
    )
    return replace(conversation, at_start=at_start, at_present=at_present), [*warnings, *more]


def pack_cached(conversation: CachedConversation, plan: PromptPlan, gathered: Sequence[Gathered]) -> PackedParts:
    """Packs first what stays the same, within a part of the budget that nothing else changes, then the turns, and what
    the query needs into the room that is left. That repeats neither."""
    frame = plan.frame_tokens
    stable_sections = [section_of(plan, section) for section in conversation.at_start]
    head = frame + prompt_text.count(rendering.FROZEN)
    stable = PromptPart(
        Packer(stable_sections, int(STABLE_SHARE * plan.budget), head, 0.0, fixed_share=Fraction(1)).pack(about_tokens),
        conversation.at_start,
        rendering.FROZEN,
    )
    already_in_prompt = list(stable.chosen)
    room, turns = plan.budget - stable.packed.total, PromptPart()
    for section in gathered:
        if section.source.holds_turns and plan.body.format == "messages":
            window = replace(section_of(plan, section), max_tokens=None)
            turns = PromptPart(Packer([window], room, 0, 0.0, fixed_share=Fraction(1)).pack(about_tokens), gathered)
            already_in_prompt += turns.chosen
        elif section.source.holds_turns:  # the caller has them
            already_in_prompt += section.items
    needed = [section for section in gathered if not section.source.holds_turns]
    if conversation.at_present and NEWER.is_wanted(plan.body):
        needed.insert(0, _newer_section(conversation, stable))
    line_above = rendering.UNSURE if plan.unsure else ""
    packer = Packer(
        [section_of(plan, section) for section in needed],
        room - turns.packed.total,
        frame + prompt_text.count(line_above),
        plan.floor,
        stop_rule_of(plan, gathered, already_in_prompt),
        fixed_share=VOLATILE_FIXED_SHARE,
        already_in_prompt=already_in_prompt,
    )
    return PackedParts(stable, turns, PromptPart(packer.pack(about_tokens), needed, line_above))


def _newer_section(conversation: CachedConversation, stable: PromptPart) -> Gathered:
    """Returns what became known since the beginning, and what of the shown entries no longer holds."""
    new = [item for section in conversation.at_present for item in section.items]
    shown = {item.id for item in stable.chosen}
    ended = [
        replace(
            item,
            id=f"ended:{item.id}",
            prefix=f"no longer: {item.prefix}",
            comparison=item.comparison._replace(keys=frozenset()),
        )
        for item in conversation.ended
        if item.id in shown
    ]
    return Gathered(NEWER, conversation.at_present[0].request, SourceResult([*new, *ended]))
