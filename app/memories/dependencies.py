"""What memory endpoints ask for."""

from typing import Annotated

from fastapi import Depends, Request

from app.auth.dependencies import calling
from app.memories.decays import Decays
from app.memories.embeddings import Embeddings
from app.memories.feedback import FeedbackService
from app.memories.lookup import Lookup
from app.memories.models import FEEDBACK, MEMORIES
from app.memories.recall import Recall
from app.memories.repository import MemoryRepository
from app.memories.service import MemoryService
from app.storage.repository import Repository


async def memory_service(request: Request) -> MemoryService:
    held, caller = calling(request)
    decays = Decays(held.agents, caller.scope.tenant)
    return MemoryService(MemoryRepository(held.store, caller.scope), Embeddings(held.embedder), decays, held.clock)


async def feedback_service(request: Request) -> FeedbackService:
    held, caller = calling(request)
    memories, notes = MemoryRepository(held.store, caller.scope), Repository(held.store, caller.scope, FEEDBACK)
    return FeedbackService(memories, notes, Decays(held.agents, caller.scope.tenant), held.clock, caller.lineage)


def recall_of(request: Request) -> Recall:
    """Called by the search endpoint itself: resolving a dependency takes as long as the search."""
    held, caller = calling(request)
    lookup = Lookup(held.store, caller.scope, held.embedder, MEMORIES, held.second_stage)
    return Recall(lookup, caller.scope, Decays(held.agents, caller.scope.tenant), held.accesses, held.clock)


Memories = Annotated[MemoryService, Depends(memory_service)]
Feedback = Annotated[FeedbackService, Depends(feedback_service)]
