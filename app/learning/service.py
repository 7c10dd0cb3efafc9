"""Extraction that a caller asks for: bodies of requests and responses, and what they start.

Extraction that takes longer than its request may: the answer is an operation, and a job ends it.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, ClassVar, cast

from pydantic import Field
from typing_extensions import TypedDict

from app.audit.tombstones import ErasureKey, Tombstones
from app.core.clock import rfc3339
from app.core.schemas import BODY_LIMITS, Count, Object, Owned, TextWarning, example, shown
from app.core.work import begin, off_loop
from app.errors import Conflict, invalid
from app.jobs import queue
from app.jobs.runner import Done, Run
from app.learning import prompts
from app.learning.conversation_extractors import Conversation, StatementExtractor
from app.learning.dependencies import Tools
from app.learning.derivations import commit_planned
from app.llm.base import LLM, configured
from app.memories.schemas import MemoryCreated
from app.sessions.long_messages import KeptMessages, within_limit
from app.sessions.repository import SessionRepository
from app.sessions.schemas import MessageIn, MessageRecord
from app.storage.changes import Change, Insert
from app.storage.scope import Scope
from app.writes.executor import Precondition, WriteHandler, WriteResult


class ExtractRequest(Owned):
    model_config = example(
        {
            "agent_id": "films",
            "user_id": "user-456",
            "messages": [{"role": "user", "content": "I prefer action movies."}],
        }
    )

    LENIENT: ClassVar = frozenset({"messages"})

    messages: Annotated[
        list[MessageIn],
        Field(min_length=1, max_length=BODY_LIMITS.batch_items, description="As they were said, at most 500."),
    ]
    metadata: Object = Field({}, description="Of each memory that is made.")


@shown
class Spent(TypedDict):
    calls: Count
    tokens: Count
    cached_tokens: Annotated[Count, Field(description="Tokens of the prompts that the server's cache had, as it says.")]


@shown
class Extracted(TypedDict):
    items: Annotated[list[MemoryCreated], Field(description="Memories that were made, or found to be there already.")]
    created: Count
    superseded: Count
    disputed: Annotated[Count, Field(description="Memories that contradict ones of more trust, or pinned ones.")]
    dropped: Annotated[dict[str, Count], Field(description="What the model said and was not taken, by reason.")]
    llm: Spent
    warnings: Annotated[list[TextWarning], Field(default=[], description="What was not read whole, or has no text.")]


class Learning:
    """Summarizes sessions and extracts memories within a caller's scope."""

    def __init__(self, tools: Tools, llm: LLM | None, scope: Scope, tombstones: Tombstones) -> None:
        self._tools, self._llm, self._scope, self._tombstones = tools, llm, scope, tombstones

    async def summarize(self, session_id: str, precondition: Precondition) -> WriteResult[queue.Operation]:
        """Returns 202 with the operation that writes the session's summary. Raises NotFound, Forbidden, or an error if
        there is no model."""
        now = self._tools.clock.now()
        session = await SessionRepository(self._tools.store, self._scope).get_unexpired(session_id, rfc3339(now))
        precondition.check(session)
        owner = {"agent_id": session["agent_id"], "user_id": session["user_id"]}
        self._scope.require_write(session["agent_id"], session["user_id"])
        configured(self._llm)
        payload = {"session_id": session_id, **self._scope.bindings()}
        answer, changes = queue.start(self._scope, queue.SUMMARIZE, payload, now, **owner, session_id=session_id)
        return WriteResult(answer, changes, 202)

    def check(self, body: ExtractRequest) -> None:
        """Raises LLMNotConfigured, Forbidden or Invalid."""
        configured(self._llm)
        self._scope.require_write(body.agent_id, body.user_id)

    def start(self, body: ExtractRequest, begun: str | None = None) -> asyncio.Task[WriteHandler]:
        """Starts to extract. `begun`: when the caller asked for it; None is now."""
        # the model takes longer than the deadline of the request for the store
        return begin(self.extract(body, begun or rfc3339(self._tools.clock.now())), "extraction")

    def hand_over(self, body: ExtractRequest) -> tuple[WriteResult[queue.Operation], str]:
        """Returns the answer with the operation that a job ends, and the id of the job."""
        now = self._tools.clock.now()
        payload = {"body": body.model_dump(mode="json"), "begun": rfc3339(now), **self._scope.bindings()}
        owner = {"agent_id": body.agent_id, "user_id": body.user_id}
        operation, changes = queue.start(self._scope, queue.EXTRACT, payload, now, **owner)
        inserts = [change for change in changes if isinstance(change, Insert)]
        (job_id,) = [insert.doc["job_id"] for insert in inserts if insert.collection is queue.JOBS]
        return WriteResult(operation, changes, 202), job_id

    async def extract(self, body: ExtractRequest, begun: str) -> WriteHandler:
        """Asks the model and returns a write handler, which may run again after a conflict without asking again.
        Raises what the model's client raises; nothing was stored then."""
        llm = configured(self._llm)
        self._scope.require_write(body.agent_id, body.user_id)
        cut = await within_limit(body.messages, BODY_LIMITS.text_chars)
        lines = await self._lines(cut)
        talk = Conversation(self._scope, body.agent_id, body.user_id, lines, metadata=body.metadata)
        budget, part = llm.budget(self._tools.allowance(self._scope.tenant)), StatementExtractor()
        answers = [
            await part.ask(self._tools, replace(talk, lines=chunk), llm, budget)
            for chunk in await prompts.chunked(talk.lines, llm.prompt_tokens)
            if prompts.heard(chunk)
        ]
        plan = part.memories(self._tools, talk, llm.model, answers)

        async def unless_erased() -> WriteResult:
            """Raises Conflict if the user was erased while the model was reading."""
            stored = await plan()
            if body.user_id is not None and await self._tombstones.erased_since(body.user_id, begun):
                raise Conflict("This user was erased meanwhile: nothing was stored.")
            answer: Extracted = {
                "items": stored.items,
                "created": stored.result["created"],
                "superseded": stored.result["superseded"],
                "disputed": stored.result["disputed"],
                "dropped": stored.result["dropped"],
                "llm": cast(Spent, budget.spent),
                "warnings": cut.warnings,
            }
            return WriteResult(answer, stored.changes, 201)

        return unless_erased

    async def _lines(self, cut: KeptMessages) -> list[prompts.TranscriptLine]:
        now = rfc3339(self._tools.clock.now())

        def records() -> Iterator[MessageRecord]:
            for seq, message in enumerate(cut.messages, start=1):
                said, at = message.text(own=True), message.timestamp or now
                yield {"seq": seq, "role": message.role, "name": message.name, "timestamp": at, "text": said}

        lines = await off_loop(cut.length, lambda: prompts.read([*records()]))
        if not lines:
            raise invalid("/messages", "none of them is of a user or assistant and says something")
        return lines


ExtractionTask = asyncio.Task[WriteHandler]
"""The model reads the messages. The result stores what it found."""

_HANDED_OVER: dict[str, ExtractionTask] = {}
"""Readings of this process that outlasted their requests, by operation. Their jobs wait for them, so that the model is
not asked twice. A job that runs in another process asks again."""


class TimedExtraction:
    """One request to extract memories, which is answered within `seconds`."""

    def __init__(self, learning: Learning, body: ExtractRequest, seconds: float) -> None:
        self._learning, self._body, self._seconds = learning, body, seconds
        self._reading: ExtractionTask | None = None
        self._operation_id = ""
        self.job_id: str | None = None
        """The job that ends the extraction; None if it ended within the request."""

    async def plan(self) -> WriteResult:
        """Returns what was found, or 202 with an operation. After a conflict it runs again without asking again. Raises
        what the model's client raises."""
        if self._reading is None:
            self._learning.check(self._body)
            self._reading = self._learning.start(self._body)
        done, _ = await asyncio.wait([self._reading], timeout=self._seconds)
        if done:
            return await self._reading.result()()
        outcome, self.job_id = self._learning.hand_over(self._body)
        self._operation_id = outcome.body["operation_id"]
        _HANDED_OVER[self._operation_id] = self._reading
        return outcome

    def stop(self) -> None:
        """Stops the reading of a request that failed."""
        if self._reading is not None:
            self._reading.cancel()
            _HANDED_OVER.pop(self._operation_id, None)


class ExtractionJobs:
    """Ends extractions that outlasted their requests."""

    def __init__(self, tools: Tools, llm: LLM | None) -> None:
        self._tools, self._llm = tools, llm

    async def handle(self, run: Run) -> Done:
        """Stores what the model finds. The result is that of the request. Raises what the model's client raises."""
        reading = _HANDED_OVER.pop(str(run.lease.job.operation_id), None)
        if reading is None:
            scope = Scope.of_bindings(run.tenant, run.payload)
            tombstones = Tombstones(run.store, run.tenant, ErasureKey.of(self._tools.settings))
            learning = Learning(self._tools, self._llm, scope, tombstones)
            reading = learning.start(ExtractRequest.model_validate(run.payload["body"]), run.payload["begun"])
        store = await reading  # a job that is cancelled cancels the reading

        async def plan() -> tuple[Extracted, list[Change]]:
            outcome = await store()
            return outcome.body, list(outcome.changes)

        return Done({**await commit_planned(run, plan)})
