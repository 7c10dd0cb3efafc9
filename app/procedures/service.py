"""Creates, changes and searches procedures. Methods that write return a `WriteResult` and commit nothing."""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from app.core.clock import Clock, new_id, parse_rfc3339, rfc3339, to_ms
from app.core.schemas import equal_json
from app.errors import AlreadyExists
from app.jobs import queue
from app.jobs.models import REVIEW_PROCEDURE
from app.memories.embedding import Embeddings, Passage
from app.memories.pending import Embeddable
from app.memories.records import SOURCE
from app.memories.repository import VersionedRepository, of_pair
from app.procedures.review import to_review
from app.procedures.schemas import (
    MAX_NOTES,
    PROCEDURE_HISTORY,
    PROCEDURES,
    OutcomeIn,
    Procedure,
    ProcedureCreate,
    ProcedurePatch,
    ProcedureSearch,
    ProcedureVersion,
    render,
    situation,
)
from app.procedures.search import ProcedureHit, best, procedure_filter
from app.procedures.track_record import KEPT_OUTCOMES, record_sentence, smoothed, warnings
from app.procedures.trials import Variant, as_served, counted, served
from app.retrieval.retriever import Hit, RetrievalQuery, RetrievalResult, Retriever
from app.storage.changes import Change, IndexEntry
from app.storage.protocol import Store
from app.storage.repository import Listing, between, having, render_items
from app.storage.schema import Doc, Eq, Filter, Has, both
from app.storage.scope import Scope
from app.storage.text import content_hash, normalise_content
from app.writes.executor import IfMatch, WriteResult, etag


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
    changed = {name: value for name, value in fields.items() if not equal_json(doc[name], value)}
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


def passage(doc: Doc) -> Passage:
    """Returns the text by which a procedure is found."""
    return Passage(situation(doc))


def needs_new_entry(changed: Doc) -> bool:
    """Returns True if a changed field is part of the indexed text."""
    return not changed.keys().isdisjoint(("name", "trigger", "preconditions"))


PROCEDURE = Embeddable(PROCEDURES, passage, lambda embedding: {"embedding": embedding}, needs_new_entry=needs_new_entry)


COUNTED = ("version", "success_count", "failure_count")
"""Every change increments one of these fields, so a change that expects all of them overwrites nothing unseen."""


class ProcedureRepository(VersionedRepository):
    """The procedures and their history that a caller may see."""

    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__(store, scope, PROCEDURE, PROCEDURE_HISTORY)

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
    status = filters.get("status")
    return both(
        having(filters, "agent_id", "user_id"),
        None if filters.get("name") is None else Eq("name_key", normalise_content(filters["name"])),
        None if status in (None, "any") else Eq("status", status),
        None if filters.get("tag") is None else Has("tags", filters["tag"]),
        between("created_at", filters.get("since"), filters.get("until")),
    )


class ProcedureService:
    """The operations on procedures within a caller's scope."""

    def __init__(
        self,
        procedures: ProcedureRepository,
        embeddings: Embeddings,
        lookup: Retriever,
        clock: Clock,
    ) -> None:
        self._procedures, self._embeddings, self._lookup, self._clock = procedures, embeddings, lookup, clock

    async def create(self, body: ProcedureCreate, precondition: IfMatch) -> WriteResult:
        """Creates a procedure. Raises AlreadyExists if the name is taken, since its counts belong to other steps."""
        precondition.check(None)
        self._procedures.scope.require_write(body.agent_id, body.user_id)
        doc = new_procedure(body.model_dump(), {"api_key_id": self._procedures.scope.key_id}, self._now())
        await self._require_free_name(doc)
        doc, changes = await self._procedures.added(doc, self._embeddings)
        return WriteResult(render(doc), changes, 201, {"ETag": etag(doc)})

    async def get(self, procedure_id: str) -> Doc:
        """Returns a procedure. Raises NotFound."""
        return render(await self._procedures.get(procedure_id))

    async def page(self, filters: Mapping[str, Any], listing: Listing) -> Doc:
        """Returns a page of procedures that match the filters."""
        docs, cursor = await self._procedures.page(listed(filters), listing, mark=repr(sorted(filters.items())))
        return {"items": await render_items(PROCEDURES, docs, render, Procedure), "next_cursor": cursor}

    async def patch(self, procedure_id: str, body: ProcedurePatch, precondition: IfMatch) -> WriteResult:
        """Changes fields of a procedure. Raises AlreadyExists if the new name is taken."""
        doc = await self._procedures.get(procedure_id)
        self._procedures.require_write(doc)
        precondition.check(doc)
        changed = revision(doc, body.model_dump(exclude_unset=True))
        if not changed:
            return WriteResult(render(doc), headers={"ETag": etag(doc)})
        if not changed.keys().isdisjoint(("name_key", "status")):
            await self._require_free_name(doc | changed)
        new, changes = await self._procedures.rewritten(doc, changed, self._now(), self._embeddings)
        return WriteResult(render(new), changes, headers={"ETag": etag(new)})

    async def _require_free_name(self, doc: Doc) -> None:
        """Raises AlreadyExists if another active procedure of the same owners has the name. The message gives its id,
        since whoever may write here may see it."""
        if doc["status"] != "active":
            return
        other = await self._procedures.named(doc["agent_id"], doc["user_id"], doc["name_key"])
        if other is not None and other["procedure_id"] != doc["procedure_id"]:
            raise AlreadyExists(f"{other['procedure_id']} has that name in this scope.")

    async def delete(self, procedure_id: str, precondition: IfMatch) -> WriteResult:
        """Deletes a procedure and its history."""
        doc = await self._procedures.get(procedure_id)
        precondition.check(doc)
        return WriteResult(None, self._procedures.remove([doc]), 204)

    async def history(self, procedure_id: str, listing: Listing) -> Doc:
        """Returns a page of earlier versions."""
        await self._procedures.get(procedure_id)
        docs, cursor = await self._procedures.history_page(procedure_id, listing)

        def past(doc: Doc) -> Doc:
            return {
                **{name: doc[name] for name in ("version", "changed_at", "changed_by")},
                "record": render(doc["record"]),
            }

        return {"items": await render_items(PROCEDURE_HISTORY, docs, past, ProcedureVersion), "next_cursor": cursor}

    async def record_outcome(self, procedure_id: str, body: OutcomeIn, precondition: IfMatch) -> WriteResult:
        """Counts an outcome. The change expects the counts that were read, so that the answer shows just this outcome;
        after a conflict the handler counts again. An outcome by which the procedure begins to fail, or its trial is
        decided, starts a review in the background."""
        doc = await self._procedures.get(procedure_id)
        precondition.check(doc)
        changed, dropped = outcome(doc, body.model_dump(), self._now())
        answer = {"procedure": render(doc | changed), "dropped_notes": dropped}
        return WriteResult(answer, [*self._procedures.counted(doc, changed), *self._review(doc, doc | changed)], 201)

    def _review(self, before: Doc, after: Doc) -> list[Change]:
        if after["status"] != "active" or not to_review(before, after):
            return []
        scope, owner = self._procedures.scope, {name: after[name] for name in ("agent_id", "user_id")}
        payload = {"procedure_id": after["procedure_id"], **scope.bindings()}
        _, changes = queue.start(scope, REVIEW_PROCEDURE, payload, self._clock.now(), **owner)
        return changes

    async def search(self, body: ProcedureSearch) -> Doc:
        """Searches by meaning and words, combined with how well each procedure has worked, recent
        outcomes above all."""
        now = self._clock.now() if body.now is None else parse_rfc3339(body.now)
        pairs = self._procedures.scope.pairs(body.agent_id, body.user_id, body.include_shared)
        where = procedure_filter(
            body.status, tags=body.tags, min_success_rate=body.min_success_rate, min_trust=body.min_trust
        )
        results: list[RetrievalResult] = []

        async def find(k: int) -> list[Hit]:
            wanted = RetrievalQuery(body.situation, pairs, where, to_ms(now), k, explain=body.explain)
            results.append(await self._lookup.find(wanted))
            return results[-1].hits

        found = await best(find, body.top_k, now)
        took = {name: round(sum(one.took_ms.get(name, 0) for one in results), 3) for name in results[-1].took_ms}
        return {"items": [_item(one, explain=body.explain) for one in found], **results[-1].how(), "took_ms": took}

    def _now(self) -> str:
        return rfc3339(self._clock.now())


def _item(found: ProcedureHit, *, explain: bool) -> Doc:
    doc, record = found.hit.doc, found.track_record
    item = {
        "procedure": render(as_served(doc)),
        "variant": served(doc.get("trial")),
        "score": _short(found.score),
        "recent": {"rate": _short(record.recent), "failed_in_a_row": record.failed_in_a_row},
        "track_record": record_sentence(doc["success_count"], doc["failure_count"], record),
        "warnings": warnings(record),
    }
    if not explain or found.hit.explanation is None:
        return item
    parts = {
        "relevance": found.hit.score,
        "works": record.works,
        "recent": record.recent,
        "freshness": record.freshness,
    }
    return {
        **item,
        "scores": {**found.hit.explanation.scores, **{name: _short(value) for name, value in parts.items()}},
    }


def _short(value: float) -> float:
    return float(f"{value:.7g}")
