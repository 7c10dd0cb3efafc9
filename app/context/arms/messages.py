"""The conversation's last turns."""

from app.clock import rfc3339
from app.context.items import Arm, Asked, Item
from app.delimiters import strip_served
from app.errors import NotFound
from app.sessions.repository import SessionRepository
from app.sessions.windows import content
from app.storage.collection import Doc
from app.storage.text import content_hash

SPARE = 3
"""More than the limit, for those that are the query itself, say nothing or do not fit."""


async def gather(asked: Asked) -> list[Item]:
    """Newest first. Not the query itself, where the caller has appended it already. A session yet to begin has none,
    nor has one of another agent or user."""
    if asked.body.session_id is None:
        return []
    sessions = SessionRepository(asked.held.store, asked.scope)
    try:
        session = await sessions.live(asked.body.session_id, rfc3339(asked.now))
    except NotFound:
        return []
    if not asked.owns(session):
        return []
    found = await sessions.messages.find(sessions.within(session), order="desc", limit=asked.limit + SPARE)
    if found and found[0]["role"] == "user" and content_hash(found[0]["text"]) == content_hash(asked.body.query):
        del found[0]
    return [_item(session, doc, text) for doc in found if (text := strip_served(content(doc)).strip())]


def _item(session: Doc, doc: Doc, text: str) -> Item:
    same = frozenset({f"message:{session['session_id']}:{doc['seq']}"})
    return Item(doc["message_id"], "message", text, None, f"{doc['name'] or doc['role']}: ", same, doc["role"])


MESSAGES_ARM = Arm(
    "messages",
    "Recent messages",
    0.3,
    {"general": 10, "recall": 10, "execute": 10},
    gather,
    newest_first=True,
    turns=True,
)
