"""Memory around the calls of one client of a model."""

import functools
import hashlib
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import uuid4

from recalld_client._async.session import AsyncUserSession
from recalld_client._errors import Problem
from recalld_client._events import Hook, MemoryEvent, tell
from recalld_client._openai_messages import ANTHROPIC, CHAT, RESPONSES, Api, Turn

MOST_WAITING = 100
"""Turns that are kept while memory is down. They are stored with the next one."""


def _refused(*_: Any, **__: Any) -> Any:
    raise TypeError("A client with a memory does not have stream(): use create(stream=True).")


class AsyncRemembering:
    """Recalls before each call of the model, and remembers what was said. A memory that fails never fails the call.

    Raises Problem `already_exists` where the session's id is that of another user's conversation: nothing would ever
    be stored.

    budget: tokens of what is recalled, 0 to recall nothing. remember: whether turns are stored.
    """

    def __init__(self, session: AsyncUserSession, *, budget: int, remember: bool, on_event: Hook | None) -> None:
        self.session, self._budget, self._remember, self._on_event = session, budget, remember, on_event
        self._waiting: deque[tuple[str, list[dict[str, Any]]]] = deque(maxlen=MOST_WAITING)
        self._unanswered = uuid4().hex  # a call that failed and is made again has the same

    def wrap(self, create: Callable[..., Awaitable[Any]], api: Api) -> Callable[..., Awaitable[Any]]:
        """The method `create` of a resource, with memory."""

        @functools.wraps(create)
        async def remembered(**request: Any) -> Any:
            turn = self._turn(api, request)
            if turn is None:
                return await create(**request)
            prompt = await self._recalled(api, turn, request)
            await self._store(turn.new, self._key(turn))
            answer = await create(**prompt)
            return await self._watched(api, answer, request)

        return remembered

    def attach(self, client: Any) -> None:
        """Puts memory around the methods of a client. Others, such as embeddings, stay as they are."""
        if hasattr(client, "chat"):
            resources = [(client.chat.completions, CHAT), (getattr(client, "responses", None), RESPONSES)]
        else:
            resources = [(client.messages, ANTHROPIC), (client.beta.messages, ANTHROPIC)]
            for resource, _ in resources:
                resource.stream = _refused
        for resource, api in resources:
            for name in ("create", "parse"):
                if hasattr(resource, name):
                    setattr(resource, name, self.wrap(getattr(resource, name), api))

    def _turn(self, api: Api, request: dict[str, Any]) -> Turn | None:
        """What the call asks; None where it cannot be read, which OpenAI will say better."""
        try:
            return api.turn(request)
        except Exception as error:  # noqa: BLE001 - see the class
            self._failed(error)
            return None

    async def _recalled(self, api: Api, turn: Turn, request: dict[str, Any]) -> dict[str, Any]:
        """The request with what is known. Where the caller sends the conversation, its turns are not repeated."""
        if not turn.query or self._budget == 0:
            return request
        try:
            form: Any = "messages" if turn.has_history else "markdown"
            context = await self.session.context(turn.query, budget=self._budget, format=form)
            if not context["text"].strip():
                return request
            prompt = api.with_memory(request, context["text"])
        except Exception as error:  # noqa: BLE001 - see the class
            self._failed(error)
            return request
        tell(self._on_event, MemoryEvent("recalled", self.session.session_id, context=context))
        return prompt

    def _key(self, turn: Turn) -> str:
        """The same for the same turn until the model has answered, so that a call made again stores it once."""
        said = json.dumps([self.session.session_id, self._unanswered, turn.new], sort_keys=True, default=str)
        return hashlib.sha256(said.encode()).hexdigest()

    async def _store(self, messages: list[dict[str, Any]], key: str) -> None:
        """Stores these messages, and before them those that could not be stored earlier."""
        if not self._remember or not messages:
            return
        if key not in (waiting for waiting, _ in self._waiting):
            self._waiting.append((key, messages))
        try:
            while self._waiting:
                oldest = self._waiting[0]
                await self.session.append(oldest[1], idempotency_key=oldest[0])
                if self._waiting and self._waiting[0] is oldest:
                    self._waiting.popleft()
                count = len(oldest[1])
                tell(self._on_event, MemoryEvent("remembered", self.session.session_id, messages=count))
        except Exception as error:
            if isinstance(error, Problem) and error.code == "already_exists":
                raise
            self._failed(error)

    async def _watched(self, api: Api, answer: Any, request: dict[str, Any]) -> Any:
        """The model's answer, stored now or, where it is a stream, at its end."""
        try:
            if (request.get("extra_headers") or {}).get("X-Stainless-Raw-Response") == "stream":
                raise TypeError("An answer by with_streaming_response is not stored: its bytes are the caller's.")
            parsed = answer.parse() if hasattr(answer, "http_response") else answer  # of with_raw_response
            if request.get("stream") is True:
                self._attach_to_stream(api, parsed)
                return answer
            said = api.answer(parsed)
        except Exception as error:  # noqa: BLE001 - see the class
            self._failed(error)
            return answer
        await self._answered(said)
        return answer

    def _attach_to_stream(self, api: Api, stream: Any) -> None:
        """In place, because callers test for OpenAI's class and call its other methods."""
        chunks, close = self._stream(api, stream._iterator), stream.close

        async def stored_and_closed() -> None:
            try:
                await chunks.aclose()
            finally:
                await close()

        stream._iterator, stream.close = chunks, stored_and_closed

    async def _stream(self, api: Api, chunks: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        """The chunks as they come. What was said is stored at the end, also where the caller stops early."""
        heard, whole = api.chunks(), False
        try:
            async for chunk in chunks:
                self._hear(heard, chunk)
                yield chunk
            whole = True
        finally:
            said = heard.answer()
            if whole or said:
                await self._answered(said if whole else [{**one, "metadata": {"interrupted": True}} for one in said])

    def _hear(self, heard: Any, chunk: Any) -> None:
        try:
            heard.add(chunk)
        except Exception as error:  # noqa: BLE001 - see the class
            self._failed(error)

    async def _answered(self, said: list[dict[str, Any]]) -> None:
        self._unanswered = uuid4().hex
        await self._store(said, uuid4().hex)

    def _failed(self, error: Exception) -> None:
        tell(self._on_event, MemoryEvent("failed", self.session.session_id, error=error))
