"""Reads exports of Letta: agent files (`.af`, both revisions) with blocks and messages, and lists of
archival passages."""

import json
from collections.abc import Iterator
from typing import Any

from app.core.schemas import Json
from app.importers.models import (
    DefaultOwner,
    ImportResult,
    NoMemory,
    SkippedRecord,
    Unreadable,
    each,
    memory,
    message,
    time,
    words,
)

_NOT_MEMORY = ("tools", "files", "sources", "groups", "mcp_servers")


def read(file: Any, owner: DefaultOwner) -> Iterator[ImportResult]:
    """Yields the records of a file."""
    if isinstance(file, list):
        yield from each(file, "", lambda record, where: _passage(record, where, owner))
        return
    if "core_memory" in file:  # the first revision: one agent with its blocks inside
        file = {"agents": [{**file, "block_ids": None}], "blocks": file["core_memory"]}
    blocks = {block.get("id"): block for block in file.get("blocks") or () if isinstance(block, dict)}

    def agent(record: Json, where: str) -> Iterator[ImportResult]:
        name = owner.agent_id or owner.id_of(record.get("name") or record.get("id"))
        whose = DefaultOwner(name, owner.user_id, owner.now, owner.mapped)
        wanted = record.get("block_ids")
        inside = file.get("blocks") or [] if wanted is None else [blocks[one] for one in wanted if one in blocks]
        yield from each(inside, "/blocks", lambda block, place: _block(block, place, whose))
        said = record.get("messages") or []
        yield from each(said, f"{where}/messages", lambda one, place: _message(one, place, whose, record))
        if record.get("system"):
            yield SkippedRecord(f"{where}/system", "the system prompt is the agent's, no memory", is_memory=False)

    yield from each(file.get("agents"), "/agents", agent)
    for part in _NOT_MEMORY:
        if file.get(part):
            yield SkippedRecord(f"/{part}", f"{part.replace('_', ' ')} are no memory", is_memory=False)


def _block(block: Json, where: str, owner: DefaultOwner) -> Iterator[ImportResult]:
    """Yields a block as a memory. `persona` belongs to the agent for all its users, `human` to the
    agent and this user."""
    label = str(block.get("label") or "block")
    persona = label == "persona"
    whose = owner.of()
    if persona:
        whose = {**whose, "user_id": None}
    record = {"id": f"{whose['agent_id']}:{block.get('id') or label}"}
    yield memory(
        "letta",
        where,
        record,
        block.get("value"),
        **whose,
        memory_type="instruction" if persona else "fact",
        context=block.get("description"),
        tags=[label[:128]],
        pinned=True,
    )


def _message(record: Json, where: str, owner: DefaultOwner, agent: Json) -> Iterator[ImportResult]:
    text = _assistant_text(record, agent) if record.get("role") == "assistant" else _text(record)
    said = {"role": str(record.get("role")), "content": text, "name": record.get("name")}
    session = owner.id_of(f"letta-{agent.get('id') or agent.get('name') or 'agent'}")
    yield message(where, owner.of(), session, {**said, "timestamp": time(record.get("created_at"))})


def _assistant_text(record: Json, agent: Json) -> str:
    """Returns what the assistant said to the user.

    Agents of Letta's first design speak by a tool, `send_message`; the text beside their tool calls is thought. Agents
    that never call it speak by the text. Raises Unreadable for words that cannot be read, NoMemory for thoughts.
    """
    said = [_sent(call) for call in _sending(record)]
    if said:
        return "\n".join(said)
    if _called(record) and any(map(_sending, agent["messages"])):
        raise NoMemory("it calls tools, and says nothing to the user")
    return _text(record)


def _called(record: Any) -> list[Json]:
    """Returns the tool calls of a message, in any revision of the format."""
    if not isinstance(record, dict):
        return []
    calls = [*(record.get("tool_calls") or ()), record.get("tool_call")]
    functions = [call.get("function") or call for call in calls if isinstance(call, dict)]
    return [function for function in functions if isinstance(function, dict)]


def _sending(record: Any) -> list[Json]:
    return [function for function in _called(record) if function.get("name") == "send_message"]


def _sent(function: Json) -> str:
    """Returns the words of a call of `send_message`. Its arguments are JSON, or parsed already."""
    given = function.get("arguments")
    try:
        arguments = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        arguments = None
    message_ = arguments.get("message") if isinstance(arguments, dict) else None
    if not isinstance(message_, str):
        raise Unreadable("its call of send_message holds no message")
    return message_


def _text(record: Json) -> str:
    """Returns the text of a message. Letta wraps the user's text in JSON, and sends its own events with the same role.
    Raises Unreadable for such an event."""
    content = record.get("content") if record.get("content") is not None else record.get("text")
    if isinstance(content, list):
        content = "\n".join(str(part["text"]) for part in content if isinstance(part, dict) and part.get("text"))
    text = str(content or "")
    if record.get("role") == "user" and text.startswith("{"):
        try:
            wrapped = json.loads(text)
        except ValueError:
            return text
        if isinstance(wrapped, dict) and "type" in wrapped:
            if wrapped["type"] != "user_message":
                raise NoMemory(f"it is Letta's own ({wrapped['type']})")
            return str(wrapped.get("message") or "")
    return text


def _passage(record: Json, where: str, owner: DefaultOwner) -> Iterator[ImportResult]:
    metadata = record.get("metadata")
    given = metadata if isinstance(metadata, dict) else {}
    agent = owner.agent_id or record.get("agent_id")
    created_at = time(record.get("created_at"))
    tags = words(record.get("tags"))
    yield memory(
        "letta", where, record, record.get("text"), **owner.of(agent), tags=tags, metadata=given, event_at=created_at
    )
