"""Retention: memories are forgotten by policy, with undo; and its jobs, which archive, purge what has expired, roll up
old actions, and write down how importance decays."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import Annotated, Generic, Literal, NamedTuple, cast

from pydantic import Field
from typing_extensions import TypeAliasType, TypedDict

from app.actions.roll_ups import DescribeDay, cells, roll_ups
from app.actions.schemas import ACTION_DAYS, ACTIONS, ActionDayRecord, ActionRecord, DayCell
from app.actions.service import DAY_KEY
from app.audit.trail import AUDIT
from app.core import schemas as core
from app.core.clock import Clock, new_id, parse_rfc3339, rfc3339, to_ms
from app.embedding.embedder import Embedder
from app.jobs import queue
from app.jobs.runner import Done, Run, undo_each
from app.memories.agents import AGENTS, AgentRecord, Decays
from app.memories.repository import Embeddings, MemoryRepository, new_memory, of_partition, revision
from app.memories.schemas import FEEDBACK, KEPT_AS_IS, MEMORIES, MemoryRecord, MemoryType, MemoryTypeIn, Source
from app.memories.search import MEMORY_FIELDS, TagAndMetadataFilters, by_tags
from app.retrieval.decay import DAY_MS, DEFAULT_DECAY, DecayCurve, importance
from app.sessions.repository import SessionRepository
from app.sessions.schemas import SESSIONS, SessionRecord
from app.settings import RetentionSettings
from app.storage.changes import Change, CommitConflict, Delete, Insert, Update
from app.storage.protocol import DecayRule, Store
from app.storage.record_filters import split_filter
from app.storage.repository import anything, having, pages, unexpired
from app.storage.schema import EVERYTHING, Absent, And, Collection, Eq, Filter, In, Not, Or, R, Range, both
from app.storage.scope import SYSTEM, Scope
from app.tasks.schemas import TASKS, TaskRecord
from app.tasks.service import TaskRepository
from app.writes.executor import IDEMPOTENCY, WriteResult

RECENCY_POINTS = 100
KEPT_TYPES = frozenset({"issue", "solution"})
TYPE_POINTS = 50
OFTEN = 10
ACCESS_POINTS = 30


ForgetReason = TypeAliasType("ForgetReason", Literal["recency", "type", "access"])


@core.shown
class Reason(TypedDict):
    reason: ForgetReason
    points: Annotated[float, Field(description="Rounded to a whole number, as the score.")]
    detail: str


@core.shown
class Forgettable(TypedDict):
    memory_id: str
    content: str
    memory_type: MemoryType
    importance: float
    score: float
    reasons: list[Reason]


@core.shown
class ForgetPlan(TypedDict):
    """What would be forgotten."""

    dry_run: Literal[True]
    total: core.Count
    items: Annotated[list[Forgettable], Field(description="The first 100, lowest score first.")]


def score(memory: MemoryRecord, now_ms: int) -> tuple[float, list[Reason]]:
    """Returns a memory's retention score and the reasons that it is the sum of."""
    age = (now_ms - to_ms(memory["created_at"])) / DAY_MS
    kind, accesses = memory["memory_type"], memory["access_count"]
    reasons: list[Reason] = [
        {"reason": "recency", "points": max(0.0, RECENCY_POINTS - age), "detail": f"{age:.0f} days old"},
        {"reason": "type", "points": TYPE_POINTS * (kind in KEPT_TYPES), "detail": kind},
        {"reason": "access", "points": ACCESS_POINTS * (accesses > OFTEN), "detail": f"{accesses} times"},
    ]
    return sum(reason["points"] for reason in reasons), reasons


class PolicyIn(TagAndMetadataFilters):
    older_than_days: Annotated[float, Field(strict=True, ge=0, le=36500)] = 365
    max_importance: core.Share | None = Field(None, description="Only what has faded to this or less.")
    max_score: Annotated[float, Field(strict=True, ge=0, le=1000)] | None = Field(
        None,
        description="Only what scores this or less, before it is rounded: up to 100 for recency, 50 for issues and "
        "solutions, 30 for use.",
    )
    types: Annotated[list[MemoryTypeIn], Field(min_length=1)] | None = Field(
        None, description="Default: all but files. Passages stay as long as their document."
    )

    def candidates(self, now: str, before: str) -> Filter:
        """Filters what the store can decide: active, not pinned, not expired, created before `before`, of the types,
        tags and metadata."""
        return both(
            Eq("status", "active"),
            Not(Eq("pinned", True)),
            unexpired(now),
            Range("created_at", lt=before),
            Not(In("memory_type", KEPT_AS_IS)) if self.types is None else In("memory_type", tuple(self.types)),
            by_tags(self.tags, self.tags_match, self.exclude_tags),
            split_filter({"metadata": self.metadata}, MEMORY_FIELDS, MEMORIES).where,
        )

    def forgets(self, importance: float, score: float) -> bool:
        """Returns True if a candidate with this importance and score is to be forgotten."""
        return (self.max_importance is None or importance <= self.max_importance) and (
            self.max_score is None or score <= self.max_score
        )


class ForgetRequest(core.Owned):
    model_config = core.example({"agent_id": "support", "user_id": "ada", "policy": {"older_than_days": 365}})

    policy: PolicyIn
    dry_run: core.Flag = Field(True, description="Only say what would go.")


BATCH = 200
SHOWN = 100
"""The number of candidates that a dry run lists."""


class Forgetting:
    """Forgets memories within the scope of a caller or a job."""

    def __init__(self, memories: MemoryRepository, clock: Clock) -> None:
        self._memories, self._clock = memories, clock
        self._decays = Decays(memories.store, memories.scope.tenant)

    @property
    def scope(self) -> Scope:
        """The scope of the caller or job."""
        return self._memories.scope

    async def request(self, body: ForgetRequest) -> WriteResult[queue.Operation]:
        """Returns 202 with the operation that archives. The job has the bindings of the caller's key."""
        scope = self.scope
        agent_id, user_id = _only(body.agent_id, scope.agents), _only(body.user_id, scope.users)
        scope.require_write(agent_id, user_id)
        payload: queue.Payload = {
            "policy": body.policy.model_dump(),
            "agent_id": agent_id,
            "user_id": user_id,
            **scope.bindings(),
        }
        answer, changes = queue.start(
            scope, queue.FORGET, payload, self._clock.now(), agent_id=agent_id, user_id=user_id
        )
        return WriteResult(answer, changes, 202)

    async def plan(self, body: ForgetRequest) -> ForgetPlan:
        """Returns what would be forgotten, the lowest score first. Damaged memories are left out and logged, as the run
        does."""
        chosen = self._chosen(body.policy, having(body.model_dump(), "agent_id", "user_id"))
        forgettable: list[Forgettable] = []
        with queue.collecting():
            async for memory in chosen:
                now_ms = to_ms(self._clock.now())
                with queue.skipping(MEMORIES, memory["memory_id"]):
                    points, reasons = score(memory, now_ms)
                    forgettable.append(
                        {
                            "memory_id": memory["memory_id"],
                            "content": memory["content"],
                            "memory_type": memory["memory_type"],
                            "importance": await self._decays.importance(memory, now_ms),
                            "score": points,
                            "reasons": reasons,
                        }
                    )
        forgettable.sort(key=lambda item: (item["score"], item["memory_id"]))
        items = list(map(_in_whole_numbers, forgettable[:SHOWN]))
        return {"dry_run": True, "total": len(forgettable), "items": items}

    async def _chosen(self, policy: PolicyIn, owner: Filter) -> AsyncIterator[MemoryRecord]:
        """Yields candidates in keyset batches, so that no job loads a whole collection."""
        now = self._clock.now()
        before = rfc3339(now - timedelta(days=policy.older_than_days))
        where = both(owner, policy.candidates(rfc3339(now), before), self.scope.writable())
        keep = split_filter({"metadata": policy.metadata}, MEMORY_FIELDS, MEMORIES).keep
        async for memories in pages(partial(self._memories.find, where), MEMORIES, BATCH):
            for memory in memories:
                chosen = False
                with queue.skipping(MEMORIES, memory["memory_id"]):
                    importance = await self._decays.importance(memory, to_ms(now))
                    points, _ = score(memory, to_ms(now))
                    chosen = (keep is None or keep(memory)) and policy.forgets(importance, points)
                if chosen:
                    yield memory

    async def batches(self, policy: PolicyIn, owner: Filter) -> AsyncIterator[list[MemoryRecord]]:
        batch: list[MemoryRecord] = []
        async for memory in self._chosen(policy, owner):
            batch.append(memory)
            if len(batch) == BATCH:
                yield batch
                batch = []
        if batch:
            yield batch

    def archive(self, memory: MemoryRecord, by: str) -> list[Change]:
        """Returns the changes that archive a memory. `by` is the operation's id, by which an undo finds it."""
        now = rfc3339(self._clock.now())
        return self._memories.revise(memory, {"status": "archived", "archived_by": by, "archived_at": now}, now)

    async def archived(self, by: str) -> AsyncIterator[MemoryRecord]:
        """Yields the memories that an operation archived and nobody has restored."""
        where = both(Eq("archived_by", by), Eq("status", "archived"))
        async for memories in pages(partial(self._memories.find, where), MEMORIES, BATCH):
            for memory in memories:
                yield memory

    def bring_back(self, memory: MemoryRecord) -> list[Change]:
        """Returns the changes that restore an archived memory. The commit fails on a unique key if another memory took
        its place."""
        now = rfc3339(self._clock.now())
        return self._memories.revise(memory, {"status": "active", "archived_by": None, "archived_at": None}, now)


def _in_whole_numbers(item: Forgettable) -> Forgettable:
    """Returns a candidate with whole numbers: nobody forgets by the ninth digit of an age."""
    reasons: list[Reason] = [{**reason, "points": round(reason["points"])} for reason in item["reasons"]]
    return {**item, "score": round(item["score"]), "reasons": reasons}


def _only(named: str | None, bound: frozenset[str] | None) -> str | None:
    """Returns the named owner, or else the only one that the key is bound to."""
    return next(iter(bound)) if named is None and bound is not None and len(bound) == 1 else named


# --- Jobs: archiving by policy, its undo, and expiry ------------------------------------------------------------------

AT_ONCE = 50
"""The number of commits that run concurrently."""
OPERATION_DAYS = 30
"""How long finished operations and failed jobs can be asked for."""
RETENTION = "retention"


class Outlived(NamedTuple, Generic[R]):
    """Records that a sweep deletes. `removal` returns the changes that delete one. `besides` returns what else changes
    if all of these of a tenant go: then they go in one commit."""

    collection: Collection[R]
    where: Filter
    removal: Callable[[R], list[Change]]
    besides: Callable[[str, list[R]], Awaitable[list[Change]]] | None = None


class ForgettingJobs:
    """Runs retention jobs."""

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        clock: Clock,
        retention: RetentionSettings,
        teller: Callable[[], DescribeDay] | None = None,
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
        policy, owner = PolicyIn.model_validate(request["policy"]), having(request, "agent_id", "user_id")
        by = str(run.lease.job.operation_id)
        done = 0
        async for memories in forgetting.batches(policy, owner):
            done += await self._commit_each(run, MEMORIES, memories, lambda memory: forgetting.archive(memory, by))
            await run.progress(done, None)
        archived = await self._store.count(MEMORIES, run.tenant, Eq("archived_by", by))
        # counted from the request, so that nothing is purged while an undo is possible
        asked_at = parse_rfc3339(run.lease.doc["created_at"])
        until = rfc3339(asked_at + timedelta(days=self._retention.archive_days))
        return Done({"archived": archived}, undo={"by": by, "until": until} if archived else None)

    async def undo(self, run: Run) -> Done:
        """Restores what an operation archived, where that is still possible."""
        forgetting = self._forgetting(Scope(run.tenant))

        async def back(memory: MemoryRecord) -> list[Change]:
            return forgetting.bring_back(memory)

        return await undo_each(run, MEMORIES, forgetting.archived(run.payload["undo"]["by"]), back)

    async def _commit_each(
        self, run: Run, collection: Collection[R], records: Sequence[R], plan: Callable[[R], list[Change]]
    ) -> int:
        """Commits the changes that `plan` makes of each record by themselves, so that a conflict in one does not affect
        the others. Returns the number committed. Records that it cannot handle are skipped."""
        planned, made = queue.handled(collection, records, plan), 0
        for at in range(0, len(planned), AT_ONCE):
            some = planned[at : at + AT_ONCE]
            made += sum(await asyncio.gather(*(self._committed(run, changes) for _, changes in some)))
        return made

    async def _committed(self, run: Run, changes: list[Change]) -> bool:
        with suppress(CommitConflict):
            await run.commit(changes)
            return True
        return False

    # --- Scheduled runs -----------------------------------------------------------------------------------------------

    async def expire(self, run: Run) -> Done:
        """Deletes expired records, which reads have hidden since they expired, archived memories after their grace
        time, and old entries of the change log."""
        swept = {name: await self._sweep(run, outlived) for name, outlived in self._expired().items()}
        if _tenant(run) is None:
            swept["changes"] = await self._store.change_log.prune()
        return Done(swept)

    async def has_expired(self) -> bool:
        """Returns True if `expire` would find work. Only reads."""
        expired = [(outlived.collection, outlived.where) for outlived in self._expired().values()]
        return await self._store.change_log.has_expired() or await anything(self._store, expired)

    def _expired(self) -> dict[str, Outlived]:
        past = Range("expires_at", le=rfc3339(self._clock.now()))
        grace = rfc3339(self._clock.now() - timedelta(days=self._retention.archive_days))
        store = self._store

        def without_memory(memory: MemoryRecord) -> list[Change]:
            return MemoryRepository(store, Scope(memory["tenant_id"])).remove([memory])

        def disputes_over(tenant: str, memories: list[MemoryRecord]) -> Awaitable[list[Change]]:
            return MemoryRepository(store, Scope(tenant)).disputes_over(memories, rfc3339(self._clock.now()))

        def without_session(session: SessionRecord) -> list[Change]:
            return SessionRepository(store, Scope(session["tenant_id"])).remove(session)

        def without_task(task: TaskRecord) -> list[Change]:
            return TaskRepository(store, Scope(task["tenant_id"])).remove(task)

        gone = both(Not(Absent("archived_by")), Eq("status", "archived"), Range("archived_at", le=grace))
        return {
            "memories": Outlived(MEMORIES, past, without_memory, disputes_over),
            "archived": Outlived(MEMORIES, gone, without_memory, disputes_over),
            "sessions": Outlived(SESSIONS, past, without_session),
            "tasks": Outlived(TASKS, past, without_task),
            "idempotency_keys": Outlived(IDEMPOTENCY, past, partial(_without, IDEMPOTENCY)),
            "feedback_notes": Outlived(FEEDBACK, past, partial(_without, FEEDBACK)),
        }

    async def _sweep(self, run: Run, outlived: Outlived) -> int:
        tenant, collection = _tenant(run), outlived.collection
        if run.payload.get("dry_run"):
            return await self._store.count(collection, tenant, outlived.where)
        swept = 0
        async for records in pages(partial(self._store.find, collection, tenant, outlived.where), collection, BATCH):
            if outlived.besides is None:
                swept += await self._commit_each(run, collection, records, outlived.removal)
                continue
            for of_tenant in {record["tenant_id"] for record in records}:
                gone, besides = [record for record in records if record["tenant_id"] == of_tenant], list[Change]()
                with queue.skipping(collection, gone[0][collection.id_field]):
                    besides = await outlived.besides(of_tenant, gone)
                if not besides:
                    swept += await self._commit_each(run, collection, gone, outlived.removal)
                elif await self._committed(run, [*chain(*map(outlived.removal, gone)), *besides]):
                    swept += len(gone)
        return swept

    async def retain(self, run: Run) -> Done:
        """Rolls up old actions to one memory for each day, archives messages that nobody has read for `message_days`,
        and deletes old operations, failed jobs and audit entries."""
        result = {"rolled_up": await self._roll_up(run), "archived": await self._archive_unused(run)}
        return Done(result | {name: await self._sweep(run, old) for name, old in self._outlived().items()})

    async def has_outlived(self) -> bool:
        """Returns True if `retain` would find work. Only reads."""
        outlived = [(old.collection, old.where) for old in self._outlived().values()]
        unused, actions = (MEMORIES, self._unused()), (ACTIONS, self._old_actions())
        return await anything(self._store, [actions, unused, *outlived])

    def _outlived(self) -> dict[str, Outlived]:
        days = self._retention
        ended = both(In("status", queue.ENDED), self._older("updated_at", max(OPERATION_DAYS, days.archive_days + 1)))
        failed = both(Eq("status", "failed"), self._older("run_at", OPERATION_DAYS))
        return {
            "operations": Outlived(queue.OPERATIONS, ended, partial(_without, queue.OPERATIONS)),
            "failed_jobs": Outlived(queue.JOBS, failed, partial(_without, queue.JOBS)),
            "audit": Outlived(AUDIT, self._older("created_at", days.audit_days), partial(_without, AUDIT)),
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
        summaries = DaySummaries(self._store, self._embedder, self._clock)
        # by keyset, since what was skipped stays
        async for page in pages(partial(self._store.find, ACTIONS, tenant, old), ACTIONS, MOST):
            countable = [action for action, _ in queue.handled(ACTIONS, page, counted)]
            for day, actions in by_day(countable).items():
                done += await summaries.add(run, day, actions, tell)
        return done

    async def _archive_unused(self, run: Run) -> int:
        tenant, unused = _tenant(run), self._unused()
        if run.payload.get("dry_run"):
            return await self._store.count(MEMORIES, tenant, unused)

        def archive(memory: MemoryRecord) -> list[Change]:
            return self._forgetting(Scope(memory["tenant_id"])).archive(memory, RETENTION)

        done = 0
        async for memories in pages(partial(self._store.find, MEMORIES, tenant, unused), MEMORIES, BATCH):
            done += await self._commit_each(run, MEMORIES, memories, archive)
        return done

    def _forgetting(self, scope: Scope) -> Forgetting:
        return Forgetting(MemoryRepository(self._store, scope), self._clock)


def _without(collection: Collection[R], record: R) -> list[Change]:
    """Returns the change that deletes a record that no others belong to, unless it is changed meanwhile."""
    expect = {name: record[name] for name in ("expires_at", "updated_at", "status") if name in record}
    return [Delete(collection, record["tenant_id"], record[collection.id_field], expect)]


def _tenant(run: Run) -> str | None:
    """Returns the tenant of the run, or None for scheduled jobs, which work on every tenant."""
    return None if run.tenant == SYSTEM else run.tenant


# --- The roll-up of old actions: one memory for each day, and the figures of the day ----------------------------------


class Day(NamedTuple):
    """What the actions of a group have in common. `date`: in UTC, such as `2026-05-01`."""

    tenant: str
    agent: str | None
    user: str | None
    date: str


MAX_IDS = 10_000
MOST = 1_000
"""The limit of actions that one commit rolls up."""
IMPORTANCE = 0.4
TEXT = "text"
CORRECTION_CHARS = 500
MAX_CORRECTIONS, SHOWN_CORRECTIONS = 50, 10
"""The limits of corrections that a day's summary keeps and that its content tells: the last ones."""


def by_day(actions: Iterable[ActionRecord]) -> dict[Day, list[ActionRecord]]:
    days: dict[Day, list[ActionRecord]] = {}
    for action in actions:
        day = Day(action["tenant_id"], action["agent_id"], action["user_id"], action["timestamp"][:10])
        days.setdefault(day, []).append(action)
    return days


def counts(day: Iterable[DayCell], actions: Iterable[ActionRecord], earlier: core.JsonObject) -> core.JsonObject:
    """Returns the metadata of the day's summary: counts by outcome and by type, with tools, ratings and corrections if
    there are any. `day`: the figures of the day. `earlier`: the metadata so far; what else a caller has added stays."""
    outcomes, types, tools, ratings = (Counter[str]() for _ in range(4))
    for cell in day:
        number = sum(cell["outcomes"].values())
        outcomes.update(cell["outcomes"])
        types[cell["action_type"]] += number
        tools.update({cell["tool"]: number} if cell["tool"] else {})
        ratings.update(cell["ratings"])
    corrections = _corrections(earlier)
    for action in actions:
        if correction := (action.get("feedback") or {}).get("correction"):
            what = {"action_id": action["action_id"], "action_type": action["action_type"]}
            corrections.append({**what, "correction": correction[:CORRECTION_CHARS]})
    told: core.JsonObject = {**earlier, "outcomes": {**_sorted(outcomes)}, "types": {**_sorted(types)}}
    for name, numbers in (("tools", tools), ("ratings", ratings)):
        told |= {name: {**_sorted(numbers)}} if numbers else {}
    return told | ({"corrections": [*corrections[-MAX_CORRECTIONS:]]} if corrections else {})


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))


def counted(action: ActionRecord) -> tuple[Day, list[DayCell]]:
    ((day, _),) = by_day([action]).items()
    return day, cells([action])


def _corrections(counts: core.JsonObject) -> list[core.JsonObject]:
    corrections = counts.get("corrections")
    given = corrections if isinstance(corrections, list) else []
    names = ("action_id", "action_type", "correction")
    return [
        entry for entry in given if isinstance(entry, dict) and all(isinstance(entry.get(name), str) for name in names)
    ]


def text_of(counts: core.JsonObject) -> str | None:
    """Returns the language model's text about the day, or None."""
    text = counts.get(TEXT)
    return text if isinstance(text, str) else None


def sentence(day: str, counts: core.JsonObject) -> str:
    """Returns the content of a day's summary: its counts, tools, ratings and last corrections, and the model's text if
    there is one."""
    outcomes, types, tools, ratings = (
        cast(dict[str, int], counts.get(of) or {}) for of in ("outcomes", "types", "tools", "ratings")
    )
    total = sum(outcomes.values())
    parts = [f"On {day}: {total} actions ({_counts_in_words(outcomes)}); {_counts_in_words(types)}."]
    if tools:
        parts.append(f"Tools: {_counts_in_words(tools)}.")
    if ratings:
        rated = sum(ratings.values())
        mean = sum(int(rating) * number for rating, number in ratings.items()) / max(rated, 1)
        parts.append(f"Rated {mean:.1f} of 5 ({rated} ratings).")
    if corrections := _corrections(counts)[-SHOWN_CORRECTIONS:]:
        listed = "; ".join(f"{entry['action_type']}: {entry['correction']}" for entry in corrections)
        parts.append(f"Corrected: {listed}.")
    return " ".join([*parts, *([text] if (text := text_of(counts)) else [])])


def _counts_in_words(counts: dict[str, int]) -> str:
    largest_first = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return ", ".join(f"{number} {name}" for name, number in largest_first)


class DaySummaries:
    """Writes the summaries of days."""

    def __init__(self, store: Store, embedder: Embedder, clock: Clock) -> None:
        self._store, self._embedder, self._clock = store, embedder, clock

    async def add(self, run: Run, day: Day, actions: list[ActionRecord], tell: DescribeDay | None) -> int:
        """Summarizes the actions of a day and deletes them in the same commit. Late actions are added to the day's
        summary. Returns how many: none if an earlier summary of the day cannot be handled, which is then skipped with
        its day."""
        tenant, agent, user, date = day
        memories = MemoryRepository(self._store, Scope(tenant))
        holders = await memories.with_key(agent, user, f"{DAY_KEY}{date}")
        holder = holders[0] if holders else None
        named = (MEMORIES, holder["memory_id"]) if holder else (ACTIONS, actions[0]["action_id"])
        with queue.skipping(*named):
            # `holder`: the memory that has the key of the day's summary. A caller's own is not changed: these actions
            # get a summary of theirs
            is_callers = holder is not None and holder["source"]["origin"] != "consolidation"
            begun = f"{date}T00:00:00.000Z"
            of_day = both(of_partition(agent, user), Eq("day", begun))
            known = await self._store.find(ACTION_DAYS, tenant, of_day, limit=1)
            figures = cells(actions, known[0]["cells"] if known else [])
            earlier = {} if holder is None or is_callers else holder["metadata"]
            metadata = counts(cells(actions) if is_callers else figures, actions, earlier)
            ids = [action["action_id"] for action in actions]
            origin: Source = {}
            if tell is not None and (description := await tell(actions, text_of(metadata))):
                metadata |= {TEXT: description["text"]}
                origin = {"model": description["model"], "prompt_version": description["prompt_version"]}
            embeddings, now = Embeddings(self._embedder), rfc3339(self._clock.now())
            content = sentence(date, metadata)
            if holder is not None and not is_callers:
                action_ids = [*holder["source"]["action_ids"], *ids][:MAX_IDS]
                source: Source = {**holder["source"], **origin, "action_ids": action_ids}
                changed = revision(holder, {"content": content, "metadata": metadata}, now) | {"source": source}
                _, changes = await memories.rewritten(holder, changed, now, embeddings)
                summary = holder
            else:
                source = {"origin": "consolidation", "action_ids": ids[:MAX_IDS], **origin}
                fields: MemoryRecord = {
                    "agent_id": agent,
                    "user_id": user,
                    "key": None if holder is not None else f"{DAY_KEY}{date}",
                    "memory_type": "summary",
                    "content": content,
                    "importance": IMPORTANCE,
                    "metadata": metadata,
                    "event_at": begun,
                }
                summary, changes = await memories.add(new_memory(fields, source, now, unique=False), embeddings)
                summary = summary | {"tenant_id": tenant}
            if known:
                fields_of_day: ActionDayRecord = {"cells": figures, "updated_at": now}
                expect = {"version": known[0]["version"]}
                noted: Change = Update(ACTION_DAYS, tenant, known[0]["day_id"], fields_of_day, {"version": 1}, expect)
            else:
                new: ActionDayRecord = {
                    "tenant_id": tenant,
                    "day_id": new_id("day"),
                    "agent_id": agent,
                    "user_id": user,
                    "day": begun,
                    "cells": figures,
                    "version": 1,
                    "created_at": now,
                    "updated_at": now,
                }
                noted = Insert(ACTION_DAYS, new)
            deletes: list[Change] = [Delete(ACTIONS, tenant, action_id) for action_id in ids]
            await run.commit([*changes, *roll_ups(summary, ids, now), noted, *deletes])
            return len(actions)
        return 0


# --- Decay: the importance of memories is written down, with histograms of it -----------------------------------------

DECAY_BATCH = 500
BARS = 10
"""The number of bars of a histogram."""
WORTH_WRITING = 0.01
"""The least change that is stored. Reads compute importance anyway, so stored values may lag by less than this; they
are written about every 20 days instead of each hour."""


class DecayGroup(NamedTuple):
    """Memories with the same decay: those of agents with the same settings of their own, or all others."""

    decay: DecayCurve
    where: Filter


class Histograms(TypedDict):
    """The number of memories, and of those in each bar of their stored and of their current importance."""

    memories: int
    before: list[int]
    after: list[int]


class DecayJob:
    """Stores decayed importance. Changes of less than `least` are not stored."""

    def __init__(self, store: Store, clock: Clock, least: float = 0.0) -> None:
        self._store, self._clock, self._least = store, clock, least

    async def handle(self, run: Run) -> Done:
        """Runs the job for one tenant or, under `SYSTEM`, for all."""
        tenant = None if run.tenant == SYSTEM else run.tenant
        bound = Scope.of_bindings(run.tenant, run.payload).writable()
        within = both(having(run.payload, "agent_id", "user_id"), bound)
        if run.payload.get("dry_run"):
            return Done({**await self.dry_run(tenant, within=within)})
        for memory_id in await self._store.undecayable(MEMORIES, tenant, within):
            queue.note_skipped(MEMORIES, memory_id, ValueError.__name__)
        return Done({"changed": await self.apply(tenant, within)})

    async def has_work(self) -> bool:
        """Returns True if any importance has decayed far enough to be stored. Only reads."""
        now = rfc3339(self._clock.now())
        for group in await self._groups(None):
            if await self._store.would_change(MEMORIES, None, self._rule(group, now), group.where):
                return True
        return False

    async def apply(self, tenant: str | None, within: Filter = EVERYTHING) -> int:
        """Stores decayed importance of memories that match `within`. Returns the number of changed memories. Tenant
        None means every tenant."""
        now, changed = rfc3339(self._clock.now()), 0
        for group in await self._groups(tenant):
            rule = self._rule(group, now)
            changed += await self._store.apply(MEMORIES, tenant, rule, both(group.where, within))
        return changed

    def _rule(self, group: DecayGroup, now: str) -> DecayRule:
        decay = group.decay
        return DecayRule(now, float(decay.factor), float(decay.grace_days), float(decay.floor), self._least)

    async def dry_run(
        self, tenant: str | None, step: Callable[[int], object] = lambda seen: None, within: Filter = EVERYTHING
    ) -> Histograms:
        """Returns histograms of the stored and of the current importance of memories that match `within`. Calls `step`
        with the number of memories read so far."""
        now_ms = to_ms(self._clock.now())
        before, after, seen = [0] * BARS, [0] * BARS, 0
        for group in await self._groups(tenant):
            where = both(group.where, within)
            async for memories in pages(partial(self._store.find, MEMORIES, tenant, where), MEMORIES, DECAY_BATCH):
                for _, (stored, faded) in queue.handled(MEMORIES, memories, partial(_bars, group.decay, now_ms)):
                    before[stored] += 1
                    after[faded] += 1
                seen += len(memories)
                step(seen)
        return {"memories": seen, "before": before, "after": after}

    async def _groups(self, tenant: str | None) -> list[DecayGroup]:
        """Returns groups of memories with their decay. Every memory is in exactly one group."""
        own: dict[DecayCurve, dict[str, list[str]]] = {}
        async for agents in pages(partial(self._store.find, AGENTS, tenant), AGENTS, DECAY_BATCH):
            for agent, decay in queue.handled(AGENTS, agents, decay_of):
                if decay != DEFAULT_DECAY:
                    own.setdefault(decay, {}).setdefault(agent["tenant_id"], []).append(agent["agent_id"])
        named = {
            decay: _any_of(
                [And((Eq("tenant_id", owner), In("agent_id", tuple(agents)))) for owner, agents in tenants.items()]
            )
            for decay, tenants in own.items()
        }
        rest = DecayGroup(DEFAULT_DECAY, Not(_any_of(list(named.values()))) if named else EVERYTHING)
        return [rest, *(DecayGroup(decay, where) for decay, where in named.items())]


def _bars(decay: DecayCurve, now_ms: int, memory: MemoryRecord) -> tuple[int, int]:
    """Returns the bars of a memory's stored and current importance."""
    faded = importance(memory["base_importance"], to_ms(memory["anchored_at"]), now_ms, memory["pinned"], decay)
    return bar_of(memory["importance"]), bar_of(faded)


def _any_of(parts: list[Filter]) -> Filter:
    """Combines filters as a balanced tree, since engines limit the depth of an expression."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return Or((_any_of(parts[:half]), _any_of(parts[half:])))


def decay_of(agent: AgentRecord) -> DecayCurve:
    return DecayCurve(**agent["settings"]["decay"])


def histogram(counts: Iterable[int]) -> list[str]:
    """Returns the names of the bars: `0.0–0.1` and so on."""
    return [f"{at / BARS:.1f}–{(at + 1) / BARS:.1f}" for at, _ in enumerate(counts)]


def bar_of(value: float) -> int:
    return min(int(value * BARS), BARS - 1)
