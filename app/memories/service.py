"""The rules of long-term memory. Methods that write return a `WriteResult` and commit nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2b
from typing import Any

import orjson

from app.audit.trail import Actor, audit_entries
from app.core.clock import Clock, rfc3339, to_ms
from app.core.metadata_filter import ANY_ID
from app.core.schemas import BODY_LIMITS, Page
from app.errors import Conflict, Forbidden, StorageFull, invalid
from app.memories.agents import Decays
from app.memories.create import MemoryPlanner
from app.memories.repository import Embeddings, MemoryRepository, identity_hash, revision
from app.memories.schemas import (
    FEEDBACK,
    FILE,
    MEMORIES,
    FeedbackApplied,
    FeedbackItem,
    FeedbackNote,
    FeedbackReason,
    FeedbackResult,
    HistoryEntry,
    HistoryRecord,
    Memory,
    MemoryBatchCreated,
    MemoryCreate,
    MemoryCreated,
    MemoryPatch,
    MemoryRecord,
    Predecessors,
    render,
    rounded,
)
from app.memories.search import MemoryFragment, MemoryListFilters, in_full, listed
from app.retrieval.decay import DecayCurve, base_of, importance
from app.storage.changes import Change, CommitConflict, Update, fewer_at_once
from app.storage.record_filters import SplitFilter
from app.storage.repository import Listing, Repository, expired, is_shown, page_of, unexpired
from app.storage.schema import Eq, Not, both
from app.writes.executor import Precondition, WriteResult, etag

DELETED_AT_ONCE = 500


def _unfaded(memory: MemoryRecord) -> Memory:
    """Returns a memory as lists show it, with the importance that it had before it faded. Raises what `in_full` would
    raise of it at any time."""
    return render(memory, MemoryFragment(memory).importance(lambda base, _: base))


def _asked(filters: MemoryListFilters, now: datetime) -> SplitFilter:
    """Returns the filter for the memories that a list shows at `now`, and what it keeps of them."""
    where, keep = listed(filters)
    return SplitFilter(both(where, unexpired(rfc3339(now))), keep)


class MemoryService:
    """Reads and changes the memories that one caller may see."""

    def __init__(self, memories: MemoryRepository, embeddings: Embeddings, clock: Clock) -> None:
        self._memories, self._embeddings, self._clock = memories, embeddings, clock
        self._decays = Decays(memories.store, memories.scope.tenant)

    async def create(self, body: MemoryCreate, precondition: Precondition) -> WriteResult[MemoryCreated]:
        """Plans one new memory. Answers 201 if it is new, and 200 with the memory that is equal or has its key."""
        planner = MemoryPlanner(self._memories, self._embeddings, self._clock.now(), precondition)
        plan = await planner.plan([body], base_pointer="")
        (answer,) = plan.answers
        status = 201 if answer["memory_id"] in plan.created else 200
        return WriteResult(answer, plan.changes, status, {"ETag": etag(answer)})

    async def create_batch(
        self, bodies: Sequence[MemoryCreate], precondition: Precondition
    ) -> WriteResult[MemoryBatchCreated]:
        """Plans several memories: all of them are stored, or none."""
        planner = MemoryPlanner(self._memories, self._embeddings, self._clock.now(), precondition)
        plan = await planner.plan(bodies, "/items")
        return WriteResult({"items": plan.answers}, plan.changes, 201)

    async def get(self, memory_id: str) -> Memory:
        """Returns a memory with its current importance. Raises NotFound if it is not visible or has expired."""
        now = self._clock.now()
        return await self._decays.render_at(await self._memories.get_unexpired(memory_id, rfc3339(now)), to_ms(now))

    async def page(self, filters: MemoryListFilters, listing: Listing) -> Page[Memory]:
        now = self._clock.now()
        where, keep = _asked(filters, now)
        shown = partial(self._decays.render_at, now_ms=to_ms(now))
        return await self._memories.listed(where, listing, shown, Memory, request=filters, keep=keep)

    async def page_as_json(self, filters: MemoryListFilters, listing: Listing) -> Page[Any]:
        """Returns the same page. What was serialized for a search or a list before is not serialized again."""
        now = self._clock.now()
        where, keep = _asked(filters, now)
        found, cursor = await self._memories.page(where, listing, request=repr(sorted(filters.items())), keep=keep)
        is_whole = partial(is_shown, MEMORIES, render=_unfaded, shape=Memory)
        shown = await in_full(found, self._decays, to_ms(now), is_whole)
        return page_of([orjson.Fragment(memory) for memory in shown], cursor)

    async def patch(self, memory_id: str, body: MemoryPatch, precondition: Precondition) -> WriteResult[Memory]:
        """Changes the fields that are set in `body`."""
        return await self.change(memory_id, lambda _: body, precondition)

    async def change(
        self, memory_id: str, patch: Callable[[MemoryRecord], MemoryPatch], precondition: Precondition
    ) -> WriteResult[Memory]:
        """Changes a memory by a patch that is computed from the very version that it replaces."""
        now = self._clock.now()
        memory = await self._memories.get_unexpired(memory_id, rfc3339(now))
        fields = MEMORIES.as_record(patch(memory).model_dump(exclude_unset=True))
        self._memories.require_write(memory)
        precondition.check(memory)
        wanted = fields.get("status")
        if wanted is not None and memory["status"] == "disputed":
            raise Conflict(
                "This memory is disputed: settle that with POST /v1/memories/{memory_id}/resolve, or delete it."
            )
        if wanted == "archived" and memory["status"] == "superseded":
            raise Conflict("A superseded memory cannot be archived: set it active first, or delete it.")
        text, most = fields.get("content"), BODY_LIMITS.text_chars
        if text is not None and memory["memory_type"] != FILE and (len(text) > most or not text.strip()):
            raise invalid("/content", f"must not be blank, nor have more than {most} characters")
        changed = revision(memory, fields, rfc3339(now))
        new = memory | changed
        if new["valid_from"] and new["valid_until"] and new["valid_from"] >= new["valid_until"]:
            raise invalid("/valid_until", "must lie after valid_from")
        if new.get("rrule") and not new.get("due_at"):
            raise invalid("/rrule", "needs due_at")
        if not changed:
            return WriteResult(await self._decays.render_at(memory, to_ms(now)), headers={"ETag": etag(memory)})
        room = await self._room_for_name(memory, changed, rfc3339(now))
        if memory["status"] == "superseded" and "status" in changed:
            room += await Succession(self._memories, rfc3339(now)).release(memory)
        new, changes = await self._memories.rewritten(memory, changed, rfc3339(now), self._embeddings)
        answer = await self._decays.render_at(new, to_ms(now))
        return WriteResult(answer, [*room, *changes], headers={"ETag": etag(new)})

    async def _room_for_name(self, memory: MemoryRecord, changed: MemoryRecord, now: str) -> list[Change]:
        """Returns the changes that free the memory's key, if it changes."""
        new = memory | changed
        if new["key"] is None or new["status"] != "active" or changed.keys().isdisjoint(("key", "status")):
            return []
        return await self._memories.free_key(new, new["key"], (memory["memory_id"],), now)

    async def delete(self, memory_id: str, predecessors: Predecessors, precondition: Precondition) -> WriteResult[None]:
        """Deletes a memory.

        The memories that it superseded become active again (`restore`) or are deleted too (`delete`). A dispute with it
        is over.
        """
        now = rfc3339(self._clock.now())
        memory = await self._memories.get_to_delete(memory_id, now)
        precondition.check(memory)
        if "supersedes" not in memory:  # it cannot be read, so nobody knows what it superseded
            return WriteResult(None, self._memories.remove([memory]), 204)
        succession = Succession(self._memories, now)
        if predecessors == "restore":
            return WriteResult(None, await succession.deletion(memory), 204)
        gone = [memory, *await succession.chain(memory)]
        return WriteResult(None, [*self._memories.remove(gone), *await self._memories.disputes_over(gone, now)], 204)

    async def resolve(self, memory_id: str, keep: str, precondition: Precondition) -> WriteResult[Memory]:
        """Settles a dispute. The answer is the memory that is kept."""
        now = self._clock.now()
        disputed = await self._memories.get_unexpired(memory_id, rfc3339(now))
        self._memories.require_write(disputed)
        precondition.check(disputed)
        memory, changes = await Disputes(self._memories, rfc3339(now)).resolve(disputed, keep)
        return WriteResult(await self._decays.render_at(memory, to_ms(now)), changes, headers={"ETag": etag(memory)})

    async def delete_some(self, filters: MemoryListFilters, actor: Actor) -> int:
        """Deletes all memories that match, in steps, and returns how many. A dispute with them is over, but what they
        superseded stays superseded. The audit trail names `actor`.

        Each step is one commit. After an error, the same call continues with what is left. Raises Invalid if the
        filters name neither agent nor user.
        """
        if {filters["agent_id"], filters["user_id"]} <= {None, ANY_ID}:
            raise invalid("/query/user_id", "agent_id, user_id or both are required")
        where, keep = listed(filters)
        where = both(where, self._memories.scope.writable(), Not(Eq("memory_type", "document")))
        deleted, at_once, after = 0, DELETED_AT_ONCE, None
        while page := await self._memories.find(where, after=after, limit=at_once):
            matching = page if keep is None else list(filter(keep, page))
            now = rfc3339(self._clock.now())
            removal = self._memories.remove(matching) if matching else []
            removal += await self._memories.disputes_over(matching, now)
            try:
                if removal:
                    audit = audit_entries(actor, removal, now)
                    await self._memories.store.commit([*removal, *audit])
                deleted += len(matching)
                after = MEMORIES.after(page[-1])
            except CommitConflict:  # one of them has just changed, so all are read again
                continue
            except StorageFull as error:
                at_once = fewer_at_once(error, len(matching))
        return deleted

    async def history(self, memory_id: str, listing: Listing) -> Page[HistoryEntry]:
        await self._memories.get_unexpired(memory_id, rfc3339(self._clock.now()))

        async def shown(version: HistoryRecord[MemoryRecord]) -> HistoryEntry:
            return {
                "version": version["version"],
                "changed_at": version["changed_at"],
                "changed_by": version["changed_by"],
                "record": await self._decays.render_at(version["record"], to_ms(version["changed_at"])),
            }

        of_memory = Eq("record_id", memory_id)
        return await self._memories.history.listed(of_memory, listing, shown, HistoryEntry, request=memory_id)


# --- Succession and disputes ------------------------------------------------------------------------------------------


class Succession:
    """Computes the changes of supersession. Methods commit nothing."""

    def __init__(self, memories: MemoryRepository, now: str) -> None:
        self._memories, self._now = memories, now

    async def deletion(self, memory: MemoryRecord) -> list[Change]:
        """Returns the changes that delete a memory. What it superseded comes back, and a dispute with it is over."""
        back, restored = await self._restored(memory)
        over = await self._memories.disputes_over([memory], self._now, back)
        return [*self._memories.remove([memory]), *restored, *over]

    async def _restored(self, memory: MemoryRecord) -> tuple[list[MemoryRecord], list[Change]]:
        """Returns the predecessors of `memory`, which is being deleted, as they come back, and the changes.

        They become active again. If `memory` is superseded itself, its successor takes them over. Duplicates that a
        merge retired stay retired, because `memory` said the same.
        """
        predecessors = [other for other in await self._predecessors(memory) if not other["merged"]]
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
        superseded = await self._memories.of_same_partition(memory, memory["supersedes"])
        return [
            other
            for other in superseded
            if other["status"] == "superseded" and other["superseded_by"] == memory["memory_id"]
        ]

    async def _successor(self, memory: MemoryRecord) -> list[MemoryRecord]:
        named = [memory["superseded_by"]] if memory["superseded_by"] else []
        successors = await self._memories.of_same_partition(memory, named)
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
        contradicted = await self._memories.of_same_partition(disputed, disputed["contradicts"])
        against = [other for other in contradicted if other["status"] == "active" and not expired(other, self._now)]
        if keep == BOTH:
            return self._memories.settled(disputed, {"status": "active"}, self._now)
        if keep == disputed["memory_id"]:
            return await self._prefer(disputed, against)
        preferred = next((other for other in against if other["memory_id"] == keep), None)
        if preferred is None:
            raise invalid("/keep", "must be this memory, an active one that it contradicts, or both")
        _, changes = self._memories.settled(disputed, {"status": "superseded", "superseded_by": keep}, self._now)
        return preferred, changes

    async def _prefer(self, disputed: MemoryRecord, against: list[MemoryRecord]) -> tuple[MemoryRecord, list[Change]]:
        """Keeps `disputed` and retires the memories that it contradicts.

        Its trust becomes the highest of its own and theirs.
        """
        retired = [other["memory_id"] for other in against]
        key = disputed["key"] or disputed["claimed_key"]
        room = await self._memories.free_key(disputed, key, retired, self._now) if key is not None else []
        freed = [
            change for other in against for change in self._memories.supersede(other, disputed["memory_id"], self._now)
        ]
        settled, changes = self._memories.settled(
            disputed,
            {
                "status": "active",
                "key": key,
                "trust": max(memory["trust"] for memory in (disputed, *against)),
                "supersedes": [*disputed["supersedes"], *retired],
            },
            self._now,
        )
        return settled, [*room, *freed, *changes]


# --- Feedback: callers report which memories helped and which misled --------------------------------------------------
# A memory that helped gains `GAIN` of importance over its current value, and decay starts again from there. A memory
# that misled loses `LOSS`, and its decay does not start again, so that it is never more important than without the
# feedback. One API key counts once for a memory and UTC day. The opposite feedback on the same day replaces the first
# one.

GAIN, LOSS = 0.05, 0.1
KEPT = timedelta(days=2)
"""How long a note is kept.

It outlives its UTC day by at least a day, because the clocks of two processes may differ.
"""
DIGITS = 9
"""Digits of the importance, the same as in responses. Without rounding, .5 + .05 + .05 is more than .6."""
EXPECTED = ("version", "base_importance", "anchored_at", "helpful_count", "misleading_count")
"""Fields that may change between the read and the commit. If one does, the feedback is computed again."""


@dataclass(frozen=True, slots=True)
class Strength:
    """The values from which the importance of a memory is computed."""

    base: float
    anchor_ms: int
    pinned: bool
    decay: DecayCurve

    def at(self, now_ms: int) -> float:
        return float(importance(self.base, self.anchor_ms, now_ms, self.pinned, self.decay))


def adjusted(before: Strength, now_ms: int, *, helpful: bool, undone: float = 0.0) -> tuple[Strength, float]:
    """Returns the strength after a feedback, and the change of the importance at `now_ms`.

    `undone`: the change made by the opposite feedback that this one replaces.
    """
    without = _clamped(before.at(now_ms) - undone)
    wanted = _clamped(without + (GAIN if helpful else -LOSS))
    if helpful:
        after = Strength(wanted, max(now_ms, before.anchor_ms), before.pinned, before.decay)
    else:
        base = base_of(wanted, before.anchor_ms, now_ms, before.pinned, before.decay)
        after = Strength(min(base, before.base), before.anchor_ms, before.pinned, before.decay)
    return after, wanted - without


def _clamped(value: float) -> float:
    return min(1.0, max(0.0, round(value, DIGITS)))


class FeedbackService:
    """Applies feedback. `key` identifies the API key and all its successors (`Principal.lineage`)."""

    def __init__(self, memories: MemoryRepository, clock: Clock, key: str) -> None:
        self._memories, self._clock, self._key = memories, clock, key
        self._notes = Repository(memories.store, memories.scope, FEEDBACK)
        self._decays = Decays(memories.store, memories.scope.tenant)

    async def give(self, items: Sequence[FeedbackItem], precondition: Precondition) -> WriteResult[FeedbackResult]:
        """Applies each item on its own.

        The answer of an item that cannot be applied has the reason; the others are applied.
        """
        now, ids = self._clock.now(), [item.memory_id for item in items]
        for index, memory_id in enumerate(ids):
            if memory_id in ids[:index]:  # it would be unclear which of the two is meant
                raise invalid(f"/items/{index}/memory_id", "stands twice in this request")
        # Notes are read first: a memory that is read later includes at least the counts of its notes.
        notes = await self._notes.get_many([self._note_id(memory_id, now) for memory_id in ids])
        stored = await self._memories.get_many(ids)
        memories = {name: memory for name, memory in stored.items() if not expired(memory, rfc3339(now))}
        if precondition.header is not None:
            precondition.check(memories.get(ids[0]) if len(ids) == 1 else None)
        answers, changes = list[FeedbackApplied](), list[Change]()
        for item in items:
            memory = memories.get(item.memory_id)
            note = notes.get(self._note_id(item.memory_id, now))
            if memory is None:
                answer, result = _refused(item, "not_found")
            else:
                answer, result = await self._applied(item, memory, note, now)
            answers.append(answer)
            changes += result
        users = frozenset(memory["user_id"] for memory in memories.values() if memory["user_id"] is not None)
        return WriteResult({"items": answers}, changes, users=users)

    async def _applied(
        self, item: FeedbackItem, memory: MemoryRecord, note: FeedbackNote | None, now: datetime
    ) -> tuple[FeedbackApplied, list[Change]]:
        try:
            self._memories.require_write(memory)
        except (Conflict, Forbidden):  # a passage of a document has the importance of its document
            return _refused(item, "forbidden")
        if note is not None and note["helpful"] == item.helpful:
            return await self._answer(item, memory, now, "already_today"), []
        fields = _counted(memory, item, note)
        effect = 0.0 if note is None else note["effect"]
        if memory["status"] == "active":
            decay = await self._decays.of(memory["agent_id"])
            before = Strength(memory["base_importance"], to_ms(memory["anchored_at"]), memory["pinned"], decay)
            after, effect = adjusted(before, to_ms(now), helpful=item.helpful, undone=effect)
            fields |= {
                "base_importance": after.base,
                "anchored_at": memory["anchored_at"] if after.anchor_ms == before.anchor_ms else rfc3339(now),
                "importance": after.at(to_ms(now)),
            }
        expect = MEMORIES.as_record({name: value for name, value in memory.items() if name in EXPECTED})
        counted = self._memories.append(memory, fields, expect=expect)
        answer = await self._answer(item, memory | fields, now, None, replaced=note is not None)
        return answer, [counted, self._noted(item, memory, note, effect, now)]

    def _noted(
        self, item: FeedbackItem, memory: MemoryRecord, note: FeedbackNote | None, effect: float, now: datetime
    ) -> Change:
        """Returns the change that stores the note.

        The query is not stored for a memory without a user, because it could not be assigned to any user for erasure.
        """
        query = item.query if memory["user_id"] is not None else None
        if note is not None:
            return self._notes.append(
                note,
                {"helpful": item.helpful, "query": query, "effect": effect},
                expect={"helpful": note["helpful"], "effect": note["effect"]},
            )
        return self._notes.insert(
            {
                "feedback_id": self._note_id(item.memory_id, now),
                "memory_id": memory["memory_id"],
                "agent_id": memory["agent_id"],
                "user_id": memory["user_id"],
                "key": self._key,
                "helpful": item.helpful,
                "query": query,
                "effect": effect,
                "created_at": rfc3339(now),
                "expires_at": rfc3339(now + KEPT),
            }
        )

    def _note_id(self, memory_id: str, now: datetime) -> str:
        """Returns the same id for one memory, key and UTC day, so that a second note cannot be inserted."""
        day = rfc3339(now)[:10]
        return "fb_" + blake2b(f"{self._key}\0{memory_id}\0{day}".encode(), digest_size=16).hexdigest()

    async def _answer(
        self,
        item: FeedbackItem,
        memory: MemoryRecord,
        now: datetime,
        reason: FeedbackReason | None,
        *,
        replaced: bool = False,
    ) -> FeedbackApplied:
        return {
            "memory_id": item.memory_id,
            "applied": reason is None,
            "reason": reason,
            "replaced": replaced,
            "importance": rounded(await self._decays.importance(memory, to_ms(now))),
            "base_importance": memory["base_importance"],
            "helpful_count": memory["helpful_count"],
            "misleading_count": memory["misleading_count"],
        }


def _refused(item: FeedbackItem, reason: FeedbackReason) -> tuple[FeedbackApplied, list[Change]]:
    """Returns the answer of an item that is not applied.

    It reveals nothing about a memory that the key may not see or change.
    """
    answer: FeedbackApplied = {
        "memory_id": item.memory_id,
        "applied": False,
        "reason": reason,
        "replaced": False,
        "importance": None,
        "base_importance": None,
        "helpful_count": None,
        "misleading_count": None,
    }
    return answer, []


def _counted(memory: MemoryRecord, item: FeedbackItem, note: FeedbackNote | None) -> MemoryRecord:
    """Returns the counts after a feedback. A feedback that replaces the opposite one also reverts its count."""
    helpful, misleading = memory["helpful_count"], memory["misleading_count"]
    if item.helpful:
        reverted: MemoryRecord = {} if note is None else {"misleading_count": max(0, misleading - 1)}
        return reverted | {"helpful_count": helpful + 1}
    reverted = {} if note is None else {"helpful_count": max(0, helpful - 1)}
    return reverted | {"misleading_count": misleading + 1}
