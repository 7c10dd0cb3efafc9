"""What memory endpoints ask for."""

from typing import Annotated

from fastapi import Depends, Request

from app.auth.dependencies import calling
from app.memories.embeddings import Embeddings
from app.memories.recall import Recall
from app.memories.repository import MemoryRepository
from app.memories.service import MemoryService


async def memory_service(request: Request) -> MemoryService:
    held, caller = calling(request)
    return MemoryService(MemoryRepository(held.store, caller.scope), Embeddings(held.embedder), held.clock)


def recall_of(request: Request) -> Recall:
    """Called by the search endpoint itself: resolving a dependency takes as long as the search."""
    held, caller = calling(request)
    return Recall(held.store, caller.scope, held.embedder, held.accesses, held.clock)


Memories = Annotated[MemoryService, Depends(memory_service)]
