"""Erases what was derived from a user's records without belonging to the user: lessons, shared records, undo data,
jobs."""

from collections.abc import Callable, Set
from functools import partial
from typing import Any, Protocol, TypeAlias

from app.facts.schemas import FACT_GROUPS, FACTS
from app.jobs.models import ERASE_USER, OPERATIONS, JobRecord, OperationRecord
from app.jobs.skipping import skipping
from app.memories.agents import AGENTS, AgentRecord
from app.memories.schemas import HISTORY, MEMORIES, HistoryRecord, Source
from app.procedures.schemas import PROCEDURE_HISTORY, PROCEDURES, ProcedureRecord
from app.procedures.service import COUNTED, without_notes_of
from app.profiles.merge import LESSONS
from app.storage.changes import Change, CommitConflict, Delete, DeleteWhere, Update
from app.storage.protocol import Store
from app.storage.repository import pages
from app.storage.schema import EVERYTHING, Absent, Collection, Doc, Eq, Filter, R, value_at

BATCH = 200
SHARED: tuple[tuple[Collection, Collection | None], ...] = (
    (MEMORIES, HISTORY),
    (FACTS, None),
    (PROCEDURES, PROCEDURE_HISTORY),
)
"""Collections whose records may be derived, with their history."""


def mentions(tree: Any, wanted: Set[str]) -> bool:
    """Returns True if a text anywhere in the tree is one of these."""
    if isinstance(tree, str):
        return tree in wanted
    if isinstance(tree, dict):
        return any(key in wanted or mentions(value, wanted) for key, value in tree.items())
    return isinstance(tree, list) and any(mentions(part, wanted) for part in tree)


def comes_of(source: Source | None, gone: Set[str]) -> bool:
    """Returns True if all sources of a record are among the erased records."""
    if not source:
        return False
    if source.get("session_id") is not None:
        return source["session_id"] in gone
    named = [*(source.get("memory_ids") or ()), *(source.get("action_ids") or ())]
    return bool(named) and set(named) <= gone


ErasedPart: TypeAlias = tuple[int, list[Change]]
"""How many records or parts of one are erased, and the changes that do it; without changes nothing is."""


class CommitNumbered(Protocol):
    """Commits changes that erase `number` records of kind `name`. Raises CommitConflict."""

    async def __call__(self, changes: list[Change], number: int, *, name: str) -> None: ...


class DerivedRecords:
    """Erases derived records of a user. `gone` are the ids of the user's erased records."""

    def __init__(self, store: Store, commit: CommitNumbered, tenant: str, user: str, gone: Set[str]) -> None:
        self._store, self._commit, self._tenant, self._user, self._gone = store, commit, tenant, user, gone

    async def clear(self) -> None:
        """Erases lessons, undo data and shared records that come from the user's records."""
        await self._clear_each(AGENTS, EVERYTHING, self._unlearned, "lessons")
        await self._clear_each(OPERATIONS, Absent("user_id"), self._emptied, "operations_emptied")
        for collection, history in SHARED:
            removed = partial(self._removed, collection=collection, history=history)
            await self._clear_each(collection, Absent("user_id"), removed, f"derived_{collection.name}")
        await self._clear_each(PROCEDURES, Absent("user_id"), self._unnoted, "outcome_notes")
        await self._clear_each(PROCEDURE_HISTORY, Absent("user_id"), self._unnoted_before, "outcome_notes_of_history")

    def concerns(self, job: JobRecord) -> bool:
        """Returns True if a job is about the user. A job of a key that is bound to several users is not, and neither is
        the erasure itself."""
        if job["kind"] == ERASE_USER:
            return False
        about = {self._user, *self._gone}
        payload = dict(job["payload"])
        bound = payload.pop("users", None) or []
        return (
            job["operation_id"] in about
            or mentions(payload, about)
            or bound == [self._user]
            or (job["status"] == "failed" and self._user in bound)
        )

    async def _clear_each(
        self, collection: Collection[R], where: Filter, plan: Callable[[R], ErasedPart], name: str
    ) -> None:
        """Commits what `plan` makes of each record that matches."""
        find = partial(self._store.find, collection, self._tenant, where)
        async for records in pages(find, collection, BATCH):
            for record in records:
                await self._clear_of(collection, record, plan, name)

    async def _clear_of(self, collection: Collection[R], read: R, plan: Callable[[R], ErasedPart], name: str) -> None:
        """Commits what `plan` makes of a record, and reads and plans it again as long as others change it."""
        record: R | None = read
        while record is not None:
            number, changes = 0, list[Change]()
            with skipping(collection, record[collection.id_field]):
                number, changes = plan(record)
            if not changes:
                return
            try:
                await self._commit(changes, number, name=name)
            except CommitConflict:
                record = await self._store.get(collection, self._tenant, record[collection.id_field])
                continue
            return

    def _unlearned(self, agent: AgentRecord) -> ErasedPart:
        experience, number = agent["experience"].copy(), 0
        for name in LESSONS:
            left = [lesson for lesson in experience[name] if not comes_of(lesson["source"], self._gone)]
            number += len(experience[name]) - len(left)
            experience[name] = left
        if not number:
            return 0, []
        fields: AgentRecord = {"experience": experience}
        expect = {"version": agent["version"]}
        return number, [Update(AGENTS, self._tenant, agent["agent_id"], set=fields, inc={"version": 1}, expect=expect)]

    def _emptied(self, operation: OperationRecord) -> ErasedPart:
        """Removes result and undo data of an operation that mentions the user. An operation for several users can then
        no longer be undone."""
        if not mentions([operation["result"], operation["undo"]], {self._user, *self._gone}):
            return 0, []
        same = {"status": operation["status"], "undo": operation["undo"], "result": operation["result"]}
        fields: OperationRecord = {"undo": None, "result": None}
        return 1, [Update(OPERATIONS, self._tenant, operation["operation_id"], set=fields, expect=same)]

    def _unnoted(self, procedure: ProcedureRecord) -> ErasedPart:
        """Removes what the user's actions and tasks noted in a procedure that serves others, too."""
        fields = without_notes_of(procedure, self._gone)
        if not fields:
            return 0, []
        expect = {name: value_at(procedure, name) for name in COUNTED}
        return 1, [Update(PROCEDURES, self._tenant, procedure["procedure_id"], set=fields, expect=expect)]

    def _unnoted_before(self, version: HistoryRecord[ProcedureRecord]) -> ErasedPart:
        fields = without_notes_of(version["record"], self._gone)
        if not fields:
            return 0, []
        changed: HistoryRecord[ProcedureRecord] = {"record": version["record"] | fields}
        return 1, [Update(PROCEDURE_HISTORY, self._tenant, version["history_id"], set=changed)]

    def _removed(self, doc: Doc, collection: Collection, history: Collection | None) -> ErasedPart:
        """Removes a document of one of the collections `SHARED`."""
        if not comes_of(doc.get("source"), self._gone):
            return 0, []
        doc_id, expect = doc[collection.id_field], {"version": doc["version"]}
        changes: list[Change] = [Delete(collection, self._tenant, doc_id, expect)]
        if history is not None:
            changes.append(DeleteWhere(history, self._tenant, Eq("record_id", doc_id)))
        if collection is FACTS:
            changes.append(Update(FACT_GROUPS, self._tenant, doc["group_id"], inc={"version": 1}))
        return 1, changes
