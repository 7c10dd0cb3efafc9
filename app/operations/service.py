"""Background work as callers see it: scheduled jobs, operations, and their undo."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from app.audit.tombstones import Tombstones
from app.core import schemas as core
from app.core.clock import Clock
from app.errors import Conflict, NotFound, invalid, no_such
from app.jobs import queue
from app.jobs.runner import Schedules
from app.storage.changes import Update
from app.storage.repository import Listing, Repository, having
from app.storage.schema import Eq, In, both
from app.writes.executor import WriteResult


@core.shown
class Jobs(TypedDict):
    items: list[queue.JobInfo]
    next_cursor: Annotated[str | None, Field(default=None, description="Always null: this is all.")]


class JobRun(core.Schema):
    model_config = core.example({"dry_run": True})

    dry_run: core.Flag = False
    agent_id: core.Identifier | None = Field(
        None, description="For `consolidation`, `reflection` and `decay`: only what is of this agent."
    )
    user_id: core.Identifier | None = Field(
        None, description="For `consolidation`, `reflection` and `decay`: only what is of this user."
    )


NARROWED = (queue.CONSOLIDATION, queue.REFLECTION, queue.DECAY)
"""Jobs that can be run for one agent or user."""


class OperationService:
    """Lists and runs scheduled jobs, and lists and undoes operations, within the caller's scope."""

    def __init__(
        self, operations: Repository[queue.OperationRecord], schedules: Schedules, clock: Clock, tombstones: Tombstones
    ) -> None:
        self._operations, self._schedules, self._clock, self._tombstones = operations, schedules, clock, tombstones

    async def jobs(self) -> Jobs:
        """Returns all scheduled jobs with their last runs: by schedule, or one that the caller's tenant asked for, if
        it was later."""
        items = list[queue.JobInfo]()
        for job in await self._schedules.all():
            ended = both(Eq("kind", job["name"]), In("status", queue.ENDED))
            for operation in await self._operations.find(ended, limit=1):
                if operation["updated_at"] > (job["last_run"] or ""):
                    job |= {"last_run": operation["updated_at"], "outcome": operation["status"]}
            items.append(job)
        return {"items": items, "next_cursor": None}

    async def run(self, name: str, body: JobRun) -> WriteResult[queue.Operation]:
        """Queues a scheduled job for the caller's tenant. Raises NotFound for an unknown name, and Invalid if the job
        cannot be limited to an agent or user."""
        if name not in self._schedules.kinds:
            raise NotFound(f"There is no job {name}.")
        owner = {"agent_id": body.agent_id, "user_id": body.user_id}
        if name not in NARROWED and (named := next((field for field, owner_id in owner.items() if owner_id), None)):
            raise invalid(f"/{named}", f"{name} works on all of the tenant")
        scope = self._operations.scope
        scope.require_write(body.agent_id, body.user_id)  # without an owner it works on the whole tenant
        return self._begin(name, {"dry_run": body.dry_run, **owner, **scope.bindings()}, **owner)

    def _begin(self, kind: str, payload: queue.Payload, **owner: str | None) -> WriteResult[queue.Operation]:
        """Returns 202 with an operation, and the changes that queue its job."""
        body, changes = queue.start(self._operations.scope, kind, payload, self._clock.now(), **owner)
        return WriteResult(body, changes, 202)

    async def page(self, filters: Mapping[str, str | None], listing: Listing) -> core.Page[queue.Operation]:
        """Returns a page of the operations whose fields equal the filters. None: any value."""
        render = partial(queue.render, now=self._clock.now())
        return await self._operations.listed(
            having(filters, *filters), listing, render, queue.Operation, request=filters
        )

    async def get(self, operation_id: str) -> queue.Operation:
        """Returns an operation. Raises NotFound."""
        operation = await self._operations.find_one(operation_id) or await self._own_erasure(operation_id)
        if operation is None:
            raise no_such("operation")
        return queue.render(operation, self._clock.now())

    async def _own_erasure(self, operation_id: str) -> queue.OperationRecord | None:
        """Returns the erasure of a user that the key is bound to. Its operation is stored under the hash of the user's
        id."""
        operation, scope = await self._operations.get_any_owner(operation_id), self._operations.scope
        if operation is None or operation["kind"] != queue.ERASE_USER or scope.users is None:
            return None
        hashes = [await self._tombstones.known(user) for user in scope.users]
        hashed = replace(scope, users=frozenset(user_hash for user_hash in hashes if user_hash))
        return operation if hashed.sees(operation) else None

    async def undo(self, operation_id: str) -> WriteResult[queue.Operation]:
        """Returns 202 with the operation that undoes this one. Raises Conflict if there is nothing to undo, or if it is
        being undone or was."""
        operation = await self._operations.get(operation_id)
        self._operations.require_write(operation)
        if not queue.can_undo(operation, self._clock.now()):
            kind, status, left = operation["kind"], operation["status"], operation["undo"]
            if status not in ("succeeded", "partial"):
                raise Conflict(f"An operation {kind} that is {status} cannot be undone.")
            if left is None:
                raise Conflict(
                    f"This operation {kind} changed nothing that could be undone: its `result` says what it did."
                )
            raise Conflict(f"This operation {kind} could be undone until {left['until']}.")
        undo = None if operation["undoing"] is None else await self._operations.find_one(operation["undoing"])
        if undo is not None and undo["status"] != "failed":  # one that failed for good may be requested again
            raise Conflict(f"It is being undone already, by {operation['undoing']}.")
        payload = {"operation_id": operation_id, "kind": operation["kind"], "undo": operation["undo"]}
        begun = self._begin(queue.UNDO, payload, agent_id=operation["agent_id"], user_id=operation["user_id"])
        undoing: queue.OperationRecord = {"undoing": begun.body["operation_id"]}
        expect = {"undoing": operation["undoing"], "status": operation["status"]}
        claim = Update(queue.OPERATIONS, operation["tenant_id"], operation_id, set=undoing, expect=expect)
        return replace(begun, changes=[claim, *begun.changes])
