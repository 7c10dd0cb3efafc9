"""Context sources of the part of a prompt that stays the same during a conversation (`layout: cached`).

Each reads the state at a time, the beginning of the conversation: `request.now` is that time, `as_of` of its body what
was true then, and `known_at` what was known then. Without `known_at` the present knowledge of that time is read, as for
a caller who asks for the context of another time. Entries stand by creation and id: nothing moves them that changes
while one talks, such as importance, scores or counts. Rules are read as they are now.
"""

from collections.abc import Sequence
from dataclasses import replace

from app.context.candidates import Candidate, Comparison
from app.context.repetition import same_text
from app.context.source import ContextSource, Gather, ReadingOrder, SourceRequest, SourceResult
from app.context.sources.last_lines import LINES
from app.context.sources.person_and_agent import (
    EXPERIENCE,
    INSTRUCTIONS,
    LABELS,
    MOST_INSTRUCTIONS,
    PROFILE,
    instruction_item,
    names_in,
    profile_items,
    rules,
)
from app.context.sources.searched import FACTS_SOURCE, fact_item
from app.context.sources.session import (
    CONSIDERED_SUMMARIES,
    LAST_TOLD,
    SUMMARY,
    lines_of_others,
    said_last,
    summaries_of,
    summary_item,
)
from app.core.clock import rfc3339
from app.facts.keys import field_of
from app.facts.repository import FactRepository, of_pairs
from app.memories.agents import AGENTS, first_learned_at
from app.profiles.agents import KNOWLEDGE
from app.profiles.earlier import profile_at
from app.profiles.merge import LESSONS, ProfileReader, paragraphs
from app.sessions.repository import SessionRepository
from app.sessions.schemas import SESSIONS
from app.storage.repository import Repository, unexpired
from app.storage.schema import Eq, Not, Or, Range, both

MOST_FACTS, MOST_LESSONS, MOST_SUMMARIES = 100, 40, 5
CONSIDERED_FACTS = 2 * MOST_FACTS
"""More than are shown: a fact that newer ones displace has not ended."""


async def gather_rules(request: SourceRequest) -> SourceResult:
    """Returns the rules: pinned ones first, then by trust. The text shows them by creation."""
    memories = sorted(
        await rules(request),
        key=lambda memory: (not memory["pinned"], -memory["trust"], memory["created_at"], memory["memory_id"]),
    )
    return SourceResult([replace(instruction_item(memory), place=(memory["created_at"], 0)) for memory in memories])


async def gather_profile(request: SourceRequest) -> SourceResult:
    """Returns the entries of the profile at the request's time, single values first."""
    body = request.body
    if body.user_id is None:
        return SourceResult()
    reader = ProfileReader(request.resources.store, request.scope, request.resources.clock)
    user = await reader.find(body.user_id, request.view)
    if user is None:
        return SourceResult()
    profile = user.profile if body.known_at is None else profile_at(user.record, user.profile, body.known_at)
    items = sorted(profile_items(profile, user.facts), key=lambda item: "/" in item.id)
    return SourceResult([replace(item, place=("", at)) for at, item in enumerate(items)], names=names_in(profile))


async def gather_facts(request: SourceRequest) -> SourceResult:
    """Returns the facts that have one value at a time and held at the request's time, the newest first. Those that the
    profile shows are left out."""
    if not request.pairs:
        return SourceResult()
    min_trust = request.body.min_trust
    trusted = None if min_trust is None else Range("trust", ge=min_trust)
    believed = both(request.view.believed(), Eq("cardinality", "one"), trusted, Or(tuple(of_pairs(request.pairs))))
    considered = await FactRepository(request.resources.store, request.scope).find(believed, limit=CONSIDERED_FACTS)
    facts = [fact for fact in considered if field_of(fact) is None]
    items = [replace(fact_item([fact], None, request.zone), place=(fact["created_at"], 0)) for fact in facts]
    return SourceResult(items, facts=facts)


async def gather_experience(request: SourceRequest) -> SourceResult:
    """Returns what the agent had learned by the request's time: hand-written knowledge, then the newest lessons."""
    agent = await Repository(request.resources.store, request.scope, AGENTS).find_one(request.body.agent_id)
    if agent is None:
        return SourceResult()
    experience, known_at = agent["experience"], request.body.known_at
    written = [_lesson_item(KNOWLEDGE, text, "", request) for text in paragraphs(experience[KNOWLEDGE])]
    lessons = [
        _lesson_item(name, lesson["text"], first_learned_at(lesson), request)
        for name in LESSONS
        for lesson in experience[name]
    ]
    known = [item for item in lessons if known_at is None or item.place[0] <= known_at]
    return SourceResult([*written, *sorted(known, key=lambda item: item.place, reverse=True)])


def _lesson_item(name: str, text: str, learned_at: str, request: SourceRequest) -> Candidate:
    """Returns a lesson with the day when it was learned first, which no further time moves."""
    key, prefix = same_text(text), f"{request.day(learned_at)} {LABELS[name]}: ".lstrip()
    comparison = Comparison(frozenset({key}))
    return Candidate(
        f"experience:{key}", "experience", text, prefix=prefix, comparison=comparison, place=(learned_at, 0)
    )


async def gather_summaries(request: SourceRequest) -> SourceResult:
    """Returns what other sessions of this agent and user came to that had ended by the request's time, the newest
    first: their summaries, and at a session's start the lines of the last ones that have none."""
    body, now = request.body, rfc3339(request.now)
    if body.user_id is None:
        return SourceResult()
    sessions = SessionRepository(request.resources.store, request.scope)
    other = None if body.session_id is None else Not(Eq(SESSIONS.id_field, body.session_id))
    known = None if body.known_at is None else Range("created_at", le=body.known_at)
    of_pair = both(Eq("agent_id", body.agent_id), Eq("user_id", body.user_id), Eq("status", "ended"), unexpired(now))
    considered = await sessions.find(both(of_pair, other, known), limit=CONSIDERED_SUMMARIES)
    ended = [session for session in considered if _is_by(session["ended_at"], body.known_at)]
    shown = await summaries_of(request, ended)
    summaries = [memory for memory in shown if _is_by(memory["created_at"], body.known_at)]
    summaries.sort(key=lambda memory: (said_last(memory), memory["memory_id"]), reverse=True)
    del summaries[MOST_SUMMARIES:]
    by_time: list[tuple[str, Sequence[Candidate]]] = [
        (said_last(memory), [replace(summary_item(memory, request), place=(memory["created_at"], 0))])
        for memory in summaries
    ]
    by_time += await lines_of_others(request, ended, summaries, LAST_TOLD)
    by_time.sort(key=lambda pair: pair[0], reverse=True)
    return SourceResult([item for _, items in by_time for item in items])


def _is_by(at: str | None, known_at: str | None) -> bool:
    return known_at is None or (at is not None and at <= known_at)


def _source(like: ContextSource, gather: Gather, limit: int, share: float) -> ContextSource:
    return replace(like, gather=gather, default_limit=limit, share=share, order=ReadingOrder.OLDEST_FIRST)


RULES = _source(INSTRUCTIONS, gather_rules, MOST_INSTRUCTIONS, 0.25)
PROFILE_THEN = _source(PROFILE, gather_profile, PROFILE.default_limit, 0.12)
FACTS_THEN = _source(FACTS_SOURCE, gather_facts, MOST_FACTS, 0.12)
EXPERIENCE_THEN = _source(EXPERIENCE, gather_experience, MOST_LESSONS, 0.08)
SUMMARIES = _source(SUMMARY, gather_summaries, MOST_SUMMARIES + LINES * LAST_TOLD, 0.1)
LASTING = (PROFILE_THEN, FACTS_THEN, EXPERIENCE_THEN, SUMMARIES)
"""Sources of what stays the same, whose present state is compared with that of the beginning. Rules are read as they
are now."""
