"""What is new among extracted records: duplicates are dropped, and facts are asserted by the conflict rules."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

import orjson

from app.core.clock import new_id, rfc3339, to_ms
from app.core.language import wording
from app.core.schemas import equal_json
from app.facts.keys import USER, field_of
from app.facts.repository import View
from app.facts.schemas import FACTS, FactCreate
from app.jobs.runner import Run
from app.jobs.skipping import handled, skipping
from app.learning.dependencies import ALWAYS, Tools
from app.learning.derivations import DERIVATIONS, commit_noted
from app.learning.extraction import DroppedCounts
from app.memories.decays import Decays
from app.memories.models import MAX_TAGS, MEMORIES
from app.memories.repository import MemoryRepository, of_pair
from app.retrieval.retriever import RetrievalQuery, Retriever
from app.storage.changes import Change, CommitConflict
from app.storage.repository import pages, unexpired
from app.storage.schema import Doc, Eq, Filter, Not, both
from app.storage.scope import Partition, Scope

AT_ONCE = 500
"""The limit of memories that one commit retires."""


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    """Memories that say the same, one of which is kept."""

    kept: Doc
    gains: Doc
    """The fields of the kept memory that change."""
    retired: Sequence[Doc]
    left: int = 0
    """The number of duplicates that are left for another run."""


def candidates(now: str) -> Filter:
    """Filters memories that may be duplicates. Messages keep a conversation complete, each summary belongs to its own
    day or session, and an issue that recurs is not the one that was closed."""
    kinds = (Not(Eq("memory_type", kind)) for kind in ("message", "summary", "issue"))
    return both(Eq("status", "active"), *kinds, unexpired(now))


def sameness(doc: Doc) -> bytes:
    """Returns a digest that is equal for memories that say the same. It is small, so that all memories of a partition
    can be compared."""
    # the same rule as in `identity_hash`
    said_at = doc["source"]["origin"] == "extraction" and doc["memory_type"] != "experience"
    happened_at = None if said_at else doc["event_at"]
    times = (doc["valid_from"], doc["valid_until"], doc["expires_at"], happened_at)
    condition = wording(doc["context"]) if doc["context"] else None
    parts: tuple[Any, ...] = (doc["agent_id"], doc["user_id"], doc["memory_type"], wording(doc["content"]), condition)
    return blake2b(orjson.dumps([*parts, *times]), digest_size=16).digest()


def groups(memories: Iterable[Doc], importance: Mapping[str, float]) -> list[DuplicateGroup]:
    """Groups memories that say the same. `importance` is the current importance by id.

    The kept memory is one that is pinned, or else has a key, or else has the most trust, or else has metadata, or else
    the greatest importance, or else is the oldest. A memory is never retired if it is pinned, has a key, has more trust
    than the kept one, has other metadata, or was restored by an undo.
    """
    found: list[DuplicateGroup] = []
    rest = sorted(memories, key=lambda doc: _rank(doc, importance))
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
    named, has_metadata = doc["key"] is not None, bool(doc["metadata"])
    strength = importance[doc["memory_id"]]
    return (
        not doc["pinned"],
        not named,
        -doc["trust"],
        not has_metadata,
        -strength,
        doc["created_at"],
        doc["memory_id"],
    )


def _gives_way(doc: Doc, kept: Doc) -> bool:
    protected = doc["pinned"] or doc["key"] is not None or doc.get("kept_apart", False)
    metadata_stays = not doc["metadata"] or equal_json(doc["metadata"], kept["metadata"])
    return not protected and metadata_stays and bool(doc["trust"] <= kept["trust"])


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
"""The number of memories that one query reads."""
MOST = 1_000
"""The limit of memories that one run retires."""
SHOWN = 100
"""The number of groups whose ids the result lists."""
MERGED = "merged"
"""The field of a derivation's result that contains the ids of a group."""


@dataclass(slots=True)
class Merged:
    """The result of a run: counts, and the ids of the first groups. It contains no texts, since operations outlive
    memories."""

    groups: list[Doc] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, group: Doc) -> None:
        """Adds a group, given as the ids `kept` and `retired`."""
        self.counts["groups"] += 1
        self.counts["retired"] += len(group["retired"])
        if len(self.groups) < SHOWN:
            self.groups.append(group)

    def plan(self, groups: list[DuplicateGroup]) -> None:
        """Adds groups that a run merges, or would merge in a dry run."""
        for group in groups:
            self.add(_ids(group))
            self.counts["left"] += group.left

    @property
    def whole(self) -> bool:
        """True if nothing is left for another run and every merge was verified."""
        return not self.counts["left"] and not self.counts["unverified"]

    def report(self) -> Doc:
        """Returns counts and ids as the operation's result."""
        counts = {name: self.counts[name] for name in ("groups", "retired", "left", "unverified")}
        return {**counts, "items": self.groups}


def _ids(group: DuplicateGroup) -> Doc:
    return {"kept": group.kept["memory_id"], "retired": [doc["memory_id"] for doc in group.retired]}


class Deduplicator:
    """Merges duplicate memories."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def plan(self, scope: Scope, agent: str | None, user: str | None) -> list[DuplicateGroup]:
        """Returns the duplicates of a partition, the oldest first. A first pass keeps a digest of each memory; a second
        pass reads only memories that share a digest."""
        memories = MemoryRepository(self._tools.store, scope)
        where = both(of_pair(agent, user), candidates(rfc3339(self._tools.clock.now())))
        seen: dict[bytes, list[str]] = {}
        async for docs in pages(partial(memories.find, where), MEMORIES, PAGE):
            for doc, digest in handled(MEMORIES, docs, sameness):
                seen.setdefault(digest, []).append(doc["memory_id"])
        found: list[DuplicateGroup] = []
        for ids in (ids for ids in seen.values() if len(ids) > 1):
            found += await self._groups(memories, ids)
        return found

    async def _groups(self, memories: MemoryRepository, ids: list[str]) -> list[DuplicateGroup]:
        """Reads the memories again, since they may have changed since the first pass, and groups them."""
        docs: list[Doc] = []
        for at in range(0, len(ids), PAGE):
            found = await memories.get_many(ids[at : at + PAGE])
            docs += [doc for doc in found.values() if doc["status"] == "active"]
        decays, now = Decays(self._tools.store, memories.scope.tenant), to_ms(self._tools.clock.now())
        alike: dict[bytes, list[Doc]] = {}
        importance: dict[str, float] = {}
        for doc, digest in handled(MEMORIES, docs, sameness):
            with skipping(MEMORIES, doc["memory_id"]):  # each by itself, so that one does not end its whole group
                _rank(doc, {doc["memory_id"]: 0.0})
                _gives_way(doc, doc)
                _gains(doc, [doc], {doc["memory_id"]: 0.0})
                importance[doc["memory_id"]] = await decays.importance(doc, now)
                alike.setdefault(digest, []).append(doc)
        return [group for each in alike.values() for group in groups(each, importance)]

    async def before(self, run: Run) -> Merged:
        """Returns the result of earlier attempts of the run."""
        merged = Merged()
        where = Eq("operation_id", str(run.lease.job.operation_id))
        async for notes in pages(partial(run.store.find, DERIVATIONS, run.tenant, where), DERIVATIONS, PAGE):
            for note in notes:
                with skipping(DERIVATIONS, note["derivation_id"]):
                    if MERGED in note["result"]:
                        merged.add(note["result"][MERGED])
        return merged

    async def apply(self, run: Run, scope: Scope, groups: list[DuplicateGroup], merged: Merged) -> None:
        """Merges each group in its own commit, until this run has retired `MOST` memories. The rest is
        counted as left."""
        for group in groups:
            if merged.counts["retired"] + len(group.retired) > MOST:
                merged.counts["left"] += len(group.retired)
                continue
            committed = False
            with skipping(MEMORIES, group.kept["memory_id"]):
                committed = await self._commit(run, scope, group)
            if committed:
                merged.plan([group])
                merged.counts["unverified"] += await self._missing(scope, group)
            else:
                merged.counts["left"] += len(group.retired)

    async def _commit(self, run: Run, scope: Scope, group: DuplicateGroup) -> bool:
        """Merges one group. Returns False if one of its memories has just changed; another run will
        look at it again."""
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
        """Returns how many retired memories are not as they should be: stored, superseded, and replaced by the active
        kept memory."""
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


KNOWN_FACTS = 30


async def known(tools: Tools, scope: Scope, near: str, pairs: tuple[Partition, ...], user_name: str) -> list[Doc]:
    """Returns facts of the partitions that are near to a text, so that the model reuses names and predicates. Those
    about the user have `user_name` as subject."""
    now = tools.clock.now()
    lookup = Retriever(tools.store, scope, tools.embedder, FACTS)
    retrieved = await lookup.find(
        RetrievalQuery(near, pairs, View(rfc3339(now), None).believed(), to_ms(now), KNOWN_FACTS)
    )
    hits = [hit.doc for hit in retrieved.hits if field_of(hit.doc) != "name"]
    facts = [{name: doc[name] for name in ("subject", "predicate", "object")} for doc in hits]
    return [fact | {"subject": user_name} if fact["subject"] == USER else fact for fact in facts]


async def asserted(
    tools: Tools,
    scope: Scope,
    drawn: Sequence[tuple[FactCreate, Doc]],
    dropped: DroppedCounts,
    source: Doc,
) -> tuple[Doc, list[Change]]:
    """Returns a result for the report and the changes that assert `drawn`: facts, each with further fields of its
    source."""
    if not drawn:
        return {"fact_ids": [], "dropped": dict(dropped)}, []
    service = tools.facts(scope)
    sources = [{**source, **more} for _, more in drawn]
    outcome = await service.assert_all([body for body, _ in drawn], ALWAYS, sources)
    fact_ids = [fact["fact_id"] for fact in outcome.body["items"]]
    return {"fact_ids": fact_ids, "dropped": dict(dropped)}, list(outcome.changes)
