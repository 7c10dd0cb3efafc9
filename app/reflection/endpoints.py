"""HTTP endpoints of reflection: look for findings, and accept one."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from app.api.errors import BODY, problems
from app.api.strict_route import StrictRoute
from app.auth.dependencies import get_caller
from app.findings.endpoints import FindingId
from app.findings.schemas import ReflectionFinding
from app.jobs.models import Operation
from app.learning.dependencies import Tools
from app.reflection.service import Acceptance, ReflectionService, ReflectRequest
from app.writes.dependencies import InPrecondition, Writer
from app.writes.executor import WriteResult


async def reflection_service(request: Request) -> ReflectionService:
    """Returns the reflection service of the caller."""
    resources, principal = get_caller(request)
    tools = Tools(resources.store, resources.embedder, resources.clock, resources.settings, resources.tuning)
    return ReflectionService(tools, principal.scope)


Reflection = Annotated[ReflectionService, Depends(reflection_service)]

_AS_PROPOSED = Acceptance()

router = APIRouter(prefix="/v1/reflect", tags=["findings"], route_class=StrictRoute)
findings_router = APIRouter(prefix="/v1/findings", tags=["findings"], route_class=StrictRoute)


@router.post("", status_code=202, response_model=Operation, responses=problems(409, 412, *BODY))
async def reflect(body: ReflectRequest, reflection: Reflection, write: Writer) -> Response:
    """Look for contradictions between memories, facts and the profile, and for what is past. The operation's result
    counts the findings; with `dry_run` nothing is stored."""

    async def plan() -> WriteResult:
        return reflection.reflect(body)

    return await write(plan, keyed=not body.dry_run)


@findings_router.post(
    "/{finding_id}/accept", response_model=ReflectionFinding, responses=problems(404, 409, 412, *BODY)
)
async def accept_finding(
    finding_id: FindingId,
    reflection: Reflection,
    write: Writer,
    if_match: InPrecondition,
    body: Acceptance = _AS_PROPOSED,
) -> Response:
    """Do what a finding proposes, or keep the other one of its two records. `operation_id` names the operation, which
    can be undone; the finding is then open again. 409 where it is settled already."""
    return await write(lambda: reflection.accept(finding_id, body, if_match))
