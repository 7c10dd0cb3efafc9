"""Supersession of memories: predecessors come back when their successor goes; disputes are resolved."""

from collections.abc import Sequence

from app.errors import Conflict, invalid
from app.memories.records import identity_hash
from app.memories.repository import MemoryRepository
from app.storage.changes import Change, Update
from app.storage.repository import expired
from app.storage.schema import Doc


class Succession:
    """Methods return changes, or the memories that are concerned, and commit nothing."""

    def __init__(self, memories: MemoryRepository, now: str) -> None:
        self._memories, self._now = memories, now

    async def restore(self, doc: Doc) -> list[Change]:
        """Changes for the predecessors of `doc`, which is being deleted.

        They become active again. Where `doc` is superseded itself, its successor takes them over. Duplicates that a
        merge retired stay retired: `doc` said the same.
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
        """All predecessors of `doc`, theirs included."""
        found: dict[str, Doc] = {}
        waiting = [doc]
        while waiting:
            for one in await self._predecessors(waiting.pop()):
                if one["memory_id"] not in found:
                    found[one["memory_id"]] = one
                    waiting.append(one)
        return list(found.values())

    async def release(self, doc: Doc) -> list[Change]:
        """Changes for the successor of `doc`, which becomes active by hand: the successor no longer names it."""
        return [
            self._linked(successor, [each for each in successor["supersedes"] if each != doc["memory_id"]])
            for successor in await self._successor(doc)
        ]

    async def _predecessors(self, doc: Doc) -> list[Doc]:
        found = await self._memories.of_same_pair(doc, doc["supersedes"])
        return [one for one in found if one["status"] == "superseded" and one["superseded_by"] == doc["memory_id"]]

    async def _successor(self, doc: Doc) -> list[Doc]:
        """None or one."""
        found = await self._memories.of_same_pair(doc, [doc["superseded_by"]] if doc["superseded_by"] else [])
        return [one for one in found if doc["memory_id"] in one["supersedes"]]

    async def _activate(self, one: Doc, gone: Doc, keys: set[str]) -> list[Change]:
        """Active again; without its key where another memory has that now, or one of `keys` is it."""
        fields: Doc = {"status": "active", "superseded_by": None, "dedupe_key": None}
        if (key := one["key"]) is not None:
            holders = await self._memories.named(one["agent_id"], one["user_id"], key)
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
        """A change of links alone: nobody changed what the memory says, so that its version stays."""
        expect = {name: successor[name] for name in ("version", "supersedes")}
        return self._memories.append(successor, {"supersedes": supersedes}, expect=expect)


BOTH = "both"


class Disputes:
    """Methods commit nothing."""

    def __init__(self, memories: MemoryRepository, now: str) -> None:
        self._memories, self._now = memories, now

    async def resolve(self, doc: Doc, keep: str) -> tuple[Doc, list[Change]]:
        """The memory that is kept, as it will be, and the changes. `keep`: its id, or `both`, which keeps `doc` beside
        the others.

        Raises Conflict where `doc` is not disputed or its key is taken, and Invalid where `keep` names no memory that
        can be kept.
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
        """It is believed from now on as much as each memory whose place it takes."""
        retired = [one["memory_id"] for one in against]
        key = doc["key"] or doc["claimed_key"]
        holders = await self._memories.named(doc["agent_id"], doc["user_id"], key) if key is not None else []
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
        fields["identity_hash"] = identity_hash(doc | fields)  # a key is part of it
        new = doc | fields | {"version": doc["version"] + 1, "updated_at": self._now}
        return new, self._memories.revise(doc, fields, self._now)
