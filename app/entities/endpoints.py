"""HTTP endpoints: the page of an entity, and memories related to a memory."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from app.api.errors import problems
from app.api.fast_path import StrictRoute
from app.api.strict import Limit, answer
from app.auth.dependencies import get_caller
from app.entities import schemas
from app.entities.related import RelatedService
from app.entities.service import EntityService
from app.facts.endpoints import EntityName, InSight
from app.facts.repository import FactRepository
from app.memories.decay_settings import Decays
from app.memories.endpoints import MemoryId
from app.memories.models import MEMORIES
from app.memories.repository import MemoryRepository
from app.retrieval.retriever import Retriever


async def entity_service(request: Request) -> EntityService:
    """Returns the entity service of the caller."""
    resources, principal = get_caller(request)
    facts, decays = FactRepository(resources.store, principal.scope), Decays(resources.agents, principal.scope.tenant)
    return EntityService(facts, decays, resources.clock, resources.embedder.name)


async def related_service(request: Request) -> RelatedService:
    """Returns the service of the caller that finds related memories."""
    resources, principal = get_caller(request)
    store, scope = resources.store, principal.scope
    lookup, decays = Retriever(store, scope, resources.embedder, MEMORIES), Decays(resources.agents, scope.tenant)
    parts = MemoryRepository(store, scope), FactRepository(store, scope), lookup, decays
    return RelatedService(*parts, resources.clock, resources.embedder.name)


memories_router = APIRouter(prefix="/v1/memories", tags=["memories"], route_class=StrictRoute)
graph_router = APIRouter(prefix="/v1/graph", tags=["graph"], route_class=StrictRoute)


@memories_router.get("/{memory_id}/related", response_model=schemas.RelatedMemories, responses=problems(404))
async def get_related_memories(
    memory_id: MemoryId, related: Annotated[RelatedService, Depends(related_service)], limit: Limit = 20
) -> Response:
    """List memories related to one, each with the reasons. They are for people: no ranking uses them."""
    return answer(await related.related(memory_id, limit))


@graph_router.get("/entities/{name:path}", response_model=schemas.EntityPage, responses=problems(404))
async def get_entity(
    name: EntityName,
    entities: Annotated[EntityService, Depends(entity_service)],
    sight: InSight,
    limit: Limit = 20,
) -> Response:
    """Get what is known of an entity: names, facts, mentions in memories, and actions. An unknown name has nothing of
    each."""
    return answer(await entities.page(name, sight, limit))
