"""The job that erases a user and writes a receipt once nothing more is found.

1. It deletes the user's records.
2. It takes every job that may have read them from its worker, and deletes what the job wrote meanwhile.
3. It replaces the user's id in the audit trail.
4. It purges what the engine keeps by itself.

It then searches again. Only when nothing is found, one commit writes the receipt and marks the erasure as verified. The
last step overwrites the deleted bytes.

Every commit checks the job's lease and adds a note of what was erased (`ERASURE_NOTES`). So an interrupted run
continues where it stopped, a superseded worker deletes nothing more, and no count is lost.
"""

import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial

import numpy as np

from app.audit import trail
from app.audit.tombstones import ErasureKey, Tombstones
from app.audit.trail import AUDIT, ERASED, Actor, owned
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
"""How often a step is repeated before the job gives up."""
OURS = re.compile(r"[a-z]+_[0-9a-f]{32}")
"""The form of our own ids, which reveal nothing of a user. An id that a caller chose may."""


class ErasureJobs:
    """Runs erasures. `model` is the name of the embedding model, for the search that must find nothing."""

    def __init__(
        self, store: Store, collections: Sequence[Collection], clock: Clock, key: ErasureKey, *, model: str
    ) -> None:
        self._store, self._clock, self._key, self._model = store, clock, key, model
        self._owned = owned(collections)

    async def handle(self, run: Run) -> Done:
        """Runs the job. Raises Conflict if others keep writing about the user: the queue retries later."""
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
        """Erases until nothing is found. Raises Conflict after `ROUNDS` rounds."""
        find = partial(self._store.find, ERASURE_NOTES, self._tenant, Eq("tombstone", self._hash))
        async for notes in pages(find, ERASURE_NOTES, BATCH):
            for note in notes:
                self._learn(note)
        for _ in range(ROUNDS):
            await self._clear()
            await self._anonymise()
            # raises if the lease is lost; the next step is not a commit and does not check it
            await self._run.commit([])
            await self._store.purge(self._tenant, self._user, sorted(self._counters))
            if await self._verified():
                return
        raise Conflict("Somebody keeps writing about this user: stop that first.", retry_after=1)

    # --- Deleting -----------------------------------------------------------------------------------------------------

    async def _clear(self) -> None:
        """Deletes records and jobs, and repeats as long as a round finds something: a job may write between the search
        and its own end."""
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
        """Replaces the user's id in the audit trail by its hash, and ids that callers chose by theirs."""
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
        """Yields batches until there are none. Each batch is deleted or no longer matches before the next query."""
        while docs := await self._store.find(collection, self._tenant, where, order="asc", limit=BATCH):
            yield docs

    # --- Notes of what was erased -------------------------------------------------------------------------------------

    async def _commit(
        self,
        changes: list[Change],
        number: int = 0,
        *,
        name: str,
        of: Collection | None = None,
        ids: Sequence[str] = (),
    ) -> None:
        """Commits changes with a note that `number` records of kind `name` were erased."""
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

    # --- Verification -------------------------------------------------------------------------------------------------

    async def _verified(self) -> bool:
        """Searches for remaining records. If there are none, one commit ends the erasure: it writes tombstone, receipt
        and audit entry, and removes the user's id from job and notes. Returns False if something was found or another
        request arrived."""
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
        """Returns the number of remaining documents of the user, and of documents that a search of the user's scope
        reads."""
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
