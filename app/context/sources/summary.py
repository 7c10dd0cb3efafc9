"""Source of summaries: of the earlier part of the session, or, at a session's start, of the last sessions."""

from app.context.candidates import Candidate, ContextSource, SourceRequest
from app.context.sources.messages import MESSAGES_SOURCE
from app.core.clock import rfc3339
from app.errors import NotFound
from app.memories.repository import MemoryRepository
from app.sessions.models import SESSIONS
from app.sessions.repository import SessionRepository
from app.storage.filters import Eq, Not, both
from app.storage.repository import expired, unexpired
from app.storage.schema import Doc
from app.storage.text import content_hash

START = 3
"""A session with fewer messages has just begun."""
CONSIDERED = 20
"""Number of newest sessions among which summaries are looked for."""


async def gather(request: SourceRequest) -> list[Candidate]:
    """Returns the session's own summary, or the summaries of the last sessions if it has just begun."""
    sessions = SessionRepository(request.resources.store, request.scope)
    session = await _session(request, sessions)
    if session is None or session["message_count"] < START:
        return await _last_times(request, sessions)
    return await _so_far(request, session)


async def _session(request: SourceRequest, sessions: SessionRepository) -> Doc | None:
    """Returns the session; None if it does not exist yet or belongs to another agent or user."""
    if request.body.session_id is None:
        return None
    try:
        session = await sessions.get_unexpired(request.body.session_id, rfc3339(request.now))
    except NotFound:
        return None
    return session if request.owns(session) else None


async def _so_far(request: SourceRequest, session: Doc) -> list[Candidate]:
    """Returns the session's own summary, if it has messages before the turns that the context shows."""
    if not (session["summary"] or "").strip() or session["message_count"] <= _turns(request):
        return []
    memories = MemoryRepository(request.resources.store, request.scope)
    memory_id = session.get("summary_id")
    memory = None if memory_id is None else await memories.find_one(memory_id)
    least = request.body.min_trust
    if least is not None and (memory is None or memory["trust"] < least):
        return []
    return [_item(session["summary"], memory, "earlier in this session: ")]


def _turns(request: SourceRequest) -> int:
    """Returns how many turns the context shows at most."""
    if "messages" in request.body.exclude:
        return 0
    bounds = request.body.sections.get("messages")
    return MESSAGES_SOURCE.default_limit if bounds is None or bounds.limit is None else bounds.limit


async def _last_times(request: SourceRequest, sessions: SessionRepository) -> list[Candidate]:
    """Returns summaries of the latest other sessions of this agent and user, newest first.

    Sessions with other agents are outside of what this agent may see of the user.
    """
    body, now = request.body, rfc3339(request.now)
    if body.user_id is None:
        return []
    other = None if body.session_id is None else Not(Eq(SESSIONS.id_field, body.session_id))
    where = both(Eq("agent_id", body.agent_id), Eq("user_id", body.user_id), unexpired(now))
    found = await sessions.find(both(where, other), limit=CONSIDERED)
    memories = MemoryRepository(request.resources.store, request.scope)
    summaries = await memories.get_many([doc["summary_id"] for doc in found if doc.get("summary_id")])
    visible = [doc for doc in summaries.values() if _told(doc, now, body.min_trust)]
    visible.sort(key=_when, reverse=True)
    return [_item(doc["content"], doc, f"{_when(doc)[:10]} last session: ") for doc in visible[: request.limit]]


def _told(memory: Doc, now: str, min_trust: float | None) -> bool:
    """Returns whether the summary may be shown: it is active, not expired, not later than `now`, and trusted enough."""
    if memory["status"] != "active" or expired(memory, now) or _when(memory) > now:
        return False
    return min_trust is None or bool(memory["trust"] >= min_trust)


def _when(memory: Doc) -> str:
    """Returns the time of the last message that the summary covers."""
    return str(memory["event_at"] or memory["created_at"])


def _item(text: str, memory: Doc | None, prefix: str) -> Candidate:
    same = {f"text:{content_hash(text)}"}
    if memory is None:
        return Candidate("summary", "summary", text, None, prefix, frozenset(same))
    memory_id = memory["memory_id"]
    same.add(f"memory:{memory_id}")
    return Candidate(memory_id, "summary", text, None, prefix, frozenset(same), memory_id=memory_id)


SUMMARY = ContextSource("summary", "Summary", gather, default_limit=3, share=0.1)
