"""Accepts findings, and starts reflection. Methods return a `WriteResult` and commit nothing."""

from datetime import timedelta

from app.core.clock import rfc3339
from app.findings.repository import FindingRepository
from app.findings.service import FindingService
from app.jobs import queue
from app.jobs.models import REFLECTION
from app.learning.dependencies import Tools
from app.learning.derivations import derivation, id_of
from app.reflection.applying import Applier
from app.reflection.schemas import ReflectRequest
from app.storage.scope import Scope
from app.writes.executor import IfMatch, WriteResult, etag


class ReflectionService:
    """What callers ask of reflection, within their scope."""

    def __init__(self, tools: Tools, scope: Scope) -> None:
        self._tools, self._scope = tools, scope
        self._findings = FindingRepository(tools.store, scope)

    def reflect(self, body: ReflectRequest) -> WriteResult:
        """Returns 202 with the operation that looks for findings. Raises Forbidden."""
        self._scope.require_write(body.agent_id, body.user_id)
        owner = {"agent_id": body.agent_id, "user_id": body.user_id}
        payload = {"dry_run": body.dry_run, "focus": body.focus, **owner, **self._scope.bindings()}
        answer, changes = queue.start(self._scope, REFLECTION, payload, self._tools.clock.now(), **owner)
        return WriteResult(answer, changes, 202)

    async def accept(self, finding_id: str, precondition: IfMatch) -> WriteResult:
        """Applies what a finding proposes and settles it, as an operation that can be undone. Raises NotFound,
        Forbidden, and Conflict if it is settled already or its evidence has changed."""
        clock = self._tools.clock
        doc = await FindingService(self._findings, clock).open_one(finding_id, precondition)
        owner = {"agent_id": doc["agent_id"], "user_id": doc["user_id"]}
        changes, now = await Applier(self._tools, self._scope).changes(doc), clock.now()
        operation, noted = queue.begin(self._scope, REFLECTION, now, **owner)
        by = operation["operation_id"]
        settled = self._findings.settle(doc, "accepted", self._scope.key_id, rfc3339(now), by)
        until = rfc3339(now + timedelta(days=self._tools.settings.retention.archive_days))
        operation |= {
            "status": "succeeded",
            "progress": {"done": 1, "total": 1},
            "result": {"accepted": finding_id},
            "undo": {"by": by, "until": until},
        }
        changes.append(settled)
        key = id_of([finding_id, doc["version"]], "accept")
        note = await derivation(self._tools.store, self._scope.tenant, changes, key, owner, by, now)
        after = doc | settled.set | {"version": doc["version"] + 1}
        (shown,) = await self._findings.render([after], rfc3339(now))
        return WriteResult(shown, [*changes, noted, note], headers={"ETag": etag(after)})
