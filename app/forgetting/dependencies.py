"""What forgetting's endpoint asks for."""

from typing import Annotated

from fastapi import Depends

from app.auth.dependencies import Caller, InResources
from app.forgetting.service import Forgetting
from app.memories.repository import MemoryRepository


def forgetting(held: InResources, caller: Caller) -> Forgetting:
    return Forgetting(MemoryRepository(held.store, caller.scope), held.clock)


InForgetting = Annotated[Forgetting, Depends(forgetting)]
