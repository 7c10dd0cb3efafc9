"""HTTP endpoints for learning from conversations."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request

from app.api.errors import BODY, problems
from app.api.strict import Answer, StrictRoute
from app.audit.tombstones import Tombstones
from app.auth.dependencies import get_caller
from app.core.schemas import Identifier
from app.jobs.queue import Operation
from app.learning import service
from app.learning.dependencies import Tools
from app.writes.executor import InPrecondition, Writer


async def learning(request: Request) -> service.Learning:
    resources, principal = get_caller(request)
    tools = Tools(resources.store, resources.embedder, resources.clock, resources.settings, resources.tuning)
    return service.Learning(
        tools,
        resources.llm,
        principal.scope,
        Tombstones.of(resources.store, resources.settings, principal.scope.tenant),
    )


InLearning = Annotated[service.Learning, Depends(learning)]


memories_router = APIRouter(prefix="/v1/memories", tags=["memories"], route_class=StrictRoute)
sessions_router = APIRouter(prefix="/v1/sessions", tags=["sessions"], route_class=StrictRoute)


@memories_router.post(
    "/extract",
    status_code=201,
    responses={202: {"model": Operation, "description": "It takes longer"}, **problems(409, 412, 503, *BODY)},
)
async def extract_memories(
    request: Request, body: service.ExtractRequest, learning: InLearning, write: Writer
) -> Answer[service.Extracted] | Answer[Operation]:
    """Extract memories from messages: the language model reads them, and what it finds is stored by the usual rules.
    After 30 s the answer is 202 with an operation, whose result is that of a 201. Without a
    model: 409 `llm_not_configured`."""
    resources, _ = get_caller(request)
    extraction = service.TimedExtraction(learning, body, resources.tuning.extract_seconds)
    try:
        answer = await write(extraction.plan)
    except BaseException:
        extraction.stop()
        raise
    if extraction.job_id is not None:
        await resources.jobs.carry_out(extraction.job_id, 0)  # here, where the model is reading already
    return answer


@sessions_router.post("/{session_id}/summarize", status_code=202, responses=problems(404, 409, 412))
async def summarize_session(
    session_id: Annotated[Identifier, Path(examples=["chat-1"])],
    learning: InLearning,
    write: Writer,
    precondition: InPrecondition,
) -> Answer[Operation]:
    """Write the session's summary anew from all its messages. Without a language model: 409 `llm_not_configured`."""
    return await write(lambda: learning.summarize(session_id, precondition))
