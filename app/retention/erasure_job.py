"""The job that erases a user: everything of theirs goes, everywhere, and a receipt says that nothing was found then.

In this order: the records; then every job that may have read them is taken from its worker, and what it had written
meanwhile goes, too; the audit trail loses the id; the engine forgets what it keeps by itself. All of this is looked
through again, and only when nothing is found, one commit writes the receipt and ends the tombstone. The last step
overwrites the deleted bytes.

Every commit goes through the job's lease, and adds a note of what went (`models.py`). So a run that was cut short
anywhere goes on where it was, a worker that was overtaken deletes nothing more, and no count is lost.
"""

import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial

import numpy as np

from app.audit import trail
from app.audit.tombstones import ErasureKey, Tombstones
from app.audit.trail import AUDIT, ERASED, Actor
from app.core.clock import Clock, rfc3339
from app.core.ids import new_id
from app.errors import Conflict
from app.jobs import operations
from app.jobs.models import JOBS, OPERATIONS
from app.jobs.queue import fence
from app.jobs.runner import Done, Run
from app.retention.derived_records import DerivedRecords
from app.retention.erasure import ERASURE_NOTES
from app.sessions import models as sessions
from app.storage.changes import Change, CommitConflict, DeleteWhere, Insert, Update
from app.storage.filters import EVERYTHING, Eq, Filter, Has, In
from app.storage.protocol import Store
from app.storage.repository import pages
from app.storage.schema import Collection, Doc
from app.storage.scope import ANY_AGENT, SYSTEM, Partition
from app.storage.search import SearchQuery
from app.tasks import models as tasks
from app.writes.executor import IDEMPOTENCY

BATCH = 200
ROUNDS = 5
OURS = re.compile(r"[a-z]+_[0-9a-f]{32}")
"""An id that we made says nothing of its user; one that a caller chose may."""


def owned(collections: Sequence[Collection]) -> list[Collection]:
    """Those whose records belong to users. The audit trail is about them, and stays."""
    return [one for one in collections if "user_id" in one.fields and one is not AUDIT]


class ErasureJobs:
    """`model` is the embedding model's name, for the search that must find nothing."""

    def __init__(
        self, store: Store, collections: Sequence[Collection], clock: Clock, key: ErasureKey, *, model: str
    ) -> None:
        self._store, self._clock, self._key, self._model = store, clock, key, model
        self._owned = owned(collections)

    async def handle(self, run: Run) -> Done:
        """Raises Conflict where others keep writing about the user: the queue tries again later."""
        if "user_id" in run.payload:
            tombstones = Tombstones(self._store, run.tenant, self._key)
            await _Erasing(run, tombstones, self._owned, self._model).until_verified()
        await self._store.scrub()
        operation = await self._store.get(OPERATIONS, run.tenant, str(run.lease.job.operation_id))
        return Done({} if operation is None else operation["result"])


class _Erasing:
    """One run of an erasure that is not verified yet."""

    def __init__(self, run: Run, tombstones: Tombstones, collections: Sequence[Collection], model: str) -> None:
        self._run, self._store, self._clock, self._tenant = run, run.store, run.clock, run.tenant
        self._tombstones, self._owned, self._model = tombstones, collections, model
        self._user, self._hash = str(run.payload["user_id"]), str(run.payload["tombstone"])
        self._gone: set[str] = set()
        self._counters: set[str] = set()
        self._counts: Counter[str] = Counter()

    async def until_verified(self) -> None:
        find = partial(self._store.find, ERASURE_NOTES, self._tenant, Eq("tombstone", self._hash))
        async for notes in pages(find, ERASURE_NOTES, BATCH):
            for note in notes:
                self._learn(note)
        for _ in range(ROUNDS):
            await self._clear()
            await self._anonymise()
            await self._run.commit([])  # raises where the lease is lost, for the next step is no commit
            await self._store.purge(self._tenant, self._user, sorted(self._counters))
            if await self._verified():
                return
        raise Conflict("Somebody keeps writing about this user: stop that first.", retry_after=1)

    # --- What goes ----------------------------------------------------------------------------------------------------

    async def _clear(self) -> None:
        """Again as long as the last round found something: a job may have written between a look and its end."""
        for _ in range(ROUNDS):
            before = self._counts.total()
            for collection in self._owned:
                await self._delete(collection, Eq("user_id", self._user))
            await self._delete(IDEMPOTENCY, Has("users", self._user))
            derived = DerivedRecords(self._store, self._commit, self._tenant, self._user, self._gone)
            await derived.clear()
            await fence(self._store, self._tenant, derived.concerns, partial(self._commit, name="jobs"))
            if self._counts.total() == before:
                break

    async def _delete(self, collection: Collection, where: Filter) -> None:
        async for docs in self._batches(collection, where):
            ids = [str(doc[collection.id_field]) for doc in docs]
            gone = DeleteWhere(collection, self._tenant, In(collection.id_field, tuple(ids)))
            await self._commit([gone], len(ids), name=collection.name, of=collection, ids=ids)
            await self._run.progress(self._counts.total(), None)

    async def _anonymise(self) -> None:
        """The trail keeps that something was done, and by whom."""
        async for docs in self._batches(AUDIT, Eq("user_id", self._user)):
            chosen = [one for doc in docs for one in doc["records"] if not OURS.fullmatch(one)]
            hidden = {one: await self._tombstones.hashed(one) for one in dict.fromkeys(chosen)}
            changes: list[Change] = []
            for doc in docs:
                records = [hidden.get(one, one) for one in doc["records"]]
                fields: Doc = {"user_id": None, "user_hash": self._hash, "records": records}
                changes.append(Update(AUDIT, self._tenant, doc["audit_id"], set=fields))
            await self._commit(changes, len(changes), name="audit_anonymised", of=AUDIT, ids=list(hidden))

    async def _batches(self, collection: Collection, where: Filter) -> AsyncIterator[list[Doc]]:
        """As long as there are any: each batch is gone, or matches no more, when the next is asked for."""
        while docs := await self._store.find(collection, self._tenant, where, order="asc", limit=BATCH):
            yield docs

    # --- What is remembered -------------------------------------------------------------------------------------------

    async def _commit(
        self,
        changes: list[Change],
        number: int = 0,
        *,
        name: str,
        of: Collection | None = None,
        ids: Sequence[str] = (),
    ) -> None:
        """Changes, and the note that `number` of `name` went with them."""
        if not number and not ids:
            await self._run.commit(changes)
            return
        notes: list[Doc] = [
            {
                "tenant_id": self._tenant,
                "note_id": new_id("note"),
                "tombstone": self._hash,
                "of": None if of is None else of.name,
                "ids": list(ids[at : at + BATCH]),
                "counts": {} if at else {name: number},
                "created_at": rfc3339(self._clock.now()),
            }
            for at in range(0, max(len(ids), 1), BATCH)
        ]
        await self._run.commit([*changes, *(Insert(ERASURE_NOTES, note) for note in notes)])
        for note in notes:
            self._learn(note)

    def _learn(self, note: Doc) -> None:
        self._counts.update(note["counts"])
        if note["of"] != AUDIT.name:
            self._gone.update(note["ids"])
        if note["of"] in (sessions.SESSIONS.name, AUDIT.name):
            self._counters.update(map(sessions.counter, note["ids"]))
        if note["of"] in (tasks.TASKS.name, AUDIT.name):
            self._counters.update(map(tasks.counter, note["ids"]))

    # --- The end ------------------------------------------------------------------------------------------------------

    async def _verified(self) -> bool:
        """Looks for what is left. Where nothing is, one commit ends the erasure: tombstone, receipt, audit entry, and
        the user's id is in no job and no note any more. False where something was found, or one more request came."""
        tombstone = await self._store.get(ERASED, self._tenant, self._hash)
        operation_id = str(self._run.lease.job.operation_id)
        if tombstone is None or tombstone["operation_id"] != operation_id:
            raise Conflict("Another erasure of this user was begun since.")
        found = await self._found()
        if any(found.values()) or await self._store.count(AUDIT, self._tenant, Eq("user_id", self._user)):
            return False
        now = self._clock.now()
        receipt = {
            "tombstone": self._hash,
            "erased_at": rfc3339(now),
            "erased": dict(sorted((+self._counts).items())),
            "verification": {"records_found": found["records"], "search_found": found["search"]},
        }
        actor = Actor(self._tenant, self._run.payload["key_id"], self._run.payload["action"])
        changes: list[Change] = [
            self._tombstones.end(tombstone, rfc3339(now)),
            trail.entry(actor, rfc3339(now), None, [], {"users": {"erase": 1}}, self._hash),
            DeleteWhere(ERASURE_NOTES, self._tenant, Eq("tombstone", self._hash)),
            operations.report(self._tenant, operation_id, now, {"result": receipt}),
            Update(JOBS, SYSTEM, self._run.lease.doc["job_id"], set={"payload": {"tombstone": self._hash}}),
        ]
        try:
            await self._run.commit(changes)
        except CommitConflict:
            return False
        return True

    async def _found(self) -> dict[str, int]:
        """What is left: documents by their owner, and what a search of the user's scope gives."""
        found = {"records": 0, "search": 0}
        for collection in self._owned:
            found["records"] += await self._store.count(collection, self._tenant, Eq("user_id", self._user))
            if collection.searched:
                query = SearchQuery(
                    self._tenant,
                    (Partition(ANY_AGENT, self._user),),
                    EVERYTHING,
                    None,
                    self._model,
                    np.empty(0, np.uint32),
                )
                found["search"] += len((await self._store.search(collection, query)).rows)
        return found
