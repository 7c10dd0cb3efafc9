"""Renders a context. The tokens of its pieces add up exactly to those of the whole.

Each piece ends with a line break, and none begins with white space or a slash. The tokenizer splits a text before it
merges, and between such pieces it always splits. Numbers of up to three digits are one token each. Content is one list
entry: its line breaks are indented, so that no line of it can pass for a title or another entry, and delimiters in it
are escaped.
"""

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from app.context.candidates import Candidate, Heading
from app.core import tokens
from app.core.prompt_fencing import CONTEXT, CONTEXT_OPENING, CONTEXT_UNSURE, entry, escape, escape_json, escape_strings

OPENING = CONTEXT_OPENING
UNSURE = CONTEXT_UNSURE
CLOSING = f"</{CONTEXT}>\n"
MESSAGE_TOKENS = 4
"""Tokens that a chat model's template adds to each message: a role and separators."""
TURNS = frozenset({"user", "assistant"})
"""Roles whose messages are rendered as turns."""

Citation = Callable[[Candidate], str | None]
"""Returns the citation of an item, or None if items are not cited."""


def title(text: str) -> str:
    """Returns the title line of a section."""
    return f"## {text}\n"


def heading(date: str, conversation: int | None) -> str:
    """Returns a heading line, such as `### 2026-05-08, conversation 2`.

    The caller's id of the session is never shown.
    """
    return f"### {date}\n" if conversation is None else f"### {date}, conversation {conversation}\n"


def line(item: Candidate, citation: str | None) -> str:
    """Returns an entry, such as `- [3] Ann: I moved to Boston.`"""
    return entry("- " if citation is None else f"- [{citation}] ", f"{item.prefix}{item.text}")


def turns(item: Candidate) -> list[dict[str, Any]]:
    """Returns the chat messages of an item, as the model gets them.

    A tool call is followed by its results. Any other text that neither user nor assistant said is fenced as data; no
    user's text can create such a fence. Stored text never gets a role with authority.
    """
    if item.turns:
        return [_paired(message) for message in item.turns]
    if item.role in TURNS:
        return [{"role": item.role, "content": escape(item.text)}]
    return [{"role": "user", "content": f"<{CONTEXT}>\n{entry(f'{item.role}: ', item.text)}{CLOSING}"}]


def _paired(message: dict[str, Any]) -> dict[str, Any]:
    content = message["content"]
    escaped = {**message, "content": None if content is None else escape(content)}
    if "tool_calls" in message:
        escaped["tool_calls"] = [_call(call) for call in message["tool_calls"]]
    if "tool_call_id" in message:
        escaped["tool_call_id"] = escape(message["tool_call_id"])
    return escaped


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """Returns a tool call with escaped strings.

    The arguments are escaped as JSON, because chat templates decode them.
    """
    escaped: dict[str, Any] = escape_strings(call)
    function = call.get("function")
    if function is not None:
        escaped["function"]["arguments"] = escape_json(function["arguments"])
    return escaped


def turn_tokens(item: Candidate) -> int:
    """Returns the tokens of an item's messages, with what the template adds."""
    return sum(map(_message_tokens, turns(item)))


def _message_tokens(message: dict[str, Any]) -> int:
    calls = message.get("tool_calls")
    more = 0 if calls is None else tokens.count(orjson.dumps(calls).decode())
    return tokens.count(message["content"] or "") + more + MESSAGE_TOKENS


def heading_tokens(one: Heading) -> int:
    """Returns the tokens of a heading. They do not depend on its number."""
    return tokens.count(heading(one.date, 1 if one.conversation else None))


def ordered(items: Sequence[Candidate]) -> list[Candidate]:
    """Returns the items in reading order: by time and grouped by heading; items without heading keep their order."""
    begun: dict[str, tuple[str, int]] = {}
    for item in items:
        if item.heading is not None:
            begun[item.heading.key] = min(begun.get(item.heading.key, item.place), item.place)

    def place(item: Candidate) -> tuple[tuple[str, int], str, tuple[str, int]]:
        key = "" if item.heading is None else item.heading.key
        return begun.get(key, ("", 0)), key, item.place

    return sorted(items, key=place) if begun else list(items)


def section(name: str, items: Sequence[Candidate], citation: Citation) -> str:
    """Returns a title, and the items' lines under their headings."""
    numbers: dict[str, int] = {}
    lines, above = [title(name)], None
    for item in items:
        if item.heading is not None and item.heading.key != above:
            above = item.heading.key
            lines.append(_heading(item.heading, numbers))
        lines.append(line(item, citation(item)))
    return "".join(lines)


def _heading(one: Heading, numbers: dict[str, int]) -> str:
    if not one.conversation:
        return heading(one.date, None)
    return heading(one.date, numbers.setdefault(one.key, len(numbers) + 1))


def block(sections: Sequence[str], before: str = "") -> str:
    """Returns the sections inside the frame, or an empty string if there are none.

    `before`: a line above the sections.
    """
    return OPENING + before + "".join(sections) + CLOSING if sections else ""
