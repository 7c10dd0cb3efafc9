"""What derived work works with."""

from dataclasses import dataclass

from app.clock import Clock
from app.embedding.embedder import Embedder
from app.idempotency.precondition import Precondition
from app.memories.decays import Decays
from app.memories.embeddings import Embeddings
from app.memories.repository import MemoryRepository
from app.memories.service import MemoryService
from app.profiles.models import USERS
from app.profiles.users import UserService
from app.settings import Settings
from app.state import AgentSettings
from app.storage.collection import Store
from app.storage.repository import Repository
from app.storage.scope import Scope

ALWAYS = Precondition(None)


@dataclass(frozen=True, slots=True)
class Tools:
    store: Store
    embedder: Embedder
    clock: Clock
    agents: AgentSettings
    settings: Settings

    def users(self, scope: Scope) -> UserService:
        decays = Decays(self.agents, scope.tenant)
        memories = MemoryService(MemoryRepository(self.store, scope), Embeddings(self.embedder), decays, self.clock)
        return UserService(Repository(self.store, scope, USERS), memories, self.settings.limits, self.clock)
