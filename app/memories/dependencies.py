"""What memory endpoints ask for."""

from typing import Annotated

from fastapi import Depends

from app.auth.dependencies import Caller, InResources
from app.memories.decays import Decays
from app.memories.embeddings import Embeddings
from app.memories.lookup import Lookup
from app.memories.models import MEMORIES
from app.memories.recall import Recall
from app.memories.repository import MemoryRepository
from app.memories.service import MemoryService


def memory_service(held: InResources, caller: Caller) -> MemoryService:
    decays = Decays(held.agents, caller.scope.tenant)
    return MemoryService(MemoryRepository(held.store, caller.scope), Embeddings(held.embedder), decays, held.clock)


def recall(held: InResources, caller: Caller) -> Recall:
    lookup = Lookup(held.store, caller.scope, held.embedder, MEMORIES)
    return Recall(lookup, caller.scope, Decays(held.agents, caller.scope.tenant), held.accesses, held.clock)


Memories = Annotated[MemoryService, Depends(memory_service)]
InRecall = Annotated[Recall, Depends(recall)]
