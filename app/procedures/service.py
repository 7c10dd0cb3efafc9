"""Creates, changes and searches procedures. Methods that write return a `WriteResult` and commit nothing."""

from collections.abc import Iterable, Sequence, Set

from app.core.clock import Clock, new_id, parse_rfc3339, rfc3339, to_ms
from app.core.schemas import Page, differing
from app.errors import AlreadyExists
from app.jobs import queue
from app.jobs.queue import REVIEW_PROCEDURE
from app.memories.embedding import Embeddable, Embeddings, Passage
from app.memories.records import SOURCE
from app.memories.repository import VersionedRepository, of_partition
from app.memories.schemas import NOT_EMBEDDED, HistoryRecord, Source
from app.procedures.schemas import (
    MAX_NOTES,
    PROCEDURE_HISTORY,
    PROCEDURES,
    FoundProcedure,
    OutcomeIn,
    OutcomeRecorded,
    Procedure,
    ProcedureCreate,
    ProcedureFilters,
    ProcedureOutcome,
    ProcedurePatch,
    ProcedureRecord,
    ProcedureSearch,
    ProcedureSearchResult,
    ProcedureVersion,
    render,
    situation,
)
from app.procedures.track_record import (
    KEPT_OUTCOMES,
    ProcedureHit,
    as_served,
    best,
    counted,
    procedure_filter,
    record_sentence,
    served,
    smoothed,
    to_review,
    warnings,
    with_outcome,
)
from app.retrieval.retriever import Hit, RetrievalQuery, RetrievalResult, Retriever, TookMs
from app.storage.changes import Change, IndexEntry
from app.storage.protocol import Store
from app.storage.repository import Listing, between, having, page_of, render_items
from app.storage.schema import Eq, Filter, Has, both
from app.storage.scope import Scope
from app.storage.text import content_hash, normalise_content
from app.writes.executor import IfMatch, WriteResult, etag


def new_procedure(fields: ProcedureRecord, source: Source, now: str) -> ProcedureRecord:
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
        "embedding": NOT_EMBEDDED,
        "version": 1,
        "created_at": now,
        "updated_at": now,
    }


def revision(procedure: ProcedureRecord, fields: ProcedureRecord) -> ProcedureRecord:
    """Returns the fields that a caller's change sets; empty if nothing changes. Outcomes stay: they count for the
    refined steps, too."""
    fields = fields.copy()
    if "tags" in fields:
        fields["tags"] = list(dict.fromkeys(fields["tags"]))
    if "notes" in fields:
        fields["notes"], _ = learned(fields["notes"])
    changed = differing(procedure, fields)
    if "name" in changed:
        changed["name_key"] = normalise_content(changed["name"])
    return {**changed, **ended_trial(procedure, changed)}


def ended_trial(procedure: ProcedureRecord, changed: ProcedureRecord) -> ProcedureRecord:
    """Returns the fields that end a trial, if a change sets other steps: what was tried was tried beside the old
    ones."""
    if "steps" not in changed or not (procedure.get("trial") or procedure.get("dropped_trials")):
        return {}
    return {"trial": None, "dropped_trials": []}


def outcome(procedure: ProcedureRecord, reported: OutcomeIn, now: str) -> tuple[ProcedureRecord, list[str]]:
    """Returns the fields that an outcome sets, including counts, and the notes that it displaces. During a trial it
    counts for the steps that it names, or else for those that are served now."""
    trial = procedure.get("trial")
    variant = reported.variant or served(trial)
    counts = with_outcome(
        {"success_count": procedure["success_count"], "failure_count": procedure["failure_count"]},
        success=reported.success,
    )
    entry: ProcedureOutcome = {
        "success": reported.success,
        "note": reported.note,
        "action_id": reported.action_id,
        "task_id": reported.task_id,
        "variant": variant,
        "at": now,
        "version": procedure["version"],
    }
    notes, dropped = learned(procedure["notes"], () if reported.note is None else (reported.note,))
    fields: ProcedureRecord = {
        "success_count": counts["success_count"],
        "failure_count": counts["failure_count"],
        "success_rate": smoothed(counts["success_count"], counts["failure_count"]),
        "recent_outcomes": [*procedure["recent_outcomes"], entry][-KEPT_OUTCOMES:],
        "last_used": max(now, procedure["last_used"] or now),
        "notes": notes,
    }
    if trial:
        fields["trial"] = counted(trial, variant, success=reported.success)
    return fields, dropped


def learned(notes: Sequence[str], new: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """Returns each note once, whatever its spelling (a repeated note counts as the newest), and the oldest notes, which
    are dropped."""
    by_spelling: dict[str, str] = {}
    for note in reversed([*notes, *new]):
        by_spelling.setdefault(normalise_content(note), note)
    distinct = list(reversed(by_spelling.values()))
    return distinct[-MAX_NOTES:], distinct[:-MAX_NOTES]


def without_notes_of(procedure: ProcedureRecord, gone: Set[str]) -> ProcedureRecord:
    """Returns the fields of a procedure that change when nothing may be left of what `gone` (ids of actions and tasks)
    noted: their outcomes still count, without id and note. Empty if it has none of their outcomes."""

    def of_gone(outcome: ProcedureOutcome) -> bool:
        return not gone.isdisjoint((outcome["action_id"], outcome["task_id"]))

    def spellings(outcomes: Iterable[ProcedureOutcome]) -> set[str]:
        return {normalise_content(outcome["note"]) for outcome in outcomes if outcome["note"]}

    outcomes = procedure["recent_outcomes"]
    theirs = [outcome for outcome in outcomes if of_gone(outcome)]
    if not theirs:
        return {}
    lost = spellings(theirs) - spellings(outcome for outcome in outcomes if not of_gone(outcome))
    return {
        "recent_outcomes": [
            {**outcome, "action_id": None, "task_id": None, "note": None} if of_gone(outcome) else outcome
            for outcome in outcomes
        ],
        "notes": [note for note in procedure["notes"] if normalise_content(note) not in lost],
    }


def passage(procedure: ProcedureRecord) -> Passage:
    """Returns the text by which a procedure is found."""
    return Passage(situation(procedure))


def needs_new_entry(changed: ProcedureRecord) -> bool:
    """Returns True if a changed field is part of the indexed text."""
    return not changed.keys().isdisjoint(("name", "trigger", "preconditions"))


PROCEDURE: Embeddable[ProcedureRecord] = Embeddable(
    PROCEDURES, passage, lambda embedding: {"embedding": embedding}, needs_new_entry=needs_new_entry
)


COUNTED = ("version", "success_count", "failure_count")
"""Every change increments one of these fields, so a change that expects all of them overwrites nothing unseen."""


class ProcedureRepository(VersionedRepository[ProcedureRecord]):
    """The procedures and their history that a caller may see."""

    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__(store, scope, PROCEDURE, PROCEDURE_HISTORY)

    async def named(self, agent: str | None, user: str | None, name_key: str) -> ProcedureRecord | None:
        """Returns the active procedure with that name and exactly these owners, or None."""
        where = both(of_partition(agent, user), Eq("name_key", name_key), Eq("status", "active"))
        procedures = await self.find(where, limit=1)
        return procedures[0] if procedures else None

    # --- Changes ------------------------------------------------------------------------------------------------------

    def revise(
        self, record: ProcedureRecord, changed: ProcedureRecord, now: str, entry: IndexEntry | None = None
    ) -> list[Change]:
        """Returns the changes that replace fields and store the old version as history."""
        _, *past = super().revise(record, changed, now, entry)
        return [self.update(record, changed, now=now, expect=_as_counted(record), entry=entry), *past]

    def counted(self, procedure: ProcedureRecord, changed: ProcedureRecord) -> list[Change]:
        """Returns the changes that record an outcome. They do not bump the version."""
        return [self.append(procedure, changed, expect=_as_counted(procedure))]


def _as_counted(procedure: ProcedureRecord) -> ProcedureRecord:
    return {
        "version": procedure["version"],
        "success_count": procedure["success_count"],
        "failure_count": procedure["failure_count"],
    }


def listed(filters: ProcedureFilters) -> Filter:
    """Returns the filter of a list. Owners must match exactly."""
    return both(
        having(filters, "agent_id", "user_id"),
        None if filters["name"] is None else Eq("name_key", normalise_content(filters["name"])),
        None if filters["status"] == "any" else Eq("status", filters["status"]),
        None if filters["tag"] is None else Has("tags", filters["tag"]),
        between("created_at", filters["since"], filters["until"]),
    )


class ProcedureService:
    """The operations on procedures within a caller's scope."""

    def __init__(
        self,
        procedures: ProcedureRepository,
        embeddings: Embeddings,
        lookup: Retriever[ProcedureRecord],
        clock: Clock,
    ) -> None:
        self._procedures, self._embeddings, self._lookup, self._clock = procedures, embeddings, lookup, clock

    async def create(self, body: ProcedureCreate, precondition: IfMatch) -> WriteResult[Procedure]:
        """Creates a procedure. Raises AlreadyExists if the name is taken, since its counts belong to other steps."""
        precondition.check(None)
        self._procedures.scope.require_write(body.agent_id, body.user_id)
        source: Source = {"api_key_id": self._procedures.scope.key_id}
        procedure = new_procedure(PROCEDURES.as_record(body.model_dump()), source, self._now())
        await self._require_free_name(procedure)
        procedure, changes = await self._procedures.added(procedure, self._embeddings)
        return WriteResult(render(procedure), changes, 201, {"ETag": etag(procedure)})

    async def get(self, procedure_id: str) -> Procedure:
        """Returns a procedure. Raises NotFound."""
        return render(await self._procedures.get(procedure_id))

    async def page(self, filters: ProcedureFilters, listing: Listing) -> Page[Procedure]:
        """Returns a page of procedures that match the filters."""
        request = repr(sorted(filters.items()))
        procedures, cursor = await self._procedures.page(listed(filters), listing, request=request)
        return page_of(await render_items(PROCEDURES, procedures, render, Procedure), cursor)

    async def patch(self, procedure_id: str, body: ProcedurePatch, precondition: IfMatch) -> WriteResult[Procedure]:
        """Changes fields of a procedure. Raises AlreadyExists if the new name is taken."""
        procedure = await self._procedures.get(procedure_id)
        self._procedures.require_write(procedure)
        precondition.check(procedure)
        changed = revision(procedure, PROCEDURES.as_record(body.model_dump(exclude_unset=True)))
        if not changed:
            return WriteResult(render(procedure), headers={"ETag": etag(procedure)})
        if not changed.keys().isdisjoint(("name_key", "status")):
            await self._require_free_name({**procedure, **changed})
        new, changes = await self._procedures.rewritten(procedure, changed, self._now(), self._embeddings)
        return WriteResult(render(new), changes, headers={"ETag": etag(new)})

    async def _require_free_name(self, procedure: ProcedureRecord) -> None:
        """Raises AlreadyExists if another active procedure of the same owners has the name. The message gives its id,
        since whoever may write here may see it."""
        if procedure["status"] != "active":
            return
        other = await self._procedures.named(procedure["agent_id"], procedure["user_id"], procedure["name_key"])
        if other is not None and other["procedure_id"] != procedure["procedure_id"]:
            raise AlreadyExists(f"{other['procedure_id']} has that name in this scope.")

    async def delete(self, procedure_id: str, precondition: IfMatch) -> WriteResult[None]:
        """Deletes a procedure and its history."""
        procedure = await self._procedures.get_to_delete(procedure_id)
        precondition.check(procedure)
        return WriteResult(None, self._procedures.remove([procedure]), 204)

    async def history(self, procedure_id: str, listing: Listing) -> Page[ProcedureVersion]:
        """Returns a page of the versions that were replaced."""
        await self._procedures.get(procedure_id)
        versions, cursor = await self._procedures.history_page(procedure_id, listing)

        def past(version: HistoryRecord[ProcedureRecord]) -> ProcedureVersion:
            return {
                "version": version["version"],
                "changed_at": version["changed_at"],
                "changed_by": version["changed_by"],
                "record": PROCEDURES.public(version["record"]),
            }

        return page_of(await render_items(PROCEDURE_HISTORY, versions, past, ProcedureVersion), cursor)

    async def record_outcome(
        self, procedure_id: str, body: OutcomeIn, precondition: IfMatch
    ) -> WriteResult[OutcomeRecorded]:
        """Counts an outcome. The change expects the counts that were read, so that the answer shows just this outcome;
        after a conflict the handler counts again. An outcome by which the procedure begins to fail, or its trial is
        decided, starts a review in the background."""
        procedure = await self._procedures.get(procedure_id)
        precondition.check(procedure)
        changed, dropped = outcome(procedure, body, self._now())
        after: ProcedureRecord = {**procedure, **changed}
        answer: OutcomeRecorded = {"procedure": render(after), "dropped_notes": dropped}
        return WriteResult(
            answer, [*self._procedures.counted(procedure, changed), *self._review(procedure, after)], 201
        )

    def _review(self, before: ProcedureRecord, after: ProcedureRecord) -> list[Change]:
        if after["status"] != "active" or not to_review(before, after):
            return []
        scope, owner = self._procedures.scope, {"agent_id": after["agent_id"], "user_id": after["user_id"]}
        payload = {"procedure_id": after["procedure_id"], **scope.bindings()}
        _, changes = queue.start(scope, REVIEW_PROCEDURE, payload, self._clock.now(), **owner)
        return changes

    async def search(self, body: ProcedureSearch) -> ProcedureSearchResult:
        """Searches by meaning and words, combined with how well each procedure has worked, recent
        outcomes above all."""
        now = self._clock.now() if body.now is None else parse_rfc3339(body.now)
        partitions = self._procedures.scope.partitions(body.agent_id, body.user_id, body.include_shared)
        where = procedure_filter(
            body.status, tags=body.tags, min_success_rate=body.min_success_rate, min_trust=body.min_trust
        )
        results: list[RetrievalResult[ProcedureRecord]] = []

        async def find(k: int) -> list[Hit[ProcedureRecord]]:
            query = RetrievalQuery(body.situation, partitions, where, to_ms(now), k, explain=body.explain)
            results.append(await self._lookup.find(query))
            return results[-1].hits

        hits = await best(find, body.top_k, now)
        took: TookMs = {
            "embed": round(sum(result.took_ms["embed"] for result in results), 3),
            "search": round(sum(result.took_ms["search"] for result in results), 3),
            "total": round(sum(result.took_ms["total"] for result in results), 3),
        }
        if any("rerank" in result.took_ms for result in results):
            took["rerank"] = round(sum(result.took_ms.get("rerank") or 0 for result in results), 3)
        return {"items": [_item(hit, explain=body.explain) for hit in hits], **results[-1].how(), "took_ms": took}

    def _now(self) -> str:
        return rfc3339(self._clock.now())


def _item(ranked: ProcedureHit, *, explain: bool) -> FoundProcedure:
    procedure, record = ranked.hit.doc, ranked.track_record
    item: FoundProcedure = {
        "procedure": render(as_served(procedure)),
        "variant": served(procedure.get("trial")),
        "score": _short(ranked.score),
        "recent": {"rate": _short(record.recent), "failed_in_a_row": record.failed_in_a_row},
        "track_record": record_sentence(procedure["success_count"], procedure["failure_count"], record),
        "warnings": warnings(record),
    }
    if not explain or ranked.hit.explanation is None:
        return item
    parts = {
        "relevance": ranked.hit.score,
        "works": record.works,
        "recent": record.recent,
        "freshness": record.freshness,
    }
    return {
        **item,
        "scores": {**ranked.hit.explanation.scores, **{name: _short(value) for name, value in parts.items()}},
    }


def _short(value: float) -> float:
    return float(f"{value:.7g}")
