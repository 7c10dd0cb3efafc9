"""What the search index keeps of a memory itself: who said it, and whether it is a summary."""

from collections.abc import Mapping
from typing import Any

from app.storage.text import HAS_EVENT_TIME, SAID_BY_ASSISTANT, SAID_BY_USER, SUMMARY

FLAG_FIELDS = ("source", "memory_type", "event_at")
"""Fields that `flags_of` reads."""

_OF_ROLE: dict[str | None, int] = {"user": SAID_BY_USER, "assistant": SAID_BY_ASSISTANT}


def flags_of(doc: Mapping[str, Any]) -> int:
    """Returns the flags of a memory: the bits of `storage/text.py`. Memories of messages keep the message's role."""
    return (
        _OF_ROLE.get((doc.get("source") or {}).get("role"), 0)
        | SUMMARY * (doc.get("memory_type") == "summary")
        | HAS_EVENT_TIME * (doc.get("event_at") is not None)
    )
