"""Creates, changes and searches procedures. Methods that write return a `WriteResult` and commit nothing."""

from collections.abc import Mapping
from typing import Any

from app.core.clock import Clock, parse_rfc3339, rfc3339, to_ms
from app.errors import AlreadyExists
from app.jobs import queue
from app.jobs.models import REVIEW_PROCEDURE
from app.memories.indexing import Embeddings
from app.procedures.repository import (
    ProcedureRepository,
    listed,
    needs_new_entry,
    new_procedure,
    outcome,
    passage,
    revision,
)
from app.procedures.schemas import OutcomeIn, ProcedureCreate, ProcedurePatch, ProcedureSearch, render
from app.procedures.search import ProcedureHit, best, searched, track_record, warnings
from app.procedures.trials import as_served, served, to_review
from app.retrieval.retriever import Hit, RetrievalQuery, RetrievalResult, Retriever
from app.setting_groups import ProcedureSettings
from app.storage.changes import Change
from app.storage.repository import Listing
from app.storage.schema import Doc
from app.writes.executor import IfMatch, WriteResult, etag

DEFAULTS = ProcedureSettings()


class ProcedureService:
    """The operations on procedures within a caller's scope."""

    def __init__(
        self,
        procedures: ProcedureRepository,
        embeddings: Embeddings,
        lookup: Retriever,
        clock: Clock,
        settings: ProcedureSettings = DEFAULTS,
    ) -> None:
        self._procedures, self._embeddings, self._lookup, self._clock = procedures, embeddings, lookup, clock
        self._settings = settings

    async def create(self, body: ProcedureCreate, precondition: IfMatch) -> WriteResult:
        """Creates a procedure. Raises AlreadyExists if the name is taken, since its counts belong to other steps."""
        precondition.check(None)
        self._procedures.scope.require_write(body.agent_id, body.user_id)
        doc = new_procedure(body.model_dump(), {"api_key_id": self._procedures.scope.key_id}, self._now())
        await self._require_free_name(doc)
        (entry,) = await self._embeddings.entries([passage(doc)])
        doc["embedding"] = self._embeddings.info(entry)
        return WriteResult(render(doc), self._procedures.add(doc, entry), 201, {"ETag": etag(doc)})

    async def get(self, procedure_id: str) -> Doc:
        """Returns a procedure. Raises NotFound."""
        return render(await self._procedures.get(procedure_id))

    async def page(self, filters: Mapping[str, Any], listing: Listing) -> Doc:
        """Returns a page of procedures that match the filters."""
        docs, cursor = await self._procedures.page(listed(filters), listing, mark=repr(sorted(filters.items())))
        return {"items": [render(doc) for doc in docs], "next_cursor": cursor}

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
        now, entry, pending = self._now(), None, list[Change]()
        if needs_new_entry(changed):
            (entry,) = await self._embeddings.entries([passage(doc | changed)])
            changed["embedding"] = self._embeddings.info(entry)
            pending = self._procedures.note_pending(doc | changed | {"updated_at": now})
        new = doc | changed | {"version": doc["version"] + 1, "updated_at": now}
        changes = [*self._procedures.revise(doc, changed, now, entry), *pending]
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
        shown = ("version", "changed_at", "changed_by")
        items = [{**{name: doc[name] for name in shown}, "record": render(doc["record"])} for doc in docs]
        return {"items": items, "next_cursor": cursor}

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
        if after["status"] != "active" or not to_review(before, after, self._settings):
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
        where = searched(body.status, tags=body.tags, min_success_rate=body.min_success_rate, min_trust=body.min_trust)
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
    doc, of = found.hit.doc, found.standing
    item = {
        "procedure": render(as_served(doc)),
        "variant": served(doc.get("trial")),
        "score": _short(found.score),
        "recent": {"rate": _short(of.recent), "failed_in_a_row": of.failed_in_a_row},
        "track_record": track_record(doc["success_count"], doc["failure_count"], of),
        "warnings": warnings(of),
    }
    if not explain or found.hit.explanation is None:
        return item
    parts = {"relevance": found.hit.score, "works": of.works, "recent": of.recent, "freshness": of.freshness}
    return {
        **item,
        "scores": {**found.hit.explanation.scores, **{name: _short(value) for name, value in parts.items()}},
    }


def _short(value: float) -> float:
    return float(f"{value:.7g}")
