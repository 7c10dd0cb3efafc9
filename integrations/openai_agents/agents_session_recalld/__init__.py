"""Recalld as the session of the OpenAI Agents SDK: `RecalldSession`."""

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from agents.memory.session import SessionABC
from agents.memory.session_settings import SessionSettings, coerce_session_settings, resolve_session_limit
from agents.run_config import CallModelData, ModelInputData
from recalld_client import AsyncUserSession, Problem, RecalldError, models

if TYPE_CHECKING:
    from agents import RunContextWrapper, TResponseInputItem

__all__ = ["RecalldSession"]

LOG = logging.getLogger("agents_session_recalld")
PAGE = 100
"""Messages of one page, and most messages of one append."""
MOST_CHARS = 250_000
"""Most characters of an item as JSON. The service keeps a field of a message whole up to 262,144."""
ROLES = ("system", "developer", "user", "assistant")
OPEN_QUESTION = "What is known of the user?"
"""What is looked for at the beginning of a conversation: a session is not told the question."""


class RecalldSession(SessionABC):
    """The conversation of an agent with a user. `AsyncRecalld().user("ada").session("ada-monday")` names it.

    An agent that runs on it gets what was known of the user before this conversation: a message of at most `budget`
    tokens in front of the history, 0 for none. That message is not stored. `recall` chooses by the question asked.

    Raises Problem and Unreachable of the client. Where only the recalling fails, the agent runs without it.
    """

    def __init__(
        self,
        session: AsyncUserSession,
        *,
        budget: int = 1500,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        self.session_id, self._session, self._budget = session.session_id, session, budget
        self.session_settings: SessionSettings | None = coerce_session_settings(session_settings or {})
        self._known: tuple[str, str] | None = None
        """The question that was looked for last, and what was found."""

    async def get_items(
        self, limit: int | None = None, *, wrapper: "RunContextWrapper[Any] | None" = None
    ) -> "list[TResponseInputItem]":
        """All items, or the latest `limit` (default: that of `session_settings`), oldest first.

        wrapper: of the run that reads them for its model; what is remembered then stands in front.
        """
        usual = resolve_session_limit(None, self.session_settings)
        limit = usual if limit is None else limit
        if limit is not None and limit <= 0:
            return []
        items = [_item(message) for message in await self._messages(limit)]
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
            stored = await self._session.append(messages[begin : begin + PAGE])
            for warning in stored["warnings"]:
                if warning["code"] == "not_kept":
                    LOG.warning("An item was not kept whole, at %s: %s", warning["pointer"], warning["detail"])

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
    return [one for one in messages if "item" in one and one["deleted_at"] is None]


def _item(message: models.Message) -> "TResponseInputItem":
    """The item that was added: a field of the message that only this session knows."""
    return cast("TResponseInputItem", cast(Any, message)["item"])


def _fitting(item: dict[str, Any]) -> dict[str, Any]:
    """The item as it can be kept whole. Instead of a file that is too large it has a text about it, and of a longer
    text the beginning and end."""
    if len(json.dumps(item)) <= MOST_CHARS:
        return item
    fitting = dict(item)
    for name in ("content", "output"):
        if isinstance(item.get(name), str):
            fitting[name] = _cut(item[name])
        elif isinstance(item.get(name), list):
            fitting[name] = [_fitting_part(part, MOST_CHARS // 2 // len(item[name])) for part in item[name]]
    return fitting


def _fitting_part(part: Any, most: int) -> Any:
    size = len(json.dumps(part))
    if not isinstance(part, Mapping) or size <= most:
        return part
    if isinstance(part.get("text"), str):
        return {**part, "text": _cut(part["text"], most)}
    return {"type": "input_text", "text": f"[{part.get('type', 'file')}, {size} characters, was not kept]"}


def _cut(text: str, most: int = MOST_CHARS // 2) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}\n[… left out …]\n{text[-most // 2 :]}"


def _block_item(block: str) -> "TResponseInputItem":
    return cast("TResponseInputItem", {"role": "user", "content": block})


def _said_by_user(item: Any) -> bool:
    return isinstance(item, Mapping) and item.get("role") == "user"


def _question(items: Sequence[Any]) -> str:
    """The text of the user's last message; empty where there is none."""
    said = (_text(item.get("content")) for item in reversed(items) if _said_by_user(item))
    return next(said, "").strip()[:32_000]


def _message(item: Any) -> dict[str, Any]:
    """An item as a message: its words for memory, and the item itself as a field that the service keeps whole."""
    item = dict(item)
    kind, itself = item.get("type"), {"item": _fitting(item)}
    if kind == "function_call":
        function = {"name": item["name"], "arguments": item["arguments"]}
        call = {"id": item["call_id"], "type": "function", "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [call], **itself}
    if kind == "function_call_output":
        text = _text(item.get("output"))
        return {"role": "tool", "tool_call_id": item["call_id"], "content": text, **itself}
    role = item.get("role") if item.get("role") in ROLES else "assistant"
    text = _text(item.get("content"))
    if not text.strip() and role in ("user", "assistant"):  # such as reasoning: the service takes no empty message
        return {"role": role, "content": [{"type": str(kind or "item")}], **itself}
    return {"role": role, "content": text, **itself}


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(str(part["text"]) for part in content if isinstance(part, Mapping) and part.get("text"))
