"""Flag bits of a memory in the search index that its text alone does not tell: its speaker's role and its origin."""

from collections.abc import Mapping
from typing import Any

from app.storage.text import DERIVED, HAS_EVENT_TIME, SAID_BY_ASSISTANT, SAID_BY_USER, SUMMARY

FIELDS = ("source", "memory_type", "event_at")
"""Fields that `flags_of` reads."""

_OF_ROLE = {"user": SAID_BY_USER, "assistant": SAID_BY_ASSISTANT}
_NOT_DERIVED = (None, "api", "import", "message")


def flags_of(doc: Mapping[str, Any]) -> int:
    """Bits of `storage/text.py` for a memory.

    Memories of messages keep the message's role. Those stored before that field existed have only the speaker's name,
    which is the role where the message had no name.
    """
    source = doc.get("source") or {}
    role = source.get("role") or (source.get("speaker") or "").casefold()
    return (
        _OF_ROLE.get(role, 0)
        | DERIVED * (source.get("origin") not in _NOT_DERIVED)
        | SUMMARY * (doc.get("memory_type") == "summary")
        | HAS_EVENT_TIME * (doc.get("event_at") is not None)
    )
