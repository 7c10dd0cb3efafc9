"""Changes as responses show them."""

from typing import Any, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from app.core.schemas import Count, Schema, example

ChangedKind = TypeAliasType(
    "ChangedKind",
    Literal[
        "memory",
        "session",
        "message",
        "task",
        "checkpoint",
        "action",
        "fact",
        "alias",
        "procedure",
        "profile",
        "agent",
        "finding",
    ],
)
RecordChangeType = TypeAliasType("RecordChangeType", Literal["created", "updated", "deleted", "erased"])
ChangeFormat = TypeAliasType("ChangeFormat", Literal["json", "events"])
ChangeInclude = TypeAliasType("ChangeInclude", Literal["record"])
ChangedRecord = TypeAliasType("ChangedRecord", dict[str, Any])

KINDS: tuple[str, ...] = ChangedKind.__value__.__args__
TYPES: tuple[str, ...] = RecordChangeType.__value__.__args__


_EXAMPLE: dict[str, Any] = {
    "cursor": "q0H8bWd3tW9bMTcsIjVmMWMwYTJlOWI3ZCJd",
    "kind": "memory",
    "id": "mem_01a2003d395076f9a13acea58faaf745",
    "type": "created",
    "agent_id": "support",
    "user_id": "ada",
    "version": 1,
    "at": "2026-06-01T12:00:00.000Z",
}
PAGE_EXAMPLE: dict[str, Any] = {"items": [_EXAMPLE], "next_cursor": None, "cursor": _EXAMPLE["cursor"]}


class RecordChange(Schema):
    """A change of one record."""

    model_config = example(_EXAMPLE)

    cursor: str = Field(description="Its place in the log: pass it as `after` to go on behind it.")
    kind: ChangedKind
    id: str | None = Field(description="The id of the record; null in an `erased` entry, which names nobody.")
    type: RecordChangeType
    agent_id: str | None
    user_id: str | None
    version: Count | None = Field(
        description="The record's version after the change, or its last one. Messages and checkpoints have none."
    )
    at: str = Field(description="When it was committed (RFC 3339).")
    record: ChangedRecord | None = Field(
        None, description="With `include=record`: the record as it is now; null if it is gone or cannot be read."
    )


class ChangePage(Schema):
    items: list[RecordChange]
    next_cursor: str | None = Field(None, description="Pass as `after` for the next page; null if there is none now.")
    cursor: str = Field(description="Where this page ends, never null: pass it as `after` to read what comes later.")
