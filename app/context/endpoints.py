"""The endpoint `POST /v1/context`: one call before each model call."""

from fastapi import APIRouter, Request, Response

from app.api.errors import BODY, problems
from app.api.fast_path import StrictRoute
from app.api.strict import answer
from app.auth.dependencies import get_caller
from app.context import schemas
from app.context.service import ContextService


def context_of(request: Request) -> ContextService:
    """Creates the context service of the request's caller."""
    resources, principal = get_caller(request)
    return ContextService(resources, principal.scope)


router = APIRouter(prefix="/v1/context", tags=["context"], route_class=StrictRoute)


@router.post("", response_model=schemas.Context, responses=problems(404, *BODY), openapi_extra={"x-verb": "read"})
async def assemble_context(body: schemas.ContextRequest, request: Request) -> Response:
    """The right few things for the next prompt, inside a token budget, with what was put in, what was left out and why.
    What is packed counts as accessed."""
    return answer(await context_of(request).assemble(body))
