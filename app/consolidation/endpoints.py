"""Learning from conversations over HTTP."""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from app.consolidation import schemas
from app.consolidation.dependencies import InLearning
from app.http.responses import BODY, problems
from app.http.route import StrictRoute
from app.idempotency.dependencies import InPrecondition, InWrite
from app.idempotency.write import Outcome, Plan
from app.jobs.schemas import Operation
from app.schemas import Identifier

memories_router = APIRouter(prefix="/v1/memories", tags=["memories"], route_class=StrictRoute)
sessions_router = APIRouter(prefix="/v1/sessions", tags=["sessions"], route_class=StrictRoute)


@memories_router.post(
    "/extract", status_code=201, response_model=schemas.Extracted, responses=problems(409, 412, 503, *BODY)
)
async def extract_memories(body: schemas.ExtractRequest, learning: InLearning, write: InWrite) -> Response:
    """Messages in, memories out: the language model reads them, and what it finds is stored by the rules of memories.
    Without a model: 409 `llm_not_configured`."""
    heard: list[Plan] = []

    async def plan() -> Outcome:
        if not heard:  # a plan that met a conflict is made again: the model is asked once
            heard.append(await learning.extract(body))
        return await heard[0]()

    return await write(plan)


@sessions_router.post(
    "/{session_id}/summarize", status_code=202, response_model=Operation, responses=problems(404, 409, 412)
)
async def summarize_session(
    session_id: Annotated[Identifier, Path(examples=["chat-1"])],
    learning: InLearning,
    write: InWrite,
    if_match: InPrecondition,
) -> Response:
    """Write the session's summary anew from all its messages. Without a language model: 409 `llm_not_configured`."""
    return await write(lambda: learning.summarize(session_id, if_match))
