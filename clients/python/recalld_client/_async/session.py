"""One conversation of a user."""

from collections.abc import AsyncIterator
from typing import Unpack

from recalld_client import _generated as models
from recalld_client._async.pages import items
from recalld_client._errors import Problem
from recalld_client._generated import AsyncOperations
from recalld_client._messages import Messages, as_messages


class AsyncUserSession:
    """A conversation of a user with an agent. `AsyncUserMemory.session` makes it."""

    def __init__(self, client: AsyncOperations, user_id: str, agent_id: str, session_id: str) -> None:
        self.client, self.user_id, self.agent_id, self.session_id = client, user_id, agent_id, session_id

    async def append(
        self,
        messages: str | Messages,
        *,
        role: models.MessageRole = "user",
        memorize: models.Memorize | None = None,
        reopen: bool = True,
        idempotency_key: str | None = None,
    ) -> models.Appended:
        """Stores what was said: a text, said by `role`, or messages in the form of OpenAI's chat API.

        The first append makes the session. memorize: whether messages become memories; default as the session was
        made. A session that has ended goes on; with `reopen=False` that raises Problem, 409 `session_ended`.
        """
        body: models.MessagesAppend = {"messages": as_messages(messages, role)}
        body |= {"agent_id": self.agent_id, "user_id": self.user_id}
        if memorize is not None:
            body["memorize"] = memorize
        try:
            return await self.client.append_messages(self.session_id, body, idempotency_key=idempotency_key)
        except Problem as problem:
            if not reopen or problem.code != "session_ended":
                raise
        await self.client.reopen_session(self.session_id)
        return await self.client.append_messages(self.session_id, body, idempotency_key=idempotency_key)

    async def context(
        self, query: str, *, budget: int = 2000, **options: Unpack[models.ContextOptions]
    ) -> models.Context:
        """As `AsyncUserMemory.context`, with the last turns of this conversation."""
        asked: models.ContextRequest = {"agent_id": self.agent_id, "user_id": self.user_id, "query": query}
        asked = {**asked, "session_id": self.session_id, "token_budget": budget, **options}
        return await self.client.assemble_context(asked)

    def messages(self, *, limit: int = 100) -> AsyncIterator[models.Message]:
        """All messages, oldest first. limit: how many a page has."""
        return items(self.client.list_messages, session_id=self.session_id, limit=limit)

    async def get(self) -> models.Session:
        """The session's state. Raises Problem, 404 before the first append."""
        return await self.client.get_session(self.session_id)

    async def end(self) -> models.Operation:
        """Ends the conversation. A configured language model learns from it then; the operation says when it has."""
        return await self.client.end_session(self.session_id)

    async def delete(self) -> None:
        """Deletes the conversation and the memories of its messages."""
        await self.client.delete_session(self.session_id)
