"""What session endpoints ask for."""

from typing import Annotated

from fastapi import Depends

from app.auth.dependencies import Caller, InResources
from app.memories.embeddings import Embeddings
from app.memories.repository import MemoryRepository
from app.sessions.repository import SessionRepository
from app.sessions.service import SessionService
from app.sessions.windows import Windows


def session_service(held: InResources, caller: Caller) -> SessionService:
    sessions = SessionRepository(held.store, caller.scope)
    memories = MemoryRepository(held.store, caller.scope)
    return SessionService(sessions, memories, Embeddings(held.embedder), held.clock)


def windows(held: InResources, caller: Caller) -> Windows:
    return Windows(SessionRepository(held.store, caller.scope), held.clock)


Sessions = Annotated[SessionService, Depends(session_service)]
InWindows = Annotated[Windows, Depends(windows)]
