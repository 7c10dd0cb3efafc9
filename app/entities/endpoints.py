"""HTTP endpoints for the page of an entity and for memories related to a memory."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request

from app.api.errors import problems
from app.api.strict import Answer, Limit, StrictRoute, answer
from app.auth.dependencies import get_caller
from app.entities.service import EntityPage, EntityService, RelatedMemories, RelatedService
from app.facts.endpoints import EntityName, InSight
from app.facts.repository import FactRepository
from app.memories.endpoints import MemoryId
from app.memories.repository import MemoryRepository
from app.memories.schemas import MEMORIES
from app.retrieval.retriever import Retriever


async def entity_service(request: Request) -> EntityService:
    """Returns the entity service of the caller."""
    resources, principal = get_caller(request)
    facts = FactRepository(resources.store, principal.scope)
    return EntityService(facts, resources.clock, resources.embedder.name)


async def related_service(request: Request) -> RelatedService:
    """Returns the service of the caller that finds related memories."""
    resources, principal = get_caller(request)
    store, scope = resources.store, principal.scope
    lookup = Retriever(store, scope, resources.embedder, MEMORIES)
    memories, facts = MemoryRepository(store, scope), FactRepository(store, scope)
    return RelatedService(memories, facts, lookup, resources.clock, resources.embedder.name)


memories_router = APIRouter(prefix="/v1/memories", tags=["memories"], route_class=StrictRoute)
graph_router = APIRouter(prefix="/v1/graph", tags=["graph"], route_class=StrictRoute)


@memories_router.get("/{memory_id}/related", responses=problems(404))
async def get_related_memories(
    memory_id: MemoryId, related: Annotated[RelatedService, Depends(related_service)], limit: Limit = 20
) -> Answer[RelatedMemories]:
    """List memories related to one, each with the reasons. They are for people: no ranking uses them."""
    return answer(await related.related(memory_id, limit))


@graph_router.get("/entities/{name:name}", responses=problems(404))
async def get_entity(
    name: EntityName,
    entities: Annotated[EntityService, Depends(entity_service)],
    sight: InSight,
    limit: Limit = 20,
) -> Answer[EntityPage]:
    """Get what is known of an entity: names, facts, mentions in memories, and actions. An unknown name has nothing of
    each."""
    return answer(await entities.page(name, sight, limit))
