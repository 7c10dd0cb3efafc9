"""HTTP endpoints for the page of an entity and for memories related to a memory."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from app.api.errors import problems
from app.api.strict import Answer, Cursor, Limit, StrictRoute, answer
from app.auth.dependencies import get_caller
from app.core.schemas import Identifier, Page, Timestamp
from app.entities.service import EntityPage, EntityService, RelatedMemories, RelatedService
from app.entities.upcoming import UpcomingItem, UpcomingService
from app.facts.endpoints import EntityName, InSight
from app.facts.repository import FactRepository
from app.memories.endpoints import MemoryId
from app.memories.repository import MemoryRepository
from app.memories.schemas import MEMORIES
from app.retrieval.retriever import Retriever

upcoming_router = APIRouter(prefix="/v1/upcoming", tags=["memories"], route_class=StrictRoute)
memories_router = APIRouter(prefix="/v1/memories", tags=["memories"], route_class=StrictRoute)
graph_router = APIRouter(prefix="/v1/graph", tags=["graph"], route_class=StrictRoute)


@memories_router.get("/{memory_id}/related", responses=problems(404))
async def get_related_memories(memory_id: MemoryId, request: Request, limit: Limit = 20) -> Answer[RelatedMemories]:
    """List memories related to one, each with the reasons. They are for people: no ranking uses them."""
    resources, principal = get_caller(request)
    store, scope = resources.store, principal.scope
    retriever = Retriever(store, scope, resources.embedder, MEMORIES)
    memories, facts = MemoryRepository(store, scope), FactRepository(store, scope)
    related = RelatedService(memories, facts, retriever, resources.clock, resources.embedder.name)
    return answer(await related.related(memory_id, limit))


@upcoming_router.get("", responses=problems())
async def list_upcoming(
    request: Request,
    agent_id: Annotated[Identifier | None, Query()] = None,
    user_id: Annotated[Identifier | None, Query(description="agent_id, user_id or both are required.")] = None,
    until: Annotated[Timestamp | None, Query(description="Only what comes before; default: all.")] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Answer[Page[UpcomingItem]]:
    """List what is coming, the soonest first: plans, what is due (overdue first) and what ceases to hold. As a search
    it covers what the agent and the user share with others."""
    resources, principal = get_caller(request)
    upcoming = UpcomingService(resources.store, principal.scope, resources.clock, resources.embedder.name)
    return answer(await upcoming.page(agent_id, user_id, until, limit, cursor))


@graph_router.get("/entities/{name:name}", responses=problems(404))
async def get_entity(
    name: EntityName,
    request: Request,
    sight: InSight,
    limit: Limit = 20,
) -> Answer[EntityPage]:
    """Get what is known of an entity: names, facts, mentions in memories, and actions. An unknown name has nothing of
    each."""
    resources, principal = get_caller(request)
    facts = FactRepository(resources.store, principal.scope)
    entities = EntityService(facts, resources.clock, resources.embedder.name)
    return answer(await entities.page(name, sight, limit))
