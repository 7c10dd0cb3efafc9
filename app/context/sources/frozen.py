"""Context sources of the part of a prompt that stays the same during a conversation (`layout: cached`).

Each reads the state at a time, the beginning of the conversation: `request.now` is that time, `as_of` of its body what
was true then, and `known_at` what was known then. Without `known_at` the present knowledge of that time is read, as for
a caller who asks for the context of another time. Entries stand by creation and id: nothing moves them that changes
while one talks, such as importance, scores or counts. Rules are read as they are now.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

from app.context.candidates import Candidate, ContextSource, SourceRequest
from app.context.sources.last_lines import LINES, last_lines
from app.context.sources.searched import FACTS_SOURCE, fact_item
from app.context.sources.session import (
    CONSIDERED_SUMMARIES,
    LAST_TOLD,
    SUMMARY,
    is_told,
    last_ended,
    said_last,
    session_of,
    told_summary,
)
from app.context.sources.standing import (
    EXPERIENCE,
    INSTRUCTIONS,
    LABELS,
    MOST_INSTRUCTIONS,
    PROFILE,
    instruction_item,
    profile_items,
    rules,
)
from app.core.clock import parse_rfc3339, rfc3339
from app.facts.keys import field_of
from app.facts.repository import FactRepository, of_pairs
from app.memories.agents import AGENTS
from app.memories.repository import MemoryRepository
from app.memories.search_flags import EXTRACT
from app.profiles.agents import KNOWLEDGE
from app.profiles.earlier import profile_at
from app.profiles.merge import LESSONS, ProfileReader, paragraphs
from app.sessions.repository import SessionRepository
from app.sessions.schemas import SESSIONS
from app.storage.repository import Repository, unexpired
from app.storage.schema import Doc, Eq, Not, Or, Range, both
from app.storage.text import content_hash

Gather: TypeAlias = Callable[[SourceRequest], Awaitable[list[Candidate]]]
MOST_FACTS, MOST_LESSONS, MOST_SUMMARIES = 100, 40, 5
CONSIDERED_FACTS = 2 * MOST_FACTS
"""More than are shown: a fact that newer ones displace has not ended."""


async def began(request: SourceRequest) -> datetime:
    """Returns when the conversation began: what is known then is frozen. Without a session it is the UTC day; a session
    that does not exist yet begins now. Asked for another time, a session begins with its first message."""
    midnight = request.now.replace(hour=0, minute=0, second=0, microsecond=0)
    if request.body.session_id is None:
        return midnight
    sessions = SessionRepository(request.resources.store, request.scope)
    session = await session_of(request, sessions)
    if session is None:
        return request.now
    if request.body.now is None:
        return min(parse_rfc3339(session["created_at"]), request.now)
    first = await sessions.messages.find(sessions.said_in(session), order="asc", limit=1)
    return min(parse_rfc3339(first[0]["timestamp"]), request.now) if first else request.now


async def gather_rules(request: SourceRequest) -> list[Candidate]:
    """Returns the rules: pinned ones first, then by trust. The text shows them by creation."""
    docs = sorted(
        await rules(request), key=lambda doc: (not doc["pinned"], -doc["trust"], doc["created_at"], doc["memory_id"])
    )
    return [replace(instruction_item(doc), place=(doc["created_at"], 0)) for doc in docs]


async def gather_profile(request: SourceRequest) -> list[Candidate]:
    """Returns the entries of the profile at the request's time, single values first."""
    body = request.body
    if body.user_id is None:
        return []
    reader = ProfileReader(request.resources.store, request.scope, request.resources.clock)
    user = await reader.find(body.user_id, request.view)
    if user is None:
        return []
    profile = user.profile if body.known_at is None else profile_at(user.record, user.profile, body.known_at)
    request.names += [profile["name"]] if profile["name"] else []
    items = sorted(profile_items(profile, user.facts), key=lambda item: "/" in item.id)
    return [replace(item, place=("", at)) for at, item in enumerate(items)]


async def gather_facts(request: SourceRequest) -> list[Candidate]:
    """Returns the facts that have one value at a time and held at the request's time, the newest first. Those that the
    profile shows are left out."""
    body = request.body
    pairs = request.scope.pairs(body.agent_id, body.user_id, include_shared=True)
    if not pairs:
        return []
    least = None if body.min_trust is None else Range("trust", ge=body.min_trust)
    held = both(request.view.believed(), Eq("cardinality", "one"), least, Or(tuple(of_pairs(pairs))))
    found = await FactRepository(request.resources.store, request.scope).find(held, limit=CONSIDERED_FACTS)
    facts = [fact for fact in found if field_of(fact) is None]
    request.facts += facts
    return [replace(fact_item([fact], None), place=(fact["created_at"], 0)) for fact in facts]


async def gather_experience(request: SourceRequest) -> list[Candidate]:
    """Returns what the agent had learned by the request's time: hand-written knowledge, then the newest lessons."""
    agent = await Repository(request.resources.store, request.scope, AGENTS).find_one(request.body.agent_id)
    if agent is None:
        return []
    experience, known_at = agent["experience"], request.body.known_at
    written = [_lesson_item(KNOWLEDGE, text, "") for text in paragraphs(experience[KNOWLEDGE])]
    lessons = [
        _lesson_item(name, lesson["text"], lesson.get("first_learned_at") or lesson.get("learned_at") or "")
        for name in LESSONS
        for lesson in experience[name]
    ]
    known = [item for item in lessons if known_at is None or item.place[0] <= known_at]
    return [*written, *sorted(known, key=lambda item: item.place, reverse=True)]


def _lesson_item(name: str, text: str, learned_at: str) -> Candidate:
    """Returns a lesson with the day when it was learned first, which no further time moves."""
    same = f"text:{content_hash(text)}"
    prefix = f"{learned_at[:10]} {LABELS[name]}: ".lstrip()
    return Candidate(f"experience:{same}", "experience", text, None, prefix, frozenset({same}), place=(learned_at, 0))


async def gather_summaries(request: SourceRequest) -> list[Candidate]:
    """Returns what other sessions of this agent and user came to that had ended by the request's time, the newest
    first: their summaries, and at a session's start the lines of the last ones that have none."""
    body, now = request.body, rfc3339(request.now)
    if body.user_id is None:
        return []
    sessions = SessionRepository(request.resources.store, request.scope)
    other = None if body.session_id is None else Not(Eq(SESSIONS.id_field, body.session_id))
    known = None if body.known_at is None else Range("created_at", le=body.known_at)
    of_pair = both(Eq("agent_id", body.agent_id), Eq("user_id", body.user_id), Eq("status", "ended"), unexpired(now))
    found = await sessions.find(both(of_pair, other, known), limit=CONSIDERED_SUMMARIES)
    ended = [doc for doc in found if _by_then(doc["ended_at"], body.known_at)]
    ids = [doc["summary_id"] for doc in ended if doc.get("summary_id")]
    memories = await MemoryRepository(request.resources.store, request.scope).get_many(ids)
    told = [
        doc
        for doc in memories.values()
        if not doc["content"].startswith(EXTRACT)
        and is_told(doc, now, body.min_trust)
        and _by_then(doc["created_at"], body.known_at)
    ]
    told = sorted(told, key=lambda doc: (said_last(doc), doc["memory_id"]), reverse=True)[:MOST_SUMMARIES]
    summaries = [(said_last(doc), [_summary(doc)]) for doc in told]
    summarised = {doc["memory_id"] for doc in told}
    untold = [doc for doc in ended if doc.get("summary_id") not in summarised]
    lines = await last_lines(request, last_ended(untold, now)[:LAST_TOLD]) if body.session_id is not None else {}
    by_time = [*summaries, *((doc["last_message_at"], lines.get(doc["session_id"], [])) for doc in untold)]
    by_time.sort(key=lambda one: one[0] or "", reverse=True)
    return [item for _, items in by_time for item in items]


def _by_then(at: str | None, known_at: str | None) -> bool:
    return known_at is None or (at is not None and at <= known_at)


def _summary(memory: Doc) -> Candidate:
    return replace(told_summary(memory), place=(memory["created_at"], 0))


def _source(like: ContextSource, gather: Gather, limit: int, share: float) -> ContextSource:
    return ContextSource(like.section, like.title, gather, limit, share, oldest_first=True)


RULES = _source(INSTRUCTIONS, gather_rules, MOST_INSTRUCTIONS, 0.25)
PROFILE_THEN = _source(PROFILE, gather_profile, PROFILE.default_limit, 0.12)
FACTS_THEN = _source(FACTS_SOURCE, gather_facts, MOST_FACTS, 0.12)
EXPERIENCE_THEN = _source(EXPERIENCE, gather_experience, MOST_LESSONS, 0.08)
SUMMARIES = _source(SUMMARY, gather_summaries, MOST_SUMMARIES + LINES * LAST_TOLD, 0.1)
CHANGING = (PROFILE_THEN, FACTS_THEN, EXPERIENCE_THEN, SUMMARIES)
"""Sources whose present state is compared with the frozen one. Rules are read as they are now."""


async def _compared(_: SourceRequest) -> list[Candidate]:
    """Returns nothing: what is newer follows from the others."""
    return []


NEWER = ContextSource("newer", "Newer than the beginning of this conversation", _compared, default_limit=30, share=0.15)
