"""Forgets memories by policy, with undo."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType, TypedDict

from app.core.clock import Clock, rfc3339, to_ms
from app.core.schemas import Count, Flag, Json, JsonObject, Owned, Share, example, shown
from app.jobs import queue
from app.jobs.queue import FORGET, Operation, Payload, collecting, skipping
from app.memories.agents import Decays
from app.memories.repository import MemoryRepository
from app.memories.schemas import MEMORIES, MemoryRecord, MemoryType
from app.memories.search import MEMORY_FIELDS, TagAndMetadataFilters, TagsMatch, by_tags
from app.retrieval.decay import DAY_MS
from app.storage.changes import Change
from app.storage.record_filters import split_filter
from app.storage.repository import having, pages, unexpired
from app.storage.schema import Eq, Filter, In, Not, Range, both
from app.storage.scope import Scope
from app.writes.executor import WriteResult

RECENCY_POINTS = 100
KEPT_TYPES = frozenset({"issue", "solution"})
TYPE_POINTS = 50
OFTEN = 10
ACCESS_POINTS = 30


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Selects memories that are older than `older_than_days` and, if the limits are given, have at most this importance
    and score."""

    older_than_days: float = 365
    max_importance: float | None = None
    max_score: float | None = None
    types: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    tags_match: TagsMatch = "any"
    exclude_tags: tuple[str, ...] | None = None
    metadata: JsonObject | None = None

    def candidates(self, now: str, before: str) -> Filter:
        """Filters what the store can decide: active, not pinned, not expired, created before `before`, of the types,
        tags and metadata."""
        return both(
            Eq("status", "active"),
            Not(Eq("pinned", True)),
            unexpired(now),
            Range("created_at", lt=before),
            # a manual stays as long as its document
            Not(Eq("memory_type", "document")) if self.types is None else In("memory_type", self.types),
            by_tags(self.tags, self.tags_match, self.exclude_tags),
            split_filter({"metadata": self.metadata}, MEMORY_FIELDS, MEMORIES).where,
        )

    def forgets(self, importance: float, score: float) -> bool:
        """Returns True if a candidate with this importance and score is to be forgotten."""
        return (self.max_importance is None or importance <= self.max_importance) and (
            self.max_score is None or score <= self.max_score
        )


ForgetReason = TypeAliasType("ForgetReason", Literal["recency", "type", "access"])


@shown
class Reason(TypedDict):
    reason: ForgetReason
    points: Annotated[float, Field(description="Rounded to a whole number, as the score.")]
    detail: str


@shown
class Forgettable(TypedDict):
    memory_id: str
    content: str
    memory_type: MemoryType
    importance: float
    score: float
    reasons: list[Reason]


@shown
class ForgetPlan(TypedDict):
    """What would be forgotten."""

    dry_run: Literal[True]
    total: Count
    items: Annotated[list[Forgettable], Field(description="The first 100, lowest score first.")]


def score(memory: MemoryRecord, now_ms: int) -> tuple[float, list[Reason]]:
    """Returns a memory's retention score and the reasons that it is the sum of."""
    age = (now_ms - to_ms(memory["created_at"])) / DAY_MS
    kind, accesses = memory["memory_type"], memory["access_count"]
    reasons: list[Reason] = [
        {"reason": "recency", "points": max(0.0, RECENCY_POINTS - age), "detail": f"{age:.0f} days old"},
        {"reason": "type", "points": TYPE_POINTS * (kind in KEPT_TYPES), "detail": kind},
        {"reason": "access", "points": ACCESS_POINTS * (accesses > OFTEN), "detail": f"{accesses} times"},
    ]
    return sum(reason["points"] for reason in reasons), reasons


class PolicyIn(TagAndMetadataFilters):
    older_than_days: Annotated[float, Field(strict=True, ge=0, le=36500)] = 365
    max_importance: Share | None = Field(None, description="Only what has faded to this or less.")
    max_score: Annotated[float, Field(strict=True, ge=0, le=1000)] | None = Field(
        None,
        description="Only what scores this or less, before it is rounded: up to 100 for recency, 50 for issues and "
        "solutions, 30 for use.",
    )
    types: Annotated[list[MemoryType], Field(min_length=1)] | None = None


class ForgetRequest(Owned):
    model_config = example({"agent_id": "support", "user_id": "ada", "policy": {"older_than_days": 365}})

    policy: PolicyIn
    dry_run: Flag = Field(True, description="Only say what would go.")


BATCH = 200
SHOWN = 100
"""The number of candidates that a dry run lists."""


class Forgetting:
    """Forgets memories within the scope of a caller or a job."""

    def __init__(self, memories: MemoryRepository, clock: Clock) -> None:
        self._memories, self._clock = memories, clock
        self._decays = Decays(memories.store, memories.scope.tenant)

    @property
    def scope(self) -> Scope:
        """The scope of the caller or job."""
        return self._memories.scope

    async def request(self, body: ForgetRequest) -> WriteResult[Operation]:
        """Returns 202 with the operation that archives. The job has the bindings of the caller's key."""
        scope = self.scope
        agent_id, user_id = _only(body.agent_id, scope.agents), _only(body.user_id, scope.users)
        scope.require_write(agent_id, user_id)
        payload: Payload = {
            "policy": body.policy.model_dump(),
            "agent_id": agent_id,
            "user_id": user_id,
            **scope.bindings(),
        }
        answer, changes = queue.start(scope, FORGET, payload, self._clock.now(), agent_id=agent_id, user_id=user_id)
        return WriteResult(answer, changes, 202)

    async def plan(self, body: ForgetRequest, step: Callable[[Forgettable], None] = lambda item: None) -> ForgetPlan:
        """Returns what would be forgotten, the lowest score first. Calls `step` with every candidate, including those
        not listed. Damaged memories are left out and logged, as the run does."""
        chosen = self._chosen(policy_of(body.policy.model_dump()), having(body.model_dump(), "agent_id", "user_id"))
        forgettable: list[Forgettable] = []
        with collecting():
            async for memory in chosen:
                now_ms = to_ms(self._clock.now())
                with skipping(MEMORIES, memory["memory_id"]):
                    points, reasons = score(memory, now_ms)
                    item: Forgettable = {
                        "memory_id": memory["memory_id"],
                        "content": memory["content"],
                        "memory_type": memory["memory_type"],
                        "importance": await self._decays.importance(memory, now_ms),
                        "score": points,
                        "reasons": reasons,
                    }
                    forgettable.append(item)
                    step(item)
        forgettable.sort(key=lambda item: (item["score"], item["memory_id"]))
        items = list(map(_in_whole_numbers, forgettable[:SHOWN]))
        return {"dry_run": True, "total": len(forgettable), "items": items}

    async def _chosen(self, policy: RetentionPolicy, owner: Filter) -> AsyncIterator[MemoryRecord]:
        """Yields candidates in keyset batches, so that no job loads a whole collection."""
        now = self._clock.now()
        before = rfc3339(now - timedelta(days=policy.older_than_days))
        where = both(owner, policy.candidates(rfc3339(now), before), self.scope.writable())
        keep = split_filter({"metadata": policy.metadata}, MEMORY_FIELDS, MEMORIES).keep
        async for memories in pages(partial(self._memories.find, where), MEMORIES, BATCH):
            for memory in memories:
                chosen = False
                with skipping(MEMORIES, memory["memory_id"]):
                    importance = await self._decays.importance(memory, to_ms(now))
                    points, _ = score(memory, to_ms(now))
                    chosen = (keep is None or keep(memory)) and policy.forgets(importance, points)
                if chosen:
                    yield memory

    async def batches(self, policy: RetentionPolicy, owner: Filter) -> AsyncIterator[list[MemoryRecord]]:
        """Yields the memories that the policy selects, in batches."""
        batch: list[MemoryRecord] = []
        async for memory in self._chosen(policy, owner):
            batch.append(memory)
            if len(batch) == BATCH:
                yield batch
                batch = []
        if batch:
            yield batch

    def archive(self, memory: MemoryRecord, by: str) -> list[Change]:
        """Returns the changes that archive a memory. `by` is the operation's id, by which an undo finds it."""
        now = rfc3339(self._clock.now())
        return self._memories.revise(memory, {"status": "archived", "archived_by": by, "archived_at": now}, now)

    async def archived(self, by: str) -> AsyncIterator[MemoryRecord]:
        """Yields the memories that an operation archived and nobody has restored."""
        where = both(Eq("archived_by", by), Eq("status", "archived"))
        async for memories in pages(partial(self._memories.find, where), MEMORIES, BATCH):
            for memory in memories:
                yield memory

    def bring_back(self, memory: MemoryRecord) -> list[Change]:
        """Returns the changes that restore an archived memory. The commit fails on a unique key if another memory took
        its place."""
        now = rfc3339(self._clock.now())
        return self._memories.revise(memory, {"status": "active", "archived_by": None, "archived_at": None}, now)


def _in_whole_numbers(item: Forgettable) -> Forgettable:
    """Returns a candidate with whole numbers: nobody forgets by the ninth digit of an age."""
    reasons: list[Reason] = [{**reason, "points": round(reason["points"])} for reason in item["reasons"]]
    return {**item, "score": round(item["score"]), "reasons": reasons}


def _only(named: str | None, bound: frozenset[str] | None) -> str | None:
    """Returns the named owner, or else the only one that the key is bound to."""
    return next(iter(bound)) if named is None and bound is not None and len(bound) == 1 else named


def policy_of(given: Json) -> RetentionPolicy:
    """Returns the policy of a request or of a job's payload."""
    lists = {
        name: None if given.get(name) is None else tuple(given[name]) for name in ("types", "tags", "exclude_tags")
    }
    return RetentionPolicy(**{**given, **lists})
