"""Procedure documents, built, revised and taught by pure functions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.ids import new_id
from app.memories.documents import SOURCE
from app.memories.embeddings import Passage
from app.memories.pending import Embeddable
from app.procedures.models import PROCEDURES, situation
from app.procedures.ranking import KEPT_OUTCOMES, smoothed
from app.procedures.schemas import MAX_NOTES
from app.schemas import same
from app.storage.collection import Doc
from app.storage.text import content_hash, normalise_content


def new_procedure(fields: Mapping[str, Any], source: Mapping[str, Any], now: str) -> Doc:
    """A procedure of `fields` (those of `ProcedureCreate`), yet to be tried."""
    procedure_id = new_id("proc")
    return {
        "procedure_id": procedure_id,
        **fields,
        "name_key": normalise_content(fields["name"]),
        "tags": list(dict.fromkeys(fields["tags"])),
        "notes": learned(fields["notes"])[0],
        "success_count": 0,
        "failure_count": 0,
        "success_rate": smoothed(0, 0),
        "recent_outcomes": [],
        "last_used": None,
        "status": "active",
        "source": {**SOURCE, **source},
        "content_hash": content_hash(procedure_id),
        "embedding": None,
        "version": 1,
        "created_at": now,
        "updated_at": now,
    }


def revision(doc: Doc, fields: Mapping[str, Any]) -> Doc:
    """What a caller's change sets; empty where it changes nothing. Outcomes stay: they tell of its steps as refined."""
    fields = dict(fields)
    if "tags" in fields:
        fields["tags"] = list(dict.fromkeys(fields["tags"]))
    if "notes" in fields:
        fields["notes"], _ = learned(fields["notes"])
    changed = {name: value for name, value in fields.items() if not same(doc[name], value)}
    if "name" in changed:
        changed["name_key"] = normalise_content(changed["name"])
    return changed


def outcome(doc: Doc, fields: Mapping[str, Any], now: str) -> tuple[Doc, list[str]]:
    """What an outcome (`OutcomeIn`) sets, counts included, and the notes that it pushes out."""
    counts = {name: doc[name] for name in ("success_count", "failure_count")}
    counts["success_count" if fields["success"] else "failure_count"] += 1
    entry = {**fields, "at": now, "version": doc["version"]}
    notes, dropped = learned(doc["notes"], () if fields["note"] is None else (fields["note"],))
    return {
        **counts,
        "success_rate": smoothed(counts["success_count"], counts["failure_count"]),
        "recent_outcomes": [*doc["recent_outcomes"], entry][-KEPT_OUTCOMES:],
        "last_used": max(now, doc["last_used"] or now),
        "notes": notes,
    }, dropped


def learned(notes: Sequence[str], new: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """Notes, each once however it is written (said again, it counts as said last), and the oldest ones, which leave."""
    found: dict[str, str] = {}
    for note in reversed([*notes, *new]):
        found.setdefault(normalise_content(note), note)
    kept = list(reversed(found.values()))
    return kept[-MAX_NOTES:], kept[:-MAX_NOTES]


def passage(doc: Doc) -> Passage:
    return Passage(situation(doc))


def needs_new_entry(changed: Doc) -> bool:
    return not changed.keys().isdisjoint(("name", "trigger", "preconditions"))


PROCEDURE = Embeddable(PROCEDURES, passage, lambda embedding: {"embedding": embedding})
