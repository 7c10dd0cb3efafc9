"""Forgetting over HTTP."""

from fastapi import APIRouter, Response

from app.forgetting import schemas
from app.forgetting.dependencies import InForgetting
from app.http.listing import answer
from app.http.responses import BODY, problems
from app.http.route import StrictRoute
from app.idempotency.dependencies import InWrite
from app.jobs.schemas import Operation

router = APIRouter(prefix="/v1/memories", tags=["memories"], route_class=StrictRoute)


@router.post(
    "/forget",
    response_model=schemas.ForgetPlan,
    responses={**problems(409, *BODY), 202: {"model": Operation, "description": "It is under way."}},
)
async def forget_memories(body: schemas.ForgetRequest, forgetting: InForgetting, write: InWrite) -> Response:
    """Forget by policy. The dry run, the default, answers what would go and why; applied, an operation archives it,
    which can be undone until it is purged, 30 days later."""
    if body.dry_run:
        return answer(await forgetting.plan(body))
    return await write(lambda: forgetting.request(body))
