"""The rules of sessions and their messages. Methods that write return a `WriteResult` and commit nothing."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from urllib.parse import quote

from pydantic import ValidationError

from app.core import prompt_text
from app.core.clock import Clock, rfc3339
from app.core.prompt_text import entry, escape
from app.core.schemas import BODY_LIMITS, Page, RecordFilters, differing, equal_json
from app.core.work import characters, off_loop
from app.errors import AlreadyExists, FieldError, Invalid, InvalidCursor, NotFound, SessionEnded, invalid, pointer
from app.jobs import queue
from app.memories.repository import Embeddings, MemoryRepository, of_partition, revision, text_to_index
from app.memories.schemas import MEMORIES, SMALL_TALK, Deleted, MemoryRecord
from app.memories.service import Succession
from app.sessions import repository, schemas
from app.sessions.long_messages import within_limit
from app.sessions.repository import (
    SessionRepository,
    SessionSummaries,
    SummaryText,
    content,
    importance_of,
    was_said_in,
)
from app.storage.changes import Allocate, Change
from app.storage.protocol import Fetched
from app.storage.record_filters import metadata_terms, split_filter
from app.storage.repository import Listing, expired, having, page_of, pages, render_items, unexpired
from app.storage.schema import Eq, Filter, both
from app.validation_words import in_words
from app.writes.executor import Precondition, WriteResult, changed, etag

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

ROLES: tuple[schemas.MessageRole, ...] = ("system", "developer", "user", "assistant", "tool")


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

    async def create(self, body: schemas.SessionCreate, precondition: Precondition) -> WriteResult[schemas.Session]:
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
        return WriteResult(schemas.render(session), changes, 201, {"ETag": etag(session)})

    async def get(self, session_id: str) -> schemas.Session:
        """Returns a session. Raises NotFound if it is not visible or has expired."""
        return schemas.render(await self._live(session_id))

    async def page(self, filters: RecordFilters, listing: Listing) -> Page[schemas.Session]:
        asked, keep = split_filter(filters, schemas.SESSION_FIELDS, schemas.SESSIONS)
        where = both(having(filters, "agent_id", "status", "user_id"), unexpired(self._now()), asked)
        return await self._sessions.listed(where, listing, schemas.render, schemas.Session, request=filters, keep=keep)

    async def patch(
        self, session_id: str, body: schemas.SessionPatch, precondition: Precondition
    ) -> WriteResult[schemas.Session]:
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

    async def end(self, session_id: str, precondition: Precondition) -> WriteResult[queue.Operation]:
        """Ends a session. Answers 202 with the operation that learns from the conversation.

        Ending an ended session starts the operation again; it learns nothing twice.
        """
        session = await self._live(session_id)
        precondition.check(session)
        ended = self._changed(
            session, {} if session["status"] == "ended" else {"status": "ended", "ended_at": self._now()}
        )
        operation, queued = queue.start(
            self._sessions.scope,
            queue.POST_CONVERSATION,
            self._to_learn(session_id),
            self._clock.now(),
            agent_id=session["agent_id"],
            user_id=session["user_id"],
            session_id=session_id,
        )
        return WriteResult(operation, [*ended.changes, *queued], 202, ended.headers)

    async def reopen(self, session_id: str, precondition: Precondition) -> WriteResult[schemas.Session]:
        """Makes an ended session active again. Learning goes on after the messages that it has processed."""
        session = await self._live(session_id)
        precondition.check(session)
        return self._changed(session, {} if session["status"] == "active" else {"status": "active", "ended_at": None})

    def _to_learn(self, session_id: str) -> queue.Payload:
        return {"session_id": session_id, **self._sessions.scope.bindings()}

    def _changed(self, session: schemas.SessionRecord, fields: schemas.SessionRecord) -> WriteResult[schemas.Session]:
        return changed(self._sessions, session, fields, schemas.render, self._now())

    async def delete(self, session_id: str, precondition: Precondition) -> WriteResult[None]:
        """Deletes a session and its messages. The memories made from them stay."""
        session = await self._sessions.get_to_delete(session_id, self._now())
        precondition.check(session)
        return WriteResult(None, self._sessions.remove(session), 204)

    async def clear(self, session_id: str, precondition: Precondition) -> WriteResult[Deleted]:
        """Deletes the messages and the summary of a session. Long-term memory stays."""
        session = await self._live(session_id)
        precondition.check(session)
        empty: schemas.SessionRecord = {
            "message_count": 0,
            "token_count": 0,
            "last_message_at": None,
            "summary": None,
            "summary_id": None,  # the memory stays; the next summary gets one of its own
            "summary_seq": None,
        }
        counted: schemas.SessionRecord = {"message_count": session["message_count"], "version": session["version"]}
        update = self._sessions.update(session, empty, now=self._now(), expect=counted)
        return WriteResult({"deleted": session["message_count"]}, [*self._sessions.clear(session), update])

    # --- Messages -----------------------------------------------------------------------------------------------------

    async def append(
        self, session_id: str, body: schemas.MessagesAppend, precondition: Precondition
    ) -> WriteResult[schemas.Appended]:
        """Appends messages in order, all or none. A new session is created first. Texts over the limit are cut.

        Raises SessionEnded if the session has ended, NotFound if it is outside the bindings, AlreadyExists if it is of
        other owners than those that the body names, and Invalid.
        """
        now = self._now()
        session, changes = await self._open(session_id, body, precondition, now)
        limited = await within_limit(body.messages, BODY_LIMITS.text_chars)
        messages = await off_loop(limited.length, repository.new_messages, session, limited.messages, now)
        changes.append(Allocate(schemas.counter(session_id), self._sessions.scope.tenant, len(messages)))
        changes += map(self._sessions.messages.insert, messages)
        changes.append(self._sessions.count_in(session, messages))
        memories = await self._memorize(session, messages, now)
        for _, added in memories:
            changes += added
        # learning is due every `LEARN_EVERY` messages, once the session is quiet; a summary, every `SUMMARY_TOKENS`
        count, size = session["message_count"], session["token_count"]
        by_count = count // LEARN_EVERY != (count + len(messages)) // LEARN_EVERY
        by_size = size // SUMMARY_TOKENS != (size + sum(message["tokens"] for message in messages)) // SUMMARY_TOKENS
        learns = self._learns and session["memorize"] != "none"
        due = [(queue.POST_CONVERSATION, by_count and learns), (queue.SUMMARIZE, by_size and self._learns)]
        quiet, scope = self._clock.now() + QUIET, self._sessions.scope
        payload = self._to_learn(session_id)
        changes += [queue.Job(kind, scope.tenant, payload).enqueue(quiet) for kind, is_due in due if is_due]
        answer: schemas.Appended = {
            "session_id": session_id,
            "items": [schemas.render_message(message) for message in messages],
            "memory_ids": [memory["memory_id"] for memory, _ in memories],
            "warnings": limited.warnings,
        }
        return WriteResult(answer, changes, 201)

    async def _open(
        self, session_id: str, body: schemas.MessagesAppend, precondition: Precondition, now: str
    ) -> tuple[schemas.SessionRecord, list[Change]]:
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
        wanted = schemas.SessionCreate(
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
        self, session: schemas.SessionRecord, messages: list[schemas.MessageRecord], now: str
    ) -> list[tuple[MemoryRecord, list[Change]]]:
        """Returns the memories of the messages, each with the changes that store it, if the session memorizes them."""
        if session["memorize"] != "messages":
            return []
        key_id = self._sessions.scope.key_id

        def made() -> list[MemoryRecord]:
            memories = (repository.memory_of(message, session, key_id, now) for message in messages)
            return [memory for memory in memories if memory is not None]

        memories = await off_loop(characters([[message["text"], message["metadata"]] for message in messages]), made)
        entries = await self._embeddings.entries([text_to_index(memory) for memory in memories])
        embedded = zip(memories, entries, strict=True)
        return [await self._memories.add(memory, self._embeddings, entry) for memory, entry in embedded]

    async def stats(self, session_id: str) -> schemas.SessionStats:
        session = await self._live(session_id)
        messages, undeleted = self._sessions.messages, self._sessions.undeleted(session)
        counts = {role: await messages.count(both(undeleted, Eq("role", role))) for role in ROLES}
        first = await messages.find(undeleted, order="asc", limit=1)
        # of an earlier session of this id, which was somebody else's, memories may be left
        owned = of_partition(session["agent_id"], session["user_id"])
        return {
            "session_id": session_id,
            "message_count": session["message_count"],
            "by_role": {role: number for role, number in counts.items() if number},
            "token_count": session["token_count"],
            "first_message_at": first[0]["timestamp"] if first else None,
            "last_message_at": session["last_message_at"],
            "memories": await self._memories.count(both(owned, Eq("source.session_id", session_id))),
        }

    async def _live(self, session_id: str) -> schemas.SessionRecord:
        return await self._sessions.get_unexpired(session_id, self._now())

    def _now(self) -> str:
        return rfc3339(self._clock.now())


# --- Single messages --------------------------------------------------------------------------------------------------
# The memory of a message follows an edit or deletion in the same commit, and a summary of the service that may quote it
# goes. A job then judges what was learned from the message (`learning/rederivation.py`).

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

    async def edit(
        self, session_id: str, seq: int, body: schemas.MessagePatch, precondition: Precondition
    ) -> WriteResult[schemas.Message]:
        """Changes the fields that are set in `body`. Raises NotFound, or Invalid if the result is no message."""
        now = self._now()
        session, old = await self._read(session_id, seq, precondition, now)
        message = self._merged(old, body)
        new = await off_loop(message.length(), repository.edited, session, old, message, now)
        if equal_json(schemas.render_message(old), schemas.render_message(new | {"edited_at": old.get("edited_at")})):
            return WriteResult(schemas.render_message(old))
        fields, changes = await self._remade(session, old, new, now)
        newest = await self._newest(session)
        if newest[0]["seq"] == seq:
            fields["last_message_at"] = new["timestamp"]
        fields["token_count"] = session["token_count"] + new["tokens"] - old["tokens"]
        changes += [self._sessions.change_message(old, new), self._counted(session, fields, now)]
        return WriteResult(schemas.render_message(new), changes)

    async def delete(self, session_id: str, seq: int, precondition: Precondition) -> WriteResult[None]:
        """Replaces a message by a tombstone that keeps its number. Raises NotFound."""
        now = self._now()
        session, old = await self._read(session_id, seq, precondition, now)
        memory = await self._memory_of(session, old)
        fields, changes = await self._unlearned(session, old, memory)
        if memory is not None:
            changes += await Succession(self._memories, now).deletion(memory)
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
        self, session_id: str, seq: int, precondition: Precondition, now: str
    ) -> tuple[schemas.SessionRecord, schemas.MessageRecord]:
        session = await self._sessions.get_unexpired(session_id, now)
        self._sessions.require_write(session)
        precondition.check(session)
        messages = await self._sessions.messages.find(both(self._sessions.undeleted(session), Eq("seq", seq)), limit=1)
        if not messages:
            raise NotFound(f"The session has no message {seq}.")
        return session, messages[0]

    def _merged(self, old: schemas.MessageRecord, body: schemas.MessagePatch) -> schemas.MessageIn:
        """Returns the message with the fields of `body`. Raises Invalid if it is none."""
        fields = {
            name: value for name, value in old.items() if name in schemas.MessageIn.model_fields and value is not None
        }
        fields = old.get("extra", {}) | fields
        try:
            message = schemas.MessageIn.model_validate(fields | body.model_dump(exclude_unset=True))
        except ValidationError as error:
            fault = error.errors()[0]
            raise invalid(pointer(fault["loc"][:1]), in_words(fault)) from error
        if (size := len(message.text())) > BODY_LIMITS.text_chars:
            raise invalid("/content", f"its parts have {size} characters: at most {BODY_LIMITS.text_chars}")
        return message

    async def _newest(self, session: schemas.SessionRecord) -> list[schemas.MessageRecord]:
        """Returns the last two messages, the newest first."""
        return await self._sessions.messages.find(self._sessions.undeleted(session), order="desc", limit=2)

    def _counted(self, session: schemas.SessionRecord, fields: schemas.SessionRecord, now: str) -> Change:
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
        self, session: schemas.SessionRecord, old: schemas.MessageRecord, new: schemas.MessageRecord, now: str
    ) -> tuple[schemas.SessionRecord, list[Change]]:
        """Returns the fields of the session and the changes that follow from an edit."""
        memory = await self._memory_of(session, old)
        fields: schemas.SessionRecord = {}
        changes: list[Change] = []
        if new["text"] != old["text"]:
            fields, changes = await self._unlearned(session, old, memory)
        fresh = repository.memory_of(new, session, self._sessions.scope.key_id, now)
        if fresh is None:
            return fields, changes + ([] if memory is None else await Succession(self._memories, now).deletion(memory))
        if memory is not None:
            changed = _follows(memory, old, new, fresh, now)
            _, rewritten = await self._memories.rewritten(memory, changed, now, self._embeddings)
            return fields, changes + rewritten
        if session["memorize"] != "messages":
            return fields, changes
        _, added = await self._memories.add(fresh, self._embeddings)
        return fields, changes + added

    async def _memory_of(self, session: schemas.SessionRecord, message: schemas.MessageRecord) -> MemoryRecord | None:
        """Returns the memory that was made of the message. Its time, unless a caller changed it, finds it at once."""
        where = both(
            of_partition(session["agent_id"], session["user_id"]), Eq("source.session_id", session["session_id"])
        )
        return await self._first(session, message, both(where, Eq("event_at", message["timestamp"]))) or (
            await self._first(session, message, where)
        )

    async def _first(
        self, session: schemas.SessionRecord, message: schemas.MessageRecord, where: Filter
    ) -> MemoryRecord | None:
        async for memories in pages(partial(self._memories.find, where), MEMORIES, PAGE):
            for memory in memories:
                if was_said_in(session, memory) and memory["source"]["message_seq"] == message["seq"]:
                    return memory
        return None

    async def _unlearned(
        self, session: schemas.SessionRecord, message: schemas.MessageRecord, memory: MemoryRecord | None
    ) -> tuple[schemas.SessionRecord, list[Change]]:
        """Returns the fields of the session, and the changes that queue the job which judges what was learned.

        A summary that the service wrote and that covers the message goes at once. One that a caller wrote stays.
        """
        fields: schemas.SessionRecord = {}
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
        job = queue.Job(queue.REDERIVE, self._sessions.scope.tenant, payload)
        return fields, [*changes, job.enqueue(self._clock.now())]

    def _now(self) -> str:
        return rfc3339(self._clock.now())


def _follows(
    memory: MemoryRecord, old: schemas.MessageRecord, new: schemas.MessageRecord, fresh: MemoryRecord, now: str
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
    told = fresh["source"]
    source = memory["source"] | {"speaker": told["speaker"], "said_at": told["said_at"]}
    return changed if source == memory["source"] else changed | {"source": source}


# --- Windows on a conversation: the last messages, or as many as fit into a number of tokens --------------------------

MAX_LAST = 1000
_CHARACTERS_A_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Window:
    """The messages to return.

    `last` and `max_tokens` look back from the end (or from `before_seq`). Without them messages are paged forwards.
    """

    last: int | None = None
    max_tokens: int | None = None
    before_seq: int | None = None
    after_seq: int | None = None

    @property
    def looks_back(self) -> bool:
        """Whether the window ends at the newest message."""
        return self.last is not None or self.max_tokens is not None


class Windows:
    """Reads the messages of sessions for one caller."""

    def __init__(self, sessions: SessionRepository, clock: Clock) -> None:
        self._sessions, self._clock = sessions, clock

    async def messages(self, session_id: str, window: Window, limit: int, cursor: str | None) -> Page[schemas.Message]:
        """Returns a page or a window of messages, oldest first. Raises InvalidCursor for a cursor with a window."""
        session = await self._sessions.get_unexpired(session_id, rfc3339(self._clock.now()))
        where = self._sessions.within(session, window.after_seq, window.before_seq)
        if window.looks_back:
            where = both(where, self._sessions.undeleted(session))
            if cursor is not None:  # a cursor belongs to a paged list
                raise InvalidCursor()
            newest_first = await self._sessions.messages.find(where, order="desc", limit=window.last or MAX_LAST)
            if window.max_tokens is not None:
                newest_first = _within_tokens(newest_first, window.max_tokens)
            items = await render_items(
                schemas.MESSAGES, map(Fetched, reversed(newest_first)), schemas.render_message, schemas.Message
            )
            return page_of(items, None)
        listing = Listing(order="asc", limit=limit, cursor=cursor)
        asked = session_id, window
        return await self._sessions.messages.listed(
            where, listing, schemas.render_message, schemas.Message, request=asked
        )

    async def context(self, session_id: str, max_messages: int, max_tokens: int | None) -> schemas.SessionContext:
        """Returns the last messages as text of at most `max_tokens` tokens. Older messages are left out first."""
        session = await self._sessions.get_unexpired(session_id, rfc3339(self._clock.now()))
        where = self._sessions.undeleted(session)
        newest_first = await self._sessions.messages.find(where, order="desc", limit=max_messages + 1)
        length = sum(message["tokens"] for message in newest_first) * _CHARACTERS_A_TOKEN
        return await off_loop(length, _context, session["summary"], newest_first, max_messages, max_tokens)


def _context(
    summary: str | None, newest_first: list[schemas.MessageRecord], max_messages: int, max_tokens: int | None
) -> schemas.SessionContext:
    newest_lines = (_line(schemas.speaker_role(message), content(message)) for message in newest_first[:max_messages])
    lines = [*as_many_as_could_fit(newest_lines, max_tokens)][::-1]
    fitted = fit([_line("summary", summary)] if summary else [], lines, max_tokens)
    return {
        "text": fitted.text,
        "messages": [
            {
                "seq": message["seq"],
                "role": schemas.speaker_role(message),
                "name": escape(" ".join((message["name"] or "").split())) or None,
                "content": escape(content(message)),
            }
            for message in reversed(newest_first[: fitted.count])
        ],
        "summary": summary,
        "tokens": fitted.tokens,
        "truncated": fitted.count < len(newest_first) or not fitted.whole_head,
    }


def as_many_as_could_fit(lines: Iterable[str], max_tokens: int | None) -> Iterator[str]:
    """Yields lines up to the first with which they have more than `max_tokens` tokens for certain: a seam takes away
    one at most. What is behind it is not even made: a hundred messages may have three million characters."""
    least = 0
    for line in lines:
        yield line
        if max_tokens is not None:
            least += prompt_text.count(line) - 1
            if least > max_tokens:
                return


@dataclass(frozen=True, slots=True)
class Fitted:
    """The text that fits. `whole_head`: the head is in it."""

    text: str
    tokens: int
    count: int
    """Number of the last lines that are included."""
    whole_head: bool


def fit(head: list[str], lines: list[str], max_tokens: int | None) -> Fitted:
    """Returns `head`, if it fits, and as many of the last `lines` as fit into `max_tokens`, which is never exceeded."""
    text = "\n".join((*head, *lines))
    size = prompt_text.count(text)
    if max_tokens is None or size <= max_tokens:
        return Fitted(text, size, len(lines), whole_head=True)
    if head and prompt_text.count("\n".join(head)) > max_tokens:
        return Fitted(*_last_that_fit([], lines, max_tokens), whole_head=False)
    return Fitted(*_last_that_fit(head, lines, max_tokens), whole_head=True)


def _last_that_fit(head: list[str], lines: list[str], max_tokens: int) -> tuple[str, int, int]:
    """Returns the text with the last lines that fit, its tokens, and the number of lines.

    A seam between lines changes the count by a token at most, so the sum of the parts is a first guess, which is then
    corrected.
    """
    left = max_tokens - prompt_text.count("\n".join(head))
    count = 0
    while count < len(lines) and (left := left - prompt_text.count(lines[-1 - count])) >= 0:
        count += 1
    text, size = _joined(head, lines, count)
    while size > max_tokens and count:
        count -= 1
        text, size = _joined(head, lines, count)
    while count < len(lines):
        longer, larger = _joined(head, lines, count + 1)
        if larger > max_tokens:
            break
        text, size, count = longer, larger, count + 1
    return text, size, count


def _joined(head: list[str], lines: list[str], count: int) -> tuple[str, int]:
    """Returns `head` and the last `count` lines as text, and their tokens."""
    text = "\n".join((*head, *lines[len(lines) - count :]))
    return text, prompt_text.count(text)


def _within_tokens(newest_first: list[schemas.MessageRecord], max_tokens: int) -> list[schemas.MessageRecord]:
    """Returns the newest messages, without a gap, whose tokens add up to at most `max_tokens`."""
    for index, message in enumerate(newest_first):
        max_tokens -= message["tokens"]
        if max_tokens < 0:
            return newest_first[:index]
    return newest_first


def _line(role: str, text: str) -> str:
    """Returns a line such as `user: I moved to Boston.` Further lines are indented, so that none can pass for a
    role."""
    return entry(f"{role}: ", text).removesuffix("\n")
