"""Feedback: callers report which memories helped and which misled. Being served is no feedback.

A memory that helped gains `GAIN` of importance over its current value, and decay starts anew from there. A memory that
misled loses `LOSS`, and its decay does not start anew, so that it is never more important than without the feedback.
One API key counts once for a memory and UTC day. The opposite feedback on the same day replaces the first one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b

from app.core.clock import Clock, rfc3339, to_ms
from app.errors import Forbidden, invalid
from app.memories.agents import Decays
from app.memories.repository import MemoryRepository
from app.memories.schemas import (
    FEEDBACK,
    MEMORIES,
    FeedbackApplied,
    FeedbackItem,
    FeedbackNote,
    FeedbackReason,
    FeedbackResult,
    MemoryRecord,
    rounded,
)
from app.retrieval.decay import DecayCurve, base_of, importance
from app.storage.changes import Change
from app.storage.repository import Repository, expired
from app.writes.executor import IfMatch, WriteResult

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
        """Returns the importance at `now_ms`."""
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

    async def give(self, items: Sequence[FeedbackItem], precondition: IfMatch) -> WriteResult[FeedbackResult]:
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
        except Forbidden:
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
