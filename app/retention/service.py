"""Forgets memories by policy, with undo, and exports all records of a user. The shapes of requests and responses of
both, and of erasure, are here, too.

The last line of an export has the counts: an export without it is incomplete.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Literal, NotRequired

import orjson
from pydantic import Field
from typing_extensions import TypeAliasType, TypedDict

from app.actions.schemas import ACTIONS
from app.audit import trail
from app.audit.tombstones import Tombstones
from app.audit.trail import Actor, owned
from app.core.clock import Clock, rfc3339, to_ms
from app.core.schemas import Count, Flag, Json, JsonObject, Owned, Share, example, shown
from app.core.work import characters, off_loop
from app.facts.aliases import ENTITY_ALIASES
from app.facts.keys import USERS
from app.facts.schemas import FACTS
from app.findings.schemas import FINDINGS
from app.jobs import queue
from app.jobs.models import FORGET, Operation, Payload
from app.jobs.skipping import collecting, skipping
from app.memories.decays import Decays
from app.memories.narrowing import TagAndMetadataFilters, TagsMatch, by_metadata, by_tags
from app.memories.repository import MemoryRepository
from app.memories.schemas import MEMORIES, MemoryRecord, MemoryType
from app.procedures.schemas import PROCEDURE_HISTORY, PROCEDURES
from app.retrieval.decay import DAY_MS
from app.sessions.schemas import MESSAGES, SESSIONS
from app.storage.changes import Change
from app.storage.protocol import Store
from app.storage.repository import having, pages, unexpired
from app.storage.schema import Collection, Doc, Eq, Filter, In, Not, Range, both
from app.storage.scope import Scope
from app.tasks.schemas import CHECKPOINTS, TASKS
from app.views import RecordReader
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
            None if self.types is None else In("memory_type", self.types),
            by_tags(self.tags, self.tags_match, self.exclude_tags),
            by_metadata(self.metadata).where,
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


EXPORT_BATCH = 100
FORMAT = 1
"""The version of the format."""
KEPT: Mapping[str, frozenset[str]] = {
    MEMORIES.name: frozenset(
        {
            *("anchored_at", "archived_by", "archived_at", "dedupe_key", "kept_apart", "merged", "claimed_key"),
            "importance",  # as it is stored; shown is what is left of it
        }
    ),
    MESSAGES.name: frozenset({"agent_id", "user_id"}),
    SESSIONS.name: frozenset({"learned_seq", "revised", "summary_id", "summary_seq"}),
    TASKS.name: frozenset({"kept_after_end"}),
    CHECKPOINTS.name: frozenset({"checkpoint_id", "agent_id", "user_id"}),
    ACTIONS.name: frozenset({"consolidated_at"}),
    USERS.name: frozenset({"profile", "interactions", "interacted", "earlier"}),
    FACTS.name: frozenset({"standing", "start_assumed"}),
    ENTITY_ALIASES.name: frozenset({"alias_id", "states", "version", "updated_at"}),
    FINDINGS.name: frozenset({"evidence"}),
    PROCEDURES.name: frozenset({"dropped_trials"}),
    PROCEDURE_HISTORY.name: frozenset({"dropped_trials"}),
}
"""Stored fields that an import cannot derive from what is shown of a record, such as the start of its decay."""


class ExportedRecord(TypedDict):
    """The line of a record. `kept`: the fields of `KEPT` that it has."""

    type: Literal["record"]
    collection: str
    record: Mapping[str, Any]
    kept: NotRequired[Mapping[str, Any]]


class UserExport:
    """Exports users within a caller's scope."""

    def __init__(
        self, store: Store, scope: Scope, collections: Sequence[Collection], clock: Clock, tombstones: Tombstones
    ) -> None:
        self._store, self._scope, self._clock, self._tombstones = store, scope, clock, tombstones
        self._collections, self._reader = owned(collections), RecordReader(store, scope, clock)

    async def note(self, user_id: str, actor: Actor) -> None:
        """Records the export in the audit trail, under the hash if the user was erased."""
        now, tombstone = rfc3339(self._clock.now()), await self._tombstones.find(user_id)
        named, hashed = (user_id, None) if tombstone is None else (None, tombstone["erased_id"])
        await self._store.commit([trail.entry(actor, now, named, [], {"users": {"export": 1}}, hashed)])

    async def lines(self, user_id: str) -> AsyncIterator[bytes]:
        """Yields the records of this user that the key may see, without shared ones, as their routes show them. Records
        written meanwhile may be missing."""
        now = rfc3339(self._clock.now())
        yield _line({"type": "export", "format": FORMAT, "user_id": user_id, "exported_at": now})
        counts: Counter[str] = Counter()
        where = both(Eq("user_id", user_id), self._scope.visible())
        for collection in self._collections:
            find = partial(self._store.find, collection, self._scope.tenant, where)
            async for docs in pages(find, collection, EXPORT_BATCH):
                records = await self._records(collection, docs)
                counts[collection.name] += len(records)
                yield await off_loop(characters(records), _lines, records)
        yield _line({"type": "end", "counts": dict(counts), "total": counts.total()})

    async def _records(self, collection: Collection, docs: Sequence[Doc]) -> list[ExportedRecord]:
        """Returns the lines of those of the documents that the key may read."""
        if collection.kind is not None:
            shown = await self._reader.of(collection.kind, docs)
            return [_record(collection, doc, record) for doc, record in shown]
        readable = await self._reader.readable(collection, docs)
        records = []
        for doc in readable:
            public = collection.public(doc)
            if isinstance(past := public.get("record"), dict):  # a history holds a version of its record
                public["record"] = collection.public(past)
            records.append(_record(collection, doc, public))
        return records


def _record(collection: Collection, doc: Doc, shown: Mapping[str, Any]) -> ExportedRecord:
    line: ExportedRecord = {"type": "record", "collection": collection.name, "record": shown}
    kept = {name: doc[name] for name in sorted(KEPT.get(collection.name, ())) if doc.get(name) is not None}
    if kept:
        line["kept"] = kept
    return line


def _lines(records: Sequence[ExportedRecord]) -> bytes:
    return b"".join(map(_line, records))


def _line(value: Mapping[str, Any]) -> bytes:
    return orjson.dumps(value) + b"\n"


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
        keep = by_metadata(policy.metadata).keep
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
