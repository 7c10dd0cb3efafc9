"""What the files of other memory systems are read into: records to be made here, and what was left, with reasons."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from app.core.clock import rfc3339
from app.core.ids import IDENTIFIER
from app.core.schemas import Json

RecordKind: TypeAlias = Literal["memory", "fact", "message"]

_OTHER = re.compile(r"[^A-Za-z0-9._:@-]+")
MAX_TAG = 128
MAX_KEY = 256


@dataclass(frozen=True, slots=True)
class ImportRecord:
    """A record to be made. `body` is what its POST takes; a message names its session."""

    kind: RecordKind
    where: str
    body: Json
    session: Json | None = None


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """`where`: in the file, as a JSON pointer."""

    where: str
    reason: str


ImportResult: TypeAlias = ImportRecord | SkippedRecord
Reader: TypeAlias = Callable[[Any, "DefaultOwner"], Iterator[ImportResult]]


class Unreadable(Exception):
    """Why a part of the file cannot become a record."""


@dataclass(frozen=True, slots=True)
class DefaultOwner:
    """Of records that name none themselves. `now` tells what has expired."""

    agent_id: str | None
    user_id: str | None
    now: str

    def of(self, agent_id: Any = None, user_id: Any = None) -> Json:
        """Raises Unreadable where nobody is named, or by no identifier."""
        owner = {"agent_id": agent_id or self.agent_id, "user_id": user_id or self.user_id}
        for name, value in owner.items():
            if value is not None and not (isinstance(value, str) and IDENTIFIER.fullmatch(value)):
                raise Unreadable(f"its {name} is no identifier here (1 to 128 of A-Z a-z 0-9 . _ : @ -)")
        if owner["agent_id"] is None and owner["user_id"] is None:
            raise Unreadable("it names neither user nor agent: say which with --user or --agent")
        return owner


def memory(system: str, where: str, record: Mapping[str, Any], text: Any, **fields: Any) -> ImportRecord:
    """A memory under a key of its own, so that an import that is run again updates it. Raises Unreadable."""
    if not isinstance(text, str) or not text.strip():
        raise Unreadable("it has no text")
    identity = record.get("id") or record.get("uuid")
    key = {} if identity is None else {"key": f"{system}:{identity}"[:MAX_KEY]}
    given = {name: value for name, value in fields.items() if value is not None}
    metadata = {**given.pop("metadata", {}), "imported_from": {"system": system, "id": identity}}
    return ImportRecord("memory", where, {"content": text, **key, **given, "metadata": metadata})


def each(items: Any, where: str, read: Callable[[Json, str], Iterator[ImportResult]]) -> Iterator[ImportResult]:
    """What is read of each item of a list; one that cannot be read keeps no other from being read."""
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
    """RFC 3339 in UTC, of what other systems write: with or without zone (then UTC), or a date. Raises Unreadable."""
    if value is None or value == "":
        return None
    try:
        moment = datetime.fromisoformat(str(value))
        return rfc3339(moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment)
    except (ValueError, OverflowError):
        raise Unreadable(f"its time is none: {str(value)[:40]!r}") from None


def words(values: Any) -> list[str]:
    """Tags of a list of texts."""
    return [value[:MAX_TAG] for value in values or () if isinstance(value, str) and value][:64]


def identifier(text: str) -> str:
    """A name as an identifier."""
    return _OTHER.sub("-", text).strip("-")[:128]


def message(where: str, owner: Json, session_id: str, said: Mapping[str, Any]) -> ImportRecord:
    """`said`: role, content, name, timestamp. Raises Unreadable where no session can hold it."""
    if owner["agent_id"] is None or owner["user_id"] is None:
        raise Unreadable("a conversation needs both: say which with --agent and --user")
    if said["role"] not in ("user", "assistant"):
        raise Unreadable("its role is neither user nor assistant: prompts and tools' own words are not taken")
    if not said["content"].strip():
        raise Unreadable("it has no text")
    body = {name: value for name, value in said.items() if value}
    return ImportRecord("message", where, body, {"session_id": identifier(session_id), **owner})
