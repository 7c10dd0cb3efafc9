"""What action endpoints ask for."""

from typing import Annotated

from fastapi import Depends, Request

from app.actions.models import ACTIONS
from app.actions.service import ActionService
from app.auth.dependencies import calling
from app.memories.embeddings import Embeddings
from app.memories.lookup import Lookup
from app.storage.repository import Repository


async def action_service(request: Request) -> ActionService:
    held, caller = calling(request)
    actions = Repository(held.store, caller.scope, ACTIONS)
    lookup = Lookup(held.store, caller.scope, held.embedder, ACTIONS, held.second_stage)
    return ActionService(actions, Embeddings(held.embedder), lookup, held.clock, learns=held.llm is not None)


Actions = Annotated[ActionService, Depends(action_service)]
