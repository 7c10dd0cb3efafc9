"""What a caller decides of contradictions, as operations that can be undone."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from app.core.clock import rfc3339
from app.core.schemas import Json
from app.jobs import queue
from app.jobs.models import RESOLVE, OperationRecord
from app.learning.dependencies import Tools
from app.learning.derivations import DerivationRecord, derivation, id_of
from app.storage.changes import Change
from app.storage.scope import Scope
from app.writes.executor import WriteResult


class Decisions:
    """Makes operations of the changes that a caller's request decides on. Commits nothing."""

    def __init__(self, tools: Tools, scope: Scope) -> None:
        self._tools, self._scope = tools, scope

    def begin(self, kind: str, agent_id: str | None, user_id: str | None) -> OperationRecord:
        """Returns the operation of a decision on a record of an agent and a user. The changes may name its id."""
        now = self._tools.clock.now()
        return queue.begin(self._scope, kind, now, agent_id=agent_id, user_id=user_id)[0]

    async def carried_out(self, operation: OperationRecord, changes: Sequence[Change], result: Json) -> list[Change]:
        """Returns the changes with those that store the operation and how to undo them."""
        now, by = self._tools.clock.now(), operation["operation_id"]
        until = rfc3339(now + timedelta(days=self._tools.settings.retention.archive_days))
        owner: DerivationRecord = {"agent_id": operation["agent_id"], "user_id": operation["user_id"]}
        note = await derivation(self._tools.store, self._scope.tenant, changes, id_of([by]), owner, by, now)
        return [*changes, queue.carried_out(operation, result, {"by": by, "until": until}), note]

    async def resolved(self, settled: WriteResult, kept: str) -> WriteResult:
        """Returns what settles a dispute, with an operation that the answer names. `kept`: the id of what is kept."""
        operation = self.begin(RESOLVE, settled.body["agent_id"], settled.body["user_id"])
        changes = await self.carried_out(operation, settled.changes, {"kept": kept})
        return replace(settled, body={**settled.body, "operation_id": operation["operation_id"]}, changes=changes)
