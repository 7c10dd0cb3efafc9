"""The graph of facts over HTTP: entities, and what they are linked with."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from app.facts.schemas import MAX_NAME
from app.graph import schemas
from app.graph.dependencies import InGraph, InSight
from app.http.listing import Cursor, Limit, answer
from app.http.responses import problems
from app.http.route import StrictRoute

router = APIRouter(prefix="/v1/graph", tags=["graph"], route_class=StrictRoute)

Name = Annotated[str, Path(min_length=1, max_length=MAX_NAME, examples=["Ada"])]


@router.get("/entities", response_model=schemas.EntityList, responses=problems())
async def list_entities(
    graph: InGraph,
    sight: InSight,
    prefix: Annotated[str, Query(max_length=MAX_NAME, description="Of the name, as it is compared.")] = "",
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Response:
    """Whom and what the facts are about. `agent_id`, `user_id` or both are required, and widened as in a search."""
    return answer(await graph.entities(sight, prefix, limit, cursor))


@router.get("/entities/{name:path}/neighbors", response_model=schemas.Neighbors, responses=problems(404))
async def get_neighbors(
    name: Name,
    graph: InGraph,
    sight: InSight,
    depth: Annotated[int, Query(ge=1, le=3)] = 1,
    predicate: Annotated[str | None, Query(min_length=1, max_length=MAX_NAME)] = None,
    max_nodes: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """What an entity is linked with, in up to three hops along facts that are true at that time, both ways."""
    return answer(await graph.neighbors(sight, name, depth, predicate, max_nodes))
