"""Recalld as the session of the OpenAI Agents SDK: `RecalldSession`."""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from agents.memory.session import SessionABC
from agents.run_config import CallModelData, ModelInputData
from recalld_client import AsyncUserSession, Problem, RecalldError, models

if TYPE_CHECKING:
    from agents import RunContextWrapper, TResponseInputItem
    from agents.memory import SessionSettings

__all__ = ["RecalldSession"]

LOG = logging.getLogger("agents_session_recalld")
PAGE = 100
"""Messages of one page, and most messages of one append."""
ROLES = ("system", "developer", "user", "assistant")
OPEN_QUESTION = "What is known of the user?"
"""What is looked for at the beginning of a conversation: a session is not told the question."""


class RecalldSession(SessionABC):
    """The conversation of an agent with a user. `AsyncRecalld().user("ada").session("ada-monday")` names it.

    An agent that runs on it gets what was known of the user before this conversation: a message of at most `budget`
    tokens in front of the history, 0 for none. That message is not stored. `recall` chooses by the question asked.

    Raises Problem and Unreachable of the client. Where only the recalling fails, the agent runs without it.
    """

    def __init__(self, session: AsyncUserSession, *, budget: int = 1500) -> None:
        self.session_id, self._session, self._budget = session.session_id, session, budget
        self.session_settings: SessionSettings | None = None
        self._known: tuple[str, str] | None = None
        """The question that was looked for last, and what was found."""

    async def get_items(
        self, limit: int | None = None, *, wrapper: "RunContextWrapper[Any] | None" = None
    ) -> "list[TResponseInputItem]":
        """All items, or the latest `limit`, oldest first.

        wrapper: of the run that reads them for its model; what is remembered then stands in front.
        """
        if limit is not None and limit <= 0:
            return []
        items = [_item(message) for message in await self._messages(limit)]
        usual = None if self.session_settings is None else self.session_settings.limit
        if wrapper is None or limit != usual:  # the SDK reads a part to compare what it has stored
            return items
        block = await self._recalled(_question(items) or OPEN_QUESTION)
        return [_block_item(block), *items] if block else items

    async def recall(self, data: CallModelData[Any]) -> ModelInputData:
        """Puts what helps with the user's last message in front of that message.

        For `Runner.run(…, session=session, run_config=RunConfig(call_model_input_filter=session.recall))`. It replaces
        the message that the session puts in front of the history.
        """
        earlier = None if self._known is None else _block_item(self._known[1])
        items = [item for item in data.model_data.input if item != earlier]
        question = _question(items)
        block = await self._recalled(question) if question else ""
        if block:
            items.insert(max(n for n, item in enumerate(items) if _said_by_user(item)), _block_item(block))
        return ModelInputData(input=items, instructions=data.model_data.instructions)

    async def _recalled(self, question: str) -> str:
        """What was known before this conversation, as a block of text. Its own messages are in the history."""
        if self._budget == 0:
            return ""
        if self._known is None or self._known[0] != question:
            owner = {"agent_id": self._session.agent_id, "user_id": self._session.user_id}
            asked: Any = {**owner, "query": question, "token_budget": self._budget}
            try:
                begun = await self._begun()
                context = await self._session.client.assemble_context(
                    asked if begun is None else asked | {"now": begun}
                )
            except RecalldError as error:
                LOG.warning("Memory failed, the model is called without it: %s", error)
                return ""
            found = any(section["items"] for section in context["sections"])
            self._known = (question, context["text"] if found else "")
        return self._known[1]

    async def _begun(self) -> str | None:
        """The moment before the conversation began; None if nothing was said yet."""
        try:
            begun = datetime.fromisoformat((await self._session.get())["created_at"])
        except Problem as problem:
            if problem.code != "not_found":
                raise
            return None
        return (begun - timedelta(milliseconds=1)).isoformat(timespec="milliseconds")

    # The SDK passes `wrapper` to `get_items` where all four methods take it.

    async def add_items(
        self,
        items: "list[TResponseInputItem]",
        *,
        wrapper: "RunContextWrapper[Any] | None" = None,  # noqa: ARG002
    ) -> None:
        """Adds items at the end."""
        messages = [_message(item) for item in items]
        for begin in range(0, len(messages), PAGE):
            await self._session.append(messages[begin : begin + PAGE])

    async def pop_item(
        self,
        *,
        wrapper: "RunContextWrapper[Any] | None" = None,  # noqa: ARG002
    ) -> "TResponseInputItem | None":
        """Removes the last item and returns it; None if there is none."""
        messages = await self._messages(1)
        if not messages:
            return None
        await self._session.client.delete_message(self.session_id, messages[0]["seq"])
        return _item(messages[0])

    async def clear_session(self, *, wrapper: "RunContextWrapper[Any] | None" = None) -> None:  # noqa: ARG002
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


def _item(message: models.Message) -> "TResponseInputItem":
    """The item that was added. Instead of an image or file that was too large to be kept it has a text about it."""
    item = dict(message["metadata"]["item"])
    for name in ("content", "output"):
        if isinstance(item.get(name), list):
            item[name] = [_without_file(part) for part in item[name]]
    return cast("TResponseInputItem", item)


def _without_file(part: Any) -> Any:
    files = [value for value in part.values() if isinstance(value, Mapping) and "sha256" in value]
    if not files:
        return part
    return {"type": "input_text", "text": f"[{files[0]['type']}, {files[0]['size']} bytes, was not kept]"}


def _block_item(block: str) -> "TResponseInputItem":
    return cast("TResponseInputItem", {"role": "user", "content": block})


def _said_by_user(item: Any) -> bool:
    return isinstance(item, Mapping) and item.get("role") == "user"


def _question(items: Sequence[Any]) -> str:
    """The text of the user's last message; empty where there is none."""
    said = (_text(item.get("content")) for item in reversed(items) if _said_by_user(item))
    return next(said, "").strip()[:32_000]


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
    text = _text(item.get("content"))
    if not text.strip() and role in ("user", "assistant"):  # such as reasoning: the service takes no empty message
        return {"role": role, "content": [{"type": str(kind or "item")}], "metadata": metadata}
    return {"role": role, "content": text, "metadata": metadata}


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(str(part["text"]) for part in content if isinstance(part, Mapping) and part.get("text"))
