"""What learning's endpoints ask for."""

from typing import Annotated

from fastapi import Depends, Request

from app.audit.tombstones import Tombstones
from app.auth.dependencies import calling
from app.consolidation.service import Learning
from app.consolidation.tools import Tools


async def learning(request: Request) -> Learning:
    held, caller = calling(request)
    tools = Tools(held.store, held.embedder, held.clock, held.agents, held.settings)
    return Learning(tools, held.llm, caller.scope, Tombstones.of(held, caller.scope.tenant))


InLearning = Annotated[Learning, Depends(learning)]
