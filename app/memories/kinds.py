"""The kinds of memory that the ranking tells apart: (n,) masks over the documents of a scope."""

from app.storage.search import Bools, Columns
from app.storage.text import IS_QUESTION, SAID_BY_ASSISTANT, name_id

_ASSISTANT = name_id("assistant")


def plain_memories(columns: Columns) -> Bools:
    """Documents that belong to no conversation."""
    return columns.derived.get(
        "plain", (columns.session, columns.speaker), lambda: (columns.session < 0) | (columns.speaker == 0)
    )


def assistants(columns: Columns) -> Bools:
    """Turns of an assistant without a name of its own."""
    said = columns.flags & SAID_BY_ASSISTANT != 0
    assistant: Bools = ~plain_memories(columns) & said & (columns.speaker == _ASSISTANT)
    return assistant


def questions(columns: Columns) -> Bools:
    """Turns that are questions."""
    plain = plain_memories(columns)
    return columns.derived.get("questions", (plain, columns.flags), lambda: ~plain & (columns.flags & IS_QUESTION != 0))
