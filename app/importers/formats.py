"""Files of other memory systems. Each function reads those of one system:

- mem0: the result of `get_all` or a page of the platform's API, with `results` (or a bare list) and `relations`;
- Zep: what its API returns: `edges` and `nodes` of a user's graph, `messages` of a thread, or `threads`, each a list or
  a page with `items` and `next_cursor`; or one such page;
- Redis Agent Memory Server: `memories` as its search returns them (or a bare list), and the working memory of
  `sessions`;
- Letta: agent files (`.af`, both revisions) with blocks and messages, and lists of archival passages.
"""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from app.core.clock import rfc3339
from app.core.schemas import Json
from app.importers import loader


def read_mem0(file: Any, owner: loader.DefaultOwner) -> Iterator[loader.ImportResult]:
    whole = {"results": file} if isinstance(file, list) else file

    def memory_of(record: Json, where: str) -> Iterator[loader.ImportResult]:
        expires = _end_of(record.get("expiration_date"))
        if expires is not None and expires <= owner.now:
            raise loader.Unreadable("it has expired")
        metadata = record.get("metadata")
        more = {name: record[name] for name in ("app_id", "actor_id", "role") if record.get(name) is not None}
        yield loader.memory(
            "mem0",
            where,
            record,
            record.get("memory") or record.get("text"),
            source=owner.source(record.get("run_id")),
            **owner.of(record.get("agent_id"), record.get("user_id")),
            tags=loader.words(record.get("categories")),
            metadata={**(metadata if isinstance(metadata, dict) else {}), **more},
            event_at=loader.time(record.get("created_at")),
            expires_at=expires,
        )

    def relation(record: Json, where: str) -> Iterator[loader.ImportResult]:
        named_by = {"subject": "source", "predicate": "relationship", "object": "target"}
        named = {ours: record.get(theirs) for ours, theirs in named_by.items()}
        named["object"] = named["object"] or record.get("destination")
        if not all(isinstance(value, str) and value.strip() for value in named.values()):
            raise loader.Unreadable("it lacks source, relationship or target")
        yield loader.ImportRecord(
            "fact", where, {**named, **owner.of(None, record.get("user_id")), "cardinality": "many"}
        )

    if "results" in whole:
        yield from loader.read_each(whole["results"], "/results", memory_of)
    if whole.get("relations"):
        yield from loader.read_each(whole["relations"], "/relations", relation)
    if whole.get("next"):
        yield loader.SkippedEntry("/next", loader.ONE_PAGE)


def _end_of(day: Any) -> str | None:
    """Returns when mem0's `expiration_date` is over: `2026-06-01` lasts until 2 June begins (UTC)."""
    begins = loader.time(day and str(day)[:10])
    try:
        return None if begins is None else rfc3339(datetime.fromisoformat(begins) + timedelta(days=1))
    except OverflowError:
        return None  # the last day that there is


def read_zep(file: Any, owner: loader.DefaultOwner) -> Iterator[loader.ImportResult]:
    whole = {"edges": file} if isinstance(file, list) else file
    names = {
        str(node.get("uuid")): node.get("name") for node in loader.listed(whole.get("nodes")) if isinstance(node, dict)
    }

    def of_page(record: Json, where: str) -> Iterator[loader.ImportResult]:
        """Yields what an item of a page is, which only its fields tell."""
        if "fact" in record:
            yield from _edge(owner, names, record, where)
        elif "messages" in record:
            yield from _thread(owner, record, where)
        elif record.get("role"):
            yield _zep_message(owner, {}, record, where)
        elif "summary" in record:
            yield from _node(owner, record, where)
        else:
            raise loader.Unreadable("it is no edge, node, message or thread with messages")

    if "items" in whole:
        yield from loader.read_each(whole, "", of_page)
    parts = {"edges": partial(_edge, owner, names), "nodes": partial(_node, owner), "threads": partial(_thread, owner)}
    for part in filter(whole.__contains__, parts):
        yield from loader.read_each(whole[part], f"/{part}", parts[part])
    if "messages" in whole:
        yield from _thread(owner, whole, "")


def _edge(owner: loader.DefaultOwner, names: Json, record: Json, where: str) -> Iterator[loader.ImportResult]:
    """Yields a fact if both ends of the edge are named, or else its sentence as a memory."""
    if record.get("expired_at") and not record.get("invalid_at"):
        raise loader.Unreadable("it was invalidated (expired_at is set)")
    spans = {"valid_from": loader.time(record.get("valid_at")), "valid_until": loader.time(record.get("invalid_at"))}
    subject, target = (
        record.get(f"{end}_node_name") or names.get(str(record.get(f"{end}_node_uuid"))) for end in ("source", "target")
    )
    fact = {"subject": subject, "predicate": record.get("name"), "object": target}
    if all(isinstance(part, str) and part.strip() for part in fact.values()):
        yield loader.ImportRecord(
            "fact", where, {**owner.of(), **fact, "object_type": "entity", **spans, "cardinality": "many"}
        )
    else:
        said = loader.time(record.get("reference_time"))
        yield loader.memory("zep", where, record, record.get("fact"), **owner.of(), **spans, event_at=said)


def _node(owner: loader.DefaultOwner, record: Json, where: str) -> Iterator[loader.ImportResult]:
    """Yields the summary of an entity as a memory. The entity itself exists through its facts."""
    if not record.get("summary"):
        raise loader.NoMemory("it has no summary")
    text = f"{record.get('name', '')}: {record['summary']}"
    created_at = loader.time(record.get("created_at"))
    yield loader.memory("zep", where, record, text, **owner.of(), memory_type="summary", event_at=created_at)


def _thread(owner: loader.DefaultOwner, thread: Json, where: str) -> Iterator[loader.ImportResult]:
    def message_of(record: Json, place: str) -> Iterator[loader.ImportResult]:
        yield _zep_message(owner, thread, record, place)

    yield from loader.read_each(thread.get("messages"), f"{where}/messages", message_of)


def _zep_message(owner: loader.DefaultOwner, thread: Json, record: Json, where: str) -> loader.ImportRecord:
    """Returns a message. `reference_time` is when it was said, and `created_at` when Zep received it."""
    names = (thread.get("thread_id"), thread.get("session_id"), thread.get("uuid"), record.get("thread_uuid"))
    session = next((str(name) for name in names if name), "thread")
    spoken: loader.SpokenMessage = {
        "role": str(record.get("role") or record.get("role_type") or ""),
        "content": str(record.get("content") or ""),
        "name": record.get("name"),
        "timestamp": loader.time(record.get("reference_time") or record.get("created_at")),
    }
    return loader.message(where, owner.of(None, thread.get("user_id")), owner.id_of(f"zep-{session}"), spoken)


_TYPES = {"semantic": "fact", "episodic": "experience", "message": "message"}
SYSTEM = "agent-memory-server"


def read_agent_memory_server(file: Any, owner: loader.DefaultOwner) -> Iterator[loader.ImportResult]:
    whole = {"memories": file} if isinstance(file, list) else file

    def working(record: Json, where: str) -> Iterator[loader.ImportResult]:
        session = str(record.get("session_id") or "session")
        user = record.get("user_id")

        def message_of(record: Json, place: str) -> Iterator[loader.ImportResult]:
            spoken: loader.SpokenMessage = {
                "role": str(record.get("role")),
                "content": str(record.get("content") or ""),
                "timestamp": loader.time(record.get("created_at")),
            }
            yield loader.message(place, owner.of(None, user), owner.id_of(session), spoken)

        yield from loader.read_each(record.get("messages") or [], f"{where}/messages", message_of)
        yield from loader.read_each(record.get("memories") or [], f"{where}/memories", partial(_memory, owner, user))
        if record.get("context"):
            named = {"id": f"{session}:context"}
            yield loader.memory(
                SYSTEM, f"{where}/context", named, record["context"], **owner.of(None, user), memory_type="summary"
            )
        if record.get("data"):
            yield loader.SkippedEntry(f"{where}/data", "free data of a session has no place in memory", is_memory=False)

    if "sessions" in whole:
        yield from loader.read_each(whole["sessions"], "/sessions", working)
    elif "messages" in whole:
        yield from loader.read_each([whole], "", working)
    else:
        yield from loader.read_each(whole.get("memories"), "/memories", partial(_memory, owner, None))
    if whole.get("next_offset"):
        yield loader.SkippedEntry("/next_offset", loader.ONE_PAGE)


def _memory(owner: loader.DefaultOwner, user: Any, record: Json, where: str) -> Iterator[loader.ImportResult]:
    of_metadata = ("namespace", "entities")
    yield loader.memory(
        SYSTEM,
        where,
        record,
        record.get("text"),
        source=owner.source(record.get("session_id")),
        **owner.of(None, record.get("user_id") or user),
        memory_type=_TYPES.get(str(record.get("memory_type")), "fact"),
        tags=loader.words(record.get("topics")),
        pinned=record.get("pinned") is True,
        event_at=loader.time(record.get("event_date") or record.get("created_at")),
        metadata={name: record[name] for name in of_metadata if record.get(name)},
    )


_NOT_MEMORY = ("tools", "files", "sources", "groups", "mcp_servers")


def read_letta(file: Any, owner: loader.DefaultOwner) -> Iterator[loader.ImportResult]:
    if isinstance(file, list):
        yield from loader.read_each(file, "", partial(_passage, owner))
        return
    if "core_memory" in file:  # the first revision: one agent with its blocks inside
        file = {"agents": [{**file, "block_ids": None}], "blocks": file["core_memory"]}
    blocks = {str(block.get("id")): block for block in loader.listed(file.get("blocks")) if isinstance(block, dict)}

    def agent(record: Json, where: str) -> Iterator[loader.ImportResult]:
        name = owner.agent_id or owner.id_of(record.get("name") or record.get("id"))
        whose = loader.DefaultOwner(name, owner.user_id, owner.now, owner.mapped)
        wanted = record.get("block_ids")
        if wanted is None:
            inside = file.get("blocks") or []
        else:
            inside = [blocks[str(block_id)] for block_id in loader.listed(wanted) if str(block_id) in blocks]
        yield from loader.read_each(inside, "/blocks", partial(_block, whose))
        messages = record.get("messages") or []
        yield from loader.read_each(messages, f"{where}/messages", partial(_message, whose, record))
        if record.get("system"):
            yield loader.SkippedEntry(f"{where}/system", "the system prompt is the agent's, no memory", is_memory=False)

    yield from loader.read_each(file.get("agents"), "/agents", agent)
    for part in _NOT_MEMORY:
        if file.get(part):
            yield loader.SkippedEntry(f"/{part}", f"{part.replace('_', ' ')} are no memory", is_memory=False)


def _require_kept(record: Json) -> None:
    """Raises NoMemory for what was deleted: Letta keeps it, and marks it."""
    if record.get("is_deleted"):
        raise loader.NoMemory("it was deleted")


def _block(owner: loader.DefaultOwner, block: Json, where: str) -> Iterator[loader.ImportResult]:
    """Yields a block as a memory. `persona` belongs to the agent for all its users, `human` to the
    agent and this user."""
    _require_kept(block)
    label = str(block.get("label") or "block")
    persona = label == "persona"
    whose = owner.of()
    if persona:
        whose = {**whose, "user_id": None}
    record = {"id": f"{whose['agent_id']}:{block.get('id') or label}"}
    yield loader.memory(
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


def _message(owner: loader.DefaultOwner, agent: Json, record: Json, where: str) -> Iterator[loader.ImportResult]:
    _require_kept(record)
    text = _assistant_text(record, agent) if record.get("role") == "assistant" else _text(record)
    session_id = owner.id_of(f"letta-{agent.get('id') or agent.get('name') or 'agent'}")
    whose = owner.of()
    spoken: loader.SpokenMessage = {
        "role": str(record.get("role")),
        "content": text,
        "name": record.get("name"),
        "timestamp": loader.time(record.get("created_at")),
    }
    yield loader.message(where, whose, session_id, spoken)


def _assistant_text(record: Json, agent: Json) -> str:
    """Returns what the assistant said to the user.

    Agents of Letta's first design speak by a tool, `send_message`; the text beside their tool calls is thought. Agents
    that never call it speak by the text. Raises Unreadable for words that cannot be read, NoMemory for thoughts.
    """
    sent = [_sent(call) for call in _sending(record)]
    if sent:
        return "\n".join(sent)
    if _called(record) and any(map(_sending, agent["messages"])):
        raise loader.NoMemory("it calls tools, and says nothing to the user")
    return _text(record)


def _called(record: Any) -> list[Json]:
    """Returns the tool calls of a message, in any revision of the format."""
    if not isinstance(record, dict):
        return []
    calls = [*loader.listed(record.get("tool_calls")), record.get("tool_call")]
    functions = [call.get("function") or call for call in calls if isinstance(call, dict)]
    return [function for function in functions if isinstance(function, dict)]


def _sending(record: Any) -> list[Json]:
    return [function for function in _called(record) if function.get("name") == "send_message"]


def _sent(function: Json) -> str:
    """Returns the words of a call of `send_message`. Its arguments are JSON, or parsed already."""
    given = function.get("arguments")
    try:
        arguments = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        arguments = None
    message_ = arguments.get("message") if isinstance(arguments, dict) else None
    if not isinstance(message_, str):
        raise loader.Unreadable("its call of send_message holds no message")
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
        except (ValueError, RecursionError):
            return text
        if isinstance(wrapped, dict) and "type" in wrapped:
            if wrapped["type"] != "user_message":
                raise loader.NoMemory(f"it is an internal message of Letta ({wrapped['type']})")
            return str(wrapped.get("message") or "")
    return text


def _passage(owner: loader.DefaultOwner, record: Json, where: str) -> Iterator[loader.ImportResult]:
    _require_kept(record)
    metadata = record.get("metadata")
    given = metadata if isinstance(metadata, dict) else {}
    agent = owner.agent_id or record.get("agent_id")
    created_at = loader.time(record.get("created_at"))
    tags = loader.words(record.get("tags"))
    yield loader.memory(
        "letta", where, record, record.get("text"), **owner.of(agent), tags=tags, metadata=given, event_at=created_at
    )
