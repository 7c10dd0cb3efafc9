"""Reads exports of Letta: agent files (`.af`, both revisions) with blocks and messages, and lists of
archival passages."""

import json
from collections.abc import Iterator
from typing import Any

from app.core.schemas import Json
from app.importers.models import (
    DefaultOwner,
    ImportResult,
    SkippedRecord,
    Unreadable,
    each,
    identifier,
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
        name = owner.agent_id or identifier(str(record.get("name") or record.get("id") or ""))
        whose = DefaultOwner(name or None, owner.user_id, owner.now)
        wanted = record.get("block_ids")
        inside = file.get("blocks") or [] if wanted is None else [blocks[one] for one in wanted if one in blocks]
        yield from each(inside, "/blocks", lambda block, place: _block(block, place, whose))
        said = record.get("messages") or []
        yield from each(said, f"{where}/messages", lambda one, place: _message(one, place, whose, record))
        if record.get("system"):
            yield SkippedRecord(f"{where}/system", "the system prompt is the agent's, no memory")

    yield from each(file.get("agents"), "/agents", agent)
    for part in _NOT_MEMORY:
        if file.get(part):
            yield SkippedRecord(f"/{part}", f"{part.replace('_', ' ')} are no memory")


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
    text = _text(record)
    said = {"role": str(record.get("role")), "content": text, "name": record.get("name")}
    session = f"letta-{agent.get('id') or agent.get('name') or 'agent'}"
    yield message(where, owner.of(), session, {**said, "timestamp": time(record.get("created_at"))})


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
                raise Unreadable(f"it is Letta's own ({wrapped['type']})")
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
