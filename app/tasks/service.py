"""Creates, changes and restores tasks, with their checkpoints. Methods that write return a `WriteResult` and commit
nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar, cast

from app.core import prompt_text
from app.core import schemas as core
from app.core.clock import Clock, new_id, rfc3339
from app.core.work import characters, off_loop
from app.errors import AlreadyExists, Conflict, IllegalTransition, NotFound, invalid
from app.jobs import queue
from app.settings import LimitSettings
from app.storage.changes import Allocate, Change, DeleteWhere, Insert, Ref, Update
from app.storage.protocol import Store
from app.storage.record_filters import split_filter
from app.storage.repository import Listing, Repository, expired, having, pages, unexpired
from app.storage.schema import Absent, Eq, Filter, In, Range, both, value_at
from app.storage.scope import Partition, Scope
from app.tasks import schemas, working_memory
from app.writes.executor import Precondition, WriteResult, changed, etag


class TaskRepository(Repository[schemas.TaskRecord]):
    """The tasks and checkpoints that a caller may see."""

    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__(store, scope, schemas.TASKS)
        self.checkpoints = Repository(store, scope, schemas.CHECKPOINTS)

    def within(self, task: schemas.TaskRecord) -> Filter:
        return Eq("task_id", task["task_id"])

    async def checkpoint(self, task: schemas.TaskRecord, seq: int) -> schemas.CheckpointRecord:
        """Returns a checkpoint; -1 is the latest. Raises NotFound."""
        where = self.within(task) if seq == -1 else both(self.within(task), Eq("seq", seq))
        checkpoints = await self.checkpoints.find(where, order="desc", limit=1)
        if not checkpoints:
            raise NotFound("The task has no checkpoint yet." if seq == -1 else f"The task has no checkpoint {seq}.")
        return checkpoints[0]

    async def due(
        self, partitions: Sequence[Partition], now: str, until: str | None = None, known_at: str | None = None
    ) -> list[schemas.TaskRecord]:
        """Returns the tasks of these partitions that are to be done, up to `until`, without those of after
        `known_at`."""
        known = None if known_at is None else Range("created_at", le=known_at)
        to_do = both(In("status", ("pending", "in_progress")), Range("due_at", le=until), unexpired(now), known)
        due: list[schemas.TaskRecord] = []
        for agent, user in partitions:
            if agent is None:  # each task has an agent
                continue
            of_user = Absent("user_id") if user is None else Eq("user_id", user)
            of_agent = Eq("agent_id", agent) if isinstance(agent, str) else None
            async for tasks in pages(partial(self.find, both(of_agent, of_user, to_do)), schemas.TASKS, READ_AT_ONCE):
                due += tasks
        return due

    # --- Changes ------------------------------------------------------------------------------------------------------

    def snapshots(
        self, task: schemas.TaskRecord, now: str, *wanted: schemas.CheckpointRecord
    ) -> list[schemas.CheckpointRecord]:
        """Returns new checkpoints, numbered in order. Each of `wanted` gives a reason and may replace the state."""
        state = cast(schemas.TaskState, {part: value_at(task, part) for part in schemas.STATE})
        return [
            {
                "tenant_id": self.scope.tenant,
                "checkpoint_id": new_id("ckpt"),
                "task_id": task["task_id"],
                "agent_id": task["agent_id"],
                "user_id": task["user_id"],
                "seq": Ref.number(schemas.counter(task["task_id"]), index),
                "label": None,
                "restored_seq": None,
                "state": state,
                "created_at": now,
                **fields,
            }
            for index, fields in enumerate(wanted)
        ]

    def keep(self, *checkpoints: schemas.CheckpointRecord) -> list[Change]:
        """Returns the changes that store new checkpoints of a task."""
        numbers = Allocate(schemas.counter(checkpoints[0]["task_id"]), self.scope.tenant, len(checkpoints))
        return [numbers, *(Insert(schemas.CHECKPOINTS, checkpoint) for checkpoint in checkpoints)]

    def unchanged(self, task: schemas.TaskRecord) -> Update[schemas.TaskRecord]:
        """Returns an update without changes that expects the version that was read, so that a checkpoint stores the
        state at the time of the commit."""
        self.scope.require_write(task["agent_id"], task["user_id"])
        expect = {"version": task["version"]}
        return Update(schemas.TASKS, self.scope.tenant, task["task_id"], expect=expect, user=task["user_id"])

    def remove(self, task: schemas.TaskRecord) -> list[Change]:
        return [self.delete(task), DeleteWhere(schemas.CHECKPOINTS, self.scope.tenant, self.within(task))]


READ_AT_ONCE = 100
E = TypeVar("E", schemas.Note, schemas.Evidence)

MOVES: Mapping[schemas.TaskStatus, tuple[schemas.TaskStatus, ...]] = {
    "pending": ("in_progress", "completed", "failed", "cancelled"),
    "in_progress": ("completed", "failed", "cancelled"),
    "failed": ("in_progress",),
    "completed": (),
    "cancelled": (),
}
ENDED: frozenset[schemas.TaskStatus] = frozenset({"completed", "failed", "cancelled"})
MAX_EVIDENCE = 500
"""The limit of evidence pieces of one task."""


def may_move(old: schemas.TaskStatus, new: schemas.TaskStatus) -> bool:
    """Returns True if a task may change from one status to the other."""
    return old == new or new in MOVES[old]


def most_keys(value: Any) -> int:
    """Returns the number of keys of the largest object in a value."""
    if isinstance(value, dict):
        return max(len(value), *(most_keys(inner) for inner in value.values()), 0)
    return max((most_keys(inner) for inner in value), default=0) if isinstance(value, list) else 0


def bound(parts: Sequence[E], max_tokens: int) -> tuple[list[E], list[E]]:
    """Splits notes, or evidence, into those that fit into `max_tokens` and those that are dropped. What could never fit
    is dropped first, then the notes of the lowest priority, then the oldest. Evidence has no priorities."""
    sizes = [part["tokens"] for part in parts]
    priorities = [part.get("priority", 0.0) for part in parts]
    least_first = sorted(range(len(parts)), key=lambda index: (sizes[index] <= max_tokens, priorities[index], index))
    total, dropped = sum(sizes), list[int]()
    while total > max_tokens:
        dropped.append(least_first[len(dropped)])
        total -= sizes[dropped[-1]]
    leaving = set(dropped)
    return [part for index, part in enumerate(parts) if index not in leaving], [parts[index] for index in dropped]


def bound_evidence(
    evidence: Sequence[schemas.Evidence], max_tokens: int
) -> tuple[list[schemas.Evidence], list[schemas.Evidence]]:
    """Splits evidence like `bound`, and keeps the newest `MAX_EVIDENCE` pieces."""
    fitting, dropped = bound(evidence, max_tokens)
    over = max(0, len(fitting) - MAX_EVIDENCE)
    return fitting[over:], [*dropped, *fitting[:over]]


def new_evidence(source: str, content: str) -> schemas.Evidence:
    """Returns a piece of evidence with its token count."""
    return {"source": source, "content": content, "tokens": prompt_text.count(f"{source}: {content}")}


KEPT_AFTER_END = timedelta(days=30)
"""How long a task stays stored after it ended."""


class TaskService:
    """The operations on tasks within a caller's scope."""

    def __init__(self, tasks: TaskRepository, limits: LimitSettings, clock: Clock, *, learns: bool = False) -> None:
        """`learns` is true if a language model is configured that reads conversations."""
        self._tasks, self._limits, self._clock = tasks, limits, clock
        self._learns = learns

    async def create(self, body: schemas.TaskCreate, precondition: Precondition) -> WriteResult[schemas.Task]:
        """Creates a task; an expired one with its id goes. Raises AlreadyExists if the id is taken, NotFound if it is
        that of a task outside the bindings, Invalid or Forbidden."""
        precondition.check(None)
        core.require_size(body.context, core.OBJECT_BYTES, "context", "/context")
        now = self._now()
        task: schemas.TaskRecord = {
            **schemas.TASKS.as_record(dict(body)),
            "task_id": body.task_id or new_id("task"),
            "plan": _plan(body.plan),
            "scratchpad": [],
            "evidence": [],
            "version": 1,
            "created_at": now,
            "updated_at": now,
        }
        # checked first, so that nobody learns which ids are taken
        self._tasks.scope.require_write(task["agent_id"], task["user_id"])
        old = await self._tasks.holder(task["task_id"])
        if old is not None and not expired(old, now):
            raise AlreadyExists("That task_id is taken.")  # whose it is remains unsaid
        room = [] if old is None else self._tasks.remove(old)
        return WriteResult(schemas.render(task), [*room, self._tasks.insert(task)], 201, {"ETag": etag(task)})

    async def get(self, task_id: str) -> schemas.Task:
        """Returns a task. Raises NotFound."""
        return schemas.render(await self._live(task_id))

    async def page(self, filters: core.RecordFilters, listing: Listing) -> core.Page[schemas.Task]:
        asked, keep = split_filter(filters, schemas.TASK_FIELDS, schemas.TASKS)
        named = having(filters, "agent_id", "user_id", "session_id", "status")
        where = both(named, unexpired(self._now()), asked)
        return await self._tasks.listed(where, listing, schemas.render, schemas.Task, request=filters, keep=keep)

    async def patch(
        self, task_id: str, body: schemas.TaskPatch, precondition: Precondition
    ) -> WriteResult[schemas.TaskPatched]:
        """Changes fields of a task. Raises IllegalTransition if the status may not change like this."""
        task = await self._read(task_id, precondition)
        fields = core.differing(task, body.model_dump(exclude_unset=True))
        if "status" in fields:
            before, after = task["status"], fields["status"]
            if not may_move(before, after):
                allowed = ", ".join(MOVES[before]) or "none (a restore with `reopen: true` lets it go on)"
                raise IllegalTransition(f"A task cannot go from {before} to {after}. Allowed: {allowed}.")
            fields = {**self._term(task, after), **fields}
        if "expires_at" in body.model_fields_set and fields.get("kept_after_end", task.get("kept_after_end")):
            fields["kept_after_end"] = False
        if "max_tokens" in fields:
            fields = {**fields, **_bounded(task, fields["max_tokens"])}
        outcome = self._changed(task, fields)
        operation_id, queued = self._learn_from({**task, **fields}, fields.get("status"))
        patched: schemas.TaskPatched = {**outcome.body, "operation_id": operation_id}
        return WriteResult(patched, [*outcome.changes, *queued], headers=outcome.headers)

    def _learn_from(
        self, task: schemas.TaskRecord, status: schemas.TaskStatus | None
    ) -> tuple[str | None, list[Change]]:
        """Returns the operation that learns from the task's session if the task completed or failed, and the changes
        that queue it."""
        if not self._learns or status not in ("completed", "failed") or task["session_id"] is None:
            return None, []
        scope, session_id = self._tasks.scope, task["session_id"]
        owner = {"agent_id": task["agent_id"], "user_id": task["user_id"]}
        payload = {"session_id": session_id, "of": owner, **scope.bindings()}
        operation, queued = queue.start(
            scope, queue.POST_CONVERSATION, payload, self._clock.now(), **owner, session_id=session_id
        )
        return operation["operation_id"], queued

    def _term(self, task: schemas.TaskRecord, status: schemas.TaskStatus) -> schemas.TaskRecord:
        """Returns the expiry that a task gets with this status. An expiry that the caller set is not changed."""
        if status in ENDED:
            own = task["expires_at"] is not None and not task.get("kept_after_end")
            until = task["expires_at"] or rfc3339(self._clock.now() + KEPT_AFTER_END)
            return {"expires_at": until, "kept_after_end": not own}
        return {"expires_at": None, "kept_after_end": False} if task.get("kept_after_end") else {}

    async def delete(self, task_id: str, precondition: Precondition) -> WriteResult[None]:
        task = await self._tasks.get_to_delete(task_id, self._now())
        precondition.check(task)
        return WriteResult(None, self._tasks.remove(task), 204)

    # --- Context, plan, notes, evidence -------------------------------------------------------------------------------

    async def patch_context(
        self, task_id: str, patch: core.JsonObject, precondition: Precondition
    ) -> WriteResult[schemas.Task]:
        """Applies a merge patch to the context. Raises Invalid if the result exceeds a limit."""
        task = await self._read(task_id, precondition)
        merged = core.merge_patch(task["context"], patch)
        if most_keys(merged) > core.BODY_LIMITS.object_keys:
            raise invalid("", f"the context would have an object of more than {core.BODY_LIMITS.object_keys} keys")
        core.require_size(merged, core.OBJECT_BYTES, "context", "")
        return self._changed(task, {} if core.equal_json(merged, task["context"]) else {"context": merged})

    async def put_plan(
        self, task_id: str, plan: Sequence[schemas.StepIn], precondition: Precondition
    ) -> WriteResult[schemas.Task]:
        task = await self._read(task_id, precondition)
        return self._planned(task, _plan(plan))

    async def patch_step(
        self, task_id: str, index: int, body: schemas.StepPatch, precondition: Precondition
    ) -> WriteResult[schemas.Task]:
        """Changes one step of the plan. Raises NotFound if there is no such step."""
        task = await self._read(task_id, precondition)
        if index >= len(task["plan"]):
            raise NotFound(f"The plan has no step {index}.")
        plan = list(task["plan"])
        plan[index] = body.over(plan[index])
        core.require_size(plan, self._limits.body_bytes, "plan", "/result")  # limits the sum of all results
        return self._planned(task, plan)

    def _planned(self, task: schemas.TaskRecord, plan: list[schemas.Step]) -> WriteResult[schemas.Task]:
        """Sets the plan, and adds a checkpoint after every `checkpoint_every` completed steps."""
        outcome = self._changed(task, {} if core.equal_json(plan, task["plan"]) else {"plan": plan})
        before, after = (sum(step["status"] == "completed" for step in steps) for steps in (task["plan"], plan))
        every = task["checkpoint_every"]
        if not every or after // every <= before // every:
            return outcome
        checkpoints = self._tasks.snapshots({**task, "plan": plan}, self._now(), {"reason": "steps"})
        return replace(outcome, changes=[*outcome.changes, *self._tasks.keep(*checkpoints)])

    async def jot(self, task_id: str, body: schemas.NoteIn, precondition: Precondition) -> WriteResult[schemas.Jotted]:
        """Adds a note to the scratchpad. The answer lists the notes that it displaced."""
        task = await self._read(task_id, precondition)
        note: schemas.Note = {
            "id": new_id("note"),
            "content": body.content,
            "priority": body.priority,
            "tokens": prompt_text.count(body.content),
        }
        notes, evicted = bound([*task["scratchpad"], note], task["max_tokens"])
        outcome = self._changed(task, {"scratchpad": notes})
        answer: schemas.Jotted = {"note": note if note in notes else None, "evicted": evicted, "scratchpad": notes}
        return WriteResult(answer, outcome.changes, 201, outcome.headers)

    async def add_evidence(
        self, task_id: str, body: schemas.EvidenceIn, precondition: Precondition
    ) -> WriteResult[schemas.EvidenceAdded]:
        """Adds a piece of evidence. The answer lists the pieces that it displaced."""
        task = await self._read(task_id, precondition)
        characters = len(body.source) + len(body.content)
        piece = await off_loop(characters, new_evidence, body.source, body.content)
        evidence, evicted = bound_evidence([*task["evidence"], piece], task["max_tokens"])
        outcome = self._changed(task, {"evidence": evidence})
        return WriteResult({**outcome.body, "evicted": evicted}, outcome.changes, 201, outcome.headers)

    async def working_memory(self, task_id: str, max_tokens: int | None) -> schemas.WorkingMemory:
        """Returns the task as prompt text within `max_tokens`."""
        task = await self._live(task_id)
        text, size = await off_loop(characters(task), working_memory.describe, task, max_tokens)
        return {"text": text, "tokens": size}

    # --- Checkpoints --------------------------------------------------------------------------------------------------

    async def checkpoint(
        self, task_id: str, label: str | None, precondition: Precondition
    ) -> WriteResult[schemas.Checkpoint]:
        task = await self._read(task_id, precondition)
        (checkpoint,) = self._tasks.snapshots(task, self._now(), {"reason": "asked", "label": label})
        changes = [*self._tasks.keep(checkpoint), self._tasks.unchanged(task)]
        return WriteResult(schemas.render_checkpoint(checkpoint), changes, 201)

    async def checkpoints(self, task_id: str, listing: Listing) -> core.Page[schemas.Checkpoint]:
        task = await self._live(task_id)
        within, checkpoints = self._tasks.within(task), self._tasks.checkpoints
        return await checkpoints.listed(within, listing, schemas.render_checkpoint, schemas.Checkpoint, request=task_id)

    async def get_checkpoint(self, task_id: str, seq: int) -> schemas.Checkpoint:
        """Returns a checkpoint; -1 is the latest. Raises NotFound."""
        return schemas.render_checkpoint(await self._tasks.checkpoint(await self._live(task_id), seq))

    async def restore(
        self, task_id: str, body: schemas.Restore, precondition: Precondition
    ) -> WriteResult[schemas.Task]:
        """Restores the state of a checkpoint in one write. The state before it and the restore itself become
        checkpoints. Raises Conflict if the task is over and the caller does not reopen it."""
        task = await self._read(task_id, precondition)
        checkpoint = await self._tasks.checkpoint(task, body.seq)
        if not MOVES[task["status"]] and not body.reopen:
            raise Conflict(f"This task is {task['status']}: restore it with `reopen: true` if it is to go on.")
        state = schemas.TASKS.as_record(
            {part: value for part, value in checkpoint["state"].items() if part in schemas.STATE}
        )
        state = {**state, **_bounded(state, task["max_tokens"])}  # the limit may have been lowered since
        outcome = self._changed(task, {**self._term(task, state["status"]), **state})
        checkpoints = self._tasks.snapshots(
            task,
            self._now(),
            {"reason": "before_restore"},
            {"reason": "restore", "restored_seq": checkpoint["seq"], "state": state},
        )
        return WriteResult(outcome.body, [*outcome.changes, *self._tasks.keep(*checkpoints)], headers=outcome.headers)

    # ------------------------------------------------------------------------------------------------------------------

    def _changed(self, task: schemas.TaskRecord, fields: schemas.TaskRecord) -> WriteResult[schemas.Task]:
        return changed(self._tasks, task, fields, schemas.render, self._now())

    async def _read(self, task_id: str, precondition: Precondition) -> schemas.TaskRecord:
        task = await self._live(task_id)
        precondition.check(task)
        return task

    async def _live(self, task_id: str) -> schemas.TaskRecord:
        return await self._tasks.get_unexpired(task_id, self._now())

    def _now(self) -> str:
        return rfc3339(self._clock.now())


def _plan(steps: Sequence[schemas.StepIn]) -> list[schemas.Step]:
    return [
        {
            "action": step.action,
            "step": at if step.step is None else step.step,
            "params": step.params,
            "status": step.status,
            "result": step.result,
        }
        for at, step in enumerate(steps, 1)
    ]


def _bounded(task: schemas.TaskState, max_tokens: int) -> schemas.TaskRecord:
    """Returns scratchpad and evidence, each within `max_tokens`."""
    notes, _ = bound(task["scratchpad"], max_tokens)
    evidence, _ = bound_evidence(task["evidence"], max_tokens)
    return {"scratchpad": notes, "evidence": evidence}
