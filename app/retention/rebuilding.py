"""Rebuilds stored documents from the records of a user's export. Fields that the export omits are derived from the
record with the code that makes new records. Pure functions."""

from collections.abc import Callable, Mapping
from typing import Any

from app.actions.schemas import ACTIONS
from app.actions.service import indexed, shown_once
from app.core.clock import parse_rfc3339
from app.facts.aliases import ENTITY_ALIASES, states_of
from app.facts.drafts import computed
from app.facts.keys import EMPTY_PROFILE, USERS, key_of
from app.facts.schemas import FACTS
from app.jobs.models import OPERATIONS
from app.memories.models import HISTORY, LINKS, MEMORIES
from app.memories.records import SOURCE, identity_hash, metadata_terms, standing
from app.procedures.schemas import PROCEDURE_HISTORY, PROCEDURES
from app.retention.service import KEPT
from app.sessions.schemas import MESSAGES, SESSIONS, StoredMessage
from app.storage.schema import Collection, Doc
from app.storage.text import content_hash, normalise_content

SAID = ("role", "content", "tool_calls", "tool_call_id", "result", "refusal", "audio", "function_call")
SHOWN_ONLY: Mapping[str, frozenset[str]] = {
    USERS.name: frozenset(EMPTY_PROFILE),
    ACTIONS.name: frozenset({"rolled_up_into"}),
}
"""What is shown of a record and not stored with it. Fields of a profile are facts, or stand in `profile`."""
IMPORTED = (MEMORIES, FACTS, PROCEDURES, ACTIONS)
"""Collections whose records say in `source` that they were imported."""


def rebuild(collection: Collection, record: Doc, kept: Mapping[str, Any], tenant: str) -> Doc:
    """Returns the document that a record was exported from, for `tenant`, with `source.origin` set to `import`.

    `kept` has the fields of `KEPT`. Format 1 has none; decay then begins with the last access. In format 2 most
    of them are in the record. Raises KeyError, TypeError or ValueError if the record lacks a required field.
    """
    given = {name: value for name, value in kept.items() if name in KEPT.get(collection.name, ())}
    owners = {name: None for name in ("agent_id", "user_id") if name in collection.fields}
    shown = {name: value for name, value in record.items() if name not in SHOWN_ONLY.get(collection.name, ())}
    doc = owners | shown | {"tenant_id": tenant} | given
    past = _PAST.get(collection.name)
    if past is not None:
        return doc | {"record": _rebuilt(past, record["record"])}
    return _rebuilt(collection, doc)


def _rebuilt(collection: Collection, doc: Doc) -> Doc:
    make = _MAKERS.get(collection.name)
    whole = doc if make is None else doc | make(doc)
    if collection in IMPORTED:
        whole = whole | {"source": {**whole["source"], "origin": "import"}}
    return whole


def _memory(doc: Doc) -> Doc:
    return {
        "content_hash": content_hash(doc["content"]),
        "identity_hash": identity_hash(doc),
        "metadata_terms": metadata_terms(doc["metadata"]),
        "anchored_at": doc.get("anchored_at") or doc["last_accessed"] or doc["created_at"],
        **{name: doc.get(name) for name in ("dedupe_key", "archived_by", "archived_at", "claimed_key")},
        "merged": doc.get("merged", False),
        "standing": standing(doc),
        LINKS: None,  # the run that made them, and could undo them, stays where it was
    }


def _action(doc: Doc) -> Doc:
    source = {**SOURCE, "session_id": doc["session_id"], **(doc.get("source") or {})}
    hashed = shown_once(doc["content"], doc["outcome"], doc["entities"])
    return {"content_hash": hashed, "source": source, **indexed(doc)}


def _fact(doc: Doc) -> Doc:
    """Returns the keys. An export without the predicate's key was made under an earlier rule: a job of the service
    merges its books (`learning/fact_merge.py`)."""
    return computed({**doc, "predicate_key": doc.get("predicate_key") or key_of(doc["predicate"])})


def _alias(doc: Doc) -> Doc:
    """Returns the keys, and the fields that joining names needs. Raises ValueError for a status that no alias has, and
    for states that do not end with it."""
    states = states_of(doc)
    if any(one["status"] not in ("active", "dismissed") or parse_rfc3339(one["from"]) is None for one in states):
        raise ValueError("states")
    if doc["status"] != states[-1]["status"]:
        raise ValueError(doc["status"])
    needed = {name: doc[name] for name in ("alias_id", "rule", "version", "created_at")}
    return needed | {f"{side}_key": key_of(doc[side]) for side in ("name", "alias")}


def _procedure(doc: Doc) -> Doc:
    return {"name_key": normalise_content(doc["name"]), "content_hash": content_hash(doc["procedure_id"])}


def _session(doc: Doc) -> Doc:
    """Returns the summary fields, which an export omits for a session without a summary, and the terms of the
    metadata."""
    summary = {name: doc.get(name) for name in ("summary_id", "summary_seq")}
    return summary | {"metadata_terms": metadata_terms(doc["metadata"])}


def _message(doc: Doc) -> Doc:
    if doc.get("deleted_at") is not None:
        return {"text": ""}
    said = {name: doc[name] for name in SAID if doc.get(name) is not None}
    return {"text": StoredMessage.model_validate(said).text()}


def _operation(_: Doc) -> Doc:
    """Clears the undo data, which an export omits."""
    return {"undo": None, "undoing": None}


_PAST = {HISTORY.name: MEMORIES, PROCEDURE_HISTORY.name: PROCEDURES}
_MAKERS: Mapping[str, Callable[[Doc], Doc]] = {
    MEMORIES.name: _memory,
    FACTS.name: _fact,
    ENTITY_ALIASES.name: _alias,
    ACTIONS.name: _action,
    PROCEDURES.name: _procedure,
    SESSIONS.name: _session,
    MESSAGES.name: _message,
    OPERATIONS.name: _operation,
}
