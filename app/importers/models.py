"""The records that a reader of another memory system's file yields: records to import, and skipped ones
with reasons."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from app.core.clock import IDENTIFIER, rfc3339
from app.core.schemas import Json

RecordKind: TypeAlias = Literal["memory", "fact", "message"]

_OTHER = re.compile(r"[^A-Za-z0-9._:@-]+")
MAX_TAG = 128
"""The maximum length of a tag."""
MAX_KEY = 256


@dataclass(frozen=True, slots=True)
class ImportRecord:
    """A record to import. `body` is the body of its POST request; a message also has its session."""

    kind: RecordKind
    where: str
    body: Json
    session: Json | None = None


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """A part of the file that is not imported. `where` is a JSON pointer into the file."""

    where: str
    reason: str


ImportResult: TypeAlias = ImportRecord | SkippedRecord
Reader: TypeAlias = Callable[[Any, "DefaultOwner"], Iterator[ImportResult]]
"""Reads a parsed file and yields its records."""


class Unreadable(Exception):
    """The reason why a part of the file cannot become a record."""


@dataclass(frozen=True, slots=True)
class DefaultOwner:
    """The owners of records that name none. `now` decides which records have expired."""

    agent_id: str | None
    user_id: str | None
    now: str

    def of(self, agent_id: Any = None, user_id: Any = None) -> Json:
        """Returns the owners of a record. Raises Unreadable if there is none, or if an id is not a valid identifier."""
        owner = {"agent_id": agent_id or self.agent_id, "user_id": user_id or self.user_id}
        for name, value in owner.items():
            if value is not None and not (isinstance(value, str) and IDENTIFIER.fullmatch(value)):
                raise Unreadable(f"its {name} is no identifier here (1 to 128 of A-Z a-z 0-9 . _ : @ -)")
        if owner["agent_id"] is None and owner["user_id"] is None:
            raise Unreadable("it names neither user nor agent: say which with --user or --agent")
        return owner


def memory(system: str, where: str, record: Mapping[str, Any], text: Any, **fields: Any) -> ImportRecord:
    """Returns a memory with a key made of its original id, so that a repeated import updates it. Raises Unreadable if
    it has no text."""
    if not isinstance(text, str) or not text.strip():
        raise Unreadable("it has no text")
    identity = record.get("id") or record.get("uuid")
    key = {} if identity is None else {"key": f"{system}:{identity}"[:MAX_KEY]}
    given = {name: value for name, value in fields.items() if value is not None}
    metadata = {**given.pop("metadata", {}), "imported_from": {"system": system, "id": identity}}
    return ImportRecord("memory", where, {"content": text, **key, **given, "metadata": metadata})


def each(items: Any, where: str, read: Callable[[Json, str], Iterator[ImportResult]]) -> Iterator[ImportResult]:
    """Yields the records of each item of a list. An unreadable item is skipped and does not affect the others."""
    if not isinstance(items, list):
        yield SkippedRecord(where, "it is no list")
        return
    for index, item in enumerate(items):
        place = f"{where}/{index}"
        if not isinstance(item, dict):
            yield SkippedRecord(place, "it is no object")
            continue
        try:
            yield from read(item, place)
        except Unreadable as error:
            yield SkippedRecord(place, str(error))


def time(value: Any) -> str | None:
    """Returns a time of another system as RFC 3339 in UTC. Accepts times with or without a zone (then UTC), and dates.
    Raises Unreadable."""
    if value is None or value == "":
        return None
    try:
        moment = datetime.fromisoformat(str(value))
        return rfc3339(moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment)
    except (ValueError, OverflowError):
        raise Unreadable(f"its time is none: {str(value)[:40]!r}") from None


def words(values: Any) -> list[str]:
    """Returns the texts of a list as tags."""
    return [value[:MAX_TAG] for value in values or () if isinstance(value, str) and value][:64]


def identifier(text: str) -> str:
    """Returns a name with all characters replaced that an identifier cannot contain."""
    return _OTHER.sub("-", text).strip("-")[:128]


def message(where: str, owner: Json, session_id: str, said: Mapping[str, Any]) -> ImportRecord:
    """Returns a message. `said` has role, content, name and timestamp. Raises Unreadable if no session
    can contain it."""
    if owner["agent_id"] is None or owner["user_id"] is None:
        raise Unreadable("a conversation needs both: say which with --agent and --user")
    if said["role"] not in ("user", "assistant"):
        raise Unreadable("its role is neither user nor assistant: prompts and tools' own words are not taken")
    if not said["content"].strip():
        raise Unreadable("it has no text")
    body = {name: value for name, value in said.items() if value}
    return ImportRecord("message", where, body, {"session_id": identifier(session_id), **owner})
