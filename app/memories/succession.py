"""What a new memory replaces: memories that it supersedes, and near-duplicates.

Of long texts only the first windows are compared, because a text that contains another one says more than that.
"""

from collections.abc import Collection, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from app.errors import Conflict, invalid
from app.memories.records import identity_hash
from app.memories.repository import MemoryRepository, of_pair
from app.memories.schemas import MEMORIES, MemoryRecord, Similar
from app.storage.changes import Change, IndexEntry, Update
from app.storage.repository import expired, pages, unexpired
from app.storage.schema import EVERYTHING, Eq, Filter, Not, both, matches
from app.storage.scope import ANY_AGENT, Partition
from app.storage.search import Floats, SearchQuery
from app.storage.text import TermIds

SIMILAR = 0.95
"""Minimum cosine of near-duplicates."""
MAX_SHOWN = 10
_NO_TERMS: TermIds = np.empty(0, np.uint32)


class NearDuplicate(NamedTuple):
    """A memory with nearly the same text."""

    memory: MemoryRecord
    cosine: float

    def shown(self, *, superseded: bool) -> Similar:
        """Returns it as responses list it."""
        return {
            "memory_id": self.memory["memory_id"],
            "content": self.memory["content"],
            "score": round(min(self.cosine, 1.0), 6),
            "superseded": superseded,
        }


class NearDuplicates:
    """Finds near-duplicates. Methods return them nearest first."""

    def __init__(self, memories: MemoryRepository, now: str) -> None:
        self._memories, self._now = memories, now
        self._written: dict[str, tuple[MemoryRecord, Floats | None]] = {}

    def add_written(self, memory: MemoryRecord, entry: IndexEntry) -> None:
        """Registers a memory that an item of this request writes.

        Later items compare with this text, not with the stored one.
        """
        self._written[memory["memory_id"]] = memory, entry.vector

    async def visible(self, memory: MemoryRecord, entry: IndexEntry, without: Collection[str]) -> list[NearDuplicate]:
        """Returns the nearest ones that the caller may see, at most `MAX_SHOWN`."""
        pairs = self._memories.scope.partitions(memory["agent_id"], memory["user_id"], include_shared=True)
        return (await self._near(memory, entry, pairs, EVERYTHING, MAX_SHOWN, without))[:MAX_SHOWN]

    async def retirable(self, memory: MemoryRecord, entry: IndexEntry, without: Collection[str]) -> list[NearDuplicate]:
        """Returns all near-duplicates that a write may retire: those of the same partition that are not messages."""
        pairs = (Partition(memory["agent_id"], memory["user_id"]),)
        return await self._near(memory, entry, pairs, Not(Eq("memory_type", "message")), None, without)

    async def _near(
        self,
        memory: MemoryRecord,
        entry: IndexEntry,
        pairs: tuple[Partition, ...],
        where: Filter,
        limit: int | None,
        without: Collection[str],
    ) -> list[NearDuplicate]:
        if entry.vector is None:
            return []
        without = {*without, memory["memory_id"]}
        stored = await self._stored(
            pairs, where, entry, None if limit is None else limit + len(without) + len(self._written)
        )
        nearest = [near for near in stored if near.memory["memory_id"] not in self._written]
        nearest += [
            near
            for near in self._of_this_request(entry.vector)
            if _is_in(pairs, near.memory) and matches(near.memory, where)
        ]
        return sorted(
            (near for near in nearest if near.memory["memory_id"] not in without), key=lambda near: -near.cosine
        )

    async def _stored(
        self, pairs: tuple[Partition, ...], where: Filter, entry: IndexEntry, limit: int | None
    ) -> list[NearDuplicate]:
        scope, store = self._memories.scope, self._memories.store
        where = both(Eq("status", "active"), unexpired(self._now), where)
        columns = await store.search(
            MEMORIES, SearchQuery(scope.tenant, pairs, where, entry.vector, entry.model, _NO_TERMS, first_windows=True)
        )
        near = np.flatnonzero(columns.matched & columns.has_vector & (columns.cosine >= SIMILAR))
        near = near[np.argsort(-columns.cosine[near], kind="stable")][:limit]
        fetched = await store.fetch(MEMORIES, scope.tenant, columns.rows[near]) if len(near) else []
        scored = zip(fetched, columns.cosine[near].tolist(), strict=True)
        return [NearDuplicate(hit.doc, cosine) for hit, cosine in scored if hit is not None and scope.sees(hit.doc)]

    def _of_this_request(self, vector: Floats) -> list[NearDuplicate]:
        written = [(memory, other) for memory, other in self._written.values() if other is not None]
        if not written:
            return []
        cosines: list[float] = (np.stack([other for _, other in written]) @ vector).tolist()
        return [
            NearDuplicate(memory, cosine)
            for (memory, _), cosine in zip(written, cosines, strict=True)
            if cosine >= SIMILAR
        ]


def _is_in(pairs: tuple[Partition, ...], memory: MemoryRecord) -> bool:
    agent, user = memory["agent_id"], memory["user_id"]
    return any(pair.user == user and pair.agent in (ANY_AGENT, agent) for pair in pairs)


class Succession:
    """Computes the changes of supersession. Methods commit nothing."""

    def __init__(self, memories: MemoryRepository, now: str) -> None:
        self._memories, self._now = memories, now

    async def deletion(self, memory: MemoryRecord) -> list[Change]:
        """Returns the changes that delete a memory. What it superseded comes back, and a dispute with it is over."""
        back, restored = await self._restored(memory)
        over = await Disputes(self._memories, self._now).over([memory], back)
        return [*self._memories.remove([memory]), *restored, *over]

    async def _restored(self, memory: MemoryRecord) -> tuple[list[MemoryRecord], list[Change]]:
        """Returns the predecessors of `memory`, which is being deleted, as they come back, and the changes.

        They become active again. If `memory` is superseded itself, its successor takes them over. Duplicates that a
        merge retired stay retired, because `memory` said the same.
        """
        predecessors = [other for other in await self._predecessors(memory) if not other.get("merged")]
        if memory["status"] == "superseded":
            return [], await self._hand_over(memory, predecessors)
        back, changes = list[MemoryRecord](), list[Change]()
        keys: set[str] = set()
        for predecessor in reversed(predecessors):
            fields: MemoryRecord = {"status": "active", "superseded_by": None, "dedupe_key": None}
            if (key := predecessor["key"]) is not None:
                # it loses its key if another memory has that key now, or a later predecessor gets it back
                holders = await self._memories.with_key(predecessor["agent_id"], predecessor["user_id"], key)
                if key in keys or any(holder["memory_id"] != memory["memory_id"] for holder in holders):
                    fields |= {"key": None, "identity_hash": identity_hash(predecessor | {"key": None})}
                keys.add(key)
            back.append(predecessor | fields)
            changes += self._memories.revise(predecessor, fields, self._now)
        return back, changes

    async def chain(self, memory: MemoryRecord) -> list[MemoryRecord]:
        """Returns all direct and indirect predecessors of `memory`."""
        predecessors: dict[str, MemoryRecord] = {}
        waiting = [memory]
        while waiting:
            for predecessor in await self._predecessors(waiting.pop()):
                if predecessor["memory_id"] not in predecessors:
                    predecessors[predecessor["memory_id"]] = predecessor
                    waiting.append(predecessor)
        return list(predecessors.values())

    async def release(self, memory: MemoryRecord) -> list[Change]:
        """Returns the change that removes `memory`, which a caller makes active, from the list of its successor."""
        return [
            self._linked(successor, [other for other in successor["supersedes"] if other != memory["memory_id"]])
            for successor in await self._successor(memory)
        ]

    async def _predecessors(self, memory: MemoryRecord) -> list[MemoryRecord]:
        superseded = await self._memories.of_same_pair(memory, memory["supersedes"])
        return [
            other
            for other in superseded
            if other["status"] == "superseded" and other["superseded_by"] == memory["memory_id"]
        ]

    async def _successor(self, memory: MemoryRecord) -> list[MemoryRecord]:
        """Returns a list of no or one memory."""
        named = [memory["superseded_by"]] if memory["superseded_by"] else []
        successors = await self._memories.of_same_pair(memory, named)
        return [successor for successor in successors if memory["memory_id"] in successor["supersedes"]]

    async def _hand_over(self, memory: MemoryRecord, predecessors: Sequence[MemoryRecord]) -> list[Change]:
        changes: list[Change] = []
        ids = [predecessor["memory_id"] for predecessor in predecessors]
        for successor in await self._successor(memory):
            others = [other for other in successor["supersedes"] if other not in (memory["memory_id"], *ids)]
            changes.append(self._linked(successor, [*others, *ids]))
            moved: MemoryRecord = {"superseded_by": successor["memory_id"]}
            changes += [
                self._memories.append(predecessor, moved, expect={"version": predecessor["version"]})
                for predecessor in predecessors
            ]
        return changes

    def _linked(self, successor: MemoryRecord, supersedes: list[str]) -> Update[MemoryRecord]:
        """Returns a change of links alone. The content stays the same, so the version does too."""
        expect: MemoryRecord = {"version": successor["version"], "supersedes": successor["supersedes"]}
        return self._memories.append(successor, {"supersedes": supersedes}, expect=expect)


BOTH = "both"
DISPUTED_AT_ONCE = 100


class Disputes:
    """Computes the changes that resolve a dispute. Methods commit nothing."""

    def __init__(self, memories: MemoryRepository, now: str) -> None:
        self._memories, self._now = memories, now

    async def resolve(self, disputed: MemoryRecord, keep: str) -> tuple[MemoryRecord, list[Change]]:
        """Returns the memory that is kept, with its new fields, and the changes.

        `keep` is the id of a memory, or `both`, which keeps `disputed` beside the others. Raises Conflict if `disputed`
        is not disputed or its key is taken, and Invalid if `keep` names no memory that can be kept.
        """
        if disputed["status"] != "disputed":
            raise Conflict(f"This memory is not disputed: it is {disputed['status']}.")
        contradicted = await self._memories.of_same_pair(disputed, disputed["contradicts"])
        against = [other for other in contradicted if other["status"] == "active" and not expired(other, self._now)]
        if keep == BOTH:
            return self._settled(disputed, {"status": "active"})
        if keep == disputed["memory_id"]:
            return await self._prefer(disputed, against)
        preferred = next((other for other in against if other["memory_id"] == keep), None)
        if preferred is None:
            raise invalid("/keep", "must be this memory, an active one that it contradicts, or both")
        _, changes = self._settled(disputed, {"status": "superseded", "superseded_by": keep})
        return preferred, changes

    async def over(self, gone: Sequence[MemoryRecord], back: Sequence[MemoryRecord] = ()) -> list[Change]:
        """Returns the changes for the memories that are disputed for `gone` alone, which are being deleted: they become
        active, with the key that they were sent with. If another memory has that key, such as one of `back`, which come
        back, that one is what they contradict from then on."""
        ids, changes, keys = {memory["memory_id"] for memory in gone}, list[Change](), dict[str, str]()
        for agent, user in {(memory["agent_id"], memory["user_id"]) for memory in gone}:
            of_pair_disputed = both(of_pair(agent, user), Eq("status", "disputed"))
            async for page in pages(partial(self._memories.find, of_pair_disputed), MEMORIES, DISPUTED_AT_ONCE):
                for disputed in page:
                    others = [other for other in disputed["contradicts"] if other not in ids]
                    if disputed["memory_id"] in ids or len(others) == len(disputed["contradicts"]):
                        continue
                    standing = await self._memories.of_same_pair(disputed, others)
                    if any(other["status"] == "active" and not expired(other, self._now) for other in standing):
                        continue
                    key = disputed["claimed_key"]
                    if key is not None and key not in keys:
                        holders = [*await self._memories.with_key(agent, user, key), *back]
                        held = (other["memory_id"] for other in holders if other["key"] == key)
                        keys[key] = next((other for other in held if other not in ids), disputed["memory_id"])
                    if key is not None and keys[key] != disputed["memory_id"]:
                        changes += self._memories.revise(disputed, {"contradicts": [keys[key]]}, self._now)
                    else:
                        changes += self._settled(disputed, {"status": "active", "key": key})[1]
        return changes

    async def _prefer(self, disputed: MemoryRecord, against: list[MemoryRecord]) -> tuple[MemoryRecord, list[Change]]:
        """Keeps `disputed` and retires the memories that it contradicts.

        Its trust becomes the highest of its own and theirs.
        """
        retired = [other["memory_id"] for other in against]
        key = disputed["key"] or disputed["claimed_key"]
        holders = []
        if key is not None:
            holders = await self._memories.with_key(disputed["agent_id"], disputed["user_id"], key)
        others = [holder for holder in holders if holder["memory_id"] not in retired]
        if not all(expired(other, self._now) for other in others):
            raise Conflict(f"Another active memory of this scope has the key {key}: keep both, or change that one.")
        room = self._memories.remove(others) if others else []
        freed = [
            change for other in against for change in self._memories.retire(other, disputed["memory_id"], self._now)
        ]
        settled, changes = self._settled(
            disputed,
            {
                "status": "active",
                "key": key,
                "trust": max(memory["trust"] for memory in (disputed, *against)),
                "supersedes": [*disputed["supersedes"], *retired],
            },
        )
        return settled, [*room, *freed, *changes]

    def _settled(self, disputed: MemoryRecord, fields: MemoryRecord) -> tuple[MemoryRecord, list[Change]]:
        fields = fields | {"contradicts": [], "claimed_key": None}
        fields["identity_hash"] = identity_hash(disputed | fields)  # the hash includes the key
        new = self._memories.as_updated(disputed, fields, now=self._now)
        return new, self._memories.revise(disputed, fields, self._now)
