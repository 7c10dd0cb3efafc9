"""Reads exports of Zep, as its API returns them: `edges` and `nodes` of a user's graph, `messages` of a thread, or
`threads`."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from app.core.schemas import Json
from app.importers.models import (
    DefaultOwner,
    ImportRecord,
    ImportResult,
    NoMemory,
    Unreadable,
    each,
    memory,
    message,
    time,
)


def read(file: Any, owner: DefaultOwner) -> Iterator[ImportResult]:
    """Yields the records of a file."""
    whole = {"edges": file} if isinstance(file, list) else file
    nodes = whole.get("nodes", [])
    listed = nodes if isinstance(nodes, list) else []
    names = {str(node.get("uuid")): node.get("name") for node in listed if isinstance(node, dict)}
    if "edges" in whole:
        yield from each(whole["edges"], "/edges", partial(_edge, owner, names))
    if "nodes" in whole:
        yield from each(whole["nodes"], "/nodes", partial(_node, owner))
    if "threads" in whole:
        yield from each(whole["threads"], "/threads", partial(_thread, owner))
    if "messages" in whole:
        yield from _thread(owner, whole, "")


def _edge(owner: DefaultOwner, names: Json, record: Json, where: str) -> Iterator[ImportResult]:
    """Yields a fact if both ends of the edge are named, or else its sentence as a memory."""
    if record.get("expired_at") and not record.get("invalid_at"):
        raise Unreadable("it was taken back (expired_at)")
    spans = {"valid_from": time(record.get("valid_at")), "valid_until": time(record.get("invalid_at"))}
    subject, target = (
        record.get(f"{end}_node_name") or names.get(str(record.get(f"{end}_node_uuid"))) for end in ("source", "target")
    )
    fact = {"subject": subject, "predicate": record.get("name"), "object": target}
    if all(isinstance(part, str) and part.strip() for part in fact.values()):
        yield ImportRecord(
            "fact", where, {**owner.of(), **fact, "object_type": "entity", **spans, "cardinality": "many"}
        )
    else:
        yield memory("zep", where, record, record.get("fact"), **owner.of(), **spans)


def _node(owner: DefaultOwner, record: Json, where: str) -> Iterator[ImportResult]:
    """Yields the summary of an entity as a memory. The entity itself exists through its facts."""
    if not record.get("summary"):
        raise NoMemory("it has no summary")
    text = f"{record.get('name', '')}: {record['summary']}"
    created_at = time(record.get("created_at"))
    yield memory("zep", where, record, text, **owner.of(), memory_type="summary", event_at=created_at)


def _thread(owner: DefaultOwner, thread: Json, where: str) -> Iterator[ImportResult]:
    session = next((str(thread[name]) for name in ("thread_id", "session_id", "uuid") if thread.get(name)), "thread")

    def said(record: Json, place: str) -> Iterator[ImportResult]:
        role = str(record.get("role") or record.get("role_type") or "")
        spoken = {"role": role, "content": str(record.get("content") or ""), "name": record.get("name")}
        whose = owner.of(None, thread.get("user_id"))
        yield message(
            place, whose, owner.id_of(f"zep-{session}"), {**spoken, "timestamp": time(record.get("created_at"))}
        )

    yield from each(thread.get("messages"), f"{where}/messages", said)
