"""Recalld as the session of the OpenAI Agents SDK: `RecalldSession`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from agents.memory.session import SessionABC
from recalld_client import AsyncUserSession, Problem, models

if TYPE_CHECKING:
    from agents import TResponseInputItem
    from agents.memory import SessionSettings

__all__ = ["RecalldSession"]

PAGE = 100
"""Messages of one page, and most messages of one append."""
ROLES = ("system", "developer", "user", "assistant")


class RecalldSession(SessionABC):
    """The conversation of an agent with a user. `AsyncRecalld().user("ada").session("monday")` names it.

    Raises Problem and Unreachable of the client.
    """

    def __init__(self, session: AsyncUserSession) -> None:
        self.session_id, self._session = session.session_id, session
        self.session_settings: SessionSettings | None = None

    async def get_items(self, limit: int | None = None) -> "list[TResponseInputItem]":
        """All items, or the latest `limit`, oldest first."""
        if limit is not None and limit <= 0:
            return []
        messages = await self._messages(limit)
        return [cast("TResponseInputItem", message["metadata"]["item"]) for message in messages]

    async def add_items(self, items: "list[TResponseInputItem]") -> None:
        """Adds items at the end."""
        messages = [_message(item) for item in items]
        for begin in range(0, len(messages), PAGE):
            await self._session.append(messages[begin : begin + PAGE])

    async def pop_item(self) -> "TResponseInputItem | None":
        """Removes the last item and returns it; None if there is none."""
        messages = await self._messages(1)
        if not messages:
            return None
        await self._session.client.delete_message(self.session_id, messages[0]["seq"])
        return cast("TResponseInputItem", messages[0]["metadata"]["item"])

    async def clear_session(self) -> None:
        """Removes all items and what was remembered of them."""
        try:
            await self._session.client.clear_messages(self.session_id)
        except Problem as problem:
            if problem.code != "not_found":  # nothing was said yet
                raise

    async def end(self) -> models.Operation:
        """Ends the conversation. A configured language model learns from it then."""
        return await self._session.end()

    async def _messages(self, last: int | None) -> list[models.Message]:
        """The messages that hold an item, the `last` ones or all. A session that nobody wrote to has none."""
        try:
            newest = _with_items((await self._session.client.list_messages(self.session_id, last=PAGE))["items"])
            if last is not None and last <= len(newest):
                return newest[-last:]
            kept = _with_items([one async for one in self._session.messages(limit=PAGE)])
        except Problem as problem:
            if problem.code != "not_found":
                raise
            return []
        return kept if last is None else kept[-last:]


def _with_items(messages: list[models.Message]) -> list[models.Message]:
    return [one for one in messages if "item" in one["metadata"] and one["deleted_at"] is None]


def _message(item: Any) -> dict[str, Any]:
    """An item as a message: its words for memory, and the item itself as metadata."""
    item = dict(item)
    kind, metadata = item.get("type"), {"item": item}
    if kind == "function_call":
        function = {"name": item["name"], "arguments": item["arguments"]}
        call = {"id": item["call_id"], "type": "function", "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [call], "metadata": metadata}
    if kind == "function_call_output":
        text = _text(item.get("output"))
        return {"role": "tool", "tool_call_id": item["call_id"], "content": text, "metadata": metadata}
    role = item.get("role") if item.get("role") in ROLES else "assistant"
    return {"role": role, "content": _text(item.get("content")), "metadata": metadata}


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(str(part["text"]) for part in content if isinstance(part, Mapping) and part.get("text"))
