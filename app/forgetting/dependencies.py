"""What forgetting's endpoint asks for."""

from typing import Annotated

from fastapi import Depends, Request

from app.auth.dependencies import calling
from app.forgetting.service import Forgetting
from app.memories.decays import Decays
from app.memories.repository import MemoryRepository


async def forgetting(request: Request) -> Forgetting:
    held, caller = calling(request)
    decays = Decays(held.agents, caller.scope.tenant)
    return Forgetting(MemoryRepository(held.store, caller.scope), decays, held.clock)


InForgetting = Annotated[Forgetting, Depends(forgetting)]
