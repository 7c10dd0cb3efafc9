"""Sessions and messages as they are stored and found."""

from collections.abc import Sequence
from typing import Any

import orjson

from app.core import tokens
from app.core.ids import new_id
from app.core.prompt_fencing import strip_served
from app.memories.models import MEMORIES
from app.memories.records import new_memory
from app.sessions.models import MESSAGES, SESSIONS, counter
from app.sessions.schemas import MessageIn
from app.storage.changes import Change, DeleteWhere, Insert, Ref, Update
from app.storage.filters import Eq, Filter, Range, both
from app.storage.protocol import Store
from app.storage.repository import Repository
from app.storage.schema import Doc
from app.storage.scope import Scope

AS_GIVEN = ("refusal", "annotations", "audio", "function_call")
"""What OpenAI's clients hold beside: kept, and given back."""
REMEMBERED_ROLES = ("user", "assistant")
MESSAGE_IMPORTANCE = 0.3


def new_session(fields: Doc, now: str) -> Doc:
    return {
        "session_id": fields.get("session_id") or new_id("sess"),
        "agent_id": fields["agent_id"],
        "user_id": fields["user_id"],
        "status": "active",
        "summary": None,
        "metadata": fields.get("metadata") or {},
        "memorize": fields.get("memorize") or "messages",
        "message_count": 0,
        "token_count": 0,
        "last_message_at": None,
        "ended_at": None,
        "expires_at": fields.get("expires_at"),
        "version": 1,
        "created_at": now,
        "updated_at": now,
    }


def new_messages(session: Doc, messages: Sequence[MessageIn], now: str) -> list[Doc]:
    """Their `seq` refers to an allocation of the session's counter, as many values as there are messages."""
    first = counter(session["session_id"])
    return [_message(session, message, Ref(first, index), now) for index, message in enumerate(messages)]


def _message(session: Doc, message: MessageIn, seq: Ref, now: str) -> Doc:
    sent = message.model_dump(exclude_unset=True)
    return {
        "message_id": new_id("msg"),
        "session_id": session["session_id"],
        "agent_id": session["agent_id"],
        "user_id": session["user_id"],
        "seq": seq,
        "role": message.role,
        "content": sent.get("content"),
        "name": message.name,
        "tool_calls": sent.get("tool_calls"),
        "tool_call_id": message.tool_call_id,
        "result": message.result,
        "metadata": message.metadata,
        **{name: sent.get(name) for name in AS_GIVEN},
        "timestamp": message.timestamp or now,
        "text": message.text(),
        "tokens": _tokens(message, sent),
        "created_at": now,
    }


def _tokens(message: MessageIn, sent: dict[str, Any]) -> int:
    """Of all that a prompt would hold of it: text, tool calls and result."""
    more = [sent[name] for name in ("tool_calls", "result") if sent.get(name) is not None]
    return tokens.count(message.text()) + sum(tokens.count(orjson.dumps(part).decode()) for part in more)


def leaves_memory(message: Doc) -> bool:
    return message["role"] in REMEMBERED_ROLES and bool(strip_served(message["text"]).strip())


def memory_of(message: Doc, session: Doc, trust: float, key_id: str | None, now: str) -> Doc:
    """A memory of type `message`: one each, never deduplicated, so that a conversation stays whole. `trust`: 0 to 1."""
    said = strip_served(message["text"])
    fields = {
        "agent_id": session["agent_id"],
        "user_id": session["user_id"],
        "memory_type": "message",
        "content": said if said == message["text"] else said.strip(),
        "importance": MESSAGE_IMPORTANCE,
        "trust": trust,
        "metadata": message["metadata"],
        "event_at": message["timestamp"],
    }
    source = {
        "origin": "message",
        "session_id": session["session_id"],
        "message_seq": message["seq"],
        "speaker": message["name"] or message["role"],
        "role": message["role"],
        "api_key_id": key_id,
    }
    return new_memory(fields, source, now, unique=False)


class SessionRepository(Repository):
    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__(store, scope, SESSIONS)
        self.messages = Repository(store, scope, MESSAGES)

    def within(self, session: Doc, after_seq: int | None = None, before_seq: int | None = None) -> Filter:
        """The session's messages, those between two numbers."""
        bounds = None if after_seq is None and before_seq is None else Range("seq", gt=after_seq, lt=before_seq)
        return both(Eq("session_id", session["session_id"]), bounds)

    async def count_messages(self, session: Doc, role: str) -> int:
        return await self.messages.count(both(self.within(session), Eq("role", role)))

    async def count_memories(self, session: Doc) -> int:
        where = both(Eq("source.session_id", session["session_id"]), self.scope.visible())
        return await self.store.count(MEMORIES, self.scope.tenant, where)

    # --- Changes ------------------------------------------------------------------------------------------------------

    def add_message(self, doc: Doc) -> Insert:
        return Insert(MESSAGES, {"tenant_id": self.scope.tenant, **doc})

    def count_in(self, session: Doc, added: list[Doc]) -> Update:
        """Appended children leave the session's version alone; an ended session takes none.

        Who commits last has the highest number, so the last message's time needs no look at what was read before.
        """
        return self.append(
            session,
            {"last_message_at": added[-1]["timestamp"]},
            inc={"message_count": len(added), "token_count": sum(doc["tokens"] for doc in added)},
            expect={name: session[name] for name in ("status", "memorize", "agent_id", "user_id", "created_at")},
        )

    def clear(self, session: Doc) -> list[Change]:
        """All messages go; the counter of their numbers stays."""
        self.scope.require_write(session["agent_id"], session["user_id"])
        return [DeleteWhere(MESSAGES, self.scope.tenant, Eq("session_id", session["session_id"]))]

    def remove(self, session: Doc) -> list[Change]:
        return [*self.clear(session), self.delete(session)]
