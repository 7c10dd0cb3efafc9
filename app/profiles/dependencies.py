"""What user and agent endpoints ask for."""

from typing import Annotated

from fastapi import Depends, Request

from app.auth.dependencies import calling
from app.memories.dependencies import Memories
from app.memories.repository import MemoryRepository
from app.profiles.agents import AgentService
from app.profiles.models import AGENTS, USERS
from app.profiles.users import UserService
from app.storage.repository import Repository


async def user_service(request: Request, memories: Memories) -> UserService:
    held, caller = calling(request)
    return UserService(Repository(held.store, caller.scope, USERS), memories, held.settings.limits, held.clock)


async def agent_service(request: Request) -> AgentService:
    held, caller = calling(request)
    return AgentService(
        Repository(held.store, caller.scope, AGENTS),
        Repository(held.store, caller.scope, USERS),
        MemoryRepository(held.store, caller.scope),
        held.clock,
    )


Users = Annotated[UserService, Depends(user_service)]
Agents = Annotated[AgentService, Depends(agent_service)]
