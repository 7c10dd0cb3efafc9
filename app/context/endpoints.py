"""The endpoints of prompts: `POST /v1/context`, one call before each model call, and the experience prompt."""

from datetime import UTC
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request

from app.api.errors import BODY, problems
from app.api.strict import Answer, StrictRoute, answer
from app.auth.dependencies import get_caller
from app.context import schemas
from app.context.marking import marked_memories
from app.context.service import assemble
from app.core.clock import zone_named
from app.core.schemas import Identifier, TimeZone
from app.profiles.agents import Prompt
from app.profiles.endpoints import AgentId, Agents

router = APIRouter(prefix="/v1/context", tags=["context"], route_class=StrictRoute)


@router.post("", responses=problems(404, *BODY), openapi_extra={"x-verb": "read"})
async def assemble_context(body: schemas.ContextRequest, request: Request) -> Answer[schemas.Context]:
    """Get the right few things for the next prompt, inside a token budget. The answer says what was put in, what was
    left out and why. What is packed counts as accessed, unless `now` names another time."""
    resources, principal = get_caller(request)
    return answer(await assemble(resources, principal.scope, body))


agents_router = APIRouter(prefix="/v1/agents", tags=["agents"], route_class=StrictRoute)


@agents_router.get("/{agent_id}/experience-prompt", responses=problems(404))
async def get_experience_prompt(
    agent_id: AgentId,
    agents: Agents,
    request: Request,
    user_id: Annotated[Identifier | None, Query()] = None,
    max_tokens: Annotated[int | None, Query(ge=0, le=10_000_000)] = None,
    timezone: Annotated[TimeZone | None, Query()] = None,
) -> Answer[Prompt]:
    """Get experience, profile and memories as delimited blocks for a system prompt, within a token budget. Behind a
    memory that states an earlier value of a fact stands what holds, and since when."""
    resources, principal = get_caller(request)
    zone = UTC if timezone is None else zone_named(timezone)
    marks = partial(marked_memories, resources, principal.scope, agent_id, zone)
    return answer(await agents.prompt(agent_id, user_id, max_tokens, marks))
