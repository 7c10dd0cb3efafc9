"""HTTP endpoints for retention policies, erasure and export."""

from typing import Annotated, cast

from fastapi import APIRouter, Depends, Path, Request, Response
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
from app.retention.service import Forgetting
from app.retention.user_export import UserExport
from app.writes.executor import Writer


async def forgetting(request: Request) -> Forgetting:
    """Returns the forgetting service of the caller."""
    resources, principal = get_caller(request)
    return Forgetting(MemoryRepository(resources.store, principal.scope), resources.clock)


InForgetting = Annotated[Forgetting, Depends(forgetting)]


async def erasure(request: Request) -> Erasure:
    """Returns the erasure service of the caller."""
    resources, principal = get_caller(request)
    return Erasure(
        resources.store,
        principal.scope,
        resources.clock,
        Tombstones.of(resources.store, resources.settings, principal.scope.tenant),
        resources.jobs,
    )


async def user_export(request: Request) -> UserExport:
    """Returns the export of the caller."""
    resources, principal = get_caller(request)
    return UserExport(
        resources.store,
        principal.scope,
        resources.collections,
        resources.clock,
        Tombstones.of(resources.store, resources.settings, principal.scope.tenant),
    )


InErasure = Annotated[Erasure, Depends(erasure)]
InExport = Annotated[UserExport, Depends(user_export)]


users_router = APIRouter(prefix="/v1/users", tags=["users"], route_class=StrictRoute)
router = APIRouter(prefix="/v1/memories", tags=["memories"], route_class=StrictRoute)


@router.post(
    "/forget",
    responses={**problems(409, 412, *BODY), 202: {"model": Operation, "description": "It is under way."}},
)
async def forget_memories(
    body: service.ForgetRequest, forgetting: InForgetting, write: Writer, request: Request
) -> Answer[service.ForgetPlan] | Answer[Operation]:
    """Forget memories by policy. The dry run, the default, answers what would go and why; applied, an operation
    archives it, which can be undone until it is purged, 30 days later. The dry run needs the verb read as well."""
    if body.dry_run:
        get_caller(request)[1].require("read")
        return answer(await forgetting.plan(body))
    return await write(lambda: forgetting.request(body), frees=True)


ErasedUserId = Annotated[Identifier, Path(examples=["ada"])]
NDJSON = "text/x-ndjson"
"""A text type, since client generators do not understand `application/x-ndjson`."""
LINES = {
    "description": "A line each: `export`, then a `record` each, then `end`.",
    "content": {NDJSON: {"schema": {"type": "string"}}},
}


@users_router.get("/{user_id}/export", response_class=StreamingResponse, responses={**problems(404), 200: LINES})
async def export_user(user_id: ErasedUserId, export: InExport, request: Request) -> Response:
    """Export everything whose owner is this user, as newline-delimited JSON, as far as the key sees it. Without the
    line `end` it is not whole. It is noted in the audit trail."""
    _, principal = get_caller(request)
    await export.note(user_id, Actor(principal.scope.tenant, principal.key_id, "export_user"))
    return StreamingResponse(while_admitted(request, export.lines(user_id)), media_type=NDJSON)


@users_router.delete(
    "/{user_id}",
    responses={**problems(404, 409, 412), 202: {"model": Operation, "description": "It is under way."}},
)
async def erase_user(
    user_id: ErasedUserId, erasure: InErasure, request: Request
) -> Answer[Receipt] | Answer[Operation]:
    """Erase a user. All records go, with what was derived from them, their history, vectors, undo logs, jobs and stored
    answers. Answers 200 with the receipt when a search has found nothing, within 10 s; else 202 with the operation,
    which goes on by itself, after a crash, too, and has the receipt as its result. Asking again joins it. A keyed hash
    remains, so that no work under way brings the user back; a new write may. A key that is bound to agents may not, and
    one bound to other users neither."""
    _, principal = get_caller(request)
    erased = await erasure.erase(user_id, Actor(principal.scope.tenant, principal.key_id, "erase_user"))
    if "verification" in erased:
        return answer(cast(Receipt, erased))
    return Answer(erased, 202)
