"""What graph endpoints ask for."""

from typing import Annotated

from fastapi import Depends, Query, Request

from app.auth.dependencies import calling
from app.facts.repository import FactRepository
from app.graph.service import GraphService, Sight
from app.schemas import Identifier, Timestamp


async def graph_service(request: Request) -> GraphService:
    held, caller = calling(request)
    return GraphService(FactRepository(held.store, caller.scope), held.clock)


async def sight(
    agent_id: Annotated[Identifier | None, Query()] = None,
    user_id: Annotated[Identifier | None, Query()] = None,
    include_shared: Annotated[
        bool, Query(description="With both ids: also what the agent knows for all, and all agents of the user.")
    ] = True,
    as_of: Annotated[Timestamp | None, Query(description="True at that time; default: now.")] = None,
    known_at: Annotated[Timestamp | None, Query(description="As it was known then; default: now.")] = None,
) -> Sight:
    return Sight(agent_id, user_id, include_shared, as_of, known_at)


InGraph = Annotated[GraphService, Depends(graph_service)]
InSight = Annotated[Sight, Depends(sight)]
