"""Extraction that a caller asks for: bodies of requests and responses, and what they start."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from app.audit.tombstones import Tombstones
from app.core.clock import rfc3339
from app.core.process import off_loop
from app.core.schemas import Count, Owned, Schema, example
from app.errors import Conflict, invalid
from app.jobs import queue
from app.jobs.models import SUMMARIZE
from app.learning import prompts
from app.learning.conversation_extractors import Conversation, MemoryExtractor
from app.learning.dependencies import Tools
from app.llm.base import LLM, configured
from app.memories.schemas import MemoryCreated
from app.sessions.repository import SessionRepository
from app.sessions.schemas import MessageIn
from app.storage.scope import Scope
from app.writes.executor import IfMatch, WriteHandler, WriteResult


class ExtractRequest(Owned):
    model_config = example(
        {
            "agent_id": "films",
            "user_id": "user-456",
            "messages": [{"role": "user", "content": "I prefer action movies."}],
        }
    )

    messages: Annotated[list[MessageIn], Field(min_length=1, description="As they were said, at most 500.")]


class Spent(Schema):
    calls: Count
    tokens: Count
    cached_tokens: Count = Field(description="Tokens of the prompts that the server's cache had, as it says.")


class Extracted(Schema):
    items: list[MemoryCreated] = Field(description="Memories that were made, or found to be there already.")
    created: Count
    superseded: Count
    disputed: Count = Field(description="Memories that contradict ones of more trust, or pinned ones.")
    dropped: dict[str, Count] = Field(description="What the model said and was not taken, by reason.")
    llm: Spent


class Learning:
    """Summarizes sessions and extracts memories within a caller's scope."""

    def __init__(self, tools: Tools, llm: LLM | None, scope: Scope, tombstones: Tombstones) -> None:
        self._tools, self._llm, self._scope, self._tombstones = tools, llm, scope, tombstones

    async def summarize(self, session_id: str, precondition: IfMatch) -> WriteResult:
        """Returns 202 with the operation that writes the session's summary. Raises NotFound, Forbidden, or an error if
        there is no model."""
        now = self._tools.clock.now()
        session = await SessionRepository(self._tools.store, self._scope).get_unexpired(session_id, rfc3339(now))
        precondition.check(session)
        owner = {name: session[name] for name in ("agent_id", "user_id")}
        self._scope.require_write(session["agent_id"], session["user_id"])
        configured(self._llm)
        payload = {"session_id": session_id, **self._scope.bindings()}
        answer, changes = queue.start(self._scope, SUMMARIZE, payload, now, **owner, session_id=session_id)
        return WriteResult(answer, changes, 202)

    async def extract(self, body: ExtractRequest) -> WriteHandler:
        """Asks the model and returns a write handler, which may run again after a conflict without asking again.
        Raises what the model's client raises; nothing was stored then."""
        llm = configured(self._llm)
        self._scope.require_write(body.agent_id, body.user_id)
        begun = rfc3339(self._tools.clock.now())
        talk = Conversation(self._scope, body.agent_id, body.user_id, await self._lines(body))
        budget, part = llm.budget(), MemoryExtractor()
        extraction = [
            await part.ask(self._tools, replace(talk, lines=chunk), llm, budget)
            for chunk in await prompts.chunked(talk.lines)
        ]
        plan = part.plan_all(self._tools, talk, llm.model, extraction)

        async def unless_erased() -> WriteResult:
            """Raises Conflict if the user was erased while the model was reading."""
            result, changes = await plan()
            if body.user_id is not None and await self._tombstones.erased_since(body.user_id, begun):
                raise Conflict("This user was erased meanwhile: nothing was stored.")
            shown = {name: result[name] for name in ("items", "created", "superseded", "disputed", "dropped")}
            return WriteResult({**shown, "llm": budget.spent}, changes, 201)

        return unless_erased

    async def _lines(self, body: ExtractRequest) -> list[prompts.TranscriptLine]:
        now = rfc3339(self._tools.clock.now())
        docs = [
            {"seq": seq, "role": each.role, "name": each.name, "timestamp": each.timestamp or now, "text": each.text()}
            for seq, each in enumerate(body.messages, start=1)
        ]
        size = sum(len(each.text()) for each in body.messages)
        lines = await off_loop(size, prompts.read, docs, self._tools.settings.trust)
        if not lines:
            raise invalid("/messages", "none of them is of a user or assistant and says something")
        return lines
