"""Supersession of memories: predecessors come back when their successor is deleted.

Disputes are resolved here as well.
"""

from collections.abc import Sequence

from app.errors import Conflict, invalid
from app.memories.records import identity_hash
from app.memories.repository import MemoryRepository
from app.storage.changes import Change, Update
from app.storage.repository import expired
from app.storage.schema import Doc


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
        fields["identity_hash"] = identity_hash(doc | fields)  # the hash includes the key
        new = doc | fields | {"version": doc["version"] + 1, "updated_at": self._now}
        return new, self._memories.revise(doc, fields, self._now)
