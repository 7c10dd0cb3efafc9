"""The history that a model sees, with what is remembered of the user."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai import DeferredToolRequests, ModelMessage, ModelRequest, RunContext, UserPromptPart
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import AgentDepsT
from pydantic_core import to_json
from recalld_client import NO_RETRY, AsyncUserSession, MemoryEvent, Problem, RecalldError, models

LOG = logging.getLogger("pydantic_ai_recalld")


@dataclass
class RecalldHistory(AbstractCapability[AgentDepsT]):
    """Adds what is remembered to the messages of each model request, and stores the conversation.

    session: `AsyncRecalld().user("ada").session()`, or a function of the run's context that returns it, for an
    agent that serves many users. budget: most tokens that are added, 0 for none. remember: whether the user's prompt
    and the run's output are stored. timeout: seconds that each call of the memory may take. on_memory: is called with a
    `MemoryEvent` for each thing done.

    The block goes in front of the last user prompt of the request only: `result.all_messages()` does not have it. The
    prompt is stored before the model is asked, so it stays when the model fails. A failing memory never fails the run.
    Raises Problem `already_exists` where the session's id is that of another user's conversation.
    """

    session: AsyncUserSession | Callable[[RunContext[AgentDepsT]], AsyncUserSession]
    budget: int = 1500
    remember: bool = True
    timeout: float = 5.0
    on_memory: Callable[[MemoryEvent], None] | None = None
    _known: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    """Of one run: the block of each query, empty where memory failed. Each step of a loop of tools asks the same."""
    _prompt_stored: bool = field(default=False, init=False, repr=False)

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """None: a session cannot be written into the specification of an agent."""
        return None

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> "RecalldHistory[AgentDepsT]":
        """One of its own for each run."""
        chosen = self.session if isinstance(self.session, AsyncUserSession) else self.session(ctx)
        quick = chosen.client.with_options(timeout=self.timeout, retry=NO_RETRY)
        return replace(self, session=AsyncUserSession(quick, chosen.user_id, chosen.agent_id, chosen.session_id))

    async def before_model_request(
        self, ctx: RunContext[AgentDepsT], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Adds what is known to the request and stores the prompt of the run."""
        query = _text(_last_prompt(request_context.messages))
        if query:
            block = await self._recalled(query)
            if block:
                request_context.messages = _with_block(request_context.messages, block)
        said = _text(ctx.prompt)
        if said and self.remember and not self._prompt_stored:
            self._prompt_stored = True
            await self._append({"role": "user", "content": said}, f"{ctx.run_id}-prompt")
        return request_context

    async def after_run(self, ctx: RunContext[AgentDepsT], *, result: AgentRunResult[Any]) -> AgentRunResult[Any]:
        """Stores the output. What is no text is stored as JSON."""
        output = result.output
        if self.remember and not isinstance(output, DeferredToolRequests):
            said = output if isinstance(output, str) else to_json(output, fallback=str).decode()
            if said.strip():
                await self._append({"role": "assistant", "content": said}, f"{ctx.run_id}-output")
        return result

    async def _recalled(self, query: str) -> str:
        if self.budget == 0:
            return ""
        if query not in self._known:
            # the history has the conversation's messages already
            call = self._session.context(query, budget=self.budget, exclude=["messages"])
            context = await self._tried(call)
            found = context is not None and any(section["items"] for section in context["sections"])
            self._known[query] = context["text"] if found else ""
            if context is not None:
                self._tell(MemoryEvent("recalled", self._session.session_id, context=context))
        return self._known[query]

    async def _append(self, message: dict[str, Any], key: str) -> None:
        if await self._tried(self._session.append([message], idempotency_key=key)) is not None:
            self._tell(MemoryEvent("remembered", self._session.session_id, messages=1))

    @property
    def _session(self) -> AsyncUserSession:
        assert isinstance(self.session, AsyncUserSession)  # for_run has chosen it
        return self.session

    async def _tried(self, call: Awaitable[models.Context | models.Appended]) -> Any:
        """The answer; None where the memory fails, which is told. Raises Problem for a session of another user."""
        try:
            return await call
        except RecalldError as error:
            if isinstance(error, Problem) and error.code == "already_exists":
                raise
            LOG.warning("Memory failed, the model is called without it: %s", error)
            self._tell(MemoryEvent("failed", self._session.session_id, error=error))
            return None

    def _tell(self, event: MemoryEvent) -> None:
        if self.on_memory is not None:
            try:
                self.on_memory(event)
            except Exception:
                LOG.warning("The hook on_memory has raised.", exc_info=True)


def _last_prompt(messages: Sequence[ModelMessage]) -> Any:
    prompts = [part for one in messages if isinstance(one, ModelRequest) for part in one.parts]
    return next((part.content for part in reversed(prompts) if isinstance(part, UserPromptPart)), None)


def _with_block(messages: Sequence[ModelMessage], block: str) -> list[ModelMessage]:
    """The messages with a user prompt in front of the last one. The given ones stay as they are."""
    made = list(messages)
    for index in reversed(range(len(made))):
        message = made[index]
        if isinstance(message, ModelRequest):
            places = [n for n, part in enumerate(message.parts) if isinstance(part, UserPromptPart)]
            if places:
                parts = list(message.parts)
                parts.insert(places[-1], UserPromptPart(block))
                made[index] = replace(message, parts=parts)
                return made
    return made


def _text(prompt: Any) -> str:
    """The text of a prompt; pictures and files are left out."""
    if prompt is None or isinstance(prompt, str):
        return prompt or ""
    texts = [one if isinstance(one, str) else getattr(one, "content", None) for one in prompt]
    return "\n".join(one for one in texts if isinstance(one, str))
