"""HTTP endpoints for the graph of facts: entities and their links."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from app.api.errors import problems
from app.api.fast_path import StrictRoute
from app.api.pagination import Cursor, Limit, answer
from app.auth.dependencies import get_caller
from app.core.schemas import Identifier, Timestamp
from app.facts import graph_schemas
from app.facts.graph import GraphService, Sight
from app.facts.repository import FactRepository
from app.facts.schemas import MAX_NAME


async def graph_service(request: Request) -> GraphService:
    """Returns the graph service of the caller."""
    resources, principal = get_caller(request)
    return GraphService(FactRepository(resources.store, principal.scope), resources.clock)


async def sight(
    agent_id: Annotated[Identifier | None, Query()] = None,
    user_id: Annotated[Identifier | None, Query()] = None,
    include_shared: Annotated[
        bool, Query(description="With both ids: also what the agent knows for all, and all agents of the user.")
    ] = True,
    as_of: Annotated[Timestamp | None, Query(description="True at that time; default: now.")] = None,
    known_at: Annotated[Timestamp | None, Query(description="As it was known then; default: now.")] = None,
) -> Sight:
    """Returns the owner and the times of a graph request."""
    return Sight(agent_id, user_id, include_shared, as_of, known_at)


InGraph = Annotated[GraphService, Depends(graph_service)]
InSight = Annotated[Sight, Depends(sight)]


router = APIRouter(prefix="/v1/graph", tags=["graph"], route_class=StrictRoute)

EntityName = Annotated[str, Path(min_length=1, max_length=MAX_NAME, examples=["Ada"])]


@router.get("/entities", response_model=graph_schemas.EntityList, responses=problems())
async def list_entities(
    graph: InGraph,
    sight: InSight,
    prefix: Annotated[str, Query(max_length=MAX_NAME, description="Of the name, as it is compared.")] = "",
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Response:
    """Whom and what the facts are about. `agent_id`, `user_id` or both are required, and widened as in a search."""
    return answer(await graph.entities(sight, prefix, limit, cursor))


@router.get("/entities/{name:path}/neighbors", response_model=graph_schemas.Neighbors, responses=problems(404))
async def get_neighbors(
    name: EntityName,
    graph: InGraph,
    sight: InSight,
    depth: Annotated[int, Query(ge=1, le=3)] = 1,
    predicate: Annotated[str | None, Query(min_length=1, max_length=MAX_NAME)] = None,
    max_nodes: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """What an entity is linked with, in up to three hops along facts that are true at that time, both ways."""
    return answer(await graph.neighbors(sight, name, depth, predicate, max_nodes))
