"""What a new memory replaces: memories that it supersedes, and near-duplicates.

Of long texts only the first windows are compared, because a text that contains another one says more than that.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from app.errors import Conflict, invalid
from app.memories.models import MEMORIES
from app.memories.records import identity_hash
from app.memories.repository import MemoryRepository
from app.storage.changes import Change, IndexEntry, Update
from app.storage.repository import expired, unexpired
from app.storage.schema import EVERYTHING, Doc, Eq, Filter, Not, both, matches
from app.storage.scope import ANY_AGENT, Partition
from app.storage.search import Floats, SearchQuery
from app.storage.text import TermIds

SIMILAR = 0.95
"""Minimum cosine of near-duplicates."""
MAX_SHOWN = 10
_NO_TERMS: TermIds = np.empty(0, np.uint32)


class NearDuplicates:
    """Finds near-duplicates. Methods return documents with a field `cosine` added, nearest first."""

    def __init__(self, memories: MemoryRepository, now: str) -> None:
        self._memories, self._now = memories, now
        self._written: dict[str, tuple[Doc, Floats | None]] = {}

    def add_written(self, doc: Doc, entry: IndexEntry) -> None:
        """Registers a memory that an item of this request writes.

        Later items compare with this text, not with the stored one.
        """
        self._written[doc["memory_id"]] = doc, entry.vector

    async def seen(self, doc: Doc, entry: IndexEntry, without: Collection[str]) -> list[Doc]:
        """Returns the nearest ones that the caller may see, at most `MAX_SHOWN`."""
        pairs = self._memories.scope.pairs(doc["agent_id"], doc["user_id"], include_shared=True)
        return (await self._near(doc, entry, pairs, EVERYTHING, MAX_SHOWN, without))[:MAX_SHOWN]

    async def replaceable(self, doc: Doc, entry: IndexEntry, without: Collection[str]) -> list[Doc]:
        """Returns all near-duplicates in the same partition that are not messages."""
        pairs = (Partition(doc["agent_id"], doc["user_id"]),)
        return await self._near(doc, entry, pairs, Not(Eq("memory_type", "message")), None, without)

    async def _near(
        self,
        doc: Doc,
        entry: IndexEntry,
        pairs: tuple[Partition, ...],
        where: Filter,
        limit: int | None,
        without: Collection[str],
    ) -> list[Doc]:
        if entry.vector is None:
            return []
        without = {*without, doc["memory_id"]}
        stored = await self._stored(
            pairs, where, entry, None if limit is None else limit + len(without) + len(self._written)
        )
        near = [other for other in stored if other["memory_id"] not in self._written]
        near += [other for other in self._of_this_request(entry.vector) if _in(pairs, other) and matches(other, where)]
        return sorted((one for one in near if one["memory_id"] not in without), key=lambda one: -one["cosine"])

    async def _stored(
        self, pairs: tuple[Partition, ...], where: Filter, entry: IndexEntry, limit: int | None
    ) -> list[Doc]:
        scope, store = self._memories.scope, self._memories.store
        where = both(Eq("status", "active"), unexpired(self._now), where)
        columns = await store.search(
            MEMORIES, SearchQuery(scope.tenant, pairs, where, entry.vector, entry.model, _NO_TERMS, first_windows=True)
        )
        near = np.flatnonzero(columns.matched & columns.has_vector & (columns.cosine >= SIMILAR))
        near = near[np.argsort(-columns.cosine[near], kind="stable")][:limit]
        found = await store.fetch(MEMORIES, scope.tenant, columns.rows[near]) if len(near) else []
        scored = zip(found, columns.cosine[near].tolist(), strict=True)
        return [one.doc | {"cosine": cosine} for one, cosine in scored if one is not None and scope.sees(one.doc)]

    def _of_this_request(self, vector: Floats) -> list[Doc]:
        docs = [(doc, other) for doc, other in self._written.values() if other is not None]
        if not docs:
            return []
        cosines: list[float] = (np.stack([other for _, other in docs]) @ vector).tolist()
        return [doc | {"cosine": cosine} for (doc, _), cosine in zip(docs, cosines, strict=True) if cosine >= SIMILAR]


def _in(pairs: tuple[Partition, ...], doc: Doc) -> bool:
    agent, user = doc["agent_id"], doc["user_id"]
    return any(pair.user == user and pair.agent in (ANY_AGENT, agent) for pair in pairs)


def as_similar(other: Doc, superseded: bool) -> dict[str, Any]:
    """Returns a near-duplicate as responses list it."""
    return {
        "memory_id": other["memory_id"],
        "content": other["content"],
        "score": round(min(other["cosine"], 1.0), 6),
        "superseded": superseded,
    }


class Succession:
    """Computes the changes of supersession. Methods commit nothing."""

    def __init__(self, memories: MemoryRepository, now: str) -> None:
        self._memories, self._now = memories, now

    async def restore(self, doc: Doc) -> list[Change]:
        """Returns the changes for the predecessors of `doc`, which is being deleted.

        They become active again. If `doc` is superseded itself, its successor takes them over. Duplicates that a merge
        retired stay retired, because `doc` said the same.
        """
        found = [one for one in await self._predecessors(doc) if not one.get("merged")]
        if doc["status"] == "superseded":
            return await self._hand_over(doc, found)
        changes: list[Change] = []
        keys: set[str] = set()
        for one in reversed(found):
            changes += await self._activate(one, doc, keys)
        return changes

    async def chain(self, doc: Doc) -> list[Doc]:
        """Returns all direct and indirect predecessors of `doc`."""
        found: dict[str, Doc] = {}
        waiting = [doc]
        while waiting:
            for one in await self._predecessors(waiting.pop()):
                if one["memory_id"] not in found:
                    found[one["memory_id"]] = one
                    waiting.append(one)
        return list(found.values())

    async def release(self, doc: Doc) -> list[Change]:
        """Returns the change that removes `doc`, which a caller makes active, from the list of its successor."""
        return [
            self._linked(successor, [each for each in successor["supersedes"] if each != doc["memory_id"]])
            for successor in await self._successor(doc)
        ]

    async def _predecessors(self, doc: Doc) -> list[Doc]:
        found = await self._memories.of_same_pair(doc, doc["supersedes"])
        return [one for one in found if one["status"] == "superseded" and one["superseded_by"] == doc["memory_id"]]

    async def _successor(self, doc: Doc) -> list[Doc]:
        """Returns a list of no or one memory."""
        found = await self._memories.of_same_pair(doc, [doc["superseded_by"]] if doc["superseded_by"] else [])
        return [one for one in found if doc["memory_id"] in one["supersedes"]]

    async def _activate(self, one: Doc, gone: Doc, keys: set[str]) -> list[Change]:
        """Returns the changes that make `one` active again.

        It loses its key if another memory has that key now, or if the key is one of `keys`.
        """
        fields: Doc = {"status": "active", "superseded_by": None, "dedupe_key": None}
        if (key := one["key"]) is not None:
            holders = await self._memories.with_key(one["agent_id"], one["user_id"], key)
            if key in keys or any(holder["memory_id"] != gone["memory_id"] for holder in holders):
                fields |= {"key": None, "identity_hash": identity_hash(one | {"key": None})}
            keys.add(key)
        return self._memories.revise(one, fields, self._now)

    async def _hand_over(self, doc: Doc, found: Sequence[Doc]) -> list[Change]:
        changes: list[Change] = []
        for successor in await self._successor(doc):
            ids = [one["memory_id"] for one in found]
            others = [each for each in successor["supersedes"] if each not in (doc["memory_id"], *ids)]
            changes.append(self._linked(successor, [*others, *ids]))
            moved = {"superseded_by": successor["memory_id"]}
            changes += [self._memories.append(one, moved, expect={"version": one["version"]}) for one in found]
        return changes

    def _linked(self, successor: Doc, supersedes: list[str]) -> Update:
        """Returns a change of links alone. The content stays the same, so the version does too."""
        expect = {name: successor[name] for name in ("version", "supersedes")}
        return self._memories.append(successor, {"supersedes": supersedes}, expect=expect)


BOTH = "both"


class Disputes:
    """Computes the changes that resolve a dispute. Methods commit nothing."""

    def __init__(self, memories: MemoryRepository, now: str) -> None:
        self._memories, self._now = memories, now

    async def resolve(self, doc: Doc, keep: str) -> tuple[Doc, list[Change]]:
        """Returns the memory that is kept, with its new fields, and the changes.

        `keep` is the id of a memory, or `both`, which keeps `doc` beside the others. Raises Conflict if `doc` is not
        disputed or its key is taken, and Invalid if `keep` names no memory that can be kept.
        """
        if doc["status"] != "disputed":
            raise Conflict(f"This memory is not disputed: it is {doc['status']}.")
        against = await self._memories.of_same_pair(doc, doc["contradicts"])
        against = [one for one in against if one["status"] == "active" and not expired(one, self._now)]
        if keep == BOTH:
            return self._revised(doc, {"status": "active"})
        if keep == doc["memory_id"]:
            return await self._prefer(doc, against)
        kept = next((one for one in against if one["memory_id"] == keep), None)
        if kept is None:
            raise invalid("/keep", "must be this memory, an active one that it contradicts, or both")
        _, changes = self._revised(doc, {"status": "superseded", "superseded_by": keep})
        return kept, changes

    async def _prefer(self, doc: Doc, against: list[Doc]) -> tuple[Doc, list[Change]]:
        """Keeps `doc` and retires the memories that it contradicts.

        Its trust becomes the highest of its own and theirs.
        """
        retired = [one["memory_id"] for one in against]
        key = doc["key"] or doc["claimed_key"]
        holders = await self._memories.with_key(doc["agent_id"], doc["user_id"], key) if key is not None else []
        others = [one for one in holders if one["memory_id"] not in retired]
        if not all(expired(one, self._now) for one in others):
            raise Conflict(f"Another active memory of this scope has the key {key}: keep both, or change that one.")
        room = self._memories.remove(others) if others else []
        freed = [change for one in against for change in self._memories.retire(one, doc["memory_id"], self._now)]
        fields = {
            "status": "active",
            "key": key,
            "trust": max(one["trust"] for one in (doc, *against)),
            "supersedes": [*doc["supersedes"], *retired],
        }
        kept, changes = self._revised(doc, fields)
        return kept, [*room, *freed, *changes]

    def _revised(self, doc: Doc, fields: Doc) -> tuple[Doc, list[Change]]:
        fields |= {"contradicts": [], "claimed_key": None}
        fields["identity_hash"] = identity_hash(doc | fields)  # the hash includes the key
        new = doc | fields | {"version": doc["version"] + 1, "updated_at": self._now}
        return new, self._memories.revise(doc, fields, self._now)
