"""HTTP endpoints for retention policies, erasure and export."""

from typing import Annotated, cast

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import StreamingResponse

from app.api.errors import BODY, problems
from app.api.strict import Answer, StrictRoute, answer
from app.audit.tombstones import Tombstones
from app.audit.trail import Actor
from app.auth.dependencies import get_caller, while_admitted
from app.core.schemas import Identifier
from app.jobs.queue import Operation
from app.memories.repository import MemoryRepository
from app.retention import service
from app.retention.erasure import Erasure, Receipt
from app.retention.user_export import UserExport
from app.writes.executor import Writer

users_router = APIRouter(prefix="/v1/users", tags=["users"], route_class=StrictRoute)
router = APIRouter(prefix="/v1/memories", tags=["memories"], route_class=StrictRoute)


@router.post(
    "/forget",
    responses={**problems(409, 412, *BODY), 202: {"model": Operation, "description": "It is under way."}},
)
async def forget_memories(
    body: service.ForgetRequest, write: Writer, request: Request
) -> Answer[service.ForgetPlan] | Answer[Operation]:
    """Forget memories by policy. The dry run, the default, answers what would go and why; applied, an operation
    archives it, which can be undone until it is purged, 30 days later. The dry run needs the verb read as well."""
    resources, principal = get_caller(request)
    forgetting = service.Forgetting(MemoryRepository(resources.store, principal.scope), resources.clock)
    if body.dry_run:
        principal.require("read")
        return answer(await forgetting.plan(body))
    return await write(lambda: forgetting.request(body), quota_exempt=True)


ErasedUserId = Annotated[Identifier, Path(examples=["ada"])]
NDJSON = "text/x-ndjson"
"""A text type, since client generators do not understand `application/x-ndjson`."""
LINES = {
    "description": "A line each: `export`, then a `record` each, then `end`.",
    "content": {NDJSON: {"schema": {"type": "string"}}},
}


@users_router.get("/{user_id}/export", response_class=StreamingResponse, responses={**problems(404), 200: LINES})
async def export_user(user_id: ErasedUserId, request: Request) -> Response:
    """Export everything whose owner is this user, as newline-delimited JSON, as far as the key sees it. Without the
    line `end` it is not whole. It is noted in the audit trail."""
    resources, principal = get_caller(request)
    tombstones = Tombstones.of(resources.store, resources.settings, principal.scope.tenant)
    export = UserExport(resources.store, principal.scope, resources.collections, resources.clock, tombstones)
    await export.note(user_id, Actor(principal.scope.tenant, principal.key_id, "export_user"))
    return StreamingResponse(while_admitted(request, export.lines(user_id)), media_type=NDJSON)


@users_router.delete(
    "/{user_id}",
    responses={**problems(404, 409, 412), 202: {"model": Operation, "description": "It is under way."}},
)
async def erase_user(user_id: ErasedUserId, request: Request) -> Answer[Receipt] | Answer[Operation]:
    """Erase a user. All records go, with what was derived from them, their history, vectors, undo logs, jobs and stored
    answers. Answers 200 with the receipt when a search has found nothing, within 10 s; else 202 with the operation,
    which goes on by itself, after a crash, too, and has the receipt as its result. Asking again joins it. A keyed hash
    remains, so that no work under way brings the user back; a new write may. A key that is bound to agents may not, and
    one bound to other users neither."""
    resources, principal = get_caller(request)
    tombstones = Tombstones.of(resources.store, resources.settings, principal.scope.tenant)
    erasure = Erasure(resources.store, principal.scope, resources.clock, tombstones, resources.jobs)
    erased = await erasure.erase(user_id, Actor(principal.scope.tenant, principal.key_id, "erase_user"))
    if "verification" in erased:
        return answer(cast(Receipt, erased))
    return Answer(erased, 202)
