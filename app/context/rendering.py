"""Renders what was packed: titles, headings, entries and messages as the model reads them, and their tokens.

The tokens of the rendered pieces add up exactly to those of the whole. Each piece ends with a line break, and none
begins with white space or a slash. The tokenizer splits a text before it merges, and between such pieces it always
splits. Numbers of up to three digits are one token each. Content is one list entry: its line breaks are indented, so
that no line of it can pass for a title or another entry, and delimiters in it are escaped.
"""

from collections.abc import Mapping, Sequence

import orjson

from app.context.schemas import ContextRequest, PromptMessage
from app.context.source import Candidate, ContextSource
from app.core import prompt_text
from app.core.prompt_text import entry, escape, escape_json, escape_strings
from app.sessions.schemas import ToolCall

OPENING, CLOSING = prompt_text.CONTEXT_OPENING, f"</{prompt_text.CONTEXT}>\n"
UNSURE = prompt_text.CONTEXT_UNSURE
MESSAGE_TOKENS = 4
"""Tokens that a chat model's template adds to each message: a role and separators."""
TURN_ROLES = frozenset({"user", "assistant"})
"""Roles whose messages are rendered as turns."""


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


def one_line(text: str, most: int | None = None) -> str:
    """Returns a text as a part of an entry, cut behind `most` characters: no line of the content "Refunded the
    parcel\\ncorrection: …" of an action passes for a step, a record or a correction."""
    joined = " ".join(text.split())
    return joined if most is None or len(joined) <= most else f"{joined[:most]}…"


def messages_of(item: Candidate) -> list[PromptMessage]:
    """Returns the chat messages of an item, as the model gets them.

    A tool call is followed by its results. Any other text that neither user nor assistant said is fenced as data; no
    user's text can create such a fence. Stored text never gets a role with authority.
    """
    if item.turns:
        return [_escaped(message) for message in item.turns]
    if item.role in TURN_ROLES:
        return [{"role": item.role, "content": escape(item.text)}]
    return [{"role": "user", "content": f"<{prompt_text.CONTEXT}>\n{entry(f'{item.role}: ', item.text)}{CLOSING}"}]


def _escaped(message: PromptMessage) -> PromptMessage:
    content = message["content"]
    escaped: PromptMessage = {**message, "content": None if content is None else escape(content)}
    if "tool_calls" in message:
        escaped["tool_calls"] = [_call(call) for call in message["tool_calls"]]
    if "tool_call_id" in message:
        escaped["tool_call_id"] = escape(message["tool_call_id"])
    return escaped


def _call(call: ToolCall) -> ToolCall:
    """Returns a tool call with escaped strings.

    The arguments are escaped as JSON, because chat templates decode them.
    """
    escaped: ToolCall = escape_strings(call)
    function, escaped_function = call.get("function"), escaped.get("function")
    if function is not None and escaped_function is not None:
        escaped_function["arguments"] = escape_json(str(function["arguments"]))
    return escaped


def turn_tokens(item: Candidate) -> int:
    """Returns the tokens of an item's messages, with what the template adds."""
    tokens = 0
    for message in messages_of(item):
        tokens += prompt_text.count(message["content"] or "") + MESSAGE_TOKENS
        if (calls := message.get("tool_calls")) is not None:
            tokens += prompt_text.count(orjson.dumps(calls).decode())
    return tokens


def heading_tokens(item: Candidate) -> int:
    """Returns the tokens of an item's heading, if it has one. They do not depend on the conversation's number."""
    if item.heading is None:
        return 0
    return prompt_text.count(heading(item.heading.date, 1 if item.heading.conversation else None))


def citation_of(body: ContextRequest, item: Candidate, number: int = 1) -> str | None:
    """Returns what an item is cited by; None if items are not cited. Before packing every number is 1, because each
    number takes one token."""
    if body.citations == "none":
        return None
    return prompt_text.as_label(item.id) if body.citations == "ids" else str(number)


def item_tokens(body: ContextRequest, source: ContextSource, item: Candidate) -> int:
    """Returns the tokens of an item's line, or of its messages.

    The same lines go into many prompts: `prompt_text.count` keeps the counts of short ones.
    """
    if source.holds_turns and body.format == "messages":
        return turn_tokens(item)
    return prompt_text.count(line(item, citation_of(body, item)))


def render_section(title_text: str, items: Sequence[Candidate], citations: Mapping[str, str | None]) -> str:
    """Returns a title, and the items' lines under their headings. The conversations of a section are numbered in the
    order in which they stand there. `citations`: by the id of an item."""
    conversations: dict[str, int] = {}
    lines, key_above = [title(title_text)], None
    for item in items:
        if item.heading is not None and item.heading.key != key_above:
            key_above = item.heading.key
            number = conversations.setdefault(key_above, len(conversations) + 1) if item.heading.conversation else None
            lines.append(heading(item.heading.date, number))
        lines.append(line(item, citations[item.id]))
    return "".join(lines)


def block(sections: Sequence[str], line_above: str = "") -> str:
    """Returns the rendered sections inside the frame, or an empty string if there are none."""
    return OPENING + line_above + "".join(sections) + CLOSING if sections else ""
