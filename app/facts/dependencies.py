"""What fact endpoints ask for."""

from typing import Annotated

from fastapi import Depends, Request

from app.auth.dependencies import calling
from app.facts.models import FACTS
from app.facts.repository import FactRepository
from app.facts.service import FactService
from app.memories.embeddings import Embeddings
from app.memories.lookup import Lookup


async def fact_service(request: Request) -> FactService:
    return facts_of(request)


def facts_of(request: Request) -> FactService:
    """Called by the endpoint that asserts: resolving a dependency takes as long as the rules do."""
    held, caller = calling(request)
    lookup = Lookup(held.store, caller.scope, held.embedder, FACTS, held.second_stage)
    return FactService(FactRepository(held.store, caller.scope), Embeddings(held.embedder), lookup, held.clock)


Facts = Annotated[FactService, Depends(fact_service)]
