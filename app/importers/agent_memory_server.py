"""Reads exports of Redis Agent Memory Server: `memories` as its search returns them (or a bare list), and the working
memory of `sessions`."""

from collections.abc import Iterator
from typing import Any

from app.core.schemas import Json
from app.importers.models import DefaultOwner, ImportResult, SkippedRecord, each, memory, message, time, words

_TYPES = {"semantic": "fact", "episodic": "experience", "message": "message"}
SYSTEM = "agent-memory-server"


def read(file: Any, owner: DefaultOwner) -> Iterator[ImportResult]:
    """Yields the records of a file."""
    whole = {"memories": file} if isinstance(file, list) else file

    def working(record: Json, where: str) -> Iterator[ImportResult]:
        session = str(record.get("session_id") or "session")
        user = record.get("user_id")

        def said(spoken: Json, place: str) -> Iterator[ImportResult]:
            words_ = {"role": str(spoken.get("role")), "content": str(spoken.get("content") or "")}
            when = {"timestamp": time(spoken.get("created_at"))}
            yield message(place, owner.of(None, user), owner.id_of(session), {**words_, **when})

        yield from each(record.get("messages") or [], f"{where}/messages", said)
        yield from each(
            record.get("memories") or [], f"{where}/memories", lambda one, at: _memory(one, at, owner, user)
        )
        if record.get("context"):
            named = {"id": f"{session}:context"}
            yield memory(
                SYSTEM, f"{where}/context", named, record["context"], **owner.of(None, user), memory_type="summary"
            )
        if record.get("data"):
            yield SkippedRecord(f"{where}/data", "free data of a session has no place in memory", is_memory=False)

    if "sessions" in whole:
        yield from each(whole["sessions"], "/sessions", working)
    elif "messages" in whole:
        yield from each([whole], "", working)
    else:
        yield from each(whole.get("memories"), "/memories", lambda one, where: _memory(one, where, owner, None))
    if whole.get("next_offset"):
        yield SkippedRecord("/next_offset", "this is one page of several: import the others, too")


def _memory(record: Json, where: str, owner: DefaultOwner, user: Any) -> Iterator[ImportResult]:
    kept = ("namespace", "session_id", "entities")
    yield memory(
        SYSTEM,
        where,
        record,
        record.get("text"),
        **owner.of(None, record.get("user_id") or user),
        memory_type=_TYPES.get(str(record.get("memory_type")), "fact"),
        tags=words(record.get("topics")),
        pinned=record.get("pinned") is True,
        event_at=time(record.get("event_date") or record.get("created_at")),
        metadata={name: record[name] for name in kept if record.get(name)},
    )
