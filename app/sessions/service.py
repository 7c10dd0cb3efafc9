"""The rules of sessions. Methods that write return a `WriteResult` and commit nothing."""

from dataclasses import dataclass, replace
from datetime import timedelta
from urllib.parse import quote

from app.core.clock import Clock, rfc3339
from app.core.limits import BODY_LIMITS
from app.core.schemas import Json, Page, differing
from app.core.work import off_loop
from app.errors import AlreadyExists, FieldError, Invalid, SessionEnded
from app.jobs import queue
from app.jobs.models import POST_CONVERSATION, SUMMARIZE, Operation, Payload
from app.jobs.queue import Job
from app.memories.embedding import Embeddings
from app.memories.records import metadata_terms, passage
from app.memories.repository import MemoryRepository
from app.memories.schemas import Deleted, MemoryRecord
from app.sessions import repository
from app.sessions.long_messages import within_limit
from app.sessions.repository import SessionRepository, SessionSummaries, SummaryText
from app.sessions.schemas import (
    SESSIONS,
    Appended,
    MessageRecord,
    MessageRole,
    MessagesAppend,
    Session,
    SessionCreate,
    SessionPatch,
    SessionRecord,
    SessionStats,
    SessionStatus,
    counter,
    render,
    render_message,
)
from app.storage.changes import Allocate, Change, IndexEntry
from app.storage.repository import Listing, expired, page_of, render_items, unexpired
from app.storage.schema import Eq, both
from app.writes.executor import IfMatch, WriteResult, changed, etag

LEARN_EVERY = 20
"""Messages between two learning jobs of a session."""
SUMMARY_TOKENS = 8_000
"""Tokens of messages between two summaries of a session."""
QUIET = timedelta(seconds=30)
"""Delay of a learning job, so that it starts when the conversation is quiet."""

TAKEN = (
    "That session_id is taken: a session_id is unique in a tenant, whoever the agent and the user are. Choose one that "
    "no other conversation has, for example ada-2026-06-01, or a random one."
)

ROLES: tuple[MessageRole, ...] = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class SessionFilters:
    """Which sessions a list shows. None: any."""

    agent_id: str | None = None
    user_id: str | None = None
    status: SessionStatus | None = None
    metadata: Json | None = None


class SessionService:
    """Reads and changes the sessions that one caller may see."""

    def __init__(
        self,
        sessions: SessionRepository,
        memories: MemoryRepository,
        embeddings: Embeddings,
        clock: Clock,
        *,
        learns: bool = False,
    ) -> None:
        """Creates the service. `learns`: a language model for learning from conversations is configured."""
        self._sessions, self._memories, self._embeddings, self._clock = sessions, memories, embeddings, clock
        self._learns = learns
        self._summaries = SessionSummaries(memories, embeddings)

    async def create(self, body: SessionCreate, precondition: IfMatch) -> WriteResult[Session]:
        """Plans a new session. Raises AlreadyExists if its id is taken, and NotFound if it is that of a session outside
        the bindings."""
        now = self._now()
        session = repository.new_session(body, now)
        # first, so that nobody learns which ids are taken
        self._sessions.scope.require_write(session["agent_id"], session["user_id"])
        mine = await self._sessions.find_one(session["session_id"])
        if mine is not None and not expired(mine, now):
            raise AlreadyExists(TAKEN)
        changes = [*await self._make_room(session["session_id"], now), self._sessions.insert(session)]
        precondition.check(None)
        return WriteResult(render(session), changes, 201, {"ETag": etag(session)})

    async def get(self, session_id: str) -> Session:
        """Returns a session. Raises NotFound if it is not visible or has expired."""
        return render(await self._live(session_id))

    async def page(self, filters: SessionFilters, listing: Listing) -> Page[Session]:
        """Returns one page of the sessions that match the filters."""
        entries = filters.metadata or {}
        fields = {"agent_id": filters.agent_id, "status": filters.status, "user_id": filters.user_id}
        named = [Eq(name, value) for name, value in fields.items() if value is not None]
        where, request = both(*named, unexpired(self._now())), repr((named, sorted(metadata_terms(entries))))
        sessions, cursor = await self._sessions.page_with(where, entries, listing, request)
        return page_of(await render_items(SESSIONS, sessions, render, Session), cursor)

    async def patch(self, session_id: str, body: SessionPatch, precondition: IfMatch) -> WriteResult[Session]:
        """Changes the fields that are set in `body`. The memory of the summary follows."""
        session = await self._live(session_id)
        precondition.check(session)
        fields = differing(session, body.model_dump(exclude_unset=True))
        changes: list[Change] = []
        if "metadata" in fields:
            fields["metadata_terms"] = metadata_terms(fields["metadata"])
        if "summary" in fields:
            patched = session | fields
            if patched["summary"] is None:
                summary, changes = await self._summaries.drop(patched)
            else:
                event_at = session["last_message_at"]
                written = SummaryText(patched["summary"], 1.0, {"origin": "api"}, event_at=event_at)
                summary, changes = await self._summaries.write(patched, written, self._now())
            fields |= summary
        outcome = self._changed(session, fields)
        return replace(outcome, changes=[*outcome.changes, *changes])

    async def end(self, session_id: str, precondition: IfMatch) -> WriteResult[Operation]:
        """Ends a session. Answers 202 with the operation that learns from the conversation.

        Ending an ended session starts the operation again; it learns nothing twice.
        """
        session = await self._live(session_id)
        precondition.check(session)
        ended = self._changed(
            session, {} if session["status"] == "ended" else {"status": "ended", "ended_at": self._now()}
        )
        payload = self._to_learn(session_id)
        scope = self._sessions.scope
        scope.require_write(session["agent_id"], session["user_id"])
        operation, queued = queue.start(
            scope,
            POST_CONVERSATION,
            payload,
            self._clock.now(),
            agent_id=session["agent_id"],
            user_id=session["user_id"],
            session_id=session_id,
        )
        return WriteResult(operation, [*ended.changes, *queued], 202, ended.headers)

    async def reopen(self, session_id: str, precondition: IfMatch) -> WriteResult[Session]:
        """Makes an ended session active again. Learning goes on after the messages that it has processed."""
        session = await self._live(session_id)
        precondition.check(session)
        return self._changed(session, {} if session["status"] == "active" else {"status": "active", "ended_at": None})

    def _to_learn(self, session_id: str) -> Payload:
        return {"session_id": session_id, **self._sessions.scope.bindings()}

    def _learn_on_the_way(self, session: SessionRecord, added: list[MessageRecord]) -> list[Change]:
        """Returns the changes that queue the learning jobs that are due.

        Learning is due every `LEARN_EVERY` messages, once the session is quiet, and a summary every `SUMMARY_TOKENS`
        tokens. Without a language model nothing is.
        """
        count, size = session["message_count"], session["token_count"]
        by_count = count // LEARN_EVERY != (count + len(added)) // LEARN_EVERY
        by_size = size // SUMMARY_TOKENS != (size + sum(message["tokens"] for message in added)) // SUMMARY_TOKENS
        reads = self._learns and session["memorize"] != "none"
        due = [(POST_CONVERSATION, by_count and reads), (SUMMARIZE, by_size and self._learns)]
        quiet, scope = self._clock.now() + QUIET, self._sessions.scope
        payload = self._to_learn(session["session_id"])
        return [Job(kind, scope.tenant, payload).enqueue(quiet) for kind, is_due in due if is_due]

    def _changed(self, session: SessionRecord, fields: SessionRecord) -> WriteResult[Session]:
        return changed(self._sessions, session, fields, render, self._now())

    async def delete(self, session_id: str, precondition: IfMatch) -> WriteResult[None]:
        """Deletes a session and its messages. The memories made from them stay."""
        session = await self._sessions.get_to_delete(session_id, self._now())
        precondition.check(session)
        return WriteResult(None, self._sessions.remove(session), 204)

    async def clear(self, session_id: str, precondition: IfMatch) -> WriteResult[Deleted]:
        """Deletes the messages and the summary of a session. Long-term memory stays."""
        session = await self._live(session_id)
        precondition.check(session)
        empty: SessionRecord = {
            "message_count": 0,
            "token_count": 0,
            "last_message_at": None,
            "summary": None,
            "summary_id": None,  # the memory stays; the next summary gets one of its own
            "summary_seq": None,
        }
        counted: SessionRecord = {"message_count": session["message_count"], "version": session["version"]}
        update = self._sessions.update(session, empty, now=self._now(), expect=counted)
        return WriteResult({"deleted": session["message_count"]}, [*self._sessions.clear(session), update])

    # --- Messages -----------------------------------------------------------------------------------------------------

    async def append(self, session_id: str, body: MessagesAppend, precondition: IfMatch) -> WriteResult[Appended]:
        """Appends messages in order, all or none. A new session is created first. Texts over the limit are cut.

        Raises SessionEnded if the session has ended, NotFound if it is outside the bindings, AlreadyExists if it is of
        other owners than those that the body names, and Invalid.
        """
        now = self._now()
        session, changes = await self._open(session_id, body, precondition, now)
        limited = await within_limit(body.messages, BODY_LIMITS.text_chars)
        messages = await off_loop(limited.characters, repository.new_messages, session, limited.messages, now)
        changes.append(Allocate(counter(session_id), self._sessions.scope.tenant, len(messages)))
        changes += [self._sessions.add_message(message) for message in messages]
        changes.append(self._sessions.count_in(session, messages))
        changes += self._learn_on_the_way(session, messages)
        memories = await self._memorize(session, messages, now)
        for memory, entry in memories:
            changes += self._memories.add(memory, entry)
        answer: Appended = {
            "session_id": session_id,
            "items": [render_message(message) for message in messages],
            "memory_ids": [memory["memory_id"] for memory, _ in memories],
            "warnings": limited.warnings,
        }
        return WriteResult(answer, changes, 201)

    async def _open(
        self, session_id: str, body: MessagesAppend, precondition: IfMatch, now: str
    ) -> tuple[SessionRecord, list[Change]]:
        """Returns the session to append to, and the changes that create it."""
        session = await self._sessions.find_one(session_id)
        if session is not None and not expired(session, now):
            precondition.check(session)
            if body.agent_id not in (None, session["agent_id"]) or body.user_id not in (None, session["user_id"]):
                raise AlreadyExists(TAKEN)
            if session["status"] == "ended":
                reopen = f"/v1/sessions/{quote(session_id, safe='')}/reopen"
                raise SessionEnded(f"This session has ended. To add messages: POST {reopen}.")
            return session, []
        precondition.check(None)
        if body.agent_id is None or body.user_id is None:
            owners = {"agent_id": body.agent_id, "user_id": body.user_id}
            missing = [
                FieldError(f"/{name}", "is required: the session is new")
                for name, value in owners.items()
                if value is None
            ]
            raise Invalid("agent_id and user_id are required: the session is new.", errors=missing)
        wanted = SessionCreate(
            session_id=session_id,
            agent_id=body.agent_id,
            user_id=body.user_id,
            memorize=body.memorize or "messages",
            metadata=body.metadata or {},
        )
        session = repository.new_session(wanted, now)
        self._sessions.scope.require_write(session["agent_id"], session["user_id"])
        return session, [*await self._make_room(session_id, now), self._sessions.insert(session)]

    async def _make_room(self, session_id: str, now: str) -> list[Change]:
        """Returns the changes that free the id of an expired session.

        Raises NotFound if the session is outside the bindings. A session of the same caller may appear at any moment.
        The insert then conflicts and the plan is made again, so two first messages create one session.
        """
        old = await self._sessions.holder(session_id)
        return [] if old is None or not expired(old, now) else self._sessions.remove(old)

    async def _memorize(
        self, session: SessionRecord, messages: list[MessageRecord], now: str
    ) -> list[tuple[MemoryRecord, IndexEntry]]:
        """Returns the memories of the messages and their index entries, if the session memorizes messages."""
        if session["memorize"] != "messages":
            return []
        characters = sum(len(message["text"]) for message in messages)
        memories = await off_loop(characters, self._memories_of, session, messages, now)
        entries = await self._embeddings.entries([passage(memory) for memory in memories])
        return [
            (memory | {"embedding": self._embeddings.info(entry)}, entry)
            for memory, entry in zip(memories, entries, strict=True)
        ]

    def _memories_of(self, session: SessionRecord, messages: list[MessageRecord], now: str) -> list[MemoryRecord]:
        key_id = self._sessions.scope.key_id
        return [
            repository.memory_of(message, session, key_id, now)
            for message in messages
            if repository.leaves_memory(message)
        ]

    async def stats(self, session_id: str) -> SessionStats:
        """Returns counts and times of a session."""
        session = await self._live(session_id)
        counts = {role: await self._sessions.count_messages(session, role) for role in ROLES}
        first = await self._sessions.messages.find(self._sessions.said_in(session), order="asc", limit=1)
        return {
            "session_id": session_id,
            "message_count": session["message_count"],
            "by_role": {role: number for role, number in counts.items() if number},
            "token_count": session["token_count"],
            "first_message_at": first[0]["timestamp"] if first else None,
            "last_message_at": session["last_message_at"],
            "memories": await self._sessions.count_memories(session),
        }

    async def _live(self, session_id: str) -> SessionRecord:
        return await self._sessions.get_unexpired(session_id, self._now())

    def _now(self) -> str:
        return rfc3339(self._clock.now())
