"""Rebuilds stored documents from the records of a user's export. Fields that the export omits are derived from the
record with the code that makes new records. Pure functions."""

from collections.abc import Callable, Mapping
from typing import Any

from app.actions.schemas import ACTIONS, ActionRecord
from app.actions.service import indexed, shown_once
from app.core.clock import parse_rfc3339
from app.core.limits import BODY_LIMITS
from app.facts.aliases import ENTITY_ALIASES, AliasRecord
from app.facts.drafts import computed
from app.facts.keys import EMPTY_PROFILE, USERS, key_of
from app.facts.models import FactRecord
from app.facts.schemas import FACTS
from app.jobs.models import OPERATIONS, OperationRecord
from app.memories.records import SOURCE, identity_hash, metadata_terms, standing
from app.memories.schemas import HISTORY, MEMORIES, MemoryRecord, Source
from app.procedures.schemas import PROCEDURE_HISTORY, PROCEDURES, ProcedureRecord
from app.retention.service import KEPT
from app.sessions.schemas import MESSAGES, SESSIONS, MessageRecord, SessionRecord, StoredMessage, extra_of, shortened
from app.storage.schema import Collection, Doc, value_at
from app.storage.text import content_hash, normalise_content

SAID = ("role", "content", "tool_calls", "tool_call_id", "result", "refusal", "audio", "function_call")
SHOWN_ONLY: Mapping[str, frozenset[str]] = {
    USERS.name: frozenset(EMPTY_PROFILE),
    ACTIONS.name: frozenset({"rolled_up_into"}),
}
"""What is shown of a record and not stored with it. Fields of a profile are facts, or stand in `profile`."""
IMPORTED = (MEMORIES.name, FACTS.name, PROCEDURES.name, ACTIONS.name)
"""Collections whose records say in `source` that they were imported."""


def rebuild(collection: Collection, shown: Doc, kept: Mapping[str, Any], tenant: str) -> Doc:
    """Returns the document that a record was exported from, for `tenant`, with `source.origin` set to `import`.
    `shown`: the record as the export has it.

    `kept` has the fields of `KEPT`. Raises KeyError, TypeError or ValueError if the record lacks a required field.
    """
    given = {name: value for name, value in kept.items() if name in KEPT.get(collection.name, ())}
    owners = {name: None for name in ("agent_id", "user_id") if name in collection.fields}
    stored = {name: value for name, value in shown.items() if name not in SHOWN_ONLY.get(collection.name, ())}
    if collection is MESSAGES:
        extra = extra_of(shown)
        stored = {name: value for name, value in stored.items() if name not in extra} | {"extra": extra}
    doc = owners | stored | {"tenant_id": tenant} | given
    past = _PAST.get(collection.name)
    if past is not None:
        return doc | {"record": _rebuilt(past, shown["record"])}
    return _rebuilt(collection, doc)


def _rebuilt(collection: Collection, doc: Doc) -> Doc:
    make = _MAKERS.get(collection.name)
    whole = doc if make is None else doc | {**make(doc)}
    if collection.name in IMPORTED:
        whole = whole | {"source": {**whole["source"], "origin": "import"}}
    return whole


def _memory(memory: MemoryRecord) -> MemoryRecord:
    return {
        "content_hash": content_hash(memory["content"]),
        "identity_hash": identity_hash(memory),
        "metadata_terms": metadata_terms(memory["metadata"]),
        "anchored_at": memory.get("anchored_at") or memory["last_accessed"] or memory["created_at"],
        "dedupe_key": memory.get("dedupe_key"),
        "archived_by": memory.get("archived_by"),
        "archived_at": memory.get("archived_at"),
        "claimed_key": memory.get("claimed_key"),
        "merged": memory.get("merged", False),
        "standing": standing(memory),
        "replaced_by": None,  # the run that made them, and could undo them, stays where it was
    }


def _action(action: ActionRecord) -> ActionRecord:
    source: Source = {**SOURCE, "session_id": action["session_id"], **(action.get("source") or {})}
    hashed = shown_once(action["content"], action["outcome"], action["entities"])
    return {"content_hash": hashed, "source": source, **indexed(action)}


def _fact(fact: FactRecord) -> FactRecord:
    return computed(fact)


def _alias(alias: AliasRecord) -> AliasRecord:
    """Returns the keys, and the fields that joining names needs. Raises ValueError for a status that no alias has, and
    for states that do not end with it."""
    states = alias["states"]
    if any(state["status"] not in ("active", "dismissed") or parse_rfc3339(state["from"]) is None for state in states):
        raise ValueError("states")
    if alias["status"] != states[-1]["status"]:
        raise ValueError(alias["status"])
    return {
        "alias_id": alias["alias_id"],
        "rule": alias["rule"],
        "version": alias["version"],
        "created_at": alias["created_at"],
        "name_key": key_of(alias["name"]),
        "alias_key": key_of(alias["alias"]),
    }


def _procedure(procedure: ProcedureRecord) -> ProcedureRecord:
    return {
        "name_key": normalise_content(procedure["name"]),
        "content_hash": content_hash(procedure["procedure_id"]),
    }


def _session(session: SessionRecord) -> SessionRecord:
    """Returns the summary fields, which an export omits for a session without a summary, and the terms of the
    metadata."""
    return {
        "summary_id": session.get("summary_id"),
        "summary_seq": session.get("summary_seq"),
        "metadata_terms": metadata_terms(session["metadata"]),
    }


def _message(message: MessageRecord) -> MessageRecord:
    if message.get("deleted_at") is not None:
        return {"text": "", "own_text": None}
    fields = {name: value_at(message, name) for name in SAID if value_at(message, name) is not None}
    said, limit = StoredMessage.model_validate(fields), BODY_LIMITS.text_chars
    text, own = shortened(said.text(), limit), shortened(said.text(own=True), limit)
    return {"text": text, "own_text": None if own == text else own}


def _operation(_: OperationRecord) -> OperationRecord:
    """Clears the undo data, which an export omits."""
    return {"undo": None, "undoing": None}


_PAST: Mapping[str, Collection] = {HISTORY.name: MEMORIES, PROCEDURE_HISTORY.name: PROCEDURES}
_MAKERS: Mapping[str, Callable[[Any], Mapping[str, Any]]] = {
    MEMORIES.name: _memory,
    FACTS.name: _fact,
    ENTITY_ALIASES.name: _alias,
    ACTIONS.name: _action,
    PROCEDURES.name: _procedure,
    SESSIONS.name: _session,
    MESSAGES.name: _message,
    OPERATIONS.name: _operation,
}
