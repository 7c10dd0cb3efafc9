"""Requests for the erasure of a user. One commit stores tombstone, audit entry, operation and job; the job does the
rest."""

from dataclasses import dataclass

from app.audit import trail
from app.audit.tombstones import Tombstones, under_way
from app.audit.trail import Actor
from app.core.clock import Clock, rfc3339
from app.errors import Conflict, Forbidden
from app.jobs import operations
from app.jobs.models import ERASE_USER, JOBS, OPERATIONS
from app.jobs.queue import Job
from app.resources import JobRunner
from app.storage.changes import Change, CommitConflict, Delete
from app.storage.protocol import Store
from app.storage.schema import Collection, Doc
from app.storage.scope import SYSTEM, Scope

ERASURE_NOTES = Collection(
    name="erasure_notes",
    id_field="note_id",
    fields={"tombstone": "text"},
    indexes=(("tombstone",),),
    opaque=("counts",),
    audited=False,
)
"""Each commit of an erasure adds a note: erased ids (`of` names their collection) and counts by kind. A run that
continues after a crash reads the notes. They are deleted when the erasure is verified."""


WAIT_SECONDS = 10.0
"""The time in seconds that a request waits for the receipt."""
ATTEMPTS = 64
"""The number of attempts to commit a request."""


@dataclass(frozen=True, slots=True)
class Erased:
    """The answer: the receipt if the erasure is verified, otherwise the operation."""

    verified: bool
    body: Doc


class Erasure:
    """Starts erasures within a caller's scope."""

    def __init__(self, store: Store, scope: Scope, clock: Clock, tombstones: Tombstones, runner: JobRunner) -> None:
        self._store, self._scope, self._clock = store, scope, clock
        self._tombstones, self._runner = tombstones, runner

    async def erase(self, user_id: str, actor: Actor, seconds: float = WAIT_SECONDS) -> Erased:
        """Erases a user and waits up to `seconds` for the job.
        Raises Forbidden; ErasureKeyUnavailable, before anything was changed; Conflict if the job failed for good; and
        StoreUnavailable."""
        self._require(user_id)
        work = await self._begun(user_id, actor)
        await self._runner.carry_out(work["job_id"], seconds)
        operation = await self._store.get(OPERATIONS, self._scope.tenant, work["operation_id"])
        if operation is None or operation["status"] == "failed":
            reason = "its operation is gone" if operation is None else operation["error"]
            raise Conflict(f"The erasure has failed: {reason} Ask for it again.", retry_after=1)
        if operation["status"] == "succeeded":
            return Erased(True, {"user_id": user_id, **operation["result"]})
        return Erased(False, operations.render(operation, self._clock.now()))

    def _require(self, user_id: str) -> None:
        if self._scope.agents is not None:
            raise Forbidden("This key is bound to agents: it cannot erase what others know of a user.")
        self._scope.require_write(None, user_id)

    async def _begun(self, user_id: str, actor: Actor) -> Doc:
        """Returns `operation_id` and `job_id` of the erasure under way, which this or an earlier request started."""
        erased_id = await self._tombstones.hashed(user_id)
        for _ in range(ATTEMPTS):
            found = await self._tombstones.find(user_id)
            joined = found is not None and under_way(found) and await self._goes_on(found)
            if found is not None and joined:
                work, changes = found, [self._tombstones.join(found)]
            else:
                work, changes = await self._new(user_id, erased_id, found, actor)
            asked = trail.entry(actor, self._now(), None, [], {"users": {"erase_begun": 1}}, erased_id)
            try:
                await self._store.commit([*changes, asked])
            except CommitConflict:
                continue  # another request for the same user, or the end of the job, was first
            return work
        raise Conflict("Others ask for this user's erasure all the time; please try again.", retry_after=1)

    async def _goes_on(self, tombstone: Doc) -> bool:
        """Returns True if a job still works on the erasure. An erasure that failed for good is started again."""
        job = await self._store.get(JOBS, SYSTEM, tombstone["job_id"])
        return job is not None and job["status"] != "failed"

    async def _new(self, user_id: str, erased_id: str, found: Doc | None, actor: Actor) -> tuple[Doc, list[Change]]:
        """Returns the ids and changes of a new erasure. Its operation is stored under the hash: it reveals nothing of
        the user to other keys, and outlives the job. The job names the user until the erasure is verified."""
        now = self._clock.now()
        operation, noted = operations.begin(self._scope, ERASE_USER, now, user_id=erased_id)
        payload = {"user_id": user_id, "tombstone": erased_id, "key_id": actor.key_id, "action": actor.action}
        queued = Job(ERASE_USER, self._scope.tenant, payload, operation["operation_id"]).enqueue(now)
        work = {"operation_id": operation["operation_id"], "job_id": queued.doc["job_id"]}
        mark = self._tombstones.begin(found, erased_id, rfc3339(now), work)
        return work, [mark, noted, queued, *await self._failed_before(found)]

    async def _failed_before(self, found: Doc | None) -> list[Change]:
        """Returns the change that deletes a failed job of an earlier erasure, since it names the user."""
        job = None if found is None or not found.get("job_id") else await self._store.get(JOBS, SYSTEM, found["job_id"])
        if job is None or job["status"] != "failed":
            return []
        return [Delete(JOBS, SYSTEM, job["job_id"], {"status": "failed"})]

    def _now(self) -> str:
        return rfc3339(self._clock.now())
