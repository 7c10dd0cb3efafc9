"""What memory endpoints ask for."""

from typing import Annotated

from fastapi import Depends, Request

from app.auth.dependencies import calling
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
    held, caller = calling(request)
    decays = Decays(held.agents, caller.scope.tenant)
    return MemoryService(MemoryRepository(held.store, caller.scope), Embeddings(held.embedder), decays, held.clock)


async def feedback_service(request: Request) -> FeedbackService:
    held, caller = calling(request)
    memories, notes = MemoryRepository(held.store, caller.scope), Repository(held.store, caller.scope, FEEDBACK)
    return FeedbackService(memories, notes, Decays(held.agents, caller.scope.tenant), held.clock, caller.lineage)


def recall_of(request: Request) -> MemorySearch:
    """Called by the search endpoint itself: resolving a dependency takes as long as the search."""
    held, caller = calling(request)
    lookup = Retriever(held.store, caller.scope, held.embedder, MEMORIES, held.second_stage)
    return MemorySearch(lookup, caller.scope, Decays(held.agents, caller.scope.tenant), held.accesses, held.clock)


MemoryServiceDep = Annotated[MemoryService, Depends(memory_service)]
FeedbackServiceDep = Annotated[FeedbackService, Depends(feedback_service)]
