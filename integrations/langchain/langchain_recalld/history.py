"""A conversation of LangChain that lies in Recalld."""

import json
import logging
from collections.abc import Sequence
from typing import Any, cast

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
"""The field of a message that holds it as LangChain has it."""
MOST_CHARS = 250_000
"""Most characters of a message as JSON. The service keeps a field of a message whole up to 262,144."""
LOG = logging.getLogger("langchain_recalld")


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
    """Its words for memory, and the message itself in a field that the service keeps whole."""
    made: dict[str, Any] = {"content": str(message.text), KEY: {"type": message.type, "data": _fitting(message)}}
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


def _fitting(message: BaseMessage) -> dict[str, Any]:
    """The message as JSON that can be kept whole. A field that is no JSON is left out, and so is what tools and models
    said beside the message where it is too large. Instead of a picture or file that is too large there is a text."""
    data, sizes = dict[str, Any](), dict[str, int]()
    for name in [*type(message).model_fields, *(message.model_extra or ())]:
        try:
            field = message.model_dump(mode="json", include={name})
            sizes[name] = len(json.dumps(field, allow_nan=False))
            data |= field
        except (TypeError, ValueError, RecursionError) as error:
            LOG.warning("The %s of a message is no JSON and was not kept: %s", name, error)
    for name in ("artifact", "response_metadata", "additional_kwargs"):
        if sum(sizes.values()) > MOST_CHARS and sizes.get(name, 0) > 1_000:
            LOG.warning("The %s of a message was not kept: it has %d characters.", name, sizes.pop(name))
            del data[name]
    if sum(sizes.values()) > MOST_CHARS and isinstance(data.get("content"), list):
        data["content"] = [_fitting_part(part, MOST_CHARS // 2 // len(data["content"])) for part in data["content"]]
    return data


def _fitting_part(part: Any, most: int) -> Any:
    size = len(json.dumps(part))
    if size <= most or not isinstance(part, dict) or "text" in part:
        return part
    return {"type": "text", "text": f"[{part.get('type', 'file')}, {size} characters, was not kept]"}


def _call(call: Any) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": json.dumps(call["args"])}
    return {"id": call["id"] or call["name"], "type": "function", "function": function}


def _restored(message: models.Message) -> BaseMessage:
    """The message as it was added. One that another program appended is made of its role and content."""
    itself = cast(Any, message).get(KEY)
    if itself is not None:
        (made,) = messages_from_dict([itself])
        return made
    role, content = message["role"], _content(message)
    if role == "assistant":
        functions = [(one.get("function") or {}, one.get("id")) for one in message["tool_calls"] or ()]
        calls = [{"name": one.get("name", ""), "args": _arguments(one), "id": call_id} for one, call_id in functions]
        return AIMessage(content, tool_calls=calls)
    if role == "tool":
        return ToolMessage(content, tool_call_id=message["tool_call_id"] or "")
    return HumanMessage(content) if role == "user" else SystemMessage(content)


def _arguments(function: Any) -> Any:
    """The arguments of a call as an object. Some models give it as such, and one that was cut is none."""
    given = function.get("arguments") or {}
    try:
        return json.loads(given) if isinstance(given, str) else given
    except ValueError:
        return {"arguments": given}


def _content(message: models.Message) -> str | list[str | dict[Any, Any]]:
    given = message["content"]
    return given if isinstance(given, str) else [_without_file(dict(part)) for part in given or ()]


def _without_file(part: dict[str, Any]) -> dict[str, Any]:
    """The part; where the service kept of a file what it was, a text about it."""
    found = json.dumps(part)
    if '"sha256"' not in found:
        return part
    return {"type": "text", "text": f"[{part.get('type', 'file')}, was not kept]"}
