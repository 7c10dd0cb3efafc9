"""Consolidation: for each agent and user, near-duplicate memories become one.

By the clock it looks for pairs that have something new, in every tenant, and starts an operation for each that has
something to do: what it does can be seen, and undone, one by one. By hand it does all of a tenant, or of one user, in
one.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

from app.clock import rfc3339
from app.consolidation import duplicates
from app.consolidation.deeds import undo_of
from app.consolidation.merging import Merged, Merging
from app.consolidation.models import DERIVATIONS
from app.consolidation.tools import Tools
from app.jobs import operations
from app.jobs.kinds import CONSOLIDATION
from app.jobs.models import SCHEDULES
from app.jobs.runner import Done, Run
from app.llm.llm import LLM
from app.memories.models import MEMORIES
from app.memories.repository import of_pair
from app.storage.collection import Collection, CommitConflict, Doc, Update
from app.storage.filters import EVERYTHING, Absent, Eq, Filter, Not, Range, both
from app.storage.scope import SYSTEM, Scope

PAGE = 500
OVERLAP = timedelta(minutes=10)
"""How far before its last look a scheduled run looks again: clocks of several machines differ."""


class Owner(NamedTuple):
    tenant: str
    agent: str | None
    user: str | None


class TidyingJobs:
    def __init__(self, tools: Tools, llm: LLM | None, undo_days: float) -> None:
        self._tools, self._llm, self._undo_days = tools, llm, undo_days
        self._merging = Merging(tools)

    async def handle(self, run: Run) -> Done:
        if run.tenant == SYSTEM:
            return await self._dispatch(run)
        scope = Scope.of_bindings(run.tenant, run.payload)
        merged, dry_run = Merged(), bool(run.payload.get("dry_run"))
        pairs = await self._pairs(run.tenant, both(_asked(run.payload), scope.writable()))
        for number, pair in enumerate(pairs, start=1):
            groups = await self._merging.plan(scope, pair.agent, pair.user)
            if dry_run:
                merged.plan(groups)
            else:
                await self._merging.apply(run, scope, groups, merged)
            await run.progress(number, len(pairs))
        result = {"dry_run": dry_run, "memories": merged.told()}
        did = not dry_run and merged.counts["groups"]
        return Done(result, undo_of(run, self._undo_days) if did else None, "succeeded" if merged.whole else "partial")

    # --- By the clock -------------------------------------------------------------------------------------------------

    async def _dispatch(self, run: Run) -> Done:
        """Starts an operation for each pair that has something to do since the last look."""
        looked_at = self._tools.clock.now()
        schedule = await run.store.get(SCHEDULES, SYSTEM, CONSOLIDATION) or {}
        since = schedule.get("looked_at")
        news = EVERYTHING if since is None else Range("created_at", ge=since)
        started = 0
        for pair in await self._pairs(None, news):
            if await self._merging.plan(Scope(pair.tenant), pair.agent, pair.user):
                await self._start(run, pair)
                started += 1
        seen = {"looked_at": rfc3339(looked_at - OVERLAP)}
        with suppress(CommitConflict):  # a schedule that is gone begins anew
            await run.commit([Update(SCHEDULES, SYSTEM, CONSOLIDATION, set=seen)])
        return Done({"operations": started, "undo_ended": await self._end_undo(run)})

    async def _end_undo(self, run: Run) -> int:
        """What can be undone no longer is not kept for it."""
        past = Range("created_at", lt=rfc3339(self._tools.clock.now() - timedelta(days=self._undo_days + 1)))
        ended = 0
        async for note in self._all(DERIVATIONS, None, both(past, Not(Absent("operation_id")))):
            fields: Doc = {"operation_id": None, "undo": []}
            with suppress(CommitConflict):  # it has just gone, with whom it was about
                await run.commit([Update(DERIVATIONS, note["tenant_id"], note["derivation_id"], set=fields)])
                ended += 1
        return ended

    async def _start(self, run: Run, pair: Owner) -> None:
        owner = {"agent_id": pair.agent, "user_id": pair.user}
        payload = {"dry_run": False, "pair": owner}
        _, changes = operations.start(Scope(pair.tenant), CONSOLIDATION, payload, self._tools.clock.now(), **owner)
        await run.commit(changes)

    # --- Whose --------------------------------------------------------------------------------------------------------

    async def _pairs(self, tenant: str | None, where: Filter) -> list[Owner]:
        """Those that have memories that could be there twice, in the order of their first."""
        wanted = both(where, duplicates.candidates(rfc3339(self._tools.clock.now())))
        found: dict[Owner, None] = {}
        async for doc in self._all(MEMORIES, tenant, wanted):
            found[Owner(doc["tenant_id"], doc["agent_id"], doc["user_id"])] = None
        return list(found)

    async def _all(self, collection: Collection, tenant: str | None, where: Filter) -> AsyncIterator[Doc]:
        after = None
        while docs := await self._tools.store.find(collection, tenant, where, order="asc", after=after, limit=PAGE):
            after = collection.after(docs[-1])
            for doc in docs:
                yield doc


def _asked(payload: Doc) -> Filter:
    """The pair that was found by the clock, else each owner that was named, as it is."""
    if pair := payload.get("pair"):
        return of_pair(pair["agent_id"], pair["user_id"])
    return both(*(Eq(name, payload[name]) for name in ("agent_id", "user_id") if payload.get(name) is not None))
