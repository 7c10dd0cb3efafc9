"""Queries for tasks and their checkpoints."""

from app.core.clock import new_id
from app.errors import NotFound
from app.storage.changes import Allocate, Change, DeleteWhere, Insert, Ref, Update
from app.storage.filters import Eq, Filter, both
from app.storage.protocol import Store
from app.storage.repository import Repository
from app.storage.schema import Doc
from app.storage.scope import Scope
from app.tasks.schemas import CHECKPOINTS, STATE, TASKS, counter


class TaskRepository(Repository):
    """The tasks and checkpoints that a caller may see."""

    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__(store, scope, TASKS)
        self.checkpoints = Repository(store, scope, CHECKPOINTS)

    def within(self, task: Doc) -> Filter:
        """Filters the checkpoints of a task."""
        return Eq("task_id", task["task_id"])

    async def checkpoint(self, task: Doc, seq: int) -> Doc:
        """Returns a checkpoint; -1 is the latest. Raises NotFound."""
        where = self.within(task) if seq == -1 else both(self.within(task), Eq("seq", seq))
        found = await self.checkpoints.find(where, order="desc", limit=1)
        if not found:
            raise NotFound("There is no such checkpoint.")
        return found[0]

    # --- Changes ------------------------------------------------------------------------------------------------------

    def keep(self, task: Doc, now: str, *snapshots: Doc) -> list[Change]:
        """Returns the changes that store checkpoints, numbered in order. Each of `snapshots` gives a reason and may
        replace the state."""
        name = counter(task["task_id"])
        changes: list[Change] = [Allocate(name, self.scope.tenant, len(snapshots))]
        for index, snapshot in enumerate(snapshots):
            doc = {
                "tenant_id": self.scope.tenant,
                "checkpoint_id": new_id("ckpt"),
                "task_id": task["task_id"],
                "agent_id": task["agent_id"],
                "user_id": task["user_id"],
                "seq": Ref(name, index),
                "label": None,
                "restored_seq": None,
                "state": {part: task[part] for part in STATE},
                "created_at": now,
                **snapshot,
            }
            changes.append(Insert(CHECKPOINTS, doc))
        return changes

    def unchanged(self, task: Doc) -> Update:
        """Returns an update without changes that expects the version that was read, so that a checkpoint stores the
        state at the time of the commit."""
        self.scope.require_write(task["agent_id"], task["user_id"])
        expect = {"version": task["version"]}
        return Update(TASKS, self.scope.tenant, task["task_id"], expect=expect, user=task["user_id"])

    def remove(self, task: Doc) -> list[Change]:
        """Returns the changes that delete a task and its checkpoints."""
        return [self.delete(task), DeleteWhere(CHECKPOINTS, self.scope.tenant, self.within(task))]
