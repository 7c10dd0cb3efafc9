"""A conversation of LangChain that lies in Recalld."""

import json
from collections.abc import Sequence
from typing import Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    messages_from_dict,
)
from recalld_client import AsyncUserSession, Problem, UserSession, models

MOST_MESSAGES = 100
"""Most messages of one append."""
ROLES: dict[str, models.MessageRole] = {"human": "user", "system": "system"}
KEY = "langchain"
"""Where a message's metadata holds the message as LangChain has it."""


class RecalldChatMessageHistory(BaseChatMessageHistory):
    """The messages of one session. What is said there becomes long-term memory of the user.

    session: `Recalld().user("ada").session()`. async_session: the same of `AsyncRecalld`, for the methods with
    `a`; without it they run those of `session` in a thread.

    Raises Problem and Unreachable of the client, TypeError where the session that a method needs was not given.
    """

    def __init__(self, session: UserSession | None = None, async_session: AsyncUserSession | None = None) -> None:
        super().__init__()
        if session is None and async_session is None:
            raise TypeError("Give session=, async_session= or both.")
        self._session, self._async = session, async_session

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override] # LangChain's own stores read it by a property, too
        """All messages, oldest first. A session that nobody wrote to has none."""
        session = self._sync_session()
        try:
            return [_restored(one) for one in session.messages() if one["deleted_at"] is None]
        except Problem as problem:
            return _none(problem)

    async def aget_messages(self) -> list[BaseMessage]:
        """As `messages`."""
        if self._async is None:
            return await super().aget_messages()
        try:
            return [_restored(one) async for one in self._async.messages() if one["deleted_at"] is None]
        except Problem as problem:
            return _none(problem)

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Adds messages at the end."""
        session = self._sync_session()
        for part in _parts(messages):
            session.append(part)

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """As `add_messages`."""
        if self._async is None:
            return await super().aadd_messages(messages)
        for part in _parts(messages):
            await self._async.append(part)
        return None

    def clear(self) -> None:
        """Removes all messages and what was remembered of them."""
        session = self._sync_session()
        try:
            session.client.clear_messages(session.session_id)
        except Problem as problem:
            _none(problem)

    async def aclear(self) -> None:
        """As `clear`."""
        if self._async is None:
            return await super().aclear()
        try:
            await self._async.client.clear_messages(self._async.session_id)
        except Problem as problem:
            _none(problem)
        return None

    def _sync_session(self) -> UserSession:
        if self._session is None:
            raise TypeError("A method without `a` needs session=, a session of Recalld.")
        return self._session


def _none(problem: Problem) -> list[BaseMessage]:
    """No messages, where nothing was said yet. Raises any other problem."""
    if problem.code != "not_found":
        raise problem
    return []


def _parts(messages: Sequence[BaseMessage]) -> list[list[dict[str, Any]]]:
    stored = [_stored(message) for message in messages]
    return [stored[begin : begin + MOST_MESSAGES] for begin in range(0, len(stored), MOST_MESSAGES)]


def _stored(message: BaseMessage) -> dict[str, Any]:
    """Its words for memory, and the message itself as metadata."""
    itself = {"type": message.type, "data": message.model_dump(mode="json")}
    made: dict[str, Any] = {"content": str(message.text), "metadata": {KEY: itself}}
    if isinstance(message, ToolMessage):
        return {**made, "role": "tool", "tool_call_id": message.tool_call_id}
    if isinstance(message, AIMessage) and message.tool_calls:
        return {**made, "role": "assistant", "tool_calls": [_call(one) for one in message.tool_calls]}
    if isinstance(message, ChatMessage) and message.role in ("system", "developer"):
        return {**made, "role": message.role}
    is_user = isinstance(message, ChatMessage) and message.role == "user"
    role = "user" if is_user else ROLES.get(message.type, "assistant")
    if role != "system" and not made["content"].strip():
        made["content"] = [{"type": message.type}]  # the service takes no message that is empty
    return {**made, "role": role}


def _call(call: Any) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": json.dumps(call["args"])}
    return {"id": call["id"] or call["name"], "type": "function", "function": function}


def _restored(message: models.Message) -> BaseMessage:
    """The message as it was added. One that another program appended is made of its role and content."""
    itself = (message["metadata"] or {}).get(KEY)
    if itself is not None:
        (made,) = messages_from_dict([itself])
        return made
    role, content = message["role"], _content(message)
    if role == "assistant":
        calls = [
            {"name": one["function"]["name"], "args": json.loads(one["function"]["arguments"]), "id": one["id"]}
            for one in message["tool_calls"] or ()
        ]
        return AIMessage(content, tool_calls=calls)
    if role == "tool":
        return ToolMessage(content, tool_call_id=message["tool_call_id"] or "")
    return HumanMessage(content) if role == "user" else SystemMessage(content)


def _content(message: models.Message) -> str | list[str | dict[Any, Any]]:
    given = message["content"]
    return given if isinstance(given, str) else [dict(part) for part in given or ()]
