"""Settling a dispute: a memory that was stored as `disputed` takes the place of the ones it contradicts, or it goes."""

from app.errors import Conflict, invalid
from app.memories.documents import identity_hash
from app.memories.repository import MemoryRepository
from app.storage.collection import Change, Doc
from app.storage.repository import expired

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
