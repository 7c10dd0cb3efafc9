"""What the session's last turns no longer show; at a session's start, what the last sessions came to."""

from app.context.candidates import Candidate, ContextSource, SourceRequest
from app.context.sources.messages import MESSAGES_ARM
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
"""Before its third message a session has just begun."""
CONSIDERED = 20
"""Newest sessions of which the last ones with a summary are taken."""


async def gather(asked: SourceRequest) -> list[Candidate]:
    sessions = SessionRepository(asked.held.store, asked.scope)
    session = await _session(asked, sessions)
    if session is None or session["message_count"] < START:
        return await _last_times(asked, sessions)
    return await _so_far(asked, session)


async def _session(asked: SourceRequest, sessions: SessionRepository) -> Doc | None:
    """None where it is yet to begin, or is another agent's or user's."""
    if asked.body.session_id is None:
        return None
    try:
        session = await sessions.live(asked.body.session_id, rfc3339(asked.now))
    except NotFound:
        return None
    return session if asked.owns(session) else None


async def _so_far(asked: SourceRequest, session: Doc) -> list[Candidate]:
    """The session's own summary, as soon as there are messages before the last turns."""
    if not (session["summary"] or "").strip() or session["message_count"] <= _turns(asked):
        return []
    memories = MemoryRepository(asked.held.store, asked.scope)
    memory_id = session.get("summary_id")
    memory = None if memory_id is None else await memories.find_one(memory_id)
    least = asked.body.min_trust
    if least is not None and (memory is None or memory["trust"] < least):
        return []
    return [_item(session["summary"], memory, "earlier in this session: ")]


def _turns(asked: SourceRequest) -> int:
    """Turns that the context shows at most."""
    if "messages" in asked.body.exclude:
        return 0
    bounds = asked.body.sections.get("messages")
    return MESSAGES_ARM.most if bounds is None or bounds.limit is None else bounds.limit


async def _last_times(asked: SourceRequest, sessions: SessionRepository) -> list[Candidate]:
    """Of the latest other sessions of this agent and user, newest first. Sessions with other agents lie outside what
    this agent may know of the user."""
    body, now = asked.body, rfc3339(asked.now)
    if body.user_id is None:
        return []
    other = None if body.session_id is None else Not(Eq(SESSIONS.id_field, body.session_id))
    where = both(Eq("agent_id", body.agent_id), Eq("user_id", body.user_id), unexpired(now))
    found = await sessions.find(both(where, other), limit=CONSIDERED)
    memories = MemoryRepository(asked.held.store, asked.scope)
    summaries = await memories.get_many([doc["summary_id"] for doc in found if doc.get("summary_id")])
    told = [doc for doc in summaries.values() if _told(doc, now, body.min_trust)]
    told.sort(key=_when, reverse=True)
    return [_item(doc["content"], doc, f"{_when(doc)[:10]} last session: ") for doc in told[: asked.limit]]


def _told(memory: Doc, now: str, min_trust: float | None) -> bool:
    """Whether it may be shown: a summary that was archived or replaced, or lies after `now`, may not."""
    if memory["status"] != "active" or expired(memory, now) or _when(memory) > now:
        return False
    return min_trust is None or bool(memory["trust"] >= min_trust)


def _when(memory: Doc) -> str:
    """When the last message was said that it covers."""
    return str(memory["event_at"] or memory["created_at"])


def _item(text: str, memory: Doc | None, prefix: str) -> Candidate:
    same = {f"text:{content_hash(text)}"}
    if memory is None:
        return Candidate("summary", "summary", text, None, prefix, frozenset(same))
    memory_id = memory["memory_id"]
    same.add(f"memory:{memory_id}")
    return Candidate(memory_id, "summary", text, None, prefix, frozenset(same), memory_id=memory_id)


SUMMARY = ContextSource("summary", "Summary", gather, most=3, share=0.1)
