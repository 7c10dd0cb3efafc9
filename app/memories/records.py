"""Pure functions that build and revise memories."""

from calendar import monthrange
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

import orjson

from app.core import prompt_text
from app.core.characters import says_nothing
from app.core.clock import new_id, next_occurrence, parse_rfc3339, rfc3339
from app.core.schemas import differing
from app.errors import invalid
from app.memories.embedding import HARMLESS, Passage
from app.memories.schemas import (
    FILE,
    NOT_EMBEDDED,
    SMALL_TALK,
    STANDING,
    EventPrecision,
    MemoryChange,
    MemoryRecord,
    Source,
)
from app.storage.record_filters import metadata_terms
from app.storage.text import content_hash, normalise_content

SOURCE: Source = {
    "origin": "api",
    "session_id": None,
    "message_seq": None,
    "said_at": None,
    "speaker": None,
    "role": None,
    "action_ids": [],
    "memory_ids": [],
    "url": None,
    "note": None,
    "model": None,
    "prompt_version": None,
    "quote": None,
    "api_key_id": None,
}
"""The fields of a memory's `source`, with their defaults."""


SMALL_TALK_IMPORTANCE = 0.05
"""Importance of the memory of a message without content. A caller that raises it makes searches find the memory."""
IDENTITY = (
    "content",
    "context",
    "event_at",
    "event_at_precision",
    "due_at",
    "rrule",
    "valid_from",
    "valid_until",
    "expires_at",
    "metadata",
    "key",
)
"""Fields that distinguish two memories of the same partition and type."""


DUE = ("due_at", "surface_at", "done_at", "rrule")


def new_memory(fields: MemoryRecord, source: Source, now: str, *, unique: bool) -> MemoryRecord:
    """Returns a new memory of `fields` (those of `MemoryCreate`).

    `unique`: no equal active memory may exist in its scope.
    """
    importance = fields["importance"]
    memory: MemoryRecord = {
        "memory_id": new_id("mem"),
        "agent_id": fields.get("agent_id"),
        "user_id": fields.get("user_id"),
        "key": fields.get("key"),
        "memory_type": fields["memory_type"],
        "content": fields["content"],
        "context": fields.get("context"),
        "importance": importance,
        "base_importance": importance,
        "trust": fields.get("trust", 1.0),
        "tags": list(dict.fromkeys(fields.get("tags", []))),
        "metadata": fields.get("metadata", {}),
        "metadata_terms": metadata_terms(fields.get("metadata", {})),
        "pinned": fields.get("pinned", False),
        "always": fields.get("always"),
        "status": "active",
        "supersedes": [],
        "superseded_by": None,
        "merged": False,
        "contradicts": [],
        "claimed_key": None,
        "source": {**SOURCE, **source},
        **own_time(fields.get("event_at"), fields.get("event_at_precision")),
        **when_due(fields),
        "valid_from": fields.get("valid_from"),
        "valid_until": fields.get("valid_until"),
        "expires_at": fields.get("expires_at"),
        "last_accessed": None,
        "access_count": 0,
        "helpful_count": 0,
        "misleading_count": 0,
        "anchored_at": now,
        "content_hash": content_hash(fields["content"]),
        "embedding": {**NOT_EMBEDDED},
        "version": 1,
        "created_at": now,
        "updated_at": now,
    }
    memory["identity_hash"] = identity_hash(memory)
    memory["dedupe_key"] = f"{memory['memory_type']}:{memory['identity_hash']}" if unique else None
    memory["standing"] = standing(memory)
    return memory


def own_time(event_at: str | None, precision: EventPrecision | None) -> MemoryChange:
    """Returns the fields that say when a memory happens: `event_until` of 2026-12 is 2026-12-31T23:59:59.999Z."""
    if event_at is None or precision in (None, "instant"):
        return {
            "event_at": event_at,
            "event_at_precision": None if event_at is None else "instant",
            "event_until": event_at,
        }
    date = event_at[:10]
    first, last = date, date
    if precision == "month":
        first, last = f"{date[:8]}01", f"{date[:8]}{monthrange(int(date[:4]), int(date[5:7]))[1]}"
    elif precision == "year":
        first, last = f"{date[:5]}01-01", f"{date[:5]}12-31"
    return {
        "event_at": f"{first}T00:00:00.000Z",
        "event_at_precision": precision,
        "event_until": f"{last}T23:59:59.999Z",
    }


DAY_BEFORE = timedelta(days=1)
"""What is due shows so long before in prompts."""


def when_due(fields: MemoryRecord) -> MemoryChange:
    """Returns the fields that say what is to be done. What recurs and was done is due at its next time, which surfaces
    as long before it; at its last time it is done."""
    due_at, surface_at, rrule = fields.get("due_at"), fields.get("surface_at"), fields.get("rrule")
    done_at = fields.get("done_at")
    if due_at and rrule and done_at and (coming := next_occurrence(rrule, due_at, max(due_at, done_at))):
        if surface_at is not None:
            lead = parse_rfc3339(due_at) - parse_rfc3339(surface_at)
            surface_at = rfc3339(parse_rfc3339(coming) - lead) if lead >= timedelta() else None
        due_at, done_at = coming, None
    due_from = None
    if due_at and not done_at:
        begins = max(parse_rfc3339(due_at), _FIRST + DAY_BEFORE) - DAY_BEFORE
        due_from = max(rfc3339(begins), surface_at or "")
    return {
        "due_at": due_at,
        "surface_at": surface_at,
        "done_at": done_at,
        "rrule": rrule,
        "due_from": due_from,
    }


_FIRST = datetime.min.replace(tzinfo=UTC)


def told_at(memory: MemoryRecord) -> str:
    """Returns when a memory was told: in its message, else when it was stored. Who stores what happened before tells of
    that time: an import of May's notes is known in May."""
    stored = memory["created_at"]
    return memory["source"].get("said_at") or min(memory["event_at"] or stored, stored)


def is_rule(memory: MemoryRecord) -> bool:
    """Returns whether a memory belongs into every prompt."""
    return bool(memory.get("pinned")) or memory.get("memory_type") == "instruction"


def standing(memory: MemoryRecord) -> str | None:
    """Returns the mark of a memory that belongs into every prompt, or of a message that searches leave out, or None."""
    if memory["memory_type"] == FILE:
        return FILE
    if is_rule(memory):
        return STANDING
    unimportant = memory["memory_type"] == "message" and memory["base_importance"] <= SMALL_TALK_IMPORTANCE
    return SMALL_TALK if unimportant and says_nothing(memory["content"]) else None


def happened_at(memory: MemoryRecord) -> str | None:
    """Returns the time that distinguishes a memory from equal ones: its own, or that of an experience when it was
    told."""
    learned = memory["source"]["origin"] == "extraction" and memory["memory_type"] == "experience"
    return memory["event_at"] or (memory["source"].get("said_at") if learned else None)


def identity_hash(memory: MemoryRecord) -> int:
    """Returns a signed 64-bit hash of the `IDENTITY` fields. Texts that differ only in case, width or white space are
    equal.

    The time when it was told distinguishes two experiences without a time of their own, but not two preferences or
    facts: these are the same each time they are said.
    """
    parts = [
        normalise_content(memory["content"]),
        normalise_content(memory["context"]) if memory["context"] else None,
        happened_at(memory),
        None if memory["event_at"] is None else memory.get("event_at_precision"),
        memory.get("due_at"),
        memory.get("rrule"),
        memory["valid_from"],
        memory["valid_until"],
        memory["expires_at"],
        memory["key"],
        sorted(metadata_terms(memory["metadata"])),
    ]
    return int.from_bytes(blake2b(orjson.dumps(parts), digest_size=8).digest(), "big", signed=True)


def revision(memory: MemoryRecord, fields: MemoryChange, now: str) -> MemoryChange:
    """Returns the stored fields that a caller's change sets, including computed ones; empty if nothing changes."""
    if "event_at" in fields or "event_at_precision" in fields:  # a new time without a precision is an instant
        fields = fields | own_time(fields.get("event_at", memory["event_at"]), fields.get("event_at_precision"))
    if not fields.keys().isdisjoint(DUE):
        fields = fields | when_due(memory | fields)
    if "tags" in fields:
        fields = fields | {"tags": list(dict.fromkeys(fields["tags"]))}
    changed = differing(memory, fields)
    if "memory_type" in changed and FILE in (memory["memory_type"], changed["memory_type"]):
        raise invalid("/memory_type", "a file stays a file, and nothing else becomes one")
    changed.pop("importance", None)
    if "importance" in fields:
        changed |= {"importance": fields["importance"], "base_importance": fields["importance"], "anchored_at": now}
    if "metadata" in changed:
        changed["metadata_terms"] = metadata_terms(changed["metadata"])
    if "status" in changed:
        changed |= {"archived_by": None, "archived_at": None}  # set by a caller, so retention does not purge it
        if memory["status"] == "superseded":
            changed |= {"superseded_by": None, "merged": False}
    if "content" in changed:
        changed["content_hash"] = content_hash(changed["content"])
    if not changed.keys().isdisjoint(("memory_type", "pinned", "content", "base_importance")):
        changed["standing"] = standing(memory | changed)
    if not changed.keys().isdisjoint(("memory_type", *IDENTITY)):
        changed["identity_hash"] = identity_hash(memory | changed)
    if not changed.keys().isdisjoint(("memory_type", "status", *IDENTITY)):
        changed["dedupe_key"] = None  # a memory that a change made equal to another may stay beside it
    return changed


def said_again(memory: MemoryRecord, fields: MemoryRecord, importance: float, now: str) -> MemoryChange:
    """Returns the fields that an equal memory changes in the stored one: higher trust or importance, more tags, a pin.

    `importance`: the current importance of `memory`. If the importance rises, decay starts anew.
    """
    gains: MemoryChange = {
        "tags": [*memory["tags"], *fields["tags"]],
        "pinned": memory["pinned"] or fields["pinned"],
        "always": memory.get("always") or fields.get("always"),
        "trust": max(memory["trust"], fields["trust"]),
    }
    if fields["importance"] > importance:
        gains["importance"] = fields["importance"]
    return revision(memory, gains, now)


def repeats(memory: MemoryRecord, source: MemoryRecord) -> bool:
    """Returns whether a learned memory has exactly the text of the memory `source` that it was learned from."""
    learned = source["memory_id"] in memory["source"]["memory_ids"] and memory["context"] is None
    return learned and memory["content_hash"] == source["content_hash"]


def repeated_source(memory: MemoryRecord, memories: Mapping[str, MemoryRecord]) -> MemoryRecord | None:
    """Returns the one of `memories` (by id) that a memory was learned from word for word, or None."""
    sources = (memories.get(memory_id) for memory_id in memory["source"]["memory_ids"])
    return next((source for source in sources if source is not None and repeats(memory, source)), None)


def passage(memory: MemoryRecord) -> Passage:
    """Returns the text by which a memory is found; of a file, which is not found, a word that says nothing of it."""
    if memory["memory_type"] == FILE:
        return Passage(HARMLESS)
    event_at, tags = memory["event_at"], tuple(memory["tags"])
    time = parse_rfc3339(event_at) if event_at else None
    if time and (precision := memory.get("event_at_precision")) in ("month", "year"):  # found by its words, by no day
        tags, time = (*tags, f"{time:%B %Y}" if precision == "month" else f"{time:%Y}"), None
    return Passage(memory["content"], memory["context"], time, tags)


def needs_new_entry(changed: MemoryChange) -> bool:
    """Returns whether a change of these fields needs a new vector: that of a memory is of its content alone."""
    return "content" in changed


def needs_new_terms(changed: MemoryChange) -> bool:
    """Returns whether a change of these fields changes the words by which a memory is found (`passage`)."""
    return not changed.keys().isdisjoint(("content", "context", "event_at", "event_at_precision", "tags"))


def speaker_of(source: Source) -> str | None:
    """Returns who said what a memory holds, as it can stand before the text. None: nobody is named."""
    role, name = source.get("role"), source.get("speaker")
    return prompt_text.speaker(role, name) if role and name else None
