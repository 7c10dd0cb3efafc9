"""The consolidation job: for each agent and user it merges duplicate memories and learns from episodes.

A scheduled run looks for partitions with new records, in every tenant, and starts an operation for each that needs
work, so that each can be inspected and undone separately. A run that a caller asks for handles a whole tenant, agent or
user in one operation.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from hashlib import blake2b
from typing import NotRequired, TypedDict

import orjson

from app.actions.schemas import ACTIONS
from app.core.clock import new_id, rfc3339, to_ms
from app.core.language import wording
from app.core.schemas import Json, equal_json
from app.jobs import queue
from app.jobs.runner import Done, Run, has_looked, news
from app.learning.dependencies import Tools
from app.learning.derivations import DERIVATIONS, DerivationRecord, DerivationResult, MergedIds, commit_noted, undo_of
from app.learning.episodes import EpisodeLearning, skipped, waiting
from app.learning.learning_run import NO_LLM, Report
from app.llm.base import LLM
from app.memories.agents import Decays
from app.memories.repository import DUE, MemoryRepository, happened_at, of_partition
from app.memories.schemas import KEPT_AS_IS, MAX_TAGS, MEMORIES, MemoryRecord
from app.storage.changes import Change, CommitConflict, Update
from app.storage.repository import anything, having, pages, unexpired
from app.storage.schema import EVERYTHING, Absent, Collection, Eq, Filter, Not, Range, both
from app.storage.scope import SYSTEM, PartitionOwner, Scope

PAGE = 500


class LearnedEpisodes(TypedDict):
    """What a run learned from episodes, as fields of its result: how many, how many wait, and what the model spent."""

    episodes: int
    waiting: int
    llm: NotRequired[dict[str, int]]


class TidyingJobs:
    """Runs consolidation jobs. Without a language model they only merge."""

    def __init__(self, tools: Tools, llm: LLM | None) -> None:
        self._tools, self._llm = tools, llm
        self._merging = Deduplicator(tools)

    async def handle(self, run: Run) -> Done:
        """Runs a job for a tenant or a partition. Raises Unfinished if the model failed: the job is retried for the
        rest."""
        if run.tenant == SYSTEM:
            return await self._dispatch(run)
        scope = Scope.of_bindings(run.tenant, run.payload)
        # a scheduled run names the partition that it found, a request the owners
        partition = run.payload.get("partition")
        wanted = having(run.payload, "agent_id", "user_id")
        if partition:
            wanted = of_partition(partition["agent_id"], partition["user_id"])
        request = both(wanted, scope.writable())
        dry_run = bool(run.payload.get("dry_run"))
        merged = await self._merge(run, scope, request, dry_run=dry_run)
        report = Report()
        if dry_run or self._llm is None:
            learned: LearnedEpisodes = {
                "episodes": 0,
                "waiting": await self._tools.store.count(ACTIONS, run.tenant, waiting(request)),
            }
            report.parts = skipped(learned["waiting"], "a dry run asks no model" if dry_run else NO_LLM)
        else:
            learned = await self._learn(run, scope, request, self._llm, report)
        if report.failed and (report.waits or not run.lease.last_attempt):
            raise report.unfinished()
        result = {"dry_run": dry_run, "memories": merged.report(), **learned, "parts": report.parts}
        left = learned["waiting"] and not dry_run and self._llm is not None  # without a model they are `skipped`
        whole = merged.whole and not report.failed and not left
        undo = None if dry_run else await undo_of(run, self._tools)
        return Done(result, undo, "succeeded" if whole else "partial")

    async def _merge(self, run: Run, scope: Scope, request: Filter, *, dry_run: bool) -> "Merged":
        merged, partitions = await self._merging.merged_before(run), await self._with_memories(run.tenant, request)
        for number, partition in enumerate(partitions, start=1):
            groups = await self._merging.plan(scope, partition.agent, partition.user)
            if dry_run:
                merged.plan(groups)
            else:
                await self._merging.apply(run, scope, groups, merged)
            await run.progress(number, len(partitions))
        return merged

    async def _learn(self, run: Run, scope: Scope, request: Filter, llm: LLM, report: Report) -> LearnedEpisodes:
        """Learns from the episodes of one partition after the other, within the run's budget."""
        episode_learning, budget = EpisodeLearning(self._tools, llm), llm.budget(self._tools.allowance(run.tenant))
        done = 0
        for partition in await self._with_episodes(run.tenant, request):
            assert partition.agent is not None
            done += await episode_learning.learn(run, scope, partition.agent, partition.user, budget, report)
            if report.failed:
                break
        left = await self._tools.store.count(ACTIONS, run.tenant, waiting(request))
        return {"episodes": done, "waiting": left, "llm": budget.spent}

    # --- Scheduled runs -----------------------------------------------------------------------------------------------

    async def has_work(self) -> bool:
        """Returns True if a scheduled run may find work. Only reads."""
        schedule = await self._tools.store.get(queue.SCHEDULES, SYSTEM, queue.CONSOLIDATION)
        wanted: list[tuple[Collection, Filter]] = [
            (MEMORIES, self._may_have_duplicates(news(schedule))),
            (DERIVATIONS, self._past_undo()),
        ]
        if self._llm is not None:
            wanted.append((ACTIONS, waiting(EVERYTHING)))
        return await anything(self._tools.store, wanted)

    async def _dispatch(self, run: Run) -> Done:
        """Starts an operation for each partition that needs work since the previous run."""
        begun = self._tools.clock.now()
        created = news(await run.store.get(queue.SCHEDULES, SYSTEM, queue.CONSOLIDATION))
        partitions = {
            partition: None
            for partition in await self._with_memories(None, created)
            if await self._merging.plan(Scope(partition.tenant), partition.agent, partition.user)
        }
        if self._llm is not None:
            partitions |= dict.fromkeys(await self._with_episodes(None, EVERYTHING))
        for partition in partitions:
            owner = {"agent_id": partition.agent, "user_id": partition.user}
            payload = {"dry_run": False, "partition": owner}
            _, changes = queue.start(
                Scope(partition.tenant), queue.CONSOLIDATION, payload, self._tools.clock.now(), **owner
            )
            await run.commit(changes)
        with suppress(CommitConflict):
            await run.commit([has_looked(queue.CONSOLIDATION, begun)])
        return Done({"operations": len(partitions), "undo_ended": await self._end_undo(run)})

    async def _end_undo(self, run: Run) -> int:
        """Removes the undo data of derivations that can no longer be undone."""
        ended = 0
        find = partial(self._tools.store.find, DERIVATIONS, None, self._past_undo())
        async for notes in pages(find, DERIVATIONS, PAGE):
            for note in notes:
                fields: DerivationRecord = {"operation_id": None, "undo": []}
                with suppress(CommitConflict):  # the derivation was just erased with its user
                    await run.commit([Update(DERIVATIONS, note["tenant_id"], note["derivation_id"], set=fields)])
                    ended += 1
        return ended

    def _past_undo(self) -> Filter:
        last = self._tools.clock.now() - timedelta(days=self._tools.settings.retention.archive_days + 1)
        return both(Range("created_at", lt=rfc3339(last)), Not(Absent("operation_id")))

    # --- Partitions with work -----------------------------------------------------------------------------------------

    async def _with_memories(self, tenant: str | None, where: Filter) -> list[PartitionOwner]:
        """Returns the partitions with memories that may be duplicates, ordered by their first memory."""
        return await self._partitions(MEMORIES, tenant, self._may_have_duplicates(where))

    def _may_have_duplicates(self, where: Filter) -> Filter:
        return both(where, may_have_duplicates(rfc3339(self._tools.clock.now())))

    async def _with_episodes(self, tenant: str | None, where: Filter) -> list[PartitionOwner]:
        return await self._partitions(ACTIONS, tenant, waiting(where))

    async def _partitions(self, collection: Collection, tenant: str | None, where: Filter) -> list[PartitionOwner]:
        owned = pages(partial(self._tools.store.find, collection, tenant, where), collection, PAGE)
        partitions = {
            PartitionOwner(record["tenant_id"], record.get("agent_id"), record.get("user_id")): None
            async for page in owned
            for record in page
        }
        return list(partitions)


# --- Duplicates: memories of one partition that say the same are found and merged into one of them --------------------

AT_ONCE = 500
"""The limit of memories that one commit retires."""


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    """Memories that say the same. One of them survives and stands for all."""

    survivor: MemoryRecord
    gains: MemoryRecord
    """The fields of the survivor that change."""
    retired: Sequence[MemoryRecord]
    left: int = 0
    """The number of duplicates that are left for another run."""

    @property
    def ids(self) -> MergedIds:
        return {"kept": self.survivor["memory_id"], "retired": [memory["memory_id"] for memory in self.retired]}


def may_have_duplicates(now: str) -> Filter:
    """Filters memories that may be duplicates. Messages and passages keep a conversation or a document complete, each
    summary belongs to its own day or session, and an issue that recurs is not the one that was closed."""
    kinds = (Not(Eq("memory_type", kind)) for kind in ("message", "summary", "issue", *KEPT_AS_IS))
    return both(Eq("status", "active"), *kinds, unexpired(now))


def duplicate_digest(memory: MemoryRecord) -> bytes:
    """Returns a digest that is equal for memories that say the same. It is small, so that all memories of a partition
    can be compared."""
    valid = (memory["valid_from"], memory["valid_until"], memory["expires_at"], happened_at(memory))
    times = *valid, *(memory.get(name) for name in DUE)
    condition = wording(memory["context"]) if memory["context"] else None
    owner = (memory["agent_id"], memory["user_id"])
    text = (memory["memory_type"], wording(memory["content"]), condition)
    return blake2b(orjson.dumps([*owner, *text, *times]), digest_size=16).digest()


def grouped(memories: Iterable[MemoryRecord], importance: Mapping[str, float]) -> list[DuplicateGroup]:
    """Groups memories that say the same. `importance` is the current importance by id.

    The survivor is one that is pinned, or else has a key, or else has the most trust, or else has metadata, or else the
    greatest importance, or else is the oldest. A memory is never retired if it is pinned, has a key, has more trust
    than the survivor, has other metadata, or was restored by an undo.
    """
    duplicates: list[DuplicateGroup] = []
    rest = sorted(memories, key=lambda memory: _rank(memory, importance))
    while rest:
        survivor, *others = rest
        tags, alike, rest = set(survivor["tags"]), list[MemoryRecord](), list[MemoryRecord]()
        for memory in others:
            if not _gives_way(memory, survivor) or len(tags | {*memory["tags"]}) > MAX_TAGS:
                rest.append(memory)
                continue
            alike.append(memory)
            tags |= {*memory["tags"]}
        if retired := alike[:AT_ONCE]:
            gains, left = _gains(survivor, retired, importance), len(alike) - len(retired)
            duplicates.append(DuplicateGroup(survivor, gains, retired, left))
    return duplicates


def _rank(memory: MemoryRecord, importance: Mapping[str, float]) -> tuple[bool, bool, float, bool, float, str, str]:
    named, has_metadata = memory["key"] is not None, bool(memory["metadata"])
    strength = importance[memory["memory_id"]]
    return (
        not memory["pinned"],
        not named,
        -memory["trust"],
        not has_metadata,
        -strength,
        memory["created_at"],
        memory["memory_id"],
    )


def _gives_way(memory: MemoryRecord, survivor: MemoryRecord) -> bool:
    protected = memory["pinned"] or memory["key"] is not None or memory.get("kept_apart", False)
    metadata_stays = not memory["metadata"] or equal_json(memory["metadata"], survivor["metadata"])
    return not protected and metadata_stays and memory["trust"] <= survivor["trust"]


def _gains(survivor: MemoryRecord, retired: Sequence[MemoryRecord], importance: Mapping[str, float]) -> MemoryRecord:
    gains: MemoryRecord = {"supersedes": [*survivor["supersedes"], *(memory["memory_id"] for memory in retired)]}
    tags = list(dict.fromkeys(tag for memory in (survivor, *retired) for tag in memory["tags"]))
    if tags != survivor["tags"]:
        gains["tags"] = tags
    strongest = max((survivor, *retired), key=lambda memory: importance[memory["memory_id"]])
    if importance[strongest["memory_id"]] > importance[survivor["memory_id"]]:
        gains["importance"] = strongest["importance"]
        gains["base_importance"] = strongest["base_importance"]
        gains["anchored_at"] = strongest["anchored_at"]
    return gains


MEMORIES_READ = 200
"""The number of memories that one query reads."""
MOST = 1_000
"""The limit of memories that one run retires."""
SHOWN = 100
"""The number of groups whose ids the result lists."""


@dataclass(slots=True)
class Merged:
    """The result of a run: counts, and the ids of the first groups. It contains no texts, since operations outlive
    memories."""

    groups: list[MergedIds] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, group: MergedIds) -> None:
        self.counts["groups"] += 1
        self.counts["retired"] += len(group["retired"])
        if len(self.groups) < SHOWN:
            self.groups.append(group)

    def plan(self, groups: list[DuplicateGroup]) -> None:
        """Adds groups that a run merges, or would merge in a dry run."""
        for group in groups:
            self.add(group.ids)
            self.counts["left"] += group.left

    @property
    def whole(self) -> bool:
        """True if nothing is left for another run and every merge was verified."""
        return not self.counts["left"] and not self.counts["unverified"]

    def report(self) -> Json:
        """Returns counts and ids as the operation's result."""
        counts = {name: self.counts[name] for name in ("groups", "retired", "left", "unverified")}
        return {**counts, "items": self.groups}


class Deduplicator:
    """Merges duplicate memories."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def plan(self, scope: Scope, agent: str | None, user: str | None) -> list[DuplicateGroup]:
        """Returns the duplicates of a partition, the oldest first. A first pass keeps a digest of each memory; a second
        pass reads only memories that share a digest."""
        memories = MemoryRepository(self._tools.store, scope)
        where = both(of_partition(agent, user), may_have_duplicates(rfc3339(self._tools.clock.now())))
        seen: dict[bytes, list[str]] = {}
        async for page in pages(partial(memories.find, where), MEMORIES, MEMORIES_READ):
            for memory, digest in queue.handled(MEMORIES, page, duplicate_digest):
                seen.setdefault(digest, []).append(memory["memory_id"])
        duplicates: list[DuplicateGroup] = []
        for ids in (ids for ids in seen.values() if len(ids) > 1):
            duplicates += await self._read_and_group(memories, ids)
        return duplicates

    async def _read_and_group(self, memories: MemoryRepository, ids: list[str]) -> list[DuplicateGroup]:
        """Reads the memories again, since they may have changed since the first pass, and groups them."""
        active: list[MemoryRecord] = []
        for at in range(0, len(ids), MEMORIES_READ):
            stored = await memories.get_many(ids[at : at + MEMORIES_READ])
            active += [memory for memory in stored.values() if memory["status"] == "active"]
        decays, now = Decays(self._tools.store, memories.scope.tenant), to_ms(self._tools.clock.now())
        by_digest: dict[bytes, list[MemoryRecord]] = {}
        importance: dict[str, float] = {}
        for memory, digest in queue.handled(MEMORIES, active, duplicate_digest):
            memory_id = memory["memory_id"]
            with queue.skipping(MEMORIES, memory_id):  # each by itself, so that one does not end its whole group
                _rank(memory, {memory_id: 0.0})
                _gives_way(memory, memory)
                _gains(memory, [memory], {memory_id: 0.0})
                importance[memory_id] = await decays.importance(memory, now)
                by_digest.setdefault(digest, []).append(memory)
        return [group for alike in by_digest.values() for group in grouped(alike, importance)]

    async def merged_before(self, run: Run) -> Merged:
        """Returns the result of earlier attempts of the run."""
        merged = Merged()
        where = Eq("operation_id", str(run.lease.job.operation_id))
        async for notes in pages(partial(run.store.find, DERIVATIONS, run.tenant, where), DERIVATIONS, MEMORIES_READ):
            for note in notes:
                with queue.skipping(DERIVATIONS, note["derivation_id"]):
                    ids = note["result"].get("merged")
                    if isinstance(ids, dict):
                        merged.add(ids)
        return merged

    async def apply(self, run: Run, scope: Scope, groups: list[DuplicateGroup], merged: Merged) -> None:
        """Merges each group in its own commit, until this run has retired `MOST` memories. The rest is
        counted as left."""
        for group in groups:
            if merged.counts["retired"] + len(group.retired) > MOST:
                merged.counts["left"] += len(group.retired)
                continue
            committed = False
            with queue.skipping(MEMORIES, group.survivor["memory_id"]):
                committed = await self._commit(run, scope, group)
            if committed:
                merged.plan([group])
                merged.counts["unverified"] += await self._unverified(scope, group)
            else:
                merged.counts["left"] += len(group.retired)

    async def _commit(self, run: Run, scope: Scope, group: DuplicateGroup) -> bool:
        """Merges one group. Returns False if one of its memories has just changed; another run will
        look at it again."""
        memories, now = MemoryRepository(self._tools.store, scope), rfc3339(self._tools.clock.now())
        survivor_id = group.survivor["memory_id"]

        async def plan() -> tuple[DerivationResult, list[Change]]:
            changes = memories.revise(group.survivor, group.gains, now)
            for memory in group.retired:
                changes += memories.supersede(memory, survivor_id, now, merged=True)
            return {"merged": group.ids}, changes

        owner: DerivationRecord = {"agent_id": group.survivor["agent_id"], "user_id": group.survivor["user_id"]}
        try:
            await commit_noted(run, plan, new_id("der"), owner, attempts=1)
        except CommitConflict:
            return False
        return True

    async def _unverified(self, scope: Scope, group: DuplicateGroup) -> int:
        """Returns how many retired memories are not as they should be: stored, superseded, and replaced by the active
        survivor."""
        memories = MemoryRepository(self._tools.store, scope)
        survivor_id, retired_ids = group.ids["kept"], group.ids["retired"]
        stored = await memories.get_many([survivor_id, *retired_ids])
        survivor = stored.get(survivor_id)
        if survivor is None or survivor["status"] != "active":
            return len(retired_ids)
        retired = [stored.get(memory_id) for memory_id in retired_ids]
        return sum(
            memory is None or (memory["status"], memory["superseded_by"]) != ("superseded", survivor_id)
            for memory in retired
        )
