"""Storage and changes of procedures."""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from app.core.clock import new_id
from app.core.schemas import same
from app.memories.embedding_backfill import Embeddable
from app.memories.indexing import IndexText
from app.memories.records import SOURCE
from app.memories.repository import VersionedRepository, of_pair
from app.procedures.schemas import MAX_NOTES, PROCEDURE_HISTORY, PROCEDURES, situation
from app.procedures.search import KEPT_OUTCOMES, smoothed
from app.procedures.trials import Variant, counted, served
from app.storage.changes import Change, IndexEntry
from app.storage.filters import Eq, Filter, Has, Range, both
from app.storage.protocol import Store
from app.storage.schema import Doc
from app.storage.scope import Scope
from app.storage.text import content_hash, normalise_content


def new_procedure(fields: Mapping[str, Any], source: Mapping[str, Any], now: str) -> Doc:
    """Returns a new procedure with `fields` (those of `ProcedureCreate`) and no outcomes."""
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
        "trial": None,
        "dropped_trials": [],
        "status": "active",
        "source": {**SOURCE, **source},
        "content_hash": content_hash(procedure_id),
        "embedding": None,
        "version": 1,
        "created_at": now,
        "updated_at": now,
    }


def revision(doc: Doc, fields: Mapping[str, Any]) -> Doc:
    """Returns the fields that a caller's change sets; empty if nothing changes. Outcomes stay: they count for the
    refined steps, too."""
    fields = dict(fields)
    if "tags" in fields:
        fields["tags"] = list(dict.fromkeys(fields["tags"]))
    if "notes" in fields:
        fields["notes"], _ = learned(fields["notes"])
    changed = {name: value for name, value in fields.items() if not same(doc[name], value)}
    if "name" in changed:
        changed["name_key"] = normalise_content(changed["name"])
    return changed | ended_trial(doc, changed)


def ended_trial(doc: Doc, changed: Doc) -> Doc:
    """Returns the fields that end a trial, if a change sets other steps: what was tried was tried beside the old
    ones."""
    if "steps" not in changed or not (doc.get("trial") or doc.get("dropped_trials")):
        return {}
    return {"trial": None, "dropped_trials": []}


def outcome(doc: Doc, fields: Mapping[str, Any], now: str) -> tuple[Doc, list[str]]:
    """Returns the fields that an outcome (`OutcomeIn`) sets, including counts, and the notes that it displaces.
    During a trial it counts for the steps that it names, or else for those that are served now."""
    trial: Doc | None = doc.get("trial")
    variant: Variant = fields.get("variant") or served(trial)
    counts = {name: doc[name] for name in ("success_count", "failure_count")}
    counts["success_count" if fields["success"] else "failure_count"] += 1
    entry = {**fields, "variant": variant, "at": now, "version": doc["version"]}
    notes, dropped = learned(doc["notes"], () if fields["note"] is None else (fields["note"],))
    return {
        **counts,
        "success_rate": smoothed(counts["success_count"], counts["failure_count"]),
        "recent_outcomes": [*doc["recent_outcomes"], entry][-KEPT_OUTCOMES:],
        "last_used": max(now, doc["last_used"] or now),
        "notes": notes,
        **({"trial": counted(trial, variant, success=fields["success"])} if trial else {}),
    }, dropped


def learned(notes: Sequence[str], new: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """Returns each note once, whatever its spelling (a repeated note counts as the newest), and the oldest notes, which
    are dropped."""
    found: dict[str, str] = {}
    for note in reversed([*notes, *new]):
        found.setdefault(normalise_content(note), note)
    kept = list(reversed(found.values()))
    return kept[-MAX_NOTES:], kept[:-MAX_NOTES]


def without_notes_of(doc: Doc, gone: Set[str]) -> Doc:
    """Returns the fields of a procedure that change when nothing may be left of what `gone` (ids of actions and tasks)
    noted: their outcomes still count, without id and note. Empty if it has none of their outcomes."""
    theirs = [one for one in doc["recent_outcomes"] if not gone.isdisjoint((one["action_id"], one["task_id"]))]
    if not theirs:
        return {}
    left = {"action_id": None, "task_id": None, "note": None}
    others = {normalise_content(one["note"]) for one in doc["recent_outcomes"] if one["note"] and one not in theirs}
    said = {normalise_content(one["note"]) for one in theirs if one["note"]} - others
    return {
        "recent_outcomes": [one | left if one in theirs else one for one in doc["recent_outcomes"]],
        "notes": [note for note in doc["notes"] if normalise_content(note) not in said],
    }


def passage(doc: Doc) -> IndexText:
    """Returns the text by which a procedure is found."""
    return IndexText(situation(doc))


def needs_new_entry(changed: Doc) -> bool:
    """Returns True if a changed field is part of the indexed text."""
    return not changed.keys().isdisjoint(("name", "trigger", "preconditions"))


PROCEDURE = Embeddable(PROCEDURES, passage, lambda embedding: {"embedding": embedding})


COUNTED = ("version", "success_count", "failure_count")
"""Every change increments one of these fields, so a change that expects all of them overwrites nothing unseen."""


class ProcedureRepository(VersionedRepository):
    """The procedures and their history that a caller may see."""

    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__(store, scope, PROCEDURES, PROCEDURE_HISTORY)

    async def named(self, agent: str | None, user: str | None, name_key: str) -> Doc | None:
        """Returns the active procedure with that name and exactly these owners, or None."""
        found = await self.find(both(of_pair(agent, user), Eq("name_key", name_key), Eq("status", "active")), limit=1)
        return found[0] if found else None

    # --- Changes ------------------------------------------------------------------------------------------------------

    def revise(self, doc: Doc, changed: Doc, now: str, entry: IndexEntry | None = None) -> list[Change]:
        """Returns the changes that replace fields and store the old version as history."""
        seen = {name: doc[name] for name in COUNTED}
        return [self.update(doc, changed, now=now, expect=seen, entry=entry), self._past(doc, now)]

    def counted(self, doc: Doc, changed: Doc) -> list[Change]:
        """Returns the changes that record an outcome. They do not bump the version."""
        return [self.append(doc, changed, expect={name: doc[name] for name in COUNTED})]


def listed(filters: Mapping[str, Any]) -> Filter:
    """Returns the filter of a list. Owners must match exactly."""
    status, since, until = filters.get("status"), filters.get("since"), filters.get("until")
    return both(
        *(Eq(field, filters[field]) for field in ("agent_id", "user_id") if filters.get(field) is not None),
        None if filters.get("name") is None else Eq("name_key", normalise_content(filters["name"])),
        None if status in (None, "any") else Eq("status", status),
        None if filters.get("tag") is None else Has("tags", filters["tag"]),
        None if since is None and until is None else Range("created_at", ge=since, lt=until),
    )
