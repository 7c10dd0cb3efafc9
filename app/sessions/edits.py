"""Edits and deletions of single messages, with what the service keeps of them. Methods commit nothing.

The message's memory follows in the same commit, and a summary of the service that may quote it goes. A job then judges
what was learned from the message (`learning/rederivation.py`).
"""

from functools import partial

from pydantic import ValidationError

from app.core.clock import Clock, rfc3339
from app.core.limits import BODY_LIMITS
from app.core.schemas import equal_json
from app.core.work import off_loop
from app.errors import NotFound, invalid
from app.jobs.models import REDERIVE
from app.jobs.queue import Job
from app.memories.embedding import Embeddings
from app.memories.records import revision
from app.memories.repository import MemoryRepository, of_pair
from app.memories.schemas import MEMORIES, SMALL_TALK, MemoryRecord
from app.memories.service import Succession
from app.sessions import repository
from app.sessions.repository import SessionRepository, SessionSummaries, importance_of, was_said_in
from app.sessions.schemas import Message, MessageIn, MessagePatch, MessageRecord, SessionRecord, render_message
from app.storage.changes import Change
from app.storage.repository import pages
from app.storage.schema import Eq, Filter, both
from app.validation_words import in_words
from app.writes.executor import IfMatch, WriteResult

PAGE = 500
"""The number of memories that one query reads."""


class MessageEdits:
    """Changes single messages of the sessions that one caller may see."""

    def __init__(
        self,
        sessions: SessionRepository,
        memories: MemoryRepository,
        embeddings: Embeddings,
        clock: Clock,
    ) -> None:
        self._sessions, self._memories, self._embeddings, self._clock = sessions, memories, embeddings, clock
        self._summaries = SessionSummaries(memories, embeddings)

    async def edit(self, session_id: str, seq: int, body: MessagePatch, precondition: IfMatch) -> WriteResult[Message]:
        """Changes the fields that are set in `body`. Raises NotFound, or Invalid if the result is no message."""
        now = self._now()
        session, old = await self._read(session_id, seq, precondition, now)
        message = self._merged(old, body)
        new = await off_loop(len(message.text()), repository.edited, session, old, message, now)
        if equal_json(render_message(old), render_message(new | {"edited_at": old.get("edited_at")})):
            return WriteResult(render_message(old))
        fields, changes = await self._remade(session, old, new, now)
        newest = await self._newest(session)
        if newest[0]["seq"] == seq:
            fields["last_message_at"] = new["timestamp"]
        fields["token_count"] = session["token_count"] + new["tokens"] - old["tokens"]
        changes += [self._sessions.change_message(old, new), self._counted(session, fields, now)]
        return WriteResult(render_message(new), changes)

    async def delete(self, session_id: str, seq: int, precondition: IfMatch) -> WriteResult[None]:
        """Replaces a message by a tombstone that keeps its number. Raises NotFound."""
        now = self._now()
        session, old = await self._read(session_id, seq, precondition, now)
        memory = await self._memory_of(session, old)
        fields, changes = await self._unlearned(session, old, memory)
        if memory is not None:
            changes += await self._forgotten(memory, now)
        left = [message for message in await self._newest(session) if message["seq"] != seq]
        fields |= {
            "message_count": session["message_count"] - 1,
            "token_count": session["token_count"] - old["tokens"],
            "last_message_at": left[0]["timestamp"] if left else None,
        }
        changes += [self._sessions.change_message(old, repository.tombstone(old, now))]
        return WriteResult(None, [*changes, self._counted(session, fields, now)], 204)

    # --- The message --------------------------------------------------------------------------------------------------

    async def _read(
        self, session_id: str, seq: int, precondition: IfMatch, now: str
    ) -> tuple[SessionRecord, MessageRecord]:
        session = await self._sessions.get_unexpired(session_id, now)
        self._sessions.require_write(session)
        precondition.check(session)
        messages = await self._sessions.messages.find(both(self._sessions.said_in(session), Eq("seq", seq)), limit=1)
        if not messages:
            raise NotFound(f"The session has no message {seq}.")
        return session, messages[0]

    def _merged(self, old: MessageRecord, body: MessagePatch) -> MessageIn:
        """Returns the message with the fields of `body`. Raises Invalid if it is none."""
        fields = {name: value for name, value in old.items() if name in MessageIn.model_fields and value is not None}
        fields = old.get("extra", {}) | fields
        try:
            message = MessageIn.model_validate(fields | body.model_dump(exclude_unset=True))
        except ValidationError as error:
            fault = error.errors()[0]
            place = "/content" if fault["loc"] == ("content",) else ""
            raise invalid(place, in_words(fault)) from error
        if (size := len(message.text())) > BODY_LIMITS.text_chars:
            raise invalid("/content", f"its parts have {size} characters: at most {BODY_LIMITS.text_chars}")
        return message

    async def _newest(self, session: SessionRecord) -> list[MessageRecord]:
        """Returns the last two messages, the newest first."""
        return await self._sessions.messages.find(self._sessions.said_in(session), order="desc", limit=2)

    def _counted(self, session: SessionRecord, fields: SessionRecord, now: str) -> Change:
        """Returns the change of the session. It conflicts if messages were appended meanwhile."""
        return self._sessions.update(
            session,
            {**fields, "revised": (session.get("revised") or 0) + 1},
            now=now,
            expect={
                "version": session["version"],
                "message_count": session["message_count"],
                "token_count": session["token_count"],
            },
        )

    # --- What is kept of it -------------------------------------------------------------------------------------------

    async def _remade(
        self, session: SessionRecord, old: MessageRecord, new: MessageRecord, now: str
    ) -> tuple[SessionRecord, list[Change]]:
        """Returns the fields of the session and the changes that follow from an edit."""
        memory = await self._memory_of(session, old)
        fields: SessionRecord = {}
        changes: list[Change] = []
        if new["text"] != old["text"]:
            fields, changes = await self._unlearned(session, old, memory)
        if not repository.leaves_memory(new):
            return fields, changes + ([] if memory is None else await self._forgotten(memory, now))
        fresh = repository.memory_of(new, session, self._sessions.scope.key_id, now)
        if memory is not None:
            changed = _follows(memory, old, new, fresh, now)
            _, rewritten = await self._memories.rewritten(memory, changed, now, self._embeddings)
            return fields, changes + rewritten
        if session["memorize"] != "messages":
            return fields, changes
        _, added = await self._memories.added(fresh, self._embeddings)
        return fields, changes + added

    async def _memory_of(self, session: SessionRecord, message: MessageRecord) -> MemoryRecord | None:
        """Returns the memory that was made of the message. Its time, unless a caller changed it, finds it at once."""
        where = both(of_pair(session["agent_id"], session["user_id"]), Eq("source.session_id", session["session_id"]))
        return await self._first(session, message, both(where, Eq("event_at", message["timestamp"]))) or (
            await self._first(session, message, where)
        )

    async def _first(self, session: SessionRecord, message: MessageRecord, where: Filter) -> MemoryRecord | None:
        async for memories in pages(partial(self._memories.find, where), MEMORIES, PAGE):
            for memory in memories:
                if was_said_in(session, memory) and memory["source"]["message_seq"] == message["seq"]:
                    return memory
        return None

    async def _forgotten(self, memory: MemoryRecord, now: str) -> list[Change]:
        """Returns the changes that delete the memory of a message with its history."""
        return await Succession(self._memories, now).deletion(memory)

    async def _unlearned(
        self, session: SessionRecord, message: MessageRecord, memory: MemoryRecord | None
    ) -> tuple[SessionRecord, list[Change]]:
        """Returns the fields of the session, and the changes that queue the job which judges what was learned.

        A summary that the service wrote and that covers the message goes at once. One that a caller wrote stays.
        """
        fields: SessionRecord = {}
        changes: list[Change] = []
        summary = await self._summaries.stored(session)
        by_caller = summary is not None and summary["source"]["origin"] == "api"
        covered = session["summary"] is not None and (session.get("summary_seq") or 0) >= message["seq"]
        if covered and not by_caller:
            fields, changes = await self._summaries.drop(session)
        payload = {
            "session_id": session["session_id"],
            "seq": message["seq"],
            "memory_id": None if memory is None else memory["memory_id"],
            **self._sessions.scope.bindings(),
            "summarize": bool(fields),
        }
        job = Job(REDERIVE, self._sessions.scope.tenant, payload)
        return fields, [*changes, job.enqueue(self._clock.now())]

    def _now(self) -> str:
        return rfc3339(self._clock.now())


def _follows(
    memory: MemoryRecord, old: MessageRecord, new: MessageRecord, fresh: MemoryRecord, now: str
) -> MemoryRecord:
    """Returns the fields of a message's memory that change with the message. What a caller changed stays."""
    fields: MemoryRecord = {}
    if new["text"] != old["text"]:
        fields["content"] = fresh["content"]
        if memory["base_importance"] == importance_of(memory["content"]) or memory.get("standing") == SMALL_TALK:
            fields["importance"] = fresh["importance"]
    if new["timestamp"] != old["timestamp"]:
        fields["event_at"] = fresh["event_at"]
    if not equal_json(new["metadata"], old["metadata"]):
        fields["metadata"] = fresh["metadata"]
    changed = revision(memory, fields, now)
    source = memory["source"] | {"speaker": fresh["source"]["speaker"]}
    return changed if source == memory["source"] else changed | {"source": source}
