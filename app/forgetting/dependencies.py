"""What forgetting's endpoints ask for."""

from typing import Annotated

from fastapi import Depends, Request

from app.audit.tombstones import Tombstones
from app.auth.dependencies import calling
from app.forgetting.erasure import Erasure
from app.forgetting.export import UserExport
from app.forgetting.service import Forgetting
from app.memories.decays import Decays
from app.memories.repository import MemoryRepository


async def forgetting(request: Request) -> Forgetting:
    held, caller = calling(request)
    decays = Decays(held.agents, caller.scope.tenant)
    return Forgetting(MemoryRepository(held.store, caller.scope), decays, held.clock)


InForgetting = Annotated[Forgetting, Depends(forgetting)]


async def erasure(request: Request) -> Erasure:
    held, caller = calling(request)
    return Erasure(held.store, caller.scope, held.clock, Tombstones.of(held, caller.scope.tenant), held.jobs)


async def user_export(request: Request) -> UserExport:
    held, caller = calling(request)
    return UserExport(held.store, caller.scope, held.collections, held.clock, Tombstones.of(held, caller.scope.tenant))


InErasure = Annotated[Erasure, Depends(erasure)]
InExport = Annotated[UserExport, Depends(user_export)]
