"""HTTP endpoints for findings: list and read. `app/reflection/endpoints.py` accepts and dismisses them."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request

from app.api.errors import problems
from app.api.strict import Answer, InListing, StrictRoute, answer
from app.auth.dependencies import get_caller
from app.core.schemas import Identifier, Page
from app.findings import schemas
from app.findings.service import FindingFilters, FindingRepository, FindingService


async def finding_service(request: Request) -> FindingService:
    resources, principal = get_caller(request)
    return FindingService(FindingRepository(resources.store, principal.scope), resources.clock)


Findings = Annotated[FindingService, Depends(finding_service)]
FindingId = Annotated[Identifier, Path(examples=["find_01a2003d395076f9a13acea58faaf745"])]

router = APIRouter(prefix="/v1/findings", tags=["findings"], route_class=StrictRoute)


@router.get("", responses=problems())
async def list_findings(
    findings: Findings, listing: InListing, where: Annotated[FindingFilters, Query()]
) -> Answer[Page[schemas.ReflectionFinding]]:
    """List the findings that have exactly the owner fields named, newest first, each with its evidence."""
    return answer(await findings.page(where, listing))


@router.get("/{finding_id}", responses=problems(404))
async def get_finding(finding_id: FindingId, findings: Findings) -> Answer[schemas.ReflectionFinding]:
    """Get one finding with its evidence."""
    return answer(await findings.get(finding_id))
