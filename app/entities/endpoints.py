"""HTTP endpoints for the page of an entity and for memories related to a memory, with the shapes of their responses."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from pydantic import Field

from app.actions.schemas import Action
from app.api.errors import problems
from app.api.strict import Limit, answer
from app.api.strict_route import StrictRoute
from app.auth.dependencies import get_caller
from app.core.schemas import Count, Schema
from app.entities.related import RelatedReason, RelatedService
from app.entities.service import EntityService
from app.facts.alias_schemas import Bound, EntityAlias
from app.facts.endpoints import EntityName, InSight
from app.facts.repository import FactRepository
from app.facts.schemas import Fact
from app.memories.endpoints import MemoryId
from app.memories.repository import MemoryRepository
from app.memories.schemas import MEMORIES, Memory
from app.retrieval.retriever import Retriever, SearchWarning


class KnownFacts(Schema):
    items: list[Fact] = Field(description="Those known last first.")
    truncated: bool = Field(description="True if there are more than `limit`.")


class NeighborCount(Schema):
    count: Count = Field(description="Entities that a fact links with this one.")
    truncated: Bound | None = Field(description="The bound that was met: then there are more.")


class Mention(Schema):
    memory: Memory
    names: list[str] = Field(description="The names of the entity that stand in its text.")


class Mentions(Schema):
    items: list[Mention] = Field(description="The latest first.")
    truncated: bool = Field(description="True if there are more than `limit`, or than 500 to look at.")


class EntityActions(Schema):
    items: list[Action] = Field(description="Actions that name it among their entities; the latest first.")
    truncated: bool


class EntityPage(Schema):
    name: str = Field(description="The name that stands for the entity.")
    key: str = Field(description="What it is compared by.")
    names: list[str] = Field(description="All its names, that one first.")
    aliases: list[EntityAlias]
    facts: KnownFacts = Field(description="What is true of it, as subject or object.")
    earlier: KnownFacts = Field(description="What was true of it and is no longer.")
    neighbors: NeighborCount
    memories: Mentions
    actions: EntityActions
    first_seen: str | None = Field(description="When a fact, memory or action of these first named it.")
    last_seen: str | None


class RelatedBecause(Schema):
    reason: RelatedReason
    score: float | None = Field(description="Of `similar`: the cosine of both texts.")
    names: list[str] = Field(description="Of `shared_entity`: the entities that both mention.")


class RelatedMemory(Schema):
    memory: Memory
    reasons: list[RelatedBecause] = Field(description="At least one.")


class RelatedMemories(Schema):
    items: list[RelatedMemory] = Field(
        description="First those that replace, contradict or were made of each other, then by number of reasons and "
        "similarity."
    )
    next_cursor: str | None = Field(None, description="Always null: this is all.")
    warnings: list[SearchWarning]


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


@memories_router.get("/{memory_id}/related", response_model=RelatedMemories, responses=problems(404))
async def get_related_memories(
    memory_id: MemoryId, related: Annotated[RelatedService, Depends(related_service)], limit: Limit = 20
) -> Response:
    """List memories related to one, each with the reasons. They are for people: no ranking uses them."""
    return answer(await related.related(memory_id, limit))


@graph_router.get("/entities/{name:name}", response_model=EntityPage, responses=problems(404))
async def get_entity(
    name: EntityName,
    entities: Annotated[EntityService, Depends(entity_service)],
    sight: InSight,
    limit: Limit = 20,
) -> Response:
    """Get what is known of an entity: names, facts, mentions in memories, and actions. An unknown name has nothing of
    each."""
    return answer(await entities.page(name, sight, limit))
