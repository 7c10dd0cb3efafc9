"""Dependencies of the memory endpoints."""

from typing import Annotated

from fastapi import Depends, Request

from app.auth.dependencies import get_caller
from app.memories.decay_settings import Decays
from app.memories.feedback import FeedbackService
from app.memories.indexing import Embeddings
from app.memories.models import FEEDBACK, MEMORIES
from app.memories.repository import MemoryRepository
from app.memories.search import MemorySearch
from app.memories.service import MemoryService
from app.retrieval.retriever import Retriever
from app.storage.repository import Repository


async def memory_service(request: Request) -> MemoryService:
    """Creates the memory service of the request's caller."""
    resources, principal = get_caller(request)
    decays = Decays(resources.agents, principal.scope.tenant)
    return MemoryService(
        MemoryRepository(resources.store, principal.scope), Embeddings(resources.embedder), decays, resources.clock
    )


async def feedback_service(request: Request) -> FeedbackService:
    """Creates the feedback service of the request's caller."""
    resources, principal = get_caller(request)
    memories, notes = (
        MemoryRepository(resources.store, principal.scope),
        Repository(resources.store, principal.scope, FEEDBACK),
    )
    return FeedbackService(
        memories, notes, Decays(resources.agents, principal.scope.tenant), resources.clock, principal.lineage
    )


def recall_of(request: Request) -> MemorySearch:
    """Creates the memory search of the request's caller.

    The search endpoint calls it directly, because resolving a dependency takes as long as the search.
    """
    resources, principal = get_caller(request)
    lookup = Retriever(resources.store, principal.scope, resources.embedder, MEMORIES, resources.second_stage)
    return MemorySearch(
        lookup, principal.scope, Decays(resources.agents, principal.scope.tenant), resources.accesses, resources.clock
    )


MemoryServiceDep = Annotated[MemoryService, Depends(memory_service)]
FeedbackServiceDep = Annotated[FeedbackService, Depends(feedback_service)]
