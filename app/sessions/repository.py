"""Sessions and messages: their documents and queries."""

from collections.abc import Sequence
from typing import Any

import orjson

from app.core import tokens
from app.core.clock import new_id
from app.core.prompt_fencing import strip_served
from app.memories.models import MEMORIES
from app.memories.records import new_memory
from app.sessions.schemas import MESSAGES, SESSIONS, MessageIn, counter
from app.storage.changes import Change, DeleteWhere, Insert, Ref, Update
from app.storage.filters import Eq, Filter, Range, both
from app.storage.protocol import Store
from app.storage.repository import Repository
from app.storage.schema import Doc
from app.storage.scope import Scope

AS_GIVEN = ("refusal", "annotations", "audio", "function_call")
"""Further fields of OpenAI messages. They are stored and returned as given."""
REMEMBERED_ROLES = ("user", "assistant")
MESSAGE_IMPORTANCE = 0.3


def new_session(fields: Doc, now: str) -> Doc:
    """Returns a new session document. `fields`: those of `SessionCreate`."""
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
    """Returns message documents.

    Their `seq` refers to an allocation of the session's counter, one value for each message.
    """
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
    """Returns the tokens of everything that a prompt would contain of the message: text, tool calls and result."""
    more = [sent[name] for name in ("tool_calls", "result") if sent.get(name) is not None]
    return tokens.count(message.text()) + sum(tokens.count(orjson.dumps(part).decode()) for part in more)


def leaves_memory(message: Doc) -> bool:
    """Returns whether a memory is made from the message: it has text of a user or an assistant."""
    return message["role"] in REMEMBERED_ROLES and bool(strip_served(message["text"]).strip())


def memory_of(message: Doc, session: Doc, trust: float, key_id: str | None, now: str) -> Doc:
    """Returns a memory of type `message`. `trust`: 0 to 1.

    Each message has a memory of its own, without deduplication, so that a conversation stays complete.
    """
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
    """Sessions, with their messages in `messages`."""

    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__(store, scope, SESSIONS)
        self.messages = Repository(store, scope, MESSAGES)

    def within(self, session: Doc, after_seq: int | None = None, before_seq: int | None = None) -> Filter:
        """Returns the filter for the session's messages between two numbers, both excluded."""
        bounds = None if after_seq is None and before_seq is None else Range("seq", gt=after_seq, lt=before_seq)
        return both(Eq("session_id", session["session_id"]), bounds)

    async def count_messages(self, session: Doc, role: str) -> int:
        """Returns the number of messages of a role."""
        return await self.messages.count(both(self.within(session), Eq("role", role)))

    async def count_memories(self, session: Doc) -> int:
        """Returns the number of memories made from the session."""
        where = both(Eq("source.session_id", session["session_id"]), self.scope.visible())
        return await self.store.count(MEMORIES, self.scope.tenant, where)

    # --- Changes ------------------------------------------------------------------------------------------------------

    def add_message(self, doc: Doc) -> Insert:
        """Returns the insert of a message."""
        return Insert(MESSAGES, {"tenant_id": self.scope.tenant, **doc})

    def count_in(self, session: Doc, added: list[Doc]) -> Update:
        """Returns the change that adds messages to the counts of the session.

        It does not bump the session's version, and it conflicts if the session has ended. The last commit has the
        highest number, so the time of the last message can be set without comparing it.
        """
        return self.append(
            session,
            {"last_message_at": added[-1]["timestamp"]},
            inc={"message_count": len(added), "token_count": sum(doc["tokens"] for doc in added)},
            expect={name: session[name] for name in ("status", "memorize", "agent_id", "user_id", "created_at")},
        )

    def clear(self, session: Doc) -> list[Change]:
        """Returns the change that deletes all messages. The counter of their numbers stays."""
        self.scope.require_write(session["agent_id"], session["user_id"])
        return [DeleteWhere(MESSAGES, self.scope.tenant, Eq("session_id", session["session_id"]))]

    def remove(self, session: Doc) -> list[Change]:
        """Returns the changes that delete a session and its messages."""
        return [*self.clear(session), self.delete(session)]
