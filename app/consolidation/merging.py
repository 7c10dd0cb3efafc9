"""Near-duplicate memories of one pair made one: read, planned, committed group by group, and looked at again."""

from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from app.clock import rfc3339, to_ms
from app.consolidation import duplicates
from app.consolidation.deeds import commit_noted
from app.consolidation.duplicates import Group
from app.consolidation.models import DERIVATIONS
from app.consolidation.tools import Tools
from app.ids import new_id
from app.jobs.runner import Run
from app.memories.decays import Decays
from app.memories.models import MEMORIES
from app.memories.repository import MemoryRepository, of_pair
from app.storage.collection import Change, CommitConflict, Doc
from app.storage.filters import Eq, both
from app.storage.repository import pages
from app.storage.scope import Scope

PAGE = 200
MOST = 1_000
"""Memories that one run retires."""
SHOWN = 100
MERGED = "merged"
"""Where the note of a group has its ids."""


@dataclass(slots=True)
class Merged:
    """What a run came to: counts, and the ids of the first groups (never a text: operations outlive memories)."""

    groups: list[Doc] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, group: Doc) -> None:
        """`kept` and `retired`, by their ids."""
        self.counts["groups"] += 1
        self.counts["retired"] += len(group["retired"])
        if len(self.groups) < SHOWN:
            self.groups.append(group)

    def plan(self, groups: list[Group]) -> None:
        """What a run does, or would do."""
        for group in groups:
            self.add(_ids(group))
            self.counts["left"] += group.left

    @property
    def whole(self) -> bool:
        return not self.counts["left"] and not self.counts["unverified"]

    def told(self) -> Doc:
        counts = {name: self.counts[name] for name in ("groups", "retired", "left", "unverified")}
        return {**counts, "items": self.groups}


def _ids(group: Group) -> Doc:
    return {"kept": group.kept["memory_id"], "retired": [doc["memory_id"] for doc in group.retired]}


class Merging:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def plan(self, scope: Scope, agent: str | None, user: str | None) -> list[Group]:
        """What is there twice, the oldest first. A first look keeps a digest of each memory, a second one reads those
        that are not alone."""
        memories = MemoryRepository(self._tools.store, scope)
        where = both(of_pair(agent, user), duplicates.candidates(rfc3339(self._tools.clock.now())))
        seen: dict[bytes, list[str]] = {}
        async for docs in pages(partial(memories.find, where), MEMORIES, PAGE):
            for doc in docs:
                seen.setdefault(duplicates.sameness(doc), []).append(doc["memory_id"])
        found: list[Group] = []
        for ids in (ids for ids in seen.values() if len(ids) > 1):
            found += await self._groups(memories, ids)
        return found

    async def _groups(self, memories: MemoryRepository, ids: list[str]) -> list[Group]:
        """As they are now: they may have changed since the first look."""
        docs: list[Doc] = []
        for at in range(0, len(ids), PAGE):
            found = await memories.get_many(ids[at : at + PAGE])
            docs += [doc for doc in found.values() if doc["status"] == "active"]
        alike: dict[bytes, list[Doc]] = {}
        for doc in docs:
            alike.setdefault(duplicates.sameness(doc), []).append(doc)
        decays, now = Decays(self._tools.agents, memories.scope.tenant), to_ms(self._tools.clock.now())
        importance = {doc["memory_id"]: await decays.importance(doc, now) for doc in docs}
        return [group for each in alike.values() for group in duplicates.groups(each, importance)]

    async def before(self, run: Run) -> Merged:
        """What earlier attempts of the run did."""
        merged = Merged()
        where = Eq("operation_id", str(run.lease.job.operation_id))
        async for notes in pages(partial(run.store.find, DERIVATIONS, run.tenant, where), DERIVATIONS, PAGE):
            for note in notes:
                if MERGED in note["result"]:
                    merged.add(note["result"][MERGED])
        return merged

    async def apply(self, run: Run, scope: Scope, groups: list[Group], merged: Merged) -> None:
        """Each group in a commit of its own, until `MOST` are retired in this run: what is left is counted."""
        for group in groups:
            if merged.counts["retired"] + len(group.retired) > MOST:
                merged.counts["left"] += len(group.retired)
            elif await self._commit(run, scope, group):
                merged.plan([group])
                merged.counts["unverified"] += await self._missing(scope, group)
            else:
                merged.counts["left"] += len(group.retired)

    async def _commit(self, run: Run, scope: Scope, group: Group) -> bool:
        """False where one of them has just been changed: it is looked at again in another run."""
        memories, now = MemoryRepository(self._tools.store, scope), rfc3339(self._tools.clock.now())
        kept_id = group.kept["memory_id"]

        async def plan() -> tuple[Doc, list[Change]]:
            changes = memories.revise(group.kept, group.gains, now)
            for doc in group.retired:
                changes += memories.retire(doc, kept_id, now, merged=True)
            return {MERGED: _ids(group)}, changes

        owner = {name: group.kept[name] for name in ("agent_id", "user_id")}
        try:
            await commit_noted(run, plan, new_id("der"), owner, attempts=1)
        except CommitConflict:
            return False
        return True

    async def _missing(self, scope: Scope, group: Group) -> int:
        """Of the retired, how many are not where they should be: kept, out of search, and one active in their place."""
        memories = MemoryRepository(self._tools.store, scope)
        docs = await memories.get_many([group.kept["memory_id"], *(doc["memory_id"] for doc in group.retired)])
        kept = docs.get(group.kept["memory_id"])
        if kept is None or kept["status"] != "active":
            return len(group.retired)
        there = {("superseded", kept["memory_id"])}
        return sum(
            doc["memory_id"] not in docs
            or (docs[doc["memory_id"]]["status"], docs[doc["memory_id"]]["superseded_by"]) not in there
            for doc in group.retired
        )
