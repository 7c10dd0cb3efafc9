"""Calls of tools and their results, as the model sees them where an agent learns its work. Pure functions.

What a tool gave back is nobody's word: no memory, fact or profile is learned from it.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from app.core.served_text import strip_served
from app.storage.schema import Doc

MAX_CALLS = 40
"""The limit of calls in one request to the model: the last ones."""
ARGUMENT_CHARS, RESULT_CHARS = 300, 500


def of_messages(messages: Iterable[Doc]) -> list[Doc]:
    """Returns the calls in messages, in their order, each with its result, or None where none came. A result whose call
    is not among the messages stands alone."""
    calls: list[Doc] = []
    waiting: dict[str, Doc] = {}
    for message in messages:
        for made in message.get("tool_calls") or ():
            function = made.get("function") or {}
            arguments = as_text(function.get("arguments"), ARGUMENT_CHARS)
            call = {"seq": message["seq"], "tool": function.get("name"), "arguments": arguments, "result": None}
            waiting[str(made.get("id"))] = call
            calls.append(call)
        if message["role"] == "tool":
            call = waiting.get(str(message.get("tool_call_id"))) or _alone(message, calls)
            call["result"] = as_text(message["text"] or message.get("result"), RESULT_CHARS)
    return calls[-MAX_CALLS:]


def _alone(message: Doc, calls: list[Doc]) -> Doc:
    call: Doc = {"seq": message["seq"], "tool": message["name"], "arguments": None}
    calls.append(call)
    return call


def of_action(action: Doc, known: Sequence[str] = ("tool",)) -> Doc:
    """Returns what an action holds of its call: input, output, duration and any other key that is set."""
    return {
        name: value if name == "duration_ms" else as_text(value, RESULT_CHARS)
        for name, value in action.items()
        if value is not None and name not in known
    }


def as_text(value: Any, most: int) -> str | None:
    """Returns a value as text of at most `most` characters, without text that the service itself served."""
    if value is None:
        return None
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return strip_served(text).strip()[:most]
