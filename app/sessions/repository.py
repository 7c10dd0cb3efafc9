"""Sessions and messages: their documents and queries."""

from collections.abc import Sequence
from typing import Any

import orjson

from app.core import tokens
from app.core.clock import new_id
from app.core.served_text import strip_served
from app.core.small_talk import is_small_talk
from app.memories.models import MEMORIES
from app.memories.records import SMALL_TALK_IMPORTANCE, metadata_terms, new_memory
from app.sessions.schemas import MESSAGES, SESSIONS, MessageIn, counter
from app.storage.changes import Change, DeleteWhere, Insert, Ref, Update
from app.storage.filters import Absent, And, Eq, Filter, Has, Or, Range, both
from app.storage.protocol import Store
from app.storage.repository import Listing, Repository
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
        "metadata_terms": metadata_terms(fields.get("metadata") or {}),
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


def _message(session: Doc, message: MessageIn, seq: Ref | int, now: str) -> Doc:
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
        "edited_at": None,
        "deleted_at": None,
        "text": message.text(),
        "tokens": _tokens(message, sent),
        "created_at": now,
    }


def edited(session: Doc, old: Doc, message: MessageIn, now: str) -> Doc:
    """Returns the document of an edited message. It keeps its id, number and creation."""
    kept = {name: old[name] for name in ("message_id", "created_at")}
    return _message(session, message, old["seq"], now) | kept | {"edited_at": now}


def tombstone(old: Doc, now: str) -> Doc:
    """Returns what stays of a deleted message: its number, role and times."""
    said = (*AS_GIVEN, "content", "name", "tool_calls", "tool_call_id", "result")
    return old | dict.fromkeys(said) | {"metadata": {}, "text": "", "tokens": 0, "deleted_at": now}


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
        "importance": importance_of(said),
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


def importance_of(text: str) -> float:
    """Returns the importance of a message's memory, 0 to 1."""
    return SMALL_TALK_IMPORTANCE if is_small_talk(text) else MESSAGE_IMPORTANCE


def was_said_in(session: Doc, memory: Doc) -> bool:
    """Returns whether the memory was made of a message of this session. A caller's own memory may name one, too."""
    source, owners = memory["source"], ("agent_id", "user_id")
    spoken = source.get("speaker") is not None and source.get("message_seq") is not None
    return spoken and source["session_id"] == session["session_id"] and all(memory[o] == session[o] for o in owners)


class SessionRepository(Repository):
    """Sessions, with their messages in `messages`."""

    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__(store, scope, SESSIONS)
        self.messages = Repository(store, scope, MESSAGES)

    def within(self, session: Doc, after_seq: int | None = None, before_seq: int | None = None) -> Filter:
        """Returns the filter for the session's messages between two numbers, both excluded."""
        bounds = None if after_seq is None and before_seq is None else Range("seq", gt=after_seq, lt=before_seq)
        return both(Eq("session_id", session["session_id"]), bounds)

    def said_in(self, session: Doc) -> Filter:
        """Returns the filter for the session's messages without the deleted ones."""
        return both(Eq("session_id", session["session_id"]), Absent("deleted_at"))

    async def count_messages(self, session: Doc, role: str) -> int:
        """Returns the number of messages of a role."""
        return await self.messages.count(both(self.said_in(session), Eq("role", role)))

    async def page_with(self, where: Filter, entries: Doc, listing: Listing, mark: str) -> tuple[list[Doc], str | None]:
        """Returns a page of the sessions whose metadata has all entries, and the cursor of the next page.

        Sessions of earlier versions store no terms of their metadata, so they are compared one by one.
        """
        if not entries:
            return await self.page(where, listing, mark=mark)
        wanted = metadata_terms(entries)
        stored = And(tuple(Has("metadata_terms", term) for term in wanted))
        return await self.page(
            both(where, Or((stored, Absent("metadata_terms")))),
            listing,
            mark=mark,
            keep=lambda session: {*wanted} <= {*metadata_terms(session["metadata"])},
        )

    async def count_memories(self, session: Doc) -> int:
        """Returns the number of memories made from the session."""
        where = both(Eq("source.session_id", session["session_id"]), self.scope.visible())
        return await self.store.count(MEMORIES, self.scope.tenant, where)

    # --- Changes ------------------------------------------------------------------------------------------------------

    def add_message(self, doc: Doc) -> Insert:
        """Returns the insert of a message."""
        return Insert(MESSAGES, {"tenant_id": self.scope.tenant, **doc})

    def change_message(self, old: Doc, new: Doc) -> Update:
        """Returns the change of a message. The session's change in the same commit notices concurrent ones."""
        fields = {name: value for name, value in new.items() if name not in ("tenant_id", "message_id")}
        return Update(MESSAGES, self.scope.tenant, old["message_id"], set=fields, user=old["user_id"])

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
