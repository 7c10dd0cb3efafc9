"""Duplicates: memories of one partition that say the same are found and merged into one of them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b

import orjson

from app.core.clock import new_id, rfc3339, to_ms
from app.core.language import wording
from app.core.schemas import Json, equal_json
from app.jobs.runner import Run
from app.jobs.skipping import handled, skipping
from app.learning.dependencies import Tools
from app.learning.derivations import DERIVATIONS, DerivationRecord, DerivationResult, MergedIds, commit_noted
from app.memories.decays import Decays
from app.memories.repository import MemoryRepository, of_pair
from app.memories.schemas import MAX_TAGS, MEMORIES, MemoryRecord
from app.storage.changes import Change, CommitConflict
from app.storage.repository import pages, unexpired
from app.storage.schema import Eq, Filter, Not, both
from app.storage.scope import Scope

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
        """The group by its ids."""
        return {"kept": self.survivor["memory_id"], "retired": [memory["memory_id"] for memory in self.retired]}


def may_have_duplicates(now: str) -> Filter:
    """Filters memories that may be duplicates. Messages keep a conversation complete, each summary belongs to its own
    day or session, and an issue that recurs is not the one that was closed."""
    kinds = (Not(Eq("memory_type", kind)) for kind in ("message", "summary", "issue"))
    return both(Eq("status", "active"), *kinds, unexpired(now))


def duplicate_digest(memory: MemoryRecord) -> bytes:
    """Returns a digest that is equal for memories that say the same. It is small, so that all memories of a partition
    can be compared."""
    # the same rule as in `identity_hash`
    said_at = memory["source"]["origin"] == "extraction" and memory["memory_type"] != "experience"
    happened_at = None if said_at else memory["event_at"]
    times = (memory["valid_from"], memory["valid_until"], memory["expires_at"], happened_at)
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


PAGE = 200
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
        """Adds a group."""
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
        where = both(of_pair(agent, user), may_have_duplicates(rfc3339(self._tools.clock.now())))
        seen: dict[bytes, list[str]] = {}
        async for page in pages(partial(memories.find, where), MEMORIES, PAGE):
            for memory, digest in handled(MEMORIES, page, duplicate_digest):
                seen.setdefault(digest, []).append(memory["memory_id"])
        duplicates: list[DuplicateGroup] = []
        for ids in (ids for ids in seen.values() if len(ids) > 1):
            duplicates += await self._read_and_group(memories, ids)
        return duplicates

    async def _read_and_group(self, memories: MemoryRepository, ids: list[str]) -> list[DuplicateGroup]:
        """Reads the memories again, since they may have changed since the first pass, and groups them."""
        active: list[MemoryRecord] = []
        for at in range(0, len(ids), PAGE):
            stored = await memories.get_many(ids[at : at + PAGE])
            active += [memory for memory in stored.values() if memory["status"] == "active"]
        decays, now = Decays(self._tools.store, memories.scope.tenant), to_ms(self._tools.clock.now())
        by_digest: dict[bytes, list[MemoryRecord]] = {}
        importance: dict[str, float] = {}
        for memory, digest in handled(MEMORIES, active, duplicate_digest):
            memory_id = memory["memory_id"]
            with skipping(MEMORIES, memory_id):  # each by itself, so that one does not end its whole group
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
        async for notes in pages(partial(run.store.find, DERIVATIONS, run.tenant, where), DERIVATIONS, PAGE):
            for note in notes:
                with skipping(DERIVATIONS, note["derivation_id"]):
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
            with skipping(MEMORIES, group.survivor["memory_id"]):
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
                changes += memories.retire(memory, survivor_id, now, merged=True)
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
