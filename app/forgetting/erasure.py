"""A user's erasure: everything of theirs goes, everywhere, and a receipt says that nothing was found afterwards.

In this order: the tombstone; the records; then every job that may have read them is taken from its worker, and what it
had written meanwhile goes too. Each step is a commit, and calling again goes on where one was cut short.
"""

import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import numpy as np

from app.audit import trail
from app.audit.models import AUDIT
from app.audit.tombstones import Tombstones
from app.audit.trail import Actor
from app.clock import Clock, rfc3339
from app.errors import Conflict, Forbidden
from app.forgetting.derived import Derived
from app.idempotency.models import IDEMPOTENCY
from app.jobs.fence import fence
from app.sessions import models as sessions
from app.storage.collection import Change, Collection, DeleteWhere, Doc, Store, Update
from app.storage.filters import EVERYTHING, Eq, Filter, Has, In
from app.storage.scope import ANY, Pair, Scope
from app.storage.search import SearchQuery
from app.tasks import models as tasks

BATCH = 200
ROUNDS = 5
OURS = re.compile(r"[a-z]+_[0-9a-f]{32}")
"""An id that we made says nothing of its user; one that a caller chose may."""


def owned(collections: Sequence[Collection]) -> list[Collection]:
    """Those whose records belong to users. The audit trail is about them, and stays."""
    return [one for one in collections if "user_id" in one.fields and one is not AUDIT]


class Erasure:
    """`model` is the embedding model's name, for the search that must find nothing."""

    def __init__(
        self, store: Store, scope: Scope, collections: Sequence[Collection], clock: Clock, *, model: str
    ) -> None:
        self._store, self._scope, self._clock, self._model = store, scope, clock, model
        self._owned = owned(collections)
        self._tombstones = Tombstones(store, scope.tenant)

    async def erase(self, user_id: str, actor: Actor) -> Doc:
        """The receipt. Raises Forbidden, Conflict where others keep writing about the user, and StoreUnavailable where
        the store is away or still holds bytes: the call can be made again."""
        self._require(user_id)
        now = rfc3339(self._clock.now())
        tombstone, mark = await self._tombstones.setting(user_id, now)
        changes = {"users": {"erase": 1}}
        await self._store.commit([mark, trail.entry(actor, now, None, [], changes, tombstone)])
        run = _Run(self._store, self._scope.tenant, user_id, tombstone, self._tombstones)
        await run.clear(self._owned)
        found = await self._found(user_id)
        if any(found.values()):
            raise Conflict("Somebody keeps writing about this user: stop that first.", retry_after=1)
        return {
            "user_id": user_id,
            "tombstone": tombstone,
            "erased_at": now,
            "erased": dict(sorted(run.counts.items())),
            "verification": {"records_found": found["records"], "search_found": found["search"]},
        }

    def _require(self, user_id: str) -> None:
        if self._scope.agents is not None:
            raise Forbidden("This key is bound to agents: it cannot erase what others know of a user.")
        self._scope.require_write(None, user_id)

    async def _found(self, user_id: str) -> dict[str, int]:
        """What is left: documents by their owner, and what a search of the user's scope gives."""
        tenant, found = self._scope.tenant, {"records": 0, "search": 0}
        for collection in self._owned:
            found["records"] += await self._store.count(collection, tenant, Eq("user_id", user_id))
            if collection.searched:
                query = SearchQuery(
                    tenant, (Pair(ANY, user_id),), EVERYTHING, None, self._model, np.empty(0, np.uint32)
                )
                found["search"] += len((await self._store.search(collection, query)).rows)
        return found


class _Run:
    """One erasure under way."""

    def __init__(self, store: Store, tenant: str, user: str, tombstone: str, tombstones: Tombstones) -> None:
        self._store, self._tenant, self._user = store, tenant, user
        self._tombstone, self._tombstones = tombstone, tombstones
        self._gone: set[str] = set()
        self._counters: set[str] = set()
        self.counts: Counter[str] = Counter()

    async def clear(self, collections: Sequence[Collection]) -> None:
        """Again as long as the last round found something: a job may have written between a look and its end."""
        for _ in range(ROUNDS):
            before = self.counts.total()
            for collection in collections:
                await self._delete(collection, Eq("user_id", self._user))
            await self._delete(IDEMPOTENCY, Has("users", self._user))
            derived = Derived(self._store, self._tenant, self._user, self._gone)
            self.counts += await derived.clear()
            self.counts["jobs"] += await fence(self._store, self._tenant, derived.concerns)
            if self.counts.total() == before:
                break
        await self._anonymise()
        await self._store.purge(self._tenant, self._user, sorted(self._counters))
        self.counts = +self.counts

    async def _delete(self, collection: Collection, where: Filter) -> None:
        async for docs in self._batches(collection, where):
            ids = tuple(str(doc[collection.id_field]) for doc in docs)
            self._note(collection, ids)
            gone = DeleteWhere(collection, self._tenant, In(collection.id_field, ids))
            self.counts[collection.name] += (await self._store.commit([gone])).deleted

    def _note(self, collection: Collection, ids: Sequence[str]) -> None:
        self._gone.update(ids)
        if collection is sessions.SESSIONS:
            self._counters.update(map(sessions.counter, ids))
        elif collection is tasks.TASKS:
            self._counters.update(map(tasks.counter, ids))

    async def _anonymise(self) -> None:
        """The trail keeps that something was done, and by whom."""
        async for docs in self._batches(AUDIT, Eq("user_id", self._user)):
            changes: list[Change] = []
            for doc in docs:
                for chosen in (one for one in doc["records"] if not OURS.fullmatch(one)):
                    self._counters.update((sessions.counter(chosen), tasks.counter(chosen)))
                records = [await self._hidden(one) for one in doc["records"]]
                hidden: Doc = {"user_id": None, "user_hash": self._tombstone, "records": records}
                changes.append(Update(AUDIT, self._tenant, doc["audit_id"], set=hidden))
            await self._store.commit(changes)
            self.counts["audit_anonymised"] += len(changes)

    async def _hidden(self, record: str) -> str:
        return record if OURS.fullmatch(record) else await self._tombstones.hashed(record)

    async def _batches(self, collection: Collection, where: Filter) -> AsyncIterator[list[Doc]]:
        """As long as there are any: each batch is gone, or matches no more, when the next is asked for."""
        while docs := await self._store.find(collection, self._tenant, where, order="asc", limit=BATCH):
            yield docs
