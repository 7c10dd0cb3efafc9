"""Sessions, messages and summaries: their records and queries.

A session shows its summary. A memory of type `summary` with the same text makes it searchable and outlives the session.
The session document names that memory (`summary_id`), and every write of a summary expects that name, so two jobs that
run at the same time cannot create two memories. The memory is changed in place as long as it is active.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from app.core import prompt_text
from app.core.characters import says_nothing
from app.core.clock import new_id
from app.core.schemas import BODY_LIMITS
from app.core.served_text import strip_served
from app.memories.repository import (
    SMALL_TALK_IMPORTANCE,
    Embeddings,
    MemoryRepository,
    new_memory,
    revision,
)
from app.memories.schemas import MemoryRecord, ReplacementLink, Source
from app.sessions.schemas import (
    MESSAGES,
    SESSIONS,
    SPEAKING,
    MessageIn,
    MessageRecord,
    SessionCreate,
    SessionRecord,
    counter,
    own_text,
    shortened,
)
from app.storage.changes import Change, DeleteWhere, Ref, Update
from app.storage.protocol import Store
from app.storage.record_filters import metadata_terms
from app.storage.repository import Repository
from app.storage.schema import Absent, Eq, Filter, Range, both
from app.storage.scope import Scope

MESSAGE_IMPORTANCE = 0.3


def new_session(wanted: SessionCreate, now: str) -> SessionRecord:
    return {
        "session_id": wanted.session_id or new_id("sess"),
        "agent_id": wanted.agent_id,
        "user_id": wanted.user_id,
        "status": "active",
        "summary": None,
        "metadata": wanted.metadata,
        "metadata_terms": metadata_terms(wanted.metadata),
        "memorize": wanted.memorize,
        "message_count": 0,
        "token_count": 0,
        "last_message_at": None,
        "ended_at": None,
        "expires_at": wanted.expires_at,
        "version": 1,
        "created_at": now,
        "updated_at": now,
    }


def new_messages(session: SessionRecord, messages: Sequence[MessageIn], now: str) -> list[MessageRecord]:
    """Returns new messages of a session.

    Their `seq` refers to an allocation of the session's counter, one value for each message.
    """
    first = counter(session["session_id"])
    return [_message(session, message, Ref.number(first, index), now) for index, message in enumerate(messages)]


def _message(session: SessionRecord, message: MessageIn, seq: int, now: str) -> MessageRecord:
    sent, text, own = message.model_dump(exclude_unset=True), message.text(), message.text(own=True)
    limit = BODY_LIMITS.text_chars  # of data, which are text as JSON
    # the tokens of everything that a prompt would contain of the message: text, tool calls and result
    more = [sent[name] for name in ("tool_calls", "result") if sent.get(name) is not None]
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
        "metadata": message.metadata or {},
        "refusal": sent.get("refusal"),
        "annotations": sent.get("annotations"),
        "audio": sent.get("audio"),
        "function_call": sent.get("function_call"),
        "timestamp": message.timestamp or now,
        "edited_at": None,
        "deleted_at": None,
        "text": shortened(text, limit),
        "own_text": None if own == text else shortened(own, limit),
        "extra": message.model_extra or {},
        "tokens": prompt_text.count(text) + sum(prompt_text.count(orjson.dumps(part).decode()) for part in more),
        "created_at": now,
    }


def edited(session: SessionRecord, old: MessageRecord, message: MessageIn, now: str) -> MessageRecord:
    """Returns an edited message. It keeps its id, number and creation."""
    return _message(session, message, old["seq"], now) | {
        "message_id": old["message_id"],
        "created_at": old["created_at"],
        "edited_at": now,
    }


def tombstone(old: MessageRecord, now: str) -> MessageRecord:
    """Returns what stays of a deleted message: its number, role and times."""
    return old | {
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        "content": None,
        "name": None,
        "tool_calls": None,
        "tool_call_id": None,
        "result": None,
        "metadata": {},
        "text": "",
        "own_text": None,
        "extra": {},
        "tokens": 0,
        "deleted_at": now,
    }


def content(message: MessageRecord) -> str:
    """Returns the text of a message; without text, its result or its tool calls as JSON."""
    if message["text"]:
        return message["text"]
    shown = message["result"] if message["result"] is not None else message["tool_calls"]
    return "" if shown is None else shortened(orjson.dumps(shown).decode(), BODY_LIMITS.text_chars)


TRUST = {"assistant": 0.7, "tool": 0.4}
"""How far a message is believed by its role; one of any other role has 1."""


def trust_of(message: MessageRecord) -> float:
    """Returns how far a message is believed."""
    return TRUST.get(message["role"], 1.0)


def memory_of(message: MessageRecord, session: SessionRecord, key_id: str | None, now: str) -> MemoryRecord | None:
    """Returns the memory of type `message` that is made of a message, or None: only text of a user or an assistant
    leaves one.

    Each message has a memory of its own, without deduplication, so that a conversation stays complete.
    """
    said = own_text(message)
    text = strip_served(said)
    if message["role"] not in SPEAKING or not text.strip():
        return None
    return new_memory(
        {
            "agent_id": session["agent_id"],
            "user_id": session["user_id"],
            "memory_type": "message",
            "content": text if text == said else text.strip(),
            "importance": importance_of(text),
            "trust": trust_of(message),
            "metadata": message["metadata"],
            "event_at": message["timestamp"],
        },
        {
            "origin": "message",
            "session_id": session["session_id"],
            "message_seq": message["seq"],
            "said_at": message["timestamp"],
            "speaker": message["name"] or message["role"],
            "role": message["role"],
            "api_key_id": key_id,
        },
        now,
        unique=False,
    )


def importance_of(text: str) -> float:
    """Returns the importance of a message's memory, 0 to 1."""
    return SMALL_TALK_IMPORTANCE if says_nothing(text) else MESSAGE_IMPORTANCE


def was_said_in(session: SessionRecord, memory: MemoryRecord) -> bool:
    """Returns whether the memory was made of a message of this session. A caller's own memory may name one, too."""
    source = memory["source"]
    spoken = source.get("speaker") is not None and source.get("message_seq") is not None
    return (
        spoken
        and source["session_id"] == session["session_id"]
        and memory["agent_id"] == session["agent_id"]
        and memory["user_id"] == session["user_id"]
    )


class SessionRepository(Repository[SessionRecord]):
    """Sessions, with their messages in `messages`."""

    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__(store, scope, SESSIONS)
        self.messages = Repository(store, scope, MESSAGES)

    def within(self, session: SessionRecord, after_seq: int | None = None, before_seq: int | None = None) -> Filter:
        """Returns the filter for the session's messages between two numbers, both excluded."""
        bounds = None if after_seq is None and before_seq is None else Range("seq", gt=after_seq, lt=before_seq)
        return both(Eq("session_id", session["session_id"]), bounds)

    def undeleted(self, session: SessionRecord) -> Filter:
        """Returns the filter for the session's messages without the deleted ones."""
        return both(Eq("session_id", session["session_id"]), Absent("deleted_at"))

    # --- Changes ------------------------------------------------------------------------------------------------------

    def change_message(self, old: MessageRecord, new: MessageRecord) -> Update[MessageRecord]:
        """Returns the change of a message. The session's change in the same commit notices concurrent ones."""
        fields = new.copy()
        fields.pop("tenant_id", None)
        fields.pop("message_id", None)
        return Update(MESSAGES, self.scope.tenant, old["message_id"], set=fields, user=old["user_id"])

    def count_in(self, session: SessionRecord, added: list[MessageRecord]) -> Update[SessionRecord]:
        """Returns the change that adds messages to the counts of the session.

        It does not bump the session's version, and it conflicts if the session has ended. The last commit has the
        highest number, so the time of the last message can be set without comparing it.
        """
        return self.append(
            session,
            {"last_message_at": added[-1]["timestamp"]},
            inc={"message_count": len(added), "token_count": sum(message["tokens"] for message in added)},
            expect={
                "status": session["status"],
                "memorize": session["memorize"],
                "agent_id": session["agent_id"],
                "user_id": session["user_id"],
                "created_at": session["created_at"],
            },
        )

    def clear(self, session: SessionRecord) -> list[Change]:
        """Returns the change that deletes all messages. The counter of their numbers stays."""
        self.scope.require_write(session["agent_id"], session["user_id"])
        return [DeleteWhere(MESSAGES, self.scope.tenant, Eq("session_id", session["session_id"]))]

    def remove(self, session: SessionRecord) -> list[Change]:
        return [*self.clear(session), self.delete(session)]


IMPORTANCE = 0.5
"""Importance of summaries, above that of single messages."""


@dataclass(frozen=True, slots=True)
class SummaryText:
    """A summary to be stored.

    `trust`: 0 to 1. `seq` and `event_at`: number and time of the last message that it covers.
    """

    text: str
    trust: float
    source: Source
    """Fields of the memory's source beside the session's."""
    seq: int | None = None
    event_at: str | None = None
    rolls: bool = False
    """Whether it continues the stored summary. Its trust is then not higher than that summary's."""
    replaced_by: Sequence[ReplacementLink] = ()
    """The links of the stored summary that count for this text, too."""


def expected(session: SessionRecord) -> SessionRecord:
    """Returns the fields of the session that may not change between the read and the write of its summary.

    `version` is not among them: no caller asks for a summary of the service, so it does not bump versions.
    """
    return {
        "created_at": session["created_at"],
        "agent_id": session["agent_id"],
        "user_id": session["user_id"],
        "summary_id": session.get("summary_id"),
        "summary_seq": session.get("summary_seq"),
    }


class SessionSummaries:
    """Plans the writes of summaries. It commits nothing."""

    def __init__(self, memories: MemoryRepository, embeddings: Embeddings) -> None:
        self._memories, self._embeddings = memories, embeddings

    async def stored(self, session: SessionRecord) -> MemoryRecord | None:
        """Returns the memory of the summary; None if there is none, or if a caller archived, replaced or deleted it."""
        memory_id = session.get("summary_id")
        memory = None if memory_id is None else await self._memories.find_one(memory_id)
        return memory if memory is not None and memory["status"] == "active" else None

    async def write(self, session: SessionRecord, summary: SummaryText, now: str) -> tuple[SessionRecord, list[Change]]:
        """Returns the session's new fields, and the changes of the memory. A session that memorizes nothing has no
        memory.

        Raises Forbidden if the caller may not write the memory.
        """
        seq = session.get("summary_seq") if summary.seq is None else summary.seq
        fields: SessionRecord = {"summary": summary.text, "summary_seq": seq, "summary_id": session.get("summary_id")}
        if session["memorize"] == "none" or not summary.text.strip():
            return fields, []
        old = await self.stored(session)
        if old is None:
            memory_id, changes = await self._added(session, summary, now)
            return fields | {"summary_id": memory_id}, changes
        return fields, await self._revised(old, summary, now)

    async def drop(self, session: SessionRecord) -> tuple[SessionRecord, list[Change]]:
        """Returns the session's fields without a summary, and the changes that delete the memory."""
        old = await self.stored(session)
        changes = [] if old is None else self._memories.remove([old])
        return {"summary": None, "summary_id": None, "summary_seq": None}, changes

    async def _added(self, session: SessionRecord, summary: SummaryText, now: str) -> tuple[str, list[Change]]:
        memory = new_memory(
            {
                "agent_id": session["agent_id"],
                "user_id": session["user_id"],
                "memory_type": "summary",
                "content": summary.text,
                "importance": IMPORTANCE,
                "trust": summary.trust,
                "event_at": summary.event_at,
            },
            {**summary.source, "session_id": session["session_id"], "api_key_id": self._memories.scope.key_id},
            now,
            unique=False,
        )
        memory, changes = await self._memories.add(memory, self._embeddings)
        return memory["memory_id"], changes

    async def _revised(self, old: MemoryRecord, summary: SummaryText, now: str) -> list[Change]:
        """Changes content, time, trust and source. Fields that callers set (tags, pin, importance) stay."""
        trust = min(old["trust"], summary.trust) if summary.rolls else summary.trust
        fields: MemoryRecord = {"content": summary.text, "trust": trust}
        if summary.event_at is not None:
            fields["event_at"] = summary.event_at
        source = old["source"] | {"model": None, "prompt_version": None} | summary.source
        changed = revision(old | {"source": source}, fields, now)
        if source != old["source"]:
            changed["source"] = source
        if old.get("replaced_by") and "content" in changed:
            changed["replaced_by"] = [*summary.replaced_by]
        return (await self._memories.rewritten(old, changed, now, self._embeddings))[1]
