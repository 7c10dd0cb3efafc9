"""What session endpoints ask for."""

from typing import Annotated

from fastapi import Depends, Request

from app.auth.dependencies import calling
from app.memories.embeddings import Embeddings
from app.memories.repository import MemoryRepository
from app.sessions.repository import SessionRepository
from app.sessions.service import SessionService
from app.sessions.windows import Windows


async def session_service(request: Request) -> SessionService:
    held, caller = calling(request)
    sessions = SessionRepository(held.store, caller.scope)
    memories = MemoryRepository(held.store, caller.scope)
    learns = held.llm is not None
    return SessionService(sessions, memories, Embeddings(held.embedder), held.clock, held.settings, learns=learns)


async def windows(request: Request) -> Windows:
    held, caller = calling(request)
    return Windows(SessionRepository(held.store, caller.scope), held.clock)


Sessions = Annotated[SessionService, Depends(session_service)]
InWindows = Annotated[Windows, Depends(windows)]
