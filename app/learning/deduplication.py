"""Which memories of a pair are one memory told twice, and which of them is kept. Pure.

Those are merged that claim the same (`claims`) of the same scope, as the same type, under the same condition, for the
same time. The kept one stays itself, believed as it was; what it gains is that nothing of the others is lost: their
tags, their metadata where it has none, the greatest importance.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

import orjson

from app.core.clock import rfc3339, to_ms
from app.core.ids import new_id
from app.core.schemas import same
from app.jobs.runner import Run
from app.learning.dependencies import Tools
from app.learning.derivations import DERIVATIONS, commit_noted
from app.learning.fact_assertion import claim
from app.memories.decay_settings import Decays
from app.memories.models import MAX_TAGS, MEMORIES
from app.memories.repository import MemoryRepository, of_pair
from app.storage.changes import Change, CommitConflict
from app.storage.filters import Eq, Filter, Not, both
from app.storage.repository import pages, unexpired
from app.storage.schema import Doc
from app.storage.scope import Scope

AT_ONCE = 500
"""Most memories that are retired in one commit."""


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    kept: Doc
    gains: Doc
    """Fields of the kept one that change."""
    retired: Sequence[Doc]
    left: int = 0
    """Others that are for another run."""


def candidates(now: str) -> Filter:
    """Messages keep a conversation whole, summaries stand for their own day or session, and a problem that comes back
    is not the one that was closed."""
    kinds = (Not(Eq("memory_type", kind)) for kind in ("message", "summary", "issue"))
    return both(Eq("status", "active"), *kinds, unexpired(now))


def sameness(doc: Doc) -> bytes:
    """Equal for memories that tell the same; a digest, so that a whole pair can be looked through."""
    said_at = doc["source"]["origin"] == "extraction" and doc["memory_type"] != "experience"  # as `identity_hash`
    report = None if said_at else doc["event_at"]
    times = (doc["valid_from"], doc["valid_until"], doc["expires_at"], report)
    condition = claim(doc["context"]) if doc["context"] else None
    parts: tuple[Any, ...] = (doc["agent_id"], doc["user_id"], doc["memory_type"], claim(doc["content"]), condition)
    return blake2b(orjson.dumps([*parts, *times]), digest_size=16).digest()


def groups(report: Iterable[Doc], importance: Mapping[str, float]) -> list[DuplicateGroup]:
    """Of memories that tell the same, which take the place of which. `importance`: at the moment, by id.

    Kept is what is pinned, else what has a name, else what is believed most, else what carries metadata, else what
    matters most, else the oldest. Never retired: what is pinned or has a name, what is believed more than the kept
    one or carries other metadata, and what an undo brought back.
    """
    found: list[DuplicateGroup] = []
    rest = sorted(report, key=lambda doc: _rank(doc, importance))
    while rest:
        kept, *others = rest
        tags, alike, rest = set(kept["tags"]), list[Doc](), list[Doc]()
        for doc in others:
            if not _gives_way(doc, kept) or len(tags | {*doc["tags"]}) > MAX_TAGS:
                rest.append(doc)
                continue
            alike.append(doc)
            tags |= {*doc["tags"]}
        if retired := alike[:AT_ONCE]:
            found.append(DuplicateGroup(kept, _gains(kept, retired, importance), retired, len(alike) - len(retired)))
    return found


def _rank(doc: Doc, importance: Mapping[str, float]) -> tuple[Any, ...]:
    named, report = doc["key"] is not None, bool(doc["metadata"])
    strength = importance[doc["memory_id"]]
    return (not doc["pinned"], not named, -doc["trust"], not report, -strength, doc["created_at"], doc["memory_id"])


def _gives_way(doc: Doc, kept: Doc) -> bool:
    protected = doc["pinned"] or doc["key"] is not None or doc.get("kept_apart", False)
    report = not doc["metadata"] or same(doc["metadata"], kept["metadata"])
    return not protected and report and bool(doc["trust"] <= kept["trust"])


def _gains(kept: Doc, retired: Sequence[Doc], importance: Mapping[str, float]) -> Doc:
    gains: Doc = {"supersedes": [*kept["supersedes"], *(doc["memory_id"] for doc in retired)]}
    tags = list(dict.fromkeys(tag for doc in (kept, *retired) for tag in doc["tags"]))
    if tags != kept["tags"]:
        gains["tags"] = tags
    strongest = max((kept, *retired), key=lambda doc: importance[doc["memory_id"]])
    if importance[strongest["memory_id"]] > importance[kept["memory_id"]]:
        gains |= {name: strongest[name] for name in ("importance", "base_importance", "anchored_at")}
    return gains


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

    def plan(self, groups: list[DuplicateGroup]) -> None:
        """What a run does, or would do."""
        for group in groups:
            self.add(_ids(group))
            self.counts["left"] += group.left

    @property
    def whole(self) -> bool:
        return not self.counts["left"] and not self.counts["unverified"]

    def report(self) -> Doc:
        counts = {name: self.counts[name] for name in ("groups", "retired", "left", "unverified")}
        return {**counts, "items": self.groups}


def _ids(group: DuplicateGroup) -> Doc:
    return {"kept": group.kept["memory_id"], "retired": [doc["memory_id"] for doc in group.retired]}


class Deduplicator:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def plan(self, scope: Scope, agent: str | None, user: str | None) -> list[DuplicateGroup]:
        """What is there twice, the oldest first. A first look keeps a digest of each memory, a second one reads those
        that are not alone."""
        memories = MemoryRepository(self._tools.store, scope)
        where = both(of_pair(agent, user), candidates(rfc3339(self._tools.clock.now())))
        seen: dict[bytes, list[str]] = {}
        async for docs in pages(partial(memories.find, where), MEMORIES, PAGE):
            for doc in docs:
                seen.setdefault(sameness(doc), []).append(doc["memory_id"])
        found: list[DuplicateGroup] = []
        for ids in (ids for ids in seen.values() if len(ids) > 1):
            found += await self._groups(memories, ids)
        return found

    async def _groups(self, memories: MemoryRepository, ids: list[str]) -> list[DuplicateGroup]:
        """As they are now: they may have changed since the first look."""
        docs: list[Doc] = []
        for at in range(0, len(ids), PAGE):
            found = await memories.get_many(ids[at : at + PAGE])
            docs += [doc for doc in found.values() if doc["status"] == "active"]
        alike: dict[bytes, list[Doc]] = {}
        for doc in docs:
            alike.setdefault(sameness(doc), []).append(doc)
        decays, now = Decays(self._tools.agents, memories.scope.tenant), to_ms(self._tools.clock.now())
        importance = {doc["memory_id"]: await decays.importance(doc, now) for doc in docs}
        return [group for each in alike.values() for group in groups(each, importance)]

    async def before(self, run: Run) -> Merged:
        """What earlier attempts of the run did."""
        merged = Merged()
        where = Eq("operation_id", str(run.lease.job.operation_id))
        async for notes in pages(partial(run.store.find, DERIVATIONS, run.tenant, where), DERIVATIONS, PAGE):
            for note in notes:
                if MERGED in note["result"]:
                    merged.add(note["result"][MERGED])
        return merged

    async def apply(self, run: Run, scope: Scope, groups: list[DuplicateGroup], merged: Merged) -> None:
        """Each group in a commit of its own, until `MOST` are retired in this run: what is left is counted."""
        for group in groups:
            if merged.counts["retired"] + len(group.retired) > MOST:
                merged.counts["left"] += len(group.retired)
            elif await self._commit(run, scope, group):
                merged.plan([group])
                merged.counts["unverified"] += await self._missing(scope, group)
            else:
                merged.counts["left"] += len(group.retired)

    async def _commit(self, run: Run, scope: Scope, group: DuplicateGroup) -> bool:
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

    async def _missing(self, scope: Scope, group: DuplicateGroup) -> int:
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
