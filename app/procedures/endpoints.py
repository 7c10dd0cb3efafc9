"""HTTP endpoints for procedural memory: how things are done, and how often that worked."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from app.api.errors import BODY, problems
from app.api.strict import Answer, InListing, StrictRoute, answer, etag
from app.auth.dependencies import get_caller
from app.core.schemas import Identifier, Page
from app.memories.repository import Embeddings
from app.procedures import schemas
from app.procedures.service import ProcedureRepository, ProcedureService
from app.writes.executor import InPrecondition, Writer


async def procedure_service(request: Request) -> ProcedureService:
    resources, principal = get_caller(request)
    procedures = ProcedureRepository(resources.store, principal.scope)
    retriever = resources.retriever(principal.scope, schemas.PROCEDURES)
    return ProcedureService(procedures, Embeddings(resources.embedder), retriever, resources.clock)


Procedures = Annotated[ProcedureService, Depends(procedure_service)]


router = APIRouter(prefix="/v1/procedures", tags=["procedures"], route_class=StrictRoute)

ProcedureId = Annotated[Identifier, Path(examples=["proc_01a2003d395076f9a13acea58faaf745"])]
CHANGE = problems(404, 409, 412, *BODY)


@router.post("", status_code=201, responses=problems(409, 412, *BODY))
async def create_procedure(
    body: schemas.ProcedureCreate, procedures: Procedures, write: Writer, precondition: InPrecondition
) -> Answer[schemas.Procedure]:
    """Keep how something is done. 409 where an active procedure of the scope has that name."""
    return await write(lambda: procedures.create(body, precondition))


@router.get("", responses=problems())
async def list_procedures(
    procedures: Procedures, query: Annotated[schemas.ProcedureQuery, Query()], listing: InListing
) -> Answer[Page[schemas.Procedure]]:
    """List the procedures that have exactly the owner fields named, newest first; shared ones are not added."""
    return answer(await procedures.page(query, listing))


@router.post(
    "/search",
    responses=problems(*BODY),
    openapi_extra={"x-verb": "read"},
)
async def search_procedures(
    body: schemas.ProcedureSearch, procedures: Procedures
) -> Answer[schemas.ProcedureSearchResult]:
    """Find procedures for a situation, best first: what fits and has worked. Failing lately is said, and ranks down."""
    return answer(await procedures.search(body))


@router.get("/{procedure_id}", responses=problems(404))
async def get_procedure(procedure_id: ProcedureId, procedures: Procedures) -> Answer[schemas.Procedure]:
    """Get one procedure."""
    procedure = await procedures.get(procedure_id)
    return answer(procedure, {"ETag": etag(procedure)})


@router.patch("/{procedure_id}", responses=CHANGE)
async def update_procedure(
    procedure_id: ProcedureId,
    body: schemas.ProcedurePatch,
    procedures: Procedures,
    write: Writer,
    precondition: InPrecondition,
) -> Answer[schemas.Procedure]:
    """Refine a procedure: what is absent stays. The version that goes is kept as history; its outcomes stay counted."""
    return await write(lambda: procedures.patch(procedure_id, body, precondition))


@router.delete("/{procedure_id}", status_code=204, response_class=Response, responses=problems(404, 412))
async def delete_procedure(
    procedure_id: ProcedureId, procedures: Procedures, write: Writer, precondition: InPrecondition
) -> Response:
    """Delete a procedure, its vector and its history."""
    return await write(lambda: procedures.delete(procedure_id, precondition))


@router.get("/{procedure_id}/history", responses=problems(404))
async def get_procedure_history(
    procedure_id: ProcedureId, procedures: Procedures, listing: InListing
) -> Answer[Page[schemas.ProcedureVersion]]:
    """List the earlier versions of a procedure, each as it was when it left."""
    return answer(await procedures.history(procedure_id, listing))


@router.post("/{procedure_id}/outcomes", status_code=201, responses=CHANGE)
async def record_outcome(
    procedure_id: ProcedureId,
    body: schemas.OutcomeIn,
    procedures: Procedures,
    write: Writer,
    precondition: InPrecondition,
) -> Answer[schemas.OutcomeRecorded]:
    """Say whether a procedure worked this time. Counted one by one, however many say it at once; the version stays."""
    return await write(lambda: procedures.record_outcome(procedure_id, body, precondition))
