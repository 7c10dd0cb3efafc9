"""Jobs of retention: archiving by policy, its undo, expiry, and the roll-up of old records."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from app.actions.roll_ups import cells, cells_of_counts, counts_of, roll_ups
from app.actions.schemas import ACTION_DAYS, ACTIONS
from app.actions.service import DAY_KEY
from app.audit.trail import AUDIT
from app.core.clock import Clock, new_id, parse_rfc3339, rfc3339
from app.embedding.embedder import Embedder
from app.jobs import queue
from app.jobs.models import JOBS, OPERATIONS
from app.jobs.runner import Done, Run, undo_each
from app.jobs.skipping import handled, skipping
from app.memories.embedding import Embeddings
from app.memories.models import FEEDBACK, MEMORIES
from app.memories.records import new_memory, revision
from app.memories.repository import MemoryRepository, of_pair
from app.retention import decay_job
from app.retention.service import Forgetting, policy_of
from app.sessions.repository import SessionRepository
from app.sessions.schemas import SESSIONS
from app.settings import RetentionSettings
from app.storage.changes import Change, CommitConflict, Delete, Insert, Update
from app.storage.protocol import Store
from app.storage.repository import anything, having, pages
from app.storage.schema import Absent, Collection, Doc, Eq, Filter, In, Not, Range, both
from app.storage.scope import SYSTEM, Scope
from app.tasks.schemas import TASKS
from app.tasks.service import TaskRepository
from app.writes.executor import IDEMPOTENCY

BATCH = 200
AT_ONCE = 50
OPERATION_DAYS = 30
"""How long finished operations and failed jobs can be asked for."""
"""The number of commits that run concurrently."""
RETENTION = "retention"


class ForgettingJobs:
    """Runs retention jobs."""

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        clock: Clock,
        retention: RetentionSettings,
        teller: Callable[[], decay_job.DescribeDay] | None = None,
    ) -> None:
        """`teller` returns, for each run, a function that describes days; None without a language model."""
        self._store, self._embedder, self._clock, self._retention = store, embedder, clock, retention
        self._teller = teller

    # --- Requested by callers -----------------------------------------------------------------------------------------

    async def forget(self, run: Run) -> Done:
        """Archives memories by policy. An interrupted run can be repeated, since archived memories are no longer
        candidates."""
        request = run.payload
        forgetting = self._forgetting(Scope.of_bindings(run.tenant, request))
        policy, owner = policy_of(request["policy"]), having(request, "agent_id", "user_id")
        by = str(run.lease.job.operation_id)
        done = 0
        async for docs in forgetting.batches(policy, owner):
            done += await self._each(run, MEMORIES, docs, lambda doc: forgetting.archive([doc], by))
            await run.progress(done, None)
        archived = await self._store.count(MEMORIES, run.tenant, Eq("archived_by", by))
        # counted from the request, so that nothing is purged while an undo is possible
        asked_at = parse_rfc3339(run.lease.doc["created_at"])
        until = rfc3339(asked_at + timedelta(days=self._retention.archive_days))
        return Done({"archived": archived}, undo={"by": by, "until": until} if archived else None)

    async def undo(self, run: Run) -> Done:
        """Restores what an operation archived, where that is still possible."""
        forgetting = self._forgetting(Scope(run.tenant))

        async def back(doc: Doc) -> list[Change]:
            return forgetting.bring_back(doc)

        return await undo_each(run, MEMORIES, forgetting.archived(run.payload["undo"]["by"]), back)

    async def _each(
        self, run: Run, collection: Collection, docs: Sequence[Doc], plan: Callable[[Doc], list[Change]]
    ) -> int:
        """Commits the changes that `plan` makes of each document by themselves, so that a conflict in one does not
        affect the others. Returns the number committed. Documents that it cannot handle are skipped."""
        planned, made = handled(collection, docs, plan), 0
        for at in range(0, len(planned), AT_ONCE):
            some = planned[at : at + AT_ONCE]
            made += sum(await asyncio.gather(*(self._one(run, changes) for _, changes in some)))
        return made

    async def _one(self, run: Run, changes: list[Change]) -> bool:
        with suppress(CommitConflict):
            await run.commit(changes)
            return True
        return False

    # --- Scheduled runs -----------------------------------------------------------------------------------------------

    async def expire(self, run: Run) -> Done:
        """Deletes expired records, which reads have hidden since they expired, archived memories after their grace
        time, and old entries of the change log."""
        swept = {name: await self._sweep(run, *expired) for name, expired in self._expired().items()}
        if _tenant(run) is None:
            swept["changes"] = await self._store.change_log.prune()
        return Done(swept)

    async def has_expired(self) -> bool:
        """Returns True if `expire` would find work. Only reads."""
        return await self._store.change_log.has_expired() or await anything(self._store, self._expired().values())

    def _expired(self) -> dict[str, tuple[Collection, Filter]]:
        past = Range("expires_at", le=rfc3339(self._clock.now()))
        grace = rfc3339(self._clock.now() - timedelta(days=self._retention.archive_days))
        gone = both(Not(Absent("archived_by")), Eq("status", "archived"), Range("archived_at", le=grace))
        return {
            "memories": (MEMORIES, past),
            "archived": (MEMORIES, gone),
            "sessions": (SESSIONS, past),
            "tasks": (TASKS, past),
            "idempotency_keys": (IDEMPOTENCY, past),
            "feedback_notes": (FEEDBACK, past),
        }

    async def _sweep(self, run: Run, collection: Collection, where: Filter) -> int:
        tenant = _tenant(run)
        if run.payload.get("dry_run"):
            return await self._store.count(collection, tenant, where)
        swept = 0
        async for docs in pages(partial(self._store.find, collection, tenant, where), collection, BATCH):
            swept += await self._each(run, collection, docs, partial(self._removal, collection))
        return swept

    def _removal(self, collection: Collection, doc: Doc) -> list[Change]:
        scope = Scope(doc["tenant_id"])
        if collection is MEMORIES:
            return MemoryRepository(self._store, scope).remove([doc])
        if collection is SESSIONS:
            return SessionRepository(self._store, scope).remove(doc)
        if collection is TASKS:
            return TaskRepository(self._store, scope).remove(doc)
        expect: Doc = {name: doc[name] for name in ("expires_at", "updated_at", "status") if name in doc}
        return [Delete(collection, doc["tenant_id"], doc[collection.id_field], expect)]

    async def retain(self, run: Run) -> Done:
        """Rolls up old actions to one memory for each day, archives messages that nobody has read for `message_days`,
        and deletes old operations, failed jobs and audit entries."""
        result = {"rolled_up": await self._roll_up(run), "archived": await self._archive_unused(run)}
        return Done(result | {name: await self._sweep(run, *old) for name, old in self._outlived().items()})

    async def has_outlived(self) -> bool:
        """Returns True if `retain` would find work. Only reads."""
        unused, old = (MEMORIES, self._unused()), (ACTIONS, self._old_actions())
        return await anything(self._store, [old, unused, *self._outlived().values()])

    def _outlived(self) -> dict[str, tuple[Collection, Filter]]:
        days = self._retention
        ended = both(In("status", queue.ENDED), self._older("updated_at", max(OPERATION_DAYS, days.archive_days + 1)))
        return {
            "operations": (OPERATIONS, ended),
            "failed_jobs": (JOBS, both(Eq("status", "failed"), self._older("run_at", OPERATION_DAYS))),
            "audit": (AUDIT, self._older("created_at", days.audit_days)),
        }

    def _old_actions(self) -> Range:
        """Filters actions of whole days, so that each day is summarized once and not every hour."""
        last = self._clock.now() - timedelta(days=self._retention.action_days)
        return Range("timestamp", lt=f"{rfc3339(last)[:10]}T00:00:00.000Z")

    def _unused(self) -> Filter:
        return both(
            Eq("memory_type", "message"),
            Eq("status", "active"),
            Not(Eq("pinned", True)),
            self._older("anchored_at", self._retention.message_days),
            # implied by the line above; lists are ordered by this field, so it ends the scan
            self._older("created_at", self._retention.message_days),
        )

    def _older(self, field: str, days: float) -> Range:
        return Range(field, lt=rfc3339(self._clock.now() - timedelta(days=days)))

    async def _roll_up(self, run: Run) -> int:
        tenant, old = _tenant(run), self._old_actions()
        if run.payload.get("dry_run"):
            return await self._store.count(ACTIONS, tenant, old)
        done, tell = 0, None if self._teller is None else self._teller()
        # by keyset, since what was skipped stays
        async for docs in pages(partial(self._store.find, ACTIONS, tenant, old), ACTIONS, decay_job.MOST):
            countable = [doc for doc, _ in handled(ACTIONS, docs, decay_job.counted)]
            for day, actions in decay_job.by_day(countable).items():
                done += await self._roll_up_day(run, day, actions, tell)
        return done

    async def _roll_up_day(
        self, run: Run, day: decay_job.Day, actions: list[Doc], tell: decay_job.DescribeDay | None
    ) -> int:
        """Summarizes the actions of a day and deletes them in the same commit. Late actions are added to the day's
        summary. Returns how many: none if an earlier summary of the day cannot be handled, which is then skipped with
        its day."""
        tenant, agent, user, date = day
        memories = MemoryRepository(self._store, Scope(tenant))
        found = await memories.find(
            both(of_pair(agent, user), Eq("key", f"{DAY_KEY}{date}"), Eq("status", "active")), limit=1
        )
        with skipping(MEMORIES, found[0]["memory_id"]) if found else skipping(ACTIONS, actions[0]["action_id"]):
            await self._add_to_day(run, memories, day, actions, found, tell)
            return len(actions)
        return 0

    async def _add_to_day(
        self,
        run: Run,
        memories: MemoryRepository,
        day: decay_job.Day,
        actions: list[Doc],
        found: list[Doc],
        tell: decay_job.DescribeDay | None,
    ) -> None:
        tenant, _, _, date = day
        earlier = counts_of(found[0]) if found else None
        counts = decay_job.count(actions, earlier)
        ids = [action["action_id"] for action in actions]
        source: Doc = {}
        if tell is not None and (description := await tell(actions, decay_job.text_of(counts))):
            counts |= {decay_job.TEXT: description["text"]}
            source = {name: description[name] for name in ("model", "prompt_version")}
        deletes: list[Change] = [Delete(ACTIONS, tenant, action_id) for action_id in ids]
        if earlier is not None:
            summary = await self._added(memories, found[0], decay_job.sentence(date, counts), counts, ids, source)
        else:
            key = None if found else f"{DAY_KEY}{date}"  # a caller's own memory may have the key; it is not changed
            summary = await self._summed_up(memories, day, key, counts, ids, source)
        figures = await self._figures(day, actions, earlier)
        await run.commit([*summary, figures, *deletes])

    async def _figures(self, day: decay_job.Day, actions: list[Doc], earlier: Doc | None) -> Change:
        """Returns the change that adds actions to the figures of their day. Of a day that an earlier version began,
        only the counts in its summary are known."""
        tenant, agent, user, date = day
        now, begun = rfc3339(self._clock.now()), f"{date}T00:00:00.000Z"
        found = await self._store.find(ACTION_DAYS, tenant, both(of_pair(agent, user), Eq("day", begun)), limit=1)
        if found:
            (old,) = found
            said = {"cells": cells(actions, old["cells"]), "updated_at": now}
            return Update(ACTION_DAYS, tenant, old["day_id"], said, {"version": 1}, {"version": old["version"]})
        before = [] if earlier is None else cells_of_counts(earlier, by_type=True)
        doc: Doc = {
            "tenant_id": tenant,
            "day_id": new_id("day"),
            "agent_id": agent,
            "user_id": user,
            "day": begun,
            "cells": cells(actions, before),
            "version": 1,
            "created_at": now,
            "updated_at": now,
        }
        return Insert(ACTION_DAYS, doc)

    async def _added(
        self, memories: MemoryRepository, old: Doc, content: str, counts: Doc, ids: list[str], origin: Doc
    ) -> list[Change]:
        embeddings, now = Embeddings(self._embedder), rfc3339(self._clock.now())
        source = old["source"] | origin | {"action_ids": [*old["source"]["action_ids"], *ids][: decay_job.MAX_IDS]}
        changed = revision(old, {"content": content, "metadata": counts}, now) | {"source": source}
        _, changes = await memories.rewritten(old, changed, now, embeddings)
        return [*changes, *roll_ups(old, ids, now)]

    async def _summed_up(
        self,
        memories: MemoryRepository,
        day: decay_job.Day,
        key: str | None,
        counts: Doc,
        ids: list[str],
        origin: Doc,
    ) -> list[Change]:
        tenant, agent, user, date = day
        embeddings, now = Embeddings(self._embedder), rfc3339(self._clock.now())
        fields: dict[str, Any] = {
            "agent_id": agent,
            "user_id": user,
            "key": key,
            "memory_type": "summary",
            "content": decay_job.sentence(date, counts),
            "importance": decay_job.IMPORTANCE,
            "metadata": counts,
            "event_at": f"{date}T00:00:00.000Z",
        }
        source = {"origin": "consolidation", "action_ids": ids[: decay_job.MAX_IDS], **origin}
        doc, changes = await memories.added(new_memory(fields, source, now, unique=False), embeddings)
        return [*changes, *roll_ups(doc | {"tenant_id": tenant}, ids, now)]

    async def _archive_unused(self, run: Run) -> int:
        tenant, unused = _tenant(run), self._unused()
        if run.payload.get("dry_run"):
            return await self._store.count(MEMORIES, tenant, unused)
        done = 0
        async for docs in pages(partial(self._store.find, MEMORIES, tenant, unused), MEMORIES, BATCH):
            done += await self._each(run, MEMORIES, docs, self._archive)
        return done

    def _archive(self, doc: Doc) -> list[Change]:
        return self._forgetting(Scope(doc["tenant_id"])).archive([doc], RETENTION)

    def _forgetting(self, scope: Scope) -> Forgetting:
        return Forgetting(MemoryRepository(self._store, scope), self._clock)


def _tenant(run: Run) -> str | None:
    """Returns the tenant of the run, or None for scheduled jobs, which work on every tenant."""
    return None if run.tenant == SYSTEM else run.tenant
