"""The note that derived work leaves in the very commit that does it: what it did, and how to take it back.

What is taken back is what stands in the note, record by record, each at the version that the work left it in: where
somebody has changed one of them since, the whole note stays as it is.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

from app.clock import Clock, parse_rfc3339, rfc3339
from app.consolidation.models import DERIVATIONS
from app.facts.models import FACT_GROUPS, FACTS
from app.jobs.runner import Done, Run
from app.jobs.undoing import undo_each
from app.memories.models import MEMORIES
from app.memories.repository import MemoryRepository
from app.procedures.models import PROCEDURES
from app.procedures.repository import COUNTED, ProcedureRepository
from app.profiles.models import AGENTS, USERS
from app.storage.collection import Change, Collection, CommitConflict, Delete, Doc, Insert, Store, Update
from app.storage.filters import Eq, Not, both
from app.storage.scope import Scope

Plan: TypeAlias = Callable[[], Awaitable[tuple[Doc, list[Change]]]]
"""What came of it, for the operation's result, and the changes that make it true."""

REPLANS = 8
PAGE = 50
UNDOABLE: Mapping[str, Collection] = {
    one.name: one for one in (MEMORIES, FACTS, FACT_GROUPS, PROCEDURES, USERS, AGENTS)
}
LEFT_ALONE = frozenset({"updated_at", "known"})
"""Fields that an undo moves on and never back; `known` is when a group of facts last changed."""


async def steps_back(store: Store, changes: Sequence[Change]) -> list[Doc]:
    """What takes `changes` back, from what is stored before they are made."""
    steps: dict[tuple[str, str], Doc] = {}
    for change in changes:
        if not isinstance(change, Insert | Update) or change.collection.name not in UNDOABLE:
            continue
        name, doc_id = change.collection.name, _id(change)
        step = steps.get((name, doc_id))
        if isinstance(change, Insert):
            steps[name, doc_id] = {"collection": name, "id": doc_id, "expect": _seen(change.collection, change.doc)}
        elif step is not None:  # made by the same changes
            step["expect"]["version"] += change.inc.get("version", 0)
        elif (old := await store.get(change.collection, change.tenant, doc_id)) is not None:
            seen = _seen(change.collection, old)
            seen["version"] += change.inc.get("version", 0)
            before = {field: old[field] for field in change.set if field not in LEFT_ALONE}
            steps[name, doc_id] = {"collection": name, "id": doc_id, "expect": seen, "before": before}
    return list(steps.values())


def _id(change: Insert | Update) -> str:
    return change.id if isinstance(change, Update) else str(change.doc[change.collection.id_field])


def _seen(collection: Collection, doc: Doc) -> Doc:
    """What tells whether somebody has changed it, or used it, since."""
    names = COUNTED if collection is PROCEDURES else ("version",)
    return {name: doc[name] for name in names}


async def commit_noted(run: Run, plan: Plan, derivation_id: str, of: Doc, attempts: int = REPLANS) -> Doc | None:
    """The plan's changes and the note of them, together; what came of it. None: another worker has noted the same.

    `of`: owner and sources of the work. Raises CommitConflict where others win every race.
    """
    for attempt in range(attempts):
        result, changes = await plan()
        result.pop("items", None)
        note: Doc = {
            "tenant_id": run.tenant,
            "derivation_id": derivation_id,
            "session_id": None,
            **of,
            "operation_id": run.lease.job.operation_id,
            "result": result,
            "undo": await steps_back(run.store, changes) if run.lease.job.operation_id else [],
            "undone": False,
            "created_at": rfc3339(run.clock.now()),
        }
        try:
            await run.commit([*changes, Insert(DERIVATIONS, note)])
        except CommitConflict as conflict:
            if conflict.collection == DERIVATIONS.name:
                return None
            if attempt + 1 == attempts:
                raise
            continue
        return result
    raise AssertionError("the last attempt returns or raises")


def undo_of(run: Run, days: float) -> Doc | None:
    """What an undo of the run's operation needs, which is possible for so many days from when it was asked for."""
    asked_at = parse_rfc3339(run.lease.doc["created_at"])
    by = run.lease.job.operation_id
    return None if by is None else {"by": by, "until": rfc3339(asked_at + timedelta(days=days))}


class Deeds:
    """Takes back what an operation of this kind did."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    async def undo(self, run: Run) -> Done:
        """The last deed first. Raises nothing where one cannot be taken back: the operation says how many."""

        async def back(note: Doc) -> list[Change] | None:
            return await self._back(note)

        return await undo_each(run, self._notes(run.tenant, run.payload["undo"]["by"]), back)

    async def _notes(self, tenant: str, operation_id: str) -> AsyncIterator[Doc]:
        after = None
        where = both(Eq("operation_id", operation_id), Not(Eq("undone", True)))
        while notes := await self._store.find(DERIVATIONS, tenant, where, after=after, limit=PAGE):
            after = DERIVATIONS.after(notes[-1])
            for note in notes:
                yield note

    async def _back(self, note: Doc) -> list[Change] | None:
        """Records that were made go first: they may have the place of those that come back."""
        tenant, changes = note["tenant_id"], list[Change]()
        for step in sorted(note["undo"], key=lambda step: "before" in step):
            collection = UNDOABLE[step["collection"]]
            doc = await self._store.get(collection, tenant, step["id"])
            if doc is None or any(doc[name] != value for name, value in step["expect"].items()):
                return None
            changes += self._restored(doc, collection, step) if "before" in step else self._removed(doc, collection)
        undone = {"undone": True, "undo": []}
        expect = {"undone": False}
        return [*changes, Update(DERIVATIONS, tenant, note["derivation_id"], set=undone, expect=expect)]

    def _removed(self, doc: Doc, collection: Collection) -> list[Change]:
        scope = Scope(doc["tenant_id"])
        if collection is MEMORIES:
            return MemoryRepository(self._store, scope).remove([doc])
        if collection is PROCEDURES:
            return ProcedureRepository(self._store, scope).remove(doc)
        return [Delete(collection, scope.tenant, doc[collection.id_field], {"version": doc["version"]})]

    def _restored(self, doc: Doc, collection: Collection, step: Doc) -> list[Change]:
        scope, now = Scope(doc["tenant_id"]), rfc3339(self._clock.now())
        before: dict[str, Any] = step["before"]
        if collection is MEMORIES:
            if doc["status"] == "superseded" and before.get("status") == "active":
                before = before | {"kept_apart": True}  # what was brought back is not merged away again
            return MemoryRepository(self._store, scope).revise(doc, before, now)
        if collection is PROCEDURES:
            return ProcedureRepository(self._store, scope).revise(doc, before, now)
        expect, fields = {"version": doc["version"]}, {**before, "updated_at": now}
        return [Update(collection, scope.tenant, step["id"], fields, {"version": 1}, expect)]
