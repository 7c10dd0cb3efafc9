"""What an agent calls before each model call."""

from fastapi import APIRouter, Request, Response

from app.context import schemas
from app.context.dependencies import context_of
from app.http.listing import answer
from app.http.responses import BODY, problems
from app.http.route import StrictRoute

router = APIRouter(prefix="/v1/context", tags=["context"], route_class=StrictRoute)


@router.post("", response_model=schemas.Context, responses=problems(*BODY), openapi_extra={"x-verb": "read"})
async def assemble_context(body: schemas.ContextRequest, request: Request) -> Response:
    """The right few things for the next prompt, inside a token budget, with what was put in, what was left out and why.
    What is packed counts as accessed."""
    return answer(await context_of(request).assemble(body))
