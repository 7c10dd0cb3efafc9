"""What the search index keeps of a memory itself: who said it, and whether it is derived or a summary."""

from collections.abc import Mapping
from typing import Any

from app.storage.text import DERIVED, HAS_EVENT_TIME, SAID_BY_ASSISTANT, SAID_BY_USER, SUMMARY

FLAG_FIELDS = ("source", "memory_type", "event_at")
"""Fields that `flags_of` reads."""

_OF_ROLE = {"user": SAID_BY_USER, "assistant": SAID_BY_ASSISTANT}
_NOT_DERIVED = (None, "api", "import", "message")


def flags_of(doc: Mapping[str, Any]) -> int:
    """Returns the flags of a memory: the bits of `storage/text.py`.

    Memories of messages keep the message's role. Those stored before that field existed have only the speaker's name,
    which is the role if the message had no name.
    """
    source = doc.get("source") or {}
    role = source.get("role") or (source.get("speaker") or "").casefold()
    return (
        _OF_ROLE.get(role, 0)
        | DERIVED * (source.get("origin") not in _NOT_DERIVED)
        | SUMMARY * (doc.get("memory_type") == "summary")
        | HAS_EVENT_TIME * (doc.get("event_at") is not None)
    )


EXTRACT = "(extract) "
"""Prefix of a summary that quotes the conversation: earlier releases wrote such ones without a language model."""


def quotes_only(doc: Mapping[str, Any]) -> bool:
    """Returns whether a memory is a summary of quotes. No search finds it beside the messages that it quotes."""
    derived = doc["source"]["origin"] not in _NOT_DERIVED
    return doc["memory_type"] == "summary" and derived and str(doc["content"]).startswith(EXTRACT)
